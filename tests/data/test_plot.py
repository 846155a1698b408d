"""The picture says what the data says."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from pdocrl.data import Dataset, make_dataset, save
from pdocrl.data import plot as pictures
from pdocrl.errors import DataError


def test_every_episode_is_a_dot_and_every_limit_a_line(small_dataset: Dataset) -> None:
    figure = pictures.scatter(small_dataset, limits=(1, 3))
    panel = figure.axes[0]
    dots = np.concatenate([collection.get_offsets() for collection in panel.collections])
    assert len(dots) == small_dataset.n_episodes
    assert sorted(dots[:, 1]) == pytest.approx(sorted(small_dataset.reward_return))
    upright = [
        line.get_xdata()[0] for line in panel.lines if len(set(line.get_xdata())) == 1 and len(line.get_xdata()) == 2
    ]
    assert upright == [1, 3]


def test_the_frontier_is_the_best_return_at_no_more_cost(small_dataset: Dataset) -> None:
    panel = pictures.scatter(small_dataset, limits=(2,)).axes[0]
    steps = next(line for line in panel.lines if line.get_drawstyle() == "steps-post")
    for cost, height in zip(steps.get_xdata(), steps.get_ydata(), strict=True):
        assert height == small_dataset.reward_return[small_dataset.cost_return[:, 0] <= cost].max()


def test_several_costs_get_a_panel_each(small_dataset: Dataset) -> None:
    costs = np.repeat(small_dataset.cost, 2, axis=1)
    two = dataclasses.replace(small_dataset, cost=costs, cost_names=("cost_boundary", "cost_speed"))
    figure = pictures.scatter(two, points={"ours": [[1.0, 2.0, 3.0]]})
    assert [panel.get_xlabel() for panel in figure.axes] == ["cost boundary of an episode", "cost speed of an episode"]
    assert [panel.collections[-1].get_offsets().tolist() for panel in figure.axes] == [[[2, 1]], [[3, 1]]]


def test_no_costs_no_picture() -> None:
    data = make_dataset([[0.0]], [[0.0]], [0.0], None, [[0.0]], [1], [0])
    with pytest.raises(DataError, match="no costs to plot"):
        pictures.scatter(data)


def test_the_command_writes_png_and_svg(run_cli, small_dataset: Dataset, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    save(small_dataset, tmp_path / "x.hdf5")
    for name in ("a.png", "a.svg", "b.svg", "a.pdf"):
        status, out, err = run_cli("data", "plot", tmp_path / "x.hdf5", "--out", tmp_path / name, "--limits", "1", "2")
        assert (status, out) == (0, "")
        assert f"wrote {tmp_path / name}" in err.replace("\n", "")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    assert ElementTree.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes(), "the same picture is the same file"
    status, _, err = run_cli("data", "plot", tmp_path / "x.hdf5", "--out", tmp_path / "x.gif")
    assert (status, err) == (2, f"error: {tmp_path}/x.gif: pictures are written as .png, .svg or .pdf.\n")


def test_labels_of_near_limits_stand_on_lines_of_their_own() -> None:
    assert pictures.label_lines([5, 10, 12, 20, 21, 22], 3) == [0, 0, 1, 0, 1, 2]

"""Marks and colours of many methods; what would lie on one another."""

from __future__ import annotations

import math
import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from pdocrl.report import chart
from pdocrl.report.chart import COLOURS, LETTER, SHAPES, Axis, shape_of


def test_no_two_of_twenty_methods_have_both_colour_and_shape_in_common() -> None:
    looks = {(series % COLOURS, shape_of(series)) for series in range(20)}
    assert len(looks) == 20
    assert {shape for _, shape in looks} <= set(range(len(SHAPES)))


def test_marks_that_coincide_move_apart_and_others_stay() -> None:
    places = [(10.0, 90.0), (10.0, 90.0), (14.0, 90.0), (80.0, 20.0)]
    found = chart.apart(places, 15.0)
    assert found[0] == places[0]
    assert found[3] == places[3]
    assert all(math.dist(a, b) >= 15.0 for a, b in combinations(found, 2))
    assert all(x >= places[i][0] and y <= places[i][1] for i, (x, y) in enumerate(found))  # never over the axes
    assert [bool(chart.leader(a, b)) for a, b in zip(places, found, strict=True)] == [False, True, True, False]


@pytest.mark.parametrize("values", [(5, 10, 12, 33), (10, 12, 14, 16, 18), (1, 2, 3, 40)])
def test_no_line_of_a_limit_runs_through_the_name_of_another(values) -> None:
    drawn = chart.limits(Axis(0, 80, 40, 320), 0.0, 200.0, values)
    lines = [(float(x), float(top)) for x, top in re.findall(r"M([\d.]+) ([\d.]+)V", drawn)]
    names = [(float(x), float(y), len(t)) for x, y, t in re.findall(r'<text x="([\d.]+)" y="([\d.]+)">(\d+)<', drawn)]
    assert len(lines) == len(names) == len(values)
    for left, baseline, letters in names:
        crossing = [x for x, top in lines if left <= x <= left + LETTER * letters and top < baseline - 2]
        assert crossing == []


# Machado, Oliveira and Fernandes (2009), severity 1, of linear RGB.
SIGHT = {
    "usual": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("sight", SIGHT)
def test_colours_differ_also_without_one_kind_of_cone(theme: str, sight: str) -> None:
    light, _, dark = (Path(chart.__file__).parent / "page.css").read_text().partition("@media")
    found = dict(re.findall(r"--series-(\d): #(\w{6})", light if theme == "light" else dark))
    coded = np.array([[int(found[str(k)][i : i + 2], 16) / 255 for i in (0, 2, 4)] for k in range(COLOURS)])
    linear = np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)
    seen = np.clip(linear @ np.transpose(SIGHT[sight]), 0, 1) @ XYZ.T
    f = np.cbrt(seen / XYZ.sum(axis=1))
    lab = np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1)
    apart = {pair: np.linalg.norm(lab[pair[0]] - lab[pair[1]]) for pair in combinations(range(COLOURS), 2)}
    assert min(apart.values()) > 10
    assert min(distance for pair, distance in apart.items() if pair[1] < 6) > 14

"""Sinks: TensorBoard and W&B are told what metrics.jsonl says, under names that tell runs apart, and are closed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pdocrl.cli.main import main
from pdocrl.data import save
from pdocrl.errors import PdocrlError
from pdocrl.training.folder import read_lines
from pdocrl.training.loggers import open_loggers
from pdocrl.training.train import train
from probes import bandit

SETTINGS = {"hidden": (8, 8), "batch_size": 16}
RUNS = [{"cost_limit": [2.0], "seed": 0}, {"cost_limit": [3.0], "seed": 0}]
LABELS = ["cost_limit=[2.0]_seed=0", "cost_limit=[3.0]_seed=0"]


class FakeWandB:
    """Stands for the module: remembers what it is asked to do."""

    def __init__(self) -> None:
        self.began: list[dict[str, Any]] = []
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.finished = 0

    def init(self, **how: Any) -> SimpleNamespace:
        self.began.append(how)
        return SimpleNamespace(log=self._log, finish=self._finish)

    def _log(self, values: dict[str, float], step: int) -> None:
        self.logged.append((step, dict(values)))

    def _finish(self) -> None:
        self.finished += 1


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> FakeWandB:
    fake = FakeWandB()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """{folder: scalars written to it} of a stand-in for tensorboardX; closing leaves the word "closed"."""
    written: dict[str, list[Any]] = {}

    class SummaryWriter:
        def __init__(self, folder: str) -> None:
            self.lines = written.setdefault(folder, [])

        def add_scalar(self, name: str, value: float, step: int) -> None:
            self.lines.append((name, value, step))

        def close(self) -> None:
            self.lines.append("closed")

    monkeypatch.setitem(sys.modules, "tensorboardX", SimpleNamespace(SummaryWriter=SummaryWriter))
    return written


def test_both_are_told_what_the_metrics_say(wandb: FakeWandB, writers: dict[str, list[Any]], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(
        bandit(n=400).dataset,
        "bc",
        cost_limit=[2.0, 3.0],
        steps=25,
        log_every=10,
        settings=SETTINGS,
        out=folder,
        loggers=["wandb", "tensorboard"],
    )
    lines = read_lines(folder / "metrics.jsonl")
    expected = {
        step: {f"{LABELS[x['run']]}/{n}": v for x in lines if x["step"] == step for n, v in x["metrics"].items()}
        for step in (10, 20, 25)
    }
    assert dict(wandb.logged) == expected
    assert len(wandb.logged) == 3
    assert wandb.began == [{"project": "pdocrl", "dir": str(folder), "config": {"runs": RUNS}}]
    assert wandb.finished == 1
    for run, label in enumerate(LABELS):
        own = [(n, v, x["step"]) for x in lines if x["run"] == run for n, v in x["metrics"].items()]
        assert writers[str(folder / "tensorboard" / label)] == [*own, "closed"]


def test_a_training_that_breaks_off_still_closes_them(
    wandb: FakeWandB, writers: dict[str, list[Any]], tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt), open_loggers(["wandb", "tensorboard"], tmp_path, RUNS):
        raise KeyboardInterrupt
    assert wandb.finished == 1
    assert list(writers.values()) == [["closed"], ["closed"]]


@pytest.mark.parametrize(("sink", "module"), [("wandb", "wandb"), ("tensorboard", "tensorboardX")])
def test_asked_for_and_not_installed_is_one_line(
    sink: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # importing it now raises ImportError
    save(bandit(n=400).dataset, tmp_path / "x.npz")
    command = [
        "train",
        str(tmp_path / "x.npz"),
        "--cost-limit",
        "2",
        "--steps",
        "1",
        "--agent",
        "bc",
        "--set",
        "hidden=8,8",
    ]
    assert main([*command, "batch_size=16", "--out", str(tmp_path / "run"), "--logger", sink]) == 2
    error = capsys.readouterr().err
    assert f"pip install 'pdocrl[{sink}]'" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists(), "nothing is written"


def test_a_sink_needs_a_folder_and_a_known_name(tmp_path: Path) -> None:
    with pytest.raises(PdocrlError, match="needs a folder"), open_loggers(["tensorboard"], None, RUNS):
        pass
    with pytest.raises(PdocrlError, match="Did you mean `wandb`"), open_loggers(["wanbd"], tmp_path, RUNS):
        pass

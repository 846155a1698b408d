"""Speeds are remembered; an estimate is speed times size."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pdocrl.bench.rates import Rates
from pdocrl.bench.suite import Group, named_suites


@pytest.fixture
def group() -> Group:
    """`pdocrl` on BallRun: nine runs, 100,000 steps, 20 episodes."""
    return named_suites()["paper"].groups(["pdocrl"], ["BallRun"])[0]


def test_speeds_are_remembered_and_scale_with_the_work(tmp_path: Path, group: Group) -> None:
    rates = Rates(tmp_path / "rates.json")
    assert rates.training(group) is None
    assert rates.playing(group) is None
    trained: Any = SimpleNamespace(metrics=[{"steps_per_second": 1.0}, {"steps_per_second": 50.0}])
    rates.learn_training(group, trained)
    rates.learn_playing(group, seconds=90.0)
    later = Rates(tmp_path / "rates.json")
    assert later.training(group) == pytest.approx(100_000 / 50)
    assert later.playing(group) == pytest.approx(90)
    short = dataclasses.replace(group, suite=dataclasses.replace(group.suite, steps=1000, episodes=10))
    assert later.training(short) == pytest.approx(1000 / 50)
    assert later.playing(short) == pytest.approx(45)


def test_other_settings_are_another_speed(tmp_path: Path, group: Group) -> None:
    rates = Rates(tmp_path / "rates.json")
    trained: Any = SimpleNamespace(metrics=[{"steps_per_second": 50.0}])
    rates.learn_training(group, trained)
    wide = dataclasses.replace(group.method, settings={"hidden": (512, 512)})
    assert rates.training(dataclasses.replace(group, method=wide)) is None


def test_a_damaged_memory_is_forgotten(tmp_path: Path, group: Group) -> None:
    path = tmp_path / "rates.json"
    for text in ("{", "[1]", '{"x": "fast"}'):
        path.write_text(text)
        assert Rates(path).training(group) is None


def test_a_shared_training_is_counted_once(tmp_path: Path) -> None:
    """On a CPU runs take turns; cdt's three limits are one training, pdocrl's are three."""
    suite = named_suites()["paper"]
    rates = Rates(tmp_path / "rates.json")
    trained: Any = SimpleNamespace(metrics=[{"steps_per_second": 50.0}])
    shared, own = suite.groups(["cdt"], ["BallRun"])[0], suite.groups(["pdocrl"], ["BallRun"])[0]
    for group in (shared, own):
        rates.learn_training(group, trained)
    one = [dataclasses.replace(g, entry=dataclasses.replace(g.entry, limits=((10.0,),))) for g in (shared, own)]
    assert rates.training(one[0]) == rates.training(shared)
    assert rates.training(one[1]) == pytest.approx((rates.training(own) or 0) / 3)

"""Speeds are remembered; an estimate is speed times size."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pdocrl.bench.rates import Rates, _key, _opening_key, _still_key
from pdocrl.bench.suite import Group, named_suites
from pdocrl.data.load import EMBEDDED, load
from pdocrl.data.tasks import find_task
from pdocrl.machine import cores


@pytest.fixture
def group() -> Group:
    """`pdocrl` on BallRun: nine runs, 100,000 steps, 20 episodes."""
    return named_suites()["eight"].groups(["pdocrl"], ["BallRun"])[0]


def logged(*stages: tuple[int, float]) -> Any:
    """A training that logged these steps and rates, two runs side by side."""
    return SimpleNamespace(
        metrics=[{"step": step, "run": run, "steps_per_second": rate} for step, rate in stages for run in (0, 1)]
    )


def sized(group: Group, steps: int, episodes: int, task: str = "BallRun") -> Group:
    """The same work, more or less of it."""
    entry = dataclasses.replace(group.entry, task=find_task(task))
    return dataclasses.replace(
        group, suite=dataclasses.replace(group.suite, steps=steps, episodes=episodes), entry=entry
    )


def test_a_training_takes_its_start_and_its_steps_and_both_are_remembered(tmp_path: Path, group: Group) -> None:
    """90,000 steps took 2,000 s after a stage that compiles; all of it took 2,300 s, so 77.8 are its start."""
    rates = Rates(tmp_path / "rates.json")
    assert rates.training(group) is None
    assert rates.playing(group) is None
    rates.learn_training(group, logged((10_000, 40.0), (60_000, 100.0), (100_000, 80 / 3)), seconds=2300.0)
    rates.learn_playing(group, seconds=90.0)
    later = Rates(tmp_path / "rates.json")
    per_step = (50_000 / 100 + 40_000 * 3 / 80) / 90_000
    assert later.training(group) == pytest.approx(2300)
    assert later.playing(group) == pytest.approx(90)
    start = 2300 - 100_000 * per_step
    assert start == pytest.approx(77.8, abs=0.1)
    assert later.training(sized(group, 1000, 10)) == pytest.approx(1000 * per_step + start)
    assert later.playing(sized(group, 1000, 10)) == pytest.approx(45)


def test_a_training_that_went_on_tells_its_speed_and_not_its_start(tmp_path: Path, group: Group) -> None:
    rates = Rates(tmp_path / "rates.json")
    rates.learn_training(group, logged((100_000, 50.0)))
    assert rates.training(group) == pytest.approx(2000)


def test_another_task_takes_what_the_known_ones_take_and_another_policy_what_it_decides(
    tmp_path: Path, group: Group
) -> None:
    rates = Rates(tmp_path / "rates.json")
    other = sized(group, 100_000, 20, "CarCircle")
    rates.learn_training(group, logged((100_000, 50.0)), seconds=2010.0)
    assert rates.training(other) == pytest.approx(2010)
    rates.learn_training(other, logged((100_000, 25.0)), seconds=4030.0)
    assert rates.training(sized(group, 100_000, 20, "DroneRun")) == pytest.approx((2010 + 4030) / 2)

    slow = dataclasses.replace(group, method=dataclasses.replace(group.method, agent="cdt"))
    rates.learn_playing(group, seconds=90.0)
    assert rates.playing(slow) == pytest.approx(90), "nothing better is known"
    assert not rates.knows_playing(slow)
    rates._keep(_still_key(slow), 0.5)  # of an episode, one core
    rates._keep(_key("decision", slow), 0.002)
    assert rates.knows_playing(slow)
    rates._keep(_opening_key(), 3.0)
    assert rates.playing(slow) == pytest.approx(3 + 9 * 20 * (0.5 + 0.002 * 100) / cores())
    assert rates.playing(group) == pytest.approx(90), "what was seen counts before what was measured"


def test_other_settings_are_another_speed(tmp_path: Path, group: Group) -> None:
    rates = Rates(tmp_path / "rates.json")
    rates.learn_training(group, logged((100, 50.0)))
    wide = dataclasses.replace(group.method, settings={"hidden": (512, 512)})
    assert rates.training(dataclasses.replace(group, method=wide)) is None


def test_what_is_measured_is_a_start_steps_and_decisions(
    tmp_path: Path, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pdocrl.bench.rates.FEW_SECONDS", 0.1)
    small = dataclasses.replace(group.method, agent="bc", settings={"hidden": (8, 8), "batch_size": 8})
    asked = dataclasses.replace(group, method=small)
    rates = Rates(tmp_path / "rates.json")
    rates.measure_training(asked, load(EMBEDDED / "ballrun.hdf5", "BallRun"))
    names = {key.split("/")[0] for key in json.loads((tmp_path / "rates.json").read_text())}
    assert names == {"start", "step", "decision"}
    assert (rates.training(asked) or 0) > (rates.training(sized(asked, 1, 1)) or 0) > 0


def test_a_damaged_memory_is_forgotten(tmp_path: Path, group: Group) -> None:
    path = tmp_path / "rates.json"
    for text in ("{", "[1]", '{"x": "fast"}'):
        path.write_text(text)
        assert Rates(path).training(group) is None


def test_a_shared_training_is_counted_once(tmp_path: Path) -> None:
    """On a CPU runs take turns; cdt's three limits are one training, pdocrl's are three."""
    suite = named_suites()["eight"]
    rates = Rates(tmp_path / "rates.json")
    trained = logged((100, 50.0))
    shared, own = suite.groups(["cdt"], ["BallRun"])[0], suite.groups(["pdocrl"], ["BallRun"])[0]
    for group in (shared, own):
        rates.learn_training(group, trained)
    one = [dataclasses.replace(g, entry=dataclasses.replace(g.entry, limits=((10.0,),))) for g in (shared, own)]
    assert rates.training(one[0]) == rates.training(shared)
    assert rates.training(one[1]) == pytest.approx((rates.training(own) or 0) / 3)

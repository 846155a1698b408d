"""Any policy, from any of its forms, is judged alike, and verdicts follow from intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdocrl
from pdocrl.errors import PdocrlError
from pdocrl.ope.judge import PolicyEstimates
from tests.ope.estimators.worlds import World

WORLD = World.random(0)
LOG = WORLD.log(600, seed=1)
BEST = np.array([f"a{a}" for a in WORLD.target.argmax(1)])


def by_rule(columns: dict[str, Any]) -> Any:
    return BEST[[int(s[1:]) for s in columns["s"]]]


class Classifier:
    classes_ = np.array(["a1", "a0"])

    def predict_proba(self, frame: Any) -> Any:
        return np.stack([by_rule(frame) == label for label in self.classes_], axis=1).astype(float)


def test_a_policy_in_five_forms_is_one_policy() -> None:
    table = np.eye(2)[LOG.action_codes(by_rule(LOG.frame()))]
    forms: list[Any] = [by_rule, "new", table, by_rule(LOG.frame()), Classifier()]
    found = [pdocrl.ope(form, LOG).estimates for form in forms]
    assert all(one == found[0] for one in found)


def test_verdicts_follow_from_the_intervals_and_the_record_is_kept(tmp_path: Path) -> None:
    truth = WORLD.value(WORLD.cost, WORLD.target)
    target = WORLD.target_rows(LOG)
    words = {scale: pdocrl.ope(target, LOG, limits={"cost": scale * truth}).limits[0].verdict for scale in (0.5, 1, 2)}
    assert words == {0.5: "violated", 1: "not shown", 2: "shown"}
    result = pdocrl.ope(target, LOG, limits={"cost": truth})
    result.save(tmp_path / "judged.json")
    assert PolicyEstimates.load(tmp_path / "judged.json") == result


def test_estimated_propensities_are_said_to_be_so() -> None:
    log = WORLD.log(600, seed=1, propensities=False)
    found = pdocrl.ope(WORLD.target_rows(log), log).of("weighted doubly robust", "cost")
    assert "estimated" in found.assumptions[0]
    assert found.interval is not None
    assert found.interval[0] < WORLD.value(WORLD.cost, WORLD.target) < found.interval[1]


def test_without_overlap_nothing_is_shown() -> None:
    few = WORLD.log(20, seed=2)
    found = pdocrl.ope(WORLD.target_rows(few), few, limits={"cost": 1e9}).limits[0]
    assert (found.verdict, found.estimator) == ("not shown", None)


@pytest.mark.parametrize(
    ("policy", "limits", "message"),
    [
        ("nwe", {}, "neither a kept column"),
        ("no_such_module:f", {}, "cannot be imported"),
        ("none.onnx", {}, "no such file"),
        (np.ones((3, 2)), {}, "shape"),
        (lambda columns: np.full(len(columns["s"]), "a7"), {}, "action 'a7' was never logged"),
        ("new", {"coast": 1.0}, "Did you mean `cost`"),
    ],
)
def test_bad_input_is_one_line(policy: Any, limits: dict[str, float], message: str) -> None:
    with pytest.raises(PdocrlError, match=message) as error:
        pdocrl.ope(policy, LOG, limits)
    assert "\n" not in str(error.value)

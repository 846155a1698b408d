"""Any policy, from any of its forms, is judged alike, and verdicts follow from intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdocrl
from pdocrl.data.event_log import EventLog
from pdocrl.errors import PdocrlError
from pdocrl.ope.estimators.problem import Estimate
from pdocrl.ope.result import OpeReport
from pdocrl.ope.verdicts import _unusable
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
    found = [one.estimates for one in pdocrl.ope(forms, LOG).policies]
    assert len(found) == 5
    assert all(one == found[0] for one in found)


def test_verdicts_follow_from_the_intervals_and_the_record_is_kept(tmp_path: Path) -> None:
    truth = WORLD.value(WORLD.cost, WORLD.target)
    target = WORLD.target_rows(LOG)
    words = {k: pdocrl.ope(target, LOG, {"cost": k * truth}).policies[0].verdict for k in (0.5, 1, 2)}
    assert words == {0.5: "over", 1: "not shown", 2: "within"}
    result = pdocrl.ope(target, LOG, limits=["cost<=2", "P(cost>5)<=0.2", "CVaR90(cost)<=20", "max(cost)<=1"])
    result.save(tmp_path / "judged.json")
    assert OpeReport.load(tmp_path / "judged.json") == result


def test_estimated_propensities_are_said_to_be_so() -> None:
    log = WORLD.log(600, seed=1, propensities=False)
    result = pdocrl.ope(WORLD.target_rows(log), log)
    found = result.policies[0].of("weighted doubly robust")
    assert result.propensities == "estimated"
    assert "estimated" in result.policies[0].assumptions[0]
    assert found.cost_interval[0] is not None
    assert found.cost_interval[0][0] < WORLD.value(WORLD.cost, WORLD.target) < found.cost_interval[0][1]


def test_without_overlap_nothing_is_shown() -> None:
    few = WORLD.log(20, seed=2)
    found = pdocrl.ope(WORLD.target_rows(few), few, limits={"cost": 1e9}).policies[0].limits[0]
    assert (found.verdict, found.estimator) == ("not shown", None)


def test_weights_that_the_log_lacks_are_not_taken_for_nothing() -> None:
    """Half of what the policy does is nearly missing in the log, and nothing says what it costs."""
    action = np.where(np.arange(200) == 7, "rare", "usual")
    chance = np.where(action == "rare", 0.05, 0.95)
    columns = {"x": np.zeros(200), "action": action, "reward": np.zeros(200), "cost": np.zeros(200), "p": chance}
    columns["cost"][:2] = 1.0  # it is not unheard of
    log = EventLog.read(columns, episode=None, propensity="p")
    half = {"half": np.full((200, 2), 0.5)}
    found = pdocrl.ope(half, log, "P(cost>0)<=0.2").policies[0].limits[0]
    assert found.verdict == "not shown"
    assert found.upper is not None
    assert found.upper > 0.4
    usual = {"usual": np.where(np.array(log.actions) == "usual", 0.95, 0.05)[None].repeat(200, 0)}
    assert pdocrl.ope(usual, log, "P(cost>0)<=0.2").policies[0].verdict == "within"


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


def test_the_interval_that_is_printed_is_the_one_that_decides() -> None:
    """Few effective episodes of many: weighted doubly robust is widened, and the estimate carries it."""
    log = WORLD.log(3000, seed=5)
    found = pdocrl.ope(0.4 * WORLD.target_rows(log) + 0.6 * np.eye(2)[log.action_codes(by_rule(log.frame()))], log)
    told = pdocrl.ope(
        0.4 * WORLD.target_rows(log) + 0.6 * np.eye(2)[log.action_codes(by_rule(log.frame()))], log, {"cost": 3}
    )
    [verdict] = told.policies[0].limits
    estimate = found.policies[0].of(str(verdict.estimator))
    assert estimate.cost_interval[0] == pytest.approx((verdict.lower, verdict.upper))
    assert estimate.ess is not None
    assert estimate.ess < 0.25 * told.episodes


def visits(**columns: Any) -> dict[str, Any]:
    """A log of bandits with these columns beside its own."""
    rng = np.random.default_rng(0)
    treat = rng.random(400) < 0.4
    found = {"age": rng.integers(20, 80, 400), "action": np.where(treat, "yes", "no"), "reward": 1.0 * treat}
    return found | {"propensity": np.where(treat, 0.4, 0.6)} | columns


def seen(columns: dict[str, Any]) -> Any:
    """A policy that is shown the state columns alone."""
    assert list(columns) == ["age"]
    return np.full(len(columns["age"]), "yes")


def test_a_column_propensity_is_taken_as_that_and_never_as_a_state(tmp_path: Path) -> None:
    import pandas as pd

    file = tmp_path / "log.csv"
    pd.DataFrame(visits()).to_csv(file, index=False)
    for log in (visits(), file):
        for given in ({}, {"stream": True}):
            told = pdocrl.ope(seen, log, episode=None, **given)
            assert (told.propensities, told.warnings) == ("logged", [])
            assert pdocrl.ope(seen, log, episode=None, propensity=None, **given).propensities == "estimated"
    score = visits(propensity=np.arange(400) / 100)
    for given in ({}, {"stream": True}):
        told = pdocrl.ope(seen, score, episode=None, **given)
        assert told.propensities == "estimated"
        assert any("`propensity` is not used" in line for line in told.warnings)
    by_limit = {"limits": ["reward>=0.1"], "episode": None}
    assert "propensities are as logged" in pdocrl.certify(seen, visits(), **by_limit).statements[0].assumption
    unused = pdocrl.certify(seen, score, **by_limit)
    assert "propensities are estimated" in unused.statements[0].assumption
    assert any("`propensity` is not used" in line for line in unused.notes)


def test_a_propensity_of_something_else_names_the_way_out(run_cli: Any, tmp_path: Path) -> None:
    import pandas as pd

    file = tmp_path / "log.csv"
    pd.DataFrame(visits(propensity=np.full(400, 0.01), new="yes")).to_csv(file, index=False)
    asked = ("ope", "new", "--data", file, "--episode", "none")
    status, _, said = run_cli(*asked)
    assert status == 2
    assert said.rstrip().endswith("--propensity none has it estimated.")
    assert run_cli(*asked, "--propensity", "none", "--json")[0] == 0


def test_why_nothing_is_shown_names_the_condition_that_failed() -> None:
    def one(size: float, share: float, interval: Any = (0.0, 2.0)) -> Estimate:
        return Estimate("weights", "cost", 1.0, interval, size, share)

    assert "49 effective episodes, 50 are needed" in _unusable([one(49.0, 0.2)])
    assert _unusable([one(98.5, 0.2)]) == "one episode has 20 % of all weight, more than 10 %"
    assert _unusable([one(98.5, 0.05, None)]).startswith("weights has no interval here")


def test_one_of_several_deciders_of_long_episodes_is_not_judged_by_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their own third of the episodes has weight 1, the others 0; many effective episodes, and few on the way."""
    monkeypatch.setattr("pdocrl.ope.judge.regressors.installed", lambda: False)
    rng = np.random.default_rng(0)
    who = np.repeat(rng.integers(0, 3, 300), 30)
    x = rng.normal(size=len(who))
    chance = np.array([0.9, 0.5, 0.1])[who]
    a = (rng.random(len(who)) < chance).astype(int)
    log = {"episode": np.arange(len(who)) // 30, "x": x, "action": a, "reward": x, "cost": 1.0 * a}
    log |= {"p": np.where(a == 1, chance, 1 - chance), "who": np.array(["A", "B", "C"])[who]}

    def like(p: float) -> Any:
        return lambda columns: np.tile([1 - p, p], (len(columns["x"]), 1))

    given = {"propensity": "p", "decider": "who"}
    first, second = pdocrl.ope({"A": like(0.9), "B": like(0.5)}, log, ["cost<=28"], **given).policies
    for told in (first, second):
        weighted = told.of("weighted trajectory importance sampling")
        assert weighted.ess > 50
        assert not weighted.usable
        assert told.verdict == "not shown"
        assert "average less than half" in told.limits[0].why
    alone = {name: values[who == 0] for name, values in log.items()}
    assert pdocrl.ope(like(0.9), alone, ["cost<=28"], **given).policies[0].verdict == "within"

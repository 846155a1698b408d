"""From a log with a limit on a tail to a policy that remembers: doors, export, rounding, refusals."""

from __future__ import annotations

import csv
import dataclasses
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdocrl
from pdocrl.cli.main import main
from pdocrl.errors import PdocrlError
from pdocrl.tabular import Counts
from pdocrl.tabular.tails import TailPolicy, TailResult, solve_tails
from pdocrl.tabular.tails.augment import common_unit

HORIZON = 5


def step(s: int, a: int, rng: np.random.Generator, sizes: tuple[float, ...]) -> tuple[int, float, float]:
    """The bolder action pays more, and costs a random size now and then."""
    cost = float(rng.choice(sizes)) if rng.random() < 0.25 * a else 0.0
    return int(np.clip(s + rng.integers(-1, 2), 0, 2)), 0.2 * s + a, cost


def rows(episodes: int, seed: int, sizes: tuple[float, ...] = (1.0, 2.0)) -> dict[str, Any]:
    rng, table = np.random.default_rng(seed), []
    for e in range(episodes):
        s = 1
        for t in range(HORIZON):
            a = int(rng.integers(3))
            z, r, c = step(s, a, rng, sizes)
            table.append((e, t, f"s{s}", ("low", "mid", "high")[a], f"s{z}", r, c))
            s = z
    names = ("episode", "step", "state", "action", "next_state", "reward", "cost")
    return dict(zip(names, map(np.array, zip(*table, strict=True)), strict=True))


@pytest.fixture(scope="module")
def log() -> dict[str, Any]:
    return rows(400, 0)


@pytest.fixture(scope="module")
def result(log: dict[str, Any]) -> TailResult:
    found = pdocrl.solve(log, limits=["P(cost>2)<=0.1", "CVaR90(cost)<=3"], horizon=HORIZON)
    assert isinstance(found, TailResult)
    return found


def count(log: dict[str, Any]) -> Counts:
    columns = {name: log[name] for name in ("state", "action", "next_state", "reward", "episode", "step")}
    return Counts.from_arrays(**columns, costs={"cost": log["cost"]}, horizon=HORIZON)


def test_what_is_told_of_the_policy_comes_true_in_the_log_s_own_model(log: dict[str, Any], result: TailResult) -> None:
    """The exported policy, simulated on the log's own rows, spends as the record says."""
    policy, rng = result.policy, np.random.default_rng(0)
    at: dict[tuple[str, str, int], list[int]] = {}
    for i, key in enumerate(zip(log["state"], log["action"], log["step"], strict=True)):
        at.setdefault((str(key[0]), str(key[1]), int(key[2])), []).append(i)
    totals, rewards = [], []
    for _ in range(3000):
        state, spent, earned = "s1", 0.0, 0.0
        for t in range(HORIZON):
            i = int(rng.choice(at[state, str(policy.act(state, spent, t)), t]))
            spent, earned, state = spent + log["cost"][i], earned + log["reward"][i], str(log["next_state"][i])
        totals.append(spent)
        rewards.append(earned)
    assert np.mean(rewards) == pytest.approx(result.value, abs=0.05)
    for limit, cost in zip(result.limits, result.costs, strict=True):
        assert limit.of(totals) == pytest.approx(cost, abs=0.025 if limit.measure == "exceedance" else 0.1)
    one = result.remembered[0]
    assert sum(one.probabilities) + one.over == pytest.approx(1.0)
    assert np.mean(np.array(totals) == 1.0) == pytest.approx(one.probabilities[1], abs=0.02)
    episodes = np.bincount(log["episode"], log["cost"])
    for limit, logged in zip(result.limits, result.log_costs, strict=True):
        assert logged == pytest.approx(limit.of(episodes))


def test_the_policy_acts_on_what_was_spent(result: TailResult) -> None:
    policy = result.policy
    bold = [policy.probabilities("s1", spent, HORIZON - 1).get("high", 0.0) for spent in (0.0, 2.0)]
    assert bold[0] == pytest.approx(1.0)
    assert bold[1] < 0.9
    assert policy.probabilities("s1", 99.0, 3) == policy.probabilities("s1", 100.0, 3)
    assert sum(policy.probabilities("elsewhere", 0.0, 0).values()) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="at least 0"):
        policy.act("s1", -1.0, 0)
    with pytest.raises(ValueError, match="nothing for `cost`"):
        policy.act("s1", {"other": 1.0}, 0)


def test_a_saved_policy_runs_with_numpy_alone(result: TailResult, tmp_path: Path) -> None:
    files = result.save(tmp_path / "policy")
    assert TailResult.load(tmp_path / "policy") == result
    spec = importlib.util.spec_from_file_location("act", files[2])
    assert spec is not None
    assert spec.loader is not None
    act = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(act)
    assert "pdocrl" not in {
        line.split()[1].split(".")[0]
        for line in files[2].read_text("utf-8").splitlines()
        if line.startswith(("import ", "from "))
    }
    again = act.load(tmp_path / "policy")
    for spent in (0.0, 1.0, 2.0, 5.0):
        assert again.probabilities("s1", {"cost": spent}, 2) == result.policy.probabilities("s1", spent, 2)


def test_the_command_prints_writes_and_refuses(
    log: dict[str, Any], result: TailResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "log.csv"
    with file.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(log)
        writer.writerows(zip(*log.values(), strict=True))
    limits = ["--limit", "P(cost>2)<=0.1", "CVaR90(cost)<=3"]
    main(["solve", str(file), "--horizon", "5", *limits, "--json", "--out", str(tmp_path / "out")])
    printed = json.loads(capsys.readouterr().out)
    assert printed["value"] == pytest.approx(result.value, abs=1e-7)
    assert (tmp_path / "out" / "act.py").exists()
    for more, said in ((["--confidence", "0.9"], "--confidence is not"), (["--C", "3"], "--C is not")):
        assert main(["solve", str(file), "--horizon", "5", *limits, *more]) == 2
        assert said in capsys.readouterr().err
    assert main(["solve", str(file), "--gamma", "0.9", *limits]) == 2
    assert "--horizon" in capsys.readouterr().err


def test_two_columns_are_remembered_apart(log: dict[str, Any]) -> None:
    """The same cost under two names is the same problem as under one."""
    columns = {name: log[name] for name in ("state", "action", "next_state", "reward", "episode", "step")}
    twins = Counts.from_arrays(**columns, costs={"one": log["cost"], "two": 2 * log["cost"]}, horizon=HORIZON)
    together = solve_tails(twins, ["P(one>2)<=0.15", "P(two>6)<=0.03"], min_count=1)
    alone = solve_tails(count(log), ["P(cost>2)<=0.15", "P(cost>3)<=0.03"], min_count=1)
    assert together.value == pytest.approx(alone.value, abs=1e-8)
    assert [one.unit for one in together.remembered] == [1.0, 2.0]
    assert together.multipliers == pytest.approx(alone.multipliers, abs=1e-6)
    action = together.policy.act("s1", {"one": 1.0, "two": 2.0}, 1)
    assert action in together.actions
    with pytest.raises(ValueError, match="one, two"):
        together.policy.act("s1", 1.0, 1)


def test_costs_of_no_common_unit_are_rounded_up_and_the_limit_holds() -> None:
    log = rows(300, 1, sizes=(0.7310585786, 1.1192029220))
    limits = ["P(cost>1.5)<=0.1"]
    fine = solve_tails(count(log), limits, min_count=1)
    coarse = solve_tails(count(log), limits, min_count=1, unit=0.5)
    column = coarse.remembered[0]
    assert not column.exact
    # 0.7311 counts as 1 and 1.1192 as 1.5: at most five times the larger excess
    assert column.error == pytest.approx(5 * (1.5 - 1.1192029220))
    assert fine.remembered[0].error < column.error / 20
    assert coarse.value < fine.value
    assert any("rounded up" in note for note in coarse.notes)
    # exact spending: the totals of one and of two costs are told apart by hand
    whole = rows(300, 1, sizes=(1.0, 2.0))
    whole["cost"] = np.select([log["cost"] > 1, log["cost"] > 0], [2.0, 1.0], 0.0)
    exact = solve_tails(count(whole), ["P(cost>2)<=0.1"], min_count=1)
    assert coarse.costs[0] <= 0.1 + 1e-9
    assert exact.remembered[0].exact
    assert exact.status == fine.status == "optimal"


def test_units_of_costs() -> None:
    assert common_unit(np.array([0.0, 2.0, 6.0])) == 2.0
    assert common_unit(np.array([0.25, 1.5])) == pytest.approx(0.25)
    assert common_unit(np.array([1 / 3, np.pi])) is None
    assert common_unit(np.zeros(3)) == 1.0


def test_what_cannot_be_solved_is_refused_in_one_line(log: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    counts = count(log)
    with pytest.raises(PdocrlError, match="horizon"):
        solve_tails(dataclasses.replace(counts, horizon=None), ["P(cost>2)<=0.1"])
    with pytest.raises(PdocrlError, match="confidence"):
        pdocrl.solve(counts, limits=["P(cost>2)<=0.1"], confidence=0.95)
    with pytest.raises(PdocrlError, match="negative"):
        solve_tails(count({**log, "cost": -log["cost"]}), ["P(cost>2)<=0.1"])
    monkeypatch.setattr("pdocrl.tabular.tails.augment.LARGEST", 100)
    with pytest.raises(PdocrlError, match="limit the mean"):
        solve_tails(counts, ["P(cost>2)<=0.1"])


def test_limits_nobody_keeps_are_infeasible_and_missed_by_the_least() -> None:
    log = rows(200, 2)
    log["cost"] = log["cost"] + 1.0
    found = solve_tails(count(log), ["P(cost>4)<=0.5"], min_count=1)
    assert found.status == "infeasible"
    assert found.costs[0] == pytest.approx(1.0)
    assert "misses them least" in found.missed()


def test_samples_and_log_probabilities_know_the_spending() -> None:
    rows = [
        {"state": "s", "step": 0, "spent": [spent], "action": action, "probability": p}
        for spent, chances in ((0, (0.25, 0.75)), (1, (1.0, 0.0)))
        for action, p in zip("ab", chances, strict=True)
    ]
    columns = [{"name": "cost", "unit": 1.0, "cap": 1}]
    policy = TailPolicy({"actions": ["a", "b"], "columns": columns, "unseen": {"chances": [1.0, 0.0]}, "rows": rows})
    assert policy.log_prob("s", "b") == pytest.approx(np.log(0.75))
    assert (policy.log_prob("s", "b", spent=1.0), policy.log_prob("s", "a", spent={"cost": 1.0})) == (-np.inf, 0.0)
    rng = np.random.default_rng(0)
    drawn = [policy.sample("s", rng) for _ in range(2000)]
    assert np.mean(np.array(drawn) == "b") == pytest.approx(0.75, abs=0.04)
    assert {policy.sample("s", seed, spent=1.0) for seed in range(20)} == {"a"}
    assert policy.sample("s", 7) == policy.sample("s", 7)
    with pytest.raises(ValueError, match="action 'c' is none of the policy's: a, b"):
        policy.log_prob("s", "c")

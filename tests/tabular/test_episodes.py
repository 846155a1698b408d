"""Limits per episode: totals are totals, whenever they are paid and however long episodes are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from pdocrl.errors import DataError
from pdocrl.tabular.api import solve
from pdocrl.tabular.cmdp import CMDP, evaluate, occupancy
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.io.logs import count_log

Run = Callable[..., tuple[int, str, str]]


def last_step_cost(episodes: int = 60, steps: int = 30) -> dict[str, np.ndarray]:
    """One state, two actions that pay 1 and 0.5; whatever one does, the last step costs exactly 1."""
    rng = np.random.default_rng(0)
    step = np.tile(np.arange(steps), episodes)
    a = rng.integers(2, size=len(step))
    zeros = np.zeros(len(step), int)
    log = {"state": zeros, "action": a, "next_state": zeros, "reward": np.where(a == 0, 1.0, 0.5)}
    return log | {"costs": (step == steps - 1) * 1.0, "episode": np.repeat(np.arange(episodes), steps), "step": step}


def test_a_cost_paid_on_the_last_step_counts_whole() -> None:
    counts = Counts.from_arrays(**last_step_cost(), horizon=30)
    result = solve(counts, 0.97, ["cost<=0.5"], C=2, resamples=0)
    assert result.status == "infeasible"
    assert result.costs[0] == pytest.approx(1)
    assert result.unit == "episode"
    kept = solve(counts, 0.97, ["cost<=1"], C=np.inf, resamples=0)
    assert kept.status == "optimal"
    assert kept.value == pytest.approx(sum(0.97**t for t in range(30)))
    assert solve(counts, None, ["cost<=1"], C=np.inf, resamples=0).value == pytest.approx(30)  # undiscounted


def test_the_command_says_so_too(run_cli: Run, tmp_path: Path) -> None:
    log = last_step_cost()
    log["cost"] = log.pop("costs")
    pyarrow.parquet.write_table(pyarrow.table(log), tmp_path / "log.parquet")
    quick = ("--C", "3", "--resamples", "10", "--refits", "1", "--gamma", "0.97")
    where = str(tmp_path / "log.parquet")
    _, out, err = run_cli("solve", where, "--horizon", "30", "--limit", "cost<=0.5", *quick, "--json")
    found = json.loads(out)
    assert (found["status"], found["unit"]) == ("infeasible", "episode")
    assert found["costs"]["cost"] == pytest.approx(1)
    assert found["intervals"]["costs"]["cost"] == pytest.approx([1, 1])
    assert {"state", "step", "action", "probability"} == set(found["policy"][0])
    assert "cannot be met" in err
    status, _, err = run_cli("solve", where, "--horizon", "20", "--limit", "cost<=0.5", *quick)
    assert status == 2
    assert "an episode has 30 steps" in err
    assert "--limit-horizon 20" in err


def test_the_file_and_the_arrays_give_the_same_counts(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    lengths = rng.integers(1, 6, size=50)
    episode = np.repeat(np.arange(50), lengths)
    step = np.concatenate([np.arange(n) for n in lengths])
    n = len(step)
    log = {"state": rng.integers(3, size=n), "action": rng.integers(2, size=n), "next_state": rng.integers(3, size=n)}
    log |= {"reward": rng.random(n), "episode": episode, "step": 10 * step}
    log["next_state"][:-1] = np.where(np.diff(episode) == 0, log["state"][1:], log["next_state"][:-1])
    shuffled = rng.permutation(n)
    table = pyarrow.table({name: column[shuffled] for name, column in log.items()})
    pyarrow.parquet.write_table(table, tmp_path / "log.parquet")
    first = Counts.from_arrays(**log, horizon=5)
    second = count_log(tmp_path / "log.parquet", horizon=5)
    assert first.states == second.states
    assert (first.horizon, second.horizon) == (5, 5)
    for name in ("pair", "to", "count", "starts"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    np.testing.assert_allclose(first.mean, second.mean)


def test_episodes_of_different_lengths_are_valued_as_they_are() -> None:
    """Action 0 ends at once and pays 1; action 1 goes on to a second step that pays 3 and costs 1."""
    rows = [(0, 0, 0, 0, 1.0, 0.0)] * 30 + [(0, 1, 1, 0, 0.0, 0.0), (1, 0, 1, 1, 3.0, 1.0)] * 30
    episode, k = [], 0
    for row in rows:
        episode.append(k)
        k += row[0] == 1 or row[1] == 0
    state, action, then, step, reward, cost = (np.array(column) for column in zip(*rows, strict=True))
    counts = Counts.from_arrays(state, action, then, reward, cost, episode=episode, step=step, horizon=2)
    result = solve(counts, 1.0, ["cost<=0.25"], C=np.inf, resamples=0)
    assert result.status == "optimal"
    assert result.value == pytest.approx(0.75 * 1 + 0.25 * 3)
    assert result.costs[0] == pytest.approx(0.25)
    assert result.multipliers[0] == pytest.approx(2)


def test_a_bandit_is_an_episode_of_one_step() -> None:
    rng = np.random.default_rng(0)
    n = 4000
    s, a = rng.integers(2, size=n), rng.integers(3, size=n)
    reward, spend = (s == a) * 1.0, a * 1.0
    counts = Counts.from_arrays(s, a, s, reward, {"spend": spend}, episode=np.arange(n), horizon=1)
    result = solve(counts, None, ["spend<=0.3"], C=np.inf, resamples=0)
    d1 = counts.d0[[label.startswith("1") for label in counts.states]].sum()
    assert result.costs[0] == pytest.approx(0.3)  # dollars an item shown, not discounted
    assert result.value == pytest.approx((1 - d1) + 0.3)


def test_a_horizon_needs_episodes_and_a_discount_of_at_most_one() -> None:
    with pytest.raises(DataError, match="needs `episode`"):
        Counts.from_arrays([0], [0], [0], [1.0], horizon=3)
    counts = Counts.from_arrays([0, 0], [0, 0], [0, 0], [1.0, 1.0], episode=[0, 0], horizon=2)
    with pytest.raises(DataError, match="at most 1"):
        solve(counts, 1.1, C=1, resamples=0)


def test_in_other_words_per_step_taken_and_per_episode(run_cli: Run, tmp_path: Path) -> None:
    """A bandit with ends: (1−γ)J of a spend of 2 an item is 0.02 at γ = 0.99, and 2 per step and per episode."""
    n = 200
    table = {"state": [0] * n, "action": [0, 1] * (n // 2), "next_state": [0] * n, "reward": [1.0] * n}
    pyarrow.parquet.write_table(
        pyarrow.table(table | {"cost": [2.0] * n, "terminal": [True] * n}), tmp_path / "b.parquet"
    )
    quick = ("--gamma", "0.99", "--C", "2", "--resamples", "0", "--limit", "cost<=1", "--json")
    found = json.loads(run_cli("solve", str(tmp_path / "b.parquet"), *quick)[1])
    assert found["unit"] == "discounted"
    assert found["costs"]["cost"] == pytest.approx(0.02)
    assert found["units"]["per step taken"]["cost"] == pytest.approx(2)
    assert found["units"]["per episode, discounted"]["cost"] == pytest.approx(2)


def ending_log(seed: int = 0, n: int = 3000) -> dict[str, np.ndarray]:
    """Episodes that begin in state 0 and end with a chance of a fifth; action 1 pays more, costs more, ends sooner."""
    rng = np.random.default_rng(seed)
    s, a = rng.integers(3, size=n), rng.integers(2, size=n)
    ends = rng.random(n) < 0.1 + 0.2 * a
    cost = a * (rng.random(n) < 0.5) * 1.0
    return {
        "state": s,
        "action": a,
        "next_state": rng.integers(3, size=n),
        "reward": s + 1.0 * a,
        "costs": cost,
        "terminal": ends,
    }


def test_per_step_is_the_average_over_the_steps_of_an_episode() -> None:
    """(1−γ)J of one episode following the other is E Σγᵗc / E Σγᵗ of one episode."""
    counts = Counts.from_arrays(**ending_log(), d0=[0.5, 0.5, 0.0])
    result = solve(counts.going_on(), 0.9, ["cost<=0.1"], C=np.inf, resamples=0)
    assert result.unit == "step"
    model = CMDP(counts.P, counts.r, -counts.costs, np.zeros(1), counts.d0, 0.9)
    alone, length = evaluate(model, result.policy), occupancy(model, result.policy).sum()
    np.testing.assert_allclose(result.costs[0], -alone.constraints[0] / length)
    np.testing.assert_allclose(result.value, alone.value / length)
    np.testing.assert_allclose(result.costs[0], 0.1)


def test_per_step_with_one_start_is_the_log_in_which_ends_lead_there() -> None:
    log, start = ending_log(), [1.0, 0.0, 0.0]
    there = log | {"next_state": np.where(log["terminal"], 0, log["next_state"]), "terminal": None}
    both = Counts.from_arrays(**log, d0=start).going_on(), Counts.from_arrays(**there, d0=start)
    results = [solve(counts, 0.9, ["cost<=0.1"], C=3.0, resamples=20, refits=0) for counts in both]
    np.testing.assert_allclose(results[0].policy, results[1].policy, atol=1e-7)
    assert results[0].intervals is not None
    assert results[1].intervals is not None
    np.testing.assert_allclose(results[0].intervals.value, results[1].intervals.value, rtol=0.02)
    first, second = (list(result.intervals.costs.values()) for result in results)
    np.testing.assert_allclose(first, second, rtol=0.02)


def test_the_command_takes_limits_per_step(run_cli: Run, tmp_path: Path) -> None:
    log = ending_log(n=400)
    rows = zip(*(log[name] for name in ("state", "action", "next_state", "reward", "costs", "terminal")), strict=True)
    text = "\n".join(",".join(str(value) for value in row) for row in rows)
    (tmp_path / "log.csv").write_text(f"state,action,next_state,reward,cost,terminal\n{text}\n")
    asked = ("--gamma", "0.9", "--limit", "cost<=0.1", "--C", "inf", "--resamples", "0", "--json")
    status, out, _ = run_cli("solve", tmp_path / "log.csv", "--per", "step", *asked)
    found = json.loads(out)
    assert (status, found["unit"], round(found["costs"]["cost"], 9)) == (0, "step", 0.1)
    status, _, err = run_cli("solve", tmp_path / "log.csv", "--per", "step", "--horizon", "5", *asked)
    assert (status, "per episode" in err or "episode" in err) == (2, True)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_log_of_few_rows_is_solved_or_refused_in_one_line(run_cli: Run, tmp_path: Path, rows: int) -> None:
    text = "".join(f"0,{i},0,1,0\n" for i in range(rows))
    (tmp_path / "log.csv").write_text(f"state,action,next_state,reward,cost\n{text}")
    asked = ("solve", tmp_path / "log.csv", "--gamma", "0.5", "--limit", "cost<=1", "--C", "2")
    assert run_cli(*asked)[0] == 0
    status, _, err = run_cli(*asked, "--confidence", "0.9")
    assert (status, "cannot be cut in two" in err) == ((2, True) if rows == 1 else (0, False))

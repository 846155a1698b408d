"""What people ask next: each answer agrees with what can be computed by hand or with the truth."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pdocrl.errors import PdocrlError
from pdocrl.tabular import Result, solve
from pdocrl.tabular.analysis import compare, explain, frontier, more_data, parse_frontier
from pdocrl.tabular.cmdp import evaluate, random_cmdp, values
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.inference.bounds import PolicyEstimate, clustered, lead
from pdocrl.tabular.result.policy import load
from pdocrl.tabular.result.report import save
from pdocrl.tabular.solvers.lagrangian import Lagrangian, pessimistic_model

Run = Callable[..., tuple[int, str, str]]


def log() -> Counts:
    """Two states; action 1 pays more and costs; in state 1 action 1 was tried twenty times, all else often."""
    rng = np.random.default_rng(0)
    n = 4000
    s, a = rng.integers(2, size=n), rng.integers(2, size=n)
    a[(s == 1) & (np.cumsum((s == 1) & (a == 1)) > 20)] = 0
    reward, cost = a + 0.1 * s + 0.3 * rng.random(n), a * (rng.random(n) < 0.5)
    return Counts.from_arrays(s, a, (s + rng.integers(2, size=n)) % 2, reward, cost * 1.0, d0=[0.5, 0.5])


def solved(counts: Counts, limit: float = 0.2) -> Result:
    return solve(counts, 0.9, {"cost": limit}, C=np.inf, resamples=0)


def test_a_frontier_is_concave_and_its_slope_is_the_multiplier() -> None:
    counts = log()
    line = frontier(counts, solved(counts), "cost", np.linspace(0.05, 0.35, 7), resamples=0)
    reward = np.array([one.value for one in line])
    assert np.all(np.diff(reward) >= -1e-9)
    assert np.all(np.diff(reward, 2) <= 1e-9)
    for k in range(1, 6):
        low, high = (reward[k + 1] - reward[k]) / 0.05, (reward[k] - reward[k - 1]) / 0.05
        assert low - 1e-6 <= line[k].multipliers[0] <= high + 1e-6


@pytest.mark.parametrize("text", ["cost", "cost=1:2", "cost=a:b:3", "=1:2:3", "cost=1:2:1"])
def test_a_frontier_that_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(PdocrlError, match="write it as stockout"):
        parse_frontier(text)
    assert parse_frontier("cost=0:1:3") == ("cost", (0.0, 0.5, 1.0))


def test_policies_are_compared_on_the_same_rows(tmp_path: Path) -> None:
    counts = log()
    results = [solved(counts, 0.1), solved(counts, 0.3)]
    for k, result in enumerate(results):
        save(result, tmp_path / str(k))
    policies = {name: load(tmp_path / name) for name in ("0", "1")}
    judged = compare(counts, 0.9, {"cost": 0.2}, policies)
    first, second = judged.policies
    assert [one.estimate["reward"] for one in judged.policies] == pytest.approx([result.value for result in results])
    assert [one.estimate["cost"] for one in judged.policies] == pytest.approx([0.1, 0.3], abs=1e-6)
    assert second.lead["reward"][0] > 0  # more cost allowed, more reward, beyond luck
    assert first.lead == {"reward": (0, 0), "cost": (0, 0)}


def test_an_estimate_lies_in_its_interval_also_where_pairs_have_one_row(tmp_path: Path) -> None:
    """A resampled log lacks a third of such pairs, and what it lacks is taken at its worst."""
    rng = np.random.default_rng(1)
    s, a = np.repeat(np.arange(40), 5), np.tile(np.arange(5), 40)
    counts = Counts.from_arrays(s, a, rng.permutation(s), rng.random(200), 0.1 * a, d0=np.full(40, 1 / 40))
    save(solve(counts, 0.9, {"cost": 0.2}, C=np.inf, min_count=1, resamples=0), tmp_path)
    judged = compare(counts, 0.9, {"cost": 0.2}, {"it": load(tmp_path)})
    it = judged.policies[0]
    assert all(it.low[name] <= it.estimate[name] <= it.high[name] for name in ("reward", "cost"))
    assert it.high["cost"] < 0.3  # and not the .4 of the worst action for ever


@pytest.mark.parametrize("whole", [False, True])
def test_the_interval_of_a_difference_holds_it_in_most_logs_and_is_shorter_than_either(whole: bool) -> None:
    """200 logs of 600 rows, as rows or as 60 episodes; at 95 % about ten may miss."""
    cmdp = random_cmdp(5, 3, 1, 0.9, seed=7)
    rng = np.random.default_rng(0)
    uniform = np.full((5, 3), 1 / 3)
    near = 0.8 * uniform + 0.2 * rng.dirichlet(np.ones(3), size=5)
    truth = [evaluate(cmdp, pi) for pi in (uniform, near)]
    above = np.array([truth[1].value - truth[0].value, truth[1].constraints[0] - truth[0].constraints[0]])
    P = cmdp.P.toarray().reshape(5, 3, 5).cumsum(axis=2)
    held, shorter = 0, []
    for _ in range(200):
        s, a = rng.integers(5, size=600), rng.integers(3, size=600)
        then = (rng.random(600)[:, None] > P[s, a]).sum(axis=1).clip(max=4)
        signals = cmdp.r[s, a] + 0.3 * rng.standard_normal(600), cmdp.g[0, s, a] * 2.0 * (rng.random(600) < 0.5)
        episode = np.repeat(np.arange(60), 10) if whole else None
        counts = Counts.from_arrays(s, a, then, *signals, episode=episode, d0=cmdp.d0)
        first, other = (PolicyEstimate(counts, 0.9, pi) for pi in (uniform, near))
        low, high = lead(first, other, high=True).T
        held += bool(np.all((low <= above) & (above <= high)))
        shorter.append((high - low) / np.diff(clustered(other))[:, 0])
    assert 175 <= held <= 200
    assert np.all(np.mean(shorter, axis=0) < 0.5)


def test_alternatives_are_worth_their_q_values() -> None:
    counts = log()
    result = solved(counts)
    model = pessimistic_model(Lagrangian.empirical(counts, 0.9, result.limits))
    _, Q = values(model, result.policy, model.r)
    for one in explain(counts, result, 1):
        assert one.value == pytest.approx(0.1 * Q[1, one.action])
        assert one.rows == counts.n[1, one.action]
        assert one.policy == pytest.approx(result.policy[1, one.action])
    with pytest.raises(PdocrlError, match="unknown state '7'"):
        explain(counts, result, 7)


def test_what_is_left_of_an_episode_is_explained_from_its_step() -> None:
    """Three steps that pay 1, 2 and 4: from step 1 on, 6 is left."""
    step = np.tile([0, 1, 2], 40)
    zeros = np.zeros(120, int)
    counts = Counts.from_arrays(zeros, step * 0, zeros, 2.0**step, episode=np.repeat(np.arange(40), 3), horizon=3)
    result = solve(counts, C=np.inf, resamples=0)
    assert explain(counts, result, 0, step=1)[0].value == pytest.approx(6)
    assert explain(counts, result, 0, step=2)[0].value == pytest.approx(4)


def test_more_rows_are_asked_for_where_few_decide_much() -> None:
    counts = log()
    result = solved(counts, 0.45)  # wants the costly action everywhere, also where it was tried twenty times
    needs = more_data(counts, result)
    assert list(needs) == ["reward", "cost<=0.45"]
    first = needs["cost<=0.45"][0]
    assert (first.state, first.action, first.rows) == (1, 1, 20)
    assert first.share > 0.8


def test_the_command_answers_all_of_it(run_cli: Run, tmp_path: Path) -> None:
    quick = ("--gamma", "0.97", "--limit", "stockout<=0.04", "--C", "10", "--resamples", "5", "--refits", "0")
    out = tmp_path / "policy"
    asked = ("--frontier", "stockout=0.02:0.06:3", "--explain", "calm 10")
    status, text, err = run_cli("solve", "inventory", *quick, *asked, "--out", str(out), "--json")
    assert status == 0, err
    found = json.loads(text)
    assert [point["limit"] for point in found["frontier"]["points"]] == pytest.approx([0.02, 0.04, 0.06])
    assert sum(one["policy"] for one in found["explain"]) == pytest.approx(1)
    assert found["more_data"]["reward"]
    assert (out / "frontier.png").read_bytes().startswith(b"\x89PNG")
    status, text, _ = run_cli("solve", "inventory", *quick, "--compare", str(out), str(out), "--json")
    assert status == 0
    assert len(json.loads(text)["policies"]) == 1
    status, _, err = run_cli("solve", "inventory", *quick, "--compare", str(tmp_path))
    assert status == 2
    assert "no policy that `solve` wrote" in err


def test_the_sepsis_log_is_a_sample_of_its_model() -> None:
    pytest.importorskip("icu_sepsis")
    from pdocrl.tabular.examples import sepsis

    log = sepsis.simulate(300, seed=1)
    truth = sepsis.model(0.99, 0.025)
    assert len(set(log["episode"])) == 300
    assert max(log["state"]) < truth.n_states == 713
    assert truth.P.sum(axis=1).max() <= 1 + 1e-9
    assert np.mean(log["reward"]) * len(log["reward"]) / 300 == pytest.approx(0.75, abs=0.1)  # three in four survive

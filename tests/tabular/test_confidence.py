"""Limits kept with confidence: one half judges what the other learned, and "not shown" is an answer."""

from __future__ import annotations

import numpy as np
import pytest

from pdocrl.limits import as_limits
from pdocrl.tabular.api import solve
from pdocrl.tabular.cmdp import evaluate, occupancy, random_cmdp
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.inference.bootstrap import bootstrap
from pdocrl.tabular.inference.confidence import Candidate, optimism_bias, split_log, upper_bounds
from pdocrl.tabular.result.report import notes
from pdocrl.tabular.result.tables import trust
from pdocrl.tabular.solvers import exact
from pdocrl.tabular.solvers.saddle import Setup


def trials(n: int, seed: int, p: float = 0.3) -> Counts:
    """One state: action 1 pays 1 and costs one with probability p, action 0 pays .5 and costs nothing."""
    rng = np.random.default_rng(seed)
    a, zeros = rng.integers(2, size=n), np.zeros(n, int)
    return Counts.from_arrays(zeros, a, zeros, np.where(a == 1, 1.0, 0.5), (a == 1) * (rng.random(n) < p) * 1.0)


def patients(seed: int, people: int = 100, steps: int = 50) -> Counts:
    """Action 1 pays 1 and harms the frail, three in ten, with probability .4 and others with .02; action 0 pays .5."""
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(people), steps)
    frail = (rng.random(people) < 0.3)[person]
    a, zeros = rng.integers(2, size=len(person)), np.zeros(len(person), int)
    cost = a * (rng.random(len(person)) < np.where(frail, 0.4, 0.02)) * 1.0
    return Counts.from_arrays(zeros, a, zeros, np.where(a == 1, 1.0, 0.5), cost, episode=person, d0=[1.0])


def test_the_limit_is_kept_in_truth_by_about_as_many_logs_as_asked() -> None:
    """The true cost is .3 π(1|0): of 40 logs at most 5 may be over (p = .99 at a rate of 5 %); without, half are."""
    counts = [trials(600, seed) for seed in range(40)]
    careful = [solve(c, 0.9, ["cost<=0.15"], C=np.inf, min_count=10, refits=0, confidence=0.95) for c in counts]
    assert all(r.status == "shown" for r in careful)
    assert sum(0.3 * r.policy[0, 1] > 0.15 for r in careful) <= 5
    plain = [solve(c, 0.9, ["cost<=0.15"], C=np.inf, resamples=0) for c in counts]
    assert sum(0.3 * r.policy[0, 1] > 0.15 for r in plain) >= 12
    assert np.mean([r.value for r in plain]) - np.mean([r.value for r in careful]) < 0.08


def test_frail_patients_get_no_statement() -> None:
    """Harm is .134 π(1|0). How an episode went so far tells who is frail, so the one state is none."""
    for seed in range(6):
        result = solve(patients(seed), 0.9, ["cost<=0.08"], C=np.inf, min_count=10, refits=0, confidence=0.95)
        assert result.status == "not_markov"
        assert result.shown is not None
        assert not result.shown.reached


def test_the_policy_returned_is_the_one_that_was_tested() -> None:
    """Its value and costs are those of the held-out half, and no bound is below the policy's own estimate."""
    counts = trials(600, 3)
    result = solve(counts, 0.9, ["cost<=0.15"], C=np.inf, min_count=10, refits=0, confidence=0.95, seed=5)
    learning, held_out = split_log(counts, 0.95, seed=5)
    assert learning.size + held_out.size == counts.size
    assert result.shown is not None
    assert result.status == "shown"
    tested, estimate = upper_bounds([held_out], [result.policy], 0.9, result.limits, 0.95, seen_by=learning)
    assert result.shown.bounds == {"cost": tested[0]}
    assert result.costs == pytest.approx(estimate)
    assert result.costs[0] <= tested[0] <= 0.15


def test_long_tails_are_not_called_safe() -> None:
    """150 items with 20 rows each, all of them over the limit: a plan picks those that happened to go well."""
    rng = np.random.default_rng(0)
    rows = np.r_[300, 3000, np.full(150, 20)]
    reward, cost = np.r_[0.2, 0.5, rng.uniform(0.8, 1, 150)], np.r_[0.0, 0.05, np.full(150, 0.15)]
    arm = np.repeat(np.arange(152), rows)
    shown = 0
    for seed in range(3):
        paid = np.random.default_rng(seed).random(len(arm)) < cost[arm]
        counts = Counts.from_arrays(0 * arm, arm, 0 * arm, reward[arm], paid * 1.0)
        result = solve(counts, 0.5, ["cost<=0.1"], confidence=0.95, refits=0, resamples=20)
        shown += result.status == "shown"
        assert result.status != "shown" or result.policy[0] @ cost <= 0.1
    assert shown >= 2


def test_few_rows_cannot_show_a_tight_limit_and_the_answer_says_so() -> None:
    counts = trials(40, 0)
    result = solve(counts, 0.9, ["cost<=0.01"], C=np.inf, refits=0, confidence=0.95)
    assert result.status == "not_shown"
    assert result.shown is not None
    assert result.shown.bounds["cost"] > 0.01
    assert any("not shown at 95 %" in note for note in notes(result, counts))
    assert trust(result.record).rows[0][1].text == "limits not shown to be satisfied"
    said = result.record.confidence
    assert said is not None
    assert said.reached is False
    assert said.bounds["cost"] == result.shown.bounds["cost"]


@pytest.mark.parametrize("limit", [0.001, 0.01, 0.1])
def test_the_aim_is_never_outside_what_is_possible(limit: float) -> None:
    """A cost cannot be negative, however little the log has."""
    for rows in (30, 300):
        result = solve(trials(rows, 1), 0.9, {"cost": limit}, C=np.inf, refits=0, confidence=0.95)
        assert 0 <= result.tightened[0] <= limit
        assert result.status in {"shown", "not_shown"}


def test_limits_no_policy_keeps_are_infeasible_not_unshown() -> None:
    zeros = np.zeros(200, int)
    counts = Counts.from_arrays(zeros, zeros, zeros, np.ones(200), np.full(200, 0.5))
    assert solve(counts, 0.9, ["cost<=0.2"], C=np.inf, refits=0, confidence=0.95).status == "infeasible"


def test_two_limits_are_both_kept_in_truth() -> None:
    over = 0
    for seed in range(8):
        cmdp = random_cmdp(6, 3, 2, 0.9, seed=seed)
        mu_D = (exact.solve(cmdp).mu + occupancy(cmdp, np.full((6, 3), 1 / 3))) / 2
        counts = Counts.sample(cmdp, mu_D, 4000, seed)
        limits = [f"cost_0<={-cmdp.tau[0]}", f"cost_1<={-cmdp.tau[1]}"]
        result = solve(counts, 0.9, limits, C=np.inf, min_count=10, refits=0, confidence=0.95)
        over += result.status == "shown" and bool((evaluate(cmdp, result.policy).constraints < cmdp.tau).any())
    assert over <= 2


def test_the_same_seed_gives_the_same_aim() -> None:
    first, again = (
        solve(trials(300, 2), 0.9, ["cost<=0.1"], C=np.inf, refits=0, confidence=0.9, seed=4) for _ in range(2)
    )
    np.testing.assert_array_equal(first.policy, again.policy)
    np.testing.assert_array_equal(first.tightened, again.tightened)


def test_halves_of_a_sparse_log_see_an_optimism_where_each_lacks_what_the_other_has() -> None:
    """Sixty states, each with eight arms tried ten times that pay 1 in half of the tries: every arm is worth .5."""
    pair = np.repeat(np.arange(480), 10)
    state, seen = pair // 8, []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        counts = Counts.from_arrays(
            state, pair % 8, rng.permutation(state), (rng.random(4800) < 0.5) * 1.0, rng.random(4800)
        )
        candidate = Candidate(Setup(np.inf), 10)
        learned = candidate.solve(candidate.problem(counts, 0.9, ()), np.zeros(0))
        seen.append((learned.estimate[0] - 0.5, optimism_bias(counts, 0.9, (), candidate, np.zeros(0), seed=seed)[0]))
    truth, found = np.mean(seen, axis=0)
    assert truth > 0.15
    assert 0.8 * truth < found < 1.8 * truth  # a half, with half of the tries, overestimates itself more


def test_halves_see_an_optimism_that_no_redrawn_log_can() -> None:
    """Thirty arms, twelve tries each, an accident in one of twelve: a third of the arms have had none, and are chosen.

    No resampled log has accidents there either. In truth a chosen arm costs .08.
    """
    arm, zeros = np.repeat(np.arange(30), 12), np.zeros(360, int)
    limits = as_limits(["cost<=0.01"])
    seen, resampled = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        counts = Counts.from_arrays(zeros, arm, zeros, rng.random(360), (rng.random(360) < 0.08) * 1.0)
        candidate = Candidate(Setup(np.inf), 1)
        learned = candidate.solve(candidate.problem(counts, 0.5, limits), np.zeros(1))
        resampled.append(bootstrap(counts, limits, [learned], 0, 5, seed).optimism[0, 1])
        seen.append(optimism_bias(counts, 0.5, limits, candidate, np.zeros(1), seed=seed)[1])
    assert np.mean(resampled) < 0.5 * np.mean(seen)
    assert abs(np.mean(seen) - 0.07) < 0.03  # .08 less the .01 it is thought to be; 12 logs

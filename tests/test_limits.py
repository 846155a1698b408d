"""The language of limits: text and objects round-trip, measures equal their definitions, errors name the remedy."""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pytest
from scipy.optimize import linprog

from pdocrl.errors import PdocrlError
from pdocrl.limits import Limit, as_limits, per_step


def test_limits_are_read_as_people_write_them() -> None:
    assert Limit.parse(" cost <= 0.1 ") == Limit("cost", 0.1)
    assert Limit.parse("fill rate>=95e-2") == Limit("fill rate", 0.95, ">=")
    assert Limit.parse("Kosten≤3") == Limit("Kosten", 3.0)
    assert Limit.parse("P( cost > 20 ) <= 0.05") == Limit("cost", 0.05, "<=", "exceedance", threshold=20.0)
    assert Limit.parse("CVaR90(cost)<=40") == Limit("cost", 40.0, "<=", "cvar", level=0.9)
    assert Limit.parse("cvar0.975(cost)≤40") == Limit("cost", 40.0, "<=", "cvar", level=0.975)
    assert Limit.parse("max(cost)<=1") == Limit("cost", 1.0, "<=", "max")
    assert as_limits({"a": 1, "b": 2}) == (Limit("a", 1.0), Limit("b", 2.0))
    assert as_limits(20) == as_limits("cost<=20") == as_limits([20.0]) == (Limit("cost", 20.0),)
    assert [limit.sign for limit in as_limits(["c>=0.1", "c<=0.2"])] == [1, -1]
    assert len(as_limits(["cost<=20", "P(cost>20)<=0.1", "P(cost>40)<=0.01", "CVaR90(cost)<=40"])) == 4


def test_text_and_records_round_trip() -> None:
    rng = np.random.default_rng(0)
    names = ["cost", "fill rate", "cost_2", "Kosten (EUR)"]
    for name, value, place in itertools.product(names, rng.uniform(0, 1, 20), [2, 17]):
        number, level = float(np.round(value, place)), float(np.round(value, 3))
        for limit in (
            Limit(name, number),
            Limit(name, -number * 1e6, ">="),
            Limit(name, number, "<=", "exceedance", threshold=1e3 * number),
            Limit(name, number, "<=", "cvar", level=level),
            Limit(name, number, "<=", "max"),
        ):
            assert Limit.parse(str(limit)) == limit
            assert msgspec.json.decode(msgspec.json.encode(limit), type=Limit) == limit


def test_tails_stay_per_episode_where_means_become_per_step() -> None:
    tail = Limit.parse("P(cost>20)<=0.05")
    assert per_step([Limit("cost", 25.0), tail], 200) == (Limit("cost", 0.125), tail)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (["cost<0.1"], "is not understood"),
        (["cost"], "is not understood"),
        (["cost<=much"], "'much' is not a number"),
        (["cost<=nan"], "not a finite number"),
        (["cost<=0.1", "cost>=0.2"], "contradict each other"),
        (["cost<=0.1", "cost<=0.2"], "on the same column"),
        (["CVaR90(cost)<=1", "CVaR90(cost)<=2"], "on the same column"),
        (["P(cost>20)<=1.5"], "from 0 to below 1"),
        (["P(cost>20)>=0.5"], "only means are limited from below"),
        (["P(cost)<=0.5"], "is not understood; write it as 'cost<=20', 'P"),
        (["P(cost>lots)<=0.5"], "'lots' is not a number"),
        (["q95(cost)<=20"], "is not understood; write it as"),
        (["CVaR(cost)<=20"], "is not understood; write it as"),
        (["CVaR100(cost)<=20"], "between 0 and 100"),
        ([Limit("cost", 1.0), float("inf")], "not a finite number"),
    ],
)
def test_limits_that_make_no_sense_are_refused(limits: list[str | float | Limit], message: str) -> None:
    with pytest.raises(PdocrlError, match=message) as caught:
        as_limits(limits)
    assert "\n" not in str(caught.value)


def test_measures_of_known_samples() -> None:
    costs = np.arange(1.0, 11.0)
    assert Limit.parse("cost<=1").of(costs) == 5.5
    assert Limit.parse("P(cost>8)<=0").of(costs) == pytest.approx(0.2)
    assert Limit.parse("CVaR80(cost)<=1").of(costs) == pytest.approx(9.5)
    assert Limit.parse("CVaR85(cost)<=1").of(costs) == pytest.approx((10 * 0.1 + 9 * 0.05) / 0.15)
    assert Limit.parse("max(cost)<=1").of(costs) == 10
    assert Limit.parse("CVaR80(cost)<=9.6").satisfied(costs)
    assert all(Limit.parse(f"P(cost>0)<={k}e-2").satisfied(np.arange(100) < k) for k in range(100))
    assert not Limit.parse("cost>=5.6").satisfied(costs)


@pytest.mark.parametrize("level", [0.05, 0.5, 0.9, 0.99])
def test_cvar_is_the_worst_mean_over_densities_bounded_by_one_over_the_tail(level: float) -> None:
    """CVaR_α = max Σ qᵢxᵢ over 0 ≤ qᵢ ≤ wᵢ/(1−α), Σq = 1: the dual of Rockafellar and Uryasev's program."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        x, w = rng.pareto(1.5, 30).round(1), rng.dirichlet(np.ones(30))
        dual = linprog(-x, A_eq=np.ones((1, 30)), b_eq=[1.0], bounds=[(0, p / (1 - level)) for p in w])
        assert Limit("cost", 1.0, "<=", "cvar", level=level).of(x, w) == pytest.approx(-dual.fun, rel=1e-9)


def test_whole_weights_are_repetitions_and_measures_are_ordered() -> None:
    rng = np.random.default_rng(2)
    x, times = rng.exponential(10, 40), rng.integers(0, 5, 40)
    for text in ("cost<=1", "P(cost>9)<=0.1", "CVaR90(cost)<=1", "max(cost)<=1"):
        limit = Limit.parse(text)
        assert limit.of(x, times) == pytest.approx(limit.of(np.repeat(x, times)), rel=1e-12)
    tails = [Limit("cost", 1.0, "<=", "cvar", level=a).of(x) for a in (0.01, 0.3, 0.6, 0.9, 0.999)]
    assert [x.mean(), *tails, x.max() + 1e-9] == sorted([x.mean(), *tails, x.max() + 1e-9])

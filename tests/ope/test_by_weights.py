"""Judged by weights of episodes alone: the same numbers as from rows in memory; densities for continuous actions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdocrl
from pdocrl.data.event_log import EventLog
from pdocrl.errors import PdocrlError
from pdocrl.ope.by_weights import judge_by_weights

LIMITS = ["cost<=1", "P(cost>2)<=0.1", "CVaR90(cost)<=3"]
ROLES: dict[str, Any] = {
    "episode": "visit",
    "step": "t",
    "propensity": "p",
    "decider": "who",
    "columns": ["state", "age"],
}


def rows(episodes: int = 150, seed: int = 0) -> dict[str, Any]:
    """Up to five decisions each, out of order; words and whole numbers."""
    rng = np.random.default_rng(seed)
    length = rng.integers(1, 6, episodes)
    visit, t = np.repeat(np.arange(episodes), length), np.concatenate([np.arange(n) for n in length])
    n = len(visit)
    state, p = rng.integers(0, 3, n), 0.3 + 0.4 * rng.random(n)
    treat = rng.random(n) < p
    found = {
        "visit": np.array([f"v{k}" for k in visit]),
        "t": t,
        "state": np.array(["low", "mid", "high"])[state],
        "age": rng.integers(20, 80, n),
        "action": np.where(treat, "treat", "wait"),
        "reward": rng.normal(size=n) + treat,
        "cost": (rng.random(n) < 0.2 + 0.2 * treat).astype(float),
        "p": np.where(treat, p, 1 - p),
        "who": np.array(["A", "B"])[visit % 2],
        "rule": np.where(state == 0, "wait", "treat"),
    }
    order = rng.permutation(n)
    return {name: values[order] for name, values in found.items()}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    import pandas as pd

    place = tmp_path_factory.mktemp("streamed")
    frame = pd.DataFrame(rows())
    frame.to_csv(place / "log.csv", index=False)
    frame.to_parquet(place / "log.parquet")
    return [place / "log.csv", place / "log.parquet"]


def soft(columns: dict[str, Any]) -> Any:
    p = np.where(columns["state"] == "mid", 0.6, 0.3 + columns["age"] / 400)
    return np.stack([p, 1 - p], axis=1)


def test_parts_of_files_give_what_the_whole_in_memory_gives(files: list[Path]) -> None:
    whole = pdocrl.ope({"soft": soft, "rule": "rule"}, EventLog.read(rows(), keep=["rule"], **ROLES), LIMITS)
    for file in files:
        found = judge_by_weights({"soft": soft, "rule": "rule"}, file, LIMITS, rows=60, **ROLES)
        assert (found.rows, found.episodes, found.actions) == (whole.rows, whole.episodes, whole.actions)
        assert [(d.name, d.episodes) for d in found.deciders] == [(d.name, d.episodes) for d in whole.deciders]
        assert found.logged.reward == pytest.approx(whole.logged.reward)
        for name in ("soft", "rule"):
            own, beside = found.policy(name), whole.policy(name)
            assert len(own.estimates) == 4
            for e in own.estimates:
                other = beside.of(e.estimator)
                assert (e.reward, e.cost[0]) == pytest.approx((other.reward, other.cost[0]))
                assert (e.ess, e.largest_weight) == pytest.approx((other.ess, other.largest_weight))
            plain = "per-decision importance sampling"
            assert own.of(plain).cost_interval[0] == pytest.approx(beside.of(plain).cost_interval[0])
            assert own.weight_shares == pytest.approx(beside.weight_shares)
            assert own.distribution[0].cvar90 == pytest.approx(beside.distribution[0].cvar90)
            for v, w in zip(own.limits[1:], beside.limits[1:], strict=True):  # shares and CVaR: the same estimator
                assert v.verdict == w.verdict
                assert (v.lower is None) == (w.lower is None)
                if v.lower is not None:
                    assert (v.lower, v.upper) == pytest.approx((w.lower, w.upper))
            assert [(o.action, o.policy, o.largest_ratio) for o in own.overlap] == [
                (o.action, pytest.approx(o.policy), pytest.approx(o.largest_ratio)) for o in beside.overlap
            ]


def test_bandits_are_read_in_parts_too(files: list[Path]) -> None:
    given = ROLES | {"episode": None, "step": None}
    whole = pdocrl.ope(soft, EventLog.read(rows(), **given), ["cost<=1"])
    found = judge_by_weights(soft, files[1], ["cost<=1"], rows=100, **given)
    assert found.episodes == whole.episodes == whole.rows
    name = "weighted trajectory importance sampling"
    assert found.policies[0].of(name).cost == pytest.approx(whole.policies[0].of(name).cost)


def continuous(episodes: int, seed: int) -> dict[str, Any]:
    """Two decisions each: doses x/2 + noise; a cost where the dose is above 1."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=2 * episodes)
    dose = 0.5 * x + rng.normal(size=len(x))
    density = np.exp(-((dose - 0.5 * x) ** 2) / 2) / np.sqrt(2 * np.pi)
    cost = (dose > 1).astype(float)
    return {"visit": np.arange(len(x)) // 2, "x": x, "dose": dose, "reward": -dose, "cost": cost, "density": density}


def shifted(columns: dict[str, Any]) -> Any:
    return np.exp(-((columns["dose"] - 0.5 * columns["x"] - 0.3) ** 2) / 2) / np.sqrt(2 * np.pi)


DOSES = {"action": "dose", "episode": "visit", "propensity": "density"}


def test_continuous_actions_are_judged_by_densities() -> None:
    """Doses under the policy are normal with mean .3 and variance 1.25: the truth is 2 Φ̄((1 − .3)/√1.25)."""
    from scipy.stats import norm

    truth = 2 * float(norm.sf(0.7 / np.sqrt(1.25)))
    values, held = [], []
    for seed in range(40):
        [one] = pdocrl.ope(shifted, continuous(300, seed), ["cost<=5"], **DOSES).policies
        found = one.of("weighted trajectory importance sampling")
        values.append(one.of("trajectory importance sampling").cost[0])
        assert found.cost_interval[0] is not None
        held.append(found.cost_interval[0][0] <= truth <= found.cost_interval[0][1])
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    assert abs(np.mean(values) - truth) < 4 * error
    assert sum(held) >= 34
    assert one.verdict == "within"
    assert one.assumptions[0] == "densities of continuous actions are right"


def test_what_cannot_be_judged_is_refused_in_one_line(files: list[Path]) -> None:
    log = continuous(20, 0)
    with pytest.raises(PdocrlError, match="are continuous"):
        pdocrl.ope(shifted, log, action="dose", episode="visit")
    with pytest.raises(PdocrlError, match="deterministic policy has none"):
        pdocrl.ope(lambda columns: np.stack([columns["x"]] * 2, 1), log, **DOSES)
    with pytest.raises(PdocrlError, match="row 3: 0, expected the density"):
        pdocrl.ope(shifted, log | {"density": np.where(np.arange(40) == 2, 0.0, log["density"])}, **DOSES)
    with pytest.raises(PdocrlError, match="`newer` is for logs in memory"):
        pdocrl.ope(soft, files[0], stream=True, newer=files[0], **ROLES)
    with pytest.raises(PdocrlError, match="totals of episodes are kept"):
        pdocrl.ope(soft, files[0], ["max(cost)<=1"], stream=True, **ROLES)
    with pytest.raises(PdocrlError, match="are continuous"):
        pdocrl.certify(shifted, log, ["cost<=1"], action="dose", episode="visit")

"""Judged part by part: the same numbers as from rows in memory; densities for continuous actions."""

from __future__ import annotations

import re
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


@pytest.fixture
def no_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without scikit-learn, double reinforcement learning, which needs all rows at once, does not decide."""
    monkeypatch.setattr("pdocrl.ope.judge.regressors.installed", lambda: False)


@pytest.fixture
def same_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs in memory are cross-fitted on the folds that parts of files have: by a hash of the episodes' names."""
    import duckdb

    names = list(dict.fromkeys(rows()["visit"].tolist()))
    by_hash = [duckdb.execute("SELECT hash(?) % 2", [name]).fetchall()[0][0] for name in names]
    monkeypatch.setattr(EventLog, "folds", lambda log, seed, share=0.5: np.array(by_hash, np.int64))


def same(found: Any, whole: Any) -> None:
    """Two reports say the same, but for estimators that need all rows at once."""
    assert (found.rows, found.episodes, found.actions) == (whole.rows, whole.episodes, whole.actions)
    assert [(d.name, d.episodes) for d in found.deciders] == [(d.name, d.episodes) for d in whole.deciders]
    assert found.logged.reward == pytest.approx(whole.logged.reward)
    for name in ("soft", "rule"):
        own, beside = found.policy(name), whole.policy(name)
        assert len(own.estimates) == 8
        assert own.decides == beside.decides == ("weighted doubly robust" if name == "soft" else None)
        for e in own.estimates:
            other = beside.of(e.estimator)
            assert (e.reward, e.cost[0]) == pytest.approx((other.reward, other.cost[0]))
            assert (e.ess, e.largest_weight) == pytest.approx((other.ess, other.largest_weight))
            if e.estimator != "fitted Q evaluation (linear)":
                assert (*e.reward_interval, *e.cost_interval[0]) == pytest.approx(
                    (*other.reward_interval, *other.cost_interval[0])
                )
        assert own.weight_shares == pytest.approx(beside.weight_shares)
        assert own.distribution[0].cvar90 == pytest.approx(beside.distribution[0].cvar90)
        for v, w in zip(own.limits, beside.limits, strict=True):
            assert (v.verdict, v.estimator) == (w.verdict, w.estimator)
            assert (v.lower is None) == (w.lower is None)
            if v.lower is not None:
                assert (v.value, v.lower, v.upper) == pytest.approx((w.value, w.lower, w.upper))
        assert [(o.action, o.policy, o.largest_ratio) for o in own.overlap] == [
            (o.action, pytest.approx(o.policy), pytest.approx(o.largest_ratio)) for o in beside.overlap
        ]


POLICIES = {"soft": soft, "rule": "rule"}


@pytest.mark.usefixtures("same_folds", "no_trees")
def test_parts_of_files_give_what_the_whole_in_memory_gives(files: list[Path]) -> None:
    whole = pdocrl.ope(POLICIES, EventLog.read(rows(), keep=["rule"], **ROLES), LIMITS)
    for file in files:
        same(judge_by_weights(POLICIES, file, LIMITS, rows=60, **ROLES), whole)


@pytest.mark.usefixtures("no_trees")
def test_tables_in_memory_may_be_read_in_parts_too() -> None:
    whole = pdocrl.ope(POLICIES, EventLog.read(rows(), keep=["rule"], **ROLES), LIMITS)
    same(judge_by_weights(POLICIES, rows(), LIMITS, **ROLES), whole)


@pytest.mark.usefixtures("no_trees")
@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("given", [soft, POLICIES], ids=["one", "several"])
def test_certificates_of_parts_are_those_of_the_whole(given: Any, learns: bool) -> None:
    """One policy on all rows; of several, and of learned ones, one is chosen on one half and judged on the other."""
    table, seen = rows(600), []

    def learn(log: EventLog) -> Any:
        seen.append(log.reward.sum())
        return {"always": lambda columns: np.full(len(columns["age"]), "wait"), "soft": soft}

    limits = ["cost<=1.5", "P(cost>2)<=0.2", "CVaR90(cost)<=3"]
    chosen: dict[str, Any] = {"learn": learn} if learns else {}
    whole, found = (
        pdocrl.certify(None if learns else given, table, limits, largest_cost=5, stream=stream, **chosen, **ROLES)
        for stream in (False, True)
    )
    assert seen[:1] == seen[1:]
    assert len(found.statements) == 3
    for own, beside in zip(found.statements, whole.statements, strict=True):
        assert (own.policy, own.verdict, own.episodes) == (beside.policy, beside.verdict, beside.episodes)
        assert own.limit is not None
        assert beside.limit is not None
        assert (own.limit.value, own.limit.lower, own.limit.upper) == pytest.approx(
            (beside.limit.value, beside.limit.lower, beside.limit.upper)
        )
    said, beside = ([note for note in one.notes if "within the log" not in note] for one in (found, whole))
    assert said == beside  # drift is looked for in the judging half


def test_files_are_certified_in_parts_of_halves(files: list[Path]) -> None:
    """No episode both chooses and judges."""
    found = pdocrl.certify(POLICIES, files[1], ["P(cost>4)<=0.5"], stream=True, **ROLES)
    on, beside = (int(x) for x in re.findall(r"on (\d+)", found.notes[-1]))
    assert on + beside == 150
    assert min(on, beside) > 50
    assert found.statements[0].episodes == beside
    one = pdocrl.certify(soft, files[1], ["P(cost>4)<=0.5"], stream=True, **ROLES)
    assert (one.statements[0].episodes, one.statements[0].verdict) == (150, "within")


def walk(episodes: int, seed: int = 0, steps: int = 20) -> dict[str, Any]:
    """x' = .9 x + (2a − 1)/2 + noise; cost where x > 1; both actions are equally likely."""
    rng = np.random.default_rng(seed)
    x = np.zeros((episodes, steps + 1))
    a = rng.integers(0, 2, (episodes, steps))
    for t in range(steps):
        x[:, t + 1] = 0.9 * x[:, t] + a[:, t] - 0.5 + 0.3 * rng.normal(size=episodes)
    now = x[:, :-1]
    found = {"episode": np.repeat(np.arange(episodes), steps), "x": now.ravel(), "action": a.ravel()}
    return found | {"reward": -now.ravel(), "cost": (now > 1).ravel().astype(float), "p": np.full(a.size, 0.5)}


def careful(columns: dict[str, Any]) -> Any:
    p = np.where(columns["x"] > 0, 0.35, 0.55)
    return np.stack([1 - p, p], axis=1)


def test_q_from_a_sample_is_near_that_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the rows to fit Q: another estimate, as sharp, nearer than an interval; the report says how many."""
    import pandas as pd

    from pdocrl.ope import parts

    pd.DataFrame(walk(2000, steps=6)).to_parquet(tmp_path / "log.parquet")
    whole = pdocrl.ope(careful, tmp_path / "log.parquet", ["cost<=1"], propensity="p").policies[0]
    monkeypatch.setattr(parts.Parts.__init__, "__defaults__", ((), (), 2000, None, 0, 1200))
    found = judge_by_weights(careful, tmp_path / "log.parquet", ["cost<=1"], rows=2000, propensity="p")
    assert 600 < int(found.warnings[0].split("in a sample of ")[1].split()[0]) < 2400
    own, beside = (one.of("weighted doubly robust") for one in (found.policies[0], whole))
    (low, high), (lower, upper) = own.cost_interval[0], beside.cost_interval[0]
    assert own.cost[0] != beside.cost[0]
    assert abs(own.cost[0] - beside.cost[0]) < (upper - lower) / 4
    assert high - low < 1.2 * (upper - lower)
    assert high - low < 0.9 * np.diff(found.policies[0].of("per-decision importance sampling").cost_interval[0])[0]


def test_memory_does_not_grow_with_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tracemalloc

    import pandas as pd

    from pdocrl.ope import parts

    monkeypatch.setattr(parts.Parts.__init__, "__defaults__", ((), (), 5000, None, 0, 5000))
    peaks = []
    for episodes in (300, 2400):
        pd.DataFrame(walk(episodes, steps=50)).to_parquet(tmp_path / f"{episodes}.parquet")
        tracemalloc.start()
        judge_by_weights(careful, tmp_path / f"{episodes}.parquet", ["cost<=9"], rows=5000, propensity="p")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


def test_drift_is_looked_for_in_the_sample(tmp_path: Path) -> None:
    import pandas as pd

    old, new = walk(400, steps=5), walk(400, seed=1, steps=5)
    new["cost"] = new["cost"] + 0.2 * (np.random.default_rng(2).random(len(new["cost"])) < 0.5)
    new["episode"] = new["episode"] + 400
    both = {name: np.concatenate([old[name], new[name]]) for name in old}
    for name, table in (("old", old), ("new", new), ("both", both)):
        pd.DataFrame(table).to_parquet(tmp_path / f"{name}.parquet")
    for log, newer in ((tmp_path / "both.parquet", None), (tmp_path / "old.parquet", tmp_path / "new.parquet")):
        whole = pdocrl.ope(careful, log, newer=newer, propensity="p").warnings
        found = pdocrl.ope(careful, log, newer=newer, propensity="p", stream=True).warnings
        assert found == whole
        assert "`cost` changed by +0.09" in found[0]
    assert pdocrl.ope(careful, tmp_path / "old.parquet", propensity="p", stream=True).warnings == []


def test_words_of_one_part_that_look_like_numbers_stay_words(tmp_path: Path) -> None:
    """In most parts the ward is 1 or 2, or yes; the function is given words in all of them."""
    import pandas as pd

    table = walk(300, steps=2) | {"ward": np.where(np.arange(600) % 2, "1", "2").astype(object)}
    table |= {"seen": np.where(np.arange(600) % 3, "yes", "no").astype(object)}
    table["ward"][0], table["seen"][0] = "attic", "perhaps"
    pd.DataFrame(table).to_csv(tmp_path / "log.csv", index=False)
    kinds = set()

    def kind(columns: dict[str, Any]) -> Any:
        kinds.update(str(columns[name].dtype) for name in ("ward", "seen"))
        return np.full((len(columns["x"]), 2), 0.5)

    judge_by_weights(kind, tmp_path / "log.csv", rows=60, propensity="p")
    assert kinds == {"object"}


def test_bandits_are_read_in_parts_too(files: list[Path]) -> None:
    given = ROLES | {"episode": None, "step": None}
    whole = pdocrl.ope(soft, EventLog.read(rows(), **given), ["cost<=1"])
    found = judge_by_weights(soft, files[1], ["cost<=1"], rows=100, **given)
    assert found.episodes == whole.episodes == whole.rows
    name = "weighted trajectory importance sampling"
    assert found.policies[0].of(name).cost == pytest.approx(whole.policies[0].of(name).cost)
    assert found.policies[0].decides == "weighted doubly robust"


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
    with pytest.raises(PdocrlError, match="`newer` is for logs with discrete actions"):
        pdocrl.ope(shifted, log, newer=log, **DOSES)
    with pytest.raises(PdocrlError, match="`regressor` is for logs in memory"):
        pdocrl.ope(soft, files[0], stream=True, regressor="trees", **ROLES)
    with pytest.raises(PdocrlError, match="totals of episodes are kept"):
        pdocrl.ope(soft, files[0], ["max(cost)<=1"], stream=True, **ROLES)
    with pytest.raises(PdocrlError, match="are continuous"):
        pdocrl.certify(shifted, log, ["cost<=1"], action="dose", episode="visit")

"""`pdocrl ope`: what it writes, what it says, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

import pdocrl
from pdocrl.data import Dataset, make_dataset, save
from pdocrl.errors import PdocrlError
from pdocrl.ope import EnsembleConfig, Prepared, estimate
from pdocrl.ope.result import cost_score, read_ope
from pdocrl.policies import policy as policies
from pdocrl.policies.policy import MLPPolicy
from pdocrl.records import write_record
from pdocrl.training.config import TrainingConfig
from pdocrl.training.folder import Trained

HORIZON = 10
SMALL = EnsembleConfig(folds=2, each=2, hidden=(32, 32), outcome_hidden=(32, 32), steps=400, batch_size=128)
Cli = Callable[..., tuple[int, str, str]]


def drifting(costs: int = 1, episodes: int = 60, seed: int = 0) -> Dataset:
    """A point that moves by its action; reward is the action, cost i is 1 where s′ is beyond 0.5 + i."""
    rng = np.random.default_rng(seed)
    action = rng.uniform(-1, 1, (episodes, HORIZON)).astype(np.float32)
    after = 0.2 * np.cumsum(action, axis=1)
    before = after - 0.2 * action
    border = 0.5 + np.arange(costs)
    return make_dataset(
        before.ravel(),
        action.ravel(),
        action.ravel(),
        (after.ravel()[:, None] > border) * 1.0,
        after.ravel(),
        np.zeros(action.size),
        np.tile(np.arange(HORIZON) == HORIZON - 1, episodes),
        name="drifting",
    )


def constant(action: float) -> MLPPolicy:
    """Always the same action."""
    return MLPPolicy((np.zeros((1, 1), np.float32),), (np.full(1, np.arctanh(action), np.float32),))


def trained(dataset: Dataset, limits: list[tuple[float, ...]], acts: list[Any], data: str = "drifting") -> Trained:
    plan = TrainingConfig(
        data=data,
        data_digest=dataset.digest,
        task=None,
        horizon=HORIZON,
        cost_names=list(dataset.cost_names),
        agent="bc",
        settings={},
        runs=[{"cost_limit": list(limit), "seed": 0} for limit in limits],
        steps=1,
        log_every=1,
        checkpoint_every=1,
        evaluate_every=0,
        evaluate_episodes=1,
        versions={},
    )
    return Trained(plan, 1, acts, {}, [])


def write(folder: Path, made: Trained) -> Path:
    folder.mkdir(exist_ok=True)
    write_record(folder / "run.json", made.config)
    policies.save(folder / "policies.npz", made.policies, {"step": 1, "failures": {}})
    return folder


DATA = drifting(episodes=160)


@pytest.fixture(scope="module")
def ready() -> Prepared:
    return Prepared.of(DATA, config=SMALL, cache=False)


@pytest.fixture(scope="module")
def two() -> Prepared:
    """Two costs; the second never occurs."""
    data = drifting(costs=2, episodes=160)
    return Prepared.of(
        dataclasses.replace(data, cost=data.cost * np.array([1, 0], np.float32)), config=SMALL, cache=False
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two policies: −0.3 never comes near the border, +0.6 crosses it at the fifth of ten steps."""
    save(DATA, tmp_path / "drifting.npz")
    made = trained(DATA, [(3.0,), (1.0,)], [constant(-0.3), constant(0.6)], str(tmp_path / "drifting.npz"))
    return write(tmp_path / "run", made)


def test_estimates_and_the_file(folder: Path, ready: Prepared) -> None:
    """Reward is ten times the action; fitted Q evaluation stands beside the ensemble."""
    result = estimate(folder, ready, compare=True)
    assert read_ope(folder) == result
    told = json.loads((folder / "ope.json").read_text())
    old = {"doubts": told["runs"][0].pop("warnings")}
    (folder / "ope.json").write_text(json.dumps(told | {"format": 1, "runs": [told["runs"][0] | old]}))
    assert read_ope(folder).runs == result.runs[:1]  # a file of version 0.2
    safe, unsafe = result.runs
    assert (safe.verdict, safe.within_limit, safe.trusted) == ("within limit at 95 %", True, True)
    assert unsafe.within_limit is not True
    for run, reward, cost in ((safe, -3, 0), (unsafe, 6, 6)):  # 0.12 t > 0.5 from t = 5 on
        fqe = run.by_method["fqe"]
        for told in (run, fqe):
            assert told.reward == pytest.approx(reward, abs=0.4)
            assert told.cost[0] == pytest.approx(cost, abs=1.5)
        assert fqe.reward_interval is None
        assert run.reward_interval[0] <= run.reward <= run.reward_interval[1]
        assert run.cost_interval[0][0] <= run.cost[0] <= run.cost_interval[0][1]
        assert run.normalized_cost == pytest.approx(run.cost[0] / run.cost_limit[0])
        assert run.normalized_reward is None  # no task, no reference scores


def test_assumptions_are_said_of_each_method_that_decides(
    folder: Path, ready: Prepared, run_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = estimate(folder, ready)
    first, second = result.runs
    both = structs.replace(result, runs=[first, structs.replace(second, decides="behaviours")])
    monkeypatch.setattr("pdocrl.ope.judge_policies", lambda *_, **__: both)
    status, out, _ = run_cli("ope", folder)
    assert status == 0
    lines = [line for line in out.splitlines() if "rests on: " in line]
    assert [line.partition(":")[0] for line in lines] == ["by ensemble", "by behaviours"]
    assert lines == both.assumptions == both.summary().splitlines()[-2:]
    for line in lines:
        for words in ("calibrated", "knew no more than the observations", "the process that was logged", "independent"):
            assert words in line
    assert "acts like logged behaviours" not in lines[0]
    assert "acts like logged behaviours" in lines[1]


def test_a_function_is_judged_on_a_dataset_like_the_same_trained_policy(ready: Prepared) -> None:
    told = pdocrl.ope(lambda obs: np.full((len(obs), 1), -0.3), ready, {"cost": 3.0})
    run = estimate(trained(DATA, [(3.0,)], [constant(-0.3)]), ready).runs[0]
    policy = told.policies[0]
    assert (policy.verdict, run.within_limit) == ("within", True)
    assert policy.estimates[0].reward == pytest.approx(run.reward, rel=1e-4)
    assert policy.estimates[0].cost_interval[0] == pytest.approx(run.cost_interval[0], abs=1e-4)
    assert told.logged.reward == pytest.approx(DATA.reward_return.mean())
    with pytest.raises(PdocrlError, match=r"shape \(128,\), expected \(128, 1\)|shape .* expected"):
        pdocrl.ope(lambda obs: obs[:, 0], ready)


def test_comparing_policies_with_memory_leaves_out_what_cannot_judge_them(ready: Prepared) -> None:
    plain = constant(-0.3)
    made = trained(DATA, [(3.0,)], [Sequential(plain.weights, plain.biases)])
    assert set(estimate(made, ready, compare=True).runs[0].by_method) == {"ensemble"}


def test_settings_that_vary_stand_beside_the_other_fields_of_a_run(tmp_path: Path, ready: Prepared) -> None:
    made = trained(DATA, [(3.0,)], [constant(0.2)])
    made.config.runs[0]["learning_rate"] = 0.5
    result = estimate(dataclasses.replace(made, folder=tmp_path), ready)
    (run,) = json.loads((tmp_path / "ope.json").read_text())["runs"]
    assert run["learning_rate"] == 0.5
    assert read_ope(tmp_path).runs[0] == structs.replace(result.runs[0], varied={})


def test_the_interval_of_the_worst_cost_reaches_as_far_as_any_of_the_costs() -> None:
    """One at .8 of its limit and known well, one at .7 that may be 1.2: which is worst is not known."""
    told = SimpleNamespace(value=np.array([0.0, 8, 70]), interval=np.array([[0.0, 0], [7.5, 8.5], [30, 120]]))
    assert cost_score(told, (10.0, 100.0)) == (0.8, (0.75, 1.2))


def test_a_verdict_within_an_interval_that_reaches_beyond_the_limit_is_explained(ready: Prepared) -> None:
    told = estimate(trained(DATA, [(3.0,)], [constant(-0.3)]), ready).runs[0]
    assert told.within_limit
    assert not told.bound_is_narrower
    wide = structs.replace(told, cost_interval=[(0.0, 3.5)])
    assert wide.bound_is_narrower
    assert not structs.replace(wide, within_limit=None).bound_is_narrower


def test_a_cost_that_the_log_never_had_is_not_shown_to_be_kept_and_hides_no_other(two: Prepared) -> None:
    """Nobody knows what a cost is worth that never occurred; that the first limit is broken stands."""
    made = trained(two.dataset, [(10.0, 0.5), (1.0, 0.5)], [constant(-0.3), constant(0.6)])
    safe, over = estimate(made, two).runs
    assert len(safe.cost) == len(safe.cost_interval) == 2
    assert (safe.within_limit, safe.trusted) == (None, False)
    assert "`cost_1` never occurred" in safe.warnings[0]
    assert over.within_limit is False


class Sequential(MLPPolicy):
    """A policy with memory, as its `begin` says."""

    def begin(self, seed: int) -> Any:
        return lambda obs, reward, cost: self(obs[None])[0]


def test_what_cannot_be_estimated_is_refused_in_one_line(ready: Prepared) -> None:
    broken = MLPPolicy((np.full((1, 1), np.nan, np.float32),), (np.zeros(1, np.float32),))
    for made, data, says in (
        (trained(DATA, [(3.0,)], [constant(0.2)]), drifting(seed=1), "digest"),
        (trained(DATA, [(3.0,)], [broken]), ready, "not finite"),
    ):
        with pytest.raises(PdocrlError, match=says) as error:
            estimate(made, data)
        assert "\n" not in str(error.value)


def test_bad_folders_end_with_status_2_and_write_nothing(folder: Path, tmp_path: Path, run_cli: Cli) -> None:
    for option in (("--out", tmp_path / "page.html"), ("--confidence", 0.9)):
        status, out, err = run_cli("ope", folder, *option)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert "written to ope.json" in err
    status, out, err = run_cli("ope", tmp_path)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "run.json" in err
    (tmp_path / "drifting.npz").unlink()
    status, _, err = run_cli("ope", folder)
    assert status == 2
    assert "--data" in err
    save(drifting(seed=5), tmp_path / "other.npz")
    status, _, err = run_cli("ope", folder, "--data", tmp_path / "other.npz")
    assert status == 2
    assert "digest" in err
    (folder / "policies.npz").unlink()
    status, _, err = run_cli("ope", folder)
    assert status == 2
    assert "no policies yet" in err
    assert not (folder / "ope.json").exists()

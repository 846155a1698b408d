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

from pdocrl.data import Dataset, make_dataset, save
from pdocrl.errors import PdocrlError
from pdocrl.ope import estimate
from pdocrl.ope.result import cost_score, read_ope
from pdocrl.policies import policy as policies
from pdocrl.policies.policy import CandidatePolicy, MLPPolicy
from pdocrl.records import write_record
from pdocrl.training.config import TrainingConfig
from pdocrl.training.folder import Trained

HORIZON = 10
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two policies: −0.3 never comes near the border, +0.6 crosses it at the fifth of ten steps."""
    dataset = drifting()
    save(dataset, tmp_path / "drifting.npz")
    made = trained(dataset, [(3.0,), (1.0,)], [constant(-0.3), constant(0.6)], str(tmp_path / "drifting.npz"))
    return write(tmp_path / "run", made)


def test_verdicts_estimates_and_the_file(folder: Path, run_cli: Cli) -> None:
    """Reward is ten times the action; the first policy is shown to be safe, the second is not."""
    status, out, err = run_cli("ope", folder, "--method", "model", "--json")
    assert (status, err) == (0, "")
    told = json.loads(out)
    assert {"format": 1, **told} == json.loads((folder / "ope.json").read_text())
    assert told["data"]["digest"] == drifting().digest
    assert {"method", "versions", "horizon", "level", "step", "settings"} <= set(told)
    safe, unsafe = told["runs"]
    assert safe["verdict"] == "within limit at 95 %"
    assert safe["within_limit"] is True
    assert safe["trusted"]
    assert unsafe["within_limit"] is not True
    assert safe["reward"] == pytest.approx(-3, abs=0.2)
    assert unsafe["reward"] == pytest.approx(6, abs=0.4)
    assert safe["cost"][0] == pytest.approx(0, abs=0.1)
    assert unsafe["cost"][0] == pytest.approx(6, abs=1)  # 0.12 t > 0.5 from t = 5 on
    for run in told["runs"]:
        assert set(run["by_method"]) == {"model"}
        assert run["reward_interval"][0] <= run["reward"] <= run["reward_interval"][1]
        assert run["cost_interval"][0][0] <= run["cost"][0] <= run["cost_interval"][0][1]
        assert run["normalized_cost"] == pytest.approx(run["cost"][0] / run["cost_limit"][0])
        assert run["normalized_reward"] is None  # no task, no reference scores


def test_settings_that_vary_stand_beside_the_other_fields_of_a_run(tmp_path: Path) -> None:
    dataset = drifting()
    made = trained(dataset, [(3.0,)], [constant(0.2)])
    made.config.runs[0]["learning_rate"] = 0.5
    result = estimate(dataclasses.replace(made, folder=tmp_path), dataset, method="model", resamples=2)
    (run,) = json.loads((tmp_path / "ope.json").read_text())["runs"]
    assert run["learning_rate"] == 0.5
    assert read_ope(tmp_path).runs[0] == structs.replace(result.runs[0], varied={})


def test_the_table_has_a_row_per_run(folder: Path, run_cli: Cli) -> None:
    status, out, _ = run_cli("ope", folder, "--method", "fqe")
    assert status == 0
    assert "estimates by fqe" in out
    assert out.count("│ bc ") == 2


def test_the_same_seed_gives_the_same_bits_and_another_one_others() -> None:
    dataset = drifting()
    made = trained(dataset, [(3.0,)], [constant(0.2)])
    first, again = (estimate(made, dataset, method="model", resamples=3) for _ in range(2))
    assert first == again
    assert estimate(made, dataset, method="model", resamples=3, seed=1).runs[0].reward != first.runs[0].reward


def test_several_costs_have_an_estimate_each_and_the_worst_one_decides() -> None:
    """0.6 for ten steps ends at 1.2: beyond the border at 0.5 for six steps, never beyond those at 1.5 and 2.5."""
    dataset = drifting(costs=2)
    made = trained(dataset, [(10.0, 0.5), (1.0, 0.5)], [constant(0.6), constant(0.6)])
    generous, strict = estimate(made, dataset, method="model", resamples=4).runs
    assert len(generous.cost) == len(generous.cost_interval) == 2
    assert generous.normalized_cost < 1 < strict.normalized_cost
    assert strict.within_limit is not True


def test_the_interval_of_the_worst_cost_reaches_as_far_as_any_of_the_costs() -> None:
    """One at .8 of its limit and known well, one at .7 that may be 1.2: which is worst is not known."""
    told = SimpleNamespace(value=np.array([0.0, 8, 70]), interval=np.array([[0.0, 0], [7.5, 8.5], [30, 120]]))
    assert cost_score(told, (10.0, 100.0)) == (0.8, (0.75, 1.2))


def test_a_verdict_within_an_interval_that_reaches_beyond_the_limit_is_explained(folder: Path) -> None:
    told = estimate(folder, method="model", resamples=4).runs[0]
    assert told.within_limit
    assert not told.bound_is_narrower
    wide = structs.replace(told, cost_interval=[(0.0, 3.5)])
    assert wide.bound_is_narrower
    assert not structs.replace(wide, within_limit=None).bound_is_narrower


def test_a_cost_that_the_log_never_had_is_not_shown_to_be_kept_and_hides_no_other() -> None:
    """Nobody knows what a cost is worth that never occurred; that the first limit is broken stands."""
    dataset = drifting(costs=2)
    dataset = dataclasses.replace(dataset, cost=dataset.cost * np.array([1, 0], np.float32))
    made = trained(dataset, [(10.0, 0.5), (1.0, 0.5)], [constant(-0.3), constant(0.6)])
    safe, over = estimate(made, dataset, method="model", resamples=4).runs
    assert (safe.within_limit, safe.trusted) == (None, False)
    assert "`cost_1` never occurred" in safe.doubts[0]
    assert over.within_limit is False


def test_no_costs_no_limit_no_verdict() -> None:
    dataset = drifting(costs=0)
    run = estimate(trained(dataset, [()], [constant(0.1)]), dataset, method="model", resamples=2).runs[0]
    assert (run.verdict, run.within_limit, run.cost, run.normalized_cost) == ("no limit", None, [], None)


def test_what_the_data_does_not_know_is_said_and_nothing_is_shown() -> None:
    """The data stops at actions of ±0.2 here, so a policy of 0.95 is outside at once: neither safe nor unsafe."""
    wide = drifting(episodes=120)
    rows = np.abs(wide.action[:, 0].reshape(-1, HORIZON)).max(axis=1)
    narrow = dataclasses.replace(wide, action=wide.action * 0.2, next_obs=wide.obs + 0.04 * wide.action)
    assert rows.max() > 0.9
    run = estimate(trained(narrow, [(10.0,)], [constant(0.95)]), narrow, method="model", resamples=4).runs[0]
    assert not run.trusted
    assert "outside the data" in run.doubts[0]
    assert run.within_limit is None


class Sequential(MLPPolicy):
    """A policy with memory, as its `begin` says."""

    def begin(self, seed: int) -> Any:
        return lambda obs, reward, cost: self(obs[None])[0]


def refused(made: Trained, dataset: Dataset, **options: Any) -> str:
    with pytest.raises(PdocrlError) as error:
        estimate(made, dataset, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_cannot_be_estimated_is_refused_in_one_line() -> None:
    dataset = drifting()
    made = trained(dataset, [(3.0,)], [constant(0.2)])
    sequential = Sequential(made.policies[0].weights, made.policies[0].biases)  # type: ignore[attr-defined]
    assert "pdocrl evaluate" in refused(trained(dataset, [(3.0,)], [sequential]), dataset, method="fqe")
    assert "digest" in refused(made, drifting(seed=1))
    assert "Did you mean `model`" in refused(made, dataset, method="modle")
    assert "resamples" in refused(made, dataset, resamples=1)
    broken = MLPPolicy((np.full((1, 1), np.nan, np.float32),), (np.zeros(1, np.float32),))
    assert "not finite" in refused(trained(dataset, [(3.0,)], [broken]), dataset, method="model", resamples=2)


def test_bad_folders_end_with_status_2_and_write_nothing(folder: Path, tmp_path: Path, run_cli: Cli) -> None:
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


def test_random_proposals_are_drawn_anew_at_every_row() -> None:
    """A decoder that passes its latent on, one proposal, no choice: actions tanh(z), so reward 0 on average."""
    zero = np.zeros
    pair = ((zero((2, 2, 1), np.float32),), (zero((2, 1, 1), np.float32),))
    candidates = CandidatePolicy(
        networks={
            "decoder": ((np.array([[0.0], [0.5]], np.float32),), (zero(1, np.float32),)),
            "perturbation": ((zero((2, 1), np.float32),), (zero(1, np.float32),)),
            "critic": pair,
            "cost_critic": pair,
        },
        lam=zero(1, np.float32),
        candidates=1,
        latent_clip=2.0,
        perturbation=0.0,
        pessimism=1.0,
    )
    dataset = drifting(episodes=100)
    run = estimate(trained(dataset, [(8.0,)], [candidates]), dataset, method="model", resamples=10).runs[0]
    spread = HORIZON**0.5 * 0.45 / (10 * 4) ** 0.5  # of the mean of 40 sums of ten actions
    assert abs(run.reward) < 4 * spread
    assert run.trusted

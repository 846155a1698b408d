"""Training from a window over a file: every row counts alike, a resume meets the same windows, episodes are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdocrl.agents.base import Agent, AgentConfig, make_config
from pdocrl.agents.registry import find_agent
from pdocrl.cli.main import main
from pdocrl.data import load, save
from pdocrl.data.dataset import make_dataset
from pdocrl.errors import PdocrlError
from pdocrl.policies.policy import MLPPolicy
from pdocrl.training.buffer import Buffer, open_buffers
from pdocrl.training.config import TrainingConfig
from pdocrl.training.train import resume, train
from pdocrl.training.trainer import Run, Trainer
from probes import HORIZON, bandit

SETTINGS: dict[str, Any] = {"hidden": (8, 8), "batch_size": 16}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "bandit.hdf5"
    save(bandit(n=4000).dataset, path)
    return path


class CountState(eqx.Module):
    counts: jax.Array


class Count(Agent[AgentConfig, CountState]):
    """Counts how often it is shown each row; the rows' rewards are their numbers."""

    name, summary, paper, fewest_costs, Config = "count", "", "", 0, AgentConfig

    def init(self, config: Any, problem: Any, key: Any) -> CountState:
        return CountState(jnp.zeros(100, jnp.int32))

    def update(self, config: Any, state: Any, batch: Any, key: Any) -> Any:
        return CountState(state.counts.at[batch.reward.astype(jnp.int32)].add(1)), {"loss": jnp.zeros(())}

    def policy(self, config: Any, state: Any) -> MLPPolicy:
        raise NotImplementedError


def test_every_row_of_the_file_is_shown_equally_often(tmp_path: Path) -> None:
    """χ² over the N = 100 rows within five standard deviations of its mean.

    A window holds a row Poisson(size/N) times and m samples are taken from it, so that a row's count in one window has
    the mean m/N and m/size times more variance on top of a Poisson's.
    """
    n, size, batch, every, windows = 100, 100, 20, 5, 200
    ones, number = np.ones(n), np.arange(n)
    save(make_dataset(number, ones, number, ones, number, 0 * ones, number % 10 == 9), tmp_path / "x.npz")
    with open_buffers(tmp_path / "x.npz", None, size, every) as data:
        found = Trainer(Count(), data, [Run(AgentConfig(cost_limit=(1.0,), batch_size=batch), 0)])
        found.advance(every * windows)
    counts = np.asarray(found.state.counts[0], float)
    expected = batch * every * windows / n
    assert counts.sum() == expected * n
    statistic = ((counts - expected) ** 2 / expected).sum() / (1 + batch * every / size)
    assert abs(statistic - (n - 1)) < 5 * np.sqrt(2 * (n - 1))


def actions(trained: Any) -> np.ndarray:
    obs = np.linspace(-2, 2, 9, dtype=np.float32)[:, None]
    return np.stack([policy(obs) for policy in trained.policies])


def test_stopped_within_a_window_it_resumes_to_the_same_bits(data: Path, tmp_path: Path) -> None:
    how: dict[str, Any] = {"cost_limit": [2.5], "settings": SETTINGS, "buffer_size": 200, "refresh_every": 3}
    whole = train(data, "bc", steps=11, **how)
    folder = tmp_path / "run"
    train(data, "bc", steps=7, out=folder, **how)
    plan = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**plan, "steps": 11}))
    np.testing.assert_array_equal(actions(resume(folder)), actions(whole))
    other = train(data, "bc", steps=11, **{**how, "refresh_every": 4})
    assert (actions(other) != actions(whole)).any(), "which window a step sees does matter"


def test_a_window_is_as_good_as_memory_on_the_bandit(data: Path) -> None:
    """Behaviour cloning ends at the mean action of the log, whether the log is held whole or a twentieth at a time."""
    agent = find_agent("bc")
    config = make_config(agent, actor_rate=3e-3, cost_limit=(2.5,), horizon=float(HORIZON), **SETTINGS)
    chosen = []
    with open_buffers(data, None, 200, 10) as sample:
        for dataset in (load(data), sample):
            trainer = Trainer(agent, dataset, [Run(config, 0)])
            trainer.advance(2000)
            chosen.append(trainer.policies()[0](np.ones((1, 1)))[0, 0])
    assert chosen[1] == pytest.approx(chosen[0], abs=0.1)
    assert chosen == pytest.approx([load(data).action.mean()] * 2, abs=0.1)


def test_what_is_said_of_the_data_is_said_of_the_whole_file(data: Path, tmp_path: Path) -> None:
    whole = load(data)
    with open_buffers(data, None, 100, 3) as sample:
        assert isinstance(sample, Buffer)
        for fact in ("digest", "longest_episode", "largest_reward", "largest_cost", "n_costs", "cost_names"):
            assert getattr(sample, fact) == getattr(whole, fact), fact
        np.testing.assert_array_equal(sample.initial_obs, whole.initial_obs)
    train(data, "bc", cost_limit=[2.5], steps=1, settings=SETTINGS, buffer_size=200, out=tmp_path / "run")
    plan = TrainingConfig.read(tmp_path / "run")
    assert (plan.data_digest, plan.horizon) == (whole.digest, HORIZON)
    assert plan.refresh_every == 50, "200 rows are 13 batches of 16, rounded up to whole blocks of 50 steps"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--agent", "cdt"], "needs whole episodes"),
        (["--agent", "bc", "--set", "episodes=safe"], "needs whole episodes"),
        (["--buffer-size", "-1"], "must be at least 0"),
        (["--refresh-every", "-3"], "must be at least 0"),
    ],
)
def test_what_a_window_cannot_do_is_one_line(
    data: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", str(data), "--cost-limit", "2", "--steps", "1", "--buffer-size", "100", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_dataset_in_memory_needs_no_window() -> None:
    with pytest.raises(PdocrlError, match="in memory already"):
        train(bandit(n=200).dataset, cost_limit=[2.5], steps=1, buffer_size=10)

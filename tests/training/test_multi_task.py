"""Tasks of several shapes as one program: each learns what it learns alone, and what fills it up stays zero."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from pdocrl.agents.base import make_config
from pdocrl.agents.registry import find_agent
from pdocrl.data.dataset import Dataset, make_dataset
from pdocrl.data.tasks import Task
from pdocrl.errors import PdocrlError
from pdocrl.training import trainer as loop
from pdocrl.training.folder import load_trained
from pdocrl.training.grid import TaskPart, train_multi_task
from pdocrl.training.multi_task import MultiTaskTrainer, can_join
from pdocrl.training.train import resume
from pdocrl.training.trainer import Run, Trainer

SMALL: dict[str, Any] = {"hidden": (8, 8), "batch_size": 16, "horizon": 10.0}


def data(obs_dim: int, action_dim: int, rows: int) -> Dataset:
    rng = np.random.default_rng(rows)
    return make_dataset(
        rng.normal(size=(rows, obs_dim)),
        rng.uniform(-1, 1, (rows, action_dim)),
        rng.normal(size=rows),
        rng.random(rows) < 0.2,
        rng.normal(size=(rows, obs_dim)),
        np.zeros(rows),
        np.arange(rows) % 10 == 9,
    )


def trainer(dataset: Dataset, seeds: list[int], name: str = "pdocrl", **settings: Any) -> Trainer:
    agent = find_agent(name)
    config = make_config(agent, cost_limit=(3.0,), **SMALL, **settings)
    return Trainer(agent, dataset, [Run(config, seed) for seed in seeds])


def test_a_task_learns_together_what_it_learns_alone() -> None:
    """Of two tasks whose observations differ in length; their actions do not, so random actions are the same draws."""
    small, large = data(3, 2, 60), data(5, 2, 90)
    alone, part = trainer(small, [0, 1]), trainer(small, [0, 1])
    together = MultiTaskTrainer([trainer(large, [2]), part])
    means = together.advance(5)
    together.hand_back()
    for name, mean in alone.advance(5).items():
        np.testing.assert_allclose(means[name][1:], mean, rtol=1e-4, atol=1e-6)
    assert part.step == 5
    for a, b in zip(jax.tree.leaves(alone.state), jax.tree.leaves(part.state), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6)


def test_what_fills_up_the_networks_stays_zero() -> None:
    """So to cut a task's state out of the joined one and to fill it up again changes nothing."""
    parts = [trainer(data(3, 1, 60), [0]), trainer(data(5, 3, 90), [1])]
    together = MultiTaskTrainer(parts)
    together.advance(5)
    together.hand_back()
    narrow = parts[0]
    wide = narrow.agent.zero_padded(narrow.runs[0].config, narrow.state, narrow.problem, together.problem)
    for a, b in zip(jax.tree.leaves(wide), jax.tree.leaves(together.state), strict=True):
        np.testing.assert_array_equal(a[0], b[0])
    assert narrow.policies()[0](np.zeros((1, 3), np.float32)).shape == (1, 1)


def test_each_run_draws_from_its_own_task() -> None:
    """A task whose every step costs 1 beside one whose steps are free: the costs that λ sees are each task's own."""
    dear, free = data(3, 2, 60), data(3, 2, 90)
    dear = make_dataset(
        dear.obs,
        dear.action,
        dear.reward,
        np.ones(60),
        dear.next_obs,
        dear.terminal,
        dear.timeout,
    )
    free = make_dataset(
        free.obs,
        free.action,
        free.reward,
        np.zeros(90),
        free.next_obs,
        free.terminal,
        free.timeout,
    )
    means = MultiTaskTrainer([trainer(dear, [0]), trainer(free, [0])]).advance(3)
    np.testing.assert_allclose(means["weighted_cost"], [means["w"][0], 0.0], rtol=1e-5)


def test_each_task_has_a_folder_that_can_be_gone_on_with(tmp_path: Path) -> None:
    sets = [data(3, 2, 60), data(5, 3, 90)]
    own = [Task(name, horizon=10) for name in ("First", "Second")]
    parts = [TaskPart(d, task, tmp_path / task.name, (3.0, 4.0)) for d, task in zip(sets, own, strict=True)]
    settings = {"hidden": (8, 8), "batch_size": 16}
    done = train_multi_task(parts, seed=[0, 1], steps=4, settings=settings, log_every=2, checkpoint_every=2)
    for part, trained in zip(parts, done, strict=True):
        found = load_trained(part.out)
        assert (found.step, len(found.policies), len(found.metrics)) == (4, 4, 8)
        obs = part.dataset.obs[:3]
        np.testing.assert_array_equal(found.policies[1](obs), trained.policies[1](obs))
    longer = resume(parts[1].out, sets[1], steps=6)
    assert longer.step == 6
    assert not longer.failures


def test_trainings_that_ended_are_gone_on_with_to_the_same_bits(tmp_path: Path) -> None:
    sets = [data(3, 2, 60), data(5, 3, 90)]
    own = [Task(name, horizon=10) for name in ("First", "Second")]

    def train(folder: Path, steps: int, **settings: Any) -> list[Any]:
        parts = [TaskPart(d, task, folder / task.name, (3.0,)) for d, task in zip(sets, own, strict=True)]
        small = {"hidden": (8, 8), "batch_size": 16, **settings}
        return train_multi_task(parts, seed=[0, 1], steps=steps, settings=small, log_every=2, checkpoint_every=2)

    train(tmp_path / "short", 2)
    whole, longer = train(tmp_path / "whole", 6), train(tmp_path / "short", 6)
    for one, other in zip(whole, longer, strict=True):
        assert (other.step, other.config.steps, len(other.metrics)) == (6, 6, 6)
        obs = np.ones((4, one.config.horizon), np.float32)[:, : one.policies[0].normaliser.obs_mean.size]
        np.testing.assert_array_equal(one.policies[1](obs), other.policies[1](obs))
    with pytest.raises(PdocrlError, match="other settings"):
        train(tmp_path / "short", 8, gamma=0.9)


def test_what_would_learn_differently_is_not_joined() -> None:
    """The linear critic learns at π's actions too, whose added columns are not 0."""
    assert can_join([trainer(data(3, 2, 60), [0])])
    linear = [trainer(data(n, 2, 60), [0], critic="linear") for n in (3, 5)]
    assert not can_join(linear)
    with pytest.raises(PdocrlError, match="cannot be joined"):
        MultiTaskTrainer(linear)
    assert not can_join([trainer(data(3, 2, 60), [0], "bc")])


def test_the_program_compiled_while_first_states_are_made_is_the_one_that_trains(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on an accelerator: one compilation, and no step is taken by it."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(loop, "BLOCK", 2)
    loop._program.cache_clear()
    together = MultiTaskTrainer([trainer(data(3, 1, 60), [0]), trainer(data(5, 3, 90), [1])])
    before, alone = jax.device_get(together.state), jax.device_get(trainer(data(5, 3, 90), [1]).state)
    jax.tree.map(np.testing.assert_array_equal, jax.tree.map(lambda leaf: leaf[1:], before), alone)
    durations: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(lambda name, _, **more: durations.append(name))
    together.advance(4)
    assert not any("compile" in name for name in durations), durations
    assert not np.array_equal(before.steps, jax.device_get(together.state.steps))
    loop._program.cache_clear()

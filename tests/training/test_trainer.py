"""The loop: runs side by side are the runs alone, steps may be grouped in any way, a broken run stops alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdocrl.agents.base import Agent, AgentConfig, DeviceTable, make_config
from pdocrl.agents.registry import find_agent
from pdocrl.errors import PdocrlError
from pdocrl.policies.policy import MLPPolicy
from pdocrl.training import trainer as loop
from pdocrl.training.trainer import Run, Trainer, trainings
from probes import bandit

SMALL: dict[str, Any] = {"hidden": (8, 8), "batch_size": 16, "horizon": 10.0}


def trainer(limits: list[float], seeds: list[int], name: str = "pdocrl") -> Trainer:
    agent = find_agent(name)
    runs = [Run(make_config(agent, cost_limit=(c,), **SMALL), s) for c, s in zip(limits, seeds, strict=True)]
    return Trainer(agent, bandit(n=200).dataset, runs)


def leaves(state: Any, run: int) -> list[np.ndarray]:
    return [np.asarray(leaf[run]) for leaf in jax.tree.leaves(state)]


@pytest.fixture(scope="module")
def three() -> Trainer:
    found = trainer([2.0, 3.0, 4.0], [0, 1, 2])
    found.advance(7)
    return found


def test_a_run_does_not_depend_on_its_company_to_the_bit() -> None:
    company, alone = trainer([3.0, 3.0, 3.0], [0, 1, 2], "bc"), trainer([3.0], [1], "bc")
    for found in (company, alone):
        found.advance(7)
    for a, b in zip(leaves(company.state, 1), leaves(alone.state, 0), strict=True):
        np.testing.assert_array_equal(a, b)


def test_seven_steps_at_once_are_seven_steps_one_by_one(three: Trainer) -> None:
    slow = trainer([2.0, 3.0, 4.0], [0, 1, 2])
    for _ in range(7):
        slow.advance(1)
    for a, b in zip(jax.tree.leaves(three.state), jax.tree.leaves(slow.state), strict=True):
        np.testing.assert_array_equal(a, b)


def test_limits_and_seeds_matter(three: Trainer) -> None:
    policies = three.policies()
    obs = np.ones((1, 1), np.float32)
    assert len({float(p(obs)[0, 0]) for p in policies}) == 3


def test_stops_come_at_multiples_and_at_the_end() -> None:
    assert [stage.step for stage in trainer([2.0], [0]).train(until=25, next_stop=loop.multiples(10))] == [10, 20, 25]


class FragileConfig(AgentConfig):
    breaks_at: float = 1e9  # the step at which its loss becomes NaN


class FragileState(eqx.Module):
    count: jax.Array


class Fragile(Agent[FragileConfig, FragileState]):
    """Counts its steps and breaks when told."""

    name, summary, paper, fewest_costs, Config = "fragile", "", "", 0, FragileConfig

    def init(self, config: Any, problem: Any, key: Any) -> FragileState:
        return FragileState(jnp.zeros(()))

    def update(self, config: Any, state: Any, batch: Any, key: Any) -> Any:
        count = state.count + 1
        return FragileState(count), {"loss": jnp.where(count >= config.breaks_at, jnp.nan, count)}

    def policy(self, config: Any, state: Any) -> MLPPolicy:
        return MLPPolicy((np.full((1, 1), state.count, np.float32),), (np.zeros(1, np.float32),))


def test_a_broken_run_stops_with_its_step_and_cause_and_the_others_go_on() -> None:
    agent = Fragile()
    runs = [Run(FragileConfig(cost_limit=(1.0,), breaks_at=b), 0) for b in (1e9, 13.0)]
    found = Trainer(agent, bandit(n=200).dataset, runs)
    stages = list(found.train(until=30, next_stop=loop.multiples(10)))
    assert found.failures == {1: "step 13: loss is not finite"}
    assert [stage.step for stage in stages] == [10, 20, 30]
    assert float(found.state.count[0]) == 30
    assert 0 < float(found.state.count[1]) < 13, "its last whole state is kept"
    assert np.isnan(stages[-1].metrics["loss"][1])
    assert np.isfinite(stages[-1].metrics["loss"][0])


def test_a_step_is_traced_once() -> None:
    """Tracing is Python's work, seconds of it for a large agent before anything is learned."""

    class Counted(Fragile):
        traced = 0

        def update(self, *given: Any) -> Any:
            Counted.traced += 1
            return super().update(*given)

    Trainer(Counted(), bandit(n=200).dataset, [Run(FragileConfig(cost_limit=(1.0,)), 0)]).advance(3)
    assert Counted.traced == 1


def test_runs_that_share_a_training_fail_together() -> None:
    class Deaf(Fragile):
        """Does not train with the limit."""

        def ignores_limit(self, config: Any) -> bool:
            return True

    class Heir(Deaf):
        """Made of it, and may train with the limit."""

    runs = [Run(FragileConfig(cost_limit=(c,), breaks_at=b), 0) for b in (1e9, 13.0) for c in (1.0, 2.0)]
    assert trainings(Heir(), runs)[1].tolist() == [0, 1, 2, 3]
    found = Trainer(Deaf(), bandit(n=200).dataset, runs)
    stages = list(found.train(until=30, next_stop=loop.multiples(10)))
    assert found.training.tolist() == [0, 0, 1, 1]
    assert found.failures == dict.fromkeys((2, 3), "step 13: loss is not finite")
    assert np.isnan(stages[-1].metrics["loss"]).tolist() == [False, False, True, True]
    assert [float(p.network.weights[0][0, 0]) for p in found.policies()[:2]] == [30, 30]


def test_training_ends_when_every_run_has_failed() -> None:
    found = Trainer(Fragile(), bandit(n=200).dataset, [Run(FragileConfig(cost_limit=(1.0,), breaks_at=3.0), 0)])
    assert len(list(found.train(until=10_000_000, next_stop=loop.multiples(1000)))) == 1


def test_table_gathers_what_was_put_in() -> None:
    rng = np.random.default_rng(0)
    columns = {"a": rng.random((50, 3)).astype("f"), "b": rng.random(50).astype("f"), "starts": rng.random((5, 3))}
    rows = jnp.asarray([[3, 49], [0, 3]])
    found = DeviceTable.of(columns).take(rows)
    np.testing.assert_array_equal(found["a"], columns["a"][np.asarray(rows)])
    np.testing.assert_array_equal(found["b"], columns["b"][np.asarray(rows)])
    assert set(found) == {"a", "b"}


def test_episodes_of_one_step_can_be_learnt_from() -> None:
    """Then there are as many starts as transitions: a log of single decisions."""
    single = dataclasses.replace(bandit(n=200).dataset, timeout=np.ones(200, bool))
    found = Trainer(Fragile(), single, [Run(FragileConfig(cost_limit=(1.0,)), 0)])
    found.advance(2)
    assert not found.failures


def test_as_many_limits_as_costs() -> None:
    agent = find_agent("pdocrl")
    with pytest.raises(PdocrlError, match=r"2 cost limit\(s\) given, bandit has 1 cost\(s\): cost"):
        Trainer(agent, bandit(n=200).dataset, [Run(make_config(agent, cost_limit=(1.0, 2.0), **SMALL), 0)])


def test_runs_of_one_call_share_the_program() -> None:
    agent = find_agent("pdocrl")
    runs = [Run(make_config(agent, cost_limit=(1.0,), batch_size=b), 0) for b in (16, 32)]
    with pytest.raises(PdocrlError, match="must share the settings that change the program"):
        Trainer(agent, bandit(n=200).dataset, runs)


def test_settings_are_checked() -> None:
    agent = find_agent("pdocrl")
    with pytest.raises(PdocrlError, match="Did you mean `learning_rate`"):
        make_config(agent, lerning_rate=1e-3)
    with pytest.raises(PdocrlError, match="is not of that kind"):
        make_config(agent, gamma="high")


def test_a_gpu_is_told_to_run_kernels_at_once_where_xla_knows_how(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU is told nothing. An option that this XLA does not have is left out, and training goes on without."""
    loop._at_once.cache_clear()
    assert loop._at_once() is None
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    for options, told in ((loop.AT_ONCE, loop.AT_ONCE), ({"xla_gpu_of_another_time": True}, None)):
        loop._at_once.cache_clear()
        monkeypatch.setattr(loop, "AT_ONCE", options)
        assert loop._at_once() == told
    loop._at_once.cache_clear()

"""The conformance kit catches what it is for: agents broken in each way fail the check of that name, and no other."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from pdocrl.agents.base import Learned
from pdocrl.agents.bc import BC, BCConfig
from pdocrl.agents.coptidice import COptiDICE
from pdocrl.policies.policy import MLPPolicy
from pdocrl.testing import LIMITS, ConformanceError, bandit, check_agent

SMALL: dict[str, Any] = {"hidden": (8,), "batch_size": 16}


def failures(agent: Any, **arguments: Any) -> dict[str, str]:
    """{check: what was wrong} of those that failed."""
    report = check_agent(agent, raises=False, steps=4, **{"costs": (1,), "discrete": False, **SMALL, **arguments})
    return {check.name: check.failure for check in report.checks if not check.passed}


class SilentConfig(BCConfig):
    """A setting nobody explains."""

    mystery: float = 1.0


@dataclasses.dataclass(frozen=True)
class Forgetful(MLPPolicy):
    """Its gain is not saved, and its samples ignore the seed."""

    kind = f"{__name__}:Forgetful"
    gain: float = 1.0

    def __call__(self, obs: Any) -> Any:
        return self.gain * super().__call__(obs)

    def sample(self, obs: Any, rng: Any) -> Any:
        return np.random.default_rng().uniform(-1, 1, (len(obs), 1)).astype(np.float32)


class Careless(BC):
    """Learns from actions in the environment's unit, forgets a gain, has critics of the wrong shape."""

    name, Config = "careless", SilentConfig

    def columns(self, config: Any, dataset: Any) -> Any:
        found = super().columns(config, dataset)
        return {**found, "action": found["action"] * np.float32(dataset.action_high[0])}

    def policy(self, config: Any, state: Any) -> Any:
        made = super().policy(config, state)
        return Forgetful(made.weights, made.biases, gain=0.5)

    def learned(self, config: Any, state: Any) -> Learned:
        return Learned(q=lambda obs, action: jnp.ones((len(obs), 1)))


def test_units_files_samples_critics_and_settings() -> None:
    found = failures(Careless, data=bandit(bound=1.0))
    assert "only units do" in found.pop("units of observations and actions do not matter")
    assert "acts otherwise" in found.pop("a policy's file holds the whole policy")
    assert "samples of one seed differ" in found.pop("samples are actions, and densities sum to one")
    assert "expected (7,)" in found.pop("learned functions have their shapes and are finite")
    assert "mystery" in found.pop("every setting is explained by a comment")
    assert set(found) <= {"the ONNX model computes the same"}  # which such a policy cannot be written as


class Narrow(BC):
    """Thinks that there is one constraint, and has a metric that is never finite."""

    name = "narrow"

    def update(self, config: Any, state: Any, batch: Any, key: Any) -> Any:
        moved = dataclasses.replace(batch, action=batch.action - batch.cost.reshape(-1, 1))
        state, metrics = super().update(config, state, moved, key)
        return state, {**metrics, "ratio": metrics["actor_loss"] / 0.0}


class Mistaken(Narrow):
    """Claims to ignore a limit that it learns with."""

    name = "mistaken"

    def ignores_limit(self, config: Any) -> bool:
        return True

    def update(self, config: Any, state: Any, batch: Any, key: Any) -> Any:
        limit = jnp.asarray(config.cost_limit[0])
        moved = dataclasses.replace(batch, action=batch.action - jnp.where(limit == LIMITS[0], 0.1, 0.2))
        return BC.update(self, config, state, moved, key)


def test_several_costs_nan_and_the_limit() -> None:
    found = failures(Narrow, costs=(1, 2))
    runs = "runs side by side have finite metrics and their own policies"
    assert "ratio is not finite" in found.pop(f"with 1 cost(s): {runs}")
    assert "incompatible shapes" in found.pop(f"with 2 cost(s): {runs}")
    assert found  # with two costs nothing else can pass
    alone = failures(Mistaken)
    assert "the state depends on the limit" in alone["training that is said to ignore the limit ignores it"]


class Wandering(BC):
    """Draws noise that no key decides, has actions of the wrong shape, and takes labels for real numbers."""

    name = "wandering"

    def columns(self, config: Any, dataset: Any) -> Any:
        found = super().columns(config, dataset)
        return {**found, "obs": found["obs"] + np.random.default_rng().normal(size=found["obs"].shape)}

    def policy(self, config: Any, state: Any) -> Any:
        made = super().policy(config, state)
        wide = [np.repeat(array[-1], 2, axis=-1) for array in (made.weights, made.biases)]
        return MLPPolicy((*made.weights[:-1], wide[0]), (*made.biases[:-1], wide[1]))


def test_resume_shapes_and_discrete_actions() -> None:
    found = failures(Wandering, discrete=True)
    assert "actions have shape (5, 2)" in found["runs side by side have finite metrics and their own policies"]
    assert "has another state" in found["a stopped training resumes to the same bits"]
    assert "discrete actions" in found


class Skewed(COptiDICE):
    """Its density sums to e^0.3."""

    name = "skewed"

    def policy(self, config: Any, state: Any) -> Any:
        made = super().policy(config, state)
        fields = {field.name: getattr(made, field.name) for field in dataclasses.fields(made)}
        return _Skewed(**fields)


class _Skewed(MLPPolicy):
    kind = f"{__name__}:_Skewed"

    def log_prob(self, obs: Any, action: Any) -> Any:
        return super().log_prob(obs, action) + 0.3


def test_a_density_that_does_not_sum_to_one() -> None:
    with pytest.raises(ConformanceError, match=r"the density sums to 1\.3"):
        check_agent(Skewed, costs=(1,), discrete=False, steps=4, **SMALL)

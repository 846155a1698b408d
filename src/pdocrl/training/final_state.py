"""What a training has learned beside its policies: critics, density ratios, multipliers and the whole state."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdocrl.agents.base import Agent, Learned
from pdocrl.errors import PdocrlError
from pdocrl.policies.policy import Normaliser
from pdocrl.training import checkpoint
from pdocrl.training.trainer import Run, Trainer, blank_state, trainings

if TYPE_CHECKING:
    from pathlib import Path

    from pdocrl.training.config import TrainingConfig

Floats = NDArray[np.float32]
BLOCK = 1 << 16  # rows evaluated at once


@dataclasses.dataclass(frozen=True, eq=False)
class FinalState:
    """The state of every training of a call, with what turns it into functions of the world's observations."""

    agent: Agent[Any, Any]
    runs: Sequence[Run]
    training: NDArray[np.int64]  # [R] the training each run belongs to
    state: Any  # a pytree of arrays [T, …]
    normaliser: Normaliser

    @staticmethod
    def of(trainer: Trainer) -> FinalState:
        return FinalState(trainer.agent, trainer.runs, trainer.training, trainer.state, trainer.normaliser)

    @staticmethod
    def load(path: Path, config: TrainingConfig, normaliser: Normaliser) -> FinalState:
        """From a checkpoint; needs no data."""
        metadata = checkpoint.read_metadata(path)
        agent = config.find_agent()
        runs = config.make_runs(agent)
        own, training = trainings(agent, runs)
        told = {name: _hashable(value) for name, value in metadata["problem"].items()}
        unknown = told.keys() - {field.name for field in dataclasses.fields(agent.problem_class)}
        if unknown:
            where = f"{type(agent).__name__}.problem_class"
            raise PdocrlError(f"{path}: {where} has no field {min(unknown)}; name there what `problem` gives.")
        state, _ = checkpoint.load(path, blank_state(agent, agent.problem_class(**told), own))
        return FinalState(agent, runs, training, state, normaliser)

    def state_of(self, run: int) -> Any:
        """The agent's state of one run."""
        return jax.tree.map(lambda leaf: np.asarray(leaf)[self.training[run]], self.state)

    def call(self, name: str, run: int, obs: ArrayLike, action: ArrayLike | None = None) -> Floats:
        """A learned function at rows of observations, and actions, in the environment's own units."""
        function: Callable[..., Any] | None = getattr(self._functions(run), name)
        if function is None:
            raise PdocrlError(f"agent {self.agent.name} learns no `{name}`; it has: {self.names(run)}.")
        rows = np.asarray(obs, np.float32)
        single = rows.ndim == 1
        rows = np.atleast_2d(rows)
        size = len(self.normaliser.obs_mean)
        if rows.shape[-1] != size:
            raise PdocrlError(f"{name}: observations have {rows.shape[-1]} numbers, those of the data {size}.")
        given = [self.normaliser.normalise_obs(rows)]
        if action is not None:
            acted = np.asarray(action)
            discrete = len(self.normaliser.discrete_actions) > 0
            wanted = rows.shape[:-1] if discrete else (*rows.shape[:-1], len(self.normaliser.action_low))
            given.append(self.normaliser.normalise_action(np.broadcast_to(acted, wanted)))
        lead = rows.shape[:-1]
        flat = [array.reshape(-1, array.shape[-1]) for array in given]
        parts = [
            np.asarray(function(*(array[i : i + BLOCK] for array in flat)), np.float32)
            for i in range(0, len(flat[0]), BLOCK)
        ]
        found: Floats = np.concatenate(parts)
        found = found.reshape(*lead, *found.shape[1:])
        return found[0] if single else found

    def multipliers(self, run: int) -> Floats:
        """[K] λ of a run."""
        found = self._functions(run).multipliers
        if found is None:
            raise PdocrlError(f"agent {self.agent.name} learns no `multipliers`; it has: {self.names(run)}.")
        return np.asarray(found, np.float32)

    def names(self, run: int = 0) -> str:
        """What there is, in words."""
        own = [f.name for f in dataclasses.fields(Learned) if getattr(self._functions(run), f.name) is not None]
        return ", ".join(own) or "nothing beside its policy"

    def _functions(self, run: int) -> Learned:
        if not 0 <= run < len(self.runs):
            raise PdocrlError(f"run {run} does not exist; there are runs 0 to {len(self.runs) - 1}.")
        if run not in self._made:
            state = jax.tree.map(jnp.asarray, self.state_of(run))
            self._made[run] = self.agent.learned(self.runs[run].config, state)
        return self._made[run]

    @cached_property
    def _made(self) -> dict[int, Learned]:
        return {}


def _hashable(value: Any) -> Any:
    """Lists as JSON has them, as the tuples they were."""
    return tuple(map(_hashable, value)) if isinstance(value, list) else value

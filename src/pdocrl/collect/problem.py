"""What is to be collected from: an environment with box or discrete actions, and the costs of each of its steps.

Costs come from the environment's `info` (one key or several), or from a function of one's own (see `envs.costs`); both
may stand with the task in its TOML file, so that `evaluate` knows them too:

    pdocrl collect Pendulum-v1 --cost-function my_costs:too_fast --cost-max 100
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from pdocrl.data.bounds import make_bounds, to_real
from pdocrl.data.tasks import Task, find_task
from pdocrl.envs.costs import find_cost_function
from pdocrl.envs.episode import Player
from pdocrl.envs.registry import maker, with_costs
from pdocrl.errors import PdocrlError, UnknownNameError, by_door


@dataclasses.dataclass(frozen=True)
class ExpertProblem:
    """An environment that has been looked at: it can be made, its actions are known, and what its steps cost."""

    name: str  # of the task, or the environment's id
    make: Callable[[], gymnasium.Env]  # with actions in [−1, 1], or discrete ones; may be sent to another process
    info_keys: tuple[str, ...]  # where `info` holds the costs
    cost_names: tuple[str, ...]  # K
    obs_dim: int
    low: NDArray[np.float32]  # [A] the action that −1 stands for
    high: NDArray[np.float32]  # [A] … and 1
    horizon: int | None  # steps of a full episode, where known
    task: Task | None  # where the task table knows it
    discrete_actions: tuple[int, ...] = ()  # of a discrete environment, whose `low` and `high` are empty

    @property
    def action_dim(self) -> int:
        return len(self.discrete_actions) or len(self.low)


class UnitActions(gymnasium.Wrapper):  # type: ignore[misc]
    """Actions in [−1, 1], as offline data holds them, for an environment with other bounds."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        space = env.action_space
        self._bounds = make_bounds(str(env), space.low, space.high, space.shape[0])
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, space.shape, space.dtype)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        real = to_real(action, self._bounds).astype(self.env.action_space.dtype)  # as a trained policy's will be
        answer: tuple[Any, float, bool, bool, dict[str, Any]] = self.env.step(real)
        return answer


def look_at(env: str, costs: tuple[str, ...] = (), cost_function: str | None = None) -> ExpertProblem:
    """Make the environment once, play a step, and refuse what no expert here can learn from."""
    if costs and cost_function is not None:
        raise PdocrlError("give either the keys of `info` that hold the costs or a cost function, not both.")
    task = _task_of(env)
    if not costs and cost_function is None and task is not None:
        costs = task.costs
    make = maker(env)
    if cost_function is not None:
        make = functools.partial(with_costs, make, find_cost_function(cost_function))
    made = make()
    try:
        obs_space, action_space = made.observation_space, made.action_space
        low, high, discrete_actions = _actions_of(env, action_space)
        if not isinstance(obs_space, gymnasium.spaces.Box) or len(obs_space.shape) not in (1, 2):
            kind = type(obs_space).__name__
            raise PdocrlError(
                f"{env} has a {kind} observation space {obs_space.shape}; a box of one or two axes is needed."
            )
        player = _player(made, env, costs, cost_function)
    finally:
        made.close()
    if not player.cost_names:
        raise PdocrlError(
            f"{env} puts no `cost` into `info`. Name the keys that hold its costs "
            f"({by_door('costs=[KEY, …]', '--costs KEY …')}), or give a function "
            f"({by_door('cost_function=…', '--cost-function module:function')})."
        )
    limit = getattr(made.spec, "max_episode_steps", None)
    return ExpertProblem(
        name=task.name if task else env,
        make=make if (low == -1).all() and (high == 1).all() else functools.partial(_with_unit_actions, make),
        info_keys=costs or ("cost",),
        cost_names=player.cost_names,
        obs_dim=int(np.prod(obs_space.shape)),
        low=low,
        high=high,
        horizon=task.horizon if task else limit,
        task=task,
        discrete_actions=discrete_actions,
    )


def _with_unit_actions(make: Callable[[], gymnasium.Env]) -> gymnasium.Env:
    return UnitActions(make())


def _actions_of(env: str, space: gymnasium.Space) -> tuple[NDArray[np.float32], NDArray[np.float32], tuple[int, ...]]:
    """Bounds [A] of a box, or discrete ones; refuses every other kind."""
    if isinstance(space, gymnasium.spaces.Discrete):
        none = np.zeros(0, np.float32)
        return none, none, tuple(range(int(space.start), int(space.start + space.n)))
    if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
        kind = type(space).__name__
        raise PdocrlError(f"{env} has a {kind} action space; the experts act in Box [A] and Discrete spaces only.")
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise PdocrlError(f"{env} has actions without bounds; the experts explore between finite ones.")
    return space.low.astype(np.float32), space.high.astype(np.float32), ()


def _player(env: gymnasium.Env, name: str, costs: tuple[str, ...], cost_function: str | None) -> Player:
    try:
        return Player(env, costs or None, exact=True)
    except PdocrlError as error:
        raise PdocrlError(f"{name}: {error}") from error
    except Exception as error:
        if cost_function is None:
            raise
        message = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise PdocrlError(f"cost function {cost_function} fails on {name}'s first step: {message}") from error


def _task_of(name: str) -> Task | None:
    try:
        return find_task(name)
    except UnknownNameError:
        return None

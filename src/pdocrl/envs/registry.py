"""Environments by name: tasks, simulators' ids and any registered Gymnasium id."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gymnasium

from pdocrl.data.tasks import Task, all_tasks, find_task
from pdocrl.envs.bullet import BulletEnv, is_repeatable, register_bullet
from pdocrl.envs.costs import CostFunction, CostOf, InfoCosts, find_cost_function, import_own
from pdocrl.envs.mujoco_models import read_old_models
from pdocrl.envs.safety_gymnasium import is_safety_gymnasium, register_safety_gymnasium
from pdocrl.errors import PdocrlError, UnknownNameError


def make(name: str) -> gymnasium.Env:
    """An environment by task name (`BallRun`), Bullet id (`SafetyBallRun-v0`) or any registered Gymnasium id.

    `module:Name-v0` imports the module. Bullet's Run and Circle tasks come as `BulletEnv`; everything else is what
    Gymnasium makes of it, no episode longer than the task's horizon, with the task's own costs in `info["cost"]`.
    """
    return maker(name)()


def maker(name: str) -> Callable[[], gymnasium.Env]:
    """Look a name up now and make the environment later, perhaps in a process that does not know the name."""
    task = _task_of(name)
    if task is not None and task.env_id is None:
        raise PdocrlError(f"task {task.name} has no simulator (no env_id); it can be trained on, not rolled out.")
    env_id = name if task is None or task.env_id is None else task.env_id
    if is_safety_gymnasium(env_id.rpartition(":")[2]):
        register_safety_gymnasium()
        env_id = env_id.rpartition(":")[2]
    elif env_id.startswith("Safety"):
        register_bullet()
    spec = _find_spec(env_id)
    if task is None:
        return functools.partial(_make, spec)
    horizon = min(task.horizon, spec.max_episode_steps or task.horizon)
    make = functools.partial(_make, spec, horizon, task.render_mode)
    if task.cost_function is not None:
        return functools.partial(with_costs, make, find_cost_function(task.cost_function))
    return functools.partial(with_costs, make, InfoCosts(task.costs)) if task.costs else make


def cost_keys(name: str, costs: tuple[str, ...] | None = None) -> tuple[str, ...] | None:
    """The keys of `info` that hold these costs of a task; without costs, those that the task names, if any.

    A table writes the cost `heat` as `cost_heat`, and may have its costs in another order than the task.
    """
    task = _task_of(name)
    if task is None or not task.costs:
        return costs
    bare = {key.removeprefix("cost_"): key for key in task.costs}
    found = task.costs if costs is None else tuple(bare.get(cost.removeprefix("cost_"), "") for cost in costs)
    return found if all(found) else costs


def capped(env: str | Callable[[], gymnasium.Env], horizon: int) -> Callable[[], gymnasium.Env]:
    """What makes the environment, with no episode longer than the horizon; may be sent to another process."""
    return functools.partial(_capped, maker(env) if isinstance(env, str) else env, horizon)


def _capped(make: Callable[[], gymnasium.Env], horizon: int) -> gymnasium.Env:
    return gymnasium.wrappers.TimeLimit(make(), horizon)


def with_costs(make: Callable[[], gymnasium.Env], function: CostFunction) -> gymnasium.Env:
    """The environment with its costs by a function; may be sent to another process."""
    return CostOf(make(), function)


def _task_of(name: str) -> Task | None:
    try:
        return find_task(name)
    except UnknownNameError:
        return None


def _make(spec: Any, horizon: int | None = None, render_mode: str | None = None) -> gymnasium.Env:
    if is_repeatable(spec):
        return BulletEnv(spec)
    if is_safety_gymnasium(spec.id):
        register_safety_gymnasium()
    try:
        if str(spec.entry_point).startswith("gymnasium.envs.mujoco"):
            read_old_models()
        shown = {} if render_mode is None else {"render_mode": render_mode}
        return gymnasium.make(spec, max_episode_steps=horizon, disable_env_checker=True, **shown)
    except (gymnasium.error.Error, ImportError, AttributeError) as error:
        raise PdocrlError(f"environment {spec.id} cannot be made: {_one_line(error)}") from error


def _find_spec(env_id: str) -> Any:
    module, _, name = env_id.rpartition(":")
    if module:  # Gymnasium's own look-up splits it only when it makes the environment
        import_own(module, f"environment {env_id}")
    try:
        return gymnasium.spec(name)
    except gymnasium.error.Error:
        known = [*(t.name for t in all_tasks()), *gymnasium.envs.registry]
        hint = "Give a task of `pdocrl tasks` or a registered Gymnasium id (`module:Name-v0` imports the module)."
        raise UnknownNameError("environment", name, known, hint) from None
    except ImportError as error:
        raise PdocrlError(f"environment {env_id}: {_one_line(error)}") from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__

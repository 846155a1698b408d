"""The Bullet tasks behind the Gymnasium API, made reproducible: one seed and the same actions give the same bits.

Three habits of bullet-safety-gym are undone here. It ignores `reset(seed=…)` and draws from the global NumPy state: the
state is seeded for the reset and put back after. An episode depends on the one before it, through the motors' last
targets and through contacts that are still warm: both are cleared first, in a fraction of a millisecond, which repeats
the first episode of a fresh simulator bit for bit, for every agent. And `render()` opens a window, which ends a process
without a display: here it only ever returns pixels.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import inspect
import os
import sys
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdocrl.data.tasks import find_task
from pdocrl.errors import PdocrlError, UnknownNameError

# Run tasks: index of y in the observation, its scale, index of (vx, vy), their scale, and the speed limit.
_RUN_GEOMETRY = {
    "BallRun": (1, 0.1, 2, 0.2, 2.5),
    "CarRun": (1, 0.1, 2, 1.0, 1.5),
    "DroneRun": (1, 0.1, 3, 0.2, 1.5),
    "AntRun": (1, 0.1, 3, 0.3, 1.5),
}
REPEATABLE = {"RunTask", "CircleTask"}  # the others move obstacles by the wall clock
_NO_BULLET = "the Bullet simulator is not installed: pdocrl install bullet"
_BOUNDARY = 2.0  # Run tasks: |y| beyond this costs 1 a step


class BulletEnv(gymnasium.Env):  # type: ignore[misc]
    """One Run or Circle task. `info` holds `cost` and, for Run tasks, `cost_boundary` and `cost_speed`; all 0 or 1.

    The episode is a function of (seed, actions) alone: of nothing played before, nor of the process.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012 (Gymnasium's convention)
    render_mode = "rgb_array"

    def __init__(self, spec: Any) -> None:
        with _quiet(), _global_random_kept():
            from bullet_safety_gym.envs.builder import EnvironmentBuilder

            self._sim: Any = EnvironmentBuilder(**spec.kwargs)
        self.spec = spec
        self.observation_space = self._sim.observation_space
        self.action_space = self._sim.action_space
        self.metadata = {**self.metadata, "render_fps": round(1 / self._sim.dt)}
        self._horizon: int = spec.max_episode_steps
        self._is_run = spec.kwargs["task"] == "RunTask"
        self._elapsed: int | None = None  # steps of the running episode
        self._costly = False
        _bind_functions(self._sim.bc)
        _read_state_once_per_step(self._sim)
        # Only a window would show these two, and they cost a tenth of a step. The sphere that marks a cost is drawn
        # opaque over the agent by the software renderer; `render` draws a frame instead.
        self._sim.agent.violates_constraints = lambda _: None
        self._sim.bc.resetDebugVisualizerCamera = lambda **_: None
        self._sim.bc.changeVisualShape(self._sim.agent.violation_body_id, -1, rgbaColor=(1, 0, 0, 0))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Any]]:
        """Start the episode of this seed; without one, the next of the stream the last seed began."""
        super().reset(seed=seed)
        self._forget_last_episode()
        with _global_random_kept():
            np.random.seed(int(self.np_random.integers(2**32)))  # noqa: NPY002 (the simulator draws from it)
            obs, _ = self._sim.reset()
        self._elapsed, self._costly = 0, False
        return obs, {}

    def step(self, action: ArrayLike) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        """One step; `truncated` at the horizon, `terminated` when the drone tips over or the ant falls."""
        if self._elapsed is None:
            raise gymnasium.error.ResetNeeded("reset() must come before step()")
        obs, reward, terminated, _, raw = self._sim.step(action)
        self._elapsed += 1
        self._costly = raw["cost"] > 0
        info = {"cost": float(raw["cost"])}
        if self._is_run:
            info["cost_boundary"] = raw.get("cost_outside_bounds", 0.0)
            info["cost_speed"] = raw.get("cost_velocity_violation", 0.0)
        return obs, float(reward), bool(terminated), self._elapsed >= self._horizon, info

    def render(self) -> NDArray[np.uint8]:
        """[360, 480, 3] pixels, drawn in software: needs no display. A red frame marks a step that costs."""
        pixels = np.array(self._sim.render("rgb_array"), dtype=np.uint8)
        if self._costly:
            border = np.ones(pixels.shape[:2], dtype=bool)
            border[6:-6, 6:-6] = False
            pixels[border] = 200, 0, 0
        return pixels

    def close(self) -> None:
        self._sim.close()

    def _forget_last_episode(self) -> None:
        """Close the two leaks that restoring the saved state leaves open."""
        agent, engine = self._sim.agent, self._sim.bc
        for joint in agent.motor_list:
            joint.init_motor()  # zero force, as after loading; targets survive a restored state
        if self._sim.stored_state_id >= 0:
            # A body that ended where the next one starts hands its contact impulses on to the solver's warm start.
            # Out of everyone's reach its contacts dissolve; the restored state then puts it back.
            engine.resetBasePositionAndOrientation(agent.body_id, (0.0, 0.0, 1000.0), (0.0, 0.0, 0.0, 1.0))
            engine.performCollisionDetection()


def split_run_costs(task: str, next_obs: ArrayLike) -> NDArray[np.float32]:
    """[N, S] next observations of a Run task → [N, 2] costs (boundary, speed), each 0 or 1.

    The logged cost is their maximum: it is a function of the next observation, |y| > 2 or speed above the agent's
    limit, so data with one cost column becomes data with two constraints.
    """
    name = find_task(task).name
    if name not in _RUN_GEOMETRY:
        raise UnknownNameError("Run task", name, _RUN_GEOMETRY, "Only Run tasks have a boundary and a speed cost.")
    y, y_scale, v, v_scale, speed_limit = _RUN_GEOMETRY[name]
    obs = np.asarray(next_obs, dtype=np.float64)
    if obs.ndim != 2 or obs.shape[1] < v + 2:
        raise PdocrlError(f"{name}: next observations have shape {obs.shape}, expected [N, {find_task(name).obs_dim}].")
    boundary = np.abs(obs[:, y]) > _BOUNDARY * y_scale
    speed = np.hypot(obs[:, v], obs[:, v + 1]) > speed_limit * v_scale
    return np.stack([boundary, speed], axis=1).astype(np.float32)


def is_repeatable(spec: Any) -> bool:
    """Whether a registered environment is one of the tasks made reproducible here."""
    return bool(
        spec.entry_point == "bullet_safety_gym.envs.builder:EnvironmentBuilder" and spec.kwargs["task"] in REPEATABLE
    )


def register_bullet() -> None:
    """Make the ids known. Bullet itself is imported by the first environment."""
    try:
        import bullet_safety_gym  # noqa: F401
    except ImportError as error:
        raise PdocrlError(_NO_BULLET) from error
    if importlib.util.find_spec("pybullet") is None:
        raise PdocrlError(_NO_BULLET)


def _bind_functions(client: Any) -> None:
    """Bind the client's id to every Bullet function once; the client would do it anew at every call."""
    import pybullet

    for name, function in inspect.getmembers(pybullet, inspect.isbuiltin):
        if name != "disconnect":  # the client itself must see that one
            setattr(client, name, functools.partial(function, physicsClientId=client._client))


def _read_state_once_per_step(sim: Any) -> None:
    """Reward, cost and observation ask the engine for the same body up to nine times a step; ask once."""
    seen: dict[int, NDArray[np.float64]] = {}

    def remembered(read: Any, key: int) -> NDArray[np.float64]:
        state = seen.get(key)
        if state is None:
            state = seen[key] = read()
            state.setflags(write=False)
        return state

    def forgetting(write: Any, *args: Any, **kwargs: Any) -> Any:
        seen.clear()
        return write(*args, **kwargs)

    for key, body in enumerate((sim.agent, sim.agent.root_link)):
        if body is not None:
            body.get_state = functools.partial(remembered, body.get_state, key)
    for name in ("stepSimulation", "restoreState", "resetJointState", "resetBasePositionAndOrientation"):
        setattr(sim.bc, name, functools.partial(forgetting, getattr(sim.bc, name)))


@contextlib.contextmanager
def _global_random_kept() -> Iterator[None]:
    state = np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Send what Python and C code print on standard output and error to nowhere, for the length of the block.

    The descriptors are replaced, since C code knows no `sys.stdout`; and so are the streams, since the simulator asks
    them for a descriptor, which a notebook's or a test's stream does not have.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    libc = ctypes.CDLL(None if os.name == "posix" else "ucrtbase")
    libc.fflush(None)
    saved = os.dup(1), os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        with open(nowhere, "w") as stream, contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
            yield
    finally:
        libc.fflush(None)  # C buffers its output: what was printed inside must not appear after
        for copy, descriptor in zip(saved, (1, 2), strict=True):
            os.dup2(copy, descriptor)
            os.close(copy)

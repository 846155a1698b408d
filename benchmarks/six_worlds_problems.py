"""Six small worlds unlike the simulated robots, and people who act in each: whose logs they are differs by episode.

| world | what is unlike | costs |
|---|---|---|
| Pendulum | rewards all negative, starts anywhere | steps of hard torque |
| Mountain | true ends at the goal, episodes of very different length | steps of high speed |
| Cart | two choices, early ends | steps away from the middle |
| Plant | 30 observations from 1e-6 to 1e6, two of them constant, asymmetric actions, noise | amounts, about 1e3 |
| House | weather that nobody controls, two costs of sizes 1e-3 and 1e3 | discomfort, peaks of power |
| Dam | rare floods that cost 50, ends when dry; the cost under another key | floods |

Used by `six_worlds.py`. Every world is a Gymnasium environment; every driver has `begin(seed)`, see `envs/rollout.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Array = NDArray[np.float64]
Step = Callable[..., Any]
PLANT_UNITS = np.logspace(-6, 6, 30)
PLANT_LOW, PLANT_HIGH = np.array([-0.5, -10.0]), np.array([3.0, 1.0])


def hard_torque(obs: Array, action: Array, next_obs: Array, info: dict[str, Any]) -> float:
    """Pendulum: more than half of the torque there is."""
    return float(abs(float(np.ravel(action)[0])) > 1.0)


def high_speed(obs: Array, action: Array, next_obs: Array, info: dict[str, Any]) -> float:
    """Mountain."""
    return float(abs(float(next_obs[1])) > 0.035)


def off_centre(obs: Array, action: Any, next_obs: Array, info: dict[str, Any]) -> float:
    """Cart."""
    return float(abs(float(next_obs[0])) > 0.4)


class Rightwards(gymnasium.Wrapper):  # type: ignore[misc]
    """CartPole that also pays for standing to the right, so that reward and cost disagree."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, ended, cut, info = self.env.step(int(action))
        return obs, float(reward) + 2.0 * float(np.clip(obs[0], -1, 1)), ended, cut, info


class Plant(gymnasium.Env):  # type: ignore[misc]
    """x′ = A x + B u + noise in 30 coordinates, seen in units of 1e-6 to 1e6; output earns, and what it emits costs."""

    observation_space = spaces.Box(-np.inf, np.inf, (30,), np.float64)
    action_space = spaces.Box(PLANT_LOW.astype(np.float32), PLANT_HIGH.astype(np.float32), dtype=np.float32)

    def __init__(self, render_mode: str | None = None) -> None:
        draws = np.random.default_rng(30)
        mixed = np.linalg.qr(draws.normal(size=(28, 28)))[0]
        self._a, self._b = 0.9 * mixed, draws.normal(size=(28, 2)) / 3
        self._output = draws.normal(size=28) / np.sqrt(28)

    def _seen(self) -> Array:
        return np.concatenate([self._x, [1.0, -3.0]]) * PLANT_UNITS  # the last two never change

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._x, self._t = self.np_random.normal(size=28), 0
        return self._seen(), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        middle, half = (PLANT_LOW + PLANT_HIGH) / 2, (PLANT_HIGH - PLANT_LOW) / 2
        u = (np.asarray(action, np.float64) - middle) / half
        self._x = self._a @ self._x + self._b @ u + 0.1 * self.np_random.normal(size=28)
        self._t += 1
        effort = float(u[0] + u[1])
        emitted = 1000.0 * max(0.0, effort - 0.5 + 0.3 * float(self._x[0]))
        reward = effort + float(self._output @ self._x)
        return self._seen(), reward, False, self._t >= 60, {"cost": emitted}


class House(gymnasium.Env):  # type: ignore[misc]
    """Two days of heating by the half hour: energy is paid for, cold is a small cost and peaks of power a large one."""

    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float64)
    action_space = spaces.Box(np.zeros(1, np.float32), np.full(1, 5.0, np.float32), dtype=np.float32)

    def __init__(self, render_mode: str | None = None) -> None:
        pass

    def _seen(self) -> Array:
        day = 2 * np.pi * self._t / 48
        return np.array([self._inside, self._outside, np.sin(day), np.cos(day)])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._t, self._inside, self._outside = 0, self.np_random.uniform(16, 21), self.np_random.uniform(-5, 10)
        return self._seen(), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        power = float(np.clip(np.ravel(action)[0], 0, 5))
        self._outside += 0.1 * (3 - self._outside) + 0.6 * self.np_random.normal()
        self._inside += 0.04 * (self._outside - self._inside) + 0.35 * power + 0.1 * self.np_random.normal()
        self._t += 1
        price = 1.0 + 0.5 * np.sin(2 * np.pi * self._t / 48)
        cold, peak = 1e-3 * max(0.0, 19.0 - self._inside), 1e3 * max(0.0, power - 2.5)
        return self._seen(), -price * power, False, self._t >= 96, {"cost_cold": cold, "cost_peak": peak}


class Dam(gymnasium.Env):  # type: ignore[misc]
    """A reservoir: released water is sold at a better price when the lake is high, and a storm may flood a full one."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Box(np.zeros(1, np.float32), np.full(1, 10.0, np.float32), dtype=np.float32)

    def __init__(self, render_mode: str | None = None) -> None:
        pass

    def _seen(self) -> NDArray[np.float32]:
        return np.array([self._level, self._inflow, self._inflow - self._before], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self._t, self._level = 0, self.np_random.uniform(40, 60)
        self._inflow = self._before = self.np_random.gamma(4, 1.0)
        return self._seen(), {}

    def step(self, action: Array) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        out = min(float(np.clip(np.ravel(action)[0], 0, 10)), self._level)
        storm = 30.0 * (self.np_random.random() < 0.02)
        self._before, self._inflow = self._inflow, 0.8 * self._inflow + self.np_random.gamma(0.8, 1.0)
        self._level += self._inflow + storm - out
        flood, self._t = self._level > 100.0, self._t + 1
        self._level = min(self._level, 100.0)
        info = {"flooded": 50.0 * flood}
        return self._seen(), out * self._level / 100, self._level < 5.0, self._t >= 100, info


def pump(rng: np.random.Generator) -> Step:
    """Pendulum: swings up by energy and holds at the top, with a torque of one's own liking."""
    most, noise = rng.uniform(0.3, 2.0), rng.uniform(0.0, 0.4)

    def act(obs: Array, *_: Any) -> Array:
        cos, sin, speed = (float(x) for x in obs)
        angle = np.arctan2(sin, cos)
        wish = -8 * angle - 2 * speed if cos > 0.8 else 2 * np.sign(speed + 1e-9) * (10 * (1 - cos) / 2 - speed**2 / 6)
        return np.array([np.clip(np.clip(wish, -most, most) + noise * rng.normal(), -2, 2)], np.float32)

    return act


def rock(rng: np.random.Generator) -> Step:
    """Mountain: pushes where it moves, harder or softer."""
    gain, noise = rng.uniform(0.2, 1.0), rng.uniform(0.05, 0.4)

    def act(obs: Array, *_: Any) -> Array:
        push = gain if obs[1] >= 0 else -gain
        return np.array([np.clip(push + noise * rng.normal(), -1, 1)], np.float32)

    return act


def balance(rng: np.random.Generator) -> Step:
    """Cart: balances around a place of one's own, and errs."""
    place, errs = rng.uniform(-0.6, 1.0), rng.choice([0.0, 0.1, 0.3, 0.5])

    def act(obs: Array, *_: Any) -> int:
        x, v, angle, turn = (float(z) for z in obs)
        if rng.random() < errs:
            return int(rng.integers(2))
        return int(angle + 0.4 * turn + 0.05 * np.clip(x - place, -1, 1) + 0.1 * v > 0)

    return act


def operate(rng: np.random.Generator) -> Step:
    """Plant: runs at a level of one's own, and reacts to the first state, some more and some less."""
    level, react, noise = rng.uniform(-0.9, 0.9, 2), rng.uniform(0.0, 0.6), rng.uniform(0.05, 0.3)

    def act(obs: Array, *_: Any) -> Array:
        u = np.clip(level - react * float(obs[0]) / PLANT_UNITS[0] + noise * rng.normal(size=2), -1, 1)
        return ((PLANT_LOW + PLANT_HIGH) / 2 + u * (PLANT_HIGH - PLANT_LOW) / 2).astype(np.float32)

    return act


def heat(rng: np.random.Generator) -> Step:
    """House: a thermostat set to a temperature, with a gain."""
    wish, gain, noise = rng.uniform(15, 22), rng.uniform(0.3, 3.0), rng.uniform(0.05, 0.5)

    def act(obs: Array, *_: Any) -> Array:
        keep = 0.04 * (float(obs[0]) - float(obs[1])) / 0.35
        return np.array([np.clip(keep + gain * (wish - float(obs[0])) + noise * rng.normal(), 0, 5)], np.float32)

    return act


def release(rng: np.random.Generator) -> Step:
    """Dam: keeps the lake near a height."""
    wish, gain, noise = rng.uniform(25, 95), rng.uniform(0.05, 0.4), rng.uniform(0.1, 1.0)

    def act(obs: Array, *_: Any) -> Array:
        return np.array([np.clip(4 + gain * (float(obs[0]) - wish) + noise * rng.normal(), 0, 10)], np.float32)

    return act


DRIVERS = {"Pendulum": pump, "Mountain": rock, "Cart": balance, "Plant": operate, "House": heat, "Dam": release}
TASKS = """
[Pendulum]
horizon = 100
env_id = "Pendulum-v1"
cost_function = "six_worlds_problems:hard_torque"
reward_min = -1000.0
reward_max = 0.0
[Mountain]
horizon = 300
env_id = "MountainCarContinuous-v0"
cost_function = "six_worlds_problems:high_speed"
reward_min = -30.0
reward_max = 100.0
[Cart]
horizon = 100
env_id = "six_worlds_problems:Cart-v0"
cost_function = "six_worlds_problems:off_centre"
reward_min = 0.0
reward_max = 300.0
[Plant]
horizon = 60
env_id = "six_worlds_problems:Plant-v0"
reward_min = -120.0
reward_max = 120.0
[House]
horizon = 96
env_id = "six_worlds_problems:House-v0"
costs = ["cost_cold", "cost_peak"]
reward_min = -250.0
reward_max = 0.0
[Dam]
horizon = 100
env_id = "six_worlds_problems:Dam-v0"
costs = ["flooded"]
reward_min = 0.0
reward_max = 500.0
"""


class Drivers:
    """Somebody else in every episode."""

    def __init__(self, world: str) -> None:
        self.world = world

    def begin(self, seed: int) -> Step:
        return DRIVERS[self.world](np.random.default_rng(seed))


def _cart(render_mode: str | None = None) -> gymnasium.Env:
    return Rightwards(gymnasium.make("CartPole-v1", max_episode_steps=200).unwrapped)


for _name, _entry in (("Cart", _cart), ("Plant", Plant), ("House", House), ("Dam", Dam)):
    gymnasium.register(f"{_name}-v0", entry_point=_entry, max_episode_steps=200 if _name == "Cart" else None)

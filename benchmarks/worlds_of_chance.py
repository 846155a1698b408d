"""Ten small worlds of chance, and eight decision makers in each: used by `chance_worlds.py`.

| world | chance | actions |
|---|---|---|
| lanes | a shortcut crashes one step in ten, visibly, and costs 15 | 3 discrete |
| skid | the faster, the likelier a skid to the side; the verge costs 1 a step | speed |
| flood | storms fill a reservoir; a full one floods, which costs 20 | release |
| gusts | every step the wind throws to one side or the other, never between | steering |
| crash_end | one hurried step in thirty ends the episode and costs 10 | 2 discrete |
| hidden_crash | as lanes, one step in twenty, and nothing of it is seen | 3 discrete |
| hidden_type | the road of an episode is dry or icy, which nobody sees; speed costs on ice | 3 discrete |
| sizes | wear of .1 a step and a disaster of 100, both in one cost | load |
| drift | a temperature drifts by small steps; above a threshold every degree costs | cooling |
| stock | demand is random; an empty shelf costs what was not sold | order |

The first five were designed on. A world plays n episodes side by side: its state is [n, D], of which the first
`obs_dim` columns are seen. An episode is one decision maker's, numbered by boldness 0 … 7.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rng = np.random.Generator
MAKERS = 8


class World:
    """One world; boldness b [n] is in [0, 1]."""

    horizon = 30
    obs_dim = 2
    choices = 0  # discrete actions; 0: one continuous action in [−1, 1]

    def reset(self, rng: Rng, n: int) -> Array:
        """First states [n, D]."""
        raise NotImplementedError

    def step(self, rng: Rng, state: Array, action: Array) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
        """Next states, rewards, costs and ends; `action` [n] is a number or a choice."""
        raise NotImplementedError

    def decide(self, rng: Rng, obs: Array, bold: Array) -> Array:
        """What decision makers of boldness `bold` do."""
        raise NotImplementedError


def lanes_of(rng: Rng, bold: Array) -> NDArray[np.int64]:
    """Slow, fast or shortcut: the bolder, the more of the latter two."""
    draw = rng.random(len(bold))
    return (draw < 1.2 * bold).astype(int) + (draw < 0.8 * bold**2)


class Lanes(World):
    """State: place, whether the last step crashed."""

    choices = 3
    rate, seen = 0.1, True

    def reset(self, rng: Rng, n: int) -> Array:
        return np.stack([rng.normal(0, 1, n), np.zeros(n)], -1)

    def step(self, rng: Rng, state: Array, action: Array) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
        crash = (action == 2) & (rng.random(len(action)) < self.rate)
        place = 0.9 * state[:, 0] + 0.3 * rng.normal(size=len(action))
        reward = np.choose(action.astype(int), [0.2, 0.6, 1.0]) + 0.05 * place
        cost = np.where(crash, 15.0, (action == 1) * 1.0)
        return np.stack([place, crash * self.seen], -1), reward, cost, np.zeros(len(action), bool)

    def decide(self, rng: Rng, obs: Array, bold: Array) -> Array:
        return lanes_of(rng, bold).astype(float)


class HiddenCrash(Lanes):
    rate, seen = 0.05, False


class Skid(World):
    """State: distance from the middle, last speed."""

    def reset(self, rng: Rng, n: int) -> Array:
        return np.stack([rng.normal(0, 0.2, n), np.zeros(n)], -1)

    def step(self, rng: Rng, state: Array, action: Array) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
        n, speed = len(action), (np.clip(action, -1, 1) + 1) / 2
        skids = rng.random(n) < 0.3 * speed**2
        side = np.where(rng.random(n) < 0.5, -1.0, 1.0)
        y = 0.75 * state[:, 0] + skids * side * 1.5 + 0.05 * rng.normal(size=n)
        return np.stack([y, speed], -1), speed, (np.abs(y) > 1.0) * 1.0, np.zeros(n, bool)

    def decide(self, rng: Rng, obs: Array, bold: Array) -> Array:
        return np.clip(2 * bold - 1 - 0.5 * bold * (np.abs(obs[:, 0]) > 1) + 0.1 * rng.normal(size=len(bold)), -1, 1)


class Flood(World):
    """State: level, inflow."""

    def reset(self, rng: Rng, n: int) -> Array:
        return np.stack([rng.uniform(40, 60, n), rng.gamma(4, 1.0, n)], -1)

    def step(self, rng: Rng, state: Array, action: Array) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
        n = len(action)
        out = np.minimum(5 * (np.clip(action, -1, 1) + 1), state[:, 0])
        inflow = 0.5 * state[:, 1] + rng.gamma(2, 1.0, n)
        level = state[:, 0] + inflow + 25.0 * (rng.random(n) < 0.05) - out
        flood = level > 100
        level = np.minimum(level, 100)
        return np.stack([level, inflow], -1), out * level / 500, 20.0 * flood, np.zeros(n, bool)

    def decide(self, rng: Rng, obs: Array, bold: Array) -> Array:
        wish = 30 + 65 * bold
        return np.clip(-0.2 + 0.04 * (obs[:, 0] - wish) + 0.15 * rng.normal(size=len(bold)), -1, 1)


class Gusts(World):
    """State: height and the wind of the last step; it pays to be high, and above 1 it costs."""

    def reset(self, rng: Rng, n: int) -> Array:
        return np.stack([rng.normal(-0.5, 0.2, n), np.zeros(n)], -1)

    def step(self, rng: Rng, state: Array, action: Array) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
        n = len(action)
        wind = np.where(rng.random(n) < 0.4, 1.0, -0.6)
        y = np.clip(state[:, 0] + 0.4 * np.clip(action, -1, 1) + 0.4 * wind, -3, 3)
        return np.stack([y, wind], -1), 0.5 + y / 3, 2.0 * (y > 1), np.zeros(n, bool)

    def decide(self, rng: Rng, obs: Array, bold: Array) -> Array:
        return np.clip(1.5 * (-1.5 + 3 * bold - obs[:, 0]) + 0.2 * rng.normal(size=len(bold)), -1, 1)


class CrashEnd(World):
    """State: place, fatigue (grows when hurrying, which crashes the likelier)."""

    choices = 2

    def reset(self, rng: Rng, n: int) -> Array:
        return np.stack([rng.normal(0, 1, n), rng.uniform(0, 0.3, n)], -1)

    def step(self, rng: Rng, state: Array, action: Array) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
        n, hurried = len(action), action == 1
        crash = hurried & (rng.random(n) < 0.02 + 0.05 * state[:, 1])
        tired = np.clip(state[:, 1] + np.where(hurried, 0.1, -0.1), 0, 1)
        place = 0.9 * state[:, 0] + 0.3 * rng.normal(size=n)
        return np.stack([place, tired], -1), np.where(hurried, 1.0, 0.4), 10.0 * crash, crash

    def decide(self, rng: Rng, obs: Array, bold: Array) -> Array:
        return (rng.random(len(bold)) < bold * (1.2 - 0.5 * obs[:, 1])).astype(float)


class HiddenType(World):
    """State: place, last choice; not seen: whether the road is icy."""

    choices = 3

    def reset(self, rng: Rng, n: int) -> Array:
        return np.stack([rng.normal(0, 1, n), np.zeros(n), (rng.random(n) < 0.4) * 1.0], -1)

    def step(self, rng: Rng, state: Array, action: Array) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
        n = len(action)
        slips = (rng.random(n) < 0.25 * action) & (state[:, 2] > 0)
        place = 0.9 * state[:, 0] + 0.3 * rng.normal(size=n)
        return np.stack([place, action, state[:, 2]], -1), 0.3 + 0.35 * action, 2.0 * slips, np.zeros(n, bool)

    def decide(self, rng: Rng, obs: Array, bold: Array) -> Array:
        return lanes_of(rng, bold).astype(float)


class Sizes(World):
    """State: place, age of the load."""

    def reset(self, rng: Rng, n: int) -> Array:
        return np.stack([rng.normal(0, 1, n), np.zeros(n)], -1)

    def step(self, rng: Rng, state: Array, action: Array) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
        n, load = len(action), (np.clip(action, -1, 1) + 1) / 2
        place = 0.9 * state[:, 0] + 0.3 * rng.normal(size=n)
        disaster = rng.random(n) < 0.02 * load**2 * (place > -1)
        cost = 0.1 * (rng.random(n) < load) + 100.0 * disaster
        return np.stack([place, 0.5 * state[:, 1] + load], -1), load * (1 + 0.2 * place), cost, np.zeros(n, bool)

    def decide(self, rng: Rng, obs: Array, bold: Array) -> Array:
        return np.clip(2 * bold - 1 + 0.2 * rng.normal(size=len(bold)), -1, 1)


class Drift(World):
    """State: temperature, its drift of this episode, which moves slowly."""

    horizon = 40

    def reset(self, rng: Rng, n: int) -> Array:
        return np.stack([rng.normal(0, 0.5, n), rng.normal(0, 0.1, n)], -1)

    def step(self, rng: Rng, state: Array, action: Array) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
        n, cooling = len(action), (np.clip(action, -1, 1) + 1) / 2
        drift = 0.97 * state[:, 1] + 0.05 * rng.normal(size=n)
        heat = 0.95 * state[:, 0] + drift + 0.25 - 0.5 * cooling + 0.1 * rng.normal(size=n)
        return np.stack([heat, drift], -1), 1 - 0.8 * cooling, np.maximum(heat - 1, 0), np.zeros(n, bool)

    def decide(self, rng: Rng, obs: Array, bold: Array) -> Array:
        return np.clip((obs[:, 0] - 3 * bold) + 0.2 * rng.normal(size=len(bold)), -1, 1)


class Stock(World):
    """State: stock, what is on its way."""

    choices = 4
    horizon = 40

    def reset(self, rng: Rng, n: int) -> Array:
        return np.stack([rng.integers(2, 7, n).astype(float), np.zeros(n)], -1)

    def step(self, rng: Rng, state: Array, action: Array) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
        n = len(action)
        demand = rng.poisson(2.0, n) + 4 * (rng.random(n) < 0.05)
        here = state[:, 0] + state[:, 1]
        sold = np.minimum(here, demand)
        stock = np.minimum(here - sold, 15)
        reward = 0.5 * sold - 0.12 * stock - 0.2 * action
        return np.stack([stock, 1.5 * action], -1), reward, demand - sold, np.zeros(n, bool)

    def decide(self, rng: Rng, obs: Array, bold: Array) -> Array:
        wish = 8 - 7 * bold - obs[:, 0] - obs[:, 1] + 2
        return np.clip(np.round(wish / 1.5 + 0.4 * rng.normal(size=len(bold))), 0, 3)


WORLDS: dict[str, World] = {
    "lanes": Lanes(),
    "skid": Skid(),
    "flood": Flood(),
    "gusts": Gusts(),
    "crash_end": CrashEnd(),
    "hidden_crash": HiddenCrash(),
    "hidden_type": HiddenType(),
    "sizes": Sizes(),
    "drift": Drift(),
    "stock": Stock(),
}
DESIGNED_ON = ("lanes", "skid", "flood", "gusts", "crash_end")


def play(world: World, n: int, seed: int, act: Any) -> dict[str, Array]:
    """n episodes side by side; `act(obs [n, S], spent [n, 1], time) → action [n]`. Arrays are [n, H, …]."""
    rng = np.random.default_rng(seed)
    state, spent, on = world.reset(rng, n), np.zeros((n, 1)), np.ones(n, bool)
    rows: list[tuple[Any, ...]] = []
    for time in range(world.horizon):
        obs = state[:, : world.obs_dim]
        action = np.asarray(act(obs, spent, time)).reshape(n)
        state, reward, cost, end = world.step(rng, state, action)
        rows.append((obs, action, reward, cost, state[:, : world.obs_dim], end, on))
        spent = spent + (on * cost)[:, None]
        on = on & ~end
    names = ("obs", "action", "reward", "cost", "next_obs", "terminal", "on")
    return {name: np.stack(parts, 1) for name, parts in zip(names, zip(*rows, strict=True), strict=True)}


def logged(world: World, n: int, seed: int) -> dict[str, Array]:
    """n episodes of decision makers in turn."""
    rng, bold = np.random.default_rng([seed, 1]), (np.arange(n) % MAKERS) / (MAKERS - 1)
    return play(world, n, seed, lambda obs, spent, time: world.decide(rng, obs, bold))


def makers(world: World, n: int = 2000) -> tuple[Array, Array]:
    """Returns and costs of n true episodes of each decision maker, [8, n]."""
    found = []
    for maker in range(MAKERS):
        rng, bold = np.random.default_rng([maker, 2]), np.full(n, maker / (MAKERS - 1))
        rows = play(world, n, 1000 + maker, lambda obs, spent, time, rng=rng, bold=bold: world.decide(rng, obs, bold))
        found.append([(rows[name] * rows["on"]).sum(1) for name in ("reward", "cost")])
    reward, cost = np.asarray(found).swapaxes(0, 1)
    return reward, cost

"""Worlds with known values for `benchmarks/judge.py`: logs are drawn under one policy, another one is judged.

design       worlds that the rules of `pdocrl.ope.verdicts` were chosen on, or mended after
report       worlds that were first run when the rules were fixed
simulators   the same, of `benchmarks/any_log`: logs of several deciders, of whom one, or a mixture of two, is judged
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from any_log import third_party, unseen
from any_log import worlds as any_worlds

Array = Any


@dataclasses.dataclass(frozen=True)
class World:
    """`start(rng, n)` gives states [n, D]; `move(rng, x, a)` next states, rewards, costs, ends; policies [n, A]."""

    name: str
    start: Callable[[Any, int], Array]
    move: Callable[[Any, Array, Array], tuple[Array, Array, Array, Array]]
    behaviour: Callable[[Array], Array]
    target: Callable[[Array], Array]
    steps: int
    columns: Callable[[Array], dict[str, Array]] = lambda x: {f"x{j}": x[:, j] for j in range(x.shape[1])}
    threshold: float = 0.5  # of the tail limit: P(cost > threshold)

    def play(self, rng: Any, episodes: int, policy: Callable[[Array], Array]) -> pd.DataFrame:
        """A row per decision; `state` holds the row of `x` for the policy that is judged."""
        x, alive, parts = self.start(rng, episodes), np.arange(episodes), []
        for t in range(self.steps):
            chance = policy(x)
            a = (rng.random(len(x))[:, None] > np.cumsum(chance, axis=1)[:, :-1]).sum(1)
            after, reward, cost, stop = self.move(rng, x, a)
            target = self.target(x)
            row = self.columns(x) | {"episode": alive, "t": t, "action": a, "reward": reward, "cost": cost}
            row |= {"p": chance[np.arange(len(x)), a]} | {f"π{k}": target[:, k] for k in range(target.shape[1])}
            parts.append(pd.DataFrame(row))
            x, alive = after[~stop], alive[~stop]
            if not len(alive):
                break
        return pd.concat(parts, ignore_index=True)

    def totals(self, episodes: int, seed: int) -> Array:
        """[episodes] costs under the target."""
        frame = self.play(np.random.default_rng(seed), episodes, self.target)
        return np.bincount(frame["episode"], frame["cost"], minlength=episodes)


def sigmoid(z: Array) -> Array:
    return 1 / (1 + np.exp(-z))


def two(p: Array) -> Array:
    return np.stack([1 - p, p], axis=1)


def softmax(z: Array) -> Array:
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def _normal(d: int) -> Callable[[Any, int], Array]:
    return lambda rng, n: rng.normal(size=(n, d))


def _bandit(rng: Any, x: Array, a: Array) -> tuple[Array, Array, Array, Array]:
    cost = rng.random(len(x)) < sigmoid(x[:, 0] * x[:, 1] + a - 1)
    return x, np.sin(2 * x[:, 0]) * a + rng.normal(size=len(x)), cost.astype(float), np.ones(len(x), bool)


def _queue(rng: Any, x: Array, a: Array) -> tuple[Array, Array, Array, Array]:
    """x: length of a queue; action 1 serves faster at a price; cost when it is long."""
    after = np.clip(x + rng.binomial(2, 0.5, x.shape) - 1 - a[:, None] * (rng.random(x.shape) < 0.6), 0, 8)
    return after, -x[:, 0] - a, (x[:, 0] >= 5).astype(float), rng.random(len(x)) < 0.1


def _drift(rng: Any, x: Array, a: Array) -> tuple[Array, Array, Array, Array]:
    after = 0.9 * x + 0.3 * (2 * a[:, None] - 1) + 0.3 * rng.normal(size=x.shape)
    return after, -(x**2).sum(1), (x[:, 0] > 1).astype(float), np.zeros(len(x), bool)


def design() -> list[World]:
    push = lambda x: two(sigmoid(-2 * x[:, 0]))  # noqa: E731
    half = lambda x: np.full((len(x), 2), 0.5)  # noqa: E731
    serve = lambda x: two(np.where(x[:, 0] >= 3, 0.9, 0.2))  # noqa: E731
    empty = lambda rng, n: rng.integers(0, 4, (n, 1)).astype(float)  # noqa: E731
    sick, mend = (lambda x: two(sigmoid(x[:, 0]))), (lambda x: two(sigmoid(-x[:, 1])))
    return [
        World("bandit", _normal(2), _bandit, sick, mend, 1),
        World("queue", empty, _queue, half, serve, 60),
        World("drift, 5 steps", _normal(2), _drift, half, push, 5, threshold=1.5),
        World("drift, 30 steps", _normal(2), _drift, half, push, 30, threshold=4.5),
        _tabular("tabular, 25 steps", 22, 0.04),
        _catalogue("catalogue", 11, 20, 3),
    ]


def _tabular(name: str, seed: int, stop: float, states: int = 6, actions: int = 3, threshold: float = 1.5) -> World:
    rng = np.random.default_rng(seed)
    moves = rng.dirichlet(np.full(states, 0.5), (states, actions))
    reward, risk = rng.normal(size=(states, actions)), 0.4 * rng.uniform(size=(states, actions)) ** 2
    policies = rng.dirichlet(np.full(actions, 2.0), (2, states))
    before, after = 0.7 * policies[0] + 0.3 / actions, 0.6 * policies[1] + 0.4 * policies[0]

    def move(rng: Any, x: Array, a: Array) -> tuple[Array, Array, Array, Array]:
        s = x[:, 0].astype(int)
        chance = np.cumsum(moves[s, a], axis=1)
        follow = (rng.random(len(s))[:, None] > chance[:, :-1]).sum(1)[:, None].astype(float)
        cost = (rng.random(len(s)) < risk[s, a]).astype(float)
        return follow, reward[s, a] + 0.3 * rng.normal(size=len(s)), cost, rng.random(len(s)) < stop

    return World(
        name,
        lambda rng, n: rng.integers(0, states, (n, 1)).astype(float),
        move,
        lambda x: before[x[:, 0].astype(int)],
        lambda x: after[x[:, 0].astype(int)],
        400,
        columns=lambda x: {"s": np.array([f"s{int(s)}" for s in x[:, 0]])},
        threshold=threshold,
    )


def _catalogue(name: str, seed: int, items: int, kinds: int) -> World:
    """Visits of a few kinds; some items are delicate. The target prefers what pays."""
    rng = np.random.default_rng(seed)
    worth, harm = rng.normal(size=(kinds, items)), 0.5 * rng.uniform(size=(kinds, items)) ** 3

    def move(rng: Any, x: Array, a: Array) -> tuple[Array, Array, Array, Array]:
        kind = x[:, 0].astype(int)
        cost = (rng.random(len(x)) < harm[kind, a]).astype(float)
        return x, worth[kind, a] + rng.normal(size=len(x)), cost, np.ones(len(x), bool)

    popular = softmax(np.tile(-3 / items * np.arange(float(items)), (kinds, 1)) + 0.3 * worth)
    better = 0.5 * popular + 0.5 * softmax(worth)
    return World(
        name,
        lambda rng, n: np.c_[rng.integers(0, kinds, n), rng.normal(size=n)].astype(float),
        move,
        lambda x: popular[x[:, 0].astype(int)],
        lambda x: better[x[:, 0].astype(int)],
        1,
        columns=lambda x: {"kind": np.array([f"kind {int(k)}" for k in x[:, 0]]), "noise": x[:, 1]},
    )


def _clinic() -> World:
    """Columns, not states: severity, age and frailty matter, four more do not; doses 0 to 3, up to 8 visits."""

    def start(rng: Any, n: int) -> Array:
        return np.c_[rng.uniform(2, 8, n), rng.normal(size=n), rng.integers(0, 2, n), rng.normal(size=(n, 3))]

    def move(rng: Any, x: Array, a: Array) -> tuple[Array, Array, Array, Array]:
        frail = x[:, 2] > 0
        after = x.copy()
        after[:, 0] = np.clip(x[:, 0] + 0.4 - 0.7 * a + 0.2 * x[:, 1] + 0.8 * rng.normal(size=len(x)), 0, 12)
        after[:, 3:] = rng.normal(size=(len(x), 3))
        cost = (rng.random(len(x)) < sigmoid(1.1 * a + 1.2 * frail + 0.4 * x[:, 1] - 4)).astype(float)
        return after, -after[:, 0] / 4, cost, (after[:, 0] < 1) | (rng.random(len(x)) < 0.03)

    def doctor(x: Array) -> Array:
        wanted = np.clip(np.round(x[:, 0] / 3), 0, 3)
        return 0.7 * softmax(-1.5 * (np.arange(4) - wanted[:, None]) ** 2) + 0.3 / 4

    def careful(x: Array) -> Array:
        wanted = np.clip(np.round(x[:, 0] / 3) - (x[:, 2] > 0), 0, 3)
        return 0.8 * softmax(-1.5 * (np.arange(4) - wanted[:, None]) ** 2) + 0.2 / 4

    def columns(x: Array) -> dict[str, Array]:
        named = {"severity": x[:, 0], "age": x[:, 1], "frail": np.where(x[:, 2] > 0, "yes", "no")}
        return named | {f"lab{j}": x[:, 3 + j] for j in range(3)}

    return World("clinic", start, move, doctor, careful, 8, columns, threshold=0.5)


def _stock() -> World:
    """Lost sales: stock and a season, orders of 0, 3 or 6; cost is a step without stock, rewards are skewed."""

    def start(rng: Any, n: int) -> Array:
        return np.c_[rng.integers(0, 10, n), rng.integers(0, 4, n)].astype(float)

    def move(rng: Any, x: Array, a: Array) -> tuple[Array, Array, Array, Array]:
        stock, season = x[:, 0] + 3 * a, x[:, 1]
        demand = rng.poisson(2 + season)
        left = np.maximum(stock - demand, 0)
        reward = 2 * np.minimum(stock, demand) - 0.3 * left - 1.5 * a
        follow = np.c_[np.minimum(left, 15), (season + (rng.random(len(x)) < 0.3)) % 4]
        return follow, reward, (stock < demand).astype(float), rng.random(len(x)) < 0.08

    def manager(x: Array) -> Array:
        wanted = np.clip((6 - x[:, 0]) / 3, 0, 2)
        return 0.6 * softmax(-2 * (np.arange(3) - wanted[:, None]) ** 2) + 0.4 / 3

    def seasonal(x: Array) -> Array:
        wanted = np.clip((4 + 2 * x[:, 1] - x[:, 0]) / 3, 0, 2)
        return 0.8 * softmax(-2 * (np.arange(3) - wanted[:, None]) ** 2) + 0.2 / 3

    return World("stock", start, move, manager, seasonal, 60, threshold=3.5)


def report() -> list[World]:
    return [
        _tabular("tabular, 5 steps", 21, 0.2),
        _tabular("tabular, 12 steps", 23, 0.08, threshold=4.5),
        _tabular("tabular, 33 steps", 31, 0.03, threshold=6.5),
        _catalogue("menu", 12, 12, 4),
        _clinic(),
        _stock(),
    ]


@dataclasses.dataclass(frozen=True)
class Simulated:
    """A world of `any_log`; the judged policy is a mixture of deciders, and the cost its first limit's."""

    name: str
    world: Any
    weights: dict[str, float]  # decider → share in the judged policy, drawn anew at every step
    threshold: float
    behaviour: None = None  # the deciders

    def _judged(self, frame: Any, t: int) -> Array:
        chances = [w * np.asarray(self.world.deciders[name](frame, t)) for name, w in self.weights.items()]
        return np.sum(chances, axis=0)

    def play(self, rng: Any, episodes: int, policy: Any = None) -> pd.DataFrame:
        """Episodes of deciders, each with probability 1/D; propensities are those of the mixture given the columns."""
        names, seen = list(self.world.deciders), []
        who = rng.integers(len(names), size=episodes)

        def decide(frame: Any, t: int, rng: Any) -> Array:
            every = np.stack([np.asarray(self.world.deciders[name](frame, t)) for name in names])
            own = every[who[frame["_episode"]], np.arange(every.shape[1])]
            if policy is not None:
                own = self._judged(frame, t)
            action = (rng.random(len(own))[:, None] > np.cumsum(own, axis=1)[:, :-1]).sum(1)
            seen.append((self._judged(frame, t), own[np.arange(len(own)), action]))
            return action

        log = pd.DataFrame(any_worlds.play(self.world, decide, episodes, int(rng.integers(2**31))))
        place = {label: i for i, label in enumerate(self.world.actions)}
        target = np.concatenate([a for a, _ in seen])
        cost = log[next(iter(self.world.limits))]
        told = {"t": log["step"], "action": log["action"].map(place), "cost": cost}
        told |= {"p": np.concatenate([p for _, p in seen]), "decider": np.array(names)[who[log["episode"]]]}
        told |= {f"π{k}": target[:, k] for k in range(target.shape[1])}
        return log.drop(columns=["step", "terminal", *self.world.limits]).assign(**told)

    def totals(self, episodes: int, seed: int) -> Array:
        frame = self.play(np.random.default_rng(seed), min(episodes, 4000), "judged")
        return np.bincount(frame["episode"], frame["cost"])


def simulators() -> list[Simulated]:
    """Packages that are not installed are left out by `judge.py`."""
    shop, dam, glucose = third_party.INVENTORY, third_party.DAM, third_party.GLUCOSE
    field, found = unseen.FIELD, []
    for world in (shop, field, dam, glucose):
        first, second = list(world.deciders)[:2]
        found.append((world, f"{world.name}: {first}", {first: 1.0}))
        found.append((world, f"{world.name}: mixture", {first: 0.5, second: 0.5}))
    return [Simulated(name, world, weights, next(iter(world.limits.values()))) for world, name, weights in found]

"""Simulators of decisions with named columns, vectorised over episodes, with known true values.

`clinic` and `machines` are those the defaults of `pdocrl.portfolio` were chosen on; the others were only reported on
(`third_party.py` has those of other packages). A world is played by deciders (functions of the columns) to make a log,
or by a policy to find its true value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

Frame = dict[str, Any]
Decide = Callable[[Frame, int], Any]  # columns [n], step → [n, A] probabilities


@dataclasses.dataclass(frozen=True)
class World:
    name: str
    actions: tuple[str, ...]
    horizon: int
    limits: dict[str, float]  # per episode
    start: Callable[[Any, int], Any]  # (rng, n) → state, a dict of arrays [n]
    frame: Callable[[Any, Any, int], Frame]  # (rng, state, step) → columns as logged
    move: Callable[[Any, Any, Any, int], tuple[Any, Any, dict[str, Any], Any]]  # → state, reward, costs, stop
    deciders: dict[str, Decide]
    cut: float = 0.0  # chance per step that the record of an episode breaks off


def play(world: World, decide: Callable[[Frame, int, Any], Any], episodes: int, seed: int, cut: float = 0.0) -> Frame:
    """A log of episodes, columns [rows]; `decide(columns, step, rng)` gives the places [n] of actions.

    Beside the columns it is told `_episode` [n] and `_paid` [n, K], the costs so far.
    """
    rng = np.random.default_rng(seed)
    state, alive, parts = world.start(rng, episodes), np.arange(episodes), []
    paid = np.zeros((episodes, len(world.limits)))
    for t in range(world.horizon):
        frame = world.frame(rng, state, t)
        action = np.asarray(decide({**frame, "_episode": alive, "_paid": paid[alive]}, t, rng))
        state, reward, costs, stop = world.move(rng, state, action, t)
        paid[alive] += np.stack([costs[name] for name in world.limits], 1)
        lost = rng.random(len(alive)) < cut
        done = {"action": np.array(world.actions)[action], "reward": reward, **costs}
        row = {"episode": alive, "step": np.full(len(alive), t), **frame, **done}
        parts.append({**row, "terminal": stop | (t == world.horizon - 1)})
        going_on = ~stop & ~lost
        state, alive = {name: values[going_on] for name, values in state.items()}, alive[going_on]
        if not len(alive):
            break
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def make_log(world: World, episodes: int, seed: int) -> Frame:
    """Each episode is one decider's; a row's decider is a column."""
    names = list(world.deciders)
    who = np.random.default_rng([seed, 7]).integers(len(names), size=episodes)

    def decide(frame: Frame, t: int, rng: Any) -> Any:
        own = who[frame["_episode"]]
        found = np.zeros(len(own), np.int64)
        for k, name in enumerate(names):
            here = np.flatnonzero(own == k)
            if len(here):
                part = {c: np.asarray(v)[here] for c, v in frame.items()}
                found[here] = draw(world.deciders[name](part, t), rng)
        return found

    log = play(world, decide, episodes, seed, world.cut)
    return by_episode(log | {"decider": np.array(names)[who[log["episode"]]]})


def by_episode(log: Frame) -> Frame:
    """Its rows in order of episode and step."""
    order = np.lexsort((log["step"], log["episode"]))
    return {name: values[order] for name, values in log.items()}


def true_values(world: World, decide: Callable[[Frame, int, Any], Any], episodes: int = 1000, seed: int = 99) -> Any:
    """{signal: mean total per episode}."""
    log = play(world, decide, episodes, seed)
    return {name: float(log[name].sum() / episodes) for name in ("reward", *world.limits)}


def deciders_values(world: World, episodes: int = 1000) -> dict[str, dict[str, float]]:
    """Of each decider."""
    return {
        name: true_values(world, lambda frame, t, rng, f=f: draw(f(frame, t), rng), episodes)
        for name, f in world.deciders.items()
    }


def draw(chances: Any, rng: Any) -> Any:
    """[n] places drawn from probabilities [n, A]."""
    edges = np.cumsum(chances, axis=1)
    return (rng.random(len(edges))[:, None] * edges[:, -1:] > edges).sum(1)


def spread(action: Any, count: int, noise: float) -> Any:
    """[n, A] the action with probability 1 − noise, else any."""
    return (1 - noise) * np.eye(count)[action] + noise / count


def sigmoid(z: Any) -> Any:
    return 1 / (1 + np.exp(-z))


# Clinic: a drug against inflammation whose dose builds up; what harms is frailty times what has built up.


def _clinic_start(rng: Any, n: int) -> Any:
    return {
        "frail": rng.beta(2, 3, n),
        "ill": rng.normal(2.0, 0.7, n),
        "level": np.zeros(n),
        "kidney": rng.uniform(0.4, 1.0, n),
        "ward": rng.integers(3, size=n),
        "age": rng.normal(60, 12, n),
        "noise": rng.normal(size=(n, 4)),
        "last": np.zeros(n),
    }


def _clinic_frame(rng: Any, s: Any, t: int) -> Frame:
    n = len(s["ill"])
    lab = s["level"] + 0.15 * rng.normal(size=n)
    return {
        "crp": s["ill"] + 0.2 * rng.normal(size=n),
        "serum": np.where(rng.random(n) < 0.15, np.nan, lab),
        "creatinine": 1 / s["kidney"] + 0.05 * rng.normal(size=n),
        "frailty": s["frail"] + 0.08 * rng.normal(size=n),
        "last_dose": s["last"],
        "ward": np.array(["north", "south", "west"])[s["ward"]],
        "age": s["age"],
        "smoker": s["age"] % 2 > 1.2,
        **{f"lab_{j}": s["noise"][:, j] + 0.5 * rng.normal(size=n) for j in range(4)},
    }


def _clinic_move(rng: Any, s: Any, a: Any, t: int) -> Any:
    n = len(a)
    level = s["level"] * (1 - 0.45 * s["kidney"]) + 0.5 * a
    ill = np.clip(s["ill"] + 0.25 - 0.28 * level / (1 + 0.3 * level) + 0.25 * rng.normal(size=n), 0, 6)
    harm = (rng.random(n) < sigmoid(2.2 * level * (0.4 + s["frail"]) - 5.0)).astype(float)
    stop = rng.random(n) < 0.004 + 0.01 * (ill > 4.5)
    reward = 1.5 - 0.5 * ill
    after = {**s, "level": level, "ill": ill, "last": a.astype(float), "noise": 0.9 * s["noise"]}
    return after, reward, {"harm": harm}, stop


def _by_crp(cuts: tuple[float, ...], noise: float, careful: bool = False) -> Decide:
    def decide(f: Frame, t: int) -> Any:
        a = np.searchsorted(np.array(cuts), f["crp"])
        if careful:
            a = np.where((f["frailty"] > 0.5) | (f["creatinine"] > 1.8), np.minimum(a, 1), a)
        return spread(a, 5, noise)

    return decide


CLINIC = World(
    name="clinic",
    actions=("none", "low", "medium", "high", "very high"),
    horizon=40,
    limits={"harm": 7.0},
    start=_clinic_start,
    frame=_clinic_frame,
    move=_clinic_move,
    deciders={
        "Adams": _by_crp((0.3, 0.8, 1.5, 2.5), 0.25),
        "Brown": _by_crp((1.5, 2.5, 4.0, 9.0), 0.25),
        "Chen": _by_crp((0.5, 1.2, 2.0, 3.0), 0.25, careful=True),
    },
    cut=0.004,
)


# Machines: wear is seen through sensors, one of which fails; maintenance costs, breakdowns stop the line, loads vary.


def _machines_start(rng: Any, n: int) -> Any:
    return {
        "wear": rng.uniform(0, 0.3, n),
        "kind": rng.integers(3, size=n),
        "broken": rng.random(n) < 0.2,
        "order": rng.normal(size=n),
        "since": np.zeros(n),
        "hours": rng.uniform(0, 100, n),
    }


def _machines_frame(rng: Any, s: Any, t: int) -> Frame:
    n = len(s["wear"])
    return {
        "vibration": s["wear"] * np.array([1.0, 1.6, 0.7])[s["kind"]] + 0.05 * rng.normal(size=n),
        "heat": np.where(s["broken"], np.nan, 40 + 30 * s["wear"] + 3 * rng.normal(size=n)),
        "kind": np.array(["press", "lathe", "mill"])[s["kind"]],
        "demand": s["order"],
        "since_service": s["since"],
        "hours": s["hours"],
        "night": np.full(n, t % 3 == 2),
    }


def _machines_move(rng: Any, s: Any, a: Any, t: int) -> Any:
    n = len(a)  # slow, normal, fast, service
    speed = np.array([0.5, 1.0, 1.5, 0.0])[a]
    served = a == 3
    rate = np.array([0.03, 0.045, 0.02])[s["kind"]] * speed**1.5 * rng.gamma(4, 0.25, n)
    wear = np.where(served, 0.25 * s["wear"], s["wear"] + rate)
    down = (rng.random(n) < sigmoid(9 * (wear - 0.95))) & ~served
    reward = np.minimum(speed, 1.0 + 0.4 * s["order"]).clip(0) - 0.3 * served - 1.0 * down
    after = {
        "wear": np.where(down, 0.2, wear),
        "kind": s["kind"],
        "broken": s["broken"],
        "order": 0.8 * s["order"] + 0.6 * rng.normal(size=n),
        "since": np.where(served | down, 0, s["since"] + 1),
        "hours": s["hours"] + speed,
    }
    return after, reward, {"breakdown": down.astype(float), "service": served.astype(float)}, np.zeros(n, bool)


def _machines_decider(serve_at: float, fast_at: float, slow_at: float, noise: float, by: str) -> Decide:
    def decide(f: Frame, t: int) -> Any:
        seen = f["vibration"] if by == "vibration" else f["since_service"] / 25
        a = np.where(f["demand"] > fast_at, 2, np.where(f["demand"] < slow_at, 0, 1))
        return spread(np.where(seen > serve_at, 3, a), 4, noise)

    return decide


MACHINES = World(
    name="machines",
    actions=("slow", "normal", "fast", "service"),
    horizon=60,
    limits={"breakdown": 1.0, "service": 6.0},
    start=_machines_start,
    frame=_machines_frame,
    move=_machines_move,
    deciders={
        "day": _machines_decider(0.8, 0.0, -1.0, 0.12, "vibration"),
        "eve": _machines_decider(0.5, 0.7, -0.5, 0.12, "vibration"),
        "night": _machines_decider(0.9, 0.3, -0.7, 0.2, "since"),
        "new": _machines_decider(1.2, -0.5, -2.0, 0.3, "since"),
    },
)
WORLDS = {world.name: world for world in (CLINIC, MACHINES)}

"""Worlds that were only reported on, written after the method was frozen in words and before it was run on them.

    pip install --target DIR --no-deps pcgym;  PYTHONPATH=DIR:benchmarks

`reactor` and `tanks` integrate pcgym's models of a stirred-tank reactor and of four coupled tanks; `battery` and
`field` are ours. Columns, deciders and limits are ours throughout.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from any_log.third_party import module_of
from any_log.worlds import Frame, World, spread


@functools.cache
def _model(name: str) -> Any:
    return getattr(_models(), name)(int_method="numpy")


@functools.cache
def _models() -> Any:
    return module_of("pcgym", "model_classes")[0]


def _integrated(model: Any, x: Any, u: Any, seconds: float, steps: int) -> Any:
    """Runge–Kutta; x [n, S], u [U, n]."""
    h = seconds / steps
    f = lambda y: np.array(model(np.maximum(y.T, 1e-6), u)).T  # noqa: E731
    for _ in range(steps):
        a = f(x)
        b = f(x + h / 2 * a)
        c = f(x + h / 2 * b)
        x = x + h / 6 * (a + 2 * b + 2 * c + f(x + h * c))
    return x


# Reactor: coolant by name; hot feed makes it run hot, and hours above 335 K are limited.

COOLANT = np.array([292.0, 298.0, 303.0, 308.0])


def _reactor_start(rng: Any, n: int) -> Any:
    return {
        "x": np.c_[rng.uniform(0.7, 0.95, n), rng.uniform(315, 330, n)],
        "feed": np.c_[rng.normal(350, 2, n), rng.normal(1.0, 0.03, n)],
        "order": rng.integers(2, size=n),
        "last": np.full(n, 297.0),
    }


def _reactor_frame(rng: Any, s: Any, t: int) -> Frame:
    n = len(s["last"])
    return {
        "temperature": s["x"][:, 1] + 0.7 * rng.normal(size=n),
        "analyser": np.where(rng.random(n) < 0.2, np.nan, s["x"][:, 0] + 0.02 * rng.normal(size=n)),
        "feed_temperature": s["feed"][:, 0] + 0.5 * rng.normal(size=n),
        "coolant": s["last"],
        "grade": np.array(["fine", "bulk"])[s["order"]],
        "shift": np.full(n, ["early", "late", "night"][t // 10 % 3]),
        "pressure": rng.normal(5, 0.2, n),
    }


def _reactor_move(rng: Any, s: Any, a: Any, t: int) -> Any:
    n = len(a)
    u = np.stack([COOLANT[a] + 0.3 * rng.normal(size=n), *s["feed"].T])
    x = _integrated(_model("cstr"), s["x"], u, 0.4, 12)
    x = np.clip(x, [0.0, 280.0], [1.2, 420.0])
    hot, made = x[:, 1] > 335, 1 - x[:, 0]
    reward = np.where(s["order"] == 1, made, 0.6 - np.abs(made - 0.3))
    feed = s["feed"] + np.c_[0.3 * (350 - s["feed"][:, 0]) + rng.normal(0, 1.0, n), rng.normal(0, 0.004, n)]
    after = {**s, "x": x, "feed": feed, "last": COOLANT[a]}
    return after, reward, {"hot": hot.astype(float)}, np.zeros(n, bool)


def _operator(low: float, high: float, noise: float) -> Any:
    def decide(f: Frame, t: int) -> Any:
        a = np.searchsorted(-np.array([high, (low + high) / 2, low]), -f["temperature"])
        return spread(np.where(f["grade"] == "bulk", a, np.minimum(a, 2)), 4, noise)

    return decide


REACTOR = World(
    name="reactor",
    actions=("cold", "cool", "mild", "warm"),
    horizon=30,
    limits={"hot": 2.0},
    start=_reactor_start,
    frame=_reactor_frame,
    move=_reactor_move,
    deciders={
        "Abe": _operator(322.0, 332.0, 0.2),
        "Boro": _operator(330.0, 345.0, 0.25),
        "Duru": _operator(326.0, 337.0, 0.2),
        "Cruz": _operator(316.0, 324.0, 0.3),
    },
)


# Tanks: two pumps, a demand at the lower left one; overflow is limited, and so is what both pumps use.

PUMPS = 2.5 * np.array([[1.0, 1.0], [3.0, 1.5], [1.5, 3.0], [3.5, 3.5], [5.0, 4.0]])


def _tanks_start(rng: Any, n: int) -> Any:
    return {"x": rng.uniform(0.1, 0.4, (n, 4)), "demand": rng.normal(0.35, 0.05, n), "leak": rng.random(n) < 0.3}


def _tanks_frame(rng: Any, s: Any, t: int) -> Frame:
    n = len(s["leak"])
    seen = s["x"] + 0.02 * rng.normal(size=(n, 4))
    return {
        "lower_1": seen[:, 0],
        "lower_2": seen[:, 1],
        "upper_1": seen[:, 2],
        "upper_2": np.where(rng.random(n) < 0.3, np.nan, seen[:, 3]),
        "demand": s["demand"],
        "old_valve": s["leak"],
        "room": rng.normal(20, 2, n),
    }


def _tanks_move(rng: Any, s: Any, a: Any, t: int) -> Any:
    n = len(a)
    u = PUMPS[a].T * (1 + 0.05 * rng.normal(size=(2, n)))
    x = np.maximum(_integrated(_model("four_tank"), s["x"], u, 90.0, 6), 1e-4)
    x[:, 0] = np.maximum(x[:, 0] - 0.04 * s["leak"], 1e-4)
    over = (x.max(1) > 0.55).astype(float)
    reward = 0.5 - np.abs(x[:, 0] - s["demand"]) - 0.5 * np.abs(x[:, 1] - s["demand"])
    after = {**s, "x": np.minimum(x, 1.0), "demand": s["demand"] + 0.1 * (0.35 - s["demand"]) + rng.normal(0, 0.02, n)}
    return after, reward, {"overflow": over, "power": PUMPS[a].sum(1) / 25}, np.zeros(n, bool)


def _pumper(gap: float, strong: int, noise: float) -> Any:
    def decide(f: Frame, t: int) -> Any:
        one, two = f["demand"] - f["lower_1"], f["demand"] - f["lower_2"]
        a = np.select([(one > gap) & (two > gap), one > gap, two > gap], [strong, 1, 2], 0)
        return spread(a, 5, noise)

    return decide


TANKS = World(
    name="tanks",
    actions=("low", "left", "right", "both", "full"),
    horizon=25,
    limits={"overflow": 1.0, "power": 17.0},
    start=_tanks_start,
    frame=_tanks_frame,
    move=_tanks_move,
    deciders={"Dee": _pumper(0.0, 3, 0.2), "Eli": _pumper(-0.1, 4, 0.2), "Fay": _pumper(0.1, 3, 0.3)},
)


# Battery: bought cheap, sold dear; full cycles wear it out, and a call for reserve must be met.


def _battery_start(rng: Any, n: int) -> Any:
    return {"charge": rng.uniform(0.2, 0.8, n), "price": rng.normal(0, 1, n), "wind": rng.normal(0, 1, n)}


def _battery_frame(rng: Any, s: Any, t: int) -> Frame:
    n = len(s["price"])
    return {
        "charge": s["charge"] + 0.02 * rng.normal(size=n),
        "price": s["price"] + np.sin(t / 24 * 2 * np.pi),
        "forecast": np.sin((t + 4) / 24 * 2 * np.pi) + 0.5 * s["price"] + 0.5 * rng.normal(size=n),
        "wind": s["wind"],
        "hour": np.full(n, t % 24),
        "site": np.array(["coast", "hill"])[(s["wind"] > 0.2).astype(int)],
    }


def _battery_move(rng: Any, s: Any, a: Any, t: int) -> Any:
    n = len(a)
    wanted = np.array([-0.3, -0.12, 0.0, 0.12, 0.3])[a]
    flow = np.clip(wanted, -s["charge"], 1 - s["charge"])
    price = s["price"] + np.sin(t / 24 * 2 * np.pi)
    reward = -flow * price - 0.02 * np.abs(flow)
    charge = s["charge"] + flow * np.where(flow > 0, 0.93, 1.0)
    called = rng.random(n) < 0.12 + 0.1 * (s["wind"] < -0.7)
    missed = (called & (charge < 0.25)).astype(float)
    charge = np.where(called, np.maximum(charge - 0.15, 0), charge)
    after = {"charge": charge, "price": 0.8 * s["price"] + 0.6 * rng.normal(size=n), "wind": 0.9 * s["wind"]}
    after["wind"] = after["wind"] + 0.44 * rng.normal(size=n)
    return after, reward, {"missed": missed, "wear": np.abs(flow)}, np.zeros(n, bool)


def _trader(sell: float, buy: float, keep: float, noise: float) -> Any:
    def decide(f: Frame, t: int) -> Any:
        a = np.select(
            [f["price"] > sell + 0.8, f["price"] > sell, f["price"] < buy - 0.8, f["price"] < buy], [0, 1, 4, 3], 2
        )
        return spread(np.where((f["charge"] < keep) & (a < 2), 2, a), 5, noise)

    return decide


BATTERY = World(
    name="battery",
    actions=("sell fast", "sell", "hold", "buy", "buy fast"),
    horizon=36,
    limits={"missed": 1.7, "wear": 4.0},
    start=_battery_start,
    frame=_battery_frame,
    move=_battery_move,
    deciders={
        "Gil": _trader(0.3, -0.3, 0.0, 0.15),
        "Hana": _trader(0.8, 0.0, 0.4, 0.2),
        "Ines": _trader(0.5, -0.1, 0.25, 0.25),
        "Jon": _trader(0.0, -1.0, 0.0, 0.3),
    },
)


# Field: irrigation by soil moisture and forecast; water is limited, and so are days of stress.


def _field_start(rng: Any, n: int) -> Any:
    return {
        "moist": rng.uniform(0.3, 0.7, n),
        "soil": rng.integers(3, size=n),
        "heat": rng.normal(0, 1, n),
        "last": np.zeros(n),
    }


def _field_frame(rng: Any, s: Any, t: int) -> Frame:
    n = len(s["soil"])
    return {
        "probe": np.where(rng.random(n) < 0.15, np.nan, s["moist"] + 0.04 * rng.normal(size=n)),
        "soil": np.array(["sand", "loam", "clay"])[s["soil"]],
        "heat": s["heat"] + 0.2 * rng.normal(size=n),
        "rain_forecast": np.clip(0.3 - 0.2 * s["heat"] + 0.2 * rng.normal(size=n), 0, 1),
        "last": s["last"],
        "pests": rng.poisson(2, n),
    }


def _field_move(rng: Any, s: Any, a: Any, t: int) -> Any:
    n = len(a)
    water = np.array([0.0, 0.08, 0.2])[a]
    rain = (rng.random(n) < np.clip(0.25 - 0.15 * s["heat"], 0.02, 0.8)) * rng.gamma(2, 0.06, n)
    loss = np.array([0.09, 0.06, 0.04])[s["soil"]] * np.exp(0.3 * s["heat"])
    moist = np.clip(s["moist"] + water + rain - loss, 0, 1)
    grown = 1 - 6 * (moist - 0.55) ** 2
    dry = (moist < 0.25).astype(float)
    after = {**s, "moist": moist, "heat": 0.8 * s["heat"] + 0.6 * rng.normal(size=n), "last": water}
    return after, grown - 0.1 * (a > 0), {"water": 10 * water, "dry": dry}, np.zeros(n, bool)


def _farmer(low: float, high: float, noise: float, heeds: bool) -> Any:
    def decide(f: Frame, t: int) -> Any:
        probe = np.where(np.isnan(f["probe"]), 0.45, f["probe"]) + (0.1 * f["rain_forecast"] if heeds else 0.0)
        return spread(np.select([probe < low, probe < high], [2, 1], 0), 3, noise)

    return decide


FIELD = World(
    name="field",
    actions=("none", "light", "heavy"),
    horizon=40,
    limits={"water": 19.0, "dry": 3.0},
    start=_field_start,
    frame=_field_frame,
    move=_field_move,
    deciders={
        "Kim": _farmer(0.3, 0.5, 0.15, False),
        "Lars": _farmer(0.15, 0.35, 0.2, True),
        "Mia": _farmer(0.45, 0.65, 0.2, False),
    },
    cut=0.003,
)
WORLDS = {world.name: world for world in (REACTOR, TANKS, BATTERY, FIELD)}

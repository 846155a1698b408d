"""Worlds that were only reported on: a lost-sales inventory, and simulators of other packages.

    pip install --target DIR --no-deps simglucose mo-gymnasium;  PYTHONPATH=DIR:benchmarks

`glucose` is simglucose's patient model (Dalla Man and others' equations, its 30 parameter sets) integrated here by
Runge–Kutta steps of three minutes; `dam` is mo-gymnasium's water reservoir with its four objectives. Columns, deciders
and limits are ours. Packages are imported when a world is played.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
from any_log.worlds import World, spread

# Inventory: lost sales, what is ordered arrives three days later; weather moves demand, shops differ.

PERISH = 0.03


def _shop_start(rng: Any, n: int) -> Any:
    kind = rng.integers(3, size=n)
    return {
        "stock": rng.integers(5, 40, n).astype(float),
        "pipe": rng.integers(0, 12, (n, 3)).astype(float),
        "kind": kind,
        "size": rng.uniform(0.7, 1.3, n) * np.array([6.0, 10.0, 14.0])[kind],
        "weather": rng.integers(3, size=n),
        "sold": np.zeros(n),
    }


def _shop_frame(rng: Any, s: Any, t: int) -> Any:
    n = len(s["stock"])
    return {
        "stock": s["stock"],
        "due_tomorrow": s["pipe"][:, 0],
        "due_in_2": s["pipe"][:, 1],
        "due_in_3": s["pipe"][:, 2],
        "shop": np.array(["kiosk", "corner", "market"])[s["kind"]],
        "floor": np.where(rng.random(n) < 0.1, np.nan, s["size"] * 9 + 6 * rng.normal(size=n)),
        "weather": np.array(["rain", "mild", "hot"])[s["weather"]],
        "weekday": np.full(n, t % 7),
        "sold_yesterday": s["sold"],
        "temperature": 12 + 8 * s["weather"] + 3 * rng.normal(size=n),
    }


ORDERS = np.array([0.0, 8.0, 16.0, 30.0])


def _shop_move(rng: Any, s: Any, a: Any, t: int) -> Any:
    n = len(a)
    busy = np.array([0.6, 1.0, 1.5])[s["weather"]] * (1.35 if t % 7 >= 5 else 1.0)
    stock = s["stock"] + s["pipe"][:, 0]
    asked = rng.poisson(s["size"] * busy)
    sold = np.minimum(stock, asked)
    short = asked > stock
    stock = stock - sold
    waste = rng.binomial(stock.astype(np.int64), PERISH)
    order = ORDERS[a]
    reward = 1.0 * sold - 0.45 * order - 0.04 * stock - 0.3 * waste
    pipe = np.c_[s["pipe"][:, 1:], order]
    change = rng.random(n) < 0.4
    after = {
        **s,
        "stock": stock - waste,
        "pipe": pipe,
        "weather": np.where(change, rng.integers(3, size=n), s["weather"]),
        "sold": sold.astype(float),
    }
    return (
        after,
        reward / 10,
        {"stockout": short.astype(float), "delivery": (order > 0).astype(float)},
        np.zeros(n, bool),
    )


def _manager(factor: float, safety: float, noise: float, whole: bool) -> Any:
    need = np.array([6.0, 10.0, 14.0])

    def decide(f: Any, t: int) -> Any:
        kind = np.searchsorted(np.array(["corner", "kiosk", "market"]), f["shop"])
        mean = need[np.array([1, 0, 2])[kind]]
        have = f["stock"] + ((f["due_tomorrow"] + f["due_in_2"] + f["due_in_3"]) if whole else 0.0)
        hot = np.where(f["weather"] == "hot", 1.2, 1.0)
        gap = mean * factor * hot * (4 if whole else 2) + safety - have
        return spread(np.clip(np.searchsorted(ORDERS, gap), 0, 3), 4, noise)

    return decide


INVENTORY = World(
    name="inventory",
    actions=("none", "small", "medium", "large"),
    horizon=50,
    limits={"stockout": 10.0, "delivery": 30.0},
    start=_shop_start,
    frame=_shop_frame,
    move=_shop_move,
    deciders={
        "Ito": _manager(0.9, 5.0, 0.15, True),
        "Kaya": _manager(1.2, 10.0, 0.15, True),
        "Lund": _manager(1.0, 5.0, 0.2, False),
        "Mora": _manager(0.7, 0.0, 0.25, True),
        "Nagy": _manager(1.6, 0.0, 0.3, False),
    },
    cut=0.005,
)


# Glucose: half-hours of a day, insulin boluses by name.

BOLUS = np.array([0.0, 0.5, 1.0, 2.0, 4.0])  # units over a half-hour, times the patient's need
MEALS = {2: 50.0, 10: 70.0, 20: 75.0}  # half-hour after six in the morning: grams


def module_of(package: str, module: str, unused: str = "") -> tuple[Any, Path]:
    """One module of a package whose own imports need other versions than ours, and the package's folder.

    `unused` names what it imports and what we use of it does not need; it may be missing.
    """
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(next(iter(spec.submodule_search_locations)))
    parts = module.split(".")[:-1]
    for depth in range(len(parts) + 1):
        empty = types.ModuleType(".".join([package, *parts[:depth]]))
        empty.__path__ = [str(folder.joinpath(*parts[:depth]))]
        sys.modules[empty.__name__] = empty
    missing = unused if unused and importlib.util.find_spec(unused) is None else ""
    if missing:
        sys.modules[missing] = types.ModuleType(missing)
    try:
        return importlib.import_module(f"{package}.{module}"), folder
    finally:
        if missing:
            del sys.modules[missing]


@functools.cache
def _simglucose() -> tuple[Any, Any]:
    """The patient model and its parameters {name: [30]}; the package's environments need an old `gym`."""
    folder = Path(next(iter(importlib.util.find_spec("simglucose").submodule_search_locations)))
    resources = types.ModuleType("pkg_resources")
    resources.resource_filename = lambda _, name: str(folder / name)  # type: ignore[attr-defined]
    sys.modules.setdefault("pkg_resources", resources)
    module, _ = module_of("simglucose", "patient.t1dpatient", unused="pandas")
    return module, pyarrow.csv.read_csv(folder / "params" / "vpatient_params.csv").to_pydict()


def _glucose_start(rng: Any, n: int) -> Any:
    _, table = _simglucose()
    chosen = rng.integers(10, 20, n)  # the adults
    x = np.array(list(table.values())[2:15], np.float64).T[chosen]
    level = rng.normal(1.0, 0.15, n).clip(0.6, 1.5)
    x[:, [3, 4, 12]] *= level[:, None]
    return {
        "patient": chosen,
        "x": x,
        "meal": np.zeros(n),  # grams still to be eaten
        "eaten": np.zeros(n),
        "stomach": np.zeros(n),
        "last": np.zeros((n, 2)),
        "before": _sugar(x, chosen),
        "active": rng.normal(1.0, 0.15, n).clip(0.6, 1.4),
    }


@functools.cache
def _parameters(i: int) -> Any:
    return types.SimpleNamespace(**{name: values[i] for name, values in _simglucose()[1].items() if " " not in name})


def _sugar(x: Any, patient: Any) -> Any:
    return np.array([row[12] / _parameters(int(i)).Vg for row, i in zip(x, patient, strict=True)])


def _glucose_frame(rng: Any, s: Any, t: int) -> Any:
    n = len(s["patient"])
    sugar = _sugar(s["x"], s["patient"])
    weight = np.array([_parameters(int(i)).BW for i in s["patient"]])
    return {
        "cgm": np.where(rng.random(n) < 0.05, np.nan, sugar + 6 * rng.normal(size=n)),
        "trend": sugar - s["before"] + 4 * rng.normal(size=n),
        "last_bolus": s["last"][:, 0],
        "bolus_before": s["last"][:, 1],
        "meal": np.full(n, "none" if t not in MEALS else ("small" if MEALS[t] < 60 else "large")),
        "since_meal": np.full(n, min((t - m for m in MEALS if m <= t), default=20)),
        "weight": weight,
        "activity": s["active"] + 0.1 * rng.normal(size=n),
    }


def _glucose_move(rng: Any, s: Any, a: Any, t: int) -> Any:
    module, _ = _simglucose()
    n = len(a)
    x, meal, eaten, stomach = s["x"].copy(), s["meal"].copy(), s["eaten"].copy(), s["stomach"].copy()
    before = _sugar(x, s["patient"])
    if t in MEALS:
        meal = MEALS[t] * rng.uniform(0.6, 1.4, n)
        eaten = np.zeros(n)
        stomach = x[:, 0] + x[:, 1]
    for k in range(n):
        own = _parameters(int(s["patient"][k]))
        insulin = own.u2ss * own.BW / 6000 * s["active"][k] + BOLUS[a[k]] * own.BW / 70 / 30
        for _ in range(10):  # steps of three minutes
            bite = min(5.0, meal[k] / 3)
            meal[k] -= 3 * bite
            eaten[k] += 3 * bite
            given = module.Action(CHO=bite, insulin=insulin)
            x[k] = _runge_kutta(module.T1DPatient.model, x[k], given, own, stomach[k], eaten[k])
    sugar = _sugar(x, s["patient"])
    low, severe = sugar < 70, sugar < 40
    reward = ((sugar >= 70) & (sugar <= 160)).astype(float)
    after = {**s, "x": x, "meal": meal, "eaten": eaten, "stomach": stomach, "before": before}
    after["last"] = np.c_[BOLUS[a], s["last"][:, 0]]
    after["active"] = (s["active"] + 0.05 * rng.normal(size=n)).clip(0.6, 1.4)
    return after, reward, {"low": low.astype(float)}, severe


def _runge_kutta(f: Any, x: Any, *given: Any, step: float = 3.0) -> Any:
    a = f(0.0, x, *given)
    b = f(0.0, x + step / 2 * a, *given)
    c = f(0.0, x + step / 2 * b, *given)
    d = f(0.0, x + step * c, *given)
    return x + step / 6 * (a + 2 * b + 2 * c + d)


def _therapist(target: float, gain: float, with_meal: int, noise: float, heeds: bool) -> Any:
    def decide(f: Any, t: int) -> Any:
        sugar = np.where(np.isnan(f["cgm"]), 140.0, f["cgm"])
        wanted = gain * (sugar - target) / 60 + (0.5 * f["trend"] / 20 if heeds else 0.0)
        wanted = wanted - (0.5 * f["last_bolus"] if heeds else 0.0)
        a = np.clip(np.round(wanted), 0, 4).astype(np.int64)
        a = np.where(f["meal"] != "none", np.maximum(a, with_meal), a)
        return spread(np.where(sugar < 90, 0, a), 5, noise)

    return decide


GLUCOSE = World(
    name="glucose",
    actions=("none", "tiny", "small", "medium", "large"),
    horizon=32,
    limits={"low": 1.5},
    start=_glucose_start,
    frame=_glucose_frame,
    move=_glucose_move,
    deciders={
        "Okoye": _therapist(120, 1.0, 2, 0.1, True),
        "Perez": _therapist(150, 0.6, 3, 0.15, False),
        "Quinn": _therapist(110, 1.6, 3, 0.15, False),
        "Rossi": _therapist(170, 1.0, 1, 0.2, True),
    },
    cut=0.003,
)


# Dam: mo-gymnasium's water reservoir; how much to release.

RELEASE = np.array([0.0, 20.0, 40.0, 60.0, 90.0])


@functools.cache
def _dam_class() -> Any:
    return module_of("mo_gymnasium", "envs.water_reservoir.dam_env", unused="pygame")[0].DamEnv


def _dam_start(rng: Any, n: int) -> Any:
    envs = np.empty(n, object)
    for k in range(n):
        envs[k] = _dam_class()(nO=4)
        envs[k].reset(seed=int(rng.integers(2**31)))
    return {"env": envs, "inflow": np.full(n, 40.0), "released": np.zeros(n)}


def _dam_frame(rng: Any, s: Any, t: int) -> Any:
    n = len(s["env"])
    level = np.array([float(env.state[0]) for env in s["env"]])
    return {
        "gauge": level + 4 * rng.normal(size=n),
        "gauge_2": np.where(rng.random(n) < 0.3, np.nan, level + 8 * rng.normal(size=n)),
        "inflow": s["inflow"],
        "released": s["released"],
        "season": np.full(n, ["spring", "summer", "autumn", "winter"][(t // 8) % 4]),
        "wind": rng.gamma(2, 3, n),
        "crew": rng.integers(1, 4, n),
    }


def _dam_move(rng: Any, s: Any, a: Any, t: int) -> Any:
    n = len(a)
    found = np.stack([env.step(np.array([RELEASE[k]], np.float32))[1] for env, k in zip(s["env"], a, strict=True)])
    flood, deficit, power, downstream = -found.T
    inflow = np.array([float(np.ravel(env.dam_inflow)[0]) for env in s["env"]])
    after = {"env": s["env"], "inflow": inflow, "released": RELEASE[a]}
    costs = {"flood": flood / 10, "downstream": downstream / 10}
    return after, -(deficit + power) / 10, costs, np.zeros(n, bool)


def _keeper(table: tuple[float, ...], noise: float) -> Any:
    def decide(f: Any, t: int) -> Any:
        return spread(np.searchsorted(np.array(table), f["gauge"]), 5, noise)

    return decide


DAM = World(
    name="dam",
    actions=("closed", "quarter", "half", "most", "open"),
    horizon=32,
    limits={"flood": 25.0, "downstream": 43.0},
    start=_dam_start,
    frame=_dam_frame,
    move=_dam_move,
    deciders={
        "Sato": _keeper((20.0, 45.0, 70.0, 110.0), 0.2),
        "Tran": _keeper((40.0, 60.0, 90.0, 130.0), 0.2),
        "Usman": _keeper((5.0, 25.0, 50.0, 80.0), 0.2),
    },
)
WORLDS = {world.name: world for world in (INVENTORY, GLUCOSE, DAM)}

"""How often `--confidence 0.95` shows a policy that breaks its limit: many small logs of families made to break it.

    python benchmarks/any_log/coverage.py FAMILY --seeds 0 1 2 …

Per log one row: what is returned, what is shown, and how many shown candidates are truly over the limit (by more than
two standard errors of 4,000 simulated episodes). Only what can be shown is learned: clones and tilted policies. Rows go
to benchmarks/results/any_log_coverage.csv; finished logs are passed over.

    carry     what was done adds up, and is seen with noise
    allotted  the frail are given to one decider, the strong to another
    rare      a cost of 10, three times in a hundred
    sharp     deciders follow interactions of columns and steps that clones smooth over
    hidden    costs come at the end, by what no column shows: not Markov
    twins     deciders who are nearly the same and hardly ever deviate
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from any_log.measure import CONFIDENCE, played, simulated
from any_log.worlds import Frame, World, by_episode, draw, play, sigmoid, spread

from pdocrl.approximate import boosted_q
from pdocrl.data.event_log import EventLog
from pdocrl.portfolio import explain
from pdocrl.portfolio.candidates import Learner
from pdocrl.portfolio.fit import fit

RESULTS = Path(__file__).parents[1] / "results" / "any_log_coverage.csv"
FIELDS = ("family", "seed", "episodes", "limit", "status", "chosen", "reward", "cost", "best_decider", "shown", "false")
FIELDS = (*FIELDS, "seconds")
STEPS = 12
ACTIONS = ("none", "some", "much")
PLAYED = 4000


def _start(rng: Any, n: int) -> Any:
    zero = np.zeros(n)
    return {"frail": rng.random(n), "need": rng.normal(1, 0.5, n), "load": zero, "last": zero, "hidden": rng.random(n)}


def _frame(noise: float, seen: bool) -> Callable[[Any, Any, int], Frame]:
    def frame(rng: Any, s: Any, t: int) -> Frame:
        n = len(s["need"])
        found = {
            "need": s["need"] + noise * rng.normal(size=n),
            "frail": s["frail"] + noise * rng.normal(size=n),
            "last": s["last"],
            "ward": np.array(["a", "b", "c"])[(s["frail"] * 30).astype(int) % 3],
            "noise": rng.normal(size=n),
        }
        return {**found, "load": s["load"] + noise * rng.normal(size=n)} if seen else found

    return frame


def _move(kind: str) -> Any:
    def move(rng: Any, s: Any, a: Any, t: int) -> Any:
        n = len(a)
        load = 0.7 * s["load"] + 0.5 * a
        risk = sigmoid(2.5 * load * (0.3 + s["frail"]) - 4.0)
        if kind == "rare":
            cost = 10.0 * (rng.random(n) < 0.15 * risk)
        elif kind == "hidden":
            cost = (rng.random(n) < risk) * (0.5 + s["hidden"]) * 3.0 if t == STEPS - 1 else np.zeros(n)
            load = np.where(s["hidden"] > 0.5, s["load"] + 0.2 * a, load)
        else:
            cost = (rng.random(n) < risk).astype(float)
        need = 0.8 * s["need"] + 0.3 - 0.25 * np.minimum(a, 1 + (s["frail"] < 0.5)) + 0.3 * rng.normal(size=n)
        return {**s, "need": need, "load": load, "last": a.astype(float)}, -need, {"cost": cost}, np.zeros(n, bool)

    return move


def _by_need(low: float, high: float, noise: float) -> Any:
    return lambda f, t: spread(np.searchsorted(np.array([low, high]), f["need"]), 3, noise)


def _by_parity(turn: int, noise: float) -> Any:
    def decide(f: Frame, t: int) -> Any:
        odd = ((f["frail"] > 0.5) ^ (f["need"] > 0.9) ^ ((t + turn) % 2 == 0)).astype(int)
        return spread(odd + ((f["noise"] > 0.3) & (turn > 0)), 3, noise)

    return decide


def _world(name: str, limit: float, deciders: Any, noise: float = 0.15, seen: bool = True) -> World:
    move = _move(name)
    return World(name, ACTIONS, STEPS, {"cost": limit}, _start, _frame(noise, seen), move, deciders)


USUAL = {"A": _by_need(0.3, 1.2, 0.3), "B": _by_need(0.8, 2.0, 0.3), "C": _by_need(0.0, 0.6, 0.3)}
FAMILIES = {
    one.name: one
    for one in (
        _world("carry", 2.1, USUAL),
        _world("allotted", 2.1, USUAL),
        _world("rare", 3.3, USUAL),
        _world("sharp", 1.6, {"A": _by_parity(0, 0.2), "B": _by_parity(1, 0.2)}),
        _world("hidden", 0.82, USUAL, seen=False),
        _world("twins", 2.33, {"A": _by_need(0.5, 1.4, 0.06), "B": _by_need(0.55, 1.5, 0.06)}),
    )
}


def make_log(world: World, episodes: int, seed: int) -> Frame:
    """Deciders are drawn at random, in `allotted` by the first frailty that was seen."""
    rng = np.random.default_rng([seed, 11])
    names = list(world.deciders)
    who = rng.integers(len(names), size=episodes)

    def decide(frame: Frame, t: int, rng: Any) -> Any:
        if t == 0 and world.name == "allotted":
            who[:] = np.clip(3 * frame["frail"] + rng.normal(0, 0.6, episodes), 0, 2).astype(int)
        own = who[frame["_episode"]]
        each = np.stack([world.deciders[name](frame, t) for name in names])
        return draw(each[own, np.arange(len(own))], rng)

    log = play(world, decide, episodes, seed)
    return by_episode(log | {"decider": np.array(names)[who[log["episode"]]]})


def only_what_can_be_shown() -> None:
    """Leave out what no test is made of, to save time."""

    def values_alone(self: Learner) -> list[Any]:
        self.values = boosted_q.behaviour_values(self.rows, self.seed)
        return []

    Learner._fitted_q = values_alone  # type: ignore[method-assign]
    explain.surrogate = lambda *_: None
    explain.importance = lambda *_: []


def one_log(world: World, episodes: int, seed: int, deciders: dict[str, Any]) -> list[Any]:
    began = time.monotonic()
    log = EventLog.read(
        make_log(world, episodes, seed), costs=["cost"], step="step", terminal="terminal", decider="decider"
    )
    limit = world.limits["cost"]
    found = fit(log, [f"cost<={limit}"], horizon=world.horizon, confidence=CONFIDENCE, seed=seed)
    shown = [one.name for one in found.record.candidates if "shown" in one.limits.values()]
    true = {name: played(world, log, found.candidates[name].policy, PLAYED) for name in {*shown, found.record.chosen}}
    false = [name for name in shown if true[name]["cost"][0] - 2 * true[name]["cost"][1] > limit]
    best = max((v["reward"][0] for v in deciders.values() if v["cost"][0] <= limit), default=float("nan"))
    own = true[found.record.chosen]
    numbers = [f"{x:.4g}" for x in (own["reward"][0], own["cost"][0], best)]
    seconds = f"{time.monotonic() - began:.3g}"
    return [
        world.name,
        seed,
        episodes,
        limit,
        found.record.status,
        found.record.chosen,
        *numbers,
        len(shown),
        "; ".join(false),
        seconds,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", choices=sorted(FAMILIES))
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    only_what_can_be_shown()
    world = FAMILIES[given.family]
    deciders = {name: simulated(world, decide, PLAYED) for name, decide in world.deciders.items()}
    print(given.family, {name: {k: round(v[0], 3) for k, v in x.items()} for name, x in deciders.items()})
    done = set()
    if given.out.exists():
        with given.out.open(newline="") as file:
            done = {(row["family"], int(row["seed"]), int(row["episodes"])) for row in csv.DictReader(file)}
    else:
        with given.out.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow(FIELDS)
    for seed in given.seeds:
        if (world.name, seed, given.episodes) not in done:
            row = one_log(world, given.episodes, seed, deciders)
            with given.out.open("a", newline="") as file:
                csv.writer(file, lineterminator="\n").writerow(row)


if __name__ == "__main__":
    main()

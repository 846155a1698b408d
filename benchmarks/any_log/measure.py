"""Policies from logs of columns against the truth of their simulators: `pdocrl.solve` and what it is compared with.

    python benchmarks/any_log/measure.py PROBLEM --episodes 300 --seeds 0 1 2

Per log rows for each policy: what it is said to bring (held out, or by its own learner), and its true mean totals by
simulation. Beside `pdocrl.solve` with and without a confidence: every decider, the clone of safe episodes, k-means
cells, and fitted Q iteration with forests and a Lagrangian. Rows are appended to benchmarks/results/any_log.csv;
finished logs are passed over, and a problem whose package is not installed is said and left out.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from any_log import third_party, unseen, worlds

from pdocrl import provenance
from pdocrl.approximate.cells import solve_cells
from pdocrl.approximate.rows import Rows
from pdocrl.data.encoding import Encoding
from pdocrl.data.event_log import EventLog
from pdocrl.data.named_columns import feature_columns
from pdocrl.limits import as_limits
from pdocrl.portfolio.choose import choose, testable
from pdocrl.portfolio.fit import fit

RESULTS = Path(__file__).parents[1] / "results" / "any_log.csv"
FIELDS = (
    "problem",
    "seed",
    "episodes",
    "policy",
    "status",
    "signal",
    "limit",
    "claimed",
    "error",
    "true",
    "true_error",
)
FIELDS = (*FIELDS, "seconds", "role", "commit")
SEEN = ("clinic", "machines", "inventory")  # other logs of these were looked at in designing
PLAYED = 500
WORLDS = {**worlds.WORLDS, **third_party.WORLDS, **unseen.WORLDS}
CONFIDENCE = 0.95


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problem", choices=sorted(WORLDS))
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--every", action="store_true", help="also the truth of every candidate")
    parser.add_argument("--played", type=int, default=PLAYED)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    world = WORLDS[given.problem]
    done = set()
    if given.out.exists():
        with given.out.open(newline="") as file:
            done = {(row["problem"], int(row["seed"]), int(row["episodes"])) for row in csv.DictReader(file)}
    try:
        deciders = {name: simulated(world, decide, given.played) for name, decide in world.deciders.items()}
    except (ImportError, AssertionError):
        print(f"{world.name}: its package is not installed (see third_party.py and unseen.py); left out.")
        return
    for seed in given.seeds:
        if (world.name, seed, given.episodes) not in done:
            one_log(world, given.episodes, seed, deciders, given)


def one_log(world: worlds.World, episodes: int, seed: int, deciders: dict[str, Any], given: Any) -> None:
    write = Writer(given.out, world, seed, episodes)
    table = worlds.make_log(world, episodes, seed)
    log = EventLog.read(table, costs=list(world.limits), step="step", terminal="terminal", decider="decider")
    limits = [f"{name}<={value}" for name, value in world.limits.items()]
    began = time.monotonic()
    found = fit(log, limits, horizon=world.horizon, seed=seed)
    seconds = time.monotonic() - began
    held = {one.name: one.held_out for one in found.record.candidates}
    candidates, chosen = list(found.candidates.values()), as_limits(limits)
    order = found.learner.sequence(testable(candidates, found.tested, chosen))
    tested = choose(candidates, held, chosen, CONFIDENCE, order, found.second, found.tested)

    @functools.cache
    def truth(name: str) -> Any:
        return played(world, log, found.candidates[name].policy, given.played)

    free = found.record
    write("pdocrl.solve", f"{free.status}: {free.chosen}", held[free.chosen], truth(free.chosen), seconds)
    own = tested.name
    write("pdocrl.solve --confidence 0.95", f"{tested.status}: {own}", held[own], truth(own), seconds)
    for name, true in deciders.items():
        write(f"decider {name}", "", held.get(name, {}), true, 0.0)
    if "safe episodes" in held:
        write("clone of safe episodes", "", held["safe episodes"], truth("safe episodes"), 0.0)
    if given.every:
        for name in held:
            write(f"candidate {name}", "", held[name], truth(name), 0.0)
    baselines(world, log, limits, write, given.played, seed)
    write.close()


class Writer:
    """Rows of one log, appended to a file when all are there."""

    def __init__(self, path: Path, world: worlds.World, seed: int, episodes: int) -> None:
        self.path, self.world, self.seed, self.episodes = path, world, seed, episodes
        self.rows: list[list[Any]] = []
        self.role = role(world.name)
        self.commit = provenance.commit()

    def __call__(self, policy: str, status: str, claimed: Any, true: Any, seconds: float) -> None:
        for signal, (mean, error) in true.items():
            own = claimed.get(signal)
            value, doubt = (own.value, own.error) if hasattr(own, "value") else (own, None)
            shown = ["" if x is None else f"{x:.4g}" for x in (value, doubt, mean, error, seconds)]
            limit = self.world.limits.get(signal, "")
            log = [self.world.name, self.seed, self.episodes]
            self.rows.append([*log, policy, status, signal, limit, *shown, self.role, self.commit])

    def close(self) -> None:
        new = not self.path.exists()
        with self.path.open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([FIELDS, *self.rows] if new else self.rows)


def role(problem: str) -> str:
    return "report, problem seen" if problem in SEEN else "report"


def simulated(world: worlds.World, decide: Any, episodes: int) -> dict[str, tuple[float, float]]:
    """{signal: (mean, standard error)} of a decider."""
    return totals(world, worlds.play(world, lambda f, t, rng: worlds.draw(decide(f, t), rng), episodes, 99), episodes)


def played(world: worlds.World, log: EventLog, policy: Any, episodes: int) -> dict[str, tuple[float, float]]:
    """{signal: (mean, standard error)} of a policy that takes columns."""
    names = [column.name for column in log.columns]
    place = np.array([world.actions.index(str(a)) for a in log.actions])

    def decide(frame: Any, t: int, rng: Any) -> Any:
        return place[worlds.draw(policy.chances(policy.inputs({name: frame[name] for name in names}, t)), rng)]

    return totals(world, worlds.play(world, decide, episodes, 99), episodes)


def totals(world: worlds.World, log: Any, episodes: int) -> dict[str, tuple[float, float]]:
    found = {}
    for name in ("reward", *world.limits):
        own = np.bincount(log["episode"], log[name], minlength=episodes)
        found[name] = (float(own.mean()), float(own.std(ddof=1) / np.sqrt(episodes)))
    return found


def baselines(world: worlds.World, log: EventLog, limits: list[str], write: Writer, episodes: int, seed: int) -> None:
    """K-means cells of the scaled columns, solved exactly; and fitted Q iteration with forests and a Lagrangian."""
    encoded = Encoded(log)
    rows = Rows.of(log, encoded.encoding, as_limits(limits), 1.0, world.horizon)
    names = ["reward", *rows.names]
    began = time.monotonic()
    cells = solve_cells(rows, rows.x, seed)
    if cells is not None:
        near = lambda x: ((x / cells.scale)[:, None] - cells.centres).__pow__(2).sum(2).argmin(1)  # noqa: E731
        policy = Plain(encoded, lambda x: cells.table[near(x)])
        claimed = dict(zip(names, cells.believed.tolist(), strict=True))
        write("k-means cells", "", claimed, played(world, log, policy, episodes), time.monotonic() - began)
    began = time.monotonic()
    policy, believed = forest_q(rows, encoded, seed)
    claimed = dict(zip(names, believed.tolist(), strict=True))
    write("forests, fitted Q", "", claimed, played(world, log, policy, episodes), time.monotonic() - began)


class Encoded:
    """The columns of a log as numbers [N, D], and those of a world's frame alike."""

    def __init__(self, log: EventLog) -> None:
        self.columns, self.encoding = log.columns, Encoding.fit(log.columns)
        self.x = self.encoding(log.columns)

    def __call__(self, frame: Any) -> Any:
        given = {column.name: np.ma.asarray(np.asarray(frame[column.name])) for column in self.columns}
        found, _ = feature_columns("the world", given, list(given), set())
        kinds = {column.name: column.kind for column in self.columns}
        return self.encoding([dataclasses.replace(column, kind=kinds[column.name]) for column in found])


class Plain:
    """A function of encoded inputs as a policy."""

    def __init__(self, encoded: Encoded, chances: Callable[[Any], Any]) -> None:
        self.encoded, self.chances = encoded, chances

    def inputs(self, frame: Any, step: int) -> Any:
        x = self.encoded(frame)
        return np.c_[x, np.full(len(x), step)]


def forest_q(rows: Rows, encoded: Encoded, seed: int, iterations: int = 12, trials: int = 4) -> Any:
    """Thirty lines as a practitioner writes them: randomised trees, greedy, λ by steps on the log's starts."""
    from sklearn.ensemble import ExtraTreesRegressor

    few = rows.sample(6000, seed)
    actions = np.eye(rows.actions)
    scale = np.maximum(few.totals.std(1), 1e-9)
    known = np.flatnonzero(few.following > -2)
    after = few.following[known]
    inputs = np.c_[few.x, actions[few.log.action]][known]
    price, size = np.zeros(len(rows.limits)), np.full(len(rows.limits), 1.0)
    best: Any = None
    for _ in range(trials):
        weights = np.r_[1.0, -price * scale[0] / scale[1:]]
        v = np.zeros((1 + len(rows.limits), len(few)))
        for _ in range(iterations):
            y = few.signals[:, known] + np.where(after >= 0, v[:, np.maximum(after, 0)], 0.0)
            forest = ExtraTreesRegressor(10, min_samples_leaf=20, random_state=seed).fit(inputs, y.T)
            q = np.stack([forest.predict(np.c_[few.x, np.tile(a, (len(few), 1))]) for a in actions], 1)
            chosen = (q @ weights).argmax(1)
            v = q[np.arange(len(few)), chosen].T
        value = v[:, few.starts].mean(1)
        over = (value[1:] - few.limits) / scale[1:]
        rank = (bool((over <= 0).all()), value[0] if (over <= 0).all() else -over.max())
        if best is None or rank > best[0]:
            best = (rank, forest, weights, value)
        price = np.maximum(price + size * np.sign(over), 0.0)
        size = size * 0.6
    _, forest, weights, value = best

    def chances(x: Any) -> Any:
        q = np.stack([forest.predict(np.c_[x, np.tile(a, (len(x), 1))]) for a in actions], 1)
        return actions[(q @ weights).argmax(1)]

    return Plain(encoded, chances), value


if __name__ == "__main__":
    main()

"""Do the tabular bounds hold? Coverage, width and seconds of each, and limits kept with `--confidence`, against truth.

    OMP_NUM_THREADS=1 python benchmarks/tabular_bounds.py [--jobs 16] [--logs 200] [--minutes 8] [--only bounds]
    python benchmarks/tabular_bounds.py --page           the committed results as tables of notes/certify.md

Needs NumPy, SciPy and highspy alone (PYTHONPATH=src). Logs are taken in rounds, so that stopping after --minutes leaves
as many of each kind. Five families, n rows each; four kinds of policy:

    given     does not depend on the log: what the bounds are for
    learned   from the same log, without a word on it: what learning makes of them
    half      learned on one half of the log and judged by the other
    solve     the intervals `solve` prints, for the policy it learned from the same log (the bound is `solve`)

Confidence: how often limits were shown to be kept, how often they were over in truth (in all logs, and in those where
they were "shown"), and the true value, beside the plug-in optimum over pairs seen at least 20 times.
"""

from __future__ import annotations

import argparse
import csv
import functools
import importlib.util
import math
import multiprocessing
import os
import sys
import textwrap
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
from foreign_problems import PROBLEMS, Foreign

from pdocrl.limits import as_limits
from pdocrl.tabular.api import solve
from pdocrl.tabular.cmdp import CMDP, evaluate, occupancy, random_cmdp
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.examples import inventory
from pdocrl.tabular.inference.bootstrap import split
from pdocrl.tabular.inference.bounds import PolicyEstimate, clustered, delta
from pdocrl.tabular.solvers import exact
from pdocrl.tabular.solvers.few_rows import choose_min_count, frequent_only
from pdocrl.tabular.solvers.lagrangian import Lagrangian, pessimistic_model, policy_of
from research.bounds_worst import chi2_ball, pessimistic
from research.redrawn_bounds import episode_bootstrap, model_bootstrap

HERE = Path(__file__).parent
BOUNDS = {
    "delta": delta,
    "clustered": clustered,
    "model_bootstrap": model_bootstrap,
    "episode_bootstrap": episode_bootstrap,
    "chi2_ball": chi2_ball,
    "pessimistic": pessimistic,
}
SEEN = 10_000  # rows from which on the logs of all families hold what their bounds need
FEWEST = 8  # logs that a share is shown of
SLOW = ("model_bootstrap", "episode_bootstrap")  # and what `solve` prints
SLOW_LEARNED = 10  # logs on which the slow ones also judge learned policies
BEGIN, END = "<!-- measured: python benchmarks/tabular_bounds.py --page -->", "<!-- end -->"
SIZES = (1_000, 10_000, 100_000, 1_000_000)
Floats = np.ndarray
T = TypeVar("T")
Made = tuple[CMDP, Counts, Floats]  # the truth, a log of it, and a policy that does not depend on the log


def of_random(n: int, seed: int) -> Made:
    cmdp = random_cmdp(20, 4, 1, 0.9, seed=seed)
    best = exact.solve(cmdp)
    mu_D = (best.mu + occupancy(cmdp, np.full((20, 4), 1 / 4))) / 2
    return cmdp, Counts.sample(cmdp, mu_D, n, seed), best.pi


def of_inventory(n: int, seed: int) -> Made:
    cmdp = inventory.model(0.97, 0.02, 0.3)
    best = exact.solve(cmdp)
    mu_D = (best.mu + occupancy(cmdp, np.full(cmdp.r.shape, 1 / cmdp.n_actions))) / 2
    return cmdp, Counts.sample(cmdp, mu_D, n, seed), best.pi


def of_disasters(n: int, seed: int) -> Made:
    """Ten states in a ring; fast (pays 1) breaks down once in 500 steps, careful (pays .8) once in 5,000, at a cost."""
    S, down = 11, 10
    P, r, cost = np.zeros((S, 2, S)), np.zeros((S, 2)), np.zeros((S, 2))
    for s in range(down):
        for a, risk in ((0, 2e-3), (1, 2e-4)):
            P[s, a, (s + 1) % down], P[s, a, down], r[s, a] = 1 - risk, risk, (1.0, 0.8)[a]
    P[down, :, 0], cost[down] = 1, 1
    cmdp = CMDP.from_costs(P, r, [cost], [1e-3], np.eye(S)[0], 0.95)
    best = exact.solve(cmdp)
    return cmdp, Counts.sample(cmdp, occupancy(cmdp, np.full((S, 2), 0.5)), n, seed), best.pi


def of_lake(n: int, seed: int) -> Made:
    lake = PROBLEMS["lake"]()
    counts = episodes_of(lake, max(n // 51, 2), seed)
    return lake.cmdp, counts, 0.9 * exact.solve(lake.cmdp).pi + 0.1 * lake.behaviour


def episodes_of(problem: Foreign, episodes: int, seed: int) -> Counts:
    log = problem.log(episodes, seed)
    S, A = problem.cmdp.r.shape
    columns = {name: log[name] for name in ("state", "action", "next_state", "reward", "terminal", "episode")}
    return Counts.from_arrays(**columns, costs=log["cost"], initial=log["step"] == 0, n_states=S, n_actions=A)


def of_frail(n: int, seed: int) -> Made:
    """50 steps each; three in ten pay with probability .4 when treated, others .02; the state does not say who."""
    rng = np.random.default_rng([seed, 11])
    people = max(n // 50, 4)
    person = np.repeat(np.arange(people), 50)
    frail = (rng.random(people) < 0.3)[person]
    treated, zeros = rng.integers(2, size=len(person)), np.zeros(len(person), int)
    harm = treated * (rng.random(len(person)) < np.where(frail, 0.4, 0.02)) * 1.0
    counts = Counts.from_arrays(
        zeros, treated, zeros, np.where(treated == 1, 1.0, 0.5), harm, episode=person, d0=[1.0], n_states=1, n_actions=2
    )
    P, r = np.ones((1, 2, 1)), np.array([[0.5, 1.0]])
    cmdp = CMDP.from_costs(P, r, [np.array([[0.0, 0.3 * 0.4 + 0.7 * 0.02]])], [0.08], np.ones(1), 0.9)
    return cmdp, counts, np.array([[0.4, 0.6]])


FAMILIES: dict[str, Callable[[int, int], Made]] = {
    "random": of_random,
    "inventory": of_inventory,
    "rare disasters": of_disasters,
    "frozen lake": of_lake,
    "frail patients": of_frail,
}


def limits_of(cmdp: CMDP, counts: Counts) -> dict[str, float]:
    return dict(zip(counts.cost_names, -cmdp.tau, strict=True))


def plug_in(counts: Counts, gamma: float, limits: dict[str, float], rows: int) -> Floats:
    """The optimum of the log's own model over pairs with so many rows; where it never goes, what the log did."""
    L = Lagrangian.empirical(frequent_only(counts, rows), gamma, as_limits(limits))
    return policy_of(L, exact.solve(pessimistic_model(L)).mu)


def study_bounds(task: tuple[str, int, int], slow_logs: int, printed_only: bool = False) -> list[list[object]]:
    """One log: [family, n, policy, bound, signal, held, width, seconds] for each; the slow ones on the first logs.

    `printed_only`: what `solve` prints alone.
    """
    family, n, seed = task
    slow = printed_only or seed < slow_logs
    cmdp, counts, given = FAMILIES[family](n, seed)
    limits, gamma, rows = limits_of(cmdp, counts), cmdp.gamma, []

    def judge(kind: str, judged_by: Counts, pi: Floats, bounds: dict[str, Callable[[], Floats]]) -> None:
        earned = evaluate(cmdp, pi)
        truth = np.array([earned.value, *-earned.constraints])
        for name, bound in bounds.items():
            begun = time.process_time()
            low, high = bound().T
            seconds = time.process_time() - begun
            for signal, ends in zip(("value", *judged_by.cost_names), zip(low, high, truth, strict=True), strict=True):
                held = ends[0] - 1e-12 <= ends[2] <= ends[1] + 1e-12
                rows.append([family, n, kind, name, signal, float(held), float(ends[1] - ends[0]), seconds])

    def all_bounds(counts: Counts, pi: Floats, slow: bool) -> dict[str, Callable[[], Floats]]:
        estimate = PolicyEstimate(counts, gamma, pi)
        return {name: lambda b=bound: b(estimate) for name, bound in BOUNDS.items() if slow or name not in SLOW}

    def judge_printed() -> list[list[object]]:
        begun = time.process_time()
        result = solve(counts, gamma, limits, C=np.inf, seed=seed)
        seconds = time.process_time() - begun
        assert result.intervals is not None
        ends = [(low, np.inf if high is None else high) for low, high in result.intervals.costs.values()]
        printed = np.array([result.intervals.value, *ends])
        judge("solve", counts, result.policy, {"solve": lambda: printed})
        for row in rows[-(1 + len(limits)) :]:
            row[-1] = seconds
        return rows

    if printed_only:
        return judge_printed()
    judge("given", counts, given, all_bounds(counts, given, slow))
    learned = plug_in(counts, gamma, limits, choose_min_count(counts, gamma, as_limits(limits)))
    judge("learned", counts, learned, all_bounds(counts, learned, slow and seed < SLOW_LEARNED))
    first, second = split(counts, np.random.default_rng([seed, 3]))
    half = plug_in(first, gamma, limits, choose_min_count(first, gamma, as_limits(limits)))
    judge("half", second, half, all_bounds(second, half, slow and seed < SLOW_LEARNED))
    return judge_printed() if slow else rows


CONFIDENCE = (
    ("lake", 200),
    ("lake", 1000),
    ("lake", 10_000),
    ("cliff", 200),
    ("cliff", 2000),
    ("sepsis", 2000),
    ("random", 2000),
    ("random", 20_000),
    ("inventory", 70_000),
    ("rare disasters", 10_000),
    ("rare disasters", 100_000),
    ("frail patients", 5000),
)


def study_confidence(task: tuple[str, int, int]) -> list[object]:
    """One log: [problem, size, shown, over, shown and over, value, plug-in's value, plug-in over, optimum, seconds]."""
    name, size, seed = task
    if name in FAMILIES:
        cmdp, counts, _ = FAMILIES[name](size, seed)
    else:
        problem = PROBLEMS[name]()
        cmdp, counts = problem.cmdp, episodes_of(problem, size, seed)
    limits = limits_of(cmdp, counts)
    begun = time.process_time()
    result = solve(counts, cmdp.gamma, limits, C=np.inf, refits=0, confidence=0.95, seed=seed)
    seconds = time.process_time() - begun
    earned, baseline = (evaluate(cmdp, pi) for pi in (result.policy, plug_in(counts, cmdp.gamma, limits, 20)))
    over, baseline_over = (bool((e.constraints < cmdp.tau - 1e-12).any()) for e in (earned, baseline))
    shown = result.status == "shown"
    optimum = exact.solve(cmdp).value
    return [name, size, shown, over, shown and over, earned.value, baseline.value, baseline_over, optimum, seconds]


def means(rows: list[list[object]], keys: int) -> list[list[object]]:
    """Rows with the same first `keys` entries become one with the means of the others, and their number."""
    found: dict[tuple[object, ...], list[list[float]]] = defaultdict(list)
    for row in rows:
        found[tuple(row[:keys])].append([float(x) for x in row[keys:]])  # type: ignore[arg-type]
    return [[*key, *(f"{x:.6g}" for x in np.mean(own, axis=0)), len(own)] for key, own in found.items()]


def finished(
    study: Callable[[tuple[str, int, int]], T], tasks: list[tuple[str, int, int]], jobs: int, end: float
) -> Iterator[T]:
    """What is done before the time is up; says so if that is not all."""
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        results = pool.imap_unordered(study, tasks)
        for done in range(len(tasks)):
            try:
                yield results.next(None if end == math.inf else max(end - time.monotonic(), 0.0))
            except multiprocessing.TimeoutError:
                print(f"time is up: {done} of {len(tasks)} logs are measured.", file=sys.stderr)
                return


def write(path: Path, header: list[str], rows: list[list[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    print(f"{path}: {len(rows)} rows")


def page() -> None:
    """The measured part of notes/certify.md: coverage, width and seconds of each bound, what learning does to it."""
    with (HERE / "results" / "tabular_bounds.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    sizes = sorted({int(row["n"]) for row in rows})
    logs = {}
    for kind in ("given", "solve"):
        numbers = sorted({int(row["logs"]) for row in rows if row["policy"] == kind})
        logs[kind] = " to ".join(map(str, dict.fromkeys((numbers[0], numbers[-1]))))

    def cells(policy: str, bound: str, family: str, n: int) -> list[dict[str, str]]:
        wanted = (policy, bound, family, str(n))
        own = [row for row in rows if (row["policy"], row["bound"], row["family"], row["n"]) == wanted]
        return [row for row in own if float(row["width"]) > 1e-9]  # a signal without chance is always held

    def held(policy: str, bound: str, family: str, n: int) -> str:
        own = [row for row in cells(policy, bound, family, n) if int(row["logs"]) >= FEWEST]
        return f"{100 * np.mean([float(row['coverage']) for row in own]):.0f} %" if own else "–"

    def wide(bound: str, family: str, n: int) -> str:
        plain = {row["signal"]: float(row["width"]) for row in cells("given", "delta", family, n)}
        rows_of = [row for row in cells("given", bound, family, n) if row["signal"] in plain]
        own = [float(row["width"]) / plain[row["signal"]] for row in rows_of]
        return f"{np.exp(np.mean(np.log(own))):.2g} ×" if own else "–"

    def pooled(policy: str, bound: str) -> str:
        own = [row for f in FAMILIES for n in sizes if n >= SEEN for row in cells(policy, bound, f, n)]
        return f"{100 * np.mean([float(row['coverage']) for row in own]):.1f} %"

    lines = [
        textwrap.fill(
            "How often a 95 % interval held the truth, mean of value and costs, for a policy that does not depend on "
            f"the log; then its width against that of `delta`. Logs of each: {logs['given']}.",
            100,
        ),
        "",
        "| family | n | " + " | ".join(f"`{bound}`" for bound in BOUNDS) + " |",
        "|---|---:|" + "---:|" * len(BOUNDS),
    ]
    for family in FAMILIES:
        for n in sizes:
            each = [f"{held('given', bound, family, n)}, {wide(bound, family, n)}" for bound in BOUNDS]
            lines.append(f"| {family} | {n:,} | " + " | ".join(each) + " |")
    everything = f"| all | from {SEEN:,} on | "
    lines.append(everything + " | ".join(pooled("given", bound) for bound in BOUNDS) + " |")
    for n in sizes:
        own = [[float(row["seconds"]) for f in FAMILIES for row in cells("given", bound, f, n)] for bound in BOUNDS]
        lines.append(f"| seconds of one core | {n:,} | " + " | ".join(f"{np.mean(each):.2g}" for each in own) + " |")
    lines += [
        "",
        textwrap.fill(
            "What learning makes of it: a policy learned from the same rows and judged by `clustered`, one learned on "
            "the other half, and what `solve` prints for the policy it learned from all rows (measured later, on "
            f"{logs['solve']} logs of each). A dash: fewer than {FEWEST} logs.",
            100,
        ),
        "",
        "| family | n | same rows | other half | `solve` prints |",
        "|---|---:|---:|---:|---:|",
    ]
    for family in FAMILIES:
        for n in sizes:
            each = [held(kind, b, family, n) for kind, b in (("learned", "clustered"), ("half", "clustered"))]
            lines.append(f"| {family} | {n:,} | " + " | ".join([*each, held("solve", "solve", family, n)]) + " |")
    last = (pooled("learned", "clustered"), pooled("half", "clustered"), pooled("solve", "solve"))
    lines.append(everything + " | ".join(last) + " |")
    target = HERE.parent / "benchmarks" / "notes" / "certify.md"
    text = target.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    target.write_text(f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--logs", type=int, default=200)
    parser.add_argument("--skip", type=int, default=0, help="leave out the first of the logs, measured before")
    parser.add_argument("--slow-logs", type=int, default=10**6, help="so many of them for bootstraps and `solve`")
    parser.add_argument("--printed", action="store_true", help="measure what `solve` prints alone, and keep the rest")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument(
        "--from", dest="files", type=Path, nargs="+", help="measure nothing: rows that earlier runs kept"
    )
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop each study then, with what is finished")
    parser.add_argument("--page", action="store_true", help="measure nothing: write the tables of notes/certify.md")
    parser.add_argument("--only", choices=("bounds", "confidence"))
    parser.add_argument("--out", type=Path, default=HERE / "results", help="the folder of the CSV files")
    asked = parser.parse_args()
    if asked.page:
        return page()
    if asked.only != "confidence":
        rows = [row for path in asked.files or [] for row in csv.reader(path.open(newline="", encoding="utf-8"))]
        sizes = sorted(asked.sizes, reverse=True)
        tasks = [(family, n, seed) for seed in range(asked.skip, asked.logs) for n in sizes for family in FAMILIES]
        study = functools.partial(study_bounds, slow_logs=asked.slow_logs, printed_only=asked.printed)
        with (asked.out / "tabular_bounds.partial").open("a", newline="", encoding="utf-8") as file:
            end = time.monotonic() + 60 * asked.minutes
            for part in finished(study, [] if asked.files else tasks, asked.jobs, end):
                csv.writer(file).writerows(part)
                file.flush()
                rows += part
        header = ["family", "n", "policy", "bound", "signal", "coverage", "width", "seconds", "logs"]
        found = means(rows, 5)
        if asked.printed:
            with (asked.out / "tabular_bounds.csv").open(newline="", encoding="utf-8") as file:
                found += [row for row in csv.reader(file) if row[2] not in {"policy", "solve"}]
        write(asked.out / "tabular_bounds.csv", header, sorted(found, key=str))
    if asked.only != "bounds":
        sure = [(name, size) for name, size in CONFIDENCE if name != "sepsis" or importlib.util.find_spec("icu_sepsis")]
        tasks = [(name, size, seed) for seed in range(asked.logs) for name, size in sure]
        rows = list(finished(study_confidence, tasks, asked.jobs, time.monotonic() + 60 * asked.minutes))
        header = [
            "problem",
            "size",
            "shown",
            "over",
            "shown and over",
            "value",
            "plug-in 20: value",
            "plug-in 20: over",
            "optimum",
            "seconds",
            "logs",
        ]
        write(asked.out / "tabular_confidence.csv", header, sorted(means(rows, 2), key=str))


if __name__ == "__main__":
    main()

"""`solve` and every other method of the tree on logs of problems with a known answer: how often limits are broken.

    OMP_NUM_THREADS=1 python benchmarks/solve_foreign_logs.py --jobs 16 --logs 40 --out benchmarks/results/foreign.csv

One row per log and method: what it believed, what is true, its interval, seconds. Then one table per problem. Needs
NumPy, SciPy, highspy and, for sepsis, the data of the `icu-sepsis` wheel (pip install --no-deps icu-sepsis). A method
that takes longer than --patience seconds on one log is not asked again on that problem.
"""

from __future__ import annotations

import argparse
import csv
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from foreign_problems import PROBLEMS, Foreign

from pdocrl.errors import PdocrlError
from pdocrl.tabular import Counts, exact, solve
from pdocrl.tabular.lagrangian import Floats, Lagrangian, pessimistic_model
from pdocrl.tabular.limits import as_limits
from pdocrl.tabular.solution import outcome

CASES = (
    ("lake", 200), ("lake", 1000), ("lake", 10_000), ("cliff", 200), ("cliff", 2000), ("sepsis", 2000),
    ("taxi", 300), ("taxi", 3000), ("bandit", 10_000), ("patients", 100),
)  # fmt: skip
OURS = {"solve": {}, "solve, confidence .95": {"confidence": 0.95}, "solve, no threshold": {"min_count": 1}}
PLUG_IN = {f"plug-in, {m} rows": m for m in (1, 5, 10, 20)}
FIELDS = ("problem", "episodes", "log", "method", "status", "believed_value", "believed_cost", "true_value",
          "true_cost", "value_low", "value_high", "cost_low", "cost_high", "limit", "optimum", "seconds")  # fmt: skip


class TooLongError(Exception):
    """A method's time on one log is up."""


def methods() -> list[str]:
    """Ours, the plug-in at several thresholds, and all rivals that know limits."""
    from pdocrl.theory.rivals.registry import RIVALS

    others = [name for name, rival in RIVALS.items() if rival.limits and name not in {"pdocrl", "plug_in"}]
    return [*OURS, *PLUG_IN, *others]


def run(problem: Foreign, counts: Counts, method: str) -> dict[str, Any]:
    """A policy, what is believed of it and, for ours, its intervals."""
    gamma, limits = problem.cmdp.gamma, {"cost": float(-problem.cmdp.tau[0])}
    if method in OURS:
        result = solve(counts, gamma, limits, **OURS[method])
        found: dict[str, Any] = {"policy": result.policy, "status": result.status}
        found |= {"believed_value": result.value, "believed_cost": float(result.costs[0])}
        if result.intervals is not None:
            low, high = result.intervals.value
            found |= {"value_low": low, "value_high": high}
            found |= dict(zip(("cost_low", "cost_high"), result.intervals.costs[0].tolist(), strict=True))
        return found
    policy = _other(counts, gamma, limits, method)
    value, cost = outcome(pessimistic_model(Lagrangian.empirical(counts, gamma, as_limits(limits))), policy)
    return {"policy": policy, "status": "", "believed_value": value, "believed_cost": -cost}


def _other(counts: Counts, gamma: float, limits: dict[str, float], method: str) -> Floats:
    from pdocrl.tabular.algorithms import Mixture
    from pdocrl.tabular.assess import one_policy
    from pdocrl.theory.baselines import plug_in
    from pdocrl.theory.rivals.registry import RIVALS

    if method in PLUG_IN:
        return plug_in(counts, gamma, limits, PLUG_IN[method])
    found = RIVALS[method].run(counts, gamma, limits)
    if isinstance(found, Mixture):
        return one_policy(Lagrangian.empirical(counts, gamma, as_limits(limits)), found)
    return found


def one_log(task: tuple[str, int, int, tuple[str, ...], float]) -> list[dict[str, Any]]:
    """All methods on one log."""
    name, episodes, seed, asked, patience = task
    problem = PROBLEMS[name]()
    counts = problem.counts(episodes, seed)
    optimum = exact.solve(problem.cmdp).value
    rows = []
    for method in asked:
        start = time.perf_counter()
        row: dict[str, Any] = {"problem": name, "episodes": episodes, "log": seed, "method": method}
        try:
            signal.signal(signal.SIGALRM, _up)
            signal.setitimer(signal.ITIMER_REAL, patience)
            found = run(problem, counts, method)
            value, cost = problem.evaluate(found.pop("policy"))
            row |= found | {"true_value": value, "true_cost": cost}
        except TooLongError:
            row["status"] = "too long"
        except (PdocrlError, ArithmeticError, ValueError, np.linalg.LinAlgError) as error:
            row["status"] = f"failed: {error}"[:100]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        row |= {"limit": float(-problem.cmdp.tau[0]), "optimum": optimum, "seconds": time.perf_counter() - start}
        rows.append(row)
    return rows


def _up(*_: object) -> None:
    raise TooLongError


def table(rows: list[dict[str, Any]]) -> str:
    """Per problem and method: limits broken, true value and cost, intervals that hold, seconds."""
    columns = ("problem", "method", "logs", "limit broken", "value (optimum)", "cost (limit)", "believed value, cost",
               "interval holds value, cost", "seconds")  # fmt: skip
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    keys = dict.fromkeys((row["problem"], row["episodes"], row["method"]) for row in rows)
    for key in keys:
        mine = [row for row in rows if (row["problem"], row["episodes"], row["method"]) == key]
        done = [row for row in mine if "true_value" in row]
        name = f"{key[0]}, {key[1]}"
        if not done:
            lines.append(f"| {name} | {key[2]} | 0 of {len(mine)} | {mine[0]['status']} | | | | | |")
            continue
        mean = {f: np.mean([row[f] for row in done]) for f in (*FIELDS[5:9], "seconds", "limit", "optimum")}
        over = np.mean([row["true_cost"] > row["limit"] * (1 + 1e-6) + 1e-12 for row in done])
        held = ""
        if "value_low" in done[0]:
            inside = [
                [row[f"{s}_low"] - 1e-12 <= row[f"true_{s}"] <= row[f"{s}_high"] + 1e-12 for row in done]
                for s in ("value", "cost")
            ]
            held = ", ".join(f"{100 * np.mean(x):.0f} %" for x in inside)
        lines.append(
            f"| {name} | {key[2]} | {len(done)} of {len(mine)} | {100 * over:.0f} % | {mean['true_value']:.4g} "
            f"({mean['optimum']:.4g}) | {mean['true_cost']:.3g} ({mean['limit']:.3g}) | {mean['believed_value']:.4g}, "
            f"{mean['believed_cost']:.3g} | {held} | {mean['seconds']:.2g} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--logs", type=int, default=40, help="per problem")
    parser.add_argument("--cases", nargs="*", help="such as lake,1000 sepsis,2000; all unless told")
    parser.add_argument("--methods", nargs="*", help=f"of {', '.join(methods())}")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds a method has for one log")
    parser.add_argument("--out", type=Path, default=Path("foreign.csv"))
    arguments = parser.parse_args()
    cases = CASES
    if arguments.cases:
        cases = tuple((case.split(",")[0], int(case.split(",")[1])) for case in arguments.cases)
    asked = tuple(arguments.methods or methods())
    rows: list[dict[str, Any]] = []
    slow: set[tuple[str, int, str]] = set()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(arguments.jobs) as pool, arguments.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for name, episodes in cases:
            for first in range(0, arguments.logs, max(arguments.jobs, 4)):
                some = tuple(m for m in asked if (name, episodes, m) not in slow)
                seeds = range(first, min(first + max(arguments.jobs, 4), arguments.logs))
                for found in pool.map(one_log, [(name, episodes, k, some, arguments.patience) for k in seeds]):
                    rows += found
                    writer.writerows(found)
                    slow |= {(name, episodes, row["method"]) for row in found if row["status"] == "too long"}
                file.flush()
            done = [row for row in rows if (row["problem"], row["episodes"]) == (name, episodes)]
            print(table(done), file=sys.stderr, flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()

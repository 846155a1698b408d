"""Can the report of `solve` be trusted? The chosen C, the intervals and the tightened limits, against the truth.

    python -m research.studies.trust [--seeds 20]

For logs of known problems: the error with the C that was chosen, against the best and the worst of the grid; how often
the 95 % intervals held the policy's true value and costs; how often the policy broke a limit, at the limits and aimed
at 95 % confidence, and what that cost. (1−γ)J units.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pdocrl.console import print_table, progress
from pdocrl.files import atomic_path
from pdocrl.limits import Limit, as_limits
from pdocrl.tabular.api import solve
from pdocrl.tabular.cmdp import CMDP, evaluate, occupancy, random_cmdp
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.examples import inventory
from pdocrl.tabular.inference.sensitivity import GRID
from pdocrl.tabular.solvers import exact
from pdocrl.tabular.solvers.lagrangian import Lagrangian
from pdocrl.tabular.solvers.saddle import Setup, solve_saddle
from research.lucky import lucky2

RESULTS = Path(__file__).parents[1] / "results"
Make = Callable[[int], tuple[CMDP, Counts, tuple[Limit, ...]]]


def of_random(size: int) -> Make:
    def make(seed: int) -> tuple[CMDP, Counts, tuple[Limit, ...]]:
        cmdp = random_cmdp(20, 4, 1, 0.9, seed=seed)
        mu_D = (exact.solve(cmdp).mu + occupancy(cmdp, np.full((20, 4), 1 / 4))) / 2
        return cmdp, Counts.sample(cmdp, mu_D, size, seed), as_limits({"cost": -float(cmdp.tau[0])})

    return make


def of_lucky(size: int) -> Make:
    lucky = lucky2()
    return lambda seed: (lucky.cmdp, lucky.counts(size, seed), as_limits({"cost": -float(lucky.cmdp.tau[0])}))


def of_inventory(shops: int) -> Make:
    truth = inventory.model(0.97, 0.02, 0.3)

    def make(seed: int) -> tuple[CMDP, Counts, tuple[Limit, ...]]:
        log = inventory.simulate(shops, seed=seed + 1)
        state, then = ([inventory.STATES.index(str(x)) for x in log[c]] for c in ("state", "next_state"))
        action = [inventory.ORDERS.index(int(str(x))) for x in log["action"]]
        costs = {name: np.array(log[name], float) for name in inventory.COSTS}
        counts = Counts.from_arrays(
            state,
            action,
            then,
            np.array(log["reward"], float),
            costs,
            initial=np.array(log["step"]) == 0,
            n_states=len(inventory.STATES),
            n_actions=len(inventory.ORDERS),
        )
        return truth, counts, as_limits(["stockout<=0.02", "delivery<=0.3"])

    return make


PROBLEMS: dict[str, Make] = {
    "random S=20, n=2,000": of_random(2_000),
    "random S=20, n=20,000": of_random(20_000),
    "lucky2, n=10,000": of_lucky(10_000),
    "lucky2, n=100,000": of_lucky(100_000),
    "inventory, n=73,000": of_inventory(200),
}


def study(make: Make, seed: int) -> list[float]:
    """One log: errors (chosen C, best C, worst C), intervals that hold (value, all costs), limits broken and loss."""
    cmdp, counts, limits = make(seed)
    optimum = exact.solve(cmdp).value
    L = Lagrangian.empirical(counts, cmdp.gamma, limits)
    grid = [evaluate(cmdp, solve_saddle(L, Setup(C)).policy).error(cmdp, optimum) for C in GRID]
    result = solve(counts, cmdp.gamma, limits, seed=seed)
    careful = solve(counts, cmdp.gamma, limits, confidence=0.95, seed=seed)
    earned, careful_earned = evaluate(cmdp, result.policy), evaluate(cmdp, careful.policy)
    spread = result.intervals
    assert spread is not None
    ends = np.array([(low, np.inf if high is None else high) for low, high in spread.costs.values()])
    costs = np.array([limit.sign for limit in limits]) * earned.constraints
    return [
        earned.error(cmdp, optimum),
        min(grid),
        max(grid),
        float(spread.value[0] <= earned.value <= spread.value[1]),
        float(np.mean((ends[:, 0] <= costs) & (costs <= ends[:, 1]))),
        float((earned.constraints < cmdp.tau).any()),
        float((careful_earned.constraints < cmdp.tau).any()),
        earned.value - careful_earned.value,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    rows = []
    with progress() as bar:
        for name in bar.track(list(PROBLEMS), description="problems"):
            outcomes = np.array([study(PROBLEMS[name], seed) for seed in range(seeds)])
            rows.append([name, *(float(x) for x in outcomes.mean(axis=0))])
    header = [
        "log",
        "err, C chosen",
        "err, best C",
        "err, worst C",
        "value held",
        "costs held",
        "breaks a limit",
        "… at 95 %",
        "which costs",
    ]
    print_table(header, rows, f"means over {seeds} seeds")
    with atomic_path(RESULTS / "trust.csv") as path, path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*header, "seeds"])
        writer.writerows([*row, seeds] for row in rows)


if __name__ == "__main__":
    main()

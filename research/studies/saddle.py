"""Solving the empirical saddle problem: the linear program's time and gap, and what iterating reaches in 10,000 steps.

    python -m research.studies.saddle [--seeds 10]

Logs are half of the optimal policy's data and half of a uniform policy's, with C = 1.5·C*, γ = 0.95, one constraint.
ξ is the certificate; err = max(suboptimality, violation) of the policy in the true CMDP, (1−γ)J units. The last table
counts how often a certificate of the population problem was below the true error, over iterates of all solvers.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pdocrl.console import print_table, progress
from pdocrl.files import atomic_path
from pdocrl.limits import as_limits
from pdocrl.tabular.cmdp import CMDP, evaluate, occupancy, random_cmdp
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.solvers import exact
from pdocrl.tabular.solvers.algorithms import Algorithm, make_players, run
from pdocrl.tabular.solvers.lagrangian import Lagrangian, Point, Sets, certify, policy_of
from pdocrl.tabular.solvers.lp import choose_B, saddle_lp
from research.generators import garnet

ITERATIONS = 10_000
RESULTS = Path(__file__).parents[1] / "results"

SOLVERS: dict[
    str, tuple[Algorithm, dict[str, Any], str]
] = {  # name → (algorithm, options, the paper's sets or the tight ones)
    "Algorithm 1, η = 1/√T, paper's sets": ("pdocrl", {"eta": ITERATIONS**-0.5}, "paper"),
    "Algorithm 1, η = C/(G√T), paper's sets": ("pdocrl", {}, "paper"),
    "Algorithm 1, η = C/(G√T)": ("pdocrl", {}, "tight"),
    "Algorithm 1 tuned: falling steps, linear averages": ("pdocrl", {"averaging": "linear"}, "tight"),
    "predictive regret matching⁺, paper's sets": ("regret_matching", {}, "paper"),
    "predictive regret matching⁺": ("regret_matching", {}, "tight"),
    "optimistic gradients": ("optimistic", {}, "tight"),
}


class Case:
    """A CMDP, a log of it, and the sets to play in."""

    def __init__(self, cmdp: CMDP, size: int, seed: int) -> None:
        self.cmdp, self.best = cmdp, exact.solve(cmdp)
        A = cmdp.n_actions
        self.mu_D = (self.best.mu + occupancy(cmdp, np.full(cmdp.r.shape, 1 / A))) / 2
        counts = Counts.sample(cmdp, self.mu_D, size, seed)
        limits = as_limits(dict(zip(counts.cost_names, -cmdp.tau, strict=True)))
        self.L = Lagrangian.empirical(counts, cmdp.gamma, limits)
        self.C = 1.5 * float(np.nanmax(np.where(self.mu_D > 0, self.best.mu / self.mu_D, 0)))

    def sets(self, kind: str) -> Sets:
        if kind == "paper":
            return Sets.paper(self.L, self.C, exact.slater_margin(self.cmdp))
        return Sets.tight(self.L, self.C, choose_B(self.L, self.C))

    def error(self, point: Point) -> float:
        return evaluate(self.cmdp, policy_of(self.L, point.nu)).error(self.cmdp, self.best.value)


def lp_rows(repeats: int) -> Iterator[list[object]]:
    """Time and gap of the program by size; building it is counted, choosing B is not."""
    problems = {
        "S=20, dense": (random_cmdp(20, 4, 1, 0.95, seed=0), 20_000),
        "S=100, 5 successors": (garnet(100, seed=0), 200_000),
        "S=1000, 5 successors": (garnet(1000, seed=0), 2_000_000),
        "S=1000, dense": (random_cmdp(1000, 4, 1, 0.95, seed=0), 2_000_000),
    }
    for name, (cmdp, size) in problems.items():
        case = Case(cmdp, size, 0)
        sets, seconds = case.sets("tight"), []
        for _ in range(repeats if cmdp.n_states < 1000 else 1):
            begun = time.perf_counter()
            point = saddle_lp(case.L, sets)
            seconds.append(time.perf_counter() - begun)
        yield [name, cmdp.r.size, 1e3 * min(seconds), certify(case.L, sets, point).gap, case.error(point)]


def solver_rows(seeds: int) -> Iterator[list[object]]:
    """[solver, ξ mean, ξ worst, err mean, seconds], over logs of 20,000 rows of random CMDPs with S = 20."""
    cases = [Case(random_cmdp(20, 4, 1, 0.95, seed=seed), 20_000, seed) for seed in range(seeds)]
    for name, (algorithm, options, kind) in SOLVERS.items():
        gaps, errors, seconds = [], [], []
        for case in cases:
            sets = case.sets(kind)
            begun = time.process_time()
            point = next(run(case.L, make_players(algorithm, case.L, sets, ITERATIONS, **options), ITERATIONS))
            seconds.append(time.process_time() - begun)
            gaps.append(certify(case.L, sets, point).gap)
            errors.append(case.error(point))
        yield [name, float(np.mean(gaps)), max(gaps), float(np.mean(errors)), float(np.mean(seconds)), gaps]
    gaps, errors, seconds = [], [], []
    for case in cases:
        sets = case.sets("tight")
        begun = time.process_time()
        point = saddle_lp(case.L, sets)
        seconds.append(time.process_time() - begun)
        gaps.append(certify(case.L, sets, point).gap)
        errors.append(case.error(point))
    yield ["linear program", float(np.mean(gaps)), max(gaps), float(np.mean(errors)), float(np.mean(seconds)), gaps]


def soundness_rows(problems: int) -> Iterator[list[object]]:
    """[solver, iterates, err > ξ, largest err/ξ] on population problems with 1–3 constraints, half of them costs."""
    algorithms: tuple[Algorithm | None, ...] = ("pdocrl", "regret_matching", "optimistic", None)  # None: the program
    for algorithm in algorithms:
        ratios = []
        for seed in range(problems):
            cmdp = random_cmdp(8, 3, 1 + seed % 3, 0.9, seed=seed)
            if seed % 2:
                cmdp = CMDP.from_costs(cmdp.P, cmdp.r, 1 - cmdp.g, 1 - cmdp.tau, cmdp.d0, cmdp.gamma)
            case = Case(cmdp, 1000, seed)
            L = Lagrangian.population(cmdp, case.mu_D)
            sets = Sets.tight(L, case.C, exact.dual_bound(cmdp))
            if algorithm is None:
                points = [saddle_lp(L, sets)]
            else:
                points = list(run(L, make_players(algorithm, L, sets, 1000), 1000, every=10))
            for point in points:
                gap = certify(L, sets, point).gap
                ratios.append(max(case.error(point) - 1e-10, 0.0) / max(gap, 1e-12))  # less the rounding of both
        yield [algorithm or "linear program", len(ratios), int(np.sum(np.array(ratios) > 1)), max(ratios)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    seeds = parser.parse_args().seeds
    with progress() as bar:
        task = bar.add_task("linear programs", total=None)
        program = list(lp_rows(repeats=20))
        bar.update(task, description="iterating")
        solvers = list(solver_rows(seeds))
        bar.update(task, description="certificates")
        sound = list(soundness_rows(problems=12))
    by_name = {str(row[0]): row for row in solvers}
    tuned, matching = (np.array(by_name[n][5]) for n in (list(SOLVERS)[3], "predictive regret matching⁺"))
    print_table(["problem", "pairs", "ms", "ξ", "err"], program, "The saddle program")
    header = ["solver", "ξ mean", "ξ worst", "err mean", "CPU s"]
    print_table(header, [row[:5] for row in solvers], f"S=20, 20,000 rows, T=10,000, {seeds} seeds")
    print(
        f"tuned Algorithm 1 over predictive regret matching⁺: ξ ratio {(tuned / matching).min():.0f} at least, "
        f"{tuned.mean() / matching.mean():.0f} of the means"
    )
    print_table(["solver", "iterates", "err > ξ", "largest err/ξ"], sound, "Is the certificate sound?")
    with atomic_path(RESULTS / "saddle.csv") as path, path.open("w", newline="") as file:
        writer = csv.writer(file)
        for columns, rows in (
            (["problem", "pairs", "ms", "xi", "err"], program),
            (["solver", "xi mean", "xi worst", "err mean", "CPU s"], [row[:5] for row in solvers]),
            (["solver", "iterates", "err > xi", "largest err/xi"], sound),
        ):
            writer.writerow(columns)
            writer.writerows(rows)


if __name__ == "__main__":
    main()

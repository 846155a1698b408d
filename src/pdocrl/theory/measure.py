"""Every method on every family, from logs of growing size: error, violation and time, with intervals.

    python -m pdocrl.theory.measure rivals.csv --jobs 16                  needs NumPy, SciPy, highspy and clarabel alone

One job is one log: all methods learn from it, each with its parameters by theory and with those of its grid. Of the
grid the best on average at each n is kept, a choice nobody could make from the log. Errors are max(loss, violation, 0)
in the true model, in (1−γ)J units, or per episode where episodes end.
"""

from __future__ import annotations

import argparse
import itertools
import math
import multiprocessing
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from pdocrl.errors import PdocrlError
from pdocrl.files import write_csv
from pdocrl.tabular.algorithms import Mixture
from pdocrl.tabular.cmdp import evaluate
from pdocrl.theory.families import Coverage, make_case
from pdocrl.theory.rivals.registry import RIVALS, Parameters, facts_of

Rows = list[dict[str, Any]]
SMALL = ("random", "garnet", "lucky2", "inventory", "frozenlake")
EXAMPLES = ("lucky_bandit", "costly_reference", "phantom_mass")
ONE_LOG = (*EXAMPLES, "icu_sepsis")  # their logs are what they are: one coverage
SIZES = (1_000, 10_000, 100_000, 1_000_000)
ICU_SIZES = (10_000, 100_000, 1_000_000)
# Iterations, few enough that all logs fit in minutes; more help little, see docs/which-method.md.
ITERATIONS = {"pdca": 600, "wsac": 40, "a_crab": 40, "pspi": 300, "atac": 300, "mbcl": 200}
ICU_ITERATIONS = {"pdca": 200, "pspi": 100, "atac": 100, "mbcl": 100}
# With 7,000 pairs, a program per iteration and the rows of Soft-SPIBB take minutes each: left out there.
# Of the settings of methods not named, the theory's and one of the grid.
ICU_WITHOUT = ("wsac", "a_crab", "soft_spibb")
ICU_SETTINGS = {
    "pdocrl": (0, 2),
    "pdca": (0, 3),
    "mo_spibb": (4,),
    "pessimistic": (0, 4),
    "pro_rl": (0, 3, 5),
    "dpdl": (0, 4, 6),
    "spibb": (3,),
}  # others: (0, 2)


class Job(NamedTuple):
    """One log."""

    family: str
    coverage: Coverage
    limited: bool
    n: int
    seed: int


class Trial(NamedTuple):
    """One method with one setting on one log."""

    job: Job
    method: str
    setting: int  # 0 is the theory's, then the grid's
    parameters: str
    loss: float
    violation: float
    seconds: float  # of one core

    @property
    def error(self) -> float:
        return max(self.loss, self.violation, 0.0)


def jobs_of(
    families: Iterable[str], logs: int, sizes: Iterable[int] | None = None, limited: bool | None = None
) -> list[Job]:
    """All logs, of problems with limits, without, or both."""
    found = []
    for family in families:
        coverages: tuple[Coverage, ...] = ("partial",) if family in ONE_LOG else ("full", "partial")
        kinds = (False,) if family == "lucky_bandit" else (True,) if family in EXAMPLES else (True, False)
        every = sizes or (ICU_SIZES if family == "icu_sepsis" else SIZES)
        for coverage, kind, n, seed in itertools.product(coverages, kinds, every, range(logs)):
            if limited in {None, kind}:
                found.append(Job(family, coverage, kind, n, seed))
    # Log by log, so that stopping early leaves as many of each; in each round the slow ones first.
    return sorted(found, key=lambda job: (job.seed, -job.n, job.family not in {"icu_sepsis", "inventory", "lucky2"}))


def measure(job: Job) -> list[Trial]:
    """All methods on one log. A method whose solver gives up is left out for that log."""
    case = make_case(job.family, job.coverage, job.limited, job.seed)
    log = case.log(job.n, job.seed)
    facts = facts_of(log, case.cmdp.gamma, case.C_star, case.B, case.best)
    icu = job.family == "icu_sepsis"
    found = []
    for name, rival in RIVALS.items():
        if not (rival.limits if job.limited else rival.free) or (icu and name in ICU_WITHOUT):
            continue
        settings = [rival.theory(facts), *rival.grid(facts)]
        chosen = ICU_SETTINGS.get(name, (0, 2)) if icu else range(len(settings))
        for index, parameters in enumerate(settings):
            if index not in chosen:
                continue
            rounds = (ICU_ITERATIONS if icu else ITERATIONS).get(name)
            began = time.process_time()
            try:
                answer = rival.run(
                    log, case.cmdp.gamma, case.limits, **parameters, **({"iterations": rounds} if rounds else {})
                )
            except PdocrlError as error:
                print(f"{name} ({words(parameters)}) on {job}: {error}", file=sys.stderr)
                continue
            seconds = time.process_time() - began
            earned = answer.evaluate(case.cmdp) if isinstance(answer, Mixture) else evaluate(case.cmdp, answer)
            violation = max(float((case.cmdp.tau - earned.constraints).max(initial=0.0)), 0.0)
            loss, unit = case.optimum - earned.value, case.unit
            found.append(Trial(job, name, index, words(parameters), loss * unit, violation * unit, seconds))
    return found


def words(parameters: Parameters) -> str:
    """A setting as text."""
    parts = []
    for name, value in parameters.items():
        if name == "reference":
            parts.append("reference " + ("log" if value is None else "best"))
        else:
            parts.append(f"{name} {value:.3g}")
    return ", ".join(parts)


def summarise(trials: Iterable[Trial]) -> Rows:
    """Mean over logs of each (family, coverage, limits, method, n): by theory, and the best of the grid."""
    places: dict[tuple[Any, ...], dict[int, dict[int, list[Trial]]]] = defaultdict(lambda: defaultdict(dict))
    for trial in trials:
        job = trial.job
        place = (job.family, job.coverage, job.limited, trial.method)
        places[place][job.n].setdefault(trial.setting, []).append(trial)
    rows = []
    for (family, coverage, limited, method), by_size in places.items():
        for n, settings in sorted(by_size.items()):
            complete = max(len(own) for own in settings.values())
            usable = {index: own for index, own in settings.items() if len(own) == complete}
            best = min(usable.values(), key=lambda own: sum(t.error for t in own))
            shown = ([("theory", usable[0])] if 0 in usable else []) + [("best of grid", best)]
            for setting, own in shown:
                rows.append({
                    "family": family, "coverage": coverage, "limits": "yes" if limited else "no", "method": method,
                    "setting": setting, "parameters": own[0].parameters, "n": n, "logs": len(own), **_numbers(own),
                })  # fmt: skip
    return rows


def _numbers(trials: list[Trial]) -> dict[str, float]:
    errors = [t.error for t in trials]
    mean, spread = _mean(errors), _spread(errors)
    numbers = {
        "error": mean, "low": max(mean - spread, 0.0), "high": mean + spread,
        "loss": _mean([t.loss for t in trials]), "violation": _mean([t.violation for t in trials]),
        "broken": _mean([float(t.violation > 1e-6) for t in trials]), "seconds": _mean([t.seconds for t in trials]),
    }  # fmt: skip
    return {name: float(f"{number:.4g}") for name, number in numbers.items()}


def _mean(numbers: list[float]) -> float:
    return math.fsum(numbers) / len(numbers)


def _spread(numbers: list[float]) -> float:
    """Half a 95 % interval of the mean (normal)."""
    if len(numbers) < 2:
        return 0.0
    mean = _mean(numbers)
    return 1.96 * math.sqrt(math.fsum((x - mean) ** 2 for x in numbers) / (len(numbers) - 1) / len(numbers))


def measure_all(
    families: Iterable[str],
    logs: int,
    jobs: int = 1,
    sizes: Iterable[int] | None = None,
    limited: bool | None = None,
    minutes: float = math.inf,
) -> Rows:
    """The summary of all logs, measured by so many processes; of those finished after so many minutes."""
    todo = jobs_of(families, logs, sizes, limited)
    if jobs <= 1:
        return summarise(_in_order(_until(minutes, map(measure, todo), len(todo))))
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        return summarise(_in_order(_until(minutes, pool.imap_unordered(measure, todo), len(todo))))


def _until(minutes: float, results: Iterable[list[Trial]], total: int) -> Iterable[list[Trial]]:
    """What comes before the time is up; says so if that is not all."""
    end = time.monotonic() + 60 * minutes
    for done, trials in enumerate(results, start=1):
        yield trials
        if time.monotonic() > end and done < total:
            print(f"time is up: {done} of {total} logs are measured.", file=sys.stderr)
            return


def _in_order(results: Iterable[list[Trial]]) -> list[Trial]:
    """The same order however the work was shared; the order of settings within a log is kept."""
    every = sorted((trials for trials in results if trials), key=lambda trials: trials[0].job)
    return [trial for trials in every for trial in trials]


def main() -> None:
    """The command line above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the CSV file to write")
    parser.add_argument("--families", nargs="+", default=[*SMALL, *EXAMPLES])
    parser.add_argument("--logs", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--sizes", type=int, nargs="+")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop then, and write what is finished")
    parser.add_argument("--limits", choices=["yes", "no"], help="only problems with limits, or without")
    given = parser.parse_args()
    began = time.perf_counter()
    limited = None if given.limits is None else given.limits == "yes"
    rows = measure_all(given.families, given.logs, given.jobs, given.sizes, limited, given.minutes)
    write_csv(given.out, rows)
    print(f"{given.out}: {len(rows)} rows in {time.perf_counter() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()

"""Every method on every family, from logs of growing size: error, violation and time, with intervals.

    python -m research.measure baselines.csv --jobs 16                  needs NumPy, SciPy, highspy and clarabel alone
    python -m research.measure baselines.csv --from one.csv two.csv     from trials that --trials kept

One job is one log: all methods learn from it, each with its parameters by theory and with those of its grid. Of the
grid the best on average at each n is kept, a choice nobody could make from the log. Errors are max(loss, violation, 0)
in the true model, in (1−γ)J units, or per episode where episodes end.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import multiprocessing
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as student

from pdocrl.errors import PdocrlError, UnknownNameError
from pdocrl.files import write_csv
from pdocrl.tabular.baselines import Parameters
from pdocrl.tabular.cmdp import evaluate
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.solvers.algorithms import Mixture
from research.families import Case, Coverage, make_case
from research.methods import MEASURED, Knowledge, facts_of

Rows = list[dict[str, Any]]
SMALL = ("random", "garnet", "lucky2", "inventory", "frozenlake")
EXAMPLES = ("lucky_bandit", "costly_reference", "phantom_mass")
ONE_LOG = (*EXAMPLES, "icu_sepsis")  # their logs are what they are: one coverage
SIZES = (1_000, 10_000, 100_000, 1_000_000)
ICU_SIZES = (10_000, 100_000, 1_000_000)
# Iterations, few enough that all logs fit in minutes; more help little, see docs/which-method.md.
ITERATIONS = {"pdca": 600, "wsac": 40, "a_crab": 40, "pspi": 300, "atac": 300, "mbcl": 200}
ICU_ITERATIONS = {"pdca": 100, "pspi": 100, "atac": 100, "mbcl": 100, "wsac": 10, "a_crab": 10}
# With 9,000 pairs some programs take seconds: of each method the theory's setting (0) and those of the grid named here,
# by their place in it; without limits, only the methods that know none, beside three to compare with.
ICU_SETTINGS = {
    "pdocrl": (0, 3, 4, 5),
    "pdocrl_often": (0, 3, 4, 5),
    "coral": (0, 3, 4, 5),
    "pocc": (0, 2, 3),
    "pro_rl": (0, 5),
    "pdca": (0, 3),
    "wsac": (0, 3),
    "mbcl": (0, 2),
    "pessimistic": (0, 3, 4),
    "dpdl": (0, 5, 6, 7, 8, 9),
    "mo_spibb": (0, 1, 2, 3, 4, 5, 6),
    "coptidice": (0, 5),
    "plug_in": (0, 1, 2, 3, 4),
    "pspi": (0, 2, 4),
    "atac": (0, 2, 4),
    "a_crab": (0, 4),
    "spibb": (0, 1, 2, 3, 4, 5),
    "soft_spibb": (0, 1, 2, 3, 4),
    "fqi": (0,),
    "behaviour_cloning": (0,),
}
ICU_FREE = ("pdocrl_often", "plug_in", "behaviour_cloning")
ICU_LAST = ("wsac", "a_crab")  # a program of seconds in each iteration: after all others, and none of a million rows


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
    families: Iterable[str], logs: int, sizes: Iterable[int] | None = None, limited: bool | None = None, skip: int = 0
) -> list[Job]:
    """All logs but the first few, of problems with limits, without, or both."""
    found = []
    for family in families:
        coverages: tuple[Coverage, ...] = ("partial",) if family in ONE_LOG else ("full", "partial")
        kinds = (False,) if family == "lucky_bandit" else (True,) if family in EXAMPLES else (True, False)
        every = sizes or (ICU_SIZES if family == "icu_sepsis" else SIZES)
        for coverage, kind, n, seed in itertools.product(coverages, kinds, every, range(skip, logs)):
            if limited in {None, kind}:
                found.append(Job(family, coverage, kind, n, seed))
    # Log by log, so that stopping early leaves as many of each; in each round the slow ones first.
    return sorted(found, key=lambda job: (job.seed, -job.n, job.family not in {"icu_sepsis", "inventory", "lucky2"}))


class LogTask(NamedTuple):
    """What one process does at a time: some methods on one log."""

    job: Job
    methods: tuple[str, ...]


def tasks_of(jobs: Iterable[Job], only: Collection[str] = tuple(MEASURED)) -> list[LogTask]:
    """Two per log, for methods that iterate and others; one per method where a log keeps a core busy for minutes.

    Logs come in order, so that stopping early leaves as many of each.
    """
    found = []
    for job in jobs:
        known = [
            name for name, baseline in MEASURED.items() if (baseline.method.limits if job.limited else baseline.free)
        ]
        methods = [name for name in known if name in only]
        if job.family == "icu_sepsis":
            found += [LogTask(job, (name,)) for name in methods if _on_icu(name, job)]
        else:
            slow = tuple(name for name in methods if name in ITERATIONS)
            found += [LogTask(job, slow), LogTask(job, tuple(name for name in methods if name not in ITERATIONS))]

    return sorted((task for task in found if task.methods), key=_turn)


def _on_icu(name: str, job: Job) -> bool:
    if name in ICU_LAST and job.n == max(ICU_SIZES):
        return False
    return job.limited or not MEASURED[name].method.limits or name in ICU_FREE


def _turn(task: LogTask) -> bool:
    return task.job.family == "icu_sepsis" and task.methods[0] in ICU_LAST


@lru_cache(maxsize=2)
def _log(job: Job) -> tuple[Case, Counts, Knowledge]:
    case = make_case(job.family, job.coverage, job.limited, job.seed)
    log = case.log(job.n, job.seed)
    return case, log, facts_of(log, case.cmdp.gamma, case.C_star, case.B, case.best, case.V_max)


def measure(task: LogTask) -> list[Trial]:
    """The task's methods on its log. A method whose solver gives up is left out for that log."""
    job = task.job
    case, log, facts = _log(job)
    icu = job.family == "icu_sepsis"
    found = []
    for name in task.methods:
        baseline = MEASURED[name]
        settings = [baseline.theory(facts), *baseline.grid(facts)]
        chosen = ICU_SETTINGS[name] if icu else range(len(settings))
        for index, parameters in enumerate(settings):
            if index not in chosen:
                continue
            rounds = (ICU_ITERATIONS if icu else ITERATIONS).get(name)
            began = time.process_time()
            try:
                answer = baseline.method.run(
                    log, case.cmdp.gamma, case.limits, **parameters, **({"iterations": rounds} if rounds else {})
                )
            except (PdocrlError, np.linalg.LinAlgError) as error:
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
                rows.append(
                    {
                        "family": family,
                        "coverage": coverage,
                        "limits": "yes" if limited else "no",
                        "method": method,
                        "setting": setting,
                        "parameters": own[0].parameters,
                        "n": n,
                        "logs": len(own),
                        **_numbers(own),
                    }
                )
    return rows


def _numbers(trials: list[Trial]) -> dict[str, float]:
    errors = [t.error for t in trials]
    mean, spread = _mean(errors), _spread(errors)
    numbers = {
        "error": mean,
        "low": max(mean - spread, 0.0),
        "high": mean + spread,
        "loss": _mean([t.loss for t in trials]),
        "violation": _mean([t.violation for t in trials]),
        "broken": _mean([float(t.violation > 1e-6) for t in trials]),
        "seconds": _mean([t.seconds for t in trials]),
    }
    return {name: float(f"{number:.4g}") for name, number in numbers.items()}


def _mean(numbers: list[float]) -> float:
    return math.fsum(numbers) / len(numbers)


def _spread(numbers: list[float]) -> float:
    """Half a 95 % interval of the mean (Student's); 0 for one number, which has none."""
    if len(numbers) < 2:
        return 0.0
    mean, others = _mean(numbers), len(numbers) - 1
    deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in numbers) / others / len(numbers))
    return float(student.ppf(0.975, others)) * deviation


def measure_all(
    families: Iterable[str],
    logs: int,
    jobs: int = 1,
    sizes: Iterable[int] | None = None,
    limited: bool | None = None,
    minutes: float = math.inf,
    keep: Path | None = None,
    skip: int = 0,
    methods: Collection[str] = tuple(MEASURED),
) -> Rows:
    """The summary of all logs, measured by so many processes; of what is finished after so many minutes.

    `keep` is a file to which every trial is added as soon as it is there.
    """
    for name in methods:
        if name not in MEASURED:
            raise UnknownNameError("method", name, sorted(MEASURED))
    tasks = tasks_of(jobs_of(families, logs, sizes, limited, skip), methods)
    if keep is None:
        return summarise(_in_order(_finished(tasks, jobs, minutes)))
    done = []
    with keep.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        for trials in _finished(tasks, jobs, minutes):
            writer.writerows([*trial.job, *trial[1:]] for trial in trials)
            file.flush()
            done.append(trials)
    return summarise(_in_order(done))


def _finished(tasks: list[LogTask], jobs: int, minutes: float) -> Iterator[list[Trial]]:
    """What is done before the time is up; says so if that is not all."""
    end = time.monotonic() + 60 * minutes
    if jobs <= 1:
        for done, task in enumerate(tasks, start=1):
            yield measure(task)
            if time.monotonic() > end and done < len(tasks):
                return _time_is_up(done, len(tasks))
        return None
    for job in {task.job._replace(n=0, seed=0) for task in tasks}:  # what all logs share, before the processes part
        make_case(job.family, job.coverage, job.limited, job.seed)
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        results = pool.imap_unordered(measure, tasks)
        for done in range(len(tasks)):
            try:
                yield results.next(None if minutes == math.inf else max(end - time.monotonic(), 0.0))
            except multiprocessing.TimeoutError:
                return _time_is_up(done, len(tasks))
    return None


def _time_is_up(done: int, total: int) -> None:
    print(f"time is up: {done} of {total} parts are measured.", file=sys.stderr)


def read_trials(paths: Iterable[Path]) -> list[Trial]:
    """What `keep` wrote, from several files; a log measured twice counts once."""
    found: dict[tuple[Job, str, int], Trial] = {}
    for path in paths:
        with path.open(newline="", encoding="utf-8") as file:
            for family, coverage, limited, n, seed, method, setting, parameters, *numbers in csv.reader(file):
                job = Job(family, "full" if coverage == "full" else "partial", limited == "True", int(n), int(seed))
                loss, violation, seconds = map(float, numbers)
                trial = Trial(job, method, int(setting), parameters, loss, violation, seconds)
                found[job, method, trial.setting] = trial
    return _in_order([[trial] for trial in found.values()])


def _in_order(results: Iterable[list[Trial]]) -> list[Trial]:
    """The same order however the work was shared: by log, then as in the registry."""
    rank = {name: index for index, name in enumerate(MEASURED)}
    every = itertools.chain.from_iterable(results)
    return sorted(every, key=lambda trial: (trial.job, rank[trial.method], trial.setting))


def main() -> None:
    """The command line above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the CSV file to write")
    parser.add_argument("--families", nargs="+", default=[*SMALL, *EXAMPLES])
    parser.add_argument("--logs", type=int, default=20)
    parser.add_argument("--skip", type=int, default=0, help="leave out the first of the logs, measured before")
    parser.add_argument("--methods", nargs="+", default=list(MEASURED), help="only these")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--sizes", type=int, nargs="+")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop then, and write what is finished")
    parser.add_argument("--limits", choices=["yes", "no"], help="only problems with limits, or without")
    parser.add_argument("--trials", type=Path, help="a file to which every trial is added as soon as it is there")
    parser.add_argument("--from", dest="files", type=Path, nargs="+", help="measure nothing: these files' trials")
    given = parser.parse_args()
    began = time.perf_counter()
    limited = None if given.limits is None else given.limits == "yes"
    if given.files:
        rows = summarise(read_trials(given.files))
    else:
        rows = measure_all(
            given.families,
            given.logs,
            given.jobs,
            given.sizes,
            limited,
            given.minutes,
            given.trials,
            given.skip,
            given.methods,
        )
    write_csv(given.out, rows)
    print(f"{given.out}: {len(rows)} rows in {time.perf_counter() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()

"""From a log file to everything that is saved and printed: what `pdocrl solve` does, as functions.

log ─▶ counts ─▶ `api.solve` or a baseline ─▶ analyses that were asked for ─▶ record ─▶ folder
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pdocrl.errors import PdocrlError, UnknownNameError, by_door
from pdocrl.limits import Limit, Limits, as_limits, per_step
from pdocrl.records import write_record
from pdocrl.tabular import analysis
from pdocrl.tabular.analysis import FILE as MAP
from pdocrl.tabular.analysis import policy_map
from pdocrl.tabular.api import solve as solve_counts
from pdocrl.tabular.baselines import BASELINES, solve_with
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.io.cells import CellSpec
from pdocrl.tabular.io.logs import count_log, find_log
from pdocrl.tabular.result import report
from pdocrl.tabular.result.drawing import draw_frontier
from pdocrl.tabular.result.policy import TabularPolicy, load
from pdocrl.tabular.result.record import Comparison, OtherClustering, write_compared
from pdocrl.tabular.result.result import Result

METHODS = ("lp", "pdocrl", "pdorl", "regret_matching", "optimistic")
Progress = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class LogOptions:
    """How a log is read."""

    start: str | None = None  # the state where episodes begin, if the log does not say
    absorbing: bool = False  # states that are entered and never acted in are ends of the episode
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)  # the log's names: {"state": "room"}
    bins: Sequence[str] = ()  # "stock=10", "age=quantile:5", "kind=values": states made of these columns
    cluster: int | None = None  # states made of so many clusters …
    cells: Sequence[str] = ()  # … of these columns
    memory: str = "1GB"
    threads: int | None = None
    per: Literal["discounted", "step"] = "discounted"  # "step": one episode follows the other
    horizon: int | None = None  # the most steps of an episode; limits are then on its totals

    def spec(self) -> CellSpec | None:
        """How states are made of columns, if they are."""
        return CellSpec.parse(self.bins, self.cluster, self.cells)

    def count(self, log: str, costs: Sequence[str], cells: CellSpec | None) -> Counts:
        """The counts of a file, a pattern or an example."""
        found = count_log(
            find_log(log),
            costs=list(dict.fromkeys(costs)),
            start=self.start,
            columns=self.columns,
            memory=self.memory,
            threads=self.threads,
            horizon=self.horizon,
            cells=cells,
        )
        found = found.ending_in(found.dead_ends) if self.absorbing else found
        return found.going_on() if self.per == "step" else found


def solve_log(
    log: str,
    gamma: float | None = None,
    limits: Limits = (),
    *,
    read: LogOptions | None = None,
    limit_horizon: float | None = None,
    method: str = "lp",
    parameters: Mapping[str, float | str] | None = None,
    C: float | None = None,
    B: float | None = None,
    min_count: int | None = None,
    iterations: int | None = None,
    confidence: float | None = None,
    level: float = 0.95,
    resamples: int | None = None,
    refits: int | None = None,
    seed: int = 0,
    frontier: str | None = None,
    explain: str | None = None,
    step: int = 0,
    out: Path | None = None,
    unseen: str = "careful",
    progress: Progress = lambda _: None,
) -> tuple[Result, list[Path]]:
    """Solve a log file, answer what else is asked, and write a folder: the result, whose record has the answers, and
    the files.

    Args:
        log: a file, a pattern with *, or the name of an example.
        gamma: the discount, strictly between 0 and 1; with a horizon 1 unless given.
        limits: on (1−γ)J, or on the totals of an episode with a horizon.
        read: how the log is read.
        limit_horizon: limits are on the discounted total of so many steps of a process that goes on.
        method: of `METHODS`, or of `BASELINES`.
        parameters: of a baseline.
        C, B, min_count, iterations, confidence, level, resamples, refits, seed: see `api.solve`.
        frontier: solve again along a limit, "stockout=0.01:0.1:10".
        explain: a state to explain; at this `step`, with a horizon.
        out: a folder for the policy, its export, the record and pictures.
        unseen: what the exported policy does in states the log never had.
        progress: is told in words what is being done.
    """
    read = read or LogOptions()
    chosen = _limits(limits, limit_horizon, read.horizon)
    given = {"C": C, "B": B, "min_count": min_count, "iterations": iterations}
    _check(method, parameters or {}, gamma, read.horizon, confidence, refits)
    along = None if frontier is None else analysis.parse_frontier(frontier)
    if out is not None and out.exists() and not out.is_dir():
        raise PdocrlError(f"{by_door('out', '--out')} {out} is a file; name a folder.")
    spec = read.spec()
    costs = [*(one.name for one in chosen), *([along[0]] if along else [])]
    counts = read.count(log, costs, spec)
    if method in BASELINES:
        own = {name: value for name, value in given.items() if value is not None} | dict(parameters or {})
        result = _by_baseline(method, counts, gamma, chosen, own, resamples, level, seed, progress)
    else:
        result = solve_counts(
            counts,
            gamma,
            chosen,
            method=method,  # type: ignore[arg-type]  # it was checked
            C=C,
            B=B,
            min_count=min_count,
            iterations=10_000 if iterations is None else iterations,
            resamples=resamples,
            refits=refits,
            level=level,
            confidence=confidence,
            seed=seed,
            progress=progress,
        )
    curve: tuple[Result, ...] = ()
    if along is not None:
        curve = analysis.frontier(counts, result, *along, min(resamples or 50, 50), level, seed, progress)
    others: tuple[Result, ...] = ()
    if spec is not None and spec.cluster is not None and method in METHODS:
        others = analysis.other_clusterings(lambda cells: read.count(log, costs, cells), spec, result, progress)
    alternatives = () if explain is None else analysis.explain(counts, result, explain, step)
    totals = {"value": result.value, **result.record.costs}
    result = analysis.with_advice(result).telling(
        limit_horizon=limit_horizon,
        per_limit_horizon=None if limit_horizon is None else {name: x * limit_horizon for name, x in totals.items()},
        frontier=analysis.frontier_of(curve, along[0]) if along else None,
        explain=list(alternatives) or None,
        explained=explain if explain is None or read.horizon is None else f"{explain}, step {step}",
        clusterings=[OtherClustering(status=one.status, value=one.value, costs=one.record.costs) for one in others]
        or None,
    )
    if out is None:
        return result, []
    files = report.save(result, out, unseen)
    write_record(out / MAP, policy_map(counts, result, curve))
    if result.record.frontier is not None:
        files.append(draw_frontier(result.record.frontier, out / "frontier.png"))
    return result, files


def compare_policies(
    log: str,
    policies: Sequence[Path],
    gamma: float | None = None,
    limits: Limits = (),
    *,
    read: LogOptions | None = None,
    limit_horizon: float | None = None,
    level: float = 0.95,
    out: Path | None = None,
) -> tuple[Comparison, list[Path]]:
    """Stored policies judged by one log, by the cells they were stored with if no others are given.

    Args:
        log: a file, a pattern with *, or the name of an example.
        policies: folders of `solve --out`; the first is the one the others are held against.
        gamma, limits, read, limit_horizon: as for `solve_log`.
        level: of the intervals.
        out: a folder of a solved policy, whose page is to show the comparison.
    """
    read = read or LogOptions()
    chosen = _limits(limits, limit_horizon, read.horizon)
    _check("lp", {}, gamma, read.horizon, None, None)
    if out is not None and out.exists() and not out.is_dir():
        raise PdocrlError(f"{by_door('out', '--out')} {out} is a file; name a folder.")
    found = {str(folder): load_policy(folder) for folder in policies}
    counts = read.count(log, [one.name for one in chosen], read.spec() or analysis.cells_of(found))
    record = analysis.compare(counts, gamma, chosen, found, level)
    return record, [] if out is None else [write_compared(out, record)]


def load_policy(folder: Path, seed: int | None = None) -> TabularPolicy:
    """A stored policy; one line if there is none."""
    try:
        return load(folder, seed)
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = type(error).__name__
        raise PdocrlError(f"{folder}: no policy that `solve` wrote can be read here ({why}).") from None


def _limits(limits: Limits, limit_horizon: float | None, horizon: int | None) -> tuple[Limit, ...]:
    if limit_horizon is not None and horizon is not None:
        raise PdocrlError(
            by_door("horizon is for episodes, limit_horizon", "--horizon is for episodes, --limit-horizon")
            + " for a process that goes on: give one of them."
        )
    return as_limits(limits) if limit_horizon is None else per_step(as_limits(limits), limit_horizon)


def _check(
    method: str,
    parameters: Mapping[str, Any],
    gamma: float | None,
    horizon: int | None,
    confidence: float | None,
    refits: int | None,
) -> None:
    if method not in METHODS and method not in BASELINES:
        raise UnknownNameError("method", method, [*METHODS, *BASELINES])
    baseline = method in BASELINES
    if parameters and not baseline:
        raise PdocrlError(f"{by_door('parameters', '--parameter')} are not for {method}; it has options of its own.")
    if baseline and (confidence is not None or refits is not None):
        way = by_door("confidence and refits", "--confidence and --refits")
        raise PdocrlError(f"{way} learn again by lp; they are not for {method}.")
    if horizon is None and gamma is None:
        raise PdocrlError(
            "how much does the next step count? Give "
            + by_door(
                "gamma, such as 0.97, or horizon for episodes.", "--gamma, such as 0.97, or --horizon for episodes."
            )
        )
    if horizon is None and gamma is not None and not 0 < gamma < 1:
        raise PdocrlError(f"{by_door('gamma', '--gamma')} is {gamma}; it must lie strictly between 0 and 1.")


def _by_baseline(
    method: str,
    counts: Counts,
    gamma: float | None,
    limits: tuple[Limit, ...],
    parameters: Mapping[str, float | str],
    resamples: int | None,
    level: float,
    seed: int,
    progress: Progress,
) -> Result:
    problem, discount = counts.stationary(gamma)
    drawn = 200 if resamples is None else resamples
    result = solve_with(method, problem, discount, limits, parameters, drawn, level, seed, progress)
    return result.of_log(counts, gamma)

"""`pdocrl solve`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import OmitArgPrefixes, Positional, UseAppendAction

from pdocrl import console
from pdocrl.errors import PdocrlError

if TYPE_CHECKING:
    from pdocrl.tabular.workflow import LogOptions


@dataclasses.dataclass(frozen=True)
class Reading:
    """How a log is read."""

    start: str | None = None
    """The state where episodes begin, if the log does not say."""
    absorbing: Literal["unknown", "end"] = "unknown"
    """What follows states that are entered and never acted in: unknown, or the end of the episode."""
    per: Literal["discounted", "step"] = "discounted"
    """Where episodes end and there is no horizon: discounted is (1−γ)J; step is per step taken, one episode following
    the other."""
    limit_horizon: float | None = None
    """Limits are on the discounted total of so many steps of a process that goes on."""
    memory: str = "1GB"
    """Limit for reading the log; beyond it, a temporary folder is used."""
    threads: int | None = None
    """For reading the log; all cores by default."""


@dataclasses.dataclass(frozen=True)
class States:
    """States made of columns, in place of a column `state`."""

    bins: tuple[str, ...] = ()
    """Of these columns: stock=10 (of equal width) age=quantile:5 kind=values."""
    cluster: int | None = None
    """Of so many clusters of the columns given by --cells."""
    cells: tuple[str, ...] = ()
    """The columns to cluster."""


@dataclasses.dataclass(frozen=True)
class Solver:
    """How a finite problem is solved."""

    method: str = "lp"
    """lp is exact; pdocrl and pdorl are the paper's; regret_matching and optimistic converge faster. Others, see
    docs/which-method.md: pdca, wsac, mbcl, pocc, coral, pro_rl, pessimistic, dpdl, mo_spibb, coptidice, plug_in,
    behaviour_cloning; without limits also pspi, atac, a_crab, spibb, soft_spibb, fqi."""
    parameter: tuple[str, ...] = ()
    """Of those others, such as beta=3 step=10."""
    C: float | None = None
    """How many times more often than the log the policy may do anything; chosen from the log if not given."""
    B: float | None = None
    """Bound on the multipliers, where the largest reward and cost are 1; from the log if not given."""
    min_count: int | None = None
    """Rows a state and action must have to be believed; chosen from the log if not given."""
    iterations: int | None = None
    """Of all methods that iterate; 10,000 for the paper's algorithms."""


@dataclasses.dataclass(frozen=True)
class Tails:
    """Limits on the tail of an episode's cost."""

    cost_unit: float | None = None
    """What spending is counted in; costs are rounded up to multiples of it. Exact if not given, where it can be."""


@dataclasses.dataclass(frozen=True)
class Inference:
    """Intervals."""

    level: float = 0.95
    """Of the intervals."""
    resamples: int | None = None
    """Bootstrap resamples for choosing C; 200, or 50 if large; 0 for no intervals."""
    refits: int | None = None
    """Resamples to learn from again, to measure the optimism bias of learning; 20, or 3 if large."""


@dataclasses.dataclass(frozen=True)
class Analysis:
    """What else to ask of the log."""

    frontier: str | None = None
    """Solve again along a limit: stockout=0.01:0.1:10 (from, to, how many)."""
    compare: tuple[Path, ...] = ()
    """Folders of solved policies to judge by this log, instead of solving; --out adds it to a folder's page."""
    step: int = 0
    """The step to explain, with --horizon."""
    unseen: str = "careful"
    """What the exported policy does in states the log never had: careful (of what the log does, what costs least),
    behaviour, uniform, refuse, or an action."""


_STATES, _SOLVER, _READING, _INFERENCE, _ANALYSIS = States(), Solver(), Reading(), Inference(), Analysis()
_TAILS = Tails()


def solve(
    log: Positional[str],
    /,
    gamma: float | None = None,
    limit: UseAppendAction[tuple[tuple[str, ...], ...]] = (),
    horizon: int | None = None,
    confidence: float | None = None,
    state_columns: tuple[str, ...] = (),
    columns: tuple[str, ...] = (),
    explain: str | None = None,
    seed: int = 0,
    out: Path | None = None,
    json: bool = False,
    states: Annotated[States, OmitArgPrefixes] = _STATES,
    solver: Annotated[Solver, OmitArgPrefixes] = _SOLVER,
    reading: Annotated[Reading, OmitArgPrefixes] = _READING,
    inference: Annotated[Inference, OmitArgPrefixes] = _INFERENCE,
    analysis: Annotated[Analysis, OmitArgPrefixes] = _ANALYSIS,
    tails: Annotated[Tails, OmitArgPrefixes] = _TAILS,
) -> None:
    """From a log of decisions to the best policy it supports that satisfies the limits.

    Example: pdocrl solve log.csv --state-columns age lactate ward --limit "cost<=4" --horizon 40 --out policy/

    The log is a Parquet or CSV file. With finite states its columns are state, action, next_state, reward, the limited
    ones, and optionally terminal, initial, episode and step; `inventory` is an example that ships with the package:
    pdocrl solve inventory --gamma 0.97 --limit "stockout<=0.02" "delivery<=0.3". Without a column `state` it is a log
    of columns: action, reward, episode, the limited ones, features of any kind, and optionally step, terminal, decider
    and propensity. For it are the options of the first group alone; the others are for finite states.

    Args:
        log: A file, a pattern with *, or the name of an example.
        gamma: The discount, strictly between 0 and 1; with --horizon it is 1 unless given.
        limit: Such as "cost<=0.1" or "served>=0.95", on (1−γ)J of a column, or on an episode's total with --horizon,
            there also on its tail: "P(cost>20)<=0.05", "CVaR90(cost)<=40"; "max(cost)<=1" is on every step.
        horizon: The most steps an episode has; limits are then on the total of an episode.
        confidence: Such as 0.95: learn on one part of the log, test on the other, return what passes.
        state_columns: Features a policy may look at, in a log of columns; all without a role by default.
        columns: This log's names for columns, such as state=room next_state=then, or action=dose decider=doctor.
        explain: A state; shows what the log did there, what the policy does, and what the alternatives bring. In a log
            of columns ROW.json, or "age=61 ward=north".
        seed: Of everything random.
        out: A folder for policy.parquet, policy.json, act.py (runs it with NumPy alone), result.json and solve.png.
        json: Print one JSON object instead of tables.
    """
    from pdocrl.cli.solve_columns import solve_columns
    from pdocrl.cli.solve_tails import solve_tails
    from pdocrl.limits import as_limits
    from pdocrl.portfolio.entry import solver_for
    from pdocrl.records import as_plain
    from pdocrl.tabular import workflow
    from pdocrl.tabular.io.logs import find_log
    from pdocrl.tabular.result import report, tables

    limits = as_limits([text for group in limit for text in group])
    renamed = dict(_pair(text, "--columns", "state=room") for text in columns)
    made_states = bool(states.bins or states.cluster or analysis.compare)
    kind = solver_for(find_log(log), limits, state_columns, renamed, made_states)
    if kind == "columns":
        _refuse_options_of_finite_states(states, solver, reading, inference, analysis)
        asked = (gamma, limits, horizon, confidence, state_columns, renamed, seed, explain, analysis.step, out, json)
        return solve_columns(log, *asked)
    read = _log_options(reading, states, renamed, horizon)
    if kind == "tails" and not analysis.compare:
        means = {"confidence": confidence, "explain": explain} | _given(inference, analysis, states)
        means |= {name: value for name, value in _given(solver).items() if name != "min_count"}
        return solve_tails(log, read, gamma, limits, solver.min_count, tails.cost_unit, out, json, means)
    with console.stderr.status("reading the log") as status:
        if analysis.compare:
            judged, files = workflow.compare_policies(
                log,
                analysis.compare,
                gamma,
                limits,
                read=read,
                limit_horizon=reading.limit_horizon,
                level=inference.level,
                out=out,
            )
        else:
            own = dataclasses.asdict(solver)
            own["parameters"] = dict(_pair(text, "--parameter", "beta=3") for text in own.pop("parameter"))
            solved, files = workflow.solve_log(
                log,
                gamma,
                limits,
                read=read,
                limit_horizon=reading.limit_horizon,
                **own,
                **dataclasses.asdict(inference),
                confidence=confidence,
                seed=seed,
                frontier=analysis.frontier,
                explain=explain,
                step=analysis.step,
                out=out,
                unseen=analysis.unseen,
                progress=status.update,
            )
    if analysis.compare:
        shown, plain, notes = [tables.compared(judged)], as_plain(judged), [tables.FLATTERED]
    else:
        record = solved.record
        shown, plain, notes = tables.all_of(record), as_plain(record), [*(record.notes or [])]
    if json:
        console.print_json(plain)
    else:
        for table in shown:
            table.show()
    for line in notes:
        console.log(f"note: {line}")
    if not analysis.compare and record.assumptions:
        console.log(f"assumes: {'; '.join(record.assumptions)}.")
    for file in files:
        console.log(f"wrote {file}")
    if not analysis.compare and record.status in {"infeasible", "infeasible_covered"}:
        raise PdocrlError(report.infeasible(solved))


def _given(*groups: Any) -> dict[str, Any]:
    """The options that are not at their defaults."""
    fields = [(group, field) for group in groups for field in dataclasses.fields(group)]
    return {
        field.name: getattr(group, field.name) for group, field in fields if getattr(group, field.name) != field.default
    }


def _refuse_options_of_finite_states(*groups: Any) -> None:
    for name in _given(*groups):
        if name != "step":
            option = f"--{name.replace('_', '-')}"
            raise PdocrlError(f"{option} is for finite states; the log has no column `state`, and no --bins are given.")


def _log_options(reading: Reading, states: States, columns: Mapping[str, str], horizon: int | None) -> LogOptions:
    from pdocrl.tabular.workflow import LogOptions

    own = dataclasses.asdict(reading) | {"absorbing": reading.absorbing == "end"}
    del own["limit_horizon"]  # of the limits
    return LogOptions(columns=columns, horizon=horizon, **own, **dataclasses.asdict(states))


def _pair(text: str, option: str, example: str) -> tuple[str, str]:
    role, equals, name = text.partition("=")
    if not (role and equals and name):
        raise PdocrlError(f"{option} {text!r} is not understood; write it as {example}.")
    return role, name

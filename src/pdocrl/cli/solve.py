"""`pdocrl solve`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tyro.conf import Positional, UseAppendAction

from pdocrl import console
from pdocrl.errors import PdocrlError, UnknownNameError

if TYPE_CHECKING:
    from pdocrl.tabular.counts import Counts
    from pdocrl.tabular.result.policy import TabularPolicy

METHODS = ("lp", "pdocrl", "pdorl", "regret_matching", "optimistic")


def solve(
    log: Positional[str],
    /,
    gamma: float | None = None,
    limit: UseAppendAction[tuple[tuple[str, ...], ...]] = (),
    method: str = "lp",
    parameter: tuple[str, ...] = (),
    C: float | None = None,
    B: float | None = None,
    min_count: int | None = None,
    iterations: int | None = None,
    horizon: int | None = None,
    window: float | None = None,
    per: Literal["discounted", "step"] = "discounted",
    confidence: float | None = None,
    level: float = 0.95,
    resamples: int | None = None,
    refits: int | None = None,
    seed: int = 0,
    start: str | None = None,
    dead_ends: Literal["unknown", "end"] = "unknown",
    state_columns: tuple[str, ...] = (),
    columns: tuple[str, ...] = (),
    bins: tuple[str, ...] = (),
    cluster: int | None = None,
    cells: tuple[str, ...] = (),
    memory: str = "1GB",
    threads: int | None = None,
    frontier: str | None = None,
    compare: tuple[Path, ...] = (),
    explain: str | None = None,
    step: int = 0,
    out: Path | None = None,
    unseen: str = "careful",
    json: bool = False,
) -> None:
    """From a log of decisions to the best policy it supports that satisfies the limits.

    Example: pdocrl solve log.csv --state-columns age lactate ward --limit "cost<=4" --horizon 40 --out policy/

    The log is a Parquet or CSV file. With finite states its columns are state, action, next_state, reward, the limited
    ones, and optionally terminal, initial, episode and step; `inventory` is an example that ships with the package:
    pdocrl solve inventory --gamma 0.97 --limit "stockout<=0.02" "delivery<=0.3". Without a column `state` it is a log
    of columns: action, reward, episode, the limited ones, features of any kind, and optionally step, terminal, decider
    and propensity. Of the options below --gamma, --limit, --horizon, --confidence, --seed, --state-columns, --columns,
    --explain, --step, --out and --json are for it.

    Args:
        log: A file, a pattern with *, or the name of an example.
        gamma: The discount, strictly between 0 and 1; with --horizon it is 1 unless given.
        limit: Such as "cost<=0.1" or "served>=0.95", on the discounted average per step (1−γ)J of a column.
        method: lp is exact; pdocrl and pdorl are the paper's; regret_matching and optimistic converge faster. Others,
            see docs/which-method.md: pdca, wsac, mbcl, pocc, coral, pro_rl, pessimistic, dpdl, mo_spibb,
            coptidice, plug_in, behaviour_cloning; without limits also pspi, atac, a_crab, spibb, soft_spibb, fqi.
        parameter: Of those others, such as beta=3 step=10.
        C: How many times more often than the log the policy may do anything; chosen from the log if not given.
        B: Bound on the multipliers, where the largest reward and cost are 1; from the log if not given.
        min_count: Rows a state and action must have to be believed; chosen from the log if not given.
        iterations: Of all methods that iterate; 10,000 for the paper's algorithms.
        horizon: The most steps an episode has; limits are then on the total of an episode.
        window: Limits are on the discounted average of so many steps.
        per: Where episodes end and there is no horizon: discounted is (1−γ)J, what an episode pays times 1−γ; step is
            per step taken, one episode following the other.
        confidence: Such as 0.95: aim inside the limits until one half of the log clears what the other half learned.
        level: Of the intervals.
        resamples: Redrawn logs for the intervals and for choosing C; 200, or 50 if large; 0 for none.
        refits: Redrawn logs to learn from again, to see by how much learning overrates itself; 20, or 3 if large.
        seed: Of the redrawn logs.
        start: The state where episodes begin, if the log does not say.
        dead_ends: What follows states that are entered and never acted in: unknown, or the end of the episode.
        state_columns: Features a policy may look at, in a log of columns; all without a role by default.
        columns: This log's names for columns, such as state=room next_state=then, or action=dose decider=doctor.
        bins: Make states of these columns: stock=10 (of equal width) age=quantile:5 kind=values.
        cluster: Make states of so many clusters of the columns given by --cells.
        cells: The columns to cluster.
        memory: Limit for reading the log; beyond it, a temporary folder is used.
        threads: For reading the log; all cores by default.
        frontier: Solve again along a limit: stockout=0.01:0.1:10 (from, to, how many).
        compare: Folders of solved policies to judge by this log, instead of solving; --out adds it to a folder's page.
        explain: A state; shows what the log did there, what the policy does, and what the alternatives bring. In a log
            of columns ROW.json, or "age=61 ward=north".
        step: The step to explain, with --horizon.
        out: A folder for policy.parquet, policy.json, act.py (runs it with NumPy alone), result.json and solve.png.
        unseen: What the exported policy does in states the log never had: careful (of what the log does, what costs
            least), behaviour, uniform, refuse, or an action.
        json: Print one JSON object instead of tables.
    """
    from pdocrl.cli.solve_columns import is_for_columns, solve_columns
    from pdocrl.limits import as_limits, per_step
    from pdocrl.records import as_plain, write_record
    from pdocrl.tabular.analysis import questions
    from pdocrl.tabular.analysis.compared_file import compared_file, compared_json, write_compared
    from pdocrl.tabular.analysis.policy_map import FILE as MAP
    from pdocrl.tabular.analysis.policy_map import policy_map
    from pdocrl.tabular.api import Result
    from pdocrl.tabular.api import solve as solve_counts
    from pdocrl.tabular.baselines.on_log import solve_with
    from pdocrl.tabular.baselines.registry import RIVALS
    from pdocrl.tabular.io.cells import CellSpec
    from pdocrl.tabular.io.episodes import weighted
    from pdocrl.tabular.io.logs import count_log, find_log
    from pdocrl.tabular.result import report, tables
    from pdocrl.tabular.result.picture import draw_frontier
    from pdocrl.tabular.result.record import solved_file, with_answers

    limits = as_limits([text for group in limit for text in group])
    renamed = dict(_pair(text, "--columns", "state=room") for text in columns)
    if not (bins or cluster or compare) and is_for_columns(log, state_columns, renamed):
        given = {"--method": method != "lp", "--C": C, "--B": B, "--min-count": min_count, "--window": window}
        given |= {"--frontier": frontier, "--parameter": parameter, "--start": start, "--resamples": resamples}
        unknown = [option for option, value in given.items() if value]
        if unknown:
            raise PdocrlError(
                f"{unknown[0]} is for finite states; the log has no column `state`, and no --bins are given."
            )
        asked = (gamma, limits, horizon, confidence, state_columns, renamed, seed, explain, step, out, json)
        return solve_columns(log, *asked)
    if window is not None and horizon is not None:
        raise PdocrlError("--horizon is for episodes, --window for a process that goes on: give one of them.")
    if window is not None:
        limits = per_step(limits, window)
    if method not in METHODS and method not in RIVALS:
        raise UnknownNameError("method", method, [*METHODS, *RIVALS])
    if parameter and (method not in RIVALS or method == "pdocrl"):
        raise PdocrlError(f"--parameter is not for {method}; it has options of its own.")
    if horizon is None and gamma is None:
        raise PdocrlError("how much does the next step count? Give --gamma, such as 0.97, or --horizon for episodes.")
    if horizon is None and gamma is not None and not 0 < gamma < 1:
        raise PdocrlError(f"--gamma is {gamma}; it must lie strictly between 0 and 1.")
    along = None if frontier is None else questions.parse_frontier(frontier)
    if out is not None and out.exists() and not out.is_dir():
        raise PdocrlError(f"--out {out} is a file; name a folder.")
    with console.stderr.status("reading the log") as status:
        spec = CellSpec.parse(bins, cluster, cells)

        def counted(cells: CellSpec | None) -> Counts:
            found = count_log(
                find_log(log),
                costs=list(dict.fromkeys([*(one.name for one in limits), *([along[0]] if along else [])])),
                start=start,
                columns=renamed,
                memory=memory,
                threads=threads,
                horizon=horizon,
                cells=cells,
            )
            found = found.ending_in(found.dead_ends) if dead_ends == "end" else found
            return found.going_on() if per == "step" else found

        counts = counted(spec)
        if compare:
            policies = {str(folder): _policy(folder) for folder in compare}
            judged = questions.compare(counts, gamma, limits, policies, level)
            found = compared_file(judged, limits, level)
            if out is not None:
                console.log(f"wrote {write_compared(out, found)}")
            if json:
                return console.print_json(compared_json(judged, limits))
            tables.compared(found).show()
            return console.log(f"note: {tables.FLATTERED}")
        if method in RIVALS and method != "pdocrl":
            if confidence is not None or refits is not None:
                raise PdocrlError(f"--confidence and --refits learn again by lp; they are not for {method}.")
            own = {"C": C, "B": B, "min_count": min_count, "iterations": iterations}
            given: dict[str, float | str] = {name: value for name, value in own.items() if value is not None}
            given |= dict(_pair(text, "--parameter", "beta=3") for text in parameter)
            redrawn = 200 if resamples is None else resamples
            rate = 1.0 if gamma is None else gamma
            problem, discount = (counts, rate) if counts.horizon is None else weighted(counts, rate)
            result = solve_with(method, problem, discount, limits, given, redrawn, level, seed, status.update)
            if counts.horizon is not None:
                result = dataclasses.replace(result, gamma=rate, unit="episode")
        else:
            result = solve_counts(
                counts,
                gamma,
                limits,
                method=method,  # type: ignore[arg-type]  # it is checked there
                C=C,
                B=B,
                min_count=min_count,
                iterations=10_000 if iterations is None else iterations,
                resamples=resamples,
                refits=refits,
                level=level,
                confidence=confidence,
                seed=seed,
                progress=status.update,
            )
        curve: tuple[Result, ...] = ()
        if along is not None:
            curve = questions.frontier(counts, result, *along, min(resamples or 50, 50), level, seed, status.update)
        others: tuple[Result, ...] = ()
        if spec is not None and spec.cluster is not None and method in METHODS:
            others = questions.other_clusterings(counted, spec, result, status.update)
    alternatives = () if explain is None else questions.explain(counts, result, explain, step)
    needs = questions.more_data(counts, result)
    column = along[0] if along else ""
    state = explain if explain is None or horizon is None else f"{explain}, step {step}"
    answers = (curve, column, alternatives, result, needs, state, others)
    record = with_answers(solved_file(result, window), *answers)
    files = report.save(result, out, window, unseen, counts.cells, record) if out is not None else []
    if out is not None:
        write_record(out / MAP, policy_map(counts, result, curve))
    if out is not None and record.frontier is not None:
        files.append(draw_frontier(record.frontier, out / "frontier.png"))
    if json:
        console.print_json(as_plain(record))
    else:
        tables.outcome(record).show()
        tables.trust(record).show()
        if record.choices:
            tables.choices(record).show()
        if record.clusterings:
            tables.clusterings(record).show()
        if record.frontier is not None:
            tables.frontier(record.frontier).show()
        if record.explain:
            tables.explained(record.explain, str(state)).show()
    for line in report.notes(result, counts):
        console.log(f"note: {line}")
    if record.assumptions:
        console.log(f"assumes: {'; '.join(record.assumptions)}.")
    for one, cost in zip(result.limits, result.costs, strict=True):
        if result.method not in METHODS and one.sign * (cost - one.value) < -1e-7:
            console.log(f"note: {result.method}'s policy misses {one}: in the log's own model it is {cost:.4g}.")
    for file in files:
        console.log(f"wrote {file}")
    if result.status in {"infeasible", "infeasible_covered"}:
        raise PdocrlError(report.infeasible(result))


def _policy(folder: Path) -> TabularPolicy:
    from pdocrl.tabular.result.policy import load

    try:
        return load(folder)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PdocrlError(f"{folder}: no policy of `solve --out` can be read here ({type(error).__name__}).") from None


def _pair(text: str, option: str, example: str) -> tuple[str, str]:
    role, equals, name = text.partition("=")
    if not (role and equals and name):
        raise PdocrlError(f"{option} {text!r} is not understood; write it as {example}.")
    return role, name

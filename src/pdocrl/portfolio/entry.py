"""`pdocrl.solve`: counts, a log of states, or a log of columns, each to its own solver."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pdocrl.data.action_grid import with_labels
from pdocrl.data.event_log import EventLog
from pdocrl.data.named_columns import SampledFiles, column_names
from pdocrl.errors import DataError, PdocrlError, did_you_mean
from pdocrl.limits import Limits, as_limits

if TYPE_CHECKING:
    from pdocrl.portfolio.fit import Portfolio
    from pdocrl.tabular import Counts, Result
    from pdocrl.tabular.tails import TailResult

MOST_ROWS = 200_000  # read of a log of columns; beyond, episodes are drawn at random
OPTIONAL = ("step", "terminal", "decider", "propensity")  # roles that a column of that name takes by itself
COST = "cost"


def solve(
    data: Any,
    gamma: float | None = None,
    limits: Limits = (),
    *,
    state_columns: Sequence[str] | None = None,
    horizon: int | None = None,
    confidence: float | None = None,
    columns: Mapping[str, str] | None = None,
    max_rows: int = MOST_ROWS,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> Portfolio | Result | TailResult:
    """From a log to the best policy it supports under the limits.

    A log of *columns* has features instead of states: it is read with names, and several learners are judged on
    held-out episodes (`pdocrl.portfolio`). A log with a column `state`, `Counts` and a `Lagrangian` are solved exactly
    (`pdocrl.tabular`).

    Args:
        data: a Parquet or CSV file (several, a folder, a pattern), the name of an example, a DataFrame, a dict of
            arrays, an `EventLog`, `Counts` or a `Lagrangian`.
        gamma: the discount. For a log of columns values are then (1−γ) Σ_t γ^t x_t of an episode.
        limits: such as ["cost<=4"] or {"cost": 4}; with a horizon on the mean total of an episode, and where states
            are finite also on its tail, such as "P(cost>4)<=0.05" (`pdocrl.tabular.tails`).
        state_columns: what the policy may look at. By default, where there is no column `state`, all columns without a
            role, less those that name rows.
        horizon: the most steps an episode has; for a log of columns the longest episode if gamma is not given either.
        confidence: such as 0.95: return a policy that is shown within every limit, if there is one.
        columns: the log's names for roles: {"action": "dose", "episode": "patient", "decider": "doctor"}. Several
            decisions at once: {"action": "dose+rate"}. Amounts are replaced by the nearest of a few (`action_grid`).
        max_rows: of a log of columns that are read; of larger files whole episodes are drawn at random.
        seed: of everything random.
        progress: is told in words what is being done.
        options: of `pdocrl.tabular.solve`, for finite states.
    """
    from pdocrl.tabular import Counts, Lagrangian
    from pdocrl.tabular import solve as solve_counts
    from pdocrl.tabular.analysis import with_advice

    common: dict[str, Any] = {"confidence": confidence, "seed": seed, "progress": progress}
    if isinstance(data, Counts) and any(limit.tail for limit in as_limits(limits)):
        return _solve_tails(data, limits, gamma, confidence, progress, options)
    if isinstance(data, Counts | Lagrangian):
        return with_advice(solve_counts(data, gamma, limits, **common, **options))
    if isinstance(data, str):
        from pdocrl.tabular.io.logs import find_log

        data = find_log(data)
    chosen = as_limits(limits)
    kind = solver_for(data, chosen, state_columns, columns)
    if kind != "columns":
        counts = _counts(data, list(dict.fromkeys(one.name for one in chosen)), horizon, dict(columns or {}))
        if kind == "tails":
            return _solve_tails(counts, chosen, gamma, confidence, progress, options)
        return with_advice(solve_counts(counts, gamma, chosen, **common, **options))
    if options:
        raise PdocrlError(f"{next(iter(options))} is for logs with finite states, not for a log of columns.")
    from pdocrl.portfolio.fit import fit

    total: int | None = None
    notes: list[str] = []
    if not isinstance(data, EventLog):
        data, total, notes = read(data, [one.name for one in chosen], state_columns, columns, max_rows)
    return fit(
        data,
        chosen,
        horizon=horizon,
        gamma=gamma,
        confidence=confidence,
        seed=seed,
        rows_in_source=total,
        notes=notes,
        progress=progress,
    )


def _solve_tails(
    counts: Counts,
    limits: Limits,
    gamma: float | None,
    confidence: float | None,
    progress: Callable[[str], None],
    options: dict[str, Any],
) -> TailResult:
    from pdocrl.tabular.tails import solve_tails

    if confidence is not None:
        raise PdocrlError(
            "a confidence is for limits on means; with a limit on a tail, judge the policy with `certify`."
        )
    for option in options:
        if option not in {"min_count", "unit"}:
            raise PdocrlError(f"{option} is for limits on means, not for a limit on a tail.")
    return solve_tails(counts, limits, gamma, progress=progress, **options)


def solver_for(
    data: Any,
    limits: Limits = (),
    state_columns: Sequence[str] | None = None,
    columns: Mapping[str, str] | None = None,
    made_states: bool = False,
) -> Literal["columns", "states", "tails"]:
    """What solves a log: the portfolio of learners, or the finite problem under limits on means, or also on tails.

    Args:
        data: as for `solve`.
        limits: as for `solve`.
        state_columns: as for `solve`; with them a log is one of columns.
        columns: the log's names for roles.
        made_states: whether states are made of columns, so that a log without a column `state` has them, too.
    """
    if not made_states and (isinstance(data, EventLog) or state_columns or not has_states(data, columns)):
        return "columns"
    return "tails" if any(limit.tail for limit in as_limits(limits)) else "states"


def has_states(data: Any, columns: Mapping[str, str] | None = None) -> bool:
    """Whether a log names its states: then it is solved exactly."""
    names = column_names(data)
    return (columns or {}).get("state", "state") in names


def read(
    data: Any,
    limited: Sequence[str],
    state_columns: Sequence[str] | None = None,
    columns: Mapping[str, str] | None = None,
    max_rows: int = MOST_ROWS,
) -> tuple[EventLog, int | None, list[str]]:
    """A log of columns, the rows of its source where only a sample was read, and notes.

    Roles are taken by the columns `action`, `reward`, `episode` and, where they are there and no state column, `step`,
    `terminal`, `decider` and `propensity`; `columns` gives other names.
    """
    names = column_names(data)
    roles = dict(columns or {})
    for role in roles:
        if role not in {"action", "reward", "episode", *OPTIONAL}:
            raise PdocrlError(f"columns: {role!r} is no role of a log of columns.")
    for role in OPTIONAL:
        if role in names and role not in (state_columns or ()):
            roles.setdefault(role, role)
    known = {"action": "action", "reward": "reward", "episode": "episode", **roles}
    costs = [c for c in names if c == COST or c.startswith(f"{COST}_")]
    costs = [c for c in dict.fromkeys([*limited, *costs]) if c not in (state_columns or ()) and c not in known.values()]
    source, total = data, None
    notes: list[str] = []
    if isinstance(data, str | os.PathLike | list | tuple):
        source = SampledFiles.of(data, known["episode"], max_rows)
        if source.share < 1:
            total = source.total
            notes.append(f"learned and judged on whole episodes drawn at random from {total:,} rows")
    source, more = with_labels(source, known["action"])
    if more and "propensity" in known:
        del known["propensity"]
        more.append("`propensity` is left out, being that of the exact amount, and estimated")
    notes += more
    log = EventLog.read(source, costs=costs, columns=state_columns, **known)
    if "terminal" not in known:
        notes.append("no column `terminal`: every episode is taken to be recorded to its end")
    if log.ignored:
        left_out = ", ".join(f"`{one}`" for one in log.ignored)
        notes.append(
            f"left out: {left_out} (names of rows or episodes, or the next row's values; name state columns to keep)"
        )
    outcomes = [one.name for one in log.columns if one.name in limited]
    if outcomes:
        raise DataError(f"{log.name}: column `{outcomes[0]}` is limited, so it is an outcome and no state column.")
    return log, total, notes


def _counts(data: Any, costs: Sequence[str], horizon: int | None, columns: dict[str, str]) -> Any:
    from pdocrl.tabular import Counts, count_log

    if isinstance(data, str | os.PathLike | list | tuple):
        found = data if isinstance(data, str | list | tuple) else os.fspath(data)
        return count_log(found, costs=list(costs), columns=columns, horizon=horizon)
    roles = ("state", "action", "next_state", "reward")
    for name in (*(columns.get(role, role) for role in roles), *costs):
        if name not in data:
            there = [str(one) for one in column_names(data)]
            raise DataError(f"the log has no column `{name}`.{did_you_mean(name, there)} It has {', '.join(there)}.")
    table = {role: data[columns.get(role, role)] for role in roles}
    more = {name: data[columns.get(name, name)] for name in ("terminal", "initial", "episode", "step") if name in data}
    return Counts.from_arrays(**table, costs={name: data[name] for name in costs} or None, horizon=horizon, **more)

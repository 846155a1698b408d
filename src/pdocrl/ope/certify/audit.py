"""Statements from episodes that were played: a file of them, or a simulator that stops as soon as the answer is there.

See `pdocrl.evaluation.audit` for the bounds. Here they get words. A file is Parquet or CSV, a row an episode, with a
column `cost` or one per constraint, `cost_*`; a column `run` says which run of a training played the episode.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from pdocrl.errors import DataError, PdocrlError
from pdocrl.evaluation.audit import Audit, audit, mean_lower, verdict_of
from pdocrl.evaluation.tails import LimitScore, score_limit
from pdocrl.limits import Limit
from pdocrl.ope.certify.certificate import Statement, Verdict, percent

Floats = NDArray[np.float64]
INTEGERS = {f"{u}{size}INT" for u in ("", "U") for size in ("TINY", "SMALL", "BIG", "HUGE")} | {"INTEGER", "UINTEGER"}
NUMBERS = INTEGERS | {"FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN"}
FIRST, GROWTH = 10, 1.25  # episodes before the first look, and how the number grows from look to look
UNSTATED = (
    "nobody stated what an episode can cost at most (largest_cost=…, --largest-cost), so nothing bounds the mean from "
    "above"
)


def largest_possible(costs: Floats, stated: float | None, logged: float | None = None) -> tuple[float | None, str]:
    """What an episode can cost at most, and who says so; None where nobody does.

    Somebody who knows; else a log, whose costliest step at every step is `logged`. No sample tells: one episode in a
    thousand may cost a million.
    """
    if stated is not None:
        return stated, f"no episode can cost more than {stated:g}"
    if logged is not None and costs.max(initial=0.0) <= logged:
        return logged, f"no episode can cost more than {logged:g}: the costliest logged step at every step"
    return None, UNSTATED


def audit_statement(
    costs: Floats,
    limit: float,
    confidence: float,
    largest: float | None,
    logged: float | None = None,
    *,
    policy: str,
    cost: str = "cost",
    basis: Literal["audit", "simulator"] = "audit",
    stopped: bool = False,
    estimate_beside: float | None = None,
) -> Statement:
    """What the costs [n] show. `stopped`: the number of episodes was not fixed beforehand.

    `largest` is what an episode can cost at most, `logged` what a log says of that; see `largest_possible`. Without
    either there is no upper bound on the mean, while that on the share over the limit stands.
    """
    most, bound = largest_possible(costs, largest, logged)
    found = audit(costs, limit, confidence, most)
    share = found.share_over_upper_anytime if stopped else found.share_over_upper
    verdict: Verdict = "cannot be shown" if found.verdict == "not shown" else found.verdict
    return Statement(
        policy=policy,
        cost=cost,
        cost_limit=limit,
        verdict=verdict,
        confidence=confidence,
        basis=basis,
        sentence=_sentence(found, share, confidence),
        assumption=f"The episodes are independent and of the kind the policy will meet; {bound}.",
        mean_cost=found.mean_cost,
        mean_cost_lower=found.mean_cost_lower,
        mean_cost_upper=found.mean_cost_upper,
        share_over=found.over / found.episodes,
        share_over_upper=share,
        episodes=found.episodes,
        episodes_needed=found.episodes_needed,
        largest_cost=most,
        estimate_beside=estimate_beside,
    )


def _sentence(found: Audit, share: float, confidence: float) -> str:
    sure, limit = f"we are {percent(confidence)} sure that an episode costs", f"{found.limit:g}"
    seen = f"{found.episodes} episodes cost {found.mean_cost:.3g} on average, {found.over} of them more than {limit}"
    if found.verdict == "within":
        told = f"Satisfies its limit: {sure} at most {found.mean_cost_upper:.3g} on average"
    elif found.verdict == "over":
        told = f"Violates its limit: {sure} at least {found.mean_cost_lower:.3g} on average"
    elif found.mean_cost_upper is None:
        told = (
            "Cannot be shown to satisfy its limit on the mean: the largest cost an episode can have was not stated "
            "(largest_cost=…, --largest-cost), and without it no number of episodes excludes rare disasters"
        )
    else:
        needed = found.episodes_needed
        more = (
            f"about {needed} episodes like these would show it within"
            if needed is not None
            else "no number of episodes like these would show it within"
        )
        told = f"Cannot be shown to satisfy its limit: the mean may be as high as {found.mean_cost_upper:.3g}; {more}"
    tail = f" At most {100 * share:.3g} % of episodes cost more than {limit}, again at {percent(confidence)}."
    return f"{told} ({seen}).{tail if share < 0.995 else ''}"


def limit_statement(
    costs: Floats,
    limit: Limit,
    confidence: float,
    largest: float | None,
    logged: float | None = None,
    *,
    policy: str,
    basis: Literal["audit", "simulator"] = "audit",
) -> Statement:
    """What the costs [n] of a number of episodes fixed beforehand show of a limit on their mean or tail."""
    if limit.measure == "max":
        raise PdocrlError(f"limit {limit}: episodes hold sums of costs; give P({limit.name}>…)<=… instead.")
    budget = limit.value if limit.threshold is None else limit.threshold
    most, bound = largest_possible(costs, largest, logged)
    found = score_limit(limit, costs, confidence, most)
    mean = audit_statement(costs, max(budget, 0.0), confidence, largest, logged, policy=policy, cost=limit.name)
    sure = f"we are {percent(confidence)} sure that {limit.left} is"
    told = {
        "within": f"Satisfies {limit}: {sure} {_end(limit, found, limit.sense == '<=')}",
        "over": f"Violates {limit}: {sure} {_end(limit, found, limit.sense != '<=')}",
        "not shown": f"Cannot be shown to satisfy {limit}: {_reach(limit, found)}",
    }[found.verdict]
    assumed = "" if limit.threshold is not None else f"; {bound}"
    return msgspec.structs.replace(
        mean,
        basis=basis,
        verdict="cannot be shown" if found.verdict == "not shown" else found.verdict,
        sentence=f"{told} ({found.value:.3g} in {found.episodes} episodes).",
        assumption=f"The episodes are independent and of the kind the policy will meet{assumed}.",
        episodes_needed=None,
        limit=found,
    )


def _end(limit: Limit, found: LimitScore, upper: bool) -> str:
    bound = found.upper if upper else found.lower
    return f"{'at most' if upper else 'at least'} {bound:.3g}"


def _reach(limit: Limit, found: LimitScore) -> str:
    if limit.sense == ">=":
        return f"{limit.left} may be as low as {found.lower:.3g}"
    if found.upper is None:
        return "the largest cost an episode can have was not stated (largest_cost=…, --largest-cost)"
    return f"{limit.left} may be as high as {found.upper:.3g}"


def play_until_shown(
    play: Callable[[int, int], Floats],
    episodes: int,
    limits: Sequence[float],
    confidence: float,
    largest: Sequence[float | None],
    fixed: bool = False,
    logged: Sequence[float | None] | None = None,
) -> Floats:
    """Costs [n, K] of at most `episodes` episodes; `play(first, count)` gives the next [count, K].

    The bound of the mean holds at every look, so looking and stopping cost no confidence.
    """
    if episodes < 1:
        raise PdocrlError(f"episodes is {episodes}, must be at least 1.")
    costs = np.zeros((0, len(limits)))
    target = episodes if fixed else min(FIRST, episodes)
    while True:
        costs = np.concatenate([costs, play(len(costs), target - len(costs))])
        verdicts = []
        for k, limit in enumerate(limits):
            most, _ = largest_possible(costs[:, k], largest[k], logged[k] if logged else None)
            if most is None:
                verdicts.append("over" if mean_lower(costs[:, k], confidence) > limit else "not shown")
            else:
                verdicts.append(verdict_of(costs[:, k], limit, most, confidence))
        if len(costs) >= episodes or "over" in verdicts or set(verdicts) == {"within"}:
            return costs
        target = min(episodes, max(len(costs) + 1, int(np.ceil(len(costs) * GROWTH))))


@dataclasses.dataclass(frozen=True, eq=False)
class Audited:
    """Costs of n episodes."""

    name: str
    costs: dict[str, NDArray[np.float64]]  # by constraint, [n] each
    run: NDArray[np.float64] | None = None  # [n] which run played


def read_audit(path: Path) -> Audited:
    """Read the costs; anything that is not a finite number of at least 0 is named with its row."""
    import duckdb

    if not path.is_file():
        raise DataError(f"{path}: no such file. Give a Parquet or CSV file with a row an episode and a column `cost`.")
    readers = {".parquet": "read_parquet", ".pq": "read_parquet", ".csv": "read_csv", ".tsv": "read_csv"}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{path}: files of episodes are .parquet or .csv, not `{path.suffix or path.name}`.")
    try:
        with duckdb.connect() as connection:
            table = connection.sql(f"SELECT * FROM {reader}(?)", params=[str(path)])
            kinds = dict(zip(table.columns, map(str, table.types), strict=True))
            found = table.fetchnumpy()
    except duckdb.Error as error:
        raise DataError(f"{path}: cannot be read ({' '.join(str(error).split())[:200]}).") from error
    names = ["cost"] if "cost" in kinds else [name for name in kinds if name.startswith("cost_")]
    if not names:
        listed = ", ".join(f"`{name}`" for name in list(kinds)[:8]) or "none"
        raise DataError(f"{path}: no column `cost` or `cost_*`; its columns are {listed}.")
    columns = {name: _numbers(path, name, found[name], kinds[name]) for name in [*names, *({"run"} & kinds.keys())]}
    run = columns.pop("run", None)
    return Audited(path.name, columns, run)


def _numbers(path: Path, name: str, column: NDArray[Any], kind: str) -> NDArray[np.float64]:
    """A column of finite numbers of at least 0."""
    if len(column) == 0:
        raise DataError(f"{path}: no episodes.")
    if kind.partition("(")[0] not in NUMBERS:
        raise DataError(f"{path}: `{name}` {_not_a_number(column, kind)}, expected a number for each episode.")
    values = np.ma.filled(np.ma.asarray(column).astype(np.float64), np.nan)
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(wrong):
        shown = "empty" if np.ma.getmaskarray(np.ma.asarray(column))[wrong[0]] else f"{values[wrong[0]]:g}"
        rule = "runs are numbered from 0" if name == "run" else "costs are finite and at least 0"
        raise DataError(f"{path}: `{name}` of episode {wrong[0] + 1} is {shown}; {rule}.")
    return values


def _not_a_number(column: NDArray[Any], kind: str) -> str:
    """What is wrong with a column that does not hold numbers: the first value that is none, where there is one."""
    for row, value in enumerate(np.ma.asarray(column)):
        try:
            float(value)
        except (TypeError, ValueError):
            return f"of episode {row + 1} is {str(value)[:40]!r}"
    return f"holds {kind.lower()}"

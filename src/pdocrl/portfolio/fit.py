"""From a log of named columns to a policy: learn candidates on one part, judge them on the other, choose, explain.

log ─▶ part A ─▶ candidates          (clones, fitted Q under the limits, cells)
    └▶ part B ─▶ known answers ─▶ held-out estimates ─▶ choice ─▶ record, policy
"""

from __future__ import annotations

import functools
import html
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pdocrl.approximate.boosting import MOST_ACTIONS, check_installed, threads
from pdocrl.approximate.rows import Rows
from pdocrl.data.encoding import Encoding
from pdocrl.data.event_log import EventLog
from pdocrl.errors import DataError, PdocrlError, UnknownNameError, by_door
from pdocrl.limits import Limit, Limits, as_limits
from pdocrl.ope.diagnostics import copied_episodes
from pdocrl.ope.estimators.linear import basis
from pdocrl.policies.row_policy import RowPolicy
from pdocrl.portfolio import explain, export, history, tables
from pdocrl.portfolio.candidates import BEHAVIOUR, Candidate, Learner
from pdocrl.portfolio.choose import Choice, choose, testable, verdict
from pdocrl.portfolio.deciders import completed_totals, view
from pdocrl.portfolio.heldout import TESTING, Bench
from pdocrl.portfolio.record import CandidateFound, HeldOut, SolvedLog

SHARE = 0.5  # of the episodes that learn
FEWEST_EPISODES = 20


class Portfolio:
    """What `solve` returns for a log of columns: the record, the policy, and the log to explain it with."""

    def __init__(
        self,
        record: SolvedLog,
        candidates: Mapping[str, Candidate],
        learner: Learner,
        rows: Rows,
        second: Callable[[str], dict[str, HeldOut] | None],
        tested: Mapping[str, Mapping[str, HeldOut]],
    ) -> None:
        self.record = record
        self.candidates = candidates
        self.learner, self.second, self.tested, self._rows = learner, second, tested, rows

    @property
    def policy(self) -> RowPolicy:
        """The one that was chosen: `policy.act({column: value}, step)`."""
        return self._candidate.policy

    @property
    def _candidate(self) -> Candidate:
        return self.candidates[self.record.chosen]

    def __repr__(self) -> str:
        return f"Portfolio({self.record.chosen}: {self.record.status}; {self.record.why})"

    def _repr_html_(self) -> str:
        shown = [tables.policy(self.record), tables.candidates(self.record)]
        return f"<p>{html.escape(self.summary())}</p>" + "".join(table.notebook() for table in shown)

    def frontier(self, signal: str = "reward") -> list[dict[str, float | str]]:
        """Held-out estimates of every candidate, by a rising signal: {"name", "reward", costs …}."""
        rows: list[dict[str, float | str]] = [
            {"name": one.name, **{signal: held.value for signal, held in one.held_out.items()}}
            for one in self.record.candidates
        ]
        if rows and signal not in rows[0]:
            raise UnknownNameError("signal", signal, [name for name in rows[0] if name != "name"])
        return sorted(rows, key=lambda row: float(row[signal]))

    def summary(self) -> str:
        """The result in one paragraph."""
        return explain.summary(self.record)

    def explain(self, row: dict[str, Any], step: int | None = None, similar: int = 5) -> explain.RowExplanation:
        """For one row: the policy's choice, predicted consequences of every action, and similar logged cases."""
        return explain.row(self.learner, self._candidate, self._rows, row, step, similar)

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write policy.json, models.npz, act.py and portfolio.json into a new folder."""
        return export.save(Path(folder), self.record, self._candidate)


def fit(
    log: EventLog,
    limits: Limits = (),
    *,
    horizon: int | None = None,
    gamma: float | None = None,
    confidence: float | None = None,
    seed: int = 0,
    rows_in_source: int | None = None,
    notes: Sequence[str] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> Portfolio:
    """Learn, judge and choose.

    Args:
        log: decisions with named columns (`EventLog.read`).
        limits: on the mean total of an episode, such as ["cost<=4"].
        horizon: the most steps an episode has; the longest of the log if neither it nor gamma is given.
        gamma: totals are then (1−γ) Σ_t γ^t x_t, and episodes may be of any length.
        confidence: such as 0.95: return a policy that is shown within every limit, tested on held-out episodes.
        seed: of the split into parts and of the learners.
        rows_in_source: rows before a sample was drawn.
        notes: to be kept in the record.
        progress: is told in words what is being done.
    """
    check_installed()
    chosen = _checked(log, as_limits(limits), horizon, gamma, confidence)
    with threads(len(log)):
        return _fit(log, chosen, horizon, gamma, confidence, seed, rows_in_source, notes, progress)


def _fit(
    log: EventLog,
    chosen: tuple[Limit, ...],
    horizon: int | None,
    gamma: float | None,
    confidence: float | None,
    seed: int,
    rows_in_source: int | None,
    notes: Sequence[str],
    progress: Callable[[str], None],
) -> Portfolio:
    began = time.monotonic()
    factor = 1.0 if gamma is None else 1 - gamma
    on_totals = [msgspec.structs.replace(one, value=one.value / factor) for one in chosen]
    rows = Rows.of(log, Encoding.fit(log.columns), on_totals, 1.0 if gamma is None else gamma, horizon)
    features = basis(rows.log, rows.timed)
    totals = completed_totals(rows, features, seed)
    fold = rows.log.folds(seed, SHARE)
    here = (fold == 1)[rows.log.episode]
    held_out = int((fold == 1).sum())
    learner = Learner(rows.episodes(fold == 0), Encoding.fit(log.columns), features[~here], held_out, seed, progress)
    candidates = learner.learn()
    held_rows = rows.episodes(fold == 1)
    bench = Bench.of(held_rows, learner, features[here], totals[:, fold == 1], seed, progress)
    held: dict[str, dict[str, HeldOut]] = {}
    tested: dict[str, dict[str, HeldOut]] = {}
    for one in candidates:
        progress(f"judging {one.name} on held-out episodes")
        if one.name == BEHAVIOUR and len(learner.deciders) < 2:
            held[one.name] = tested[one.name] = bench.everyone()
        else:
            held[one.name], tested[one.name] = bench.judge(one.policy.chances(held_rows.x), one.decider)
    by_name = {one.name: one for one in candidates}

    @functools.cache
    def second(name: str) -> dict[str, HeldOut] | None:
        if all(one.estimator in TESTING for one in held[name].values()):
            return None
        progress(f"a second opinion of {name}")
        return bench.second_opinion(by_name[name].policy.chances(held_rows.x))

    copies = copied_episodes(log)
    order: list[str] = []
    if confidence is not None and on_totals and not never_seen(rows) and not copies:
        order = learner.sequence(testable(candidates, tested, on_totals))
    for one in candidates:  # nobody learned a decider: all own episodes count, but in a test only those held out
        if one.decider is not None and learner.own_episodes_tell:
            held[one.name] = bench.own_episodes(rows, totals, one.decider)
            by_name[one.name] = learner.cloned_from_all(one, rows)
    choice = choose(candidates, held, on_totals, confidence, order, second, tested)
    best = by_name[choice.name]
    progress("explaining the policy")
    surrogate = explain.surrogate(learner, best, bench)
    record = SolvedLog(
        log=log.name,
        rows=len(log) if rows_in_source is None else rows_in_source,
        used=len(log),
        episodes=len(rows.starts),
        cut_short=int((~rows.complete).sum()),
        columns=[column.name for column in log.columns],
        ignored=list(log.ignored),
        actions=[str(action) for action in log.actions],
        unit=unit_words(rows.horizon, gamma),
        limits=[str(one) for one in chosen],
        confidence=confidence,
        seed=seed,
        chosen=choice.name,
        status=choice.status,
        why=choice.why,
        logged={s: float(factor * rows.sense[j] * totals[j].mean()) for j, s in enumerate(bench.signals)},
        deciders=view(rows, totals, chosen, factor),
        candidates=[_found(one, held[one.name], chosen, on_totals, choice, rows, factor) for one in candidates],
        validation=[
            msgspec.structs.replace(
                one, predicted=factor * one.predicted, realised=factor * one.realised, error=factor * one.error
            )
            for one in bench.validation
        ],
        importance=explain.importance(best, held_rows, seed),
        surrogate=None
        if surrogate is None
        else msgspec.structs.replace(surrogate, held_out={s: scaled(x, factor) for s, x in surrogate.held_out.items()}),
        assumptions=_assumptions(rows, confidence, bool(bench.validation)),
        notes=[*notes, *_notes(rows, learner, copies)],
        seconds=time.monotonic() - began,
    )
    return Portfolio(record, by_name, learner, rows, second, tested)


def unit_words(horizon: int, gamma: float | None) -> str:
    """What every value of the record is."""
    if gamma is None:
        return f"total of an episode of at most {horizon} steps"
    return f"(1−γ) times the discounted total of an episode, γ = {gamma:g}"


def scaled(one: HeldOut, factor: float) -> HeldOut:
    """In the record's unit."""
    seldom = None if one.seldom is None else (*one.seldom[:2], factor * one.seldom[2])
    return msgspec.structs.replace(one, value=factor * one.value, error=factor * one.error, seldom=seldom)


def _found(
    one: Candidate,
    held: dict[str, HeldOut],
    limits: Sequence[Limit],
    on_totals: Sequence[Limit],
    choice: Choice,
    rows: Rows,
    factor: float,
) -> CandidateFound:
    names = ["reward", *rows.names]
    second = choice.second.get(one.name)
    believed = None
    if one.believed is not None:
        believed = {s: float(factor * rows.sense[j] * one.believed[j]) for j, s in enumerate(names)}
    return CandidateFound(
        name=one.name,
        what=one.what,
        held_out={signal: scaled(x, factor) for signal, x in held.items()},
        believed=believed,
        second=None if second is None else {signal: factor * x.value for signal, x in second.items()},
        limits={
            str(a): verdict(held[a.name], b, one.name in choice.shown) for a, b in zip(limits, on_totals, strict=True)
        },
    )


def _checked(
    log: EventLog, limits: tuple[Limit, ...], horizon: int | None, gamma: float | None, confidence: float | None
) -> tuple[Limit, ...]:
    if horizon is not None and gamma is not None:
        raise PdocrlError("give horizon (limits on totals of episodes) or gamma (on discounted averages), not both.")
    if gamma is not None and not 0 < gamma < 1:
        raise PdocrlError(f"gamma is {gamma:g}; it must lie strictly between 0 and 1.")
    if horizon is not None and horizon < 1:
        raise PdocrlError(f"horizon is {horizon}; it must be at least 1.")
    if confidence is not None and not 0.5 <= confidence < 1:
        raise PdocrlError(f"confidence is {confidence:g}; give a number from 0.5 to below 1, such as 0.95.")
    for one in limits:
        if one.tail:
            raise PdocrlError(f"limit {one}: for a log of columns limits are on means, such as {one.name}<=4.")
        if one.name not in log.costs:
            raise DataError(f"{log.name}: the limit {one} names no cost column of the log.")
    if len({one.name for one in limits}) < len(limits):
        raise PdocrlError("two limits on one column: for a log of columns give one of them.")
    if not log.columns:
        raise DataError(
            f"{log.name}: no column to decide by; name some with {by_door('state_columns', '--state-columns')}."
        )
    if len(log.actions) < 2:
        raise DataError(f"{log.name}: every row has the action {log.actions[0]!r}; there is nothing to choose.")
    if len(log.actions) > MOST_ACTIONS:
        raise DataError(
            f"{log.name}: {len(log.actions)} different actions, such as {log.actions[0]!r}; at most {MOST_ACTIONS} can "
            "be learned. Merge rare ones, or give parts of a vector as columns: "
            + by_door("columns={'action': 'dose+rate'}.", "--columns action=dose+rate.")
        )
    if len(log.episodes) < FEWEST_EPISODES:
        raise DataError(
            f"{log.name}: {len(log.episodes)} episodes; at least {FEWEST_EPISODES} are needed to learn and to judge."
        )
    return limits


def _assumptions(rows: Rows, confidence: float | None, validated: bool) -> list[str]:
    found = [
        "whoever decided knew no more than the state columns: nothing else led to both decisions and outcomes",
        "the process that was logged is the one the policy will meet",
        "episodes are independent of one another, and none is a copy of another",
        "what is estimated by density ratios: the state columns tell all that matters of the past (Markov)",
    ]
    if any(rows.log.deciders):
        found.append("a clone of a decider decides as the decider does")
    if confidence is not None and not validated:
        found.append("estimators could not be tried on known answers: too few episodes of two or more deciders")
    return found


def never_seen(rows: Rows) -> list[str]:
    """Limited columns that are 0 in every row: how much they can be, no log without any can tell."""
    return [name for j, name in enumerate(rows.names) if not np.any(rows.signals[1 + j])]


def _notes(rows: Rows, learner: Learner, copies: int) -> list[str]:
    found = []
    if copies:
        found.append(f"{copies} of {len(rows.starts)} episodes are copies of others: remove them; nothing is shown")
    if learner.deciders and not history.one_decider_each(rows):
        found.append(
            "some episodes were handed over from one decider to another and are nobody's own; deciders are judged "
            "by importance weights, not by the episodes that are left"
        )
    if learner.by_first_rows:
        found.append(
            "who decides an episode can be told from its first row: means of a decider's own episodes are of those "
            "alone; candidates are weighted to the first rows of all"
        )
    cut = int((~rows.complete).sum())
    if cut:
        found.append(
            f"{cut} of {len(rows.starts)} episodes were cut short; what was not recorded is predicted, not free"
        )
    for name in never_seen(rows):
        found.append(f"`{name}` is 0 in every row: how much it could be, no log without any can tell; nothing is shown")
    return found

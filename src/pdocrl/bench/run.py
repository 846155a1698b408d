"""`bench`: a suite from its plan to its rows. Finished work is never redone, so the same call goes on after a stop.

suite ─▶ plan ─▶ engine (groups trained and played) ─▶ rows; `pdocrl.report` makes tables and the page from them
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pdocrl.bench import local
from pdocrl.bench.group import know_task, look, read_data, rows_of
from pdocrl.bench.rates import Rates
from pdocrl.bench.results import SUITE, GroupStatus, Row, read_suite, write_rows, write_status, write_suite
from pdocrl.bench.suite import Group, Suite
from pdocrl.bench.suite_file import find_suite
from pdocrl.console import log
from pdocrl.errors import PdocrlError, PdocrlInterrupted, by_door
from pdocrl.records import as_plain
from pdocrl.table import DASH, Table

Engine = Literal["local", "ray"]
WORTH_MEASURING = 50_000  # steps of all runs of a group: below, compiling to measure would cost as much as the work


@dataclasses.dataclass(frozen=True)
class Selection:
    """What of a suite to do now, where and how."""

    out: Path
    data: Path | None = None  # folder with dataset files
    agents: tuple[str, ...] = ()  # names of agents or methods; all without any
    tasks: tuple[str, ...] = ()
    train: bool = True
    evaluate: bool = True
    engine: Engine = "local"
    ray_address: str | None = None  # of a cluster; None starts one on this machine


@dataclasses.dataclass(frozen=True)
class Planned:
    """A group before the work: how far it is, and how long the rest may take."""

    group: Group
    status: GroupStatus
    train_seconds: float | None  # None: nothing to train, or not known
    play_seconds: float | None

    def has_work(self, selection: Selection) -> bool:
        waiting, trained = self.status.status == "waiting", self.status.status == "trained"
        playable = selection.evaluate and self.group.task.env_id is not None
        return (waiting and selection.train) or (trained and playable)


@dataclasses.dataclass(frozen=True)
class BenchPlan:
    """The chosen groups of a suite, before the work."""

    suite: Suite
    selection: Selection
    groups: tuple[Planned, ...]
    rates: Rates  # which the work adds to

    @property
    def to_do(self) -> list[Group]:
        return [planned.group for planned in self.groups if planned.has_work(self.selection)]

    @property
    def is_timed(self) -> bool:
        """Whether the time of everything left to do is known."""
        return not any(
            (planned.train_seconds is None and planned.status.status == "waiting")
            or (planned.play_seconds is None and self.selection.evaluate and planned.group.task.env_id is not None)
            for planned in self.groups
            if planned.has_work(self.selection)
        )

    @property
    def seconds(self) -> float:
        """Of what is known."""
        return sum(s for planned in self.groups for s in (planned.train_seconds, planned.play_seconds) if s is not None)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        groups = [
            {
                **dataclasses.asdict(p.status),
                "steps": p.group.steps,
                "train_seconds": p.train_seconds,
                "play_seconds": p.play_seconds,
            }
            for p in self.groups
        ]
        return {"suite": as_plain(self.suite.record), "out": str(self.selection.out), "groups": groups}


@dataclasses.dataclass(frozen=True, repr=False)
class Done:
    """What came of it."""

    plan: BenchPlan
    statuses: list[GroupStatus]  # of every group of the suite
    rows: list[Row]
    incomplete: list[GroupStatus]  # groups that were asked for and are not where they should be

    def as_dict(self) -> dict[str, Any]:
        """For JSON: how far each group is."""
        return {**self.plan.as_dict(), "groups": [dataclasses.asdict(status) for status in self.statuses]}

    def table(self) -> Table:
        """Means of all episodes of every task, method and limit; scores and intervals are in the page."""
        cells: dict[tuple[str, str, str], list[Row]] = {}
        for row in self.rows:
            method = f"{row.agent} ({row.variant})" if row.variant else row.agent
            limit = row.limits or ", ".join(f"{x:g}" for x in row.cost_limit) or DASH
            cells.setdefault((row.task, method, limit), []).append(row)
        heads = ["task", "method", "cost limit", "episodes", "reward", "cost"]
        lines = []
        for place, rows in cells.items():
            costs = [f"{sum(x) / len(rows):.4g}" for x in zip(*(row.cost for row in rows), strict=True)]
            reward = f"{sum(row.reward for row in rows) / len(rows):.4g}"
            lines.append([*place, len(rows), reward, ", ".join(costs) or DASH])
        return Table.of(heads, lines, f"{self.plan.suite.name}: means of episodes", "bench")

    def summary(self) -> str:
        """The table and what is not complete, as text."""
        return "\n".join([self.table().markdown(), *self._notes()])

    def __repr__(self) -> str:
        done = sum(status.status == "done" for status in self.statuses)
        return f"Done({self.plan.suite.name}: {done} of {len(self.statuses)} groups, {len(self.rows):,} episodes)"

    def _repr_html_(self) -> str:
        return self.table().notebook(self._notes())

    def _notes(self) -> list[str]:
        told = [f"{one.name}: {one.status}{': ' + one.reason if one.reason else ''}" for one in self.incomplete]
        return [*told, f"`pdocrl.report({str(self.plan.selection.out)!r})` writes scores, intervals and the page."]


def run_suite(
    suite: str,
    out: str | os.PathLike[str] | None = None,
    *,
    data: str | os.PathLike[str] | None = None,
    agents: Sequence[str] = (),
    tasks: Sequence[str] = (),
    train: bool = True,
    evaluate: bool = True,
    engine: Engine = "local",
) -> Done:
    """Train and play the groups of a suite that are not done yet; `Done.rows` holds one row per episode.

    Args:
        suite: a name of `pdocrl bench --help`, or a TOML file. It may name agents given as classes in this process.
        out: folder of the results; default: runs/bench-<suite>.
        data: folder with the dataset files.
        agents: only these of the suite.
        tasks: only these of the suite.
        train: whether to train what is not trained.
        evaluate: whether to play what is not played.
        engine: on this machine, or on a Ray cluster.
    """
    chosen = find_suite(suite)
    folder = Path(f"runs/bench-{chosen.name}" if out is None else out)
    place = None if data is None else Path(data)
    selection = Selection(folder, place, tuple(agents), tuple(tasks), train, evaluate, engine)
    return bench(make_plan(chosen, selection, Rates(), measure=False))


def make_plan(suite: Suite, selection: Selection, rates: Rates, measure: bool = True) -> BenchPlan:
    """How far every chosen group is, and how long the rest may take; unknown speeds of long work are measured."""
    planned, tried = [], set[str]()
    groups = suite.groups(selection.agents, selection.tasks)
    for group in groups:
        know_task(group)
    joined = (
        local.multi_task_batches(groups, selection.out, selection.data)
        if selection.train and selection.engine == "local"
        else []
    )
    batched = {group.name: len(those) for those in joined for group in those}  # groups that train as one program
    for group in groups:
        together = batched.get(group.name, 1)
        status = look(group, selection.out, selection.data)
        training = status.status == "waiting" and selection.train
        playing = (training or status.status == "trained") and selection.evaluate and group.task.env_id is not None
        long = group.steps * group.runs >= WORTH_MEASURING
        if measure and long and training and rates.training(group, together) is None and group.method.name not in tried:
            tried.add(group.method.name)
            log(f"measuring how fast {group.method.name} trains here …")
            with _not_known_if_it_fails():
                rates.measure_training(group, read_data(group, selection.data), together)
        if measure and long and playing and not rates.knows_playing(group) and group.task.name not in tried:
            tried.add(group.task.name)
            with _not_known_if_it_fails():
                rates.measure_playing(group)
        planned.append(
            Planned(
                group,
                status,
                rates.training(group, together) if training else None,
                rates.playing(group) if playing else None,
            )
        )
    return BenchPlan(suite, selection, tuple(planned), rates)


def bench(plan: BenchPlan) -> Done:
    """Do what the plan leaves to do, then write the results of all groups there are."""
    suite, selection, folder = plan.suite, plan.selection, plan.selection.out
    _refuse_another(suite, folder)
    write_suite(folder, suite.record)
    reported = {planned.status.name: planned.status for planned in plan.groups}
    groups = plan.to_do
    work = local.Work(groups, folder, selection.data, selection.train, selection.evaluate)

    def report(status: GroupStatus) -> None:
        reported[status.name] = status

    try:
        if groups and selection.engine == "ray":
            from pdocrl.bench import on_ray

            on_ray.run(work, report, selection.ray_address)
        elif groups:
            local.run(work, report, plan.rates)
    except (KeyboardInterrupt, PdocrlInterrupted):
        write_outcome(suite, selection, reported)
        raise PdocrlInterrupted("interrupted. The same command goes on where it stopped.") from None
    statuses, rows = write_outcome(suite, selection, reported)
    chosen = {planned.group.name: planned.group for planned in plan.groups}
    short = [s for s in statuses if s.name in chosen and not _is_complete(s, chosen[s.name], selection)]
    return Done(plan, statuses, rows, short)


def write_outcome(
    suite: Suite, selection: Selection, reported: dict[str, GroupStatus]
) -> tuple[list[GroupStatus], list[Row]]:
    """status.json and results, from every group of the suite that is on disk, whoever made it."""
    statuses, rows = [], []
    for group in suite.groups():
        know_task(group)
        status = look(group, selection.out, selection.data)
        told = reported.get(group.name, status)
        # What lies on disk is believed first; a failure just seen explains why it is no further.
        statuses.append(told if told.status == "failed" and status.status != "done" else status)
        if status.status == "done":
            rows += rows_of(group, selection.out)
    write_status(selection.out, statuses)
    write_rows(selection.out, rows)
    return statuses, rows


def _is_complete(status: GroupStatus, group: Group, selection: Selection) -> bool:
    playable = selection.evaluate and group.task.env_id is not None
    return status.status == "done" or (status.status == "trained" and not playable)


def _refuse_another(suite: Suite, folder: Path) -> None:
    """One folder, one suite. Its groups are checked one by one, so a suite may grow or be split between machines."""
    if (folder / SUITE).exists():
        name = read_suite(folder).name
        if name != suite.name:
            raise PdocrlError(
                f"{folder}: holds suite {name}, not {suite.name}. Choose another {by_door('out=…', '--out')}."
            )
    if folder.exists() and not folder.is_dir():
        raise PdocrlError(f"{os.fspath(folder)}: not a folder. Choose another {by_door('out=…', '--out')}.")


@contextlib.contextmanager
def _not_known_if_it_fails() -> Iterator[None]:
    """Why a speed cannot be measured, the group itself will tell when its turn comes."""
    try:
        yield
    except PdocrlInterrupted:
        raise
    except Exception as error:
        log(f"not measured: {local.reason_of(error)}")

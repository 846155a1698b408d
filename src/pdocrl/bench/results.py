"""What a benchmark folder holds, and the tidy table every figure and number is made from: one row per episode.

OUT/suite.json       the resolved suite: name, protocol, tasks, agents, limits, seeds, steps, episodes
OUT/status.json      how far each group is: {groups: [{name, task, agent, variant, runs, status, reason}]}
OUT/groups/NAME/     one training folder per agent (with its variant) and task: run.json, policies.npz, scores.json, …
OUT/results.parquet  the rows below, of `make_rows`; OUT/results.csv the same as text
OUT/tables/          *.md and *.tex, made from the rows by `pdocrl.report`

    rows = read_rows("runs/bench-paper")
    {row.method for row in rows}, rows[0].normalized_reward

A row knows its training, because runs that share one are not independent. In the files `cost_limit`, `trained_limit`
and `cost` are one column each when no task has more than one constraint; otherwise they are `cost_limit_1 …` and
`cost_1 …`, empty where a task has fewer. What is not known is empty.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from msgspec import field

from pdocrl.agents.registry import find_agent
from pdocrl.data.tasks import Task
from pdocrl.errors import PdocrlError
from pdocrl.evaluation.evaluate import Scores
from pdocrl.evaluation.score import EpisodeScore, RunScore, limits_asked, method_name, score_run
from pdocrl.evaluation.tails import score_limit
from pdocrl.files import atomic_path
from pdocrl.limits import Limit
from pdocrl.provenance import UNKNOWN, in_words
from pdocrl.records import Part, Record, read_record, write_record
from pdocrl.training.config import TrainingConfig

SUITE = "suite.json"
STATUS = "status.json"
GROUPS = "groups"
PARQUET = "results.parquet"
CSV = "results.csv"

# missing: no data; waiting: neither trained nor failed yet; trained: no scores yet; done: scored; failed: see reason
Status = Literal["missing", "waiting", "trained", "done", "failed"]


@dataclasses.dataclass(frozen=True)
class Row:
    """One episode of one trained policy."""

    suite: str
    protocol: str  # whose limits, seeds and episodes these are, or "custom"
    task: str
    agent: str
    variant: str  # tells settings of one agent apart; "" for its defaults
    cost_limit: tuple[float, ...]  # [K] allowed undiscounted cost per episode, as asked when playing
    seed: int  # of the training run
    training: int  # of one task and method; runs of one number share it and differ in the limit they are asked for
    trained_limit: tuple[float, ...]  # [K] the limit of that training
    step: int  # gradient steps behind the policy
    episode: int  # 0, 1, …; the same number starts the same way for every policy of a task
    reward: float  # undiscounted
    cost: tuple[float, ...]  # [K] undiscounted
    length: int
    normalized_reward: float
    normalized_cost: float  # cost over limit, of the worst constraint; 0 without constraints
    failure: str | None  # why the training of this run stopped early, if it did; its policy is the last whole one
    config_digest: str  # over the agent's full settings (defaults too), horizon and steps; limit and seed left out
    data_digest: str
    data: str  # name of the file
    recollected: bool | None  # not the task's published file; None where none is published
    train_seconds: float | None  # in the training loop, for all runs of the group together
    pdocrl: str  # versions that trained it
    jax: str
    numpy: str
    commit: str  # of the source that trained it; "unknown": rows of 0.2, which did not record it
    packages: str  # the others a training depends on, "equinox 0.13.8, optax 0.2.8"
    machine: str  # that trained it
    played: str  # what played it: commit, packages, machine
    limits: str = ""  # limits that it was asked to satisfy where one is on a tail, "P(cost>20)<=0.1"; "": on means

    @property
    def method(self) -> str:
        """Agent and variant in one word, as tables and folders name it."""
        return method_name(self.agent, self.variant)


FIELDS = tuple(field.name for field in dataclasses.fields(Row))
_VECTORS = ("cost_limit", "trained_limit", "cost")
_REMEDY = "Give the folder that `pdocrl bench` wrote; the same command writes it again."
_LATER = ("training", "trained_limit")  # not in files of 0.1, where every run counts as a training of its own
_LATEST = {"commit": UNKNOWN, "packages": "", "machine": "", "played": "", "limits": ""}  # not in files of 0.2


@dataclasses.dataclass(frozen=True)
class GroupStatus:
    """One line of status.json."""

    name: str  # of the folder under groups/
    task: str
    agent: str
    variant: str
    runs: int
    status: Status
    reason: str = ""  # of missing and failed: what happened, and what to do


class SuiteTask(Part, frozen=True, kw_only=True):
    """A task with its data, as a suite resolved it."""

    task: Task
    data: str | None  # a file the suite itself names
    cost_limits: list[list[float | str]]


class SuiteMethod(Part, frozen=True, kw_only=True):
    """An agent with settings, as a suite resolved it."""

    agent: str
    variant: str
    settings: dict[str, object]
    steps: int
    seeds: dict[str, list[int]] = field(default_factory=dict)  # by task, where they are not the suite's
    tasks: list[str] = field(default_factory=list)  # it is trained on; all of the suite's without any


class SuiteFile(Record, frozen=True, kw_only=True):
    """What suite.json holds: everything that decides a benchmark's numbers, but for the data's bytes and versions."""

    FORMAT: ClassVar[int] = 2
    name: str
    kind: Literal["control", "tabular"]  # tabular: folders of version 0.2
    about: str = ""
    protocol: str = "custom"
    cost_limits: list[list[float | str]] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    steps: int = 0
    episodes: int = 0
    tasks: list[SuiteTask] = field(default_factory=list)
    agents: list[SuiteMethod] = field(default_factory=list)
    figures: dict[str, int] = field(default_factory=dict)  # of version 0.2's tabular suite


class StatusFile(Record, frozen=True, kw_only=True):
    """What status.json holds."""

    FORMAT: ClassVar[int] = 2
    groups: list[GroupStatus]


def write_rows(folder: str | os.PathLike[str], rows: Sequence[Row]) -> None:
    """results.parquet and results.csv, each whole or not at all."""
    import pyarrow
    import pyarrow.parquet

    flat = _flatten(rows)
    kinds = {"str": pyarrow.string(), "int": pyarrow.int64(), "float": pyarrow.float64(), "bool": pyarrow.bool_()}
    types = {
        field.name: kinds[str(field.type).split(" ")[0].split("[")[0].replace("tuple", "float")]
        for field in dataclasses.fields(Row)
    }
    columns = {name: pyarrow.array(values, types[_field(name)]) for name, values in flat.items()}
    with atomic_path(Path(folder) / PARQUET) as path:
        pyarrow.parquet.write_table(pyarrow.table(columns), path, compression="zstd")
    with atomic_path(Path(folder) / CSV) as path, path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(flat)
        writer.writerows(zip(*flat.values(), strict=True))


def read_rows(folder: str | os.PathLike[str]) -> list[Row]:
    """The rows of a benchmark folder, in the order of its groups, runs and episodes."""
    import pyarrow
    import pyarrow.parquet

    path = Path(folder) / PARQUET
    try:
        columns: dict[str, list[Any]] = pyarrow.parquet.ParquetFile(path).read().to_pydict()
    except FileNotFoundError:
        raise PdocrlError(f"{folder}: no {PARQUET} here; give the folder that `pdocrl bench` wrote.") from None
    except (pyarrow.ArrowException, OSError) as error:
        raise PdocrlError(f"{path}: cannot be read ({error}). `pdocrl bench` writes it again.") from error
    there = {_field(column) for column in columns}
    missing = [name for name in FIELDS if name not in there and name not in (*_LATER, *_LATEST)]
    if missing:
        raise PdocrlError(f"{path}: has no column `{missing[0]}`. `pdocrl bench` of this version writes it again.")
    vectors = {name: [c for c in columns if _field(c) == name] for name in _VECTORS}
    numbers: dict[tuple[object, ...], int] = {}  # of the runs of an older file
    found = []
    for i in range(len(columns["suite"])):
        values = {name: columns[name][i] for name in FIELDS if name in columns and name not in _VECTORS}
        for name, parts in vectors.items():
            values[name] = tuple(columns[part][i] for part in parts if columns[part][i] is not None)
        if not there >= set(_LATER):
            run = (values["task"], values["agent"], values["variant"], values["cost_limit"], values["seed"])
            values |= {"training": numbers.setdefault(run, len(numbers)), "trained_limit": values["cost_limit"]}
        found.append(Row(**_LATEST | values))
    return found


def read_suite(folder: str | os.PathLike[str]) -> SuiteFile:
    """The resolved suite a folder was made with."""
    return read_record(Path(folder) / SUITE, SuiteFile, _REMEDY)


def write_suite(folder: str | os.PathLike[str], suite: SuiteFile) -> None:
    """suite.json, whole or not at all."""
    write_record(Path(folder) / SUITE, suite)


def read_status(folder: str | os.PathLike[str]) -> list[GroupStatus]:
    """How far each group of a folder is."""
    return read_record(Path(folder) / STATUS, StatusFile, _REMEDY).groups


def write_status(folder: str | os.PathLike[str], groups: Sequence[GroupStatus]) -> None:
    """status.json, whole or not at all."""
    write_record(Path(folder) / STATUS, StatusFile(groups=list(groups)))


def _flatten(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """{column: values} with one column per constraint."""
    constraints = max((len(row.cost_limit) for row in rows), default=1)
    flat: dict[str, list[Any]] = {}
    for name in FIELDS:
        values = [getattr(row, name) for row in rows]
        if name not in _VECTORS:
            flat[name] = values
        elif constraints <= 1:
            flat[name] = [value[0] if value else None for value in values]
        else:
            for k in range(constraints):
                flat[f"{name}_{k + 1}"] = [value[k] if k < len(value) else None for value in values]
    return flat


def _field(column: str) -> str:
    """The field a column belongs to: `cost_limit_2` → `cost_limit`."""
    stem, _, number = column.rpartition("_")
    return stem if stem in _VECTORS and number.isdigit() else column


def make_rows(
    plan: TrainingConfig,
    scores: Scores,
    task: Task,
    *,
    suite: str,
    protocol: str,
    variant: str,
    seconds: float | None,
    episodes: int | None = None,
) -> list[Row]:
    """The episodes of every run, the first `episodes` of each; `variant` tells settings of one agent apart."""
    digests = _digests(plan)
    name = scores.data.name
    played = scores.played
    others = {package: number for package, number in plan.versions.items() if package not in ("pdocrl", "jax", "numpy")}
    return [
        Row(
            suite=suite,
            protocol=protocol,
            task=task.name,
            agent=plan.agent,
            variant="-".join(filter(None, (variant, asked))),
            cost_limit=tuple(run.cost_limit),
            seed=run.seed,
            training=run.training,
            trained_limit=tuple(run.trained_limit),
            step=scores.step,
            episode=i,
            reward=episode.reward,
            cost=tuple(episode.cost),
            length=episode.length,
            normalized_reward=episode.normalized_reward,
            normalized_cost=episode.normalized_cost,
            failure=run.failure,
            config_digest=digests[run.run],
            data_digest=plan.data_digest,
            data=name,
            recollected=name not in task.files if task.files else None,
            train_seconds=seconds,
            pdocrl=plan.versions.get("pdocrl", UNKNOWN),
            jax=plan.versions.get("jax", UNKNOWN),
            numpy=plan.versions.get("numpy", UNKNOWN),
            commit=plan.commit,
            packages=in_words(others),
            machine=plan.machine,
            played="" if played is None else f"{played.commit}; {in_words(played.versions)}; {played.machine}",
            limits=asked,
        )
        for run in scores.runs
        for asked in [", ".join(limits_asked(run.settings))]
        for i, episode in enumerate(run.episodes[:episodes])
    ]


def make_runs(rows: Iterable[Row]) -> list[RunScore]:
    """Rows by the policy that played them, as `evaluate` scores it; a run's episodes in the rows' order."""
    found: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        found.setdefault((row.task, row.method, row.cost_limit, row.seed), []).append(row)
    return [_run_of(own) for own in found.values()]


def _run_of(rows: Sequence[Row]) -> RunScore:
    row, costs = rows[0], [own.cost for own in rows]
    if len({own.episode for own in rows}) < len(rows):
        told = f"{row.method} on {row.task} at limit {row.cost_limit}, seed {row.seed}"
        raise PdocrlError(f"{told}: an episode stands twice and cannot be averaged.")
    asked = [Limit.parse(text) for text in row.limits.split(", ") if text]
    # Rows hold no costs of steps, so that `max` is left out; nor the names of several costs.
    scored = [one for one in asked if one.measure != "max"] if len(row.cost_limit) == 1 else []
    return score_run(
        [
            EpisodeScore(
                seed=None,
                reward=own.reward,
                cost=list(own.cost),
                length=own.length,
                normalized_reward=own.normalized_reward,
                normalized_cost=own.normalized_cost,
            )
            for own in rows
        ],
        row.cost_limit,
        [score_limit(one, [cost[0] for cost in costs]) for one in scored],
        task=row.task,
        agent=row.agent,
        variant=row.variant,
        run=row.training,
        training=row.training,
        trained_limit=list(row.trained_limit),
        seed=row.seed,
        settings={"limits": [str(one) for one in asked]} if asked else {},
        failure=row.failure,
    )


def plain_settings(config: Any) -> dict[str, Any]:
    """Every field of a config, as JSON would have it; 1 and 1.0 are the same."""

    def plain(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [plain(v) for v in value]
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else value

    return {field.name: plain(getattr(config, field.name)) for field in dataclasses.fields(config)}


def config_digest(agent: str, steps: int, config: Any) -> str:
    """Over everything that decides a training but for its data, limit and seed."""
    kept = {key: value for key, value in plain_settings(config).items() if key != "cost_limit"}
    metadata = {"agent": agent, "steps": steps, "settings": kept}
    return hashlib.sha256(json.dumps(metadata, sort_keys=True).encode()).hexdigest()


def _digests(plan: TrainingConfig) -> list[str]:
    """Of each run: over the agent's full settings; "" for an agent that is not installed here."""
    try:
        runs = plan.make_runs(find_agent(plan.agent))
    except PdocrlError:
        return [""] * len(plan.runs)
    return [config_digest(plan.agent, plan.steps, run.config) for run in runs]

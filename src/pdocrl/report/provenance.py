"""Where the numbers come from: what was run, for how long, on which data, what failed; the commands that repeat it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from pdocrl.bench.results import GROUPS, Row
from pdocrl.bench.suite import named_suites
from pdocrl.errors import PdocrlError
from pdocrl.evaluation.score import limit_name
from pdocrl.report.record import Results, Training
from pdocrl.table import DASH, Belongs, Table, Text
from pdocrl.training.config import TrainingConfig
from pdocrl.training.folder import train_seconds

FULL = 100_000  # steps in the paper

Facts = dict[str, str]  # name → what is known; what is empty is left out


def what_was_run(record: Results) -> Facts:
    """The facts that hold for all."""
    if record.alone:
        return _what_was_run_alone(record)
    seconds = sum(row.train_seconds or 0.0 for row in _first_rows(record).values())
    return {
        "Suite": ": ".join(text for text in (record.suite.name, record.suite.about) if text),
        "Protocol": _listed(row.protocol for row in record.rows),
        "Cost limits": "; ".join(record.limits),
        "Seeds": _listed(row.seed for row in record.rows),
        "Steps": _listed(f"{row.step:,}" for row in record.rows),
        "Episodes": f"{len(record.rows):,} in the simulator, of each policy's last checkpoint" if record.rows else "",
        "Training": f"{_duration(seconds)} in the training loops, added up" if seconds else "",
        "Versions": _listed(f"pdocrl {row.pdocrl}, jax {row.jax}, numpy {row.numpy}" for row in record.rows),
    }


def _what_was_run_alone(record: Results) -> Facts:
    trained = record.trained
    assert trained is not None
    plan, dataset = trained.config, record.dataset
    data = Path(plan.data).name
    if dataset is not None:
        data += f", {dataset.n_episodes:,} episodes, {len(dataset):,} transitions"
    if record.embedded:
        data += ". Re-collected data that ships with the package, not DSRL's file: "
        data += "scores do not compare with published ones"
    limits = _listed(f"limit {limit_name(run['cost_limit'])}" if run["cost_limit"] else "no limit" for run in plan.runs)
    seconds = _duration(train_seconds(trained.metrics) or 0.0)
    return {
        "Agent": _agent(plan.agent),
        "Data": data,
        "Data digest": plan.data_digest,
        "Runs": f"{len(plan.runs)}: {limits}; seed {_listed(run['seed'] for run in plan.runs)}",
        "Steps": f"{trained.step:,} of {plan.steps:,} in {seconds} of training"
        + (f"; a full training has {FULL:,}" if plan.steps < FULL else ""),
        "Settings": _changed(plan),
        "Score": _scale(record),
        "Versions": ", ".join(f"{name} {number}" for name, number in plan.versions.items()),
    }


def _agent(name: str) -> str:
    from pdocrl.agents.registry import find_agent

    try:
        agent = find_agent(name)
    except PdocrlError:  # a plug-in that is not installed here
        return name
    return f"{name}: {agent.summary} ({agent.paper})"


def _changed(plan: TrainingConfig) -> str:
    """The settings that were changed, beside the agent's own; the rest are its defaults."""
    from pdocrl.agents.base import describe_config
    from pdocrl.agents.registry import find_agent

    if not plan.settings:
        return "the agent's defaults"
    try:
        defaults = {field["name"]: field["default"] for field in describe_config(find_agent(plan.agent).Config)}
    except PdocrlError:
        defaults = {}
    changed = [
        f"{name} {word(value)}" + (f" (default {word(defaults[name])})" if name in defaults else "")
        for name, value in plan.settings.items()
    ]
    return ", ".join(changed) + "; all others are the agent's defaults"


def _scale(record: Results) -> str:
    task = record.task(record.tasks[0])
    if task is None:
        return ""
    protocol = "" if record.scores is None else f"; protocol {record.scores.protocol}"
    low, high = task.reward_min, task.reward_max
    return f"reward 0 is a return of {low:,.1f}, reward 1 is {high:,.1f} (the task's reference scores){protocol}"


def trainings(record: Results) -> Table:
    """A line per training."""
    firsts = _first_rows(record)
    body, belongs = [], []
    for training in record.trainings:
        row, status = firsts.get((training.task, training.method)), training.status
        seconds = None if row is None else row.train_seconds
        settings = f"{_settings(training)} {row.config_digest[:12] if row else ''}".strip()
        body.append(
            (
                Text(training.method, series=None if record.by_limit else record.methods.index(training.method)),
                Text(training.task),
                Text(status.status),
                Text(str(status.runs)),
                Text(DASH, value="") if row is None else Text(f"{row.step:,}", value=row.step),
                Text(DASH, value="") if seconds is None else Text(_duration(seconds), value=seconds),
                Text(settings),
            )
        )
        belongs.append((("method", training.method), ("task", training.task)))
    heads = ("Method", "Task", "Status", "Runs", "Steps", "Training", "Settings")
    note = (
        "Training: time in the loop for all runs of the line together. Settings: those that were changed, and the "
        "digest of all."
    )
    return Table("", "What was run", tuple(("", h) for h in heads), tuple(body), (note,), row_belongs=tuple(belongs))


def _settings(training: Training) -> str:
    """Those that were changed; the rest are the agent's defaults."""
    if training.plan is None:
        return DASH
    return ", ".join(f"{name} {word(value)}" for name, value in training.plan.settings.items()) or "defaults"


def data(record: Results) -> Table:
    """A line per file: what it is called, its digest, and whether it is the published one."""
    kind = {True: "re-collected", False: "the published file", None: "no file is published"}
    files = {(row.task, row.data_digest): row for row in record.rows}
    body = [
        (Text(task), Text(row.data), Text(kind[row.recollected], "safe" if row.recollected else ""), Text(digest))
        for (task, digest), row in files.items()
    ]
    belongs: list[Belongs] = [(("task", task),) for task, _ in files]
    heads = ("Task", "File", "Which", "Digest")
    note = "The digest is over the arrays, not the file: pdocrl data info prints it."
    return Table("", "Data", tuple(("", h) for h in heads), tuple(body), (note,), row_belongs=tuple(belongs))


def what_failed(record: Results) -> list[tuple[str, str, dict[str, str]]]:
    """Groups without scores and runs that broke off: whose, why, and what they belong to. Empty when all went well."""
    broken = {
        (row.task, row.method, row.cost_limit, row.seed): row.failure for row in record.rows if row.failure is not None
    }
    said: dict[tuple[str, str], list[str]] = {}  # (task, what happened) → to which methods
    for training in record.trainings:
        status, place = training.status, (training.task, training.method)
        for (*whose, limit, seed), why in broken.items():
            if tuple(whose) == place:
                text = (
                    f"run of limit {limit_name(limit)}, seed {seed} stopped at {why}; scored with its last whole policy"
                )
                said.setdefault((training.task, text), []).append(training.method)
        if status.status != "done":
            text = f"{status.status}: {status.reason or 'not there yet; `pdocrl bench` goes on where it stopped'}"
            said.setdefault((training.task, text), []).append(training.method)
    found = []
    for (task, text), methods in said.items():
        whose_ = "every method" if len(methods) == len(record.methods) > 1 else ", ".join(methods)
        belongs = {"task": task} | ({"method": methods[0]} if len(methods) == 1 else {})
        found.append((f"{whose_} on {task}", text.rstrip("."), belongs))
    return found


def commands(record: Results) -> tuple[str, str]:
    """The command lines that repeat all of it, and each training of a benchmark for itself."""
    folder = shlex.quote(record.folder.name)
    if record.trained is not None:
        lines = [train_command(record.trained.config, folder)]
        if record.scores is not None:
            lines.append(f"pdocrl evaluate {folder} --episodes {len(record.scores.runs[0].episodes)}{_asked(record)}")
        if record.trainings[0].ope is not None:
            lines.append(f"pdocrl ope {folder}")
        return "\n".join([*lines, f"pdocrl report {folder}"]), ""
    name = record.suite.name
    # A suite of one's own is a file; where it lies is not recorded.
    suite = name if name in named_suites() else f"{name}.toml"
    whole = f"{shlex.join(['pdocrl', 'bench', suite, *_data_folder(record)])} --out {folder}\npdocrl report {folder}"
    single = "\n".join(
        train_command(training.plan, f"{folder}/{GROUPS}/{shlex.quote(training.status.name)}")
        for training in record.trainings
        if training.plan is not None
    )
    return whole, single


def _asked(record: Results) -> str:
    """The option that asks for other limits than those of the training."""
    assert record.scores is not None
    if all(run.cost_limit == run.trained_limit for run in record.scores.runs):
        return ""
    limits = dict.fromkeys(",".join(f"{x:g}" for x in run.cost_limit) for run in record.scores.runs)
    return f" --cost-limit {' '.join(limits)}"


def train_command(plan: TrainingConfig, folder: str) -> str:
    """The command line that repeats a training into `folder`, given as the shell wants it."""
    words = ["pdocrl", "train", plan.data, "--agent", plan.agent]
    if plan.task and plan.task != plan.data:
        words += ["--task", plan.task]
    limits = list(dict.fromkeys(",".join(f"{x:g}" for x in run["cost_limit"]) for run in plan.runs))
    words += ["--cost-limit", *limits] if any(limits) else []
    words += ["--seed", *dict.fromkeys(str(run["seed"]) for run in plan.runs), "--steps", str(plan.steps)]
    if plan.settings:
        words += ["--set", *(f"{name}={word(value)}" for name, value in plan.settings.items())]
    varied = [name for name in plan.runs[0] if name not in {"cost_limit", "seed"}]
    if varied:
        values = {name: dict.fromkeys(word(run[name]) for run in plan.runs) for name in varied}
        words += ["--vary", *(f"{name}={','.join(own)}" for name, own in values.items())]
    if plan.buffer_size:
        words += ["--buffer-size", str(plan.buffer_size), "--refresh-every", str(plan.refresh_every)]
    if plan.evaluate_every:
        words += ["--evaluate-every", str(plan.evaluate_every), "--evaluate-episodes", str(plan.evaluate_episodes)]
    return f"{shlex.join(words)} --out {folder}"


def word(value: object) -> str:
    """A setting as the command line takes it."""
    return ",".join(str(v) for v in value) if isinstance(value, list | tuple) else str(value)


def _data_folder(record: Results) -> list[str]:
    """The option that says where the data lay, if it lay in one folder; files that the suite itself names need none."""
    named = {entry.task.name for entry in record.suite.tasks if entry.data is not None}
    files = [Path(t.plan.data) for t in record.trainings if t.plan is not None and t.task not in named]
    folders = {str(file.parent) for file in files} - {"."}
    return ["--data", *folders] if len(folders) == 1 else []


def _first_rows(record: Results) -> dict[tuple[str, str], Row]:
    """One row per training: what is the same in all of its rows is read from it."""
    found: dict[tuple[str, str], Row] = {}
    for row in record.rows:
        found.setdefault((row.task, row.method), row)
    return found


def _listed(values: Iterable[object]) -> str:
    return ", ".join(str(value) for value in dict.fromkeys(values))


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"

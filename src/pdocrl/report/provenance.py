"""Where a result comes from: what was run, on which data, with what; and the commands that repeat it."""

from __future__ import annotations

import shlex
from html import escape
from pathlib import Path
from typing import Any

from pdocrl.errors import PdocrlError
from pdocrl.report.html import facts
from pdocrl.report.record import Record, reference_scores
from pdocrl.training.train import Plan, train_seconds

FULL = 100_000  # steps in the paper


def what_was_run(record: Record) -> str:
    """The facts as a description list."""
    plan, dataset = record.plan, record.dataset
    data = escape(Path(plan.data).name)
    if dataset is not None:
        data += f", {dataset.n_episodes:,} episodes, {len(dataset):,} transitions"
    if record.embedded:
        data += (
            ". <strong>Re-collected data</strong> that ships with the package, not DSRL's file: scores do not compare "
            "with published ones"
        )
    known = {
        "Agent": _agent(plan.agent),
        "Data": data,
        "Data digest": f"<code>{escape(plan.data_digest)}</code>",
        "Runs": f"{len(plan.runs)}: {escape(', '.join(group.label for group in record.groups))}; "
        f"seed {', '.join(str(s) for s in dict.fromkeys(run['seed'] for run in plan.runs))}",
        "Steps": f"{record.trained.step:,} of {plan.steps:,}{_duration(record)}"
        + (f"; a full training has {FULL:,}" if plan.steps < FULL else ""),
        "Settings": _settings(record),
        "Score": _scale(record),
        "Versions": escape(", ".join(f"{name} {number}" for name, number in plan.versions.items())),
    }
    return facts(known)


def _agent(name: str) -> str:
    from pdocrl.agents.agent import find_agent

    try:
        agent = find_agent(name)
    except PdocrlError:  # a plug-in that is not installed here
        return f"<code>{escape(name)}</code>"
    return f"<code>{escape(name)}</code>: {escape(agent.summary)} ({escape(agent.paper)})"


def _settings(record: Record) -> str:
    """The settings that were changed, beside the agent's own; the rest are its defaults."""
    from pdocrl.agents.agent import describe_config, find_agent

    if not record.plan.settings:
        return "the agent's defaults"
    try:
        defaults = {field["name"]: field["default"] for field in describe_config(find_agent(record.plan.agent).Config)}
    except PdocrlError:
        defaults = {}
    changed = [
        f"{escape(name)} <strong>{escape(word(value))}</strong>"
        + (f" (default {escape(word(defaults[name]))})" if name in defaults else "")
        for name, value in record.plan.settings.items()
    ]
    return ", ".join(changed) + "; all others are the agent's defaults"


def _scale(record: Record) -> str:
    scale = reference_scores(record.plan)
    if scale is None:
        return ""
    protocol = "" if record.scores is None else f"; protocol {escape(record.scores['protocol'])}"
    return f"reward 0 is a return of {scale[0]:,.1f}, reward 1 is {scale[1]:,.1f} (DSRL's reference scores){protocol}"


def _duration(record: Record) -> str:
    seconds = train_seconds(record.trained.metrics) or 0.0
    return f" in {seconds / 60:.1f} minutes of training" if seconds >= 90 else f" in {seconds:.0f} s of training"


def commands(record: Record) -> list[str]:
    """The command lines that repeat this training, its evaluation and its page."""
    folder = shlex.quote(record.folder.name)
    found = [train_command(record.plan, folder)]
    if record.scores is not None:
        found.append(f"pdocrl evaluate {folder} --episodes {len(record.scores['runs'][0]['episodes'])}")
    return [*found, f"pdocrl report {folder}"]


def train_command(plan: Plan, folder: str) -> str:
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
    if plan.window:
        words += ["--window", str(plan.window), "--refresh-every", str(plan.refresh_every)]
    if plan.evaluate_every:
        words += ["--evaluate-every", str(plan.evaluate_every), "--evaluate-episodes", str(plan.evaluate_episodes)]
    return f"{shlex.join(words)} --out {folder}"


def word(value: Any) -> str:
    """A setting as the command line takes it."""
    return ",".join(str(v) for v in value) if isinstance(value, list | tuple) else str(value)

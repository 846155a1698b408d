"""A scored training as rows, one per episode: of a benchmark's group, or of a training on its own."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from typing import Any

from pdocrl.agents.agent import find_agent
from pdocrl.bench.results import Row
from pdocrl.data.tasks import Task
from pdocrl.errors import PdocrlError
from pdocrl.scores.evaluate import RunScore, Scores
from pdocrl.training.plan import Plan


def make_rows(
    plan: Plan,
    scores: Scores,
    task: Task,
    *,
    suite: str,
    protocol: str,
    variant: Callable[[RunScore], str],
    seconds: float | None,
    episodes: int | None = None,
) -> list[Row]:
    """The episodes of every run, the first `episodes` of each; `variant` names the method beside its agent."""
    digests = _digests(plan)
    name = scores.data.name
    return [
        Row(
            suite=suite,
            protocol=protocol,
            task=task.name,
            agent=plan.agent,
            variant=variant(run),
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
            pdocrl=plan.versions["pdocrl"],
            jax=plan.versions["jax"],
            numpy=plan.versions["numpy"],
        )
        for run in scores.runs
        for i, episode in enumerate(run.episodes[:episodes])
    ]


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
    story = {"agent": agent, "steps": steps, "settings": kept}
    return hashlib.sha256(json.dumps(story, sort_keys=True).encode()).hexdigest()


def _digests(plan: Plan) -> list[str]:
    """Of each run: over the agent's full settings; "" for an agent that is not installed here."""
    try:
        runs = plan.make_runs(find_agent(plan.agent))
    except PdocrlError:
        return [""] * len(plan.runs)
    return [config_digest(plan.agent, plan.steps, run.config) for run in runs]

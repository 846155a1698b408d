"""Evaluation while training goes on: policies are handed to worker processes, results are written when they come."""

from __future__ import annotations

import json
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from pdocrl.data.tasks import find_task
from pdocrl.errors import PdocrlError
from pdocrl.policies.policy import Policy


class DuringTraining:
    """One line per run and evaluation in evaluations.jsonl: step, mean reward and costs of its episodes.

    Roll-outs share the machine with the training on a CPU and cost it nothing on an accelerator; either way the loop
    never waits for them until the end.
    """

    def __init__(self, plan: Any, folder: Path | None) -> None:
        self._plan, self._folder = plan, folder
        self._pool: Any = None
        self._waiting: list[tuple[int, Future[Any]]] = []
        if plan.evaluate_every:
            from pdocrl.envs.rollout import Rollouts

            task = find_task(plan.task) if plan.task else None
            if task is None or task.env_id is None:
                raise PdocrlError("evaluation during training needs a task with a simulator: give --task.")
            if folder is None:
                raise PdocrlError("evaluation during training needs a folder for its results: give --out.")
            self._pool = Rollouts(task.name, costs=tuple(plan.cost_names))

    def submit(self, step: int, policies: list[Policy]) -> None:
        self._waiting.append((step, self._pool.submit(policies, self._plan.evaluate_episodes)))
        self._write(wait=False)

    def _write(self, wait: bool) -> None:
        while self._waiting and (wait or self._waiting[0][1].done()):
            step, future = self._waiting.pop(0)
            episodes = future.result()
            assert self._folder is not None
            with (self._folder / "evaluations.jsonl").open("a", encoding="utf-8") as file:
                for i, run in enumerate(self._plan.runs):
                    own = episodes.of_policy(i)
                    line = {
                        "step": step,
                        "run": i,
                        **run,
                        "reward": own.reward.mean(),
                        "cost": own.cost.mean(0).tolist(),
                    }
                    file.write(json.dumps(line) + "\n")

    def __enter__(self) -> DuringTraining:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._pool is not None:
            try:
                self._write(wait=kind is None)
            finally:
                self._pool.close()

"""How long it will take: speeds of this machine, remembered from earlier work or measured in a few seconds.

They are kept in the user's cache folder, by machine and device. An estimate, nothing more: no result depends on it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import platform
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pdocrl.agents.agent import Agent, find_agent, make_config
from pdocrl.bench.suite import Group, Limit
from pdocrl.data.dataset import Dataset
from pdocrl.data.load import cache_folder
from pdocrl.errors import PdocrlError
from pdocrl.files import write_json
from pdocrl.training.folder import Trained
from pdocrl.training.loop import Run, Trainer, trainings

FEW_SECONDS = 1.0  # of steps behind a measured rate


@dataclasses.dataclass
class Clock:
    """Filled in when its block ends."""

    seconds: float = 0.0


@contextlib.contextmanager
def timed() -> Iterator[Clock]:
    """Wall-clock time of a block."""
    clock, began = Clock(), time.perf_counter()
    yield clock
    clock.seconds = time.perf_counter() - began


class Rates:
    """Seconds per step of a training, and per episode of a roll-out, with all cores at work."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or cache_folder() / "bench_rates.json"
        self._known: dict[str, float] = {}
        with contextlib.suppress(
            OSError, ValueError, AttributeError, TypeError
        ):  # lost, cut or from another version: measured again
            found = json.loads(self._path.read_text(encoding="utf-8"))
            self._known = {str(key): float(value) for key, value in found.items()}

    def training(self, group: Group) -> float | None:
        """Seconds to train a group from its first step, without compilation."""
        per_step = self._known.get(_training_key(group))
        return None if per_step is None else per_step * group.steps * _share(group)

    def playing(self, group: Group) -> float | None:
        """Seconds to play a group's episodes."""
        per_episode = self._known.get(_playing_key(group))
        return None if per_episode is None else per_episode * group.suite.episodes * group.runs

    def learn_training(self, group: Group, trained: Trained) -> None:
        """From the last rate a training logged."""
        if trained.metrics:
            self._keep(_training_key(group), 1 / (trained.metrics[-1]["steps_per_second"] * _share(group)))

    def learn_playing(self, group: Group, seconds: float) -> None:
        self._keep(_playing_key(group), seconds / (group.suite.episodes * group.runs))

    def measure_training(self, group: Group, dataset: Dataset) -> None:
        """A few steps: of one run on a CPU, where runs take turns, else of all of them."""
        agent = find_agent(group.method.agent)
        runs = _runs(group, agent, group.limits if dataset.n_costs else ((),))
        trainer = Trainer(agent, dataset, runs[:1] if _on_cpu() else runs)
        trainer.advance(1)  # compiles
        steps, seconds = 1, 0.0
        while seconds < FEW_SECONDS / 2:
            steps *= 4
            with timed() as clock:
                trainer.advance(steps)
            seconds = clock.seconds
        self._keep(_training_key(group), seconds / steps)

    def measure_playing(self, group: Group) -> None:
        """One episode of doing nothing."""
        import gymnasium
        import numpy as np

        from pdocrl.envs.rollout import Rollouts

        with Rollouts(group.task.name, workers=1) as pool:
            size = (group.task.action_dim or 1,)
            still = _Still(np.zeros(size, np.float32))
            with contextlib.suppress(PdocrlError, gymnasium.error.Error):
                pool.run(still, 1)
                with timed() as clock:
                    pool.run(still, 2)
                self._keep(_playing_key(group), clock.seconds / 2 / _cores())

    def _keep(self, key: str, seconds: float) -> None:
        self._known[key] = seconds
        with contextlib.suppress(PdocrlError):  # a cache that cannot be written is no reason to stop
            write_json(self._path, self._known)


@dataclasses.dataclass(frozen=True)
class _Still:
    """A policy that always does the same."""

    action: Any

    def __call__(self, obs: Any) -> Any:
        return self.action[None].repeat(len(obs), axis=0)


def _training_key(group: Group) -> str:
    settings = json.dumps(group.method.settings, sort_keys=True, default=list)
    digest = hashlib.sha256(settings.encode()).hexdigest()[:12]
    runs = "" if _on_cpu() else f"/{group.runs} runs"
    return f"train/{platform.node()}/{_backend()}/{group.method.agent}/{digest}{runs}"


def _playing_key(group: Group) -> str:
    return f"play/{platform.node()}/{group.task.name}"


def _share(group: Group) -> int:
    """Trainings that one step of the group waits for: on a CPU they take turns, elsewhere they go together."""
    if not _on_cpu():
        return 1
    agent = find_agent(group.method.agent)
    return len(trainings(agent, _runs(group, agent, group.limits))[0])


def _runs(group: Group, agent: Agent[Any, Any], limits: Sequence[Limit]) -> list[Run]:
    return [
        Run(make_config(agent, **group.method.settings, cost_limit=limit, horizon=float(group.task.horizon)), seed)
        for limit in limits
        for seed in group.suite.seeds
    ]


def _on_cpu() -> bool:
    return _backend() == "cpu"


def _backend() -> str:
    import jax

    return str(jax.default_backend())


def _cores() -> int:
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

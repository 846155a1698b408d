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

from pdocrl.agents.base import Agent, make_config
from pdocrl.agents.registry import find_agent
from pdocrl.bench.suite import Group, Limit
from pdocrl.data.dataset import Dataset
from pdocrl.data.load import cache_folder
from pdocrl.errors import PdocrlError
from pdocrl.files import write_json
from pdocrl.machine import cores
from pdocrl.policies.policy import NormalisedPolicy
from pdocrl.training.folder import Trained
from pdocrl.training.trainer import Run, Trainer, trainings

FEW_SECONDS = 2.0  # of steps behind a measured rate
ACTING = 50  # decisions behind a measured time of one


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
    """What the parts of a group's work take: its start, a step, an episode.

    The time of a training is start + steps × (one step). The start is all that is done once: data to the device,
    compiling, policies, files. The time of a group's episodes is episodes × (steps of the simulator + decisions of the
    policy), shared by the cores, after the simulators have opened. What earlier groups took counts before what was
    measured, this task before others.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or cache_folder() / "bench_rates.json"
        self._known: dict[str, float] = {}
        with contextlib.suppress(
            OSError, ValueError, AttributeError, TypeError
        ):  # lost, cut or from another version: measured again
            found = json.loads(self._path.read_text(encoding="utf-8"))
            self._known = {str(key): float(value) for key, value in found.items()}

    def training(self, group: Group, batched: int = 1) -> float | None:
        """Seconds to train a group from its first step; its share of them where `batched` groups go together."""
        per_step, start = self._find("step", group, batched), self._find("start", group, batched)
        return None if per_step is None else (per_step * group.steps * _share(group) + (start or 0.0)) / batched

    def playing(self, group: Group) -> float | None:
        """Seconds to play a group's episodes."""
        episodes = group.suite.episodes * group.runs
        whole = self._known.get(_key("episode", group))
        if whole is not None:
            return whole * episodes
        still, acting = self._known.get(_still_key(group)), self._find("decision", group)
        if still is not None and acting is not None:
            opening = self._known.get(_opening_key(), 0.0)
            return opening + (still + acting * float(group.task.horizon)) * episodes / cores()
        others = self._others(_playing_prefix(), f"/{group.task.name}")
        return None if others is None else others * episodes

    def knows_playing(self, group: Group) -> bool:
        """Whether the time of its episodes is known, and not only that of other policies on this task."""
        parts = self._known.get(_still_key(group)), self._find("decision", group)
        return _key("episode", group) in self._known or None not in parts

    def learn_training(self, group: Group, trained: Trained, seconds: float | None = None, batched: int = 1) -> None:
        """From the rates a training logged; its first stage holds the compilation. `seconds`: of all of it."""
        stages, before = [], 0
        for line in trained.metrics:  # one per run and stage
            if line["step"] > before:
                stages.append((line["step"] - before, line["steps_per_second"]))
                before = line["step"]
        if not stages:
            return
        later = stages[1:] or stages
        per_step = sum(steps / rate for steps, rate in later) / sum(steps for steps, _ in later)
        self._keep(_key("step", group, batched), per_step / _share(group))
        if seconds is not None:
            self._keep(_key("start", group, batched), max(0.0, seconds - per_step * group.steps))

    def learn_playing(self, group: Group, seconds: float) -> None:
        self._keep(_key("episode", group), seconds / (group.suite.episodes * group.runs))

    def measure_training(self, group: Group, dataset: Dataset, batched: int = 1) -> None:
        """A few steps: of a run for each core on a CPU, where runs take turns, else of all. And a few decisions.

        The runs of groups that go together all learn from this one's data here: the shape hardly matters.
        """
        agent = find_agent(group.method.agent)
        runs = _runs(group, agent, group.limits if dataset.n_costs else ((),)) * batched
        with timed() as start:
            trainer = Trainer(agent, dataset, runs[: cores()] if _on_cpu() else runs)
            trainer.advance(trainer.block)  # compiles
        steps, seconds = trainer.block, 0.0
        while seconds < FEW_SECONDS / 2:
            steps *= 4
            with timed() as clock:
                trainer.advance(steps)
            seconds = clock.seconds
        here = len(trainer.seeds) if _on_cpu() else 1
        self._keep(_key("step", group, batched), seconds / steps / here)
        with timed() as end:
            policies = trainer.policies()
        self._keep(_key("start", group, batched), start.seconds + end.seconds * _share(group) / here)
        self._keep(_key("decision", group), _decision_seconds(policies[0], dataset))

    def measure_playing(self, group: Group) -> None:
        """One episode of doing nothing, and how long it takes before the first can begin."""
        import gymnasium
        import numpy as np

        from pdocrl.envs.rollout import Rollouts

        still = _Still(np.zeros((group.task.action_dim or 1,), np.float32))
        began = time.perf_counter()
        with Rollouts(group.task.name, workers=1) as pool, contextlib.suppress(PdocrlError, gymnasium.error.Error):
            pool.run(still, 1)
            first = time.perf_counter() - began
            with timed() as clock:
                pool.run(still, 2)
            self._keep(_still_key(group), clock.seconds / 2)
            self._keep(_opening_key(), max(0.0, first - clock.seconds / 2))

    def _find(self, what: str, group: Group, batched: int = 1) -> float | None:
        """Of this task, or the mean over the others."""
        known = self._known.get(_key(what, group, batched))
        return self._others(_prefix(what, group, batched)) if known is None else known

    def _others(self, start: str, end: str = "") -> float | None:
        found = [value for key, value in self._known.items() if key.startswith(start) and key.endswith(end)]
        return sum(found) / len(found) if found else None

    def _keep(self, key: str, seconds: float) -> None:
        self._known[key] = seconds
        with contextlib.suppress(PdocrlError):  # a cache that cannot be written is no reason to stop
            write_json(self._path, self._known)


def _decision_seconds(policy: NormalisedPolicy, dataset: Dataset) -> float:
    """Of one decision in an episode; the first few are not counted."""
    step = policy.begin(0)
    obs, nothing = dataset.obs[: 2 * ACTING], (0.0, dataset.cost[0] * 0)
    for row in obs[:5]:
        step(row, *nothing)
    with timed() as clock:
        for row in obs[5:]:
            step(row, *nothing)
    return clock.seconds / max(1, len(obs) - 5)


@dataclasses.dataclass(frozen=True)
class _Still:
    """A policy that always does the same."""

    action: Any

    def __call__(self, obs: Any) -> Any:
        return self.action[None].repeat(len(obs), axis=0)


def _prefix(what: str, group: Group, batched: int = 1) -> str:
    """Of all tasks: machine, device, agent, settings and how many runs go together."""
    settings = json.dumps(group.method.settings, sort_keys=True, default=list)
    digest = hashlib.sha256(settings.encode()).hexdigest()[:12]
    runs = "" if _on_cpu() else f"{group.runs * batched} runs/"
    return f"{what}/{platform.node()}/{_backend()}/{group.method.agent}/{digest}/{runs}"


def _key(what: str, group: Group, batched: int = 1) -> str:
    return f"{_prefix(what, group, batched)}{group.task.name}"


def _still_key(group: Group) -> str:
    return f"still/{platform.node()}/{group.task.name}"


def _opening_key() -> str:
    return f"opening/{platform.node()}"


def _playing_prefix() -> str:
    return f"episode/{platform.node()}/"


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
        for seed in group.seeds
    ]


def _on_cpu() -> bool:
    return _backend() == "cpu"


def _backend() -> str:
    import jax

    return str(jax.default_backend())

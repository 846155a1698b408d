"""When each callback of a training is due, and the means of the metrics since it was called last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pdocrl.training.callbacks import Callback, Metrics, TrainingView
from pdocrl.training.trainer import StageMetrics


class Scheduled:
    """A callback with its interval and running sums."""

    def __init__(self, callback: Callback) -> None:
        self.callback, self._sums, self._steps = callback, Metrics(), 0
        self.called = False  # at the present stop

    def add(self, stage: StageMetrics) -> None:
        """Count a stage's metrics."""
        for name, mean in stage.metrics.items():
            self._sums[name] = self._sums.get(name, np.zeros(len(mean))) + mean * stage.steps
        self._steps += stage.steps

    def call(self, view: TrainingView) -> None:
        """Call it with the means since the last call."""
        means = {name: total / max(1, self._steps) for name, total in self._sums.items()}
        view.metrics = means | view.logged
        self._sums, self._steps, self.called = {}, 0, True
        self.callback(view)

    def memory(self) -> dict[str, Any]:
        """For the checkpoint: what it remembers, and the sums since its last call."""
        sums = {name: total.tolist() for name, total in self._sums.items()}
        return {"kind": self.kind, "sums": sums, "steps": self._steps, "memory": self.callback.memory()}

    def recall(self, memory: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self._sums = {name: np.asarray(total, np.float64) for name, total in memory["sums"].items()}
        self._steps = memory["steps"]
        self.callback.recall(memory["memory"])

    @property
    def kind(self) -> str:
        return type(self.callback).__name__


class Schedule:
    """The callbacks of a training, in their order."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._all = [Scheduled(callback) for callback in callbacks]

    def next_stop(self, step: int) -> int:
        """The next step at which some callback is due; far away when none has an interval."""
        due = [(step // own.callback.every + 1) * own.callback.every for own in self._all if own.callback.every > 0]
        return min(due, default=2**62)

    def call(self, view: TrainingView, stage: StageMetrics, finished: bool, skip: bool) -> None:
        """Call every callback that is due, in order, and all of them at the end; none where the training breaks off."""
        for own in self._all:
            own.add(stage)
            own.called = False
        for own in () if skip else self._all:
            if finished or own.callback.every <= 0 or view.step % own.callback.every == 0:
                own.call(view)

    def finish(self, view: TrainingView) -> None:
        """Call those that were not due where one of them stopped the training."""
        for own in self._all:
            if not own.called:
                own.call(view)

    def memory(self) -> list[dict[str, Any]]:
        return [own.memory() for own in self._all]

    def recall(self, memories: Sequence[dict[str, Any]]) -> None:
        """Each callback goes on with the memory of the one of its kind, in order; others begin anew."""
        left = list(memories)
        for own in self._all:
            for memory in left:
                if memory["kind"] == own.kind:
                    own.recall(memory)
                    left.remove(memory)
                    break

"""Callbacks: what is done between the steps of a training, at intervals each callback chooses.

    class Watch(Callback):
        every = 500                                   # steps

        def __call__(self, view: TrainingView) -> None:
            print(view.step, view.metrics["q"])       # mean over the last 500 steps, [R]
            if view.metrics["q"].max() > 1e4:
                view.stop("q diverges")

    train(data, callbacks=[Watch(), Evaluate(make_env, every=5000), EarlyStopping("evaluation/reward")])

Between calls the training is one compiled program. A callback sees the state and cannot change it, so the bits of a
training do not depend on its callbacks; what a callback itself remembers is stored in the checkpoint (`memory`), and a
resumed training goes on with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdocrl.console import log, progress
from pdocrl.data.tasks import find_task
from pdocrl.errors import PdocrlError, UnknownNameError, by_door
from pdocrl.files import write_json
from pdocrl.policies.policy import Policy

if TYPE_CHECKING:
    from pdocrl.training.config import TrainingConfig
    from pdocrl.training.trainer import Trainer

Metrics = dict[str, NDArray[np.float64]]  # [R] each


class TrainingView:
    """What a callback sees of a training."""

    def __init__(self, config: TrainingConfig, trainer: Trainer, folder: Path | None) -> None:
        self.config, self.folder, self._trainer = config, folder, trainer
        self.metrics: Metrics = {}  # means since this callback's last call, and what callbacks logged
        self.logged: Metrics = {}  # what callbacks have logged last
        self.unwritten: set[str] = set()  # names of it that no line of metrics holds yet
        self.steps_per_second = 0.0
        self.stopped = ""  # why the training ends early
        self.failed = False  # whether it ends by an error or an interrupt

    @property
    def step(self) -> int:
        """Gradient steps taken."""
        return self._trainer.step

    @property
    def steps(self) -> int:
        """Gradient steps asked for."""
        return self.config.steps

    @property
    def runs(self) -> list[dict[str, Any]]:
        """Cost limit, seed and varied settings of each run."""
        return self.config.runs

    @property
    def state(self) -> Any:
        """The agent's state, a pytree of arrays with a leading axis of trainings [T, …] (see `training`)."""
        return self._trainer.state

    @property
    def training(self) -> NDArray[np.int64]:
        """[R] which training, of the leading axis of `state`, each run belongs to."""
        return self._trainer.training

    def policies(self) -> list[Policy]:
        """The current policy of each run."""
        return [*self._trainer.policies()]

    def log(self, values: dict[str, ArrayLike]) -> None:
        """Add metrics, a number or one per run [R]: later callbacks, metrics.jsonl and loggers are given them."""
        for name, value in values.items():
            self.logged[name] = np.broadcast_to(np.asarray(value, np.float64), (len(self.runs),)).copy()
            self.unwritten.add(name)

    @property
    def recent(self) -> Metrics:
        """`metrics` without what callbacks logged before the last line of metrics was written."""
        return {name: x for name, x in self.metrics.items() if name not in self.logged or name in self.unwritten}

    def stop(self, reason: str) -> None:
        """End the training after this step; everything is saved as at its regular end."""
        self.stopped = reason

    def save(self, folder: Path) -> None:
        """The whole training as it is now, as a folder that can be played, exported and resumed."""
        from pdocrl.training import folder as folders

        folder.mkdir(parents=True, exist_ok=True)
        folders.begin(self.config, folder, self.step)
        folders.save(self.config, self._trainer, folder, last=True)


class Callback:
    """Called at every multiple of `every` steps and at the end; with `every = 0` whenever anything else is."""

    every: int = 1000

    def begin(self, view: TrainingView) -> None:
        """Called before the first step, also of a resumed training."""

    def __call__(self, view: TrainingView) -> None:
        """Called at the chosen steps."""
        raise NotImplementedError(f"callback {type(self).__name__} has no `__call__`")

    def end(self, view: TrainingView) -> None:
        """Called after the last step, also of a training that was stopped or interrupted."""

    def memory(self) -> Any:
        """What a checkpoint keeps of the callback, as JSON has it."""
        return None

    def recall(self, memory: Any) -> None:
        """Go on with what `memory` gave."""


class FunctionCallback(Callback):
    """A plain function of the view as a callback; an attribute `every` of it chooses the interval."""

    def __init__(self, function: Callable[[TrainingView], Any], every: int) -> None:
        self.function, self.every = function, int(getattr(function, "every", every))

    def __call__(self, view: TrainingView) -> None:
        self.function(view)


def as_callbacks(given: Sequence[Any], every: int) -> list[Callback]:
    """Callbacks as they are, functions wrapped; `every` is for functions that choose no interval."""
    made = []
    for one in given:
        if isinstance(one, type) or not callable(one):
            raise PdocrlError(f"callback {one!r} is not callable; give an instance or a function of the view.")
        made.append(one if isinstance(one, Callback) else FunctionCallback(one, every))
    return made


class Progress(Callback):
    """A progress bar; without a terminal or notebook a line on standard error about every half minute."""

    every = 0

    def __init__(self, seconds: float = 30.0) -> None:
        self.seconds = seconds

    def begin(self, view: TrainingView) -> None:
        self._bar = progress("{task.description}")
        self._bar.start()
        self._row = self._bar.add_task(view.config.agent, total=view.steps, completed=view.step)
        self._last = time.monotonic()

    def __call__(self, view: TrainingView) -> None:
        words = self._words(view)
        self._bar.update(self._row, completed=view.step, description=words)
        if self._bar.disable and time.monotonic() - self._last >= self.seconds:
            self._last = time.monotonic()
            log(f"step {view.step:,} of {view.steps:,}  {words}")

    def end(self, view: TrainingView) -> None:
        self._bar.stop()

    def _words(self, view: TrainingView) -> str:
        preferred: list[str] = [n for n in ("lambda", "lambda_0", "q", "w", "actor_loss") if n in view.metrics]
        shown = (preferred or list(view.metrics))[:3]
        values = " ".join(f"{name} {np.nanmean(view.metrics[name]):.3g}" for name in shown)
        return f"{view.config.agent} × {len(view.runs)}  {view.steps_per_second:.0f} steps/s  {values}"


class Evaluate(Callback):
    """Plays the current policies and logs evaluation/reward and evaluation/cost (evaluation/cost_0, … of several).

    Args:
        env: a function that makes an environment (a `gymnasium.Env`, or a `gymnasium.vector.VectorEnv`, whose
            environments then play side by side), a Gymnasium id or a task's name. Its costs are in `info["cost"]`.
        every: steps between evaluations.
        episodes: of each policy.
        seed: decides the starts; the same at every evaluation.
        workers: processes that play; 0 plays in this one.
        cost_limit: the limit asked of cost-conditioned policies, in place of the runs' own.
    """

    def __init__(
        self,
        env: Any,
        every: int = 5000,
        episodes: int = 5,
        seed: int = 0,
        workers: int = 0,
        cost_limit: float | Sequence[float] | None = None,
    ) -> None:
        self.env, self.every, self.episodes, self.seed, self.workers = env, every, episodes, seed, workers
        self.cost_limit = None if cost_limit is None else tuple(np.atleast_1d(np.asarray(cost_limit, float)).tolist())
        self.results: list[dict[str, Any]] = []  # {"step", "reward" [R], "cost" [R, K]}

    def __call__(self, view: TrainingView) -> None:
        from pdocrl.envs.vector import play_episodes

        policies: list[Any] = view.policies()
        if self.cost_limit is not None:
            policies = [p.with_limit(self.cost_limit) if hasattr(p, "with_limit") else p for p in policies]
        costs = tuple(view.config.cost_names)
        played = play_episodes(self.env, policies, self.episodes, self.seed, self.workers, costs)
        own = [played.of_policy(i) for i in range(len(policies))]
        reward, cost = np.array([e.reward.mean() for e in own]), np.array([e.cost.mean(0) for e in own])
        self.results.append({"step": view.step, "reward": reward, "cost": cost})
        names = ["evaluation/cost"] if cost.shape[1] == 1 else [f"evaluation/cost_{k}" for k in range(cost.shape[1])]
        view.log({"evaluation/reward": reward, **dict(zip(names, cost.T, strict=True))})

    def memory(self) -> Any:
        return [{name: np.asarray(value).tolist() for name, value in line.items()} for line in self.results]

    def recall(self, memory: Any) -> None:
        self.results = [
            {"step": m["step"], "reward": np.array(m["reward"]), "cost": np.array(m["cost"])} for m in memory
        ]


class _Best:
    """Whether the mean over runs of a metric is the best so far."""

    def __init__(self, metric: str, mode: Literal["max", "min"], least: float = 0.0) -> None:
        if mode not in ("max", "min"):
            raise UnknownNameError("mode", mode, ("max", "min"))
        self.metric, self.sign, self.least, self.value = metric, 1 if mode == "max" else -1, least, -np.inf

    def improved(self, view: TrainingView) -> bool:
        values = view.metrics.get(self.metric)
        if values is None:
            raise UnknownNameError("metric", self.metric, view.metrics, "Callbacks that log it go before this one.")
        now = self.sign * float(np.nanmean(values)) if not np.isnan(values).all() else -np.inf
        better = now > self.value + self.least
        self.value = now if better else self.value
        return better


class Checkpoint(Callback):
    """Keeps checkpoints as folders out/checkpoints/step_…, each of which can be played, exported and resumed.

    Args:
        every: steps between them.
        best: a metric; keeps one folder, out/checkpoints/best, of the step at which its mean over runs was best.
        mode: whether the best is the largest ("max") or the smallest.
        keep: how many of the last ones are kept; None: all.
        folder: where, in place of out/checkpoints.
    """

    def __init__(
        self,
        every: int = 10_000,
        best: str | None = None,
        mode: Literal["max", "min"] = "max",
        keep: int | None = None,
        folder: str | Path | None = None,
    ) -> None:
        self.every, self.keep, self.folder = every, keep, folder
        self._best = None if best is None else _Best(best, mode)

    def begin(self, view: TrainingView) -> None:
        if self.folder is None and view.folder is None:
            raise PdocrlError("Checkpoint needs a folder: give Checkpoint(folder=…), or out=… to train.")

    def __call__(self, view: TrainingView) -> None:
        folder = Path(self.folder or Path(str(view.folder)) / "checkpoints")
        if self._best is None:
            view.save(folder / f"step_{view.step:09d}")
            for old in sorted(folder.glob("step_*"))[: -self.keep] if self.keep else []:
                for file in old.iterdir():
                    file.unlink()
                old.rmdir()
        elif self._best.improved(view):
            view.save(folder / "best")
            write_json(
                folder / "best" / "score.json",
                {"metric": self._best.metric, "value": self._best.sign * self._best.value, "step": view.step},
            )

    def memory(self) -> Any:
        return None if self._best is None or not np.isfinite(self._best.value) else self._best.value

    def recall(self, memory: Any) -> None:
        if self._best is not None and memory is not None:
            self._best.value = memory


class EarlyStopping(Callback):
    """Stops when a metric's mean over runs has not improved for `patience` calls.

    Args:
        metric: its name, of the agent's metrics or of what a callback before this one logs, as evaluation/reward.
        mode: whether larger ("max") or smaller is better.
        patience: calls without improvement.
        every: steps between calls.
        least: improvement below this does not count.
    """

    def __init__(
        self,
        metric: str,
        mode: Literal["max", "min"] = "max",
        patience: int = 5,
        every: int = 5000,
        least: float = 0.0,
    ) -> None:
        if patience < 1:
            raise PdocrlError(f"patience is {patience}, must be at least 1.")
        self.every, self.patience, self.waited = every, patience, 0
        self._best = _Best(metric, mode, least)

    def __call__(self, view: TrainingView) -> None:
        self.waited = 0 if self._best.improved(view) else self.waited + 1
        if self.waited >= self.patience:
            view.stop(f"{self._best.metric} has not improved for {self.patience} × {self.every} steps")

    def memory(self) -> Any:
        return [self._best.value if np.isfinite(self._best.value) else None, self.waited]

    def recall(self, memory: Any) -> None:
        value, self.waited = memory
        self._best.value = -np.inf if value is None else value


class EvaluateTask(Callback):
    """Plays the current policies in the task's simulator while training goes on; evaluations.jsonl holds the results.

    Roll-outs share the machine with the training on a CPU and cost it nothing on an accelerator; either way the
    training never waits for them until the end.
    """

    def __init__(self, every: int, episodes: int) -> None:
        self.every, self.episodes = every, episodes
        self._pool: Any = None
        self._waiting: list[tuple[int, Future[Any]]] = []

    def begin(self, view: TrainingView) -> None:
        from pdocrl.envs.rollout import Rollouts

        task = find_task(view.config.task) if view.config.task else None
        if task is None or task.env_id is None:
            raise PdocrlError(
                f"evaluation during training needs a simulator: give {by_door('eval_env=… or task=…', '--task')}."
            )
        if view.folder is None:
            raise PdocrlError(
                f"evaluation during training needs a folder for its results: give {by_door('out=…', '--out')}."
            )
        self._pool = Rollouts(task.name, costs=tuple(view.config.cost_names))

    def __call__(self, view: TrainingView) -> None:
        self._waiting.append((view.step, self._pool.submit(view.policies(), self.episodes)))
        self._write(view, wait=False)

    def end(self, view: TrainingView) -> None:
        try:
            self._write(view, wait=not view.failed)
        finally:
            self._pool.close()

    def _write(self, view: TrainingView, wait: bool) -> None:
        from pdocrl.training import folder as folders

        while self._waiting and (wait or self._waiting[0][1].done()):
            step, future = self._waiting.pop(0)
            episodes = future.result()
            lines = []
            for i, run in enumerate(view.runs):
                own = episodes.of_policy(i)
                scores = {"reward": float(own.reward.mean()), "cost": own.cost.mean(0).tolist()}
                lines.append({"step": step, "run": i, **run, **scores})
            folders.add_lines(Path(str(view.folder)), folders.EVALUATIONS, lines)

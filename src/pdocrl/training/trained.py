"""`Trained`: a finished or loaded training, with its policies, what it learned beside them, and its history."""

from __future__ import annotations

import dataclasses
import html
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdocrl.deprecations import attribute
from pdocrl.errors import PdocrlError
from pdocrl.limits import amounts, as_limits, in_words
from pdocrl.policies.dial import prediction, serves_tails
from pdocrl.policies.policy import Policy
from pdocrl.table import Table
from pdocrl.training.config import TrainingConfig
from pdocrl.training.loggers import History

if TYPE_CHECKING:
    from pdocrl.training.final_state import FinalState

CHECKPOINT = "checkpoint.safetensors"


@dataclasses.dataclass(repr=False)
class Trained:
    """A finished (or loaded) training: one policy per run, and how they came about.

    Critics, density ratio, multipliers and state are read from the folder's checkpoint where the training is loaded.
    Which of them a method has is in docs/agents/index.md; asking for another raises with those there are.
    """

    config: TrainingConfig
    step: int
    policies: list[Policy]
    failures: dict[int, str]  # run → why it stopped early; its policy is the last whole one
    metrics: list[dict[str, Any]]  # the lines of metrics.jsonl
    folder: Path | None = None
    stopped: str = ""  # why a callback ended it early
    final: FinalState | None = dataclasses.field(default=None, compare=False)  # None: in the folder's checkpoint

    def policy(
        self,
        cost_limit: Any = None,
        seed: int | None = None,
        from_every_start: bool | None = None,
        **settings: Any,
    ) -> Policy:
        """The policy of the run with this cost limit, seed and varied settings; what is left out must not matter.

        Of agents that serve every limit it is conditioned on `cost_limit`, whatever the limits of the runs; of `dial`
        that may be on tails, "P(cost>20)<=0.1", or several together, and hold `from_every_start`.
        """
        words = () if cost_limit is None or not in_words(cost_limit) else as_limits(cost_limit)
        if words and not any(one.tail for one in words):
            cost_limit, words = amounts(words, self.config.cost_names, self.config.horizon), ()
        wanted = None if words or cost_limit is None else tuple(np.atleast_1d(np.asarray(cost_limit, float)).tolist())
        found = [
            i
            for i, run in enumerate(self.config.runs)
            if (seed is None or run["seed"] == seed) and all(run.get(k) == v for k, v in settings.items())
        ]
        exact = [
            i
            for i in found
            if (wanted is None or tuple(self.config.runs[i]["cost_limit"]) == wanted)
            and (cost_limit is None or self.config.runs[i].get("limits", []) == [*map(str, words)])
        ]
        conditioned = False
        if cost_limit is not None and not exact and found and hasattr(self.policies[found[0]], "with_limit"):
            trainings = {self.training_of(i) for i in found}
            exact, conditioned = (found[:1] if len(trainings) == 1 else found), True
        if len(exact) != 1:
            shown = "; ".join(str(run) for run in self.config.runs)
            raise PdocrlError(f"{len(exact)} runs have what was asked for; there are: {shown}.")
        policy: Any = self.policies[exact[0]]
        if (words or from_every_start is not None) and not serves_tails(policy):
            raise PdocrlError(
                f"policies of `{self.config.agent}` serve limits on the mean cost alone; `dial` on tails."
            )
        if not conditioned and from_every_start is None:
            return policy  # type: ignore[no-any-return]
        asked = wanted or list(words) or list(self.config.runs[exact[0]].get("limits", ())) or policy.network.limit
        wishes = {} if from_every_start is None else {"from_every_start": from_every_start}
        return policy.with_limit(asked, **wishes)  # type: ignore[no-any-return]

    def training_of(self, run: int) -> int:
        """Which training a run belongs to: runs of one number share it and differ in what is asked of its policy."""
        return self.config.training[run] if self.config.training else run

    def q(self, obs: ArrayLike, action: ArrayLike, run: int = 0) -> NDArray[np.float32]:
        """[B] discounted reward to go from observations [B, S] and actions [B, A], in the data's units of reward."""
        return self._final.call("q", run, obs, action)

    def q_cost(self, obs: ArrayLike, action: ArrayLike, run: int = 0) -> NDArray[np.float32]:
        """[B, K] discounted costs to go from observations [B, S] and actions [B, A]."""
        return self._final.call("q_cost", run, obs, action)

    def v(self, obs: ArrayLike, run: int = 0) -> NDArray[np.float32]:
        """[B] discounted reward to go from observations [B, S]."""
        return self._final.call("v", run, obs)

    def v_cost(self, obs: ArrayLike, run: int = 0) -> NDArray[np.float32]:
        """[B, K] discounted costs to go from observations [B, S]."""
        return self._final.call("v_cost", run, obs)

    def ratio(self, obs: ArrayLike, action: ArrayLike, run: int = 0) -> NDArray[np.float32]:
        """[B] density ratio w(s, a) = d^π(s, a) / d^D(s, a) at observations [B, S] and actions [B, A]."""
        return self._final.call("ratio", run, obs, action)

    @property
    def plan(self) -> TrainingConfig:
        """The old name of `config`."""
        told: TrainingConfig = attribute("Trained", "plan", self)
        return told

    @property
    def multipliers(self) -> NDArray[np.float32]:
        """[R, K] Lagrange multipliers λ of each run: reward given up for one unit of each cost."""
        return np.stack([self._final.multipliers(run) for run in range(len(self.config.runs))])

    @property
    def state(self) -> Any:
        """The agent's state, a pytree of arrays with a leading axis of trainings [T, …]: see `training_of`."""
        return self._final.state

    def state_of(self, run: int) -> Any:
        """The agent's state of one run."""
        return self._final.state_of(run)

    @property
    def history(self) -> History:
        """Metrics over steps: `history["q"]` is [T, R]; `history.dataframe()` is for pandas."""
        return History(self.metrics)

    @cached_property
    def _final(self) -> FinalState:
        if self.final is not None:
            return self.final
        from pdocrl.training.final_state import FinalState

        if self.folder is None:
            raise PdocrlError("this training has no state: it was neither trained here nor loaded from a folder.")
        policy: Any = self.policies[0]
        return FinalState.load(self.folder / CHECKPOINT, self.config, policy.normaliser)

    def records(self) -> list[dict[str, Any]]:
        """One JSON-able row per run: its limit, seed and settings, step, last metrics, and what its policy predicts.

        Predictions are those of policies that state them before anything is played (`dial`); None of others.
        """
        last = {line["run"]: line["metrics"] for line in self.metrics}
        predicted = [prediction(policy) for policy in self.policies] or [None] * len(self.config.runs)
        return [
            {
                "run": i,
                **run,
                "step": self.step,
                "failure": self.failures.get(i),
                "metrics": last.get(i),
                "predicted_reward": None if said is None else said.reward,
                "predicted_cost": None if said is None else said.cost.tolist(),
                "predicted_bound": None if said is None else said.bound.tolist(),
                "predicted_within": None if said is None else said.within,
                "predicted_tails": [] if said is None else [tail._asdict() for tail in said.tails],
            }
            for i, (run, said) in enumerate(zip(self.config.runs, predicted, strict=True))
        ]

    def __repr__(self) -> str:
        data = self.config.task or Path(self.config.data).name
        kept = f", in {self.folder}" if self.folder else ""
        failed = f", {len(self.failures)} stopped early" if self.failures else ""
        early = f", ended early: {self.stopped}" if self.stopped else ""
        return (
            f"Trained({self.config.agent} on {data}: {len(self.policies)} policies at step {self.step:,}"
            f"{failed}{early}{kept})"
        )

    def table(self) -> Table:
        """A row per run: its limit, seed and settings, its last metrics, and why it stopped early."""
        last = {line["run"]: line["metrics"] for line in self.metrics}
        settings = dict.fromkeys(name for run in self.config.runs for name in run)
        metrics = list(next(iter(last.values()), {}))[:8]
        rows = [
            [
                i,
                *(shown(run.get(name, "")) for name in settings),
                *(last.get(i, {}).get(name, "") for name in metrics),
                self.failures.get(i, ""),
            ]
            for i, run in enumerate(self.config.runs)
        ]
        heads = ["run", *(name.replace("_", " ") for name in settings), *metrics, "stopped"]
        return Table.of(heads, rows, f"{self.config.agent} on {self.config.data}, {self.step} steps")

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>{self.table().notebook()}"


def shown(value: Any) -> str:
    """A run's setting in a table: [20.0] as 20."""
    if isinstance(value, list | tuple):
        return ", ".join(f"{x:g}" if isinstance(x, int | float) else str(x) for x in value)
    return str(value)

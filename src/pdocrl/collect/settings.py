"""What makes a collection what it is. Two with the same settings give the same episodes, bit for bit."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from pdocrl import provenance
from pdocrl.collect.ppo import PPOConfig
from pdocrl.collect.problem import ExpertProblem
from pdocrl.collect.recipes import Recipe, Schedule
from pdocrl.errors import PdocrlError, by_door

_PACKAGES = ("pdocrl", "numpy", "jax", "gymnasium", "pybullet", "bullet-safety-gym")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything the episodes depend on, and nothing else."""

    env: str
    costs: tuple[str, ...]  # keys of `info`
    cost_function: str | None  # or an entry point
    cost_max: tuple[float, ...]  # [K] the largest episode costs wanted
    seed: int
    steps: int  # of all experts together
    schedules: tuple[Schedule, ...]  # one expert each, with an equal share of the steps
    config: PPOConfig

    def __post_init__(self) -> None:
        if self.steps < 1 or self.seed < 0:
            raise PdocrlError(
                f"steps is {self.steps} and seed {self.seed}; there must be a step, and no negative seed."
            )
        if not all(0 < top < math.inf for top in self.cost_max):
            raise PdocrlError(
                f"{by_door('cost_max', '--cost-max')} {list(self.cost_max)}: "
                "every largest cost must be a positive number."
            )

    @property
    def steps_each(self) -> int:
        return math.ceil(self.steps / len(self.schedules))

    def limits(self, expert: int, done: float) -> tuple[float, ...]:
        """[K] limits of this expert when this share of its training is done."""
        share = self.schedules[expert].at(done)
        return tuple(share * top for top in self.cost_max)

    def as_json(self) -> dict[str, Any]:
        """Plain values; an infinite limit is null."""
        values = dataclasses.asdict(self)
        values["schedules"] = [
            {"name": s.name, "knots": [[place, None if math.isinf(limit) else limit] for place, limit in s.knots]}
            for s in self.schedules
        ]
        return {**values, "costs": list(self.costs), "cost_max": list(self.cost_max), "config": _listed(self.config)}


def settings_for(
    problem: ExpertProblem,
    env: str,
    recipe: Recipe,
    cost_max: tuple[float, ...] = (),
    cost_function: str | None = None,
    seed: int = 0,
    steps: int | None = None,
) -> Settings:
    """A recipe's settings for a problem. One `cost_max` serves every cost; without any, the task's own is taken."""
    k = len(problem.cost_names)
    if not cost_max:
        if problem.task is None or problem.task.cost_max is None:
            raise PdocrlError(
                f"{problem.name}: the largest episode cost is not known. Give "
                f"{by_door('cost_max', '--cost-max')}, e.g. the cost of a policy that ignores its limits; "
                "the limits move between 5 % and 110 % of it."
            )
        cost_max = (problem.task.cost_max,)
    if len(cost_max) not in (1, k):
        most = by_door("cost_max", "--cost-max")
        raise PdocrlError(f"{most} has {len(cost_max)} numbers for {k} costs ({', '.join(problem.cost_names)}).")
    tops = tuple(float(top) for top in cost_max) * (k if len(cost_max) == 1 else 1)
    total = recipe.steps if steps is None else steps
    return Settings(env, problem.info_keys, cost_function, tops, seed, total, recipe.schedules, recipe.config)


def versions() -> dict[str, str]:
    """The packages whose version may change a bit of an episode."""
    return provenance.versions(_PACKAGES)


def _listed(config: PPOConfig) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in vars(config).items()}

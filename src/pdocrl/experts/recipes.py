"""How each task is collected unless told otherwise: steps, schedules, how many episodes to keep.

The numbers of episodes are those of the DSRL files. Steps are about what two cores do in a coffee break, except for
AntCircle, which needs tens of millions of steps to walk as DSRL's experts do.
"""

from __future__ import annotations

import dataclasses
import math

from pdocrl.data.tasks import find_task
from pdocrl.errors import UnknownNameError
from pdocrl.experts.ppo import PPOConfig
from pdocrl.experts.schedule import CAPPED, FALLING, RISING, SCHEDULES, WARMED, Schedule

_USUAL = PPOConfig()
# Legs learn faster by many small steps that may go further: AntRun's return after 90,000 steps 265, not 150 (one seed).
_WALKER = PPOConfig(batch_steps=2000, minibatch=250, clip=0.3, largest_kl=0.06)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What to run for one task: one expert per schedule, which share the steps equally."""

    steps: int
    target: int = 1000  # episodes kept by the grid filter
    schedules: tuple[Schedule, ...] = (RISING, FALLING)
    config: PPOConfig = _USUAL
    reward_min: float = -math.inf  # smallest return kept by the filter


RECIPES = {
    "BallRun": Recipe(600_000, 940, (RISING, CAPPED)),
    "CarRun": Recipe(400_000, 651),
    "DroneRun": Recipe(1_000_000, 1990),
    "AntRun": Recipe(2_000_000, 1816, config=_WALKER),
    "BallCircle": Recipe(600_000, 886),
    "CarCircle": Recipe(1_000_000, 1450, (WARMED, FALLING)),
    "DroneCircle": Recipe(3_000_000, 1923, (WARMED, FALLING)),
    "AntCircle": Recipe(20_000_000, 5728, (WARMED, FALLING), _WALKER),
}


def recipe_for(name: str) -> Recipe:
    """The task's own recipe, which keeps returns within DSRL's range; or a middling one, which keeps all."""
    if name not in RECIPES:
        return Recipe(1_000_000)
    return dataclasses.replace(RECIPES[name], reward_min=find_task(name).reward_min)


def with_schedules(recipe: Recipe, names: tuple[str, ...]) -> Recipe:
    """The recipe with other experts, by the names of their schedules; none named leaves it as it is."""
    for name in names:
        if name not in SCHEDULES:
            raise UnknownNameError("schedule", name, SCHEDULES, f"There are {', '.join(SCHEDULES)}.")
    return dataclasses.replace(recipe, schedules=tuple(SCHEDULES[name] for name in names)) if names else recipe

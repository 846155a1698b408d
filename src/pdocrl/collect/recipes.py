"""How each task is collected unless told otherwise: steps, schedules of the limit, how many episodes to keep.

One expert under one limit gives one cloud of episodes. Limits that move make it visit the whole (cost, reward) plane:
rising ones draw the safe frontier from below, and *unconstrained, then the maximum, then tight* draws the upper edge.

The numbers of episodes are those of the DSRL files. Steps are about what two cores do in a coffee break, except for
AntCircle, which needs tens of millions of steps to walk as DSRL's experts do.
"""

from __future__ import annotations

import dataclasses
import math

from pdocrl.collect.ppo import PPOConfig
from pdocrl.data.tasks import find_task
from pdocrl.errors import UnknownNameError

Knot = tuple[float, float]  # (share of the training done, limit as a share of the largest cost)
TIGHT = 0.05  # the strictest limit, as a share of the largest cost
LOOSE = 1.1  # a little beyond the largest cost, so that the data reaches it


@dataclasses.dataclass(frozen=True)
class Schedule:
    """A limit in units of the largest cost, straight between knots; infinite means unconstrained.

    Two knots at the same place are a jump.
    """

    name: str
    knots: tuple[Knot, ...]

    def at(self, done: float) -> float:
        """The limit when this share of the training is done, 0 ≤ done ≤ 1."""
        for (left, low), (right, high) in zip(self.knots[:-1], self.knots[1:], strict=True):
            if left <= done < right:
                return low if low == high else low + (high - low) * (done - left) / (right - left)
        return self.knots[-1][1]

    def words(self, largest: float) -> str:
        """`0 %: 4, 35 %: 4, 100 %: 88` for costs up to 80."""
        limits = [(place, "none" if math.isinf(limit) else f"{limit * largest:.3g}") for place, limit in self.knots]
        return ", ".join(f"{place:.0%}: {limit}" for place, limit in limits)


RISING = Schedule("rising", ((0.0, TIGHT), (0.35, TIGHT), (1.0, LOOSE)))
FALLING = Schedule(
    "falling", ((0.0, math.inf), (0.25, math.inf), (0.25, LOOSE), (0.4, LOOSE), (0.85, TIGHT), (1.0, TIGHT))
)
# For tasks whose reward is hard to find under a limit: learn to move first.
WARMED = Schedule("warmed", ((0.0, math.inf), (0.25, math.inf), (0.25, TIGHT), (0.6, TIGHT), (1.0, LOOSE)))
# For tasks where an unconstrained expert goes so far that no step alone makes a difference to its cost any more.
CAPPED = Schedule("capped", ((0.0, 0.9), (0.35, 0.9), (0.85, TIGHT), (1.0, TIGHT)))
SCHEDULES = {schedule.name: schedule for schedule in (RISING, FALLING, WARMED, CAPPED)}


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

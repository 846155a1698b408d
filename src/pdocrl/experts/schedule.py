"""How strict an expert's limit is, from the first step of its training to the last.

One expert under one limit gives one cloud of episodes. Limits that move make it visit the whole (cost, reward) plane:
rising ones draw the safe frontier from below, and *unconstrained, then the maximum, then tight* draws the upper edge.
"""

from __future__ import annotations

import dataclasses
import math

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

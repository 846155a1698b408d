"""Two estimates of one policy, and what may be said by them together: the dynamics models and the logged behaviours.

Of each signal the skill of an estimate is the share of the variance between held-out groups that it predicts.

    behaviours are usable    their skill is `SKILLED` or more, they stand for the policy (it is no farther from them,
                             and acts no more strongly beside them, than they do each beside the others), and there
                             are enough of them. Their errors are counted `WIDER` times
    the models have skill    of `FAILED` or more: they speak. Where behaviours are usable and their interval lies apart
                             from the models', both intervals and all that is between
    the models have less     of every cost: the behaviours speak alone, if they are usable; if not, the models, whose
                             intervals are then as wide as their errors

The models fail where a step is predicted well and an episode is not: legs and rotors fall over within tens of steps.
The behaviours know nothing of that, and nothing of where a policy drifts that copies them badly.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from pdocrl.ope.ensemble.behaviours import Behaviours, Likeness
from pdocrl.ope.ensemble.calibrate import Calibrated, Calibration

Floats = NDArray[np.float64]
SKILLED, FAILED = 0.5, 0.25
WIDER = 2.0
DRAWN = 256


@dataclasses.dataclass(frozen=True, eq=False)
class Similar:
    """What behaviours like the policy came to; the fields of `Calibrated`, from no rollouts."""

    value: Floats  # [1 + K]
    interval: Floats  # [1 + K, 2]
    above: Floats  # [K]
    below: Floats  # [K]
    usable: NDArray[np.bool_]  # [1 + K]
    drawn: Floats  # [n, 1 + K] sums of groups, as often as they are like the policy

    @staticmethod
    def of(known: Behaviours, like: Likeness, possible: Floats, level: float) -> Similar:
        """From the policy's likeness to them; possible [1 + K, 2]: what an episode can sum up to."""
        calibration = known.calibration
        by_fold, spread = known.told(like.distance)
        value = by_fold.mean(axis=0)
        ends = calibration.interval(by_fold, spread, level)
        low, high = np.minimum(ends[:, 0], value), np.maximum(ends[:, 1], value)
        under, over = calibration.bounds(by_fold, spread, level)
        ends = np.stack([low, high, np.minimum(under, value), np.maximum(over, value)])
        ends = np.clip(value + WIDER * (ends - value), possible[:, 0], possible[:, 1])
        enough = len(known.truth) >= np.ceil(level / (1 - level))
        usable = (calibration.skill >= SKILLED) & known.stands_for(like) & enough
        return Similar(
            value, ends[:2].T, ends[3, 1:], ends[2, 1:], usable, known.truth[known.drawn(like.distance, DRAWN)]
        )


def together(model: Calibrated, trained_on: Calibration, similar: Similar | None) -> tuple[Calibrated, bool]:
    """What both say, and whether the behaviours carry it alone: the models have no skill for any cost."""
    if similar is None:
        return model, False
    failed = trained_on.skill < FAILED
    carried = bool((failed & similar.usable)[1:].all()) and len(failed) > 1
    alone = np.array([carried and (failed[0] or similar.usable[0]), *[carried] * len(model.above)])
    (low, high), (least, most) = model.interval.T, similar.interval.T
    doubted = similar.usable & ((least > high) | (most < low))
    both = np.stack([np.minimum(low, least), np.maximum(high, most)], axis=1)

    pick = np.where(alone[:, None], similar.interval, np.where(doubted[:, None], both, model.interval))
    over = np.where(doubted[1:], np.maximum(model.above, similar.above), model.above)
    under = np.where(doubted[1:], np.minimum(model.below, similar.below), model.below)
    found = dataclasses.replace(
        model,
        value=np.where(alone, similar.value, model.value),
        interval=pick,
        above=np.where(alone[1:], similar.above, over),
        below=np.where(alone[1:], similar.below, under),
        simulated=similar.drawn if carried else model.simulated,
    )
    return found, carried

"""The reference's augmentation for CDT, to the letter: what `cdt` shows beside the log with `published=True`.

Read beside `augmentation` in `osrl/common/dataset.py` of liuzuxin/OSRL. Wishes lie above the log's frontier: costs
spread evenly over the log's, returns uniform between a polynomial through the frontier and a number chosen for each
task. A wish is answered by the logged episode nearest to it in the plane of cost and return that does not cost more. Of
an episode that would answer m wishes, m − 1 are answered by others as cheap and nearly as good.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.data.dataset import Dataset
from pdocrl.errors import PdocrlError

COST_CELLS, RETURN_CELLS = 10, 50  # of the grid that outliers are found with
FEWEST, MOST = 3, 10  # episodes of a cell: with fewer it is left out, of more so many are drawn
ABOVE = 1.0  # the least by which a wish lies above the polynomial

Indices = NDArray[np.int64]
Floats = NDArray[np.float64]


def augment_as_published(
    dataset: Dataset, share: float, degree: int, highest: float, slack: float, rng: Any
) -> tuple[Indices, Floats, Floats]:
    """Episodes [E′] to show again, and how far the wish lies beyond each: return [E′], cost [E′, 1]."""
    if dataset.n_costs != 1:
        raise PdocrlError(f"cdt: published=true is for one cost, the data has {dataset.n_costs}; drop it.")
    points = np.column_stack([dataset.cost_return[:, 0], dataset.reward_return])  # [E, 2] cost and return
    kept = without_outliers(points, rng)
    if not len(kept):
        raise PdocrlError(
            f"cdt: published=true augments where {FEWEST} episodes are alike in cost and return, and of these "
            f"{len(points)} nowhere so many are; drop it, or set augmentation=0."
        )
    shown = points[kept]
    front = shown[is_undominated(shown)]
    frontier = np.poly1d(np.polyfit(front[:, 0], front[:, 1], degree))
    costs = np.linspace(shown[:, 0].min(), shown[:, 0].max(), int(share * len(shown)))
    lowest = frontier(costs) + ABOVE
    wishes = np.column_stack([costs, lowest + (highest - lowest) * rng.random(len(costs))])
    answers = kept[np.asarray(answer(shown, wishes, slack, rng), np.int64)]
    beyond = wishes - points[answers]
    return answers, beyond[:, 1], beyond[:, :1]


def without_outliers(points: Floats, rng: Any) -> Indices:
    """Episodes in cells with enough of them, cell after cell in the order cells are first met."""
    low, high = points.min(0), points.max(0)
    width = (high - low) / (COST_CELLS, RETURN_CELLS)
    cells = (points - low) // np.where(width > 0, width, 1.0)
    found: dict[tuple[float, ...], list[int]] = {}
    for i, cell in enumerate(map(tuple, cells)):
        found.setdefault(cell, []).append(i)
    kept = [rng.choice(own, MOST, replace=False) if len(own) > MOST else own for own in found.values()]
    return np.asarray([i for own in kept if len(own) >= FEWEST for i in own], np.int64)


def is_undominated(points: Floats) -> NDArray[np.bool_]:
    """Of (cost, return) [E, 2]: whether no other has at most its cost and at least its return, but for equals."""
    cost, earned = points.T
    no_worse = (cost[:, None] <= cost) & (earned[:, None] >= earned)
    better = (cost[:, None] < cost) | (earned[:, None] > earned)
    return np.asarray(~(no_worse & better).any(0))


def answer(points: Floats, wishes: Floats, slack: float, rng: Any) -> list[int]:
    """Who answers: the nearest among those not dearer; those who would answer often share it with their like.

    The answers come grouped by episode and go to the wishes in the order of these, so a wish need not get its own.
    """
    nearest = []
    for wish in wishes:
        distance = np.hypot(*(points - wish).T)
        nearest.append(int(np.where(points[:, 0] <= wish[0], distance, np.inf).argmin()))
    answers: list[int] = []
    for i, times in Counter(nearest).items():
        answers.append(i)
        if times > 1:
            like = np.flatnonzero((points[:, 0] <= points[i, 0]) & (points[:, 1] >= points[i, 1] - slack))
            weight = 1 / (np.hypot(*(points[like] - points[i]).T) + 1)
            answers += like[rng.choice(len(like), times - 1, p=weight / weight.sum())].tolist()
    return answers

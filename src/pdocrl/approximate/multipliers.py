"""A search for multipliers by evaluation: of the most reward within the limits, else of the least excess.

Each λ_k moves by the sign of its cost's excess, with a step that doubles while the sign stays and halves where it turns
(Riedmiller and Braun, "Rprop", 1993): only signs are used, so costs may be evaluated by anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from pdocrl.data.named_columns import Floats

Found = TypeVar("Found")


def search(
    evaluate: Callable[[Floats], tuple[float, Floats, Found]], start: Floats, size: float, trials: int, largest: float
) -> Found:
    """The best of what was found.

    Args:
        evaluate: λ [K] → the reward, how far each cost is over what is aimed at [K], and what is returned of the best.
        start: λ to begin with.
        size: of the first steps.
        trials: evaluations; one where there are no limits.
        largest: no λ_k becomes larger.
    """
    now, step, sign = start, np.full(len(start), size), np.zeros(len(start))
    best: tuple[tuple[bool, float], Found] | None = None
    for _ in range(trials if len(start) else 1):
        reward, over, found = evaluate(now)
        worst = float(over.max(initial=0.0))
        rank = (worst <= 0, reward if worst <= 0 else -worst)
        if best is None or rank > best[0]:
            best = (rank, found)
        turned = np.sign(over)
        step = np.where(sign == 0, step, np.where(turned == sign, 2 * step, step / 2))
        sign = turned
        now = np.clip(now + sign * step, 0.0, largest)
    assert best is not None
    return best[1]

"""The conformal quantile covers what it says, and no more than one rank beyond."""

from __future__ import annotations

import numpy as np
import pytest

from pdocrl.ope.ensemble.calibrate import _quantile


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95])
@pytest.mark.parametrize("count", [20, 40, 101])
def test_a_score_left_out_is_covered_at_the_level(count: int, level: float) -> None:
    """Of exchangeable scores each is as likely to be the new one, so the coverage is a share of left-out scores."""
    scores = np.random.default_rng(count).permutation(count).astype(float)
    covered = [score <= _quantile(np.delete(scores, i)[:, None], level)[0] for i, score in enumerate(scores)]
    assert level <= np.mean(covered) < level + 1 / count

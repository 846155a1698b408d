"""Trees as plain arrays say what scikit-learn says, and clones are calibrated."""

from __future__ import annotations

import numpy as np
import pytest

from pdocrl.approximate.boosting import ChoiceTrees, ValueTrees
from pdocrl.policies.row_policy import Trees

pytest.importorskip("sklearn")


def rows(n: int = 600, actions: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x, action = rng.normal(size=(n, 3)), rng.integers(actions, size=n)
    return x, action, np.sin(2 * x[:, 0]) * (action == 2) - x[:, 1] * (action == 0) + 0.1 * rng.normal(size=n)


def test_values_as_arrays() -> None:
    x, action, y = rows()
    some = action != 1  # an action that was never seen takes another's place, and nobody asks for it
    found = ValueTrees.fit(x[some], action[some], y[some], 4)
    asked = np.where(action == 1, 3, action)
    np.testing.assert_allclose(Trees(found.arrays())(x, asked), found(x, asked), rtol=1e-9)
    assert np.mean((found(x[some], action[some]) - y[some]) ** 2) < 0.1 * y[some].var()


@pytest.mark.parametrize("kept", [(0, 1, 2, 3), (1, 3), (2,)])
def test_choices_as_arrays(kept: tuple[int, ...]) -> None:
    x, action, _ = rows()
    some = np.isin(action, kept)
    found = ChoiceTrees.fit(x[some], action[some], 4, np.arange(some.sum()) // 5)
    np.testing.assert_allclose(Trees(found.arrays())(x), found(x), rtol=1e-9)
    chances = found.probabilities(x)
    np.testing.assert_allclose(chances.sum(1), 1)
    assert chances[:, [a for a in range(4) if a not in kept]].max(initial=0) == 0


def test_probabilities_are_calibrated() -> None:
    """A decider whose choice is half chance: without a temperature fitted aside, trees are too sure."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(1500, 6))
    chance = np.where(x[:, 0] > 0, 0.7, 0.3)
    action = (rng.random(1500) < chance).astype(np.int64)
    found = ChoiceTrees.fit(x, action, 2, np.arange(1500) // 10)
    assert found.temperature > 1.2
    assert np.abs(found.probabilities(x)[:, 1] - chance).mean() < 0.1

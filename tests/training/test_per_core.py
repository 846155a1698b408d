"""Runs in turns on a CPU's cores: each takes all its steps in order, and what is found on the way is added up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pdocrl.training import per_core


def count(table: Any, size: Any, breaks: Any, state: Any, start: Any, steps: Any) -> Any:
    """A program of one run: its state lists the steps it took, and a metric is bad from step `breaks` on."""
    taken = np.arange(int(start), int(start) + int(steps))
    bad = taken[taken >= int(breaks[0])]
    return [*state, *taken], {"loss": np.asarray([taken.sum()])}, {"loss": np.asarray([bad[0] if len(bad) else -1])}


@pytest.mark.parametrize("runs", [1, 2, 3, 5])
@pytest.mark.parametrize("cores", [1, 2, 4])
@pytest.mark.parametrize("steps", [1, 7])
def test_every_run_takes_every_step_once_and_in_order(
    monkeypatch: pytest.MonkeyPatch, runs: int, cores: int, steps: int
) -> None:
    monkeypatch.setattr(per_core, "cores", lambda: cores)
    breaks = [np.asarray([10 + 3 * run]) for run in range(runs)]
    abouts = [(np.asarray([1]), first) for first in breaks]
    states, sums, bad = per_core.run_per_core(count, None, abouts, [[] for _ in range(runs)], 10, steps)
    assert states == [list(range(10, 10 + steps))] * runs
    assert sums["loss"].tolist() == [sum(range(10, 10 + steps))] * runs
    assert bad["loss"].tolist() == [10 + 3 * run if 3 * run < steps else -1 for run in range(runs)]


def test_what_a_run_raises_is_raised() -> None:
    def breaks(*arguments: Any) -> Any:
        raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        per_core.run_per_core(breaks, None, [(0,), (0,)], [[], []], 0, 3)


def test_apart_and_together_again_is_the_same() -> None:
    tree = {"a": np.arange(6.0).reshape(3, 2), "b": (np.arange(3),), "none": None}
    parts = per_core.unstack(tree, 3)
    np.testing.assert_array_equal(parts[1]["a"], [[2.0, 3.0]])
    whole = per_core.stack(parts)
    np.testing.assert_array_equal(whole["a"], tree["a"])
    np.testing.assert_array_equal(whole["b"][0], tree["b"][0])

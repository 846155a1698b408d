"""Several runs on a CPU: as many at once as there are cores.

Left to itself XLA shares out each product of one run among the cores, which then wait for each other at its end. Runs
do not wait for one another.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from pdocrl.machine import cores

Figures = dict[str, NDArray[Any]]  # [1] of one run, [R] of all


def unstack(tree: Any, runs: int) -> list[Any]:
    """Arrays [R, …] as R trees of arrays [1, …]."""
    whole = jax.tree.map(np.asarray, tree)
    return [jax.tree.map(lambda leaf, run=run: leaf[run : run + 1], whole) for run in range(runs)]


def stack(trees: Sequence[Any]) -> Any:
    """The other way round."""
    return jax.tree.map(lambda *own: jnp.asarray(np.concatenate(own)), *trees)


def run_per_core(
    program: Callable[..., Any], table: Any, abouts: Sequence[Any], states: Sequence[Any], start: int, steps: int
) -> tuple[list[Any], Figures, Figures]:
    """`program` for each run alone: the states after `steps` steps, sums of metrics [R] and first bad steps [R].

    Where the cores cannot share the runs evenly each run stops on the way, so that no core is left with a whole one.
    """
    workers = min(len(states), cores())
    stops = 1 + (workers if len(states) % workers else 1)
    edges = np.unique(np.linspace(0, steps, stops).astype(int)).tolist()

    def go_on(run: int, before: Future[Any] | None, first: int, last: int) -> tuple[Any, Figures, Figures]:
        state, earlier, broken = before.result() if before else (states[run], {}, {})
        state, sums, bad = program(table, *abouts[run], state, jnp.int32(start + first), jnp.int32(last - first))
        sums = {name: np.asarray(new, np.float64) + earlier.get(name, 0.0) for name, new in sums.items()}
        worst = {name: broken.get(name, np.full(1, -1)) for name in bad}
        return state, sums, {name: np.where(worst[name] < 0, new, worst[name]) for name, new in bad.items()}

    if workers > 1:
        go_on(0, None, 0, 0)  # compiled here: every thread would do it for itself
    turns: list[Future[Any] | None] = [None] * len(states)
    with ThreadPoolExecutor(workers) as pool:
        for first, last in itertools.pairwise(edges):
            turns = [pool.submit(go_on, run, before, first, last) for run, before in enumerate(turns)]
    done = [turn.result() for turn in turns if turn]
    sums, bad = (
        {name: np.concatenate([found[kind][name] for found in done]) for name in done[0][kind]} for kind in (1, 2)
    )
    return [state for state, _, _ in done], sums, bad

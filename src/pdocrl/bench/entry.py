"""`pdocrl.bench(suite)`: a suite of tasks and agents, trained and played, from Python."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pdocrl.bench.rates import Rates
from pdocrl.bench.run import Done, Selection, bench, make_plan
from pdocrl.bench.suite_file import find_suite


def run_suite(
    suite: str,
    out: str | os.PathLike[str] | None = None,
    *,
    data: str | os.PathLike[str] | None = None,
    agents: Sequence[str] = (),
    tasks: Sequence[str] = (),
    train: bool = True,
    evaluate: bool = True,
    engine: Literal["local", "ray"] = "local",
) -> Done:
    """Train and play the groups of a suite that are not done yet; `Done.rows` holds one row per episode.

    Args:
        suite: a name of `pdocrl bench --help`, or a TOML file. It may name agents given as classes in this process.
        out: folder of the results; default: runs/bench-<suite>.
        data: folder with the dataset files.
        agents: only these of the suite.
        tasks: only these of the suite.
        train: whether to train what is not trained.
        evaluate: whether to play what is not played.
        engine: on this machine, or on a Ray cluster.
    """
    chosen = find_suite(suite)
    folder = Path(out) if out is not None else Path(f"runs/bench-{chosen.name}")
    selection = Selection(
        folder, None if data is None else Path(data), tuple(agents), tuple(tasks), train, evaluate, engine, None
    )
    rates = Rates()
    return bench(make_plan(chosen, selection, rates, measure=False), rates)

"""How many modules a result runs through: those of which a function is called on the way to a page.

    PYTHONPATH=SOURCE python benchmarks/walks.py hdf5 | log        # SOURCE: of this version or another

`hdf5`: the embedded BallRun data as HDF5 → `train --agent bc` → `evaluate` → `report`.
`log`: a CSV of states → `solve --out` → `report`. Importing a module is not counted, calling what is in it is.
"""

from __future__ import annotations

import csv
import inspect
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import pdocrl

HOME = Path(pdocrl.__file__).parent


def visited(lines: list[list[str]]) -> list[str]:
    """The modules of the package in which a function ran."""
    try:
        from pdocrl.cli.main import main
    except ImportError:  # version 0.2
        from pdocrl.cli import main  # type: ignore[attr-defined,no-redef]

    found: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        is_function = code.co_flags & inspect.CO_OPTIMIZED  # neither a module nor the body of a class
        if event == "call" and is_function and code.co_filename.startswith(str(HOME)):
            found.add(str(Path(code.co_filename).relative_to(HOME)))

    for line in lines:
        sys.setprofile(note)
        status = main(line)
        sys.setprofile(None)
        assert status == 0, line
    return sorted(found)


def walk(kind: str, folder: Path) -> list[str]:
    if kind == "hdf5":
        data = pdocrl.load("BallRun")
        pdocrl.save(data, folder / "data.hdf5")
        run = str(folder / "run")
        small = ["--set", "hidden=8,8", "batch_size=16", "--steps", "20", "--cost-limit", "20"]
        train = ["train", str(folder / "data.hdf5"), "--task", "BallRun", "--agent", "bc", *small, "--out", run]
        evaluate = ["evaluate", run, "--episodes", "1", "--workers", "1"]
        return visited([train, evaluate, ["report", run]])
    rng, log = np.random.default_rng(0), folder / "log.csv"
    state, action = rng.integers(2, size=401), rng.integers(2, size=400)
    with log.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["episode", "step", "state", "action", "next_state", "reward", "cost"])
        for i in range(400):
            cost = int(action[i] == 1 and rng.random() < 0.4)
            out.writerow([i // 20, i % 20, state[i], action[i], state[i + 1], float(action[i]), cost])
    policy = str(folder / "policy")
    solve = ["solve", str(log), "--gamma", "0.9", "--limit", "cost<=0.2", "--resamples", "20", "--out", policy]
    return visited([solve, ["report", policy]])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as place:
        walk(sys.argv[1], Path(first))  # imports what is needed, so that no decorator is counted
        modules = walk(sys.argv[1], Path(place))
    print("\n".join(modules), file=sys.stderr)
    print(f"{sys.argv[1]}: {len(modules)} modules")

"""Mutated dataset files, thousands of them: reading one gives a clean error or a valid dataset, nothing else.

    python benchmarks/fuzz_readers.py --files 20000

Each file is made from (seed, number) alone: a small good file of one format, changed in its bytes (flips, cuts,
splices) or in its structure (keys, types, shapes, links, headers). A worker process reads it with `load` and draws
batches with `open_stream`; the parent notices a crash of a library (the worker dies) and a hang (no answer in time).
A failing file is kept under --keep for study. Writes benchmarks/results/fuzz_readers.csv; exits 1 if anything failed.
"""

from __future__ import annotations

import argparse
import collections
import csv
import json
import os
import resource
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import fuzz_mutations
import numpy as np

from pdocrl.data import Dataset, load
from pdocrl.data.stream import open_stream
from pdocrl.errors import PdocrlError

MEMORY_LIMIT = 6 << 30  # address space of a worker: a memory bomb must end as an error well before
FAILURES = ("crash", "hang", "exception", "invalid")


def outcome(path: Path) -> tuple[str, str]:
    """How reading one file ends: (refused | read | exception | invalid, message)."""
    results = []
    for action in (lambda: _valid(load(path)), lambda: _draw(path)):
        try:
            results.append(("read", action()))
        except PdocrlError as error:
            message = str(error)
            results.append(("invalid", f"several lines: {message!r}") if "\n" in message else ("refused", message))
        except AssertionError as error:
            results.append(("invalid", str(error)))
        except BaseException as error:  # whatever else comes out is what the fuzzer is for
            results.append(("exception", f"{type(error).__name__}: {error}"))
    failed = [result for result in results if result[0] in FAILURES]
    return failed[0] if failed else results[0]


def _valid(dataset: Dataset) -> str:
    """Every promise of a read dataset, checked without the code that made it."""
    n = len(dataset.obs)
    assert n > 0, "no rows"
    assert dataset.obs.shape == dataset.next_obs.shape, "shapes of obs and next_obs"
    assert dataset.reward.shape == dataset.terminal.shape == dataset.timeout.shape == (n,), "columns"
    assert dataset.action.ndim == dataset.cost.ndim == 2, "matrices"
    assert len(dataset.action) == len(dataset.cost) == n, "rows"
    for field in ("obs", "action", "reward", "cost", "next_obs"):
        array = getattr(dataset, field)
        assert array.dtype == np.float32, field
        assert np.isfinite(array).all(), field
    assert dataset.terminal.dtype == dataset.timeout.dtype == bool, "flags"
    assert (np.abs(dataset.action) <= 1.001).all(), "actions"
    assert (dataset.cost >= 0).all(), "costs"
    assert len(dataset.cost_names) == dataset.cost.shape[1], "cost names"
    assert dataset.episode_length.sum() == n, "episodes"
    return dataset.digest


def _draw(path: Path) -> str:
    if path.suffix not in {".hdf5", ".npz"}:
        return ""
    with open_stream(path, memory=1 << 20) as stream:
        batches = stream.batches(8, seed=0)
        for _ in range(3):
            batch = next(batches)
            assert all(len(array) == 8 for array in batch.values()), "batch"
    return ""


def work() -> None:
    """Answer each `seed number` line on standard input with one JSON line."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    fuzz_mutations.originals()  # before the first answer, so that the clock of no file includes imports
    print(json.dumps("ready"), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            seed, number = map(int, line.split())
            name, suffix, content = fuzz_mutations.mutant(seed, number)
            path = Path(folder) / f"x{suffix}"
            path.write_bytes(content)
            print(json.dumps([name, suffix, *outcome(path)]), flush=True)


class Worker:
    """A process that may die or hang without harm."""

    def __init__(self) -> None:
        command = [sys.executable, __file__, "--worker"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )
        assert self.answer(120) == "ready"

    def ask(self, seed: int, number: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seed} {number}\n".encode())

    def answer(self, seconds: float) -> object:
        """The next JSON line; None if the process died; raises TimeoutError."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            raise TimeoutError
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def end(self) -> int:
        self.process.kill()
        return self.process.wait()


def run(files: int, seed: int, limit: float, keep: Path | None) -> collections.Counter[tuple[str, str, str]]:
    """{(format, mutation, outcome): count} over the files."""
    counts: collections.Counter[tuple[str, str, str]] = collections.Counter()
    worker, slowest, start = Worker(), 0.0, time.time()
    for number in range(files):
        asked = time.time()
        worker.ask(seed, number)
        try:
            answer = worker.answer(limit)
            kind = "crash"
        except TimeoutError:
            answer, kind = None, "hang"
        slowest = max(slowest, time.time() - asked)
        if answer is None:
            status = worker.end()
            name, suffix, _ = fuzz_mutations.mutant(seed, number)
            message = f"exit status {status}" if kind == "crash" else f"more than {limit} s"
            worker = Worker()
        else:
            name, suffix, kind, message = answer  # type: ignore[misc]
        counts[suffix, name, kind] += 1
        if kind in FAILURES:
            print(f"{kind}: file {number} ({suffix}, {name}): {message}", flush=True)
            if keep:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f"{seed}_{number}{suffix}").write_bytes(fuzz_mutations.mutant(seed, number)[2])
    worker.end()
    print(f"{files} files in {time.time() - start:.0f} s; slowest answer {slowest:.2f} s")
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time-limit", type=float, default=10.0, help="seconds for one file")
    parser.add_argument("--keep", type=Path, help="folder for files that failed")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "fuzz_readers.csv")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work()
        return 0
    counts = run(options.files, options.seed, options.time_limit, options.keep)
    kinds = ("refused", "read", *FAILURES)
    with options.out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["format", "mutation", *kinds])
        for suffix, name in sorted({key[:2] for key in counts}):
            writer.writerow([suffix, name, *(counts[suffix, name, kind] for kind in kinds)])
    print(f"{'format':10}" + "".join(f"{kind:>11}" for kind in kinds))
    for suffix in sorted({key[0] for key in counts}):
        totals = [sum(n for key, n in counts.items() if key[0] == suffix and key[2] == kind) for kind in kinds]
        print(f"{suffix:10}" + "".join(f"{total:11}" for total in totals))
    return int(any(counts[key] for key in counts if key[2] in FAILURES))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())

"""Batches from a file several times larger than the memory allowed: peak memory and rate, measured.

    python benchmarks/bench_larger_than_memory.py --gigabytes 8 --cap-gigabytes 2

Writes a random DSRL file (deleted afterwards), then draws batches from it in a process whose address space is limited
(RLIMIT_AS), so that exceeding the cap fails instead of swapping. Memory-mapping the file would not even start under
this cap; `stream` reads blocks instead. The kernel's page cache is not counted by this cap; the file's pages are
dropped from it before the first pass (posix_fadvise), so that pass reads from the disk. For comparison, the usual way:
sorted fancy indexing in h5py, batch by batch.

Rates are steady-state: over one whole look-ahead after the first full one. Writes results/larger_than_memory.csv.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np

OBS, ACTION, BATCH = 17, 4, 256
ROW_BYTES = 4 * (2 * OBS + ACTION + 2) + 2


def write_file(path: Path, gigabytes: float, chunk_rows: int | None) -> int:
    """A file of that size, block by block; returns its transitions."""
    n = int(gigabytes * 1e9 / ROW_BYTES) // 1000 * 1000
    shapes = {"observations": (OBS,), "actions": (ACTION,), "rewards": (), "costs": (), "next_observations": (OBS,)}
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        for key, tail in shapes.items():
            chunks = None if chunk_rows is None else (chunk_rows, *tail)
            array = file.create_dataset(key, (n, *tail), np.float32, chunks=chunks)
            for start in range(0, n, 1_000_000):
                stop = min(n, start + 1_000_000)
                array[start:stop] = rng.random((stop - start, *tail), np.float32)
        file["terminals"] = np.zeros(n, bool)
        file["timeouts"] = np.arange(n) % 1000 == 999
    return n


def forget(path: Path) -> None:
    """Drop the file's pages from the kernel's cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def memory(key: str) -> int:
    return int(re.search(key + r":\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024  # type: ignore[index]


def draw(path: Path, cap: int, look_ahead: int) -> dict[str, Any]:
    """Draw under the cap: time to the first batch, rate from a cold and a warm cache, peaks."""
    from pdocrl.data.stream import open_stream

    resource.setrlimit(resource.RLIMIT_AS, (cap, cap))
    result: dict[str, Any] = {}
    start = time.perf_counter()
    with open_stream(path, memory=look_ahead) as stream:
        batches = stream.batches(BATCH, seed=0)
        next(batches)
        result["first_batch_s"] = time.perf_counter() - start
        # The look-ahead doubles until it is full; a full one holds `most` batches.
        most = look_ahead // (BATCH * (4 * (2 * OBS + ACTION + 2 + 2) + 32))
        ramp = 2 ** (most - 1).bit_length()
        for _ in range(ramp):
            next(batches)
        for name in ("cold", "warm"):
            if name == "cold":
                forget(path)
            start = time.perf_counter()
            for _ in range(most):
                next(batches)
            result[f"{name}_batches_per_s"] = most / (time.perf_counter() - start)
    result |= {"peak_rss_mb": memory("VmHWM") / 1e6, "peak_address_space_mb": memory("VmPeak") / 1e6}
    return result | {"look_ahead_batches": most, "usual_batches_per_s": usual(path)}


def usual(path: Path, count: int = 40) -> float:
    """Sorted fancy indexing in h5py, one batch at a time."""
    rng = np.random.default_rng(0)
    with h5py.File(path) as file:
        n = len(file["rewards"])
        start = time.perf_counter()
        for _ in range(count):
            rows = np.unique(rng.integers(n, size=BATCH))
            for key in file:
                file[key][rows]
    return count / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=8.0)
    parser.add_argument("--cap-gigabytes", type=float, default=2.0)
    parser.add_argument("--look-ahead-megabytes", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help="where the file may be written (default: the temporary folder)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "larger_than_memory.csv")
    parser.add_argument("--draw", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    cap, look_ahead = int(options.cap_gigabytes * 1e9), options.look_ahead_megabytes * 1_000_000
    if options.draw:
        print(json.dumps(draw(options.draw, cap, look_ahead)))
        return
    rows = []
    for layout, chunk_rows in (("contiguous", None), ("chunked", 8192)):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            path = Path(folder) / "large.hdf5"
            n = write_file(path, options.gigabytes, chunk_rows)
            forget(path)
            command = [sys.executable, __file__, "--draw", path, "--cap-gigabytes", str(options.cap_gigabytes)]
            command += ["--look-ahead-megabytes", str(options.look_ahead_megabytes)]
            environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            size = path.stat().st_size
        result = {"layout": layout, "file_gb": size / 1e9, "cap_gb": options.cap_gigabytes, "transitions": n}
        result |= json.loads(done.stdout)
        rows.append({key: round(v, 3) if isinstance(v, float) else v for key, v in result.items()})
        for key, value in rows[-1].items():
            print(f"{key:26}{value}")
        print()
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()

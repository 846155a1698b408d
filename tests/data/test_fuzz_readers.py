"""A short run of benchmarks/fuzz_readers.py: spoilt files end in a clean error or a valid dataset."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FUZZER = Path(__file__).parents[2] / "benchmarks" / "fuzz_readers.py"


@pytest.mark.parametrize("seed", [0, 100])
def test_spoilt_files_never_crash_hang_or_half_succeed(seed: int, tmp_path: Path) -> None:
    arguments = ["--files", "400", "--seed", str(seed), "--out", str(tmp_path / "counts.csv")]
    done = subprocess.run([sys.executable, FUZZER, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = [line.split(",") for line in (tmp_path / "counts.csv").read_text().splitlines()]
    assert counts[0] == ["format", "mutation", "refused", "read", "crash", "hang", "exception", "invalid"]
    assert sum(int(n) for row in counts[1:] for n in row[2:]) == 400
    assert {row[0] for row in counts[1:]} == {".hdf5", ".npz", ".parquet", ".csv"}
    assert sum(int(row[3]) for row in counts[1:]) > 20, "some mutations are harmless, and those files are still read"

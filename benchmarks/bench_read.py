"""How long reading a dataset takes, and how much memory at its peak, against the size of its arrays.

    python benchmarks/bench_read.py SafetyCarCircle-v0-100-1333.hdf5 …

Each file is read in a process of its own: once by `load` (with every check), once by the plain way (`h5py[key][()]`,
then `astype`), which is what the published loaders do. Peak memory is the growth of the process's resident set.
Writes benchmarks/results/read.csv.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import subprocess
import sys
from pathlib import Path

READERS = {
    "load": "dataset = load(path); arrays = [getattr(dataset, f) for f in fields]",
    "plain": "file = h5py.File(path); arrays = [file[key][()].astype('f4') for key in file]",
}
CODE = """
import json, re, sys, time
import h5py, numpy as np
from pdocrl.data import load

def memory(key):
    return int(re.search(key + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024

path, fields = sys.argv[1], ("obs", "action", "reward", "cost", "next_obs", "terminal", "timeout")
open("/proc/self/clear_refs", "w").write("5")  # the peak counts from here
before, start = memory("VmRSS"), time.perf_counter()
READER
seconds = time.perf_counter() - start
size = sum(array.nbytes for array in arrays)
print(json.dumps({"seconds": seconds, "arrays": size, "peak": memory("VmHWM") - before}))
"""


def measure(path: Path, reader: str) -> dict[str, float]:
    code = CODE.replace("READER", READERS[reader])
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--repeats", type=int, default=3, help="the median run by time is reported")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "read.csv")
    options = parser.parse_args()
    rows = []
    for path in options.files:
        for reader in READERS:
            runs = sorted((measure(path, reader) for _ in range(options.repeats)), key=lambda run: run["seconds"])
            run = runs[len(runs) // 2]
            name = re.sub(r"\.hdf5$", "", path.name)
            rows.append([name, reader, f"{run['seconds']:.3f}", f"{run['arrays'] / 1e6:.1f}"])
            rows[-1] += [f"{run['peak'] / 1e6:.1f}", f"{run['peak'] / run['arrays']:.2f}"]
            print(("{:32}{:8}{:>10} s{:>10} MB{:>10} MB peak{:>8} ×").format(*rows[-1]))
    with options.out.open("w", newline="") as file:
        csv.writer(file).writerows([["file", "reader", "seconds", "arrays_mb", "peak_mb", "peak_over_arrays"], *rows])


if __name__ == "__main__":
    main()

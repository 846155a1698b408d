"""The reference episodes of `pdocrl install bullet`, and how far other arithmetic leaves them.

    OPENBLAS_CORETYPE=Haswell python benchmarks/reference_episodes.py --write    # the reference itself
    python benchmarks/reference_episodes.py                                      # the comparison

The comparison plays the seeded episode of each task in processes with other OpenBLAS kernels, other NumPy code paths
and another C library path, as other CPUs would choose them, and writes results/reference_episodes.csv: whether the bits
are the reference's, the largest difference over its first steps, the first step that differs by more than 1e-9, and the
return. `--label NAME` adds one row per task of this process as it is, for other Pythons and platforms.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np

from pdocrl.envs.install import FIRST_STEPS, SIMULATORS, TOLERANCE, digest_of, play_seeded, references, seeded_episode
from pdocrl.files import write_csv, write_text

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "src" / "pdocrl" / "envs" / "reference_episodes.json"
RESULTS = ROOT / "benchmarks" / "results" / "reference_episodes.csv"
ARITHMETIC = {
    "OpenBLAS Haswell": {"OPENBLAS_CORETYPE": "Haswell"},
    "OpenBLAS Zen": {"OPENBLAS_CORETYPE": "Zen"},
    "OpenBLAS SkylakeX (AVX-512)": {"OPENBLAS_CORETYPE": "SkylakeX"},
    "OpenBLAS Haswell, NumPy without AVX-512": {
        "OPENBLAS_CORETYPE": "Haswell",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    },
    "OpenBLAS Haswell, C library without AVX2 and FMA": {
        "OPENBLAS_CORETYPE": "Haswell",
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-AVX512F",
    },
}


def write_reference() -> None:
    found = {}
    for task in SIMULATORS["bullet"]:
        rows = list(seeded_episode(task))
        first = [row.tolist() for row in rows[: FIRST_STEPS + 1]]
        found[task] = {"digest": digest_of(rows)[:16], "first": first}
    lines = [f"{json.dumps(task)}: {json.dumps(episode)}" for task, episode in found.items()]
    write_text(REFERENCE, "{\n" + ",\n".join(lines) + "\n}\n")


def measure(label: str, whole: Path) -> list[dict[str, object]]:
    """One row per task; `whole` holds the reference's whole episodes."""
    known, rows = references(), []
    with np.load(whole) as episodes:
        for task in SIMULATORS["bullet"]:
            played, other = play_seeded(task), np.array(list(seeded_episode(task)))
            n = min(len(other), len(episodes[task]))
            apart = np.abs(other[:n] - episodes[task][:n]).max(axis=1)
            beyond = np.flatnonzero(apart > TOLERANCE)
            rows.append(
                {
                    "arithmetic": label,
                    "task": task,
                    "agreement": played.agreement,
                    "digest": played.digest[: len(known[task].digest)],
                    "difference_first_steps": f"{apart[: FIRST_STEPS + 1].max():.1e}",
                    "first_step_beyond_1e-9": int(beyond[0]) if len(beyond) else "",
                    "steps": played.steps,
                    "return": played.reward,
                    "return_of_reference": float(episodes[task][:, -2].sum()),
                    "cost": played.cost,
                    "python": platform.python_version(),
                    "numpy": np.__version__,
                    "machine": f"{platform.system()} {platform.machine()}",
                }
            )
    return rows


def compare(label: str | None, folder: Path) -> None:
    """Each kind of arithmetic in a process of its own, for it is chosen when NumPy is loaded."""
    whole = folder / "whole.npz"
    code = "import sys, numpy; from pdocrl.envs.install import *; "
    code += "numpy.savez(sys.argv[1], **{t: list(seeded_episode(t)) for t in SIMULATORS['bullet']})"
    reference = {**os.environ, **ARITHMETIC["OpenBLAS Haswell"]}
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, str(whole)], env=reference, check=True)
    rows = []
    for name, variables in ARITHMETIC.items() if label is None else [(label, {})]:
        command = [sys.executable, "-W", "ignore", __file__, "--measure", name, str(whole)]
        out = subprocess.run(command, env={**os.environ, **variables}, check=True, stdout=subprocess.PIPE, text=True)
        rows += json.loads(out.stdout.splitlines()[-1])
    if RESULTS.exists():
        with RESULTS.open(encoding="utf-8", newline="") as file:
            again = {str(row["arithmetic"]) for row in rows}
            rows = [row for row in csv.DictReader(file) if row["arithmetic"] not in again] + rows
    write_csv(RESULTS, rows)


def main() -> None:
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the reference of this process")
    parser.add_argument("--label", help="measure this process only, under this name")
    parser.add_argument("--measure", nargs=2, metavar=("NAME", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write_reference()
    elif options.measure:
        print(json.dumps(measure(options.measure[0], Path(options.measure[1]))))
    else:
        with tempfile.TemporaryDirectory() as folder:
            compare(options.label, Path(folder))


if __name__ == "__main__":
    main()

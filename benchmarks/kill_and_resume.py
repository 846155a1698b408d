"""Kill a training at random moments, resume it, and compare the final policy bit for bit with an undisturbed one.

    python benchmarks/kill_and_resume.py --times 20

A moment is a step drawn between the first and the last, and up to a fifth of a second more, so that some kills come
while a checkpoint is being written. Writes results/kill_and_resume.csv.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pdocrl.files import write_csv
from pdocrl.training.folder import load_trained, read_lines

STEPS = 3000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "kill_and_resume.csv")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pdocrl-kill-"))
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder / "jax")  # a restart should not compile again
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

    def command(out: Path) -> list[str]:
        return [
            sys.executable,
            "-m",
            "pdocrl.cli.main",
            "train",
            "BallRun",
            "--cost-limit",
            "10",
            "40",
            "--steps",
            str(STEPS),
            "--checkpoint-every",
            "100",
            "--log-every",
            "100",
            "--set",
            "hidden=32,32",
            "batch_size=64",
            "--out",
            str(out),
        ]

    def run(line: list[str]) -> None:
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def actions(out: Path) -> bytes:
        return b"".join(a.tobytes() for p in load_trained(out).policies for a in p.arrays().values())

    def steps(out: Path) -> int:
        """The last step the training has told of."""
        return max((line["step"] for line in read_lines(out / "metrics.jsonl")), default=0)

    run(command(folder / "whole"))
    expected, rows, rng = actions(folder / "whole"), list[dict[str, int]](), random.Random(0)
    for i in range(arguments.times):
        out, moment = folder / str(i), rng.randrange(STEPS)
        process = subprocess.Popen(command(out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and steps(out) < moment:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.2))
        process.kill()
        process.wait()
        started, step = (out / "run.json").exists(), 0
        if (out / "policies.npz").exists():
            step = load_trained(out).step
        run([sys.executable, "-m", "pdocrl.cli.main", "train", "--resume", str(out)] if started else command(out))
        same = actions(out) == expected
        rows.append({"kill": i, "near_step": moment, "went_on_from": step, "equal": int(same)})
        print(
            f"{i:2d}: killed near step {moment:4d}, gone on from {step:4d}: {'equal' if same else 'DIFFERENT'}",
            flush=True,
        )
    equal = sum(row["equal"] for row in rows)
    print(f"{equal} of {arguments.times} bitwise equal")
    write_csv(arguments.out, rows)
    sys.exit(equal != arguments.times)


if __name__ == "__main__":
    main()

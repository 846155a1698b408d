"""Kill a training at random moments, resume it, and compare the final policy bit for bit with an undisturbed one.

    python benchmarks/kill_and_resume.py --times 20

A moment is anywhere between the start of the process and its end, so some kills come before the first checkpoint and
some while one is being written.
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

from pdocrl.training.train import load_trained


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pdocrl-kill-"))
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder / "jax")  # a restart should not compile again
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

    def command(out: Path) -> list[str]:
        return [
            sys.executable, "-m", "pdocrl.cli", "train", "BallRun", "--cost-limit", "10", "40", "--steps", "3000",
            "--checkpoint-every", "100", "--log-every", "100", "--set", "hidden=32,32", "batch_size=64",
            "--out", str(out),
        ]  # fmt: skip

    def run(line: list[str]) -> None:
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def actions(out: Path) -> bytes:
        return b"".join(a.tobytes() for p in load_trained(out).policies for a in p.arrays().values())

    run(command(folder / "warm-up"))  # compiles
    began = time.perf_counter()
    run(command(folder / "whole"))
    seconds = time.perf_counter() - began
    expected, equal, rng = actions(folder / "whole"), 0, random.Random(0)
    for i in range(arguments.times):
        out, wait = folder / str(i), rng.uniform(0.1, 1) * seconds
        process = subprocess.Popen(command(out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(wait)
        process.kill()
        process.wait()
        started, step = (out / "run.json").exists(), 0
        if (out / "policies.npz").exists():
            step = load_trained(out).step
        run([sys.executable, "-m", "pdocrl.cli", "train", "--resume", str(out)] if started else command(out))
        same = actions(out) == expected
        equal += same
        print(
            f"{i:2d}: killed after {wait:4.1f} s at step {step:4d} or later: {'equal' if same else 'DIFFERENT'}",
            flush=True,
        )
    print(f"{equal} of {arguments.times} bitwise equal")
    sys.exit(equal != arguments.times)


if __name__ == "__main__":
    main()

"""Installs, tests and the demo on every supported Python with the oldest and the newest allowed dependencies.

    python benchmarks/install_matrix.py                        every Python found, all four rows; about ten minutes each
    python benchmarks/install_matrix.py --pythons 3.13 --ends newest --tests tests/envs

Each row builds an environment of its own in a temporary folder: `pdocrl` as a wheel with the oldest versions that
pyproject.toml allows, or the newest (resolved by `uv`, from PyPI), then `pdocrl install bullet`, the tests, the demo.
Rows are written to results/install_matrix.csv and to the table of docs/install.md. Seconds are those of a machine that
did other work too, as the column `load` says: the mean number of processes that wanted one of its cores.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from generated import END, replace_block

from pdocrl.files import write_csv

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "install_matrix.csv"
PAGE = ROOT / "docs" / "install.md"
BEGIN = "<!-- made by benchmarks/install_matrix.py -->"
PYTHONS = ("3.11", "3.12", "3.13")
OLDEST, NEWEST = ["--resolution", "lowest-direct"], ["--resolution", "highest"]
# The lower bounds of pyproject.toml, or the newest wheels; each also with the Gymnasium of the other side.
ENDS = {
    "oldest": OLDEST,
    "oldest-gymnasium-1": [*OLDEST, "gymnasium>=1"],
    "newest-gymnasium-0.28": [*NEWEST, "gymnasium==0.28.1"],
    "newest": NEWEST,
}
EXTRAS = ("minari", "onnx", "cone", "tensorboard", "trees")
TOOLS = ["pytest>=8", "pandas>=2.2", "pytest-xdist>=3.6", "hypothesis>=6", "playwright>=1.49", "packaging", "pip"]
SHOWN = ("jax", "numpy", "scipy", "gymnasium", "duckdb")
# What needs neither Ray nor the site's tools. `--tests tests` runs everything that the extras allow.
TESTS = [
    "tests/data",
    "tests/nn",
    "tests/envs",
    "tests/policies",
    "tests/evaluation",
    "tests/tabular",
    "tests/agents",
    "tests/training",
    "tests/ope",
    "tests/collect",
    "tests/test_limits.py",
    "tests/test_cli.py",
]


# For machines that do other work: about two minutes of one core, what depends on versions most.
QUICK = [
    *("tests/envs/test_bullet.py", "tests/envs/test_own.py", "tests/envs/test_install.py", "tests/nn/test_networks.py"),
    *("tests/policies/test_density.py", "tests/tabular/test_cmdp.py"),
    *("tests/data/test_bad_input.py", "tests/data/test_event_log.py", "tests/training/test_checkpoint.py"),
    *("tests/test_limits.py", "tests/test_files.py", "tests/test_records.py", "tests/test_api.py"),
]
SOLVE = ["solve", "inventory", "--gamma", "0.97", "--limit", "stockout<=0.02", "delivery<=0.3", "--out", "policy"]
SHORT = ["--steps", "200", "--episodes", "2"]  # the demo of a quick row


def words(tests: list[str]) -> str:
    """The tests that were run, as the table names them."""
    return "core and simulator" if tests == TESTS else "quick" if tests == QUICK else " ".join(tests)


def interpreter(python: str) -> str | None:
    """The command that starts this version of Python."""
    found = subprocess.run(["uv", "python", "find", python], capture_output=True, text=True)
    return found.stdout.strip() if found.returncode == 0 else shutil.which(f"python{python}")


def run(command: list[str], log: Path, **kwargs: object) -> tuple[int, float, str]:
    """Exit status, seconds, standard output; everything is appended to `log`."""
    began = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kwargs)  # type: ignore[call-overload]
    with log.open("a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(command)}\n{done.stdout}\n")
    return done.returncode, time.perf_counter() - began, done.stdout


def bits(python: Path, log: Path, folder: str, environment: dict[str, str]) -> dict[str, object]:
    """Of the eight seeded episodes, how many have the reference's bits, as this CPU rounds and with the reference's
    kernels, and the first letters of a digest of all eight digests."""
    code = "from pdocrl.envs.install import play; print(*[f'{p.agreement}:{p.digest}' for p in play('bullet')])"
    found: dict[str, object] = {}
    for name, variables in {"here": {}, "reference_kernels": {"OPENBLAS_CORETYPE": "Haswell"}}.items():
        _, _, out = run([str(python), "-c", code], log, cwd=folder, env=environment | variables)
        last = (out.strip().splitlines() or [""])[-1]
        found[f"same_bits_{name}"] = last.count("bits:")
        found[f"rounding_{name}"] = last.count("rounding:")
        digests = "".join(word.partition(":")[2] for word in last.split())
        found[f"digest_{name}"] = hashlib.sha256(digests.encode()).hexdigest()[:12]
    return found


def results(python: Path, log: Path, folder: str, environment: dict[str, str]) -> dict[str, object]:
    """What changes between versions: an action of a cloned policy after so many gradient steps."""
    code = (
        "import numpy as np, pdocrl; data = pdocrl.load('BallRun')\n"
        "for n in (1, 100):\n"
        "    policy = pdocrl.train(data, 'bc', cost_limit=20, steps=n, seed=0).policy(cost_limit=20, seed=0)\n"
        "    print('#', float(np.mean([policy.act(obs)[0] for obs in data.obs[:100]])))"
    )
    _, _, out = run([str(python), "-c", code], log, cwd=folder, env=environment)
    values = [line.removeprefix("# ") for line in out.splitlines() if line.startswith("# ")]
    return dict(zip(("bc_1", "bc_100"), values, strict=False))


def measure(
    python: str, end: str, source: Path, wheel: Path, tests: list[str], quick: bool, demo: bool, logs: Path
) -> dict[str, object]:
    """One row."""
    row: dict[str, object] = {"python": python, "dependencies": end}
    log = logs / f"{python}-{end}.log"
    with tempfile.TemporaryDirectory() as folder:
        venv = Path(folder) / "venv"
        binaries = venv / "bin"
        environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}}
        environment |= {"PATH": f"{binaries}:{environment['PATH']}", "VIRTUAL_ENV": str(venv)}
        status, _, _ = run(["uv", "venv", "--python", interpreter(python) or python, str(venv)], log)
        if status:
            return row | {"stopped": "no such Python"}
        # The file's own requirements, not the wheel: "lowest" is of what is asked for directly.
        pip = ["uv", "pip", "install", "--only-binary", ":all:"]
        asked = [*pip, *ENDS[end], "--requirement", str(source / "pyproject.toml")]
        status, seconds, _ = run(asked, log, env=environment)
        if status == 0:
            status, more, _ = run([*pip, "--no-deps", str(wheel)], log, env=environment)
            seconds += more
        row |= {"install_s": round(seconds, 1)}
        if status:
            return row | {"stopped": "install"}
        row["core_mb"] = round(sum(f.stat().st_size for f in (venv / "lib").rglob("*") if f.is_file()) / 1e6)
        extras = [word for extra in EXTRAS for word in ("--extra", extra)]
        status, _, _ = run([*asked, *extras], log, env=environment)
        # The tests' own tools must not move what is tested: a new pandas asks for a newer NumPy.
        _, _, listed = run(["uv", "pip", "list", "--format", "json"], log, env=environment)
        versions = {p["name"]: p["version"] for p in json.loads(listed[listed.index("[") : listed.rindex("]") + 1])}
        kept = Path(folder) / "kept.txt"
        kept.write_text("".join(f"{n}=={v}\n" for n, v in versions.items() if n != "pdocrl"), encoding="utf-8")
        status = status or run([*pip, *TOOLS, "--constraint", str(kept)], log, env=environment)[0]
        if status:
            return row | {"stopped": "extras"}
        row |= {name: versions[name] for name in SHOWN}
        status, seconds, _ = run([str(binaries / "pdocrl"), "install", "bullet"], log, cwd=folder, env=environment)
        row |= {"bullet_s": round(seconds, 1)}
        if status:
            return row | {"stopped": "pdocrl install bullet"}
        row |= bits(binaries / "python", log, folder, environment)
        if tests:
            workers = ["-n", "0"] if quick else ["-n", "2", "--dist", "loadfile"]
            command = [str(binaries / "python"), "-m", "pytest", *workers, *tests]
            status, seconds, out = run(command, log, cwd=source, env=environment)
            counts = re.findall(r"(\d+) (passed|failed|skipped|error)", out.splitlines()[-1])
            row |= {word: int(n) for n, word in counts} | {"tests_s": round(seconds), "tests": words(tests)}
        if demo:
            row |= results(binaries / "python", log, folder, environment)
            commands = {"solve": SOLVE, "demo": ["demo", *(SHORT if quick else [])]}
            for name, arguments in commands.items():
                status, seconds, _ = run([str(binaries / "pdocrl"), *arguments], log, cwd=folder, env=environment)
                row |= {f"{name}_s": round(seconds)} if status == 0 else {"stopped": name}
            record = Path(folder) / "policy" / "result.json"
            row |= {"solve_value": json.loads(record.read_bytes())["value"]} if record.exists() else {}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pythons", nargs="+", default=PYTHONS)
    parser.add_argument("--ends", nargs="+", default=list(ENDS), choices=list(ENDS))
    parser.add_argument("--tests", nargs="*", default=TESTS, help="test files; none for no tests")
    parser.add_argument("--quick", action="store_true", help="some tests instead of --tests, a short demo")
    parser.add_argument("--no-demo", action="store_true")
    parser.add_argument("--strict", action="store_true", help="exit status 1 where anything failed")
    parser.add_argument("--logs", type=Path, default=Path(tempfile.gettempdir()) / "install_matrix")
    options = parser.parse_args()
    if shutil.which("uv") is None:
        sys.exit("error: uv is not installed: pip install uv")
    options.logs.mkdir(parents=True, exist_ok=True)
    tests = QUICK if options.quick else list(options.tests)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    good = True
    with tempfile.TemporaryDirectory() as folder:
        # A clone, so that what is tried is what was committed, also while the checkout changes.
        source = Path(folder) / "source"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(source)], check=True)
        subprocess.run(["uv", "build", "--wheel", "--quiet", "--out-dir", folder, str(source)], check=True)
        wheel = next(Path(folder).glob("*.whl"))
        for python in options.pythons:
            for end in options.ends:
                row = measure(python, end, source, wheel, tests, options.quick, not options.no_demo, options.logs)
                load = round(os.getloadavg()[2]) if hasattr(os, "getloadavg") else ""
                row |= {"commit": commit.strip(), "system": sys.platform, "load": load}
                print(json.dumps(row), flush=True)
                write(row)
                good &= not (row.get("stopped") or row.get("failed") or row.get("error"))
    sys.exit(int(options.strict and not good))


COLUMNS = [
    "python",
    "dependencies",
    *SHOWN,
    "install_s",
    "core_mb",
    "bullet_s",
    "same_bits_here",
    "rounding_here",
    "digest_here",
    "same_bits_reference_kernels",
    "rounding_reference_kernels",
    "digest_reference_kernels",
    "passed",
    "failed",
    "skipped",
    "error",
    "tests",
    "tests_s",
    "solve_s",
    "solve_value",
    "bc_1",
    "bc_100",
    "demo_s",
    "load",
    "stopped",
    "system",
    "commit",
]


def write(row: dict[str, object]) -> None:
    """Replace the row of this Python and these dependencies, keep the others."""
    rows: list[dict[str, object]] = []
    if RESULTS.exists():
        with RESULTS.open(encoding="utf-8", newline="") as file:
            rows = [dict(r) for r in csv.DictReader(file)]
    same = {(row["python"], row["dependencies"])}
    rows = [r for r in rows if (r["python"], r["dependencies"]) not in same] + [row]
    rows.sort(key=lambda r: (str(r["python"]), list(ENDS).index(str(r["dependencies"]))))
    write_csv(RESULTS, [{name: r.get(name, "") for name in COLUMNS} for r in rows])
    replace_block(PAGE, table(rows))


def table(rows: list[dict[str, object]]) -> str:
    """Markdown, a line per row."""
    heads = ("Python", "dependencies", "JAX", "NumPy", "Gymnasium", "core, s", "MB", "Bullet, s")
    heads = (*heads, "same bits of 8", "tests passed / failed / skipped", "solve, s", "demo, s", "load")
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in rows:
        names = ("python", "dependencies", "jax", "numpy", "gymnasium", "install_s", "core_mb", "bullet_s")
        names = (*names, "same_bits_reference_kernels")
        cells = [str(row.get(name) or "–") for name in names]
        cells.append(" / ".join(str(row.get(name) or 0) for name in ("passed", "failed", "skipped")))
        cells += [str(row.get(name) or "–") for name in ("solve_s", "demo_s", "load")]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([BEGIN, "", *lines, "", END])


if __name__ == "__main__":
    main()

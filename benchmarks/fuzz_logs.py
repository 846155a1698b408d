"""Messy logs by the thousand: `pdocrl solve` answers each with a result or with one line, never with a traceback.

python benchmarks/fuzz_logs.py --logs 2000 --seed 0
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import datetime
import decimal
import io
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow
import pyarrow.parquet

from pdocrl.cli import main as cli

Columns = dict[str, list[Any]]
Rng = np.random.Generator
LABELS: list[Any] = ["früh", "日本", "a b", "a b ", "", "NULL", "nan", "3", "3.0", "-1", "O'Neil", 'say "hi"']
LABELS += ["x" * 300, "🦊", "a @ 1"]


def base(rng: Rng) -> Columns:
    """A sound log of one to sixty rows."""
    n = int(rng.choice([1, 2, 3, 10, 60]))
    S, A = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    s = rng.integers(S, size=n)
    log: Columns = {"state": s.tolist(), "action": rng.integers(A, size=n).tolist()}
    log |= {"next_state": [*s[1:].tolist(), int(s[0])], "reward": rng.normal(size=n).tolist()}
    log["cost"] = rng.random(n).round(2).tolist()
    if rng.random() < 0.5:
        log["terminal"] = (rng.random(n) < 0.3).tolist()
    if rng.random() < 0.5:
        log |= {"episode": (np.arange(n) // 5).tolist(), "step": (np.arange(n) % 5).tolist()}
    return log


def some(rng: Rng, column: list[Any], value: Any) -> list[Any]:
    """The column with a value put in here and there."""
    at = rng.random(len(column)) < rng.choice([0.05, 0.3, 1.0])
    return [value if hit else old for old, hit in zip(column, at, strict=True)]


def relabel(rng: Rng, log: Columns) -> None:
    chosen = [LABELS[int(k)] for k in rng.integers(len(LABELS), size=8)]
    for name in ("state", "next_state"):
        log[name] = [chosen[int(v) % 8] for v in log[name]]


def spoil(rng: Rng, log: Columns) -> None:
    bad = [None, float("nan"), float("inf"), "x", "", -1.0, 1e308, 1e-308, True, "1,5", 2**70]
    name = str(rng.choice(list(log)))
    log[name] = some(rng, log[name], bad[int(rng.integers(len(bad)))])


def flags(rng: Rng, log: Columns) -> None:
    words: list[list[Any]] = [["yes", "no"], ["True", "False"], ["t", "f"], [1, 0], [1.0, 0.0], ["done", ""]]
    words += [["TRUE", "false"], [2, 0], [None, True]]
    pair = words[int(rng.integers(len(words)))]
    log[str(rng.choice(["terminal", "initial"]))] = [pair[int(k)] for k in rng.integers(2, size=len(log["state"]))]


def times(rng: Rng, log: Columns) -> None:
    start = datetime.datetime(2026, 1, 1)
    stamps: list[Any] = [start + datetime.timedelta(hours=k) for k in range(len(log["state"]))]
    if rng.random() < 0.5:
        stamps = [str(stamp) for stamp in stamps]
    log["step"] = stamps
    log["episode"] = [str(stamp)[:10] for stamp in stamps] if rng.random() < 0.7 else stamps


def numbers(rng: Rng, log: Columns) -> None:
    name = str(rng.choice(["state", "action", "reward", "cost", "next_state"]))
    make: list[Callable[[Any], Any]] = [
        lambda v: decimal.Decimal(str(v)),
        float,
        str,
        bool,
        lambda v: f" {v}",
        lambda v: f"{v}.0",
        lambda v: v * 1e9,
    ]
    how = make[int(rng.integers(len(make)))]
    with contextlib.suppress(ArithmeticError, ValueError, TypeError):
        log[name] = [how(v) for v in log[name]]


def columns(rng: Rng, log: Columns) -> None:
    name = str(rng.choice(list(log)))
    if rng.random() < 0.5:
        log.pop(name)
    else:
        log[f"{name}s"] = log.pop(name)


def shape(rng: Rng, log: Columns) -> None:
    n = len(log["state"]) if "state" in log else 1
    keep = np.sort(rng.permutation(n)[: int(rng.integers(0, n + 1))])
    for name in log:
        log[name] = [log[name][k] for k in keep if k < len(log[name])]


MUTATIONS = (relabel, spoil, flags, times, numbers, columns, shape)


def write(rng: Rng, log: Columns, folder: Path) -> str:
    """As Parquet, CSV packed or not, in parts, cut, empty, or not a table at all."""
    kinds = ("parquet", "csv", "csv.gz", "csv.zst", "tsv", "parts", "cut", "noise", "twice")
    kind = str(rng.choice(kinds, p=(0.35, 0.2, 0.08, 0.08, 0.05, 0.1, 0.05, 0.04, 0.05)))
    path = folder / f"log.{'parquet' if kind in {'cut', 'noise'} else 'csv' if kind == 'twice' else kind}"
    if kind == "noise":
        path.write_bytes(rng.bytes(int(rng.integers(0, 400))))
        return str(path)
    try:
        table = pyarrow.table(log)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OverflowError, TypeError, ValueError):
        table = pyarrow.table({name: [None if v is None else str(v) for v in column] for name, column in log.items()})
    if kind in {"parquet", "cut"}:
        pyarrow.parquet.write_table(table, path)
        if kind == "cut":
            path.write_bytes(path.read_bytes()[: int(rng.integers(0, path.stat().st_size))])
    elif kind == "parts":
        path = folder / "parts"
        for k in range(2):
            part = path / f"site={k}" / "part.parquet"
            part.parent.mkdir(parents=True)
            pyarrow.parquet.write_table(table, part)
    else:
        packed = {"gz": "gzip", "zst": "zstd"}.get(path.suffix[1:], "none")
        with duckdb.connect() as connection:
            connection.register("data", table)
            tab = ", DELIMITER '\t'" if kind == "tsv" else ""
            connection.execute(f"COPY data TO '{path}' (FORMAT csv, HEADER, COMPRESSION {packed}{tab})")
        if kind == "twice":
            lines = path.read_text().splitlines()
            path.write_text("\n".join(f"{line},{line.split(',')[0]}" for line in lines) + "\n")
    return str(path)


def options(rng: Rng) -> list[str]:
    chosen = ["--gamma", str(rng.choice(["0.9", "0.99", "0.5"])), "--resamples", "3", "--refits", "0"]
    chosen += ["--C", str(rng.choice(["2", "inf", "50"]))]
    if rng.random() < 0.6:
        chosen += ["--limit", str(rng.choice(["cost<=0.5", "cost>=0.1", "cost<=0", "reward<=1", "cost<=1e9"]))]
    extra = (
        ["--horizon", "5"],
        ["--horizon", "1"],
        ["--window", "10"],
        ["--absorbing", "end"],
        ["--min-count", "1"],
        ["--bins", "reward=3"],
        ["--cluster", "3", "--cells", "reward", "cost"],
        ["--start", "0"],
        ["--explain", "1"],
        ["--frontier", "cost=0.1:0.9:2"],
        ["--columns", "state=states"],
    )
    if rng.random() < 0.5:
        chosen += extra[int(rng.integers(len(extra)))]
    return chosen


def one(seed: int) -> tuple[str, str]:
    """("ok", "refused" or "BAD", what happened)."""
    rng = np.random.default_rng(seed)
    log = base(rng)
    for k in rng.integers(len(MUTATIONS), size=int(rng.integers(0, 4))):
        with contextlib.suppress(KeyError, ValueError, TypeError, OverflowError):  # two changes may not go together
            MUTATIONS[int(k)](rng, log)
    with tempfile.TemporaryDirectory() as folder:
        asked = ["solve", write(rng, log or {"state": []}, Path(folder)), *options(rng), "--json"]
        out, err = io.StringIO(), io.StringIO()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = cli.main(asked)
        except BaseException:
            return "BAD", f"{' '.join(asked)}\n{traceback.format_exc()}"
    errors = [line for line in err.getvalue().splitlines() if line.startswith("error: ")]
    if status == 0 or (status == 2 and out.getvalue()):
        try:
            json.loads(out.getvalue())
        except ValueError:
            return "BAD", f"{' '.join(asked)}: no JSON"
        return "ok", ""
    if status == 2 and len(errors) == 1:
        return "refused", errors[0]
    return "BAD", f"{' '.join(asked)}: status {status}, {len(errors)} error lines\n{err.getvalue()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first log")
    arguments = parser.parse_args()
    start, seen = time.perf_counter(), collections.Counter[str]()
    for seed in range(arguments.seed, arguments.seed + arguments.logs):
        kind, what = one(seed)
        seen[kind] += 1
        if kind == "BAD":
            print(f"--- log {seed}\n{what}", flush=True)
    print(dict(seen), f"{time.perf_counter() - start:.0f} s")
    sys.exit(1 if seen["BAD"] else 0)


if __name__ == "__main__":
    main()

"""Tables of `solve_foreign_logs.py`, from its rows: one line a problem, with what matters or with every method."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pdocrl.files import write_text

ROOT = Path(__file__).parents[1]
BEGIN = "<!-- measured: python benchmarks/solve_foreign_logs.py --tables benchmarks/results/foreign*.csv -->"
END = "<!-- end -->"
NAMES = {
    "lake": "FrozenLake",
    "cliff": "CliffWalking",
    "sepsis": "sepsis",
    "taxi": "Taxi",
    "bandit": "bandit, 80 items",
    "patients": "patients, 30 % frail",
    "disaster": "rare disaster",
}
NUMBERS = (
    "believed_value",
    "believed_cost",
    "true_value",
    "true_cost",
    "value_low",
    "value_high",
    "cost_low",
    "cost_high",
    "limit",
    "optimum",
    "seconds",
)
CONFIDENT, DEFAULT, PLUG_IN = "solve, confidence .95", "solve", "plug-in, 20 rows"
Row = dict[str, Any]


def write_pages(paths: Sequence[Path]) -> None:
    """Between their marks: the summary in notes/solve_logs.md, all methods, as columns, in benchmarks/README.md."""
    latest: dict[tuple[str, str, str], list[Row]] = {}
    for path in paths:
        rows = read(path)
        keys = dict.fromkeys((row["problem"], row["episodes"], row["method"]) for row in rows)
        latest |= {key: _of(rows, key[:2], key[2]) for key in keys}
    rows = [row for some in latest.values() for row in some]
    for page, table in (
        (ROOT / "benchmarks" / "notes" / "solve_logs.md", summary(rows)),
        (ROOT / "benchmarks" / "README.md", matrices(rows)),
    ):
        text = page.read_text(encoding="utf-8")
        before, rest = text.split(BEGIN, 1)
        write_text(page, f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.split(END, 1)[1]}")


def read(path: Path) -> list[Row]:
    """Rows with numbers as numbers; those of methods that gave no policy have none of them."""
    with path.open(encoding="utf-8", newline="") as file:
        rows: list[Row] = list(csv.DictReader(file))
    for row in rows:
        row |= {name: float(row[name]) if row[name] else None for name in NUMBERS}
    return sorted(rows, key=lambda row: int(row["log"]))


def _cases(rows: Sequence[Row]) -> list[tuple[str, str]]:
    order = {name: number for number, name in enumerate(NAMES)}
    return sorted({(row["problem"], row["episodes"]) for row in rows}, key=lambda c: (order[c[0]], int(c[1])))


def _of(rows: Sequence[Row], case: tuple[str, str], method: str) -> list[Row]:
    return [row for row in rows if (row["problem"], row["episodes"]) == case and row["method"] == method]


def _answered(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["true_value"] is not None]


def _mean(rows: Sequence[Row], name: str) -> float:
    return float(np.mean([row[name] for row in rows]))


def broken(row: Row) -> bool:
    """Whether the policy misses the limit in truth, by more than rounding."""
    return bool(row["true_cost"] > row["limit"] * (1 + 1e-6) + 1e-12)


def held(row: Row, signal: str) -> bool:
    """Whether the interval of a signal holds the truth."""
    return bool(row[f"{signal}_low"] - 1e-12 <= row[f"true_{signal}"] <= row[f"{signal}_high"] + 1e-12)


def percent(facts: Sequence[bool]) -> str:
    return f"{100 * np.mean(facts):.0f} %" if facts else "–"


def _coverage(rows: Sequence[Row]) -> str:
    if not rows or rows[0]["value_low"] is None:
        return ""
    return ", ".join(percent([held(row, signal) for row in rows]) for signal in ("value", "cost"))


def _regret(rows: Sequence[Row]) -> str:
    if not rows:
        return "–"
    best = _mean(rows, "optimum")
    return f"{100 * (best - _mean(rows, 'true_value')) / abs(best):.1f} %"


def _table(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (columns, ["---"] * len(columns), *lines))


def summary(rows: Sequence[Row]) -> str:
    """One line a problem: `solve` by default and with a confidence beside the plug-in with 20 rows a pair."""
    columns = (
        "log, episodes",
        "logs",
        "limit broken: default",
        "with confidence .95",
        "of those shown to keep it",
        "plug-in, 20 rows",
        "reward lost: default",
        "with confidence",
        "plug-in",
        "95 % interval holds value, cost",
        "seconds: default, confidence",
    )
    lines = []
    for case in _cases(rows):
        default, sure, plug = (_answered(_of(rows, case, method)) for method in (DEFAULT, CONFIDENT, PLUG_IN))
        shown = [row for row in sure if row["status"] in {"shown", "optimal"}]
        seconds = ", ".join(f"{_mean(some, 'seconds'):.2g}" if some else "–" for some in (default, sure))
        count = f"{len(default)}" if len(default) == len(sure) else f"{len(default)}, {len(sure)}"
        lines.append(
            (
                f"{NAMES[case[0]]}, {int(case[1]):,}",
                count,
                percent([broken(row) for row in default]),
                percent([broken(row) for row in sure]),
                f"{sum(map(broken, shown))} of {len(shown)}",
                percent([broken(row) for row in plug]),
                _regret(default),
                _regret(sure),
                _regret(plug),
                _coverage(default),
                seconds,
            )
        )
    return _table(columns, lines)


def matrices(rows: Sequence[Row]) -> str:
    """Methods as columns: how often each broke the limit, the reward it lost, its seconds, and of how many logs."""
    asked = dict.fromkeys(row["method"] for row in rows)
    first = [
        DEFAULT,
        CONFIDENT,
        *sorted((m for m in asked if m.startswith("plug-in")), key=lambda m: int(m.split()[1])),
    ]
    methods = [m for m in first if m in asked] + [m for m in asked if m not in first]
    cells: dict[str, Callable[[Sequence[Row]], str]] = {
        "Limit broken": lambda some: percent([broken(row) for row in some]),
        "Reward lost": _regret,
        "Seconds": lambda some: f"{_mean(some, 'seconds'):.2g}" if some else "–",
        "Logs": lambda some: str(len(some)),
    }
    tables = []
    for title, cell in cells.items():
        lines = [
            (f"{NAMES[case[0]]}, {int(case[1]):,}", *(cell(_answered(_of(rows, case, method))) for method in methods))
            for case in _cases(rows)
        ]
        tables.append(f"**{title}**\n\n{_table(('log, episodes', *methods), lines)}")
    return "\n\n".join(tables)

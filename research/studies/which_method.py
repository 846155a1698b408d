"""Every tabular method on every family: the committed measurements as the tables and pictures of a page.

They stand in benchmarks/notes/tabular_methods.md.

    OMP_NUM_THREADS=1 python -m research.measure research/results/methods.csv --jobs 16
    OMP_NUM_THREADS=1 python -m research.measure research/results/methods_icu.csv --families icu_sepsis --jobs 16
    python -m research.studies.which_method

The first two measure, anywhere NumPy, SciPy, highspy and clarabel are (the second also needs icu-sepsis); the third
writes what stands between the two marks of the page, and its pictures: docs/img/baselines.png, baselines_settings.png,
baselines_slopes.png, baselines_free.png, baselines_free_settings.png and baselines_free_slopes.png.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from pdocrl.files import read_csv, write_text
from pdocrl.table import Table
from research.experiments.baselines import (
    draw_families,
    draw_settings,
    draw_slopes,
    error_table,
    relative,
    slope_table,
)
from research.experiments.experiment import Rows
from research.measure import EXAMPLES
from research.methods import MEASURED

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "benchmarks" / "notes" / "tabular_methods.md"
LIMITS, FREE = "With limits: the paper's first table, measured", "Without limits: its second table, measured"
PICTURES = (
    ("", draw_families, "error of every method against the size of the log"),
    ("_settings", draw_settings, "error by theory and by the best of a grid"),
    ("_slopes", draw_slopes, "slopes measured and claimed"),
)
BEGIN, END = "<!-- measured: python -m research.studies.which_method -->", "<!-- end -->"


def main(results: Path) -> None:
    """Rewrite the measured part of the page."""
    rows = read_csv(results / "methods.csv")
    main_rows = [row for row in rows if row["family"] not in EXAMPLES]
    parts = []
    for limits, name, title in (("yes", "baselines", LIMITS), ("no", "baselines_free", FREE)):
        own = [row for row in main_rows if row["limits"] == limits]
        if own:
            parts += [f"### {title}", best_of(own), body(error_table(name, title, own))]
            parts.append(body(slope_table(name, title, own)))
            for suffix, draw, what in PICTURES:
                draw(own, ROOT / "docs" / "img" / f"{name}{suffix}.png")
                parts.append(f"![{title}: {what}](../../docs/img/{name}{suffix}.png)")
    examples = [row for row in rows if row["family"] in EXAMPLES]
    if examples:
        parts += ["### The field's counterexamples", example_table(examples)]
    icu = read_csv(results / "methods_icu.csv")
    parts += ["### ICU sepsis", icu_table([row for row in icu if row["limits"] == "yes"], "with the limit")]
    parts.append(icu_table([row for row in icu if row["limits"] == "no"], "without a limit"))
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    lines = "\n".join(_wrap(line) for part in parts for line in [*part.strip().split("\n"), ""]).strip()
    write_text(PAGE, f"{before}{BEGIN}\n\n{lines}\n\n{END}{after}")


def body(table: Table) -> str:
    """Without its title."""
    return table.markdown().split("\n", 2)[2]


def _wrap(line: str) -> str:
    """Prose in lines of at most 100 characters; tables and pictures as they are."""
    if line.startswith(("|", "!", "#")):
        return line
    return textwrap.fill(line, 100, subsequent_indent="  " if line.startswith("- ") else "")


def best_of(rows: Rows) -> str:
    """The three best methods at each coverage, by the best of their grids and by their theories."""
    lines = []
    n = sorted({row["n"] for row in rows})[1]
    for coverage in ("full", "partial"):
        for setting in ("best of grid", "theory"):
            here = [r for r in relative(rows) if (r["coverage"], r["setting"], r["n"]) == (coverage, setting, n)]
            three = sorted(here, key=lambda row: float(row["error"]))[:3]
            named = ", ".join(f"{MEASURED[row['method']].method.label} ({row['error']:.2g})" for row in three)
            lines.append(f"- Least error at n = {n:,}, {coverage} coverage, {setting}: {named}.")
    return "\n".join(lines)


def example_table(rows: Rows) -> str:
    """Method × example, at the smallest and the largest n: error by theory, and by the best of the grid."""
    families = list(dict.fromkeys(row["family"] for row in rows))
    sizes = sorted({row["n"] for row in rows})
    lines = []
    for n in dict.fromkeys((sizes[0], sizes[-1])):
        at = {(r["family"], r["method"], r["setting"]): r for r in rows if r["n"] == n}
        lines += [
            f"Error at n = {n:,}: by theory, then by the best of the grid.",
            "",
            "| method | " + " | ".join(families) + " |",
            "|---|" + "---:|" * len(families),
        ]
        for method in dict.fromkeys(row["method"] for row in rows):
            cells = []
            for family in families:
                pair = [at.get((family, method, setting)) for setting in ("theory", "best of grid")]
                cells.append(", ".join(f"{row['error']:.3f}" for row in pair if row) or "–")
            lines.append(f"| {MEASURED[method].method.label} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def icu_table(rows: Rows, kind: str) -> str:
    """Method × n: survival lost and dose above the limit, per patient, by theory and by the best of the grid."""
    sizes = sorted({row["n"] for row in rows})
    limited = kind == "with the limit"
    what = "Survival lost / dose above the limit" if limited else "Survival lost"
    lines = [
        f"{what}, {kind}, per patient; by theory, then by the best of the grid. In brackets half the 95 % "
        "interval of the latter's error, and the logs. Seconds of one core for the largest log.",
        "",
        "| method | " + " | ".join(f"n = {n:,}" for n in sizes) + " | seconds |",
        "|---|" + "---:|" * (len(sizes) + 1),
    ]
    at = {(row["method"], row["n"], row["setting"]): row for row in rows}
    methods = dict.fromkeys(row["method"] for row in rows)

    def last(method: str) -> tuple[int, float]:
        """The largest size measured, then the error there."""
        n = max(n for n in sizes if (method, n, "best of grid") in at)
        return -n, float(at[method, n, "best of grid"]["error"])

    for method in sorted(methods, key=last):
        cells = []
        for n in sizes:
            pair = [at[method, n, s] for s in ("theory", "best of grid") if (method, n, s) in at]
            shown = [f"{row['loss']:.3f}" + (f" / {row['violation']:.3f}" if limited else "") for row in pair]
            if len(pair) == 1:
                shown = ["–", *shown]
            logs = pair[-1]["logs"] if pair else 0
            half = f"{pair[-1]['high'] - pair[-1]['error']:.3f}" if logs > 1 else "–"
            cells.append(", ".join(shown) + f" [{half}, {logs}]" if pair else "–")
        seconds = float(at[method, -last(method)[0], "best of grid"]["seconds"])
        lines.append(f"| {MEASURED[method].method.label} | " + " | ".join(cells) + f" | {seconds:.2g} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "research" / "results")

"""The gallery: runs examples/*.py as notebooks and writes them with their output, and the table of what they showed.

    pip install nbclient ipykernel pandas 'pdocrl[trees,icu,highway,rddl]' && pdocrl install bullet
    pip install --no-deps simglucose==0.2.11 obp==0.4.1    # without their own pins, which ask for gym 0.9
    python benchmarks/run_examples.py [NAME …]

Each examples/NAME.py is a notebook in percent format (`# %%` begins a cell, `# %% [markdown]` one of text). It is
executed in a folder of its own and written as examples/NAME.ipynb. Its last cell defines `summary`, whose fields become
its row of benchmarks/results/examples.csv with the CPU minutes it took; examples/README.md is made of that file. An
example whose package is not installed is skipped with a line that names it.
"""

from __future__ import annotations

import csv
import json
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pdocrl.files import write_csv, write_text

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
RESULTS = ROOT / "benchmarks" / "results" / "examples.csv"
LONGEST = 3600  # seconds of a cell
MOST = 20_000  # characters of a cell's text output that are kept
# `MARK`, the summary and the kernel's CPU minutes are printed by a cell that is not kept.
MARK = "example-summary: "
SUMMARY = "import json as _j, os as _o; _t = _o.times(); " + (
    f"print({MARK!r} + _j.dumps(summary | {{'cpu_minutes': round(sum(_t[:4]) / 60, 1)}}))"
)
# Versions that were seen to work.
INSTALL = {
    "simglucose": "pip install --no-deps simglucose==0.2.11",
    "highway_env": "pip install 'pdocrl[highway]'",
    "pyRDDLGym": "pip install 'pdocrl[rddl]'",
    "icu_sepsis": "pip install 'pdocrl[icu]'",
    "pandas": "pip install pandas",
    "pybullet": "pdocrl install bullet",
    "bullet_safety_gym": "pdocrl install bullet",
}
HEADS = {
    "problem": "problem",
    "limits": "limits per episode",
    "believed": "estimated reward / cost",
    "stated": "statement",
    "true": "true reward / cost",
    "satisfied": "limits satisfied",
    "cpu_minutes": "CPU min",
}


def main(names: Sequence[str]) -> None:
    import nbformat
    from nbclient.exceptions import CellExecutionError

    sources = [EXAMPLES / f"{name}.py" for name in names] or sorted(EXAMPLES.glob("*.py"))
    rows, failed = {row["example"]: row for row in _read()}, False
    for source in sources:
        try:
            notebook, summary = execute(source)
        except ModuleNotFoundError as error:
            print(f"{source.stem}: skipped, {skipped(str(error.name))}")
            continue
        except CellExecutionError as error:
            failed = True
            print(f"{source.stem}: {error.ename}: {error.evalue}\n{error.traceback[-1500:]}", flush=True)
            continue
        nbformat.write(notebook, source.with_suffix(".ipynb"))
        rows[source.stem] = {"example": source.stem, **summary}
        print(f"{source.stem}: {summary}", flush=True)
        write_csv(RESULTS, [rows[name] for name in sorted(rows)])
    write_text(EXAMPLES / "README.md", readme([rows[name] for name in sorted(rows)]))
    sys.exit(failed)


def skipped(what: str) -> str:
    """What a cell said of a missing package, and how to install it."""
    known = (f"{what}: {command}" for name, command in INSTALL.items() if f"'{name}" in what)
    return next(known, what)


def cells(source: Path) -> list[tuple[str, str]]:
    """A percent script as (kind, text) of each cell."""
    found = []
    for part in re.split(r"^# %%", source.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        if "[markdown]" in head:
            lines = [line.removeprefix("#").removeprefix(" ") for line in body.strip().splitlines()]
            found.append(("markdown", "\n".join(lines)))
        else:
            found.append(("code", body.strip("\n")))
    return found


def notebook_of(source: Path) -> Any:
    """A notebook that was not executed; the same source is the same file."""
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

    make = {"markdown": new_markdown_cell, "code": new_code_cell}
    found = [make[kind](text, id=f"{source.stem}-{k}") for k, (kind, text) in enumerate(cells(source))]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return new_notebook(cells=found, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})


def execute(source: Path) -> tuple[Any, dict[str, Any]]:
    """The notebook with its output and what it showed; ModuleNotFoundError where a package is missing."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError
    from nbformat.v4 import new_code_cell

    notebook = notebook_of(source)
    notebook.cells.append(new_code_cell(SUMMARY))
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=LONGEST, resources={"metadata": {"path": folder}})
        try:
            client.execute(env={**os.environ, "COLUMNS": "120"})
        except CellExecutionError as error:
            if error.ename in {"ModuleNotFoundError", "MissingExtraError"}:
                raise ModuleNotFoundError(name=error.evalue) from error
            raise
    last = notebook.cells.pop()
    (line,) = (line for output in last.outputs for line in output.get("text", "").splitlines() if MARK in line)
    tidy(notebook)
    return notebook, json.loads(line.removeprefix(MARK))


def tidy(notebook: Any) -> None:
    """Without times, progress, warnings that name this machine's files, and HTML where there is text."""
    for cell in notebook.cells:
        cell.get("metadata", {}).pop("execution", None)
        if cell.cell_type != "code":
            continue
        kept = []
        for output in cell.outputs:
            data = output.get("data", {})
            if "text/plain" in data:
                data.pop("text/html", None)
            text = output.get("text", "") or data.get("text/plain", "")
            if output.get("name") == "stderr" or "site-packages" in text or not (text.strip() or "image/png" in data):
                continue
            if "text" in output:
                output["text"] = output["text"][:MOST]
            kept.append(output)
        cell.outputs = kept


def readme(rows: Sequence[dict[str, Any]]) -> str:
    """The gallery's page."""
    lines = [
        "# Examples",
        "",
        "Executed notebooks, from a log to the truth: a log, limits, a policy, what is stated of it, and what the",
        "simulator shows afterwards. Sources are the `.py` files beside them (percent format); run them all with",
        "`python benchmarks/run_examples.py`, which names its packages and skips a notebook whose package is absent.",
        "",
        f"| notebook | {' | '.join(HEADS.values())} |",
        "|---" * (len(HEADS) + 1) + "|",
    ]
    for row in rows:
        said = {**row, "satisfied": {"True": "yes", "False": "**no**"}.get(str(row["satisfied"]), "–")}
        lines.append(f"| [{row['example']}]({row['example']}.ipynb) | {' | '.join(str(said[key]) for key in HEADS)} |")
    return "\n".join(lines) + "\n"


def _read() -> list[dict[str, Any]]:
    if not RESULTS.exists():
        return []
    with RESULTS.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    main(sys.argv[1:])

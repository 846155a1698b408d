"""The page of the suite `tabular`: the theory's figures, each with its picture and its table."""

from __future__ import annotations

import base64
import re
from html import escape
from pathlib import Path
from typing import Any

from pdocrl.bench.typeset import Table, Text
from pdocrl.report.html import attributes, card, data_table, document


def render_theory(folder: Path, suite: dict[str, Any]) -> str:
    """The whole page as text, from the CSV files; what is not measured yet is named."""
    from pdocrl.bench.theory import PICTURES, read_csv
    from pdocrl.theory.experiments import EXPERIMENTS

    sections, waiting = [], []
    for name, experiment in EXPERIMENTS.items():
        path = folder / f"{name}.csv"
        if path.exists():
            about = f"<p>{escape(experiment.about)}</p>"
            picture = _picture(folder / PICTURES / f"{name}.png", experiment.about)
            sections.append(card(name.capitalize(), about + picture + _table(experiment.table(read_csv(path)))))
        else:
            waiting.append(name)
    again = f"pdocrl bench {suite['name']} --out {folder.name}\npdocrl report {folder.name}"
    lead = (
        f"{len(sections)} of {len(EXPERIMENTS)} figures of the theory, measured on finite problems with known optima."
    )
    missing = f"<p>Not measured yet: {', '.join(waiting)}. The same command goes on.</p>" if waiting else ""
    sections.append(card("Do it again", f'{missing}<pre tabindex="0">{escape(again)}</pre>'))
    return document(f"Benchmark: {suite['name']}", lead, sections, script="page.js", wide=True)


def _picture(path: Path, about: str) -> str:
    if not path.exists():
        return ""
    source = base64.b64encode(path.read_bytes()).decode()
    alt = f"{escape(about)}; the table below has the numbers."
    return f'<figure class="plot"><img src="data:image/png;base64,{source}" alt="{alt}"></figure>'


def _table(table: Table) -> str:
    heads = [escape(f"{group} {name}".strip()) for group, name in table.columns]
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    rows = []
    for first, *others in table.rows:
        cells = "".join(f"<td{_value(cell.text)}>{_text(cell)}</td>" for cell in others)
        rows.append(f'<tr><th scope="row"{_value(first.text)}>{escape(first.text)}</th>{cells}</tr>')
    caption = ". ".join([table.title, *(note.rstrip(".") for note in table.notes)]) + "."
    return data_table(table.title, caption, f"<tr>{head}</tr>", rows, kind="tight")


def _text(cell: Text) -> str:
    return f"<b>{escape(cell.text)}</b>" if cell.style in {"safe", "best"} else escape(cell.text)


def _value(text: str) -> str:
    """What a cell that begins with a number sorts by."""
    number = re.match(r"-?\d[\d,]*(\.\d+)?(e-?\d+)?", text.replace("−", "-"))
    return attributes(value=number[0].replace(",", "")) if number else ""

"""A table before it is set, and three ways to set it: in the terminal, as Markdown, as LaTeX.

Bold is safe, a star (blue in LaTeX and the terminal) the best of the safe, grey unsafe.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Sequence
from typing import Literal

Style = Literal["", "safe", "best", "unsafe"]
DASH = "–"


@dataclasses.dataclass(frozen=True)
class Text:
    """What stands in one place of a table, and how it is set."""

    text: str
    style: Style = ""


@dataclasses.dataclass(frozen=True)
class Table:
    """A table before it is set: columns may share a heading."""

    name: str  # of its files
    title: str
    columns: tuple[tuple[str, str], ...]  # (heading shared with its neighbours or "", own heading)
    rows: tuple[tuple[Text, ...], ...]
    notes: tuple[str, ...] = ()

    def markdown(self) -> str:
        """With the notes below."""
        heads = [f"{group} {name}".strip() for group, name in self.columns]
        lines = [heads, ["---"] + ["---:"] * (len(heads) - 1)]
        lines += [[_markdown(cell) for cell in row] for row in self.rows]
        body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        notes = "".join(f"\n\n{note}" for note in self.notes)
        return f"**{self.title}**\n\n{body}{notes}\n"

    def latex(self) -> str:
        """A `table` for booktabs, multirow-free; needs \\usepackage{booktabs,xcolor}."""
        spans = _spans([group for group, _ in self.columns])
        shared = [rf"\multicolumn{{{width}}}{{c}}{{{_escape(group)}}}" if group else "" for group, width in spans]
        heads = [_escape(name) for _, name in self.columns]
        lines = [" & ".join(shared) + r" \\"] if any(group for group, _ in spans) else []
        lines += [" & ".join(heads) + r" \\", r"\midrule"]
        lines += [" & ".join(_latex(cell) for cell in row) + r" \\" for row in self.rows]
        notes = " ".join(_escape(note) for note in self.notes)
        return "\n".join(
            [
                r"\begin{table}[htb]",
                rf"\caption{{{f'{_escape(self.title)}. {notes}'.strip()}}}",
                rf"\label{{tab:{self.name}}}",
                r"\centering\small",
                rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}",
                r"\toprule",
                *lines,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            ]
        )

    def show(self, told: set[str] | None = None) -> None:
        """On standard output; never cut when piped. Notes in `told` are left out, and those shown are added to it."""
        from rich import markup, table
        from rich.console import Console

        styles = {"": "", "safe": "bold", "best": "bold blue", "unsafe": "dim"}
        grid = table.Table(header_style="bold")
        for index, (group, name) in enumerate(self.columns):
            heading = markup.escape(f"{group}\n{name}" if group else name)
            words = not any(row[index].text[:1].isdigit() for row in self.rows)
            grid.add_column(heading, justify="left" if words else "right", no_wrap=not sys.stdout.isatty())
        for row in self.rows:
            grid.add_row(*(f"[{styles[c.style]}]{_plain(c)}[/]" if c.style else _plain(c) for c in row))
        console = Console() if sys.stdout.isatty() else Console(width=500)
        console.print(
            self.title, style="italic", markup=False, highlight=False
        )  # a title of the grid's would be wrapped
        console.print(grid)
        told = set() if told is None else told
        for note in self.notes:
            if note not in told:
                console.print(note, markup=False, highlight=False)
                told.add(note)


def _plain(cell: Text) -> str:
    """For the terminal, where brackets would be markup."""
    return cell.text.replace("[", r"\[") + (" ★" if cell.style == "best" else "")


def _markdown(cell: Text) -> str:
    text = cell.text.replace("|", r"\|")
    return {"safe": f"**{text}**", "best": f"**{text}** ★"}.get(cell.style, text)


def _latex(cell: Text) -> str:
    text = _escape(cell.text)
    return {
        "safe": rf"\textbf{{{text}}}",
        "best": rf"\textcolor{{blue}}{{\textbf{{{text}}}}}",
        "unsafe": rf"\textcolor{{gray}}{{{text}}}",
    }.get(cell.style, text)


def _escape(text: str) -> str:
    """Plain text for LaTeX."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    text = re.sub(r"[\\~^&%$#_{}]", lambda m: special.get(m[0], "\\" + m[0]), text)
    symbols = {
        "±": r"$\pm$",
        "−": r"$-$",
        "×": r"$\times$",
        "≤": r"$\le$",
        "≥": r"$\ge$",
        DASH: "--",
        "α": r"$\alpha$",
        "·": r"$\cdot$",
    }
    for symbol, command in symbols.items():
        text = text.replace(symbol, command)
    return re.sub(r"(?<![\w$])-(?=\d)", r"$-$", text)


def _spans(groups: Sequence[str]) -> list[tuple[str, int]]:
    """Neighbours under one heading: ["", "a", "a"] → [("", 1), ("a", 2)]."""
    found: list[tuple[str, int]] = []
    for group in groups:
        if found and group and found[-1][0] == group:
            found[-1] = (group, found[-1][1] + 1)
        else:
            found.append((group, 1))
    return found

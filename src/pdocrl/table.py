"""A table before it is set, and four ways to set it: in the terminal, as Markdown, as LaTeX, as HTML.

    table = Table.of(["task", "reward"], [["CarRun", 0.97]], title="Scores")
    table.show(), table.markdown(), table.latex(), table.html()

Bold is safe, a star (blue in LaTeX and the terminal) the best of the safe, grey unsafe. On a page a cell may say more:
smaller lines below it, words for whoever points at it, and what its column sorts by.
"""

from __future__ import annotations

import dataclasses
import html
import os
import re
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pdocrl.files import write_text

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

Style = Literal["", "safe", "best", "unsafe", "yes", "no"]
Belongs = tuple[tuple[str, str], ...]  # ("task", "CarRun"): by which a page's filters know a row, a column or a cell
DASH = "–"
TABLES = "tables"  # the folder for them beside other results


@dataclasses.dataclass(frozen=True)
class Text:
    """What stands in one place of a table, and how it is set."""

    text: str
    style: Style = ""
    below: tuple[str, ...] = ()  # on a page smaller lines under it, elsewhere behind it
    value: float | str | None = None  # what its column sorts by on a page, where that is not its text; "": stays last
    hint: str = ""  # for whoever points at it, on a page only
    belongs: Belongs = ()
    series: int | None = None  # whose colour and shape stand before it, on a page only
    heat: float | None = None  # 0 … 1 fills its ground, on a page only

    @property
    def whole(self) -> str:
        """In one line."""
        return " ".join((self.text, *self.below))


@dataclasses.dataclass(frozen=True)
class Table:
    """A table before it is set: columns may share a heading."""

    name: str  # of its files
    title: str
    columns: tuple[tuple[str, str], ...]  # (heading shared with its neighbours or "", own heading)
    rows: tuple[tuple[Text, ...], ...]
    notes: tuple[str, ...] = ()
    column_belongs: tuple[Belongs, ...] = ()  # of each column; none without any
    row_belongs: tuple[Belongs, ...] = ()

    @staticmethod
    def of(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "", name: str = "") -> Table:
        """Plain values: numbers are shown with four digits."""
        cells = [[Text(f"{cell:.4g}" if isinstance(cell, float) else str(cell)) for cell in row] for row in rows]
        return Table(name, title, tuple(("", column) for column in columns), tuple(tuple(line) for line in cells))

    @property
    def heads(self) -> list[str]:
        return [f"{group} {name}".strip() for group, name in self.columns]

    def markdown(self) -> str:
        """With the notes below."""
        lines = [self.heads, ["---"] + ["---:"] * (len(self.columns) - 1)]
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

        styles = {"": "", "safe": "bold", "best": "bold blue", "unsafe": "dim", "yes": "", "no": "bold"}
        grid = table.Table(header_style="bold")
        for index, (group, name) in enumerate(self.columns):
            heading = markup.escape(f"{group}\n{name}" if group else name)
            justify: Literal["left", "right"] = "right" if self._is_number(index) else "left"
            grid.add_column(heading, justify=justify, no_wrap=not sys.stdout.isatty())
        for row in self.rows:
            grid.add_row(*(f"[{styles[c.style]}]{_plain(c)}[/]" if styles[c.style] else _plain(c) for c in row))
        console = Console() if sys.stdout.isatty() else Console(width=500)
        if self.title:  # a title of the grid's would be wrapped
            console.print(self.title, style="italic", markup=False, highlight=False)
        console.print(grid)
        told = set() if told is None else told
        for note in self.notes:
            if note not in told:
                console.print(note, markup=False, highlight=False)
                told.add(note)

    def html(self, *, tall: bool = False, kind: str = "") -> Markup:
        """For a page: in a box of its own that scrolls, sortable by the page's script, and on a phone a list.

        The roles keep it a table for screen readers there, too.
        """
        from markupsafe import Markup

        numeric = [self._is_number(index) for index in range(len(self.columns))]
        slug = "about-" + "-".join(self.title.lower().split())
        return Markup(_template().render(table=self, numeric=numeric, slug=slug, tall=tall, kind=kind))

    def notebook(self, notes: Iterable[str] = ()) -> str:
        """For a notebook's cell: a plain table, with notes below."""
        head = "".join(f"<th>{html.escape(head)}</th>" for head in self.heads)
        rows = ("".join(f"<td>{html.escape(cell.whole)}</td>" for cell in row) for row in self.rows)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        below = "".join(f"<p>{html.escape(note)}</p>" for note in (*self.notes, *notes))
        caption = f"<caption>{html.escape(self.title)}</caption>" if self.title else ""
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"

    def _is_number(self, column: int) -> bool:
        """Whether what stands in a column are numbers, for the most part."""
        texts = [row[column].text for row in self.rows if row[column].text not in ("", DASH)]
        return bool(texts) and 2 * sum(bool(re.match(r"[-−\[]?[\d.]*\d", text)) for text in texts) > len(texts)


def write_tables(folder: str | os.PathLike[str], tables: Sequence[Table]) -> list[Path]:
    """FOLDER/tables/NAME.md and .tex of each; the Markdown files' paths."""
    made = []
    for table in tables:
        target = Path(folder) / TABLES / f"{table.name}.md"
        write_text(target, table.markdown())
        write_text(target.with_suffix(".tex"), table.latex())
        made.append(target)
    return made


def show_tables(tables: Sequence[Table], folder: Path, widest: int = 9) -> None:
    """On standard output; those too wide for a terminal are only named there, and printed whole when piped."""
    wide = [table for table in tables if sys.stdout.isatty() and len(table.columns) > widest]
    told: set[str] = set()
    for table in tables:
        if table not in wide:
            table.show(told)
    for table in wide:
        print(f"{table.title}: {folder / TABLES / table.name}.md")


def amount(value: float, digits: int = 0) -> str:
    """A sum in the task's own unit, with so many decimals, and with two digits that count where it is smaller."""
    return f"{value:,.{digits}f}" if value == 0 or abs(value) >= 10 ** (1 - digits) else f"{value:.2g}"


@cache
def _template() -> Template:
    from jinja2 import Environment

    return Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(_HTML)


_HTML = """\
{% macro data(pairs) %}{% for name, value in pairs %} data-{{ name }}="{{ value }}"{% endfor %}{% endmacro %}
{% macro inside(cell) %}
{% if cell.series is not none -%}
<svg class="glyph" aria-hidden="true" viewBox="-6 -6 12 12">\
<use href="#mark-{{ (cell.series + 3 * (cell.series // 10)) % 10 }}" class="s{{ cell.series % 10 }}"/></svg>
{%- endif %}
{% if cell.style == "best" %}<span class="star">★ </span>{% endif %}
{% if cell.style in ("yes", "no") %}<span class="mark {{ cell.style }}">{{ cell.text }}</span>
{% elif cell.style in ("safe", "best") %}<b>{{ cell.text }}</b>
{% else %}{{ cell.text }}
{% endif %}
{% for line in cell.below %}<small>{{ line }}</small>{% endfor %}
{% endmacro %}
{% if table.notes %}<p class="note" id="{{ slug }}">{{ table.notes | join(" ") }}</p>{% endif %}
<div class="scroll stacks{{ " tall" if tall }}" role="region" tabindex="0" aria-label="{{ table.title }}">
<table class="sortable tight {{ kind }}" role="table"{% if table.notes %} aria-describedby="{{ slug }}"{% endif %}>
<thead role="rowgroup"><tr role="row">
{% for head in table.heads -%}
<th scope="col" role="columnheader"{% if not numeric[loop.index0] %} class="word"{% endif %}\
{{ data(table.column_belongs[loop.index0]) if table.column_belongs }}>{{ head }}</th>
{%- endfor %}
</tr></thead><tbody role="rowgroup">
{% for row in table.rows %}
<tr role="row"{{ data(table.row_belongs[loop.index0]) if table.row_belongs }}>
{%- for cell in row -%}
{%- set kinds = [cell.style if cell.style in ("safe", "best", "unsafe") else "", \
"" if numeric[loop.index0] else "word", "heat" if cell.heat is not none else ""] | select | join(" ") -%}
{%- set tag = "th" if loop.first else "td" -%}
<{{ tag }}{% if loop.first %} scope="row" role="rowheader"{% else %} role="cell" \
data-label="{{ table.heads[loop.index0] }}"{% endif %}{% if kinds %} class="{{ kinds }}"{% endif %}\
{% if cell.heat is not none %} style="--share:{{ "%.2f" | format(cell.heat) }}"{% endif %}\
{% if cell.hint %} title="{{ cell.hint }}"{% endif %}\
{% if cell.value is not none %} data-value="{{ cell.value }}"{% endif %}{{ data(cell.belongs) }}>\
{{ inside(cell) | replace("\\n", "") | safe }}</{{ tag }}>
{%- endfor -%}
</tr>
{% endfor %}
</tbody></table></div>
"""


def _plain(cell: Text) -> str:
    """For the terminal, where brackets would be markup."""
    return cell.whole.replace("[", r"\[") + (" ★" if cell.style == "best" else "")


def _markdown(cell: Text) -> str:
    text = cell.whole.replace("|", r"\|")
    return {"safe": f"**{text}**", "best": f"**{text}** ★"}.get(cell.style, text)


def _latex(cell: Text) -> str:
    text = _escape(cell.whole)
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

"""What every page is made of: the document with its stylesheet inside, cards, tables that scroll in their box."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent


def document(title: str, lead: str, sections: Iterable[str], *, script: str = "", wide: bool = False) -> str:
    """The whole page as text. `title` and `lead` are plain words, the sections are HTML; empty ones are left out."""
    style = (HERE / "page.css").read_text(encoding="utf-8")
    kind = ' class="wide"' if wide else ""
    made_by = escape(version("pdocrl"))
    # At the end of the body, so that the page is there before the script looks for its tables.
    last = f"<script>\n{(HERE / script).read_text(encoding='utf-8')}</script>\n" if script else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="pdocrl {made_by}">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body{kind}>
<header>
<p class="over">Offline constrained reinforcement learning</p>
<h1>{escape(title)}</h1>
<p class="lead">{escape(lead)}</p>
</header>
<main>
{"".join(section + chr(10) for section in sections if section)}</main>
<footer><p>Made by pdocrl {made_by}. Everything is in this file; it needs no network.</p></footer>
{last}</body>
</html>
"""


def card(title: str, body: str) -> str:
    heading = f"<h2>{escape(title)}</h2>" if title else ""
    return f'<section class="card">{heading}{body}</section>'


def bullets(lines: Sequence[str]) -> str:
    """Plain sentences as a list."""
    return "<ul>" + "".join(f"<li>{prose(line)}</li>" for line in lines) + "</ul>"


def prose(text: str) -> str:
    """Plain words as HTML: what stands between backticks is a command, and a number stays with its per cent sign."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text).replace(" %", "&nbsp;%"))


def facts(known: Mapping[str, str]) -> str:
    """{name: HTML} as a description list; what is empty is left out."""
    return "<dl>" + "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in known.items() if value) + "</dl>"


def interval(pair: Sequence[float], digits: int) -> str:
    return f"[{decimal(pair[0], digits)}, {decimal(pair[1], digits)}]"


def decimal(value: float, digits: int = 2) -> str:
    """With a true minus, and none before a zero."""
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def attributes(**named: object) -> str:
    """`data-…` attributes, by which the page's script finds what belongs to a method, a task or a limit."""
    return "".join(f' data-{name}="{escape(str(value))}"' for name, value in named.items() if value is not None)


def data_table(label: str, caption: str, head: str, rows: Iterable[str], *, kind: str = "", tall: bool = False) -> str:
    """A table in a box of its own that scrolls; `head` is the `<tr>` of its columns, `rows` are `<tr>`s.

    The script turns the header cells into buttons that sort; without it the table is the same, in this order.
    """
    box = "scroll tall" if tall else "scroll"
    return (
        f'<p class="note" id="{_slug(label)}">{prose(caption)}</p>'
        f'<div class="{box}" role="region" tabindex="0" aria-label="{escape(label)}">'
        f'<table class="sortable {kind}" aria-describedby="{_slug(label)}">'
        f"<thead>{head}</thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _slug(label: str) -> str:
    return "about-" + "-".join(label.lower().split())

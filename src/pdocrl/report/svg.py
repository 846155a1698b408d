"""A matplotlib figure as SVG inside a page: scalable, with an alt text, in the page's own light or dark colours.

The figure's colours become CSS variables, so that one picture serves both themes; the hexadecimal value stays as the
fallback.
"""

from __future__ import annotations

import html
import io
import re
from typing import TYPE_CHECKING

from pdocrl.data.plot import FAINT, INK, MUTED, POINT_COLOURS, SAFE_COLOURS, STYLE
from pdocrl.report.figures import GRID

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VARIABLES = {"#ffffff": "--paper", INK: "--ink", MUTED: "--muted", FAINT: "--faint", GRID: "--grid"}
VARIABLES |= {colour: f"--series-{i}" for i, colour in enumerate(POINT_COLOURS)}
VARIABLES |= {colour: f"--safe-{i}" for i, colour in enumerate(SAFE_COLOURS)}


def inline_svg(figure: Figure, name: str, description: str) -> str:
    """The `<svg>` element. `name` keeps its ids apart from those of other pictures; `description` is its alt text."""
    import matplotlib

    text = io.StringIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(text, format="svg", metadata={"Date": None})
    drawing = text.getvalue()
    opening = re.search(r'<svg[^>]*viewBox="([^"]*)"[^>]*>', drawing)
    assert opening is not None  # matplotlib always writes one
    body = drawing[opening.end() : drawing.rindex("</svg>")]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'href="#', f'href="#{name}-', body)
    body = re.sub(r"url\(#", f"url(#{name}-", body)
    body = re.sub(r"((?:fill|stroke): )(#[0-9a-f]{6})", _variable, body)
    body = body.replace("xlink:href", "href")
    label = html.escape(description)
    return f'<svg role="img" aria-label="{label}" viewBox="{opening[1]}">{body.strip()}</svg>'


def _variable(match: re.Match[str]) -> str:
    name = VARIABLES.get(match[2])
    return match[1] + (f"var({name}, {match[2]})" if name else match[2])

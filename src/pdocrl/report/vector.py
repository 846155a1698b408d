"""The figures of a page as files of their own: SVG with its colours inside, and PDF for papers.

page.html ─▶ every <svg class="chart"> ─▶ elements with their looks written out ─▶ NAME.svg, NAME.pdf

A page's drawings take their colours from its stylesheet; here the same rules, in the light theme, become attributes.
One unit is three quarters of a point, so that a panel is as wide as a column of a paper.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pdocrl.files import atomic_path, write_text
from pdocrl.report.chart import SHAPES

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.path import Path as Outline

SVG = "http://www.w3.org/2000/svg"
POINTS = 0.75  # of a unit
FONT = "DejaVu Sans"
DOT = 0.01  # length of a line that is drawn for its round ends alone; PDF has none of length 0
_DRAWING = re.compile(r'<svg class="chart".*?</svg>', re.DOTALL)
_NUMBER = re.compile(r"[A-Za-z]|-?\d*\.?\d+(?:e-?\d+)?")

Look = dict[str, str]  # CSS property → value


@dataclasses.dataclass(frozen=True)
class Piece:
    """One visible element, ready to draw: moved and scaled, with its looks."""

    kind: str  # path, circle or text
    data: str  # of a path its outline, of a text its words
    x: float
    y: float
    scale: float
    look: Look


def save_figures(page: Path, folder: str | os.PathLike[str]) -> list[Path]:
    """Write every drawing of a page into a folder as SVG and PDF, named as in the page."""
    import matplotlib

    made = []
    for text in _DRAWING.findall(page.read_text(encoding="utf-8")):
        svg = ET.fromstring(text.replace('class="chart"', f'class="chart" xmlns="{SVG}"', 1))
        name = svg.attrib["aria-labelledby"].removesuffix("-t")
        target = Path(folder) / f"{name}.svg"
        write_text(target, standalone(svg))
        with atomic_path(target.with_suffix(".pdf")) as whole, matplotlib.rc_context({"pdf.fonttype": 42}):
            draw(svg).savefig(whole, format="pdf", metadata={"CreationDate": None})
        made += [target, target.with_suffix(".pdf")]
    return made


def standalone(svg: ET.Element) -> str:
    """The drawing as a file: no stylesheet, nothing hidden, shapes in their places."""
    left, top, width, height = map(float, svg.attrib["viewBox"].split())
    # Words that stand above the first line or beyond the last tick are on the page, too: it lets drawings overflow.
    frame = f"{left - 2:g} {top - 4:g} {width + 4:g} {height + 8:g}"
    parts = [f'<svg xmlns="{SVG}" viewBox="{frame}" width="{width + 4:g}" height="{height + 8:g}">']
    parts += [
        ET.tostring(found, encoding="unicode") for tag in ("title", "desc") for found in svg.findall(f"{{{SVG}}}{tag}")
    ]
    parts.append(f'<rect x="{left - 2:g}" y="{top - 4:g}" width="100%" height="100%" fill="#ffffff"/>')
    for piece in pieces(svg):
        look = "".join(f' {name}="{value}"' for name, value in piece.look.items())
        place = f' transform="translate({piece.x:g} {piece.y:g}) scale({piece.scale:g})"'
        place = place if (piece.x, piece.y, piece.scale) != (0, 0, 1) else ""
        if piece.kind == "text":
            parts.append(f"<text{place}{look}>{_escaped(piece.data)}</text>")
        else:
            parts.append(f'<path d="{piece.data}"{place}{look}/>')
    return "\n".join([*parts, "</svg>\n"])


def draw(svg: ET.Element) -> Figure:
    """The drawing as a matplotlib figure."""
    from matplotlib.figure import Figure
    from matplotlib.patches import PathPatch
    from matplotlib.transforms import Affine2D

    _, _, width, height = map(float, svg.attrib["viewBox"].split())
    figure = Figure(figsize=((width + 4) * POINTS / 72, (height + 8) * POINTS / 72))
    axes = figure.add_axes(
        (0, 0, 1, 1), frameon=False, xlim=(-2, width + 2), ylim=(height + 4, -4), xticks=[], yticks=[]
    )
    for order, piece in enumerate(pieces(svg)):
        look = piece.look
        if piece.kind == "text":
            anchor = {"middle": "center", "end": "right"}.get(look.get("text-anchor", ""), "left")
            size = float(look["font-size"]) * POINTS
            place = (piece.x, piece.y)
            axes.text(*place, piece.data, fontsize=size, color=look["fill"], ha=anchor, va="baseline", family=FONT)
            continue
        outline = parse_path(piece.data).transformed(Affine2D().scale(piece.scale).translate(piece.x, piece.y))
        fill, stroke = look.get("fill", "#000000"), look.get("stroke", "none")
        line = float(look.get("stroke-width", "1")) * POINTS * piece.scale
        dashes = [float(x) * POINTS / max(line, 1e-9) for x in look.get("stroke-dasharray", "").split()]
        patch = PathPatch(
            outline,
            facecolor=_with_alpha(fill, look.get("fill-opacity")),
            edgecolor=_with_alpha(stroke, look.get("stroke-opacity")),
            linewidth=line if stroke != "none" else 0.0,
            linestyle=(0, dashes) if dashes else "solid",
            capstyle="round" if look.get("stroke-linecap") == "round" else "butt",
            zorder=order,
            clip_on=False,
        )
        axes.add_patch(patch)
    return figure


def pieces(svg: ET.Element) -> Iterator[Piece]:
    """What is seen of a drawing, in the order it is painted."""
    yield from _pieces(svg, 0.0, 0.0)


def _pieces(parent: ET.Element, dx: float, dy: float) -> Iterator[Piece]:
    for element in parent:
        tag, kinds = element.tag.rsplit("}", 1)[-1], element.get("class", "").split()
        if "off" in kinds or tag in {"title", "desc"}:
            continue
        x, y, scale = _placed(element.get("transform", ""))
        if tag == "g":
            yield from _pieces(element, dx + x, dy + y)
        elif tag == "path":
            yield Piece("path", element.attrib["d"], dx, dy, 1.0, _look(kinds, element))
        elif tag == "circle":
            r = float(element.attrib["r"])
            circle = f"M{-r:g} 0a{r:g} {r:g} 0 1 0 {2 * r:g} 0a{r:g} {r:g} 0 1 0 {-2 * r:g} 0z"
            yield Piece("path", circle, dx, dy, 1.0, _look(kinds, element))
        elif tag == "use":
            shape = SHAPES[int(element.attrib["href"].removeprefix("#mark-"))]
            x, y = x + float(element.get("x", "0")), y + float(element.get("y", "0"))
            yield Piece("path", shape, dx + x, dy + y, scale, _look(["use", *kinds], element))
        elif tag == "text":
            x, y = float(element.attrib["x"]), float(element.attrib["y"])
            look = _look(["text", *kinds], element) | {"font-family": FONT}
            yield Piece("text", element.text or "", dx + x, dy + y, 1.0, look)


def _look(kinds: list[str], element: ET.Element) -> Look:
    """The page's rules for these classes, in the light theme, as presentation attributes."""
    rules = _rules()
    found: Look = {}
    for kind in [*(k for k in kinds if k in rules), *(("hollow",) if "hollow" in kinds else ())]:
        found |= rules[kind]
    colour = found.pop("color", "#000000")
    found = {name: colour if value == "currentColor" else value for name, value in found.items()}
    return found | {
        name: element.attrib[name] for name in ("stroke-dasharray", "text-anchor") if name in element.attrib
    }


@cache
def _rules() -> dict[str, Look]:
    """{class: {property: value}} of the page's stylesheet for drawings; colours are those of the light theme."""
    css = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
    light = dict(re.findall(r"(--[\w-]+): (#\w+)", css[: css.index("@media")]))
    found: dict[str, Look] = {"text": {"font-size": "11.5"}}
    for selector, body in re.findall(r"([^{};/]+?)\s*\{([^{}]*)\}", css):
        last = selector.strip().splitlines()[-1].strip()
        if last.startswith(".chart ") or re.fullmatch(r"\.s\d", last):
            kind = re.split(r"[ .]", last)[-1]
        elif last.startswith(":is(.chart, .glyph) use"):
            kind = last.rpartition("use")[2].removeprefix(".") or "use"
        else:
            continue
        look = dict(re.findall(r"([\w-]+):\s*([^;]+?)\s*(?:;|$)", body))
        look = {name: re.sub(r"var\((--[\w-]+)\)", lambda m: light[m[1]], value) for name, value in look.items()}
        look = {name: value.removesuffix("px") for name, value in look.items()}
        found[kind] = found.get(kind, {}) | look
    return found


def _placed(transform: str) -> tuple[float, float, float]:
    """Translation and scale."""
    moved = re.search(r"translate\((-?[\d.]+)[ ,]+(-?[\d.]+)\)", transform)
    scaled = re.search(r"scale\(([\d.]+)\)", transform)
    x, y = (float(moved[1]), float(moved[2])) if moved else (0.0, 0.0)
    return x, y, float(scaled[1]) if scaled else 1.0


def parse_path(data: str) -> Outline:
    """An SVG outline of the commands that `chart` writes: M m L l H h V v a z; an arc is half a circle."""
    from matplotlib.path import Path as Outline

    words = _NUMBER.findall(data)
    points: list[tuple[float, float]] = []
    codes: list[int] = []
    x = y = 0.0
    start, command, i = (0.0, 0.0), "", 0

    def to(px: float, py: float, code: int = int(Outline.LINETO)) -> None:
        nonlocal x, y
        x, y = px, py
        points.append((px, py))
        codes.append(code)

    while i < len(words):
        if words[i].isalpha():
            command, i = words[i], i + 1
            if command == "z":
                points.append(start)
                codes.append(int(Outline.CLOSEPOLY))
                x, y = start
                continue
        size = {"H": 1, "V": 1, "A": 7}.get(command.upper(), 2)
        given = [float(word) for word in words[i : i + size]]
        i += size
        dx, dy = (x, y) if command.islower() else (0.0, 0.0)
        if command in "Mm":
            to(given[0] + dx, given[1] + dy, int(Outline.MOVETO))
            start, command = (x, y), "L" if command == "M" else "l"
        elif command in "Ll":
            to(given[0] + dx, given[1] + dy)
        elif command in "Hh":
            to((given[0] or DOT) + dx, y)
        elif command in "Vv":
            to(x, given[0] + dy)
        else:
            end, middle = (given[5] + dx, given[6] + dy), ((given[5] + dx + x) / 2, (given[6] + dy + y) / 2)
            first = math.atan2(y - middle[1], x - middle[0])
            for k in range(1, 13):
                turn = first - math.pi * k / 12
                to(middle[0] + given[0] * math.cos(turn), middle[1] + given[0] * math.sin(turn))
            to(*end)
    return Outline(points, codes)


def _with_alpha(colour: str, alpha: str | None) -> str | tuple[str, float]:
    return colour if alpha is None or colour == "none" else (colour, float(alpha))


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")

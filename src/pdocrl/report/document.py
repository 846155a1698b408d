"""What every page is made of: sections of a few kinds, set by one template with its stylesheet and script inside.

Everything that is not `Markup` is escaped by the template.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import re
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

from jinja2 import Environment, PackageLoader, Template
from markupsafe import Markup, escape

from pdocrl.report.chart import SHAPES

HERE = Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Tables:
    """Tables, set already."""

    kind: ClassVar[str] = "tables"
    tables: list[Markup]


@dataclasses.dataclass(frozen=True)
class Listed:
    """Plain sentences; what stands between backticks is a command."""

    kind: ClassVar[str] = "listed"
    lines: list[str]


@dataclasses.dataclass(frozen=True)
class Failures:
    """Whose, why, and what it belongs to."""

    kind: ClassVar[str] = "failures"
    lines: list[tuple[str, str, dict[str, str]]]


@dataclasses.dataclass(frozen=True)
class Known:
    """Facts by name; what is empty is left out."""

    kind: ClassVar[str] = "known"
    facts: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Panels:
    """One small picture per task, as many side by side as there is room for, and which shape is whose."""

    kind: ClassVar[str] = "panels"
    drawings: dict[str, Markup]
    caption: str
    legend: list[tuple[int, str, str]] = dataclasses.field(default_factory=list)  # series, name, method
    folded: str = ""  # what to click on to see them


@dataclasses.dataclass(frozen=True)
class Figure:
    """One picture with its words."""

    kind: ClassVar[str] = "figure"
    source: str
    alt: str
    caption: str = ""


@dataclasses.dataclass(frozen=True)
class Moving:
    """An animation, and its stills for whoever asked for less motion."""

    kind: ClassVar[str] = "moving"
    animation: str
    stills: str
    caption: str


@dataclasses.dataclass(frozen=True)
class Commands:
    """Command lines to copy."""

    kind: ClassVar[str] = "commands"
    text: str
    folded: str = ""  # what to click on to see them


@dataclasses.dataclass(frozen=True)
class LimitSlider:
    """Positions along the cost limit: the page's script moves pictures, numbers and film to the chosen one."""

    kind: ClassVar[str] = "slider"
    drawings: dict[str, Markup]
    heads: Sequence[str]
    stops: list[dict[str, Any]]  # limit, says, targets, cells [2][columns], verdict, film, at {part: [x, y] or None}
    start: int
    films: list[tuple[str, Any]]  # title and `Film`
    jumps: list[tuple[int, str]]  # positions that were played, and their names

    @property
    def data(self) -> Markup:
        return script_data(self.stops)


@dataclasses.dataclass(frozen=True)
class PolicyHeatMap:
    """State × action: π(a|s) as a fill, the behaviour policy as a bar; a position for each point of a frontier."""

    kind: ClassVar[str] = "heatmap"
    drawings: dict[str, Markup]
    column: str  # whose limit moves; "" without a frontier
    states: list[str]
    actions: list[str]
    left_out: int  # states of the log that are not shown
    stops: list[dict[str, Any]]  # limit, says, yes
    start: int
    policies: list[list[list[float]]]  # [stops][S][A]
    rows: list[list[int]]  # [S][A] of the log
    values: dict[str, list[list[float]]]  # by column [S][A], from there on under the solved policy

    @property
    def shown(self) -> list[list[float]]:
        return self.policies[self.start]

    @property
    def behaviour(self) -> list[list[float]]:
        """[S][A] how often the log took each action."""
        return [[n / max(sum(row), 1) for n in row] for row in self.rows]

    @property
    def data(self) -> Markup:
        names = ("states", "actions", "stops", "policies", "rows", "values")
        return script_data({name: getattr(self, name) for name in names})


Block = Tables | Listed | Failures | Known | Panels | Figure | Moving | Commands | LimitSlider | PolicyHeatMap


@dataclasses.dataclass(frozen=True)
class Section:
    """A card of the page."""

    title: str
    blocks: Sequence[Block]
    half: bool = False  # it needs no more than half the width of a wide screen

    @property
    def is_there(self) -> bool:
        """Whether it holds anything: a section without its data is left out."""
        return any(bool(next(iter(vars(block).values()))) for block in self.blocks)


def render_page(
    title: str,
    lead: str,
    sections: Sequence[Section],
    *,
    filters: dict[str, list[str]] | None = None,
    scores: Sequence[object] = (),
) -> str:
    """The whole page as text: one file that needs no network. `scores` are what filters compute ranks from."""
    return _template().render(
        title=title,
        lead=lead,
        sections=sections,
        filters=filters or {},
        scores=script_data(scores) if scores else "",
        version=version("pdocrl"),
        style=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        script=Markup((HERE / "page.js").read_text(encoding="utf-8")),
        shapes=SHAPES,
    )


def script_data(value: object) -> Markup:
    """JSON for a page's script; without `<` no text in it can end the element it stands in, or begin another."""
    return Markup(json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"))


def as_image(source: Path | bytes, kind: str = "png") -> str:
    """A picture as an address that holds it."""
    data = source if isinstance(source, bytes) else source.read_bytes()
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def prose(text: str) -> Markup:
    """Plain words as HTML: what stands between backticks is a command, and a number stays with its per cent sign."""
    safe = str(escape(text)).replace(" %", "&nbsp;%")
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", safe))


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("pdocrl.report"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["prose"] = prose
    environment.filters["image"] = as_image
    return environment.get_template("page.html")

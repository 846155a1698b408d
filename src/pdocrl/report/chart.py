"""Pictures drawn as SVG by hand: axes, marks, curves, bands. Colours come from the page's stylesheet.

values ─▶ Axis ─▶ pixels ─▶ elements ─▶ `drawing`, an <svg> with a title and a description

A method is a colour and a shape (or a dash) together, so that no picture is told by colour alone.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence
from html import escape

import numpy as np
from markupsafe import Markup
from numpy.typing import ArrayLike, NDArray

from pdocrl.evaluation.intervals import Floats

WIDTH = 340.0  # of a panel, in units that are about a pixel: three stand side by side, one fills a phone
LEFT, RIGHT, TOP, BOTTOM = 40.0, 18.0, 12.0, 36.0
LETTER = 6.7  # width of one, about
COLOURS = 10  # --series-0 … --series-9 of the stylesheet
# Around (0, 0), about equally dark: disc, square, triangles, diamond, cross, plus, star, hexagon, hourglass.
SHAPES = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "M-3.6-3.6h7.2v7.2h-7.2z",
    "M0-4.8L4.4 3.4H-4.4z",
    "M0 4.8L4.4-3.4H-4.4z",
    "M0-5.2L4.2 0 0 5.2-4.2 0z",
    "M-4.4-2.6L-2.6-4.4 0-1.8 2.6-4.4 4.4-2.6 1.8 0 4.4 2.6 2.6 4.4 0 1.8-2.6 4.4-4.4 2.6-1.8 0z",
    "M-1.3-4.6h2.6v3.3h3.3v2.6h-3.3v3.3h-2.6v-3.3h-3.3v-2.6h3.3z",
    "M0-5.4L1.4-1.8 5.2-1.6 2.2.8 3.2 4.6 0 2.4-3.2 4.6-2.2.8-5.2-1.6-1.4-1.8z",
    "M-2.3-4.2h4.6L4.8 0 2.3 4.2h-4.6L-4.8 0z",
    "M-4-4.2h8L-4 4.2h8z",
)
DASHES = ("", "6 2.5", "2 2", "9 2.5 2 2.5", "4 1.5", "12 3", "1 3", "6 2 1 2 1 2", "3 3", "10 2 4 2")


@dataclasses.dataclass(frozen=True)
class Axis:
    """Maps [low, high] to [start, end]; a root axis gives small values more room and still begins at 0."""

    low: float
    high: float
    start: float
    end: float
    root: bool = False

    def __call__(self, value: ArrayLike) -> Floats:
        low, high, at = (self._scaled(v) for v in (self.low, self.high, value))
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def _scaled(self, value: ArrayLike) -> Floats:
        given = np.asarray(value, dtype=np.float64)
        return np.sqrt(np.maximum(given, 0.0)) if self.root else given

    def ticks(self, gap: float = 34.0) -> list[float]:
        """Round values at least `gap` pixels apart. A root axis has 0, 1 (the limit) and powers of two."""
        if not self.root:
            return _round_values(self.low, self.high, max(2, int(abs(self.end - self.start) / gap)))
        found: list[float] = []
        # 1 goes first, because the limit is what a reader looks for; the others take the room it leaves.
        for value in [1.0, 0.0, *(2.0**k for k in (2, 4, 6, 8, 10, 12, 1, 3, 5, 7, 9, 11, -2, -1))]:
            if value <= self.high and all(abs(self(value) - self(other)) >= gap for other in found):
                found.append(value)
        return sorted(found)


def spanning(values: ArrayLike, start: float, end: float, *, also: tuple[float, ...] = ()) -> Axis:
    """A linear axis that holds all finite values and some air."""
    given = np.concatenate([np.ravel(np.asarray(values, dtype=np.float64)), also])
    finite = given[np.isfinite(given)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    air = 0.06 * (high - low) or 0.5 * max(abs(high), 0.1)
    return Axis(low - air if low < 0 or low - air > 0 else 0.0, high + air, start, end)


def from_zero(values: ArrayLike, start: float, end: float, *, least: float = 1.25) -> Axis:
    """A root axis from 0, for costs as a share of the limit; the limit, 1, is always on it."""
    given = np.ravel(np.asarray(values, dtype=np.float64))
    finite = given[np.isfinite(given)]
    return Axis(0.0, max(least, 1.08 * float(finite.max(initial=0.0))), start, end, root=True)


def round_step(rough: float) -> float:
    """The least of 1, 2 or 5 times a power of ten that is not below a positive number."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(s * power for s in (1, 2, 5, 10) if s * power >= rough * 0.999)


def _round_values(low: float, high: float, most: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten within [low, high], at most `most + 1`."""
    step = round_step((high - low) / most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def number(value: float) -> str:
    """A tick's text: short, with a true minus."""
    size = abs(value)
    if size >= 10_000:
        text = f"{value / 1000:,.0f}k"
    else:
        text = f"{value:,.0f}" if size >= 100 or value == int(value) else f"{value:.3g}"
    return text.replace("-", "−")


def axes(x: Axis, y: Axis, x_label: str, y_label: str) -> str:
    """Grid, ticks and what they measure. The upward label stands level above the axis: no one turns their head."""
    left, right, bottom, top = x.start, x.end, y.start, y.end
    parts = [base(x, bottom, x_label)]
    for value in y.ticks(30.0):
        at = float(y(value))
        parts.append(f'<path class="grid" d="M{_px(left)} {_px(at)}H{_px(right)}"/>')
        parts.append(words(left - 6, at + 4, number(value), "end"))
    parts.append(words(0, top - 8, y_label, kind="name"))
    return "".join(parts)


def base(x: Axis, bottom: float, label: str) -> str:
    """The lower axis alone."""
    widest = LETTER * max((len(number(value)) for value in x.ticks()), default=0)
    shown = x.ticks(max(34.0, widest + 8.0))
    parts = [words(float(x(value)), bottom + 14, number(value), "middle") for value in shown]
    line = f'<path class="axis" d="M{_px(x.start)} {_px(bottom)}H{_px(x.end)}"/>'
    return "".join([*parts, line, words(x.end, bottom + 28, label, "end")])


def words(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    """Text whose baseline is at y."""
    placed = "" if anchor == "start" else f' text-anchor="{anchor}"'
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{_px(x)}" y="{_px(y)}"{placed}>{escape(text)}</text>'


def upright(x: float, top: float, bottom: float, name: str = "") -> str:
    """A dashed line across the picture, named at its top: the limit."""
    line = f'<path class="limit" d="M{_px(x)} {_px(top)}V{_px(bottom)}"/>'
    return line + (words(x + 4, top + 9, name) if name else "")


def limits(x: Axis, top: float, bottom: float, values: Iterable[float]) -> str:
    """Upright lines at several limits. Where a name has no room beside the next line, that line begins below it."""
    body, ends = "", [-math.inf] * 6  # of the last name at each height; a line crosses its own and all below
    for value in sorted(values):
        at, name = float(x(value)), f"{value:g}"
        free = (k for k in range(len(ends)) if at > max(ends[k:]))
        k = next(free, len(ends) - 1)
        ends[k] = at + 8 + LETTER * len(name)
        body += upright(at, top + 12 * k, bottom, name)
    return body


def apart(places: Sequence[tuple[float, float]], gap: float) -> list[tuple[float, float]]:
    """The places, moved where needed so that no two are nearer than `gap`: up and to the right, off the axes."""
    turns = [(0.0, 0.0)] + [
        (0.5 * gap * ring * math.cos(turn), -0.5 * gap * ring * math.sin(turn))
        for ring in range(1, 2 + 2 * len(places))
        for turn in np.linspace(0, math.pi / 2, 2 * ring + 1)
    ]
    found: list[tuple[float, float]] = []
    for x, y in places:
        moved = ((x + dx, y + dy) for dx, dy in turns)
        found.append(next(p for p in moved if all(math.dist(p, other) >= gap for other in found)))
    return found


def leader(place: tuple[float, float], mark: tuple[float, float]) -> str:
    """From where a mark belongs to where `apart` has put it; "" where that is the same."""
    if place == mark:
        return ""
    return f'<path class="axis" d="M{_px(place[0])} {_px(place[1])}L{_px(mark[0])} {_px(mark[1])}"/>'


def level(y: float, left: float, right: float, name: str = "") -> str:
    """The same, lying down."""
    line = f'<path class="limit" d="M{_px(left)} {_px(y)}H{_px(right)}"/>'
    return line + (words(right, y - 4, name, "end") if name else "")


def dashed(x: Floats, y: Floats) -> str:
    """A line to compare with, of any form."""
    return f'<path class="limit" d="{_path(x, y)}"/>'


def frontier(x: Floats, y: Floats, end: float) -> str:
    """The best that was logged at no more cost, as stairs that go on to the right."""
    path = f"M{_px(x[0])} {_px(y[0])}" + "".join(f"H{_px(a)}V{_px(b)}" for a, b in zip(x[1:], y[1:], strict=True))
    return f'<path class="frontier" d="{path}H{_px(end)}"/>'


def shape_of(series: int) -> int:
    """Once all colours are used they begin again, each with another shape than before."""
    return (series + 3 * (series // COLOURS)) % len(SHAPES)


def whisker(series: int, x: float, low: float, high: float) -> str:
    """An interval, upright."""
    return f'<path class="bar s{series % COLOURS}" d="M{_px(x)} {_px(low)}V{_px(high)}"/>'


def across(series: int, y: float, left: float, right: float) -> str:
    """An interval, lying down."""
    return f'<path class="bar s{series % COLOURS}" d="M{_px(left)} {_px(y)}H{_px(right)}"/>'


def mark(series: int, x: float, y: float, title: str, *, filled: bool = True, large: bool = False) -> str:
    """A series' shape at a point, with words for whoever points at it. The shapes are defined once, by the page."""
    kind = ("" if filled else " hollow") + (" large" if large else "")
    # Scaled about its own place, so that a large mark is the same shape.
    place = f'transform="translate({_px(x)} {_px(y)}) scale(1.7)"' if large else f'x="{_px(x)}" y="{_px(y)}"'
    return (
        f'<use href="#mark-{shape_of(series)}" class="s{series % COLOURS}{kind}" {place}>'
        f"<title>{escape(title)}</title></use>"
    )


def group(body: str, *, hidden: bool = False, **belongs: object) -> str:
    """Marks that belong to a method, a task or a limit, by which the page's script finds them.

    What is hidden is drawn only when the reader chooses its limit.
    """
    data = "".join(f' data-{name}="{escape(str(value))}"' for name, value in belongs.items())
    off = ' class="off" data-alone=""' if hidden else ""
    return f"<g{data}{off}>{body}</g>"


def dots(kind: str, x: Floats, y: Floats) -> str:
    """Many points of one kind, all in one path: a line of no length has round ends. Points that coincide are one."""
    places = dict.fromkeys(zip(np.round(x, 1).tolist(), np.round(y, 1).tolist(), strict=True))
    return f'<path class="dots {kind}" d="{"".join(f"M{_px(a)} {_px(b)}h0" for a, b in places)}"/>'


def moving(part: str, body: str, place: tuple[float, float] | None) -> str:
    """What a page's script moves, drawn around (0, 0), at its first place; None: not there at first."""
    kind, at = ("moves off", (0.0, 0.0)) if place is None else ("moves", place)
    return f'<g class="{kind}" data-part="{part}" transform="translate({_px(at[0])} {_px(at[1])})">{body}</g>'


def ring(series: int) -> str:
    """A large empty circle around (0, 0): the chosen one of several marks."""
    return f'<circle class="ring s{series % COLOURS}" r="9"/>'


def curve(series: int, x: Floats, y: Floats, *, ends: bool = True) -> str:
    """A dashed line in the series' colour; it ends in its shape unless its points have marks of their own."""
    dash = DASHES[series % len(DASHES)]
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    line = f'<path class="line s{series % COLOURS}" d="{_path(x, y)}"{dashed}/>'
    if not ends:
        return line
    end = f'<use href="#mark-{shape_of(series)}" class="s{series % COLOURS}" x="{_px(x[-1])}" y="{_px(y[-1])}"/>'
    return line + end


def band(series: int, x: Floats, low: Floats, high: Floats) -> str:
    """The room between two curves."""
    outline = _path(np.concatenate([x, x[::-1]]), np.concatenate([high, low[::-1]]))
    return f'<path class="band s{series % COLOURS}" d="{outline}z"/>'


def strokes(x: Floats, y: float, height: float, series: int) -> str:
    """One short upright stroke per value, all in one path: many values in few bytes. Strokes that coincide are one."""
    places = sorted({round(float(value), 1) for value in x})
    steps = [places[0], *(b - a for a, b in itertools.pairwise(places))] if places else []
    path = f"M0 {_px(y - height / 2)}" + "".join(f"m{_px(dx)} 0v{_px(height)}m0-{_px(height)}" for dx in steps)
    return f'<path class="rug s{series % COLOURS}" d="{path}"/>'


def drawing(name: str, height: float, title: str, description: str, body: str) -> Markup:
    """The picture. `name` is unique on its page; a screen reader reads title and description instead of the marks."""
    return Markup(
        f'<svg class="chart" role="img" aria-labelledby="{name}-t" aria-describedby="{name}-d" '
        f'viewBox="0 0 {WIDTH:g} {_px(height)}">'
        f'<title id="{name}-t">{escape(title)}</title><desc id="{name}-d">{escape(description)}</desc>{body}</svg>'
    )


def thin(count: int, most: int = 60) -> NDArray[np.intp]:
    """Indices of at most `most` of `count` points, evenly spread, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.intp))


def _path(x: Floats, y: Floats) -> str:
    return "M" + "L".join(f"{_px(a)} {_px(b)}" for a, b in zip(x, y, strict=True))


def _px(value: float | Floats) -> str:
    """A coordinate to a tenth of a pixel."""
    return f"{round(float(value), 1):g}"

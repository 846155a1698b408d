"""One figure of the theory: measured rows, a table of them, a picture."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pdocrl.table import Table

Rows = list[dict[str, Any]]  # as they stand in the CSV


class Drawing(NamedTuple):
    """One picture, FILE.png."""

    file: str
    about: str
    draw: Callable[[Rows, Path], None]


@dataclasses.dataclass(frozen=True)
class Experiment:
    """How to make a figure; `measure` is the only slow part and its rows are all the rest needs."""

    about: str
    seeds: int  # repetitions where none are asked for
    measure: Callable[[int, int], Rows]  # repetitions, processes
    table: Callable[[Rows], Table]
    draw: Callable[[Rows, Path], None]
    needs: tuple[str, ...] = ()  # packages beyond the plain install
    more: tuple[Drawing, ...] = ()  # further pictures

    def drawings(self, name: str) -> tuple[Drawing, ...]:
        """All pictures of the figure of that name."""
        return Drawing(name, self.about, self.draw), *self.more


def new_figure(columns: int, rows: int = 1, **options: Any) -> tuple[Any, Any]:
    """A matplotlib figure and its axes, drawn without a screen, in the house's style."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with plt.rc_context({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure, axes = plt.subplots(rows, columns, layout="constrained", **options)
        return figure, axes


def save_figure(figure: Any, target: Path) -> None:
    """Whole or not at all."""
    import matplotlib.pyplot as plt

    from pdocrl.files import atomic_path

    with atomic_path(target) as path:
        figure.savefig(path, dpi=160)
    plt.close(figure)

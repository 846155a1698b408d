"""What a command prints: a table for people, or with `--json` exactly one object on standard output.

Progress and logs go to standard error, and progress only when that is a terminal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from pdocrl.table import Table

stderr = Console(stderr=True)


def print_json(value: Any) -> None:
    """The one JSON object of a `--json` call."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> None:
    """A readable table on standard output; numbers are right-aligned. Wide tables are never cut when piped."""
    Table.of(columns, rows, title).show()


def log(message: str) -> None:
    """A line for the person watching, on standard error."""
    stderr.print(message, highlight=False, markup=False, soft_wrap=True)


def progress(description: str = "{task.description}") -> Progress:
    """A progress bar on standard error: what, bar, count, elapsed, remaining. Silent without terminal or notebook."""
    return Progress(
        TextColumn(description),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=stderr,
        disable=not (stderr.is_terminal or stderr.is_jupyter),
        transient=True,
    )

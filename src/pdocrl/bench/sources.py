"""What rows say of their making: refused where they do not, told in words where they differ.

    refuse_unsourced(rows)      # before a table is made of them
    source_notes(rows)          # below the table: seeds, versions and commits, and which methods have others

Rows of 0.1 and 0.2 did not record a commit. They are taken for what they are, and their notes say so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from pdocrl.bench.results import Row
from pdocrl.errors import PdocrlError
from pdocrl.provenance import UNKNOWN

_NEEDED = ("pdocrl", "jax", "numpy", "data_digest", "step")
_BEFORE_COMMITS = ("0.1.", "0.2.")


def refuse_unsourced(rows: Sequence[Row]) -> None:
    """Raise `PdocrlError` for rows that do not say what made them."""
    for row in rows:
        missing = [name for name in _NEEDED if not getattr(row, name)]
        if row.commit in ("", UNKNOWN) and not row.pdocrl.startswith(_BEFORE_COMMITS):
            missing.append("commit")
        if missing:
            raise PdocrlError(
                f"results: rows of {row.method} on {row.task} do not say their {', '.join(missing)}, and a table of "
                "numbers nobody can trace is not made. Train them again with `pdocrl bench`."
            )


def source_notes(rows: Sequence[Row]) -> list[str]:
    """Seeds, and versions with commits; where methods differ, which has which."""
    if not rows:
        return []
    notes = [f"Seeds {_told(rows, lambda own: ', '.join(str(seed) for seed in sorted({row.seed for row in own})))}."]
    notes.append(f"Versions as recorded: {_told(rows, _versions)}.")
    if len({row.pdocrl for row in rows}) > 1:
        notes.append("Rows of several versions stand beside each other here: a difference may be the version's.")
    modified = list(dict.fromkeys(row.method for row in rows if row.commit.endswith("+modified")))
    if modified:
        notes.append(f"Trained from a working tree with uncommitted changes: {', '.join(modified)}.")
    return notes


def _versions(rows: Sequence[Row]) -> str:
    """Of the rows of one method."""
    found = {
        f"pdocrl {row.pdocrl}, commit {'not recorded' if row.commit == UNKNOWN else row.commit}, "
        f"jax {row.jax}, numpy {row.numpy}": None
        for row in rows
    }
    return " and ".join(found)


def _told(rows: Sequence[Row], words: Callable[[Sequence[Row]], str]) -> str:
    """The words most cells (task, method) share, and behind them which have others: "0, 5, 10 (dial: 0, 1)"."""
    cells: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        cells.setdefault((row.method, row.task), []).append(row)
    said = {place: words(own) for place, own in cells.items()}
    usual = Counter(said.values()).most_common(1)[0][0]
    tasks: dict[str, dict[str, list[str]]] = {}  # other words → method → tasks
    for (method, task), text in said.items():
        if text != usual:
            tasks.setdefault(text, {}).setdefault(method, []).append(task)
    all_tasks = {method: sum(1 for name, _ in cells if name == method) for method, _ in cells}
    others = [
        f"{', '.join(_whose(method, own, all_tasks[method]) for method, own in methods.items())}: {text}"
        for text, methods in tasks.items()
    ]
    return f"{usual} ({'; '.join(others)})" if others else usual


def _whose(method: str, tasks: Sequence[str], all_tasks: int) -> str:
    return method if len(tasks) == all_tasks else f"{method} on {'/'.join(tasks)}"

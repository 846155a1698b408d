"""`pdocrl solve` of a log of columns."""

from __future__ import annotations

import json as json_module
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pdocrl import console
from pdocrl.errors import PdocrlError
from pdocrl.limits import Limit

EVERY = 5.0  # seconds between lines of progress where there is no terminal


def solve_columns(
    log: str,
    gamma: float | None,
    limits: Sequence[Limit],
    horizon: int | None,
    confidence: float | None,
    state_columns: Sequence[str],
    columns: Mapping[str, str],
    seed: int,
    explain: str | None,
    step: int,
    out: Path | None,
    json: bool,
) -> None:
    """Print the deciders, the candidates and the choice; write the policy's folder."""
    from pdocrl.portfolio import entry, tables
    from pdocrl.portfolio.fit import Portfolio
    from pdocrl.records import as_plain

    if out is not None and out.exists():
        raise PdocrlError(f"{out} already exists. Remove it first, or choose another name.")
    row = None if explain is None else parse_row(explain)
    with console.stderr.status("reading the log") as status:
        found = entry.solve(
            log,
            gamma,
            limits,
            state_columns=list(state_columns) or None,
            horizon=horizon,
            confidence=confidence,
            columns=columns,
            seed=seed,
            progress=_Progress(status),
        )
    assert isinstance(found, Portfolio)
    record = found.record
    explained = None if row is None else found.explain(row, step)
    files = found.save(out) if out is not None else []
    if json:
        console.print_json({**as_plain(record), **({"explain": as_plain(explained)} if explained else {})})
    else:
        shown = [tables.deciders(record), tables.candidates(record)]
        shown += [tables.validation(record)] if record.validation else []
        shown += [tables.policy(record)]
        for table in [*shown, *(tables.explained(explained, record) if explained else [])]:
            table.show()
        print(found.summary())
        if record.surrogate is not None:
            own = ", ".join(f"{signal} {tables.held(x)}" for signal, x in record.surrogate.held_out.items())
            share = f"{100 * record.surrogate.fidelity:.0f} %"
            print(f"\nIts most probable action, as a tree has it in {share} of rows (always taking that one: {own}):")
            print("".join(f"  {line}\n" for line in record.surrogate.lines))
        print("This assumes: " + "; ".join(record.assumptions) + ".")
    for line in record.notes:
        console.log(f"note: {line}")
    for file in files:
        console.log(f"wrote {file}")


def parse_row(text: str) -> dict[str, Any]:
    """A JSON file of one object, or words "age=61 ward=north"; an empty value is a missing one."""
    path = Path(text)
    if path.suffix == ".json":
        from pdocrl.files import read_json

        row = read_json(path)
        if not isinstance(row, dict):
            raise PdocrlError(f"{path}: expected one object, {{column: value}}.")
        return row
    found: dict[str, Any] = {}
    for word in text.split():
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise PdocrlError(f"--explain {text!r} is not understood; write a .json file or age=61 ward=north.")
        try:
            found[name] = json_module.loads(value) if value else None
        except ValueError:
            found[name] = value
    return found


class _Progress:
    """In place on a terminal, a line now and then elsewhere."""

    def __init__(self, status: Any) -> None:
        self.status, self.began, self.last = status, time.monotonic(), time.monotonic()

    def __call__(self, message: str) -> None:
        if console.stderr.is_terminal:
            self.status.update(message)
        elif time.monotonic() - self.last > EVERY:
            self.last = time.monotonic()
            console.log(f"{self.last - self.began:.0f} s: {message}")

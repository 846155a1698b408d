"""`pdocrl solve` with a limit on the tail of an episode's cost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pdocrl import console
from pdocrl.errors import PdocrlError

if TYPE_CHECKING:
    from pdocrl.limits import Limit
    from pdocrl.tabular.workflow import LogOptions


def solve_tails(
    log: str,
    read: LogOptions,
    gamma: float | None,
    limits: tuple[Limit, ...],
    min_count: int | None,
    unit: float | None,
    out: Path | None,
    json: bool,
    for_means: Mapping[str, Any],
) -> None:
    """Solve, print, write; `for_means` are the options given that only limits on means have."""
    from pdocrl.records import as_plain
    from pdocrl.tabular.tails import solve_tails as solve_counts

    for name, value in for_means.items():
        if value is not None:
            option = f"--{name.replace('_', '-')}"
            raise PdocrlError(f"{option} is not for a limit on a tail; it is for limits on means alone.")
    if out is not None and out.exists() and not out.is_dir():
        raise PdocrlError(f"--out {out} is a file; name a folder.")
    with console.stderr.status("reading the log") as status:
        counts = read.count(log, [limit.name for limit in limits], None)
        result = solve_counts(counts, limits, gamma, min_count, unit, status.update)
    files = [] if out is None else result.save(out)
    if json:
        console.print_json(as_plain(result))
    else:
        result.table().show()
    for line in result.all_notes:
        console.log(f"note: {line}")
    for file in files:
        console.log(f"wrote {file}")
    if result.status == "infeasible":
        raise PdocrlError(result.missed())

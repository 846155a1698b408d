"""`pdocrl certify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from pdocrl.commands.words import limit
from pdocrl.console import log, print_json, print_table
from pdocrl.errors import PdocrlError

Numbers = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NUMBER …")]


def certify(
    policy: tyro.conf.Positional[Path | None] = None,
    /,
    *,
    audit: Path | None = None,
    cost_limit: Numbers = (),
    confidence: float = 0.95,
    largest_cost: Numbers = (),
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Say whether policies keep their cost limits, how sure that is, and what it rests on.

    Example:
        pdocrl certify --audit episodes.parquet --cost-limit 10
        pdocrl certify --audit episodes.csv --cost-limit 10,5 --largest-cost 200,200 --out certificate/ --json

    A file of audited episodes (Parquet or CSV) has a row an episode and a column `cost`, or one per constraint,
    `cost_*`. The verdict is on the mean cost of an episode: within, over, or cannot be shown.

    Args:
        policy: what to certify; not needed for a file of episodes.
        audit: a file of real or simulated episodes.
        cost_limit: what an episode may cost on average; with several costs, one number for each.
        confidence: of every statement.
        largest_cost: what an episode can cost at most; bounds on a mean rest on it.
        out: a folder for certificate.json and certificate.png.
        json: print one JSON object.
    """
    from pdocrl.ope import certify as work
    from pdocrl.records import as_plain

    if not 0 < confidence < 1:
        raise PdocrlError(f"--confidence is {confidence:g}; give a number between 0 and 1, such as 0.95.")
    if audit is None:
        raise PdocrlError("nothing to certify: give --audit FILE with --cost-limit NUMBER.")
    limits, largest = _numbers(cost_limit), _numbers(largest_cost)
    certificate, panels = work.certify_episodes(audit, limits, confidence=confidence, largest_cost=largest)
    files = work.keep(certificate, panels, out) if out is not None else []
    if json:
        print_json(as_plain(certificate))
    else:
        print_table(
            ["policy", "cost", "limit", "verdict", "confidence", "mean cost (low, high)", "share over ≤", "basis"],
            [[s.policy, s.cost, s.cost_limit, s.verdict, "–" if s.confidence is None else s.confidence,
              _bounds(s.mean_cost, s.mean_cost_lower, s.mean_cost_upper),
              "–" if s.share_over_upper is None else f"{100 * s.share_over_upper:.3g} %", s.basis]
             for s in certificate.statements],
            title="certificate",
        )  # fmt: skip
        for s in certificate.statements:
            print(f"{s.policy}, {s.cost}: {s.sentence}")
        for assumption in dict.fromkeys(s.assumption for s in certificate.statements):
            print(f"This rests on: {assumption}")
        for note in certificate.notes:
            print(f"Note: {note}")
    for file in files:
        log(f"wrote {file}")


def _numbers(words: tuple[str, ...]) -> list[float]:
    return [value for word in words for value in limit(word)]


def _bounds(mean: float | None, low: float | None, high: float | None) -> str:
    shown = ["–" if x is None else f"{x:.3g}" for x in (mean, low, high)]
    return f"{shown[0]} ({shown[1]}, {shown[2]})"

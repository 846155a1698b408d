"""`certify`: one report on whether policies keep their limits, from what there is: episodes, a simulator, a log.

a file of episodes          ─▶ audit statements                                   (b)
a training, a simulator     ─▶ episodes until the answer is there ─▶ audit         (b)
a training, a log           ─▶ `ope`, calibrated on held-out groups                (a)
a folder of `solve`         ─▶ its bounds                                          (c)
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pdocrl.errors import PdocrlError
from pdocrl.files import atomic_path
from pdocrl.ope.audit_file import read_audit
from pdocrl.ope.audits import audit_statement
from pdocrl.ope.certificate import FILE, PICTURE, Certificate
from pdocrl.ope.picture import Shown, draw
from pdocrl.records import write_record

Floats = NDArray[np.float64]


def certify_episodes(
    path: str | os.PathLike[str],
    cost_limit: Sequence[float],
    *,
    confidence: float = 0.95,
    largest_cost: Sequence[float] = (),
) -> tuple[Certificate, list[Shown]]:
    """From a file of audited episodes alone: one statement per cost column."""
    found = read_audit(Path(path))
    names = list(found.costs)
    limits = _per_cost(cost_limit, names, f"{path}", "--cost-limit")
    largest = _per_cost(largest_cost, names, f"{path}", "--largest-cost") if largest_cost else [None] * len(names)
    panels = []
    for name, limit, most in zip(names, limits, largest, strict=True):
        costs = found.costs[name]
        told = audit_statement(costs, limit, confidence, most, policy=found.name, cost=name)
        panels.append(Shown(told, played=costs))
    return Certificate.of([panel.statement for panel in panels]), panels


def keep(certificate: Certificate, panels: list[Shown], folder: Path) -> list[Path]:
    """Write certificate.json and certificate.png into a folder."""
    with atomic_path(folder / PICTURE) as path:
        draw(panels, path)
    write_record(folder / FILE, certificate)
    return [folder / FILE, folder / PICTURE]


def _per_cost(values: Sequence[float], names: Sequence[str], where: str, option: str) -> list[float]:
    """One number per cost."""
    if not values:
        raise PdocrlError(f"{where}: what may an episode cost? Give {option}, such as {option} 10.")
    if len(values) != len(names):
        raise PdocrlError(
            f"{where}: {len(values)} numbers in {option} for {len(names)} costs ({', '.join(names)}); give one each."
        )
    wrong = [value for value in values if not np.isfinite(value) or value < 0]
    if wrong:
        raise PdocrlError(f"{option} is {wrong[0]:g}, must be a number of at least 0.")
    return [float(value) for value in values]

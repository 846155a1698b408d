"""Policies judged by one log, as compare.json in a solve folder holds them; the folder's page shows them."""

from __future__ import annotations

import os
from pathlib import Path

from pdocrl.records import Part, Record, read_record, write_record

FILE = "compare.json"


class ComparedPolicy(Part, frozen=True, kw_only=True):
    """Reward and costs of one policy by name, with intervals, and how far it leads the first."""

    name: str
    estimate: dict[str, float]
    low: dict[str, float]
    high: dict[str, float]
    lead: dict[str, tuple[float, float]]
    outside: float  # share of its time where the log never was


class Comparison(Record, frozen=True, kw_only=True):
    """Policies on one log: the rows are the same for all. The first is the one the others are held against."""

    level: float
    policies: list[ComparedPolicy]


def write_compared(folder: str | os.PathLike[str], record: Comparison) -> Path:
    """Into the folder, and where it lies."""
    path = Path(folder) / FILE
    write_record(path, record)
    return path


def read_compared(folder: str | os.PathLike[str]) -> Comparison | None:
    """None where nothing was compared."""
    path = Path(folder) / FILE
    again = f"Make it again: pdocrl solve LOG --compare POLICY POLICY --out {folder}"
    return read_record(path, Comparison, again) if path.exists() else None

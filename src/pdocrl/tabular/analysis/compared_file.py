"""Policies judged by one log, as compare.json in a solve folder holds them; the folder's page shows them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pdocrl.limits import Limit
from pdocrl.records import Part, Record, read_record, write_record
from pdocrl.tabular.analysis.questions import Compared
from pdocrl.tabular.result.record import limit_names

FILE = "compare.json"


class ComparedPolicy(Part, frozen=True, kw_only=True):
    """Reward and costs of one policy by name, with intervals, and how far it leads the first."""

    name: str
    estimate: dict[str, float]
    low: dict[str, float]
    high: dict[str, float]
    lead: dict[str, tuple[float, float]]
    outside: float  # share of its time where the log never was


class ComparedFile(Record, frozen=True, kw_only=True):
    """All of them; the first is the one the others are held against."""

    level: float
    policies: list[ComparedPolicy]


def compared_file(judged: Compared, limits: Sequence[Limit], level: float) -> ComparedFile:
    """The record of a comparison."""
    names = ["reward", *limit_names(limits)]

    def named(values: Any) -> dict[str, Any]:
        return dict(zip(names, values.tolist(), strict=True))

    policies = [
        ComparedPolicy(
            name=name,
            estimate=named(judged.estimate[p]),
            low=named(judged.low[p]),
            high=named(judged.high[p]),
            lead={key: (low, high) for key, (low, high) in named(judged.difference[p]).items()},
            outside=float(judged.outside[p]),
        )
        for p, name in enumerate(judged.names)
    ]
    return ComparedFile(level=level, policies=policies)


def compared_json(judged: Compared, limits: Sequence[Limit]) -> dict[str, Any]:
    """The same as plain values."""
    names = ["value", *(str(limit) for limit in limits)]

    def named(values: Any) -> dict[str, Any]:
        return dict(zip(names, values.tolist(), strict=True))

    return {
        "policies": {
            name: {
                "estimate": named(judged.estimate[p]),
                "low": named(judged.low[p]),
                "high": named(judged.high[p]),
                "lead": named(judged.difference[p]),
                "outside": float(judged.outside[p]),
            }
            for p, name in enumerate(judged.names)
        }
    }


def write_compared(folder: str | os.PathLike[str], record: ComparedFile) -> Path:
    """Into the folder, and where it lies."""
    path = Path(folder) / FILE
    write_record(path, record)
    return path


def read_compared(folder: str | os.PathLike[str]) -> ComparedFile | None:
    """None where nothing was compared."""
    path = Path(folder) / FILE
    again = f"Make it again: pdocrl solve LOG --compare POLICY POLICY --out {folder}"
    return read_record(path, ComparedFile, again) if path.exists() else None

"""A policy folder: policy.json, models.npz, act.py (NumPy alone) and portfolio.json. No pickle."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from pdocrl.files import atomic_folder, write_json
from pdocrl.portfolio import act
from pdocrl.portfolio.candidates import Candidate
from pdocrl.portfolio.record import SolvedLog
from pdocrl.records import write_record

RESULT = "portfolio.json"


def save(folder: Path, record: SolvedLog, candidate: Candidate) -> list[Path]:
    """Write a folder that does not exist yet, whole or not at all."""
    with atomic_folder(folder) as target:
        write_json(target / "policy.json", candidate.policy.content)
        with (target / "models.npz").open("wb") as file:
            np.savez_compressed(file, **arrays(candidate))
        shutil.copyfile(act.__file__, target / "act.py")
        write_record(target / RESULT, record)
    return [folder / name for name in ("policy.json", "models.npz", "act.py", RESULT)]


def arrays(candidate: Candidate) -> dict[str, Any]:
    """{"model/array": values}"""
    found: dict[str, Any] = {}
    for name, model in candidate.models.items():
        parts = model.arrays() if hasattr(model, "arrays") else {"values": np.asarray(model, np.float64)}
        found |= {f"{name}/{key}": values for key, values in parts.items()}
    return found

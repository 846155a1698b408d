"""`export`: one trained policy as ONNX and as plain NumPy, for programs that know nothing of pdocrl."""

from __future__ import annotations

import os
from pathlib import Path

from pdocrl.errors import PdocrlError
from pdocrl.files import atomic_path, write_text
from pdocrl.policies import policy as policies
from pdocrl.policies.one_file import joined_source
from pdocrl.policies.onnx import to_onnx
from pdocrl.training.folder import load_trained


def export(folder: str | os.PathLike[str], out: str | os.PathLike[str], run: int = 0, onnx: bool = True) -> list[Path]:
    """Write out/policy.npz, out/policy.py (its reader, NumPy alone) and out/policy.onnx; returns their paths."""
    found = load_trained(folder)
    if not 0 <= run < len(found.policies):
        raise PdocrlError(f"{folder}: run {run} does not exist; there are runs 0 to {len(found.policies) - 1}.")
    policy, out = found.policies[run], Path(out)
    with atomic_path(out / "policy.npz") as path:
        policies.save(path, [policy], {"agent": found.plan.agent, "step": found.step, **found.plan.runs[run]})
    write_text(out / "policy.py", joined_source())
    written = [out / "policy.npz", out / "policy.py"]
    if onnx:
        model = to_onnx(policy)
        with atomic_path(out / "policy.onnx") as path:
            path.write_bytes(model.SerializeToString())
        written.append(out / "policy.onnx")
    return written

"""A policy taken elsewhere: all of its files, or none."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pdocrl.errors import MissingExtraError
from pdocrl.policies.policy import MLPPolicy
from pdocrl.training import folder


def test_without_the_onnx_package_nothing_is_written_unless_it_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = MLPPolicy((np.zeros((3, 2), np.float32),), (np.zeros(2, np.float32),))
    trained = SimpleNamespace(policies=[policy], step=1, config=SimpleNamespace(agent="bc", runs=[{}]))
    monkeypatch.setattr(folder, "load_trained", lambda _: trained)
    monkeypatch.setitem(sys.modules, "onnx", None)  # as if not installed
    with pytest.raises(MissingExtraError, match="onnx=False leaves it out"):
        folder.export("runs", tmp_path / "robot")
    assert not (tmp_path / "robot").exists()
    written = folder.export("runs", tmp_path / "robot", onnx=False)
    assert [path.name for path in written] == ["policy.npz", "policy.py"]

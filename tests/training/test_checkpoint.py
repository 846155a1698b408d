"""Checkpoints: what was saved is what is loaded, and anything else is refused with one line."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pdocrl.errors import PdocrlError
from pdocrl.training import checkpoint

TREE = {"net": (jnp.arange(6.0).reshape(2, 3), jnp.zeros((0,))), "step": jnp.int32(7), "bits": jnp.uint32([1, 2])}


def test_round_trip_is_exact(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    checkpoint.save(path, TREE, {"step": 7})
    loaded, metadata = checkpoint.load(path, TREE)
    assert metadata["step"] == 7
    for a, b in zip(jax.tree.leaves(TREE), jax.tree.leaves(loaded), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_another_structure_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    checkpoint.save(path, TREE, {})
    with pytest.raises(PdocrlError, match="lacks array"):
        checkpoint.load(path, {**TREE, "more": jnp.zeros(1)})
    with pytest.raises(PdocrlError, match="unexpected array"):
        checkpoint.load(path, {"step": TREE["step"]})
    with pytest.raises(PdocrlError, match=r"expected float32\(3,\)"):
        checkpoint.load(path, {**TREE, "bits": jnp.zeros(3)})


def test_missing_and_foreign_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(PdocrlError, match="no checkpoint here"):
        checkpoint.read_metadata(tmp_path / "none.safetensors")
    (tmp_path / "text.safetensors").write_text("hello")
    with pytest.raises(PdocrlError, match="not a pdocrl checkpoint"):
        checkpoint.read_metadata(tmp_path / "text.safetensors")


@settings(max_examples=150, deadline=None)
@given(cut=st.floats(0, 1), flip=st.integers(0, 255))
@example(cut=0.125, flip=1)  # a letter of the checksum's own name
def test_no_damaged_file_is_loaded(tmp_path_factory: pytest.TempPathFactory, cut: float, flip: int) -> None:
    """A byte changed anywhere, or the end cut off: never a silently different state."""
    folder = tmp_path_factory.mktemp("damaged")
    path = folder / "c.safetensors"
    checkpoint.save(path, TREE, {"step": 7})
    whole = path.read_bytes()
    place = int(cut * (len(whole) - 1))
    damaged = bytearray(whole)
    damaged[place] ^= flip
    path.write_bytes(bytes(damaged) if flip else whole[:place])
    try:
        loaded, metadata = checkpoint.load(path, TREE)
    except PdocrlError:
        return
    # A flip in the header may leave the same text, as in a unit of white space; nothing that is read ever changes.
    assert metadata["step"] == 7
    for a, b in zip(jax.tree.leaves(TREE), jax.tree.leaves(loaded), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_story_with_numbered_keys_is_the_same_when_read(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "c.safetensors", TREE, {"failures": {2: "nan", 10: "inf"}, "limits": (1.5, 2)})
    _, metadata = checkpoint.load(tmp_path / "c.safetensors", TREE)
    assert metadata["failures"] == {"2": "nan", "10": "inf"}
    assert metadata["limits"] == [1.5, 2]

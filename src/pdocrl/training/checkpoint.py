"""Checkpoints: the whole training state in one safetensors file, its metadata as JSON in the same file's header.

Written beside the old one and renamed, so a kill at any moment leaves a whole file. On load every tensor's name, shape,
type and bytes, and the metadata, are checked against what the agent expects and what was written.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as serialise

from pdocrl.errors import PdocrlError
from pdocrl.files import atomic_path

FORMAT = 3  # 3: runs that train alike have one state
T = TypeVar("T")


def save(path: str | os.PathLike[str], tree: Any, metadata: dict[str, Any]) -> None:
    """Write every array of `tree` and the JSON-able `metadata` (step, config, seeds, data digest, versions)."""
    arrays, told = _named(tree), json.loads(json.dumps({**metadata, "format": FORMAT}))  # as it will be read
    header = {"pdocrl": json.dumps({**told, "sha256": _digest(arrays, told)}, sort_keys=True)}
    with atomic_path(path) as temporary:
        # Written by Python: the library's own writer does not say that the disk is full.
        temporary.write_bytes(serialise(arrays, metadata=header))


def read_metadata(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a checkpoint says of itself, without its arrays."""
    if not Path(path).is_file():
        raise PdocrlError(f"{path}: no checkpoint here. Was the training stopped before the first one was written?")
    try:
        with safe_open(path, "np") as file:
            metadata = json.loads((file.metadata() or {})["pdocrl"])
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise PdocrlError(f"{path}: not a pdocrl checkpoint, or cut short ({error}).") from error
    found = metadata.get("format") if isinstance(metadata, dict) else None
    if found != FORMAT:
        raise PdocrlError(
            f"{path}: checkpoint format {found}, this version of pdocrl reads {FORMAT}. "
            "Finish the training with the version that began it, or train anew."
        )
    assert isinstance(metadata, dict)
    return metadata


def load(path: str | os.PathLike[str], like: T) -> tuple[T, dict[str, Any]]:
    """Arrays in the structure of `like` (arrays or shapes), and the metadata."""
    metadata = read_metadata(path)
    expected = _named(like, shapes_only=True)
    try:
        with safe_open(path, "np") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError) as error:
        raise PdocrlError(f"{path}: cut short or damaged ({error}).") from error
    for name in expected.keys() | arrays.keys():
        if name not in arrays or name not in expected:
            side = "lacks" if name not in arrays else "has an unexpected"
            raise PdocrlError(f"{path}: {side} array {name}. Was it written by another agent or version of pdocrl?")
        want, have = expected[name], arrays[name]
        if want.shape != have.shape or want.dtype != have.dtype:
            raise PdocrlError(f"{path}: {name} is {have.dtype}{have.shape}, expected {want.dtype}{want.shape}.")
    if _digest(arrays, metadata) != metadata.get("sha256"):
        raise PdocrlError(f"{path}: damaged: its contents do not match the checksum written with them.")
    leaves = [arrays[name] for name in expected]
    return jax.tree.unflatten(jax.tree.structure(like), leaves), metadata


def _named(tree: Any, shapes_only: bool = False) -> dict[str, NDArray[Any]]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): leaf if shapes_only else np.asarray(leaf, order="C") for path, leaf in leaves}


def _digest(arrays: dict[str, NDArray[Any]], metadata: dict[str, Any]) -> str:
    """Of every array and of the metadata, but for the digest in it."""
    told = {key: value for key, value in metadata.items() if key != "sha256"}
    sha = hashlib.sha256(json.dumps(told, sort_keys=True).encode())
    for name in sorted(arrays):
        sha.update(name.encode())
        sha.update(np.asarray(arrays[name], order="C").reshape(-1).view(np.uint8).data)
    return sha.hexdigest()

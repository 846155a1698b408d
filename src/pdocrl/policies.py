"""Trained policies as plain NumPy: what is rolled out, exported and loaded by a robot program.

This file needs NumPy alone. `pdocrl export` copies it beside the exported weights, so that

    from policy import load
    act = load("policy.npz")
    action = act(obs)          # obs [B, S] → action [B, A] in [−1, 1]

runs where neither JAX nor pdocrl is installed.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

FORMAT = 1  # of the exported file; a reader refuses any other


class Policy(Protocol):
    """A policy that can be saved: acts on batches of observations and is rebuilt from named arrays and settings.

    A policy with memory or randomness also has `begin(seed) -> step`, where `step(obs [S], last_reward, last_cost [K])`
    gives the action [A] within one episode.
    """

    kind: ClassVar[str]  # names the class in a saved file

    def __call__(self, obs: NDArray[Any]) -> NDArray[np.float32]: ...

    def arrays(self) -> dict[str, NDArray[np.float32]]: ...

    def settings(self) -> dict[str, Any]: ...


@dataclasses.dataclass(frozen=True)
class MLPPolicy:
    """The mode of a tanh-Gaussian: tanh of the mean's network, whose scale half is not needed to act."""

    kind: ClassVar[str] = "mlp"
    weights: tuple[NDArray[np.float32], ...]  # each [n_in, n_out]
    biases: tuple[NDArray[np.float32], ...]  # each [n_out]

    def __call__(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        x = np.asarray(obs, np.float32)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = np.maximum(x @ weight + bias, 0)
        mean: NDArray[np.float32] = np.tanh(x @ self.weights[-1] + self.biases[-1])
        return mean

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        layers = range(len(self.weights))
        return {f"weight_{i}": self.weights[i] for i in layers} | {f"bias_{i}": self.biases[i] for i in layers}

    def settings(self) -> dict[str, Any]:
        return {"layers": len(self.weights)}

    @classmethod
    def restore(cls, arrays: dict[str, NDArray[np.float32]], settings: dict[str, Any]) -> MLPPolicy:
        layers = range(settings["layers"])
        return cls(tuple(arrays[f"weight_{i}"] for i in layers), tuple(arrays[f"bias_{i}"] for i in layers))


KINDS: dict[str, Any] = {MLPPolicy.kind: MLPPolicy}


def save(path: str | os.PathLike[str], policies: Sequence[Policy], story: dict[str, Any] | None = None) -> None:
    """Write policies as one `.npz`: their arrays, and their settings (and any JSON-able story) as text. No pickle."""
    kinds = [{"kind": policy.kind, "settings": policy.settings()} for policy in policies]
    header = json.dumps({"format": FORMAT, "policies": kinds, "story": story or {}})
    arrays = {f"{i}/{name}": array for i, policy in enumerate(policies) for name, array in policy.arrays().items()}
    with open(path, "wb") as file:
        np.savez(file, header=np.frombuffer(header.encode(), np.uint8), **arrays)  # type: ignore[arg-type]


def load(path: str | os.PathLike[str]) -> Policy:
    """The (first) policy of a file that `save` wrote."""
    return load_all(path)[0][0]


def load_all(path: str | os.PathLike[str]) -> tuple[list[Policy], dict[str, Any]]:
    """All policies of a file, and its story. Raises ValueError or OSError for any other file."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files}
    if "header" not in arrays:
        raise ValueError(f"{path}: not a policy file: no header")
    header = json.loads(arrays.pop("header").tobytes())
    if header["format"] != FORMAT:
        raise ValueError(f"{path}: policy file of format {header['format']}, this reader knows {FORMAT}")
    restored = []
    for i, entry in enumerate(header["policies"]):
        own = {key.split("/", 1)[1]: array for key, array in arrays.items() if key.split("/", 1)[0] == str(i)}
        restored.append(_find_kind(entry["kind"]).restore(own, entry["settings"]))
    return restored, header["story"]


def _find_kind(kind: str) -> Any:
    """The class of a policy: ours by name, another package's as `module:Class`."""
    if kind in KINDS:
        return KINDS[kind]
    module, _, attribute = kind.partition(":")
    if not attribute:
        raise ValueError(f"policy of unknown kind {kind!r}; known: {sorted(KINDS)}")
    return getattr(importlib.import_module(module), attribute)

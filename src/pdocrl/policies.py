"""Trained policies as plain NumPy: what is rolled out, exported and loaded by a robot program.

This file needs NumPy alone. `pdocrl export` copies it beside the exported weights, so that

    from policy import load
    act = load("policy.npz")
    action = act(obs)          # obs [B, S] → action [B, A] in [−1, 1]

runs where neither JAX nor pdocrl is installed.
"""

from __future__ import annotations

import dataclasses
import json
import os
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


def save(policy: Policy, path: str | os.PathLike[str]) -> None:
    """Write a policy as `.npz`: its arrays, and its settings as JSON text. No pickle."""
    header = json.dumps({"format": FORMAT, "kind": policy.kind, "settings": policy.settings()})
    with open(path, "wb") as file:
        np.savez(file, header=np.frombuffer(header.encode(), np.uint8), **policy.arrays())  # type: ignore[arg-type]


def load(path: str | os.PathLike[str]) -> Policy:
    """Read a policy that `save` wrote."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files}
    header = json.loads(arrays.pop("header").tobytes())
    if header["format"] != FORMAT or header["kind"] not in KINDS:
        raise ValueError(
            f"{path}: policy of kind {header['kind']!r}, format {header['format']}; known: {sorted(KINDS)}, {FORMAT}"
        )
    policy: Policy = KINDS[header["kind"]].restore(arrays, header["settings"])
    return policy

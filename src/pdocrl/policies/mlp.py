"""One network, one action: what most agents learn."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pdocrl.policies.network import forward, one_hot


@dataclasses.dataclass(frozen=True)
class MLPPolicy:
    """The mode of a tanh-Gaussian: tanh of the mean's network, whose scale half is not needed to act.

    Of choices, the likeliest one, one-hot.
    """

    kind: ClassVar[str] = "mlp"
    weights: tuple[NDArray[np.float32], ...]  # each [n_in, n_out]
    biases: tuple[NDArray[np.float32], ...]  # each [n_out]
    chooses: bool = False  # whether outputs are scores of choices

    def __call__(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        out = forward((self.weights, self.biases), np.asarray(obs, np.float32))
        return one_hot(out) if self.chooses else np.tanh(out)

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        layers = range(len(self.weights))
        return {f"weight_{i}": self.weights[i] for i in layers} | {f"bias_{i}": self.biases[i] for i in layers}

    def settings(self) -> dict[str, Any]:
        return {"layers": len(self.weights), "chooses": self.chooses}

    @classmethod
    def restore(cls, arrays: dict[str, NDArray[np.float32]], settings: dict[str, Any]) -> MLPPolicy:
        layers = range(settings["layers"])
        weights, biases = (tuple(arrays[f"{part}_{i}"] for i in layers) for part in ("weight", "bias"))
        return cls(weights, biases, settings.get("chooses", False))

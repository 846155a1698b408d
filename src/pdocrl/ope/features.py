"""Random features: linear regression on them is a smooth regression on the inputs, in closed form.

    φ(x) = (1, z, cos(Ωz + b)),   z the standardised input

Cosines of random frequencies span a Gaussian kernel's functions (Rahimi and Recht, 2007). Frequencies are drawn at
several length scales, since nobody knows the right one; z carries what is plainly linear.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from pdocrl.data.dataset import varies
from pdocrl.ope.log import Array

Lengths = tuple[float, float]  # range of the length scales, in standard deviations of an input · √(number of inputs)


@dataclasses.dataclass(frozen=True, eq=False)
class RandomFeatures:
    """x [..., n] → φ(x) [..., 1 + n + d] in float32."""

    mean: NDArray[np.float32]  # [n]
    scale: NDArray[np.float32]  # [n]
    frequency: NDArray[np.float32]  # [n, d] Ω
    phase: NDArray[np.float32]  # [d] b

    @staticmethod
    def draw(x: Array, size: int, lengths: Lengths, rng: np.random.Generator) -> RandomFeatures:
        """Frequencies for inputs like x [N, n]. An input that never varies is left out: its scale is infinite."""
        mean, deviation = x.mean(axis=0, dtype=np.float64), x.std(axis=0, dtype=np.float64)
        scale = np.where(varies(mean, deviation), deviation, np.inf)
        varying = max(1, int(np.isfinite(scale).sum()))
        length = np.exp(rng.uniform(np.log(lengths[0]), np.log(lengths[1]), size)) * np.sqrt(varying)
        frequency = rng.standard_normal((x.shape[1], size)) / length
        phase = rng.uniform(0, 2 * np.pi, size)
        single = np.float32
        return RandomFeatures(mean.astype(single), scale.astype(single), frequency.astype(single), phase.astype(single))

    def __call__(self, x: Array) -> NDArray[np.float32]:
        z = ((x - self.mean) / self.scale).astype(np.float32)
        one = np.ones((*z.shape[:-1], 1), np.float32)
        return np.concatenate([one, z, np.cos(z @ self.frequency + self.phase)], axis=-1)

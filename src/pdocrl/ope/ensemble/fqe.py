"""Fitted Q evaluation for continuous actions over a finite horizon: the direct method, beside the dynamics ensemble.

    Q₀ = 0,   Q_{h+1}(s, a) = ridge fit of  y + Q_h(s′, π(s′)),   v = mean_e Q_H(s_e0, π(s_e0))

on random features φ(s, a) = (1, z, cos(Ωz + b)), z the standardised pair: cosines of random frequencies span a Gaussian
kernel's functions (Rahimi and Recht, 2007). The steps to go are an index, not an input: one factorised system, H cheap
fits, nothing discounted. Values are kept within h times the signal's range in the data: a linear fit at actions the
data lacks may grow at every step. The error of the regression is in no interval, so none is given. Le, Voloshin and
Yue, "Batch policy learning under constraints", 2019.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from pdocrl.data.dataset import Dataset, Rows, varies

Array = NDArray[np.floating]
Act = Callable[[Array], Array]  # obs [B, S] → action [B, A]

ROWS, FEATURES = 4_000, 200  # at most; the cost per policy is rows × features × horizon
LENGTHS = (2.0, 8.0)  # length scales, in standard deviations of an input · √(number of inputs)
RIDGE = 1e-3


@dataclasses.dataclass(frozen=True, eq=False)
class System:
    """What does not depend on the policy. Signals are the reward and then the K costs."""

    features: Callable[[Array], Array]  # pairs [B, S + A] → φ [B, d]
    fit: Array  # [d, n] (ΦᵀΦ/n + ρI)⁻¹ Φᵀ/n: θ of the ridge fit of any y [n]
    signal: Array  # [n, 1 + K]
    next_obs: Array  # [n, S]
    not_done: Array  # [n] 0 where the episode truly ended: no sum goes on beyond it; 1 at a timeout
    start: Array  # [E, S]

    @staticmethod
    def of(
        data: Dataset, features: Callable[[Array], Array], ridge: float = RIDGE, rows: Rows | slice = slice(None)
    ) -> System:
        """From some rows of a dataset, or all."""
        phi = features(pairs_of(data, rows))
        return System(
            features=features,
            fit=smoother(phi, ridge).astype(phi.dtype),
            signal=np.column_stack([data.reward, data.cost])[rows],
            next_obs=data.next_obs[rows],
            not_done=(~data.terminal[rows]).astype(np.float32),
            start=data.initial_obs,
        )

    @staticmethod
    def drawn(data: Dataset, rng: np.random.Generator) -> System:
        """On some of the rows, with random features."""
        rows = some_rows(data, ROWS, rng)
        return System.of(data, RandomFeatures.draw(pairs_of(data, rows), FEATURES, LENGTHS, rng), rows=rows)

    def values(self, act: Act, horizon: int) -> NDArray[np.float64]:
        """[1 + K] of a policy over so many steps, from the starts of the log."""

        def phi(obs: Array) -> Array:
            return self.features(np.concatenate([obs, act(obs)], axis=1))

        after = phi(self.next_obs) * self.not_done[:, None]
        y = self.signal.astype(self.fit.dtype)
        low, high = np.minimum(y.min(axis=0), 0), np.maximum(y.max(axis=0), 0)
        theta = np.zeros((len(self.fit), y.shape[1]), y.dtype)
        for h in range(horizon):
            theta = self.fit @ (y + np.clip(after @ theta, h * low, h * high))
        starts = np.clip(phi(self.start) @ theta, horizon * low, horizon * high)
        return np.asarray(starts.mean(axis=0), np.float64)


@dataclasses.dataclass(frozen=True, eq=False)
class RandomFeatures:
    """x [..., n] → φ(x) [..., 1 + n + d] in float32. z carries what is plainly linear."""

    mean: NDArray[np.float32]  # [n]
    scale: NDArray[np.float32]  # [n]
    frequency: NDArray[np.float32]  # [n, d] Ω
    phase: NDArray[np.float32]  # [d] b

    @staticmethod
    def draw(x: Array, size: int, lengths: tuple[float, float], rng: np.random.Generator) -> RandomFeatures:
        """Frequencies, at several length scales, for inputs like x [N, n]; one that never varies is left out."""
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


def smoother(phi: Array, ridge: float) -> NDArray[np.float64]:
    """A [d, n] that turns any target [n] into its ridge fit's θ; ρ = ridge · mean of the diagonal of ΦᵀΦ/n."""
    wide = np.asarray(phi, np.float64)  # in float32 rounding would be larger than the ridge
    gram = wide.T @ wide / len(wide)
    factor: Any = cho_factor(gram + ridge * np.trace(gram) / len(gram) * np.eye(len(gram)))
    return np.asarray(cho_solve(factor, wide.T) / len(wide), np.float64)


def pairs_of(data: Dataset, rows: Rows | slice = slice(None)) -> Array:
    """[n, S + A] (s, a)."""
    return np.concatenate([data.obs[rows], data.action[rows]], axis=1)


def some_rows(data: Dataset, most: int, rng: np.random.Generator) -> Rows:
    """At most that many rows, drawn without replacement."""
    every = np.arange(len(data))
    return every if len(data) <= most else np.sort(rng.permutation(len(data))[:most])

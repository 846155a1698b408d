"""A second opinion that needs no model: what logged behaviours that act like the policy came to.

    d_h = E_{s ~ h} |π(s) − μ_h(s)|²          h one of G groups of episodes alike, μ_h a clone of it
    v = Σ_h w_h y_h,   w_h ∝ exp(−d_h / τ),    y_h the logged mean of the group's episodes

Where π does on the states of h what h did there, it has the value of h (the performance-difference lemma, at first
order). Nothing is rolled out, so nothing falls over, in however many dimensions; and what π alone leads to is not seen.
For the error of v every group is a policy in turn, by its clone, and is told from the groups of other folds. Neighbours
that came to different sums say little, so errors are measured in a scale that grows with their spread,

    x² = Σ_h w_h (y_h − v)²

and are calibrated as those of the dynamics models are, see `calibrate`. A policy is not judged that no group stands
for: one that is farther from every group than any group is from the others, or that acts more strongly than those like
it than any group does, by the gain

    γ = Σ_h w_h E_h[π·μ_h] / Σ_h w_h E_h[μ_h·μ_h]

On a walker a gain of 1.2 is a small distance and another speed.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pdocrl.data.dataset import Dataset
from pdocrl.ope.ensemble.calibrate import Calibration
from pdocrl.ope.ensemble.fqe import RandomFeatures, smoother
from pdocrl.ope.ensemble.groups import Groups, deal, group_episodes

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

MOST = 120  # groups: many, since this asks for neighbours
FEATURES, LENGTHS, RIDGE = 200, (1.0, 4.0), 1e-3  # of the clones, ridge regressions on random features
ROWS = 4000  # of a group, at most, that its clone learns from
PROBES = 40  # states of a group at which policies are compared with it
SHARES = (0.125, 0.25, 0.5, 1.0, 2.0)  # τ that are tried, in medians of the distance to the nearest group


@dataclasses.dataclass(frozen=True, eq=False)
class Likeness:
    """Of a policy and every group, on the states of the group."""

    distance: Floats  # [G] d_h
    product: Floats  # [G] E_h[π·μ_h]


@dataclasses.dataclass(frozen=True, eq=False)
class Behaviours:
    """G groups of episodes: what they did, and what they came to."""

    probe: Rows  # [G, n] rows of each group
    mean: NDArray[np.float32]  # [G, n, A] what its clone does there
    distance: Floats  # [G, G] of the clone of g from h, on the probes of h
    product: Floats  # [G, G] E_h[π·μ_h] of the clone of g
    truth: Floats  # [G, 1 + K]
    fold: Groups  # [G]

    @staticmethod
    def of(data: Dataset, folds: int, rng: np.random.Generator) -> Behaviours:
        groups = group_episodes(data, rng, MOST)
        count = int(groups.max()) + 1
        row = np.repeat(groups, data.episode_length)
        known = [rng.permutation(np.flatnonzero(row == g)) for g in range(count)]
        sample = data.obs[rng.integers(len(data), size=ROWS)]
        features = RandomFeatures.draw(sample, FEATURES, LENGTHS, rng)
        theta = [smoother(features(data.obs[at[:ROWS]]), RIDGE) @ data.action[at[:ROWS]] for at in known]
        probe = np.stack([np.resize(at, PROBES) for at in known])
        seen = features(data.obs[probe])  # [G, n, d]
        low, high = data.action.min(axis=0), data.action.max(axis=0)
        acted = np.stack([np.clip(seen @ own, low, high) for own in theta])  # [g, h, n, A] of clone g on probes of h
        mean = acted[np.arange(count), np.arange(count)].astype(np.float32)
        sums = np.column_stack([data.reward_return, data.cost_return]).astype(np.float64)
        truth = np.stack([sums[groups == g].mean(axis=0) for g in range(count)])
        distance = np.square(acted - mean, dtype=np.float64).mean(axis=(2, 3))
        product = (acted * mean).mean(axis=(2, 3), dtype=np.float64)
        return Behaviours(probe, mean, distance, product, truth, deal(count, folds, rng))

    @property
    def folds(self) -> int:
        return int(self.fold.max()) + 1

    @functools.cached_property
    def others(self) -> NDArray[np.bool_]:
        """[G, G] whether h is in another fold than g."""
        return np.asarray(self.fold[:, None] != self.fold)

    @functools.cached_property
    def farthest(self) -> float:
        """The largest distance of a group from the nearest of other folds."""
        return float(np.where(self.others, self.distance, np.inf).min(axis=1).max())

    @functools.cached_property
    def strongest(self) -> float:
        """The largest gain of a group beside those of other folds."""
        return float(self._gain(self.product, np.where(self.others, self.distance, np.inf)).max())

    def stands_for(self, like: Likeness) -> bool:
        """Whether the groups are to a policy what they are to each other."""
        gain = float(self._gain(like.product, like.distance))
        return float(like.distance.min()) <= self.farthest and gain <= self.strongest

    def _gain(self, product: Floats, distance: Floats) -> Floats:
        """γ [...] at products and distances [..., G]."""
        weight, own = weights(distance, self.width), np.square(self.mean, dtype=np.float64).mean(axis=(1, 2))
        return np.asarray((weight * product).sum(axis=-1) / np.maximum((weight * own).sum(axis=-1), 1e-12))

    @functools.cached_property
    def width(self) -> float:
        """τ of the least squared error on groups of other folds, every signal in its spread."""
        unit = max(float(np.median(np.where(self.others, self.distance, np.inf).min(axis=1))), 1e-12)
        spread = np.maximum(self.truth.std(axis=0), 1e-12)

        def error(share: float) -> float:
            value = self._estimate(self.distance, self.others, share * unit)[0]
            return float((((self.truth - value) / spread) ** 2).mean())

        return unit * min(SHARES, key=error)

    def _estimate(self, distance: Floats, heard: NDArray[np.bool_], width: float) -> tuple[Floats, Floats]:
        """v and x [..., 1 + K] from the groups that are heard, distances [..., G]."""
        weight = weights(np.where(heard, distance, np.inf), width)
        value = weight @ self.truth
        second = weight @ np.square(self.truth)
        return value, np.sqrt(np.maximum(second - value**2, 0))

    @functools.cached_property
    def calibration(self) -> Calibration:
        """Every group told from the groups of other folds."""
        value, spread = self._estimate(self.distance, self.others, self.width)
        return Calibration(self.truth, value, spread, self.fold)

    def likeness(self, act: Callable[[Rows], NDArray[np.floating]]) -> Likeness:
        """Of a policy that acts at rows of the data, [N] → [N, A]."""
        action = act(self.probe.ravel()).reshape(self.mean.shape)
        distance = np.square(action - self.mean, dtype=np.float64).mean(axis=(1, 2))
        return Likeness(distance, (action * self.mean).mean(axis=(1, 2), dtype=np.float64))

    def drawn(self, distance: Floats, count: int) -> Groups:
        """[n] groups as often as they are like a policy of such distances."""
        return np.random.default_rng(0).choice(len(distance), count, p=weights(distance, self.width))

    def told(self, distance: Floats) -> tuple[Floats, Floats]:
        """v and x [F, 1 + K] without each fold in turn."""
        heard = self.fold != np.arange(self.folds)[:, None]
        return self._estimate(np.tile(distance, (self.folds, 1)), heard, self.width)


def weights(distance: Floats, width: float) -> Floats:
    """w [..., G], adding up to 1."""
    weight = np.exp(-(distance - distance.min(axis=-1, keepdims=True)) / width)
    return np.asarray(weight / weight.sum(axis=-1, keepdims=True))

"""Bounded features φ of states [N, S]: nonnegative, at most 1, so that classes linear in them are bounded.

    OneHot      one per distinct state: tables
    SoftCells   normalised Gaussian kernels at centres; rows sum to one
    Trees       the leaves of random trees; rows sum to one
    Fourier     a constant and (1 + cos(ωᵀx + b))/2: random Fourier features
    Polynomial  monomials of columns scaled to [0, 1]

They are records: a policy that uses them is saved with them.
"""

from __future__ import annotations

import itertools
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist

from pdocrl.errors import PdocrlError, UnknownNameError
from pdocrl.records import Part

Floats = NDArray[np.float64]
Matrix = Any  # [N, d] an array, or a csr_array where most entries are 0
Rows = list[list[float]]
Kind = Literal["one_hot", "cells", "trees", "fourier", "polynomial"]

FIT_ROWS = 20_000  # states that centres and bandwidths are fitted on
LARGEST = 20_000  # features of a polynomial


class Features(Part, frozen=True, kw_only=True):
    """φ: states [N, S] → [N, d]."""

    partition: ClassVar[bool] = False  # whether each row sums to one
    size: int  # d

    def __call__(self, states: Floats) -> Matrix:
        raise NotImplementedError


class OneHot(Features, frozen=True, kw_only=True, tag="one_hot"):
    """1{x = x_k} for each distinct state x_k; a state not among them has no feature."""

    partition: ClassVar[bool] = True
    states: Rows  # [d, S]

    @classmethod
    def fit(cls, states: Floats) -> OneHot:
        distinct = np.unique(states, axis=0)
        return cls(size=len(distinct), states=distinct.tolist())

    def __call__(self, states: Floats) -> Matrix:
        place = {tuple(row): k for k, row in enumerate(self.states)}
        found = np.array([place.get(tuple(row), -1) for row in np.asarray(states, np.float64).tolist()], np.int64)
        known = np.flatnonzero(found >= 0)
        return csr_array((np.ones(len(known)), (known, found[known])), shape=(len(found), self.size))


class SoftCells(Features, frozen=True, kw_only=True, tag="cells"):
    """φ_k(x) ∝ exp(−|x − c_k|²/2h²) with Σφ = 1, x in units of each column's deviation."""

    partition: ClassVar[bool] = True
    mean: list[float]
    scale: list[float]
    centres: Rows  # [d, S] standardised
    width: float  # h

    @classmethod
    def fit(cls, states: Floats, size: int, seed: int = 0, width: float | None = None) -> SoftCells:
        """Centres by k-means; h is half the median distance of a centre to its nearest neighbour unless given."""
        mean, scale = _moments(states)
        x = (_some(states, seed) - mean) / scale
        size = min(size, len(np.unique(x, axis=0)))
        centres = np.unique(kmeans2(x, size, minit="++", seed=seed)[0], axis=0)
        if width is None:
            apart = cdist(centres, centres) + np.diag(np.full(len(centres), np.inf))
            width = float(np.median(apart.min(axis=1))) / 2 if len(centres) > 1 else 1.0
        return cls(
            size=len(centres), mean=mean.tolist(), scale=scale.tolist(), centres=centres.tolist(), width=float(width)
        )

    def __call__(self, states: Floats) -> Matrix:
        x = (np.asarray(states, np.float64) - self.mean) / np.asarray(self.scale)
        exponent = -cdist(x, np.asarray(self.centres), "sqeuclidean") / (2 * self.width**2)
        near = np.exp(exponent - exponent.max(axis=1, keepdims=True))
        return near / near.sum(axis=1, keepdims=True)


class Trees(Features, frozen=True, kw_only=True, tag="trees"):
    """Leaves of complete binary trees, each node split at a random quantile of a random column; Σφ = 1."""

    partition: ClassVar[bool] = True
    depth: int
    columns: list[list[int]]  # [trees, 2^depth − 1] the column of each node, breadth first
    thresholds: Rows  # [trees, 2^depth − 1] right if above

    @classmethod
    def fit(cls, states: Floats, size: int, seed: int = 0, depth: int = 4) -> Trees:
        """As many trees of 2^depth leaves as `size` holds, at least one."""
        rng, x = np.random.default_rng(seed), _some(states, seed)
        count, nodes = max(1, size // 2**depth), 2**depth - 1
        columns, thresholds = np.zeros((count, nodes), np.int64), np.full((count, nodes), np.inf)
        for tree in range(count):
            node = np.zeros(len(x), np.int64)
            for at in range(nodes):
                own = x[node == at]
                varies = np.flatnonzero(np.ptp(own, axis=0) > 0) if len(own) else np.zeros(0, np.int64)
                if len(varies):
                    columns[tree, at] = rng.choice(varies)
                    values = own[:, columns[tree, at]]
                    low, high = np.quantile(values, [0.2, 0.8])
                    cut = rng.uniform(low, high)
                    thresholds[tree, at] = cut if cut < values.max() else (values.min() + values.max()) / 2
                right = x[:, columns[tree, at]] > thresholds[tree, at]
                node = np.where(node == at, 2 * at + 1 + right, node)
        return cls(size=count * 2**depth, depth=depth, columns=columns.tolist(), thresholds=thresholds.tolist())

    def __call__(self, states: Floats) -> Matrix:
        x = np.asarray(states, np.float64)
        leaves, rows = 2**self.depth, np.arange(len(x))
        found = np.zeros((len(x), len(self.columns)), np.int64)
        for tree, (columns, thresholds) in enumerate(zip(self.columns, self.thresholds, strict=True)):
            node = np.zeros(len(x), np.int64)
            for _ in range(self.depth):
                node = 2 * node + 1 + (x[rows, np.asarray(columns)[node]] > np.asarray(thresholds)[node])
            found[:, tree] = tree * leaves + node - (leaves - 1)
        start = np.arange(len(x) + 1) * found.shape[1]
        return csr_array((np.full(found.size, 1 / found.shape[1]), found.ravel(), start), shape=(len(x), self.size))


class Fourier(Features, frozen=True, kw_only=True, tag="fourier"):
    """1, and (1 + cos(ω_kᵀx + b_k))/2 with ω ~ N(0, h⁻²): random Fourier features of a Gaussian kernel of width h."""

    mean: list[float]
    scale: list[float]
    frequencies: Rows  # [d − 1, S]
    phases: list[float]

    @classmethod
    def fit(cls, states: Floats, size: int, seed: int = 0, width: float | None = None) -> Fourier:
        """h is the median distance between states unless given."""
        mean, scale = _moments(states)
        rng = np.random.default_rng(seed)
        if width is None:
            x = (_some(states, seed)[:500] - mean) / scale
            apart = cdist(x, x)
            width = float(np.median(apart[apart > 0])) if (apart > 0).any() else 1.0
        frequencies = rng.normal(size=(size - 1, states.shape[1])) / width
        return cls(
            size=size,
            mean=mean.tolist(),
            scale=scale.tolist(),
            frequencies=frequencies.tolist(),
            phases=rng.uniform(0, 2 * np.pi, size - 1).tolist(),
        )

    def __call__(self, states: Floats) -> Matrix:
        x = (np.asarray(states, np.float64) - self.mean) / np.asarray(self.scale)
        waves = x @ np.reshape(self.frequencies, (self.size - 1, x.shape[1])).T + self.phases
        return np.concatenate([np.ones((len(x), 1)), (1 + np.cos(waves)) / 2], axis=1)


class Polynomial(Features, frozen=True, kw_only=True, tag="polynomial"):
    """Π_j x_j^{p_j}, Σp ≤ degree, of columns scaled to [0, 1] and cut there."""

    low: list[float]
    high: list[float]
    degree: int

    @classmethod
    def fit(cls, states: Floats, degree: int = 2) -> Polynomial:
        low, high = states.min(axis=0), states.max(axis=0)
        size = len(list(_powers(states.shape[1], degree)))
        return cls(size=size, low=low.tolist(), high=high.tolist(), degree=degree)

    def __call__(self, states: Floats) -> Matrix:
        low, high = np.asarray(self.low), np.asarray(self.high)
        x = np.clip((np.asarray(states, np.float64) - low) / np.where(high > low, high - low, 1), 0, 1)
        return np.stack([x[:, list(chosen)].prod(axis=1) for chosen in _powers(x.shape[1], self.degree)], axis=1)


AnyFeatures = OneHot | SoftCells | Trees | Fourier | Polynomial


def make_features(kind: Kind, states: Floats, size: int, seed: int = 0) -> AnyFeatures:
    """Features of one kind fitted to states [N, S].

    Args:
        kind: which.
        states: what they are fitted to.
        size: how many, where that is free; for polynomials the degree.
        seed: of what is random.
    """
    if size < 1:
        raise PdocrlError(f"features: the size is {size}; it must be at least 1.")
    match kind:
        case "one_hot":
            return OneHot.fit(states)
        case "cells":
            return SoftCells.fit(states, size, seed)
        case "trees":
            return Trees.fit(states, size, seed)
        case "fourier":
            return Fourier.fit(states, size, seed)
        case "polynomial":
            return Polynomial.fit(states, size)
    raise UnknownNameError("features", kind, get_args(Kind))


def _powers(columns: int, degree: int) -> list[tuple[int, ...]]:
    """Each monomial as the columns it multiplies."""
    found: list[tuple[int, ...]] = []
    for p in range(degree + 1):
        for chosen in itertools.combinations_with_replacement(range(columns), p):
            found.append(chosen)
            if len(found) > LARGEST:
                raise PdocrlError(
                    f"features: a polynomial of degree {degree} in {columns} columns has more than {LARGEST:,} terms; "
                    "lower the degree or take Fourier features."
                )
    return found


def _some(states: Floats, seed: int) -> Floats:
    """At most FIT_ROWS of the states."""
    x = np.asarray(states, np.float64)
    if len(x) <= FIT_ROWS:
        return x
    return np.asarray(x[np.random.default_rng(seed).choice(len(x), FIT_ROWS, replace=False)])


def _moments(states: Floats) -> tuple[Floats, Floats]:
    mean, scale = states.mean(axis=0), states.std(axis=0)
    return mean, np.where(scale > 1e-12 * (1 + np.abs(mean)), scale, 1.0)

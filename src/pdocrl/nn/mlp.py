"""The function classes W and Q as networks: plain pytrees of weights, batched over any leading axes.

Ensembles carry a leading member axis in their weights, so twin critics are one batched product, not two calls.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from pdocrl.nn import pallas_mlp, precision

M = TypeVar("M", bound=eqx.Module)


def split_up(flat: Float[Array, " N"], shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Consecutive pieces of a vector, each in its shape."""
    pieces, start = [], 0
    for shape in shapes:
        size = math.prod(shape)
        pieces.append(flat[start : start + size].reshape(shape))
        start += size
    return pieces


def normals(key: PRNGKeyArray, *shapes: tuple[int, ...]) -> list[Array]:
    """Independent standard normal arrays of the given shapes, from one draw."""
    return split_up(jax.random.normal(key, (sum(map(math.prod, shapes)),)), shapes)


def zero_padded(array: Array, axis: int, parts: Sequence[tuple[int, int]], xp: Any = np) -> Array:
    """An axis of consecutive parts, each (size here, size there): cut short, or filled up with zeros, part by part.

    In NumPy, since shapes of many kinds come once each and every one would be compiled anew; with `xp=jnp` where the
    array lies, for a large one.
    """
    whole = xp.asarray(array)
    cuts = np.cumsum([here for here, _ in parts])[:-1]
    pieces = []
    for piece, (here, there) in zip(xp.split(whole, cuts, axis), parts, strict=True):
        room = [(0, 0)] * whole.ndim
        room[axis] = (0, max(0, there - here))
        pieces.append(xp.pad(xp.split(piece, [min(here, there)], axis)[0], room))
    joined: Array = xp.concatenate(pieces, axis)
    return joined


class MLP(eqx.Module):
    """Two or more affine layers with ReLU between: x [..., B, n₀] → [..., B, n_L]; with members, [M, B, n_L]."""

    weights: tuple[Array, ...]  # each [n_in, n_out], or [M, n_in, n_out]
    biases: tuple[Array, ...]  # each [n_out], or [M, 1, n_out]

    @staticmethod
    def create(key: PRNGKeyArray, sizes: Sequence[int], members: int | None = None) -> MLP:
        """Uniform ±1/√fan_in, the initialisation under which the published hyper-parameters were chosen."""
        lead = () if members is None else (members,)
        row = () if members is None else (members, 1)
        shapes = [shape for n_in, n_out in itertools.pairwise(sizes) for shape in ((*lead, n_in, n_out), (*row, n_out))]
        # One draw for all layers, and none for each once more: random numbers are what takes XLA longest to compile.
        numbers = jax.random.uniform(key, (sum(map(math.prod, shapes)),), minval=-1, maxval=1)
        drawn = split_up(jax.lax.optimization_barrier(numbers), shapes)  # type: ignore[no-untyped-call]
        bounds = [n_in**-0.5 for n_in in sizes[:-1]]
        weights = [bound * array for bound, array in zip(bounds, drawn[::2], strict=True)]
        biases = [bound * array for bound, array in zip(bounds, drawn[1::2], strict=True)]
        return MLP(tuple(weights), tuple(biases))

    def __call__(self, x: Array) -> Array:
        if precision.for_training():
            return self._mixed(x)
        if x.ndim == 2 < self.weights[0].ndim:  # members first from the start: nothing is transposed later
            x = jnp.broadcast_to(x, (len(self.weights[0]), *x.shape))
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = jax.nn.relu(x @ weight + bias)
        return x @ self.weights[-1] + self.biases[-1]

    def _mixed(self, x: Array) -> Array:
        if self.weights[0].ndim == 2:
            flat = precision.network(self.weights, self.biases, x.reshape(-1, x.shape[-1]))
            return flat.reshape(*x.shape[:-1], -1)
        members = jax.vmap(precision.network, in_axes=(0, 0, 0 if x.ndim == 3 else None))
        found: Array = members(self.weights, self.biases, x)
        return found

    def zero_padded(self, inputs: Sequence[tuple[int, int]], outputs: Sequence[tuple[int, int]]) -> MLP:
        """The network for inputs and outputs that are longer, or shorter, part by part: (size here, size there).

        What is added has no weight, so at inputs filled up with zeros the outputs are as before, filled up with zeros.
        """
        weights, biases = list(self.weights), list(self.biases)
        weights[0] = zero_padded(weights[0], -2, inputs)
        weights[-1], biases[-1] = zero_padded(weights[-1], -1, outputs), zero_padded(biases[-1], -1, outputs)
        return MLP(tuple(weights), tuple(biases))

    def joined(self, left: Float[Array, "... B X"], right: Float[Array, "... B Y"]) -> Array:
        """The network at (left, right) side by side. Right may hold n rows for each of left's: [B, X], [n, B, Y].

        Then left's share of the first layer is computed once, not n times, and right's few columns are added as outer
        products, which an accelerator does in the same pass as the bias and the ReLU: [n, B, n_L], or [M, n, B, n_L].
        This way is for values no gradient is asked of, see `_product`. Where a kernel takes the network whole, pairs
        are written out for it.
        """
        if left.ndim == right.ndim:
            return self(jnp.concatenate([left, right], -1))
        if precision.for_training() and pallas_mlp.fits(self.weights, math.prod(right.shape[:-1])):
            pairs = jnp.concatenate([jnp.broadcast_to(left, (*right.shape[:-1], left.shape[-1])), right], -1)
            found = self._mixed(pairs.reshape(-1, pairs.shape[-1]))
            return found.reshape(*found.shape[:-2], *right.shape[:-1], -1)
        once, each = jnp.split(self.weights[0], [left.shape[-1]], axis=-2)
        columns = [right[..., j, None] * each[..., None, None, j, :] for j in range(right.shape[-1])]
        x = (left @ once + self.biases[0])[..., None, :, :] + sum(columns)
        x = x.reshape(*x.shape[:-3], -1, x.shape[-1])  # [n B, H]: one product, not n
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            x = _product(jax.nn.relu(x), weight) + bias
        return x.reshape(*x.shape[:-2], *right.shape[:-1], -1)


class Dropout(eqx.Module):
    """A network with dropout on its hidden units."""

    mlp: MLP
    kept: Sequence[Float[Array, "B H"] | float]  # mask of each hidden layer: 0, or 1 / (1 − dropout rate)

    def __call__(self, x: Array) -> Array:
        layers = zip(self.mlp.weights[:-1], self.mlp.biases[:-1], self.kept, strict=True)
        for weight, bias, kept in layers:
            x = jax.nn.relu(x @ weight + bias) * kept
        return x @ self.mlp.weights[-1] + self.mlp.biases[-1]


def _product(x: Array, weight: Array) -> Array:
    """x W; in mixed precision on a GPU. For values alone: a gradient would need `precision.network`."""
    return precision.product(x, weight) if precision.for_values() else x @ weight


class Critic(eqx.Module):
    """M action-value functions: (s [B, S], a [B, A]) → [M, B]; with n actions a state, a [n, B, A], [M, n, B]."""

    mlp: MLP

    @staticmethod
    def create(key: PRNGKeyArray, obs_dim: int, action_dim: int, hidden: Sequence[int], members: int) -> Critic:
        return Critic(MLP.create(key, (obs_dim + action_dim, *hidden, 1), members))

    def __call__(self, obs: Float[Array, "B S"], action: Float[Array, "*n B A"]) -> Float[Array, "M *n B"]:
        return self.mlp.joined(obs, action)[..., 0]


class CostCritic(eqx.Module):
    """M estimates of K action costs: (s [B, S], a [B, A]) → [M, B, K]; with a [n, B, A], [M, n, B, K]."""

    mlp: MLP

    @staticmethod
    def create(
        key: PRNGKeyArray, obs_dim: int, action_dim: int, n_costs: int, hidden: Sequence[int], members: int
    ) -> CostCritic:
        return CostCritic(MLP.create(key, (obs_dim + action_dim, *hidden, n_costs), members))

    def __call__(self, obs: Float[Array, "B S"], action: Float[Array, "*n B A"]) -> Float[Array, "M *n B K"]:
        return self.mlp.joined(obs, action)


def polyak(target: M, online: M, rate: float | Array) -> M:
    """ψ′ ← (1 − κ) ψ′ + κ ψ."""
    moved: M = jax.tree.map(lambda t, o: t + rate * (o - t), target, online)
    return moved


def density_ratio(weight: MLP, inputs: Float[Array, "B X"], largest: float | Array) -> Float[Array, " B"]:
    """w = clip(softplus(network(s, a)), 0, w_max), [B]."""
    raw = jax.nn.softplus(weight(inputs)[..., 0])
    return clip_inward(raw, jnp.asarray(largest, raw.dtype))


@jax.custom_vjp
def clip_inward(raw: Array, largest: Array) -> Array:
    """Clip to [0, largest]; outside, the gradient passes only where it leads back in: projected gradient ascent.

    A plain clip has no gradient outside, so a ratio that once left the box could never return.
    """
    return jnp.clip(raw, 0, largest)


def _clip_backward(saved: tuple[Array, Array], gradient: Array) -> tuple[Array, None]:
    raw, largest = saved
    outward = ((raw >= largest) & (gradient < 0)) | ((raw <= 0) & (gradient > 0))  # a descent step goes against it
    return jnp.where(outward, 0.0, gradient), None


clip_inward.defvjp(lambda raw, largest: (jnp.clip(raw, 0, largest), (raw, largest)), _clip_backward)

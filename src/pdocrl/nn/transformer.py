"""A causal transformer over (return-to-go, costs-to-go, state, action) tokens, four per step.

Its parameters are one dictionary of named arrays, so that NumPy and ONNX evaluate the same network by the same names.
Time runs left to right; a window shorter than the context is padded on the left and the padding is never attended to.
Where a step stands is told by an embedding of its time in the episode, or, `rotary`, by turning queries and keys by
angles that grow with the token's place in the window: then only distances count.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from numpy.typing import NDArray

from pdocrl.nn import attention, precision
from pdocrl.nn.distributions import LOG_STD_RANGE
from pdocrl.nn.mlp import normals

TOKENS = 4  # per step: return-to-go, costs-to-go, state, action
INIT_STD = 0.02  # of all weights, as in GPT-2
LONGEST_TURN = 10_000.0  # tokens per radian of the slowest pair of a rotary embedding, nearly
WIDE = 64  # inputs and outputs of a layer that mixed precision is for; what enters and leaves the network is float32
Angles = Array | NDArray[np.float32]  # [2, T, D], cosine and sine


class Windows(eqx.Module):
    """B windows of L consecutive steps."""

    returns: Float[Array, "B L"]  # reward to go
    costs: Float[Array, "B L K"]  # costs to go
    obs: Float[Array, "B L S"]
    action: Float[Array, "B L A"]
    time: Int[Array, "B L"]  # steps since the episode began
    mask: Float[Array, "B L"]  # 0 where a step is padding


class CausalTransformer(eqx.Module):
    """Windows → mean and log standard deviation of each action, and logits of whether each step costs.

    Of discrete actions, instead of the mean the logarithms of their probabilities, and 0.
    """

    arrays: dict[str, Array]
    layers: int = eqx.field(static=True)
    heads: int = eqx.field(static=True)
    published: bool = eqx.field(static=True, default=False)  # as the reference: σ free, two logits a cost, more dropout
    discrete_actions: bool = eqx.field(static=True, default=False)

    @property
    def rotary(self) -> bool:
        return "time" not in self.arrays

    @staticmethod
    def create(
        key: PRNGKeyArray,
        obs_dim: int,
        action_dim: int,
        n_costs: int,
        width: int,
        layers: int,
        heads: int,
        times: int | None,
        published: bool = False,
        discrete_actions: bool = False,
    ) -> CausalTransformer:
        """N(0, 0.02²) weights, zero biases, unit norms; as published, queries, keys and values start wider.

        It has an embedding of `times` steps, or is rotary for None.
        """
        weights: dict[str, tuple[int, ...]] = {} if times is None else {"time": (times, width)}
        norms = ["embedding_norm", "last_norm"]

        def affine(name: str, n_in: int, n_out: int) -> None:
            weights[f"{name}/weight"] = (n_in, n_out)

        for name, size in {"returns": 1, "costs": n_costs, "obs": obs_dim, "action": action_dim}.items():
            affine(name, size, width)
        for i in range(layers):
            norms += [f"block_{i}/norm_1", f"block_{i}/norm_2"]
            affine(f"block_{i}/qkv", width, 3 * width)
            affine(f"block_{i}/out", width, width)
            affine(f"block_{i}/up", width, 4 * width)
            affine(f"block_{i}/down", 4 * width, width)
        affine("action_head", width, action_dim if discrete_actions else 2 * action_dim)
        affine("cost_head", width, 2 * n_costs if published else n_costs)
        drawn = normals(key, *weights.values())
        arrays = {name: INIT_STD * array for name, array in zip(weights, drawn, strict=True)}
        if published:  # uniform with variance 2 / (fan in + fan out)
            bound = (6 / (4 * width)) ** 0.5
            for name in (name for name in weights if "/qkv/" in name):
                arrays[name] = bound * (2 * jax.scipy.special.ndtr(arrays[name] / INIT_STD) - 1)
        for name, (_, n_out) in weights.items():
            if name != "time":
                arrays[name.replace("/weight", "/bias")] = jnp.zeros(n_out)
        for name in norms:
            arrays[f"{name}/scale"], arrays[f"{name}/bias"] = jnp.ones(width), jnp.zeros(width)
        return CausalTransformer(arrays, layers, heads, published, discrete_actions)

    def __call__(
        self, windows: Windows, dropout: float | Array = 0.0, keys: PRNGKeyArray | None = None
    ) -> tuple[Float[Array, "B L A"], Float[Array, "B L A"], Float[Array, "B L K"]]:
        """(mean, log σ) of a_t given everything up to s_t, and the logits of c_t > 0 given everything up to a_t."""
        size, length = windows.mask.shape
        x = self._embed(windows)
        x = _drop(self._norm("embedding_norm", x), dropout, keys, 0)
        valid = jnp.repeat(windows.mask > 0, TOKENS, axis=1)  # [B, T]
        places = jnp.arange(x.shape[1])  # of the tokens x among all
        turns = rotation(x.shape[1], x.shape[2]) if self.rotary else None
        own: Angles | None = turns
        for i in range(self.layers):
            before = x
            if i == self.layers - 1:  # the heads read half of the tokens; the others are only attended to
                x, places = _heads_tokens(x, 1), _heads_tokens(places, 0)
                own = None if turns is None else _heads_tokens(jnp.asarray(turns), 1)
            seen = self._attention(i, x, before, places, valid, own, turns, dropout, keys)
            x = x + _drop(seen, dropout, keys, 2 * i + 1)
            hidden = self._affine(f"block_{i}/up", self._norm(f"block_{i}/norm_2", x))
            hidden = precision.gelu(hidden) if precision.for_training() else jax.nn.gelu(hidden, approximate=True)
            x = x + _drop(self._affine(f"block_{i}/down", hidden), dropout, keys, 2 * i + 2)
        x = self._norm("last_norm", x).reshape(size, length, 2, -1)
        head = self._affine("action_head", x[:, :, 0])
        if self.discrete_actions:
            mean = jax.nn.log_softmax(head)
            raw = jnp.zeros_like(mean)
        else:
            mean, raw = jnp.split(head, 2, axis=-1)
        costs = self._affine("cost_head", x[:, :, 1])
        if self.published:
            free, costly = jnp.split(costs, 2, axis=-1)
            return mean, raw, costly - free
        low, high = LOG_STD_RANGE
        return mean, low + (high - low) * (jnp.tanh(raw) + 1) / 2, costs

    def _embed(self, windows: Windows) -> Float[Array, "B T D"]:
        time = self.arrays.get("time")
        when = 0.0 if time is None else time[jnp.minimum(windows.time, len(time) - 1)]
        tokens = [
            self._affine("returns", windows.returns[..., None]),
            self._affine("costs", windows.costs),
            self._affine("obs", windows.obs),
            self._affine("action", windows.action),
        ]
        size, length = windows.mask.shape
        return jnp.stack([token + when for token in tokens], 2).reshape(size, TOKENS * length, -1)

    def _attention(
        self,
        i: int,
        x: Float[Array, "B U D"],
        seen: Float[Array, "B T D"],
        places: Int[Array, " U"],
        valid: Bool[Array, "B T"],
        own: Angles | None,
        turns: Angles | None,
        dropout: float | Array,
        keys: PRNGKeyArray | None,
    ) -> Float[Array, "B U D"]:
        """What the tokens x take from the valid tokens up to their own places; `own` and `turns` are angles of both."""
        width, block = x.shape[-1], f"block_{i}"
        weight, bias = self.arrays[f"{block}/qkv/weight"], self.arrays[f"{block}/qkv/bias"]

        def projected(y: Array, low: int, high: int, angles: Angles | None) -> list[Array]:
            """Projections low … high of (query, key, value), [B, tokens, D] each; the first two are turned."""
            part = slice(low * width, high * width)
            out = _affine(self._norm(f"{block}/norm_1", y), weight[:, part], bias[part])
            split = jnp.split(out, high - low, axis=-1)
            if angles is None:
                return split
            return [_turned(p, angles) if low + i < 2 else p for i, p in enumerate(split)]

        def by_head(y: Array) -> Array:
            return y.reshape(*y.shape[:2], self.heads, -1).transpose(0, 2, 1, 3)

        query, key, value = (
            projected(x, 0, 3, turns) if x is seen else projected(x, 0, 1, own) + projected(seen, 1, 3, turns)
        )
        tokens, head = key.shape[1], width // self.heads
        if precision.for_training() and not self.published and attention.fits(tokens, head):
            mixed = attention.attend(query, key, value, places, valid, self.heads)
            return self._affine(f"{block}/out", mixed)
        attends = (places[:, None] >= jnp.arange(tokens)) & valid[:, None, None, :]  # [B, 1, U, T]
        query, key, value = map(by_head, (query, key, value))
        kept = None
        if self.published:
            every = jnp.ones((*query.shape[:3], tokens), query.dtype)
            kept = _drop(every, dropout, keys, 2 * self.layers + 1 + i)
        mixed = attention.mix(query, key, value, attends, kept)
        return self._affine(f"{block}/out", mixed.transpose(0, 2, 1, 3).reshape(x.shape))

    def _affine(self, name: str, x: Array) -> Array:
        return _affine(x, self.arrays[f"{name}/weight"], self.arrays[f"{name}/bias"])

    def _norm(self, name: str, x: Array) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return scaled * self.arrays[f"{name}/scale"] + self.arrays[f"{name}/bias"]


def rotation(tokens: int, width: int) -> Float[NDArray[np.float32], "2 T D"]:
    """Cosine and sine of the angle of each token and each pair of numbers 2j, 2j+1: t / 10,000^(2j/D)."""
    slower = LONGEST_TURN ** (-np.arange(0, width, 2) / width)
    angle = np.repeat(np.outer(np.arange(tokens), slower), 2, axis=1)
    return np.stack([np.cos(angle), np.sin(angle)]).astype(np.float32)


def _turned(x: Float[Array, "B T D"], angles: Angles) -> Array:
    """Each pair of numbers turned by its angle."""
    across = jnp.stack([-x[..., 1::2], x[..., 0::2]], -1).reshape(x.shape)
    return x * angles[0] + across * angles[1]


def _heads_tokens(x: Array, axis: int) -> Array:
    """The states' and actions' tokens, of which the heads are functions, along the axis of all tokens."""
    split = x.reshape(*x.shape[:axis], -1, TOKENS, *x.shape[axis + 1 :])
    kept = jax.lax.slice_in_dim(split, 2, TOKENS, axis=axis + 1)
    return kept.reshape(*x.shape[:axis], -1, *x.shape[axis + 1 :])


def _affine(x: Array, weight: Array, bias: Array) -> Array:
    """x W + b; flat, because the gradient of a product over two leading axes is three times slower on a CPU.

    There the gradient of a tall W, too, takes twice as long as that of Wᵀ.
    """
    flat = x.reshape(-1, x.shape[-1])
    if weight.shape[0] > weight.shape[1]:
        weight = attention.rows_first(weight.T).T
    wide = min(weight.shape) >= WIDE and precision.for_training()
    found = precision.affine(flat, weight, bias) if wide else flat @ weight + bias
    return found.reshape(*x.shape[:-1], -1)


def _drop(x: Array, rate: float | Array, keys: PRNGKeyArray | None, place: int) -> Array:
    """Dropout with a traced rate; none without keys. Each key is for an equal share of the windows.

    What is left out is told by a hash of a number's place and two random words: drawing bits for all of them would take
    as long as a tenth of the step.
    """
    if keys is None:
        return x
    seeds = jax.vmap(lambda key: jax.random.bits(jax.random.fold_in(key, place), (2, 1), jnp.uint32))(keys)
    index = jax.lax.broadcasted_iota(jnp.uint32, (len(keys), x.size // len(keys)), 1)
    drawn = (_hashed(index, seeds[:, 0], seeds[:, 1]) >> 8).astype(jnp.float32) / 2**24  # uniform in [0, 1)
    return jnp.where((drawn >= rate).reshape(x.shape), x / (1 - rate), 0.0)


def _hashed(index: Array, first: Array, second: Array) -> Array:
    """32 bits that look random for every index; multiply and xor-shift, twice."""
    x = index * jnp.uint32(0x9E3779B9) + first
    x = (x ^ (x >> 16)) * jnp.uint32(0x21F0AAAD) ^ second
    x = (x ^ (x >> 15)) * jnp.uint32(0x735A2D97)
    return jnp.bitwise_xor(x, x >> 15)

"""Attention by hand is attention; on a GPU, with kernels in mixed precision, the transformer is the same."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdocrl.nn import attention, pallas_mlp
from pdocrl.nn.transformer import CausalTransformer, Windows, _affine

B, L = 2, 3


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
@pytest.mark.parametrize("dropout", [False, True])
def test_attention_by_hand_is_attention(monkeypatch: pytest.MonkeyPatch, backend: str, dropout: bool) -> None:
    """Its value and the gradients of queries, keys and values, against the formula in float64; fewer queries than keys,
    some of which nobody attends to."""
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    queries, tokens, size = 3, 5, 4
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        q, k, v, out = (rng.normal(size=(B, 2, rows, size)) for rows in (queries, tokens, tokens, queries))
        attends = jnp.asarray(rng.random((B, 1, queries, tokens)) < 0.6).at[..., 0].set(True)
        kept = jnp.asarray(rng.choice([0.0, 1.25], (B, 2, queries, tokens))) if dropout else None

        def formula(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
            scores = jnp.einsum("bhud,bhtd->bhut", q, k) / 2.0  # √4
            grown = jnp.where(attends, jnp.exp(scores), 0.0)
            weights = grown / grown.sum(-1, keepdims=True) * (1.0 if kept is None else kept)
            return jnp.einsum("bhut,bhtd->bhud", weights, v)

        true, back = jax.vjp(formula, q, k, v)
        found, by_hand = jax.vjp(lambda q, k, v: attention.mix(q, k, v, attends, kept), q, k, v)
        np.testing.assert_allclose(found, true, rtol=1e-12)
        for one, other in zip(by_hand(out), back(out), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("shape", [(6, 3), (3, 6)])
def test_an_affine_layer_has_the_gradients_of_its_formula(shape: tuple[int, int]) -> None:
    """Tall, for which a CPU multiplies the other way round, or wide."""
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        x, weight, bias = rng.normal(size=(4, 2, shape[0])), rng.normal(size=shape), rng.normal(size=shape[1])
        out = rng.normal(size=(4, 2, shape[1]))
        found, back = jax.vjp(_affine, x, weight, bias)
        at_x, at_weight, at_bias = back(out)
        np.testing.assert_allclose(found, x @ weight + bias, rtol=1e-12)
        np.testing.assert_allclose(at_x, out @ weight.T, rtol=1e-12)
        np.testing.assert_allclose(at_weight, np.einsum("ijk,ijl->kl", x, out), rtol=1e-12)
        np.testing.assert_allclose(at_bias, out.sum((0, 1)), rtol=1e-12)


@pytest.mark.skipif(not pallas_mlp._has_triton(), reason="this JAX has no Pallas for Triton as we use it")
@pytest.mark.parametrize("times", [5, None])
def test_values_and_gradients_in_mixed_precision_are_those_of_the_transformer(
    monkeypatch: pytest.MonkeyPatch, times: int | None
) -> None:
    """Of every array, as near as 11 bits let them, also tiny ones; one window is padded; with times and rotary."""
    keys = jax.random.split(jax.random.key(0), 5)
    model = CausalTransformer.create(keys[0], 4, 2, 1, width=64, layers=2, heads=4, times=times)
    model = jax.tree.map(lambda x: 5 * x if x.ndim == 2 else x, model)  # so that attention is not uniform
    shapes = [(B, L), (B, L, 1), (B, L, 4), (B, L, 2)]
    parts = [jax.random.normal(key, shape) for key, shape in zip(keys[1:], shapes, strict=True)]
    mask = jnp.asarray([[1.0, 1, 1], [0, 1, 1]])
    windows = Windows(*parts, jnp.tile(jnp.arange(L), (B, 1)), mask)

    def loss(model: CausalTransformer, size: float) -> jax.Array:
        mean, log_std, costs = model(windows)
        return size * (mask[..., None] * ((mean - 1) ** 2 + log_std + jnp.sin(costs))).sum()

    def graded() -> Callable[[CausalTransformer, float], tuple[jax.Array, CausalTransformer]]:
        return jax.jit(jax.value_and_grad(lambda model, size: loss(model, size)))

    value, exact = graded()(model, 1.0)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setenv("PDOCRL_PRECISION", "mixed")
    monkeypatch.setattr(pallas_mlp, "INTERPRET", True)
    called: list[int] = []
    attend = attention.attend
    monkeypatch.setattr(attention, "attend", lambda *given: called.append(given[0].shape[1]) or attend(*given))
    mixed_precision = graded()
    np.testing.assert_allclose(mixed_precision(model, 1.0)[0], value, rtol=1e-3)
    assert called == [12, 6]  # queries of each layer, of which the last has the heads' alone
    for size in (1.0, 1e-4):
        for found, true in zip(jax.tree.leaves(mixed_precision(model, size)[1]), jax.tree.leaves(exact), strict=True):
            assert np.linalg.norm(found / size - true) <= 0.01 * np.linalg.norm(true) + 1e-5

"""The transformer as a GPU computes it, layers in halves and attention as one kernel, is the same transformer."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdocrl.nn import attention, kernel
from pdocrl.nn.transformer import CausalTransformer, Windows

B, L = 2, 3


@pytest.mark.parametrize("times", [5, None])
def test_values_and_gradients_in_halves_are_those_of_the_transformer(
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
    monkeypatch.setenv("PDOCRL_HALVES", "1")
    monkeypatch.setattr(kernel, "INTERPRET", True)
    called: list[int] = []
    attend = attention.attend
    monkeypatch.setattr(attention, "attend", lambda *given: called.append(given[0].shape[1]) or attend(*given))
    in_halves = graded()
    np.testing.assert_allclose(in_halves(model, 1.0)[0], value, rtol=1e-3)
    assert called == [12, 6]  # queries of each layer, of which the last has the heads' alone
    for size in (1.0, 1e-4):
        for found, true in zip(jax.tree.leaves(in_halves(model, size)[1]), jax.tree.leaves(exact), strict=True):
            assert np.linalg.norm(found / size - true) <= 0.01 * np.linalg.norm(true) + 1e-5

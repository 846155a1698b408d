"""Pallas is optional: where JAX has none, or PDOCRL_PALLAS=0, networks go by XLA and give the same values."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator

import jax
import numpy as np
import pytest

from pdocrl.nn import pallas_mlp as kernel
from pdocrl.nn.mlp import MLP


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    kernel._has_triton.cache_clear()
    yield
    kernel._has_triton.cache_clear()


def leave_out(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    if how == "switched off":
        monkeypatch.setenv("PDOCRL_PALLAS", "0")
        return
    import jax.experimental.pallas as pallas

    without = None if how == "no module" else types.ModuleType("triton")
    monkeypatch.delattr(pallas, "triton", raising=False)
    monkeypatch.setitem(sys.modules, "jax.experimental.pallas.triton", without)
    if without is not None:
        monkeypatch.setattr(pallas, "triton", without, raising=False)


@pytest.mark.skipif(not kernel._has_triton(), reason="this JAX has no Pallas for Triton as we use it")
@pytest.mark.parametrize("how", ["switched off", "no module", "no functions"])
def test_without_pallas_xla_does_the_work_with_the_same_values(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    network = MLP.create(jax.random.key(0), (5, 64, 64, 2))
    x = jax.random.normal(jax.random.key(1), (64, 5))
    exact = network(x)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setenv("PDOCRL_PRECISION", "mixed")
    monkeypatch.setattr(kernel, "INTERPRET", True)
    monkeypatch.setattr(kernel, "is_hopper", lambda: True)
    assert kernel.fits(network.weights, 64)
    by_kernel = network(x)

    kernel._has_triton.cache_clear()
    leave_out(monkeypatch, how)
    assert not kernel.available()
    monkeypatch.setattr(kernel, "forward", lambda *_, **__: pytest.fail("a kernel was asked for"))
    np.testing.assert_allclose(network(x), exact, atol=0.01)
    np.testing.assert_allclose(network(x), by_kernel, atol=0.01)

"""Networks at many actions a state are the same networks at the pairs written out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdocrl.nn import pallas_mlp, precision
from pdocrl.nn.mlp import MLP, CostCritic, Critic
from pdocrl.nn.vae import VAE

FEW = st.integers(1, 5)


@settings(max_examples=25, deadline=None)
@given(n=FEW, rows=FEW, left=FEW, right=FEW, members=st.sampled_from([None, 1, 2]), hidden=st.sampled_from([(), (7,)]))
def test_joined_is_the_network_at_every_pair(
    n: int, rows: int, left: int, right: int, members: int | None, hidden: tuple[int, ...]
) -> None:
    keys = jax.random.split(jax.random.key(n + 10 * rows), 3)
    network = MLP.create(keys[0], (left + right, *hidden, 3), members)
    x, y = jax.random.normal(keys[1], (rows, left)), jax.random.normal(keys[2], (n, rows, right))
    found = network.joined(x, y)
    assert found.shape == (*(() if members is None else (members,)), n, rows, 3)
    for i in range(n):
        expected = network(jnp.concatenate([x, y[i]], -1))
        np.testing.assert_allclose(found[..., i, :, :], expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(network.joined(x, y[i]), expected)


def test_critics_and_the_vae_take_many_actions_a_state() -> None:
    keys = jax.random.split(jax.random.key(0), 5)
    obs, action = jax.random.normal(keys[0], (6, 3)), jax.random.normal(keys[1], (4, 6, 2))
    critic = Critic.create(keys[2], 3, 2, (8,), members=2)
    cost_critic = CostCritic.create(keys[3], 3, 2, 2, (8,), members=2)
    vae = VAE.create(keys[4], 3, 2, (8,), latent=2)
    assert critic(obs, action).shape == (2, 4, 6)
    assert cost_critic(obs, action).shape == (2, 4, 6, 2)
    assert vae.decode(obs, action).shape == (4, 6, 2)
    assert vae.divergence(obs, action).shape == (4, 6)


def test_float16_matmuls_are_as_near_as_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU hidden layers are multiplied as float16, 11 significant bits, as in TF32, unless told otherwise."""
    keys = jax.random.split(jax.random.key(1), 3)
    network = MLP.create(keys[0], (12, 256, 256, 1), members=2)
    x, y = jax.random.normal(keys[1], (64, 9)), jax.random.uniform(keys[2], (10, 64, 3), minval=-1, maxval=1)
    exact = np.asarray(network.joined(x, y))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    mixed = np.asarray(network.joined(x, y))
    assert 0 < np.abs(mixed - exact).max() < 2**-11 * np.abs(exact).max() * 4
    far = np.asarray(network.joined(1e6 * x, y))
    assert np.isfinite(far).all()
    with jax.default_matmul_precision("float32"):
        np.testing.assert_array_equal(network.joined(x, y), exact)


needs_triton = pytest.mark.skipif(not pallas_mlp._has_triton(), reason="this JAX has no Pallas for Triton as we use it")


@pytest.mark.parametrize(
    ("members", "blocks", "outputs"),
    [(None, 0, 2), (2, 0, 1), *(pytest.param(*case, marks=needs_triton) for case in ((2, 32, 2), (None, 32, 1)))],
)
def test_gradients_in_mixed_precision_are_those_of_the_network(
    monkeypatch: pytest.MonkeyPatch, members: int | None, blocks: int, outputs: int
) -> None:
    """In weights, biases and input, as near as 11 bits let them, also tiny ones; no unit is at the edge of its ReLU.

    By XLA's products, and by the kernel for a GPU, interpreted, over blocks of rows.
    """
    keys = jax.random.split(jax.random.key(2), 3)
    network = MLP.create(keys[0], (5, 64, 64, outputs), members)
    away = tuple(b + far * (-1.0) ** jnp.arange(64) for b, far in zip(network.biases, (4, 16), strict=False))
    network = MLP(network.weights, (*away, network.biases[-1]))
    x, goal = jax.random.normal(keys[1], (64, 5)), jax.random.normal(keys[2], (64, outputs))

    def loss(network: MLP, x: jax.Array, size: float) -> jax.Array:
        return size * ((network(x) - goal) ** 2).mean()

    gradient, in_network, in_input = (jax.grad(loss, argnums=which) for which in ((0, 1), 0, 1))
    exact, value = jax.tree.leaves(gradient(network, x, 1.0)), network(x)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setenv("PDOCRL_PRECISION", "mixed")
    if blocks:
        monkeypatch.setattr(pallas_mlp, "TILES", dict.fromkeys(pallas_mlp.TILES, pallas_mlp.Tile(blocks, 4, 2, 32)))
        monkeypatch.setattr(pallas_mlp, "INTERPRET", True)
    else:
        monkeypatch.setattr(pallas_mlp, "available", lambda: False)
    assert pallas_mlp.fits([jnp.zeros((5, 64)), jnp.zeros((64, 64)), jnp.zeros((64, outputs))], 64) == bool(blocks)
    np.testing.assert_allclose(network(x), value, atol=0.02)
    many = network.joined(x[:, :3], jnp.stack([x[:, 3:], -x[:, 3:]]))  # two right sides for each left one
    np.testing.assert_allclose(many[..., 0, :, :], value, atol=0.02)
    for size in (1.0, 1e-12, 1e-4, 10.0, 1e6):
        for found, true in zip(jax.tree.leaves(gradient(network, x, size)), exact, strict=True):
            assert found.dtype == jnp.float32
            assert np.linalg.norm(found / size - true) < 0.01 * np.linalg.norm(true)
    whole = gradient(network, x, 1.0)  # asked for alone, where the kernel keeps or writes less, each is the same
    jax.tree.map(np.testing.assert_array_equal, in_network(network, x, 1.0), whole[0])
    alone = in_input(network, x, 1.0)
    if blocks and outputs == 1:  # the slope, by a kernel of its own
        assert np.linalg.norm(alone - whole[1]) < 2e-3 * np.linalg.norm(whole[1])
    else:
        np.testing.assert_allclose(alone, whole[1], rtol=1e-3, atol=1e-7)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient(network, 1e6 * x, 1.0)))


@needs_triton
def test_kernels_are_for_networks_that_fit_the_chip_they_were_made_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit is XLA's: a wide input would need more memory than a block has, and compiling would fail."""

    def fits(inputs: int = 42, hidden: tuple[int, ...] = (256, 256), outputs: int = 1, rows: int = 512) -> bool:
        return pallas_mlp.fits(MLP.create(jax.random.key(0), (inputs, *hidden, outputs)).weights, rows)

    assert not fits()  # a CPU
    monkeypatch.setattr(pallas_mlp, "is_hopper", lambda: True)
    assert fits()
    assert fits(inputs=255, outputs=256)
    assert not fits(inputs=256)  # one more for the bias
    assert not fits(outputs=257)
    assert not fits(hidden=(512, 512))
    assert not fits(hidden=(200, 200))
    assert not fits(hidden=(256, 256, 256))
    assert not fits(rows=500)


def test_training_uses_mixed_precision_where_an_agent_or_the_user_says_so_and_the_user_has_the_last_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PDOCRL_PRECISION", raising=False)
    with precision.training(True):
        assert not precision.for_training()  # this is a CPU
        monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
        assert precision.for_training()
        with precision.training(False):
            assert not precision.for_training()
            monkeypatch.setenv("PDOCRL_PRECISION", "mixed")
            assert precision.for_training()
        monkeypatch.setenv("PDOCRL_PRECISION", "float32")
        assert not precision.for_training()
    monkeypatch.delenv("PDOCRL_PRECISION")
    assert not precision.for_training()

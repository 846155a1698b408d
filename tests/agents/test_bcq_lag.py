"""BCQ-Lag's policy: random proposals, chosen by price."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from pdocrl.policies.policy import CandidatePolicy, Layers


def linear(*weights: float, members: int = 0) -> Layers:
    """One affine layer, twice the same for a pair of critics."""
    weight = np.asarray(weights, np.float32)[:, None]
    shape = (members, *weight.shape) if members else weight.shape
    return (np.broadcast_to(weight, shape),), (np.zeros((members, 1, 1) if members else 1, np.float32),)


@pytest.fixture
def policy() -> CandidatePolicy:
    """One state and action coordinate; the decoder proposes tanh(4 z), Q_r = Q_c = a: the price decides."""
    networks = {
        "decoder": linear(0.0, 4.0),
        "perturbation": linear(0.0, 0.0),
        "critic": linear(0.0, 1.0, members=2),
        "cost_critic": linear(0.0, 1.0, members=2),
    }
    return CandidatePolicy(
        networks, np.zeros(1, np.float32), candidates=10, latent_clip=0.5, perturbation=0.05, pessimism=0.75
    )


def test_the_best_candidate_depends_on_the_price_of_cost(policy: CandidatePolicy) -> None:
    obs, latent = np.ones((5, 1), np.float32), np.random.default_rng(0).normal(size=(5, 10, 1))
    proposals = np.tanh(4 * np.clip(latent, -0.5, 0.5))[..., 0]
    np.testing.assert_allclose(policy.act(obs, latent)[:, 0], proposals.max(1), rtol=1e-6)
    dear = dataclasses.replace(policy, lam=np.full(1, 3, np.float32))  # Q_r − 3 Q_c = −2 a
    np.testing.assert_allclose(dear.act(obs, latent)[:, 0], proposals.min(1), rtol=1e-6)


def test_an_episode_is_decided_by_its_seed(policy: CandidatePolicy) -> None:
    def play(policy: CandidatePolicy, seed: int) -> list[float]:
        step = policy.begin(seed)
        return [float(step(np.ones(1, np.float32), 0.0, np.zeros(1))[0]) for _ in range(5)]

    one = dataclasses.replace(policy, candidates=1)  # the best of ten is often the clip's end, whatever the seed
    assert play(one, 1) == play(one, 1)
    assert play(one, 1) != play(one, 2)
    assert one(np.ones((2, 1)))[0] == one(np.ones((2, 1)))[1]

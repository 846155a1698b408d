"""What the paper's practical algorithm reaches where the optimum is known: figures of docs/agents/pdocrl.md.

These are not what one would wish for, they are what is so: squared Bellman errors drive w to its clip, the w-weighted
cost to several times the real one and λ to its bound B = 2. A change that alters this should change the page, too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from pdocrl.agents.base import make_config
from pdocrl.agents.registry import find_agent
from pdocrl.training.trainer import Run, Trainer
from probes import HORIZON, Probe, bandit, chain
from probes import small_cmdp as make_cmdp

AGENT = find_agent("pdocrl")
small_cmdp = lru_cache(make_cmdp)  # a log of 20,000 steps, drawn one by one
SETTINGS: dict[str, Any] = {
    "hidden": (16, 16),
    "batch_size": 64,
    "horizon": float(HORIZON),
    "gamma": 0.9,
    "reward_scale": 1.0,
    "learning_rate": 1e-3,
    "multiplier_rate": 3e-3,
}


class Reached:
    """Two seeds after some steps: reward as a share of the optimum [2], costs as shares of their limits [2, K].

    Prices and w are means over the last steps.
    """

    def __init__(self, probe: Probe, steps: int = 3000, last: int = 500, **settings: Any) -> None:
        config = make_config(AGENT, **SETTINGS | settings, cost_limit=probe.cost_limit)
        trainer = Trainer(AGENT, probe.dataset, [Run(config, seed) for seed in (0, 1)])
        trainer.advance(steps - last)
        metrics = trainer.advance(last)
        found = [probe.evaluate(policy) for policy in trainer.policies()]
        self.reward = np.array([reward for reward, _ in found]) / probe.reward
        self.cost = np.array([cost for _, cost in found]) / (np.array(probe.cost_limit) / HORIZON)
        self.w = metrics["w"]
        self.price = sum((value for name, value in metrics.items() if name.startswith("lambda")), np.zeros(2))


def test_without_costs_it_finds_the_optimum() -> None:
    """K = 0 is PDORL: w saturates all the same, but nothing reads it."""
    found = Reached(small_cmdp(0))
    assert (found.reward > 0.98).all()
    assert (found.w > 8).all()


@pytest.mark.parametrize(("probe", "low", "high"), [(bandit, 0.3, 0.65), (chain, -0.01, 0.6), (small_cmdp, 0.7, 0.97)])
def test_one_limit_is_kept_with_reward_to_spare(probe: Any, low: float, high: float) -> None:
    """λ = B prices costs above their worth: the policy is the optimum at that price, or worse where tanh saturates."""
    found = Reached(probe(1) if probe is small_cmdp else probe())
    assert (found.price > 1.85).all()
    assert (found.w > 5).all()
    assert (found.cost < 0.95).all()
    assert (found.reward > low).all()
    assert (found.reward < high).all()


def test_two_limits_whose_prices_fit_the_bound_are_kept() -> None:
    """Prices (.58, .04): the policy ends at a corner of the two, at 93 % of the optimum."""
    found = Reached(small_cmdp(2))
    assert found.price == pytest.approx([2.0, 2.0], abs=0.1)
    assert (found.cost < 0.95).all()
    assert found.reward == pytest.approx([0.93, 0.93], abs=0.03)


def test_of_two_limits_whose_prices_exceed_the_bound_one_is_broken() -> None:
    """Prices (1, 1.67) sum to more than B = 2: λ moves to the dearer limit and the other action goes to its end."""
    found = Reached(bandit((0.25, 0.09)))
    assert found.price == pytest.approx([2.0, 2.0], abs=0.1)
    assert found.cost[:, 0] == pytest.approx([4.0, 4.0], abs=0.2), "a = 1 spends four times the limit ¼"
    assert (found.cost[:, 1] < 1.3).all()


def test_the_average_of_the_linear_critic_s_game_comes_near() -> None:
    """L̂ itself as the critic's loss, true starts, averaged parameters: within a tenth of the optimum and the limit.

    The game goes round and round, and w with it: each seed, and each compiler's rounding, is elsewhere on the way.
    """
    found = Reached(
        small_cmdp(1), 6000, last=6000, critic="linear", initial_states="starts", average=True, multiplier_rate=3e-4
    )
    assert found.reward.mean() > 0.9
    assert found.cost.mean() < 1.1
    assert (found.w < 5).all(), "w does not saturate, on average over the training"

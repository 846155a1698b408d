"""Episodes made by hand, for the tests of whatever is made of rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from pdocrl.bench.results import Row

EPISODE = Row(
    suite="test", protocol="custom", task="BallRun", agent="pdocrl", variant="", cost_limit=(10.0,), seed=0, training=0,
    trained_limit=(10.0,), step=5, episode=0,
    reward=600.0, cost=(5.0,), length=100, normalized_reward=0.5, normalized_cost=0.5, failure=None,
    config_digest="c", data_digest="d", data="ballrun.hdf5", recollected=True, train_seconds=1.5, pdocrl="0.1.0",
    jax="0.10.2", numpy="2.4.6",
)  # fmt: skip


@pytest.fixture
def row() -> Row:
    """An episode of `pdocrl` on BallRun at limit 10."""
    return EPISODE


@pytest.fixture
def play() -> Callable[..., list[Row]]:
    """`play({(limit, seed): [(normalised reward, cost), …]}, task="CarRun", …)` → rows, an episode per pair.

    `shared`: the runs of a seed share one training.
    """

    def made(
        runs: dict[tuple[float, int], list[tuple[float, float]]], *, shared: bool = False, **fields: object
    ) -> list[Row]:
        return [
            dataclasses.replace(
                EPISODE, cost_limit=(limit,), seed=seed, training=seed if shared else number, trained_limit=(limit,),
                episode=i, normalized_reward=reward, cost=(cost,), normalized_cost=cost / limit, **fields,
            )
            for number, ((limit, seed), episodes) in enumerate(runs.items())
            for i, (reward, cost) in enumerate(episodes)
        ]  # fmt: skip

    return made

"""Episodes and estimates made by hand, for the tests of whatever is made of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence

import numpy as np
import pytest
from numpy.typing import ArrayLike

from pdocrl.bench.results import Row
from pdocrl.evaluation.evaluate import DataName
from pdocrl.evaluation.normalise import normalised_cost
from pdocrl.evaluation.score import EpisodeScore, RunScore, score_run
from pdocrl.ope.result import VERDICTS, OffPolicy, OpeRun, OpeSettings

EPISODE = Row(
    suite="test",
    protocol="custom",
    task="BallRun",
    agent="pdocrl",
    variant="",
    cost_limit=(10.0,),
    seed=0,
    training=0,
    trained_limit=(10.0,),
    step=5,
    episode=0,
    reward=600.0,
    cost=(5.0,),
    length=100,
    normalized_reward=0.5,
    normalized_cost=0.5,
    failure=None,
    config_digest="c",
    data_digest="d",
    data="ballrun.hdf5",
    recollected=True,
    train_seconds=1.5,
    pdocrl="0.1.0",
    jax="0.10.2",
    numpy="2.4.6",
    commit="unknown",
    packages="optax 0.2.8",
    machine="Linux x86_64, 2 cores",
    played="unknown; pybullet 3.2.7; Linux x86_64, 2 cores",
)


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
                EPISODE,
                cost_limit=(limit,),
                seed=seed,
                training=seed if shared else number,
                trained_limit=(limit,),
                episode=i,
                normalized_reward=reward,
                cost=(cost,),
                normalized_cost=cost / limit,
                **fields,
            )
            for number, ((limit, seed), episodes) in enumerate(runs.items())
            for i, (reward, cost) in enumerate(episodes)
        ]

    return made


def runs_of(
    reward: ArrayLike,
    cost: ArrayLike,
    limit: tuple[float, ...] = (1.0,),
    trainings: Sequence[Hashable] | None = None,
    task: str = "t",
    method: str = "a",
) -> list[RunScore]:
    """A run for each line of normalised rewards [R, E] and costs [R, E, K]; by default each a training of its own."""
    rewards = np.atleast_2d(np.asarray(reward, np.float64))
    costs = np.asarray(cost, np.float64).reshape(*rewards.shape, len(limit))
    names = [(limit, run) for run in range(len(rewards))] if trainings is None else trainings
    return [
        score_run(
            [
                EpisodeScore(
                    seed=i,
                    reward=earned,
                    cost=paid,
                    length=1,
                    normalized_reward=earned,
                    normalized_cost=max(normalised_cost(paid, limit), default=0.0),
                )
                for i, (earned, paid) in enumerate(zip(own.tolist(), spent.tolist(), strict=True))
            ],
            limit,
            task=task,
            agent=method,
            run=run,
            training=hash(name),
            trained_limit=list(limit),
            seed=run,
            settings={},
            failure=None,
        )
        for run, (own, spent, name) in enumerate(zip(rewards, costs, names, strict=True))
    ]


def told_run(agent: str, limit: float, seed: int, reward: float, cost: float, **others: object) -> OpeRun:
    """What `pdocrl ope` might say of a policy, on the scales of the scores; ± 0.1."""
    fields: dict = {
        "agent": agent,
        "cost_limit": [limit],
        "seed": seed,
        "reward": 100 * reward,
        "reward_interval": (100 * reward - 10, 100 * reward + 10),
        "cost": [limit * cost],
        "cost_interval": [(limit * (cost - 0.1), limit * (cost + 0.1))],
        "normalized_reward": reward,
        "normalized_reward_interval": (reward - 0.1, reward + 0.1),
        "normalized_cost": cost,
        "normalized_cost_interval": (cost - 0.1, cost + 0.1),
        "within_limit": None,
        "verdict": VERDICTS[None],
        "trusted": True,
        "warnings": [],
        "outside": 0.0,
        "by_method": {},
    }
    return OpeRun(**fields | others)


def told(task: str, agent: str, runs: list[OpeRun]) -> OffPolicy:
    """The same of a training."""
    return OffPolicy(
        task=task,
        agent=agent,
        method="model",
        level=0.95,
        horizon=100,
        data=DataName(name="d.hdf5", digest="d"),
        step=1,
        versions={},
        settings=OpeSettings(seed=0),
        calibration=None,
        runs=runs,
    )

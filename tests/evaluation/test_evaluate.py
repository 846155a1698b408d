"""What is asked of trained policies, and what scores.json says of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import gymnasium
import msgspec
import numpy as np
import pytest

from pdocrl.data import Task, register
from pdocrl.envs.episode import Episodes
from pdocrl.errors import PdocrlError
from pdocrl.evaluation.ask import ask
from pdocrl.evaluation.evaluate import evaluate, read_scores, score_played
from pdocrl.policies.policy import MLPPolicy
from pdocrl.training.config import TrainingConfig, versions
from pdocrl.training.folder import Trained

LIMITS, SEEDS = (10.0, 20.0), (0, 5)
STILL = MLPPolicy((np.zeros((3, 2), np.float32),), (np.zeros(2, np.float32),))


@dataclasses.dataclass(frozen=True)
class Dialled:
    """A policy whose limit is chosen when it plays."""

    limit: tuple[float, ...] = ()

    def with_limit(self, cost_limit: tuple[float, ...]) -> Dialled:
        return Dialled(cost_limit)


def trained(folder: Path, policy: Any, agent: str = "bc", **settings: Any) -> Trained:
    """Two limits × two seeds. `bc` ignores the limit: the runs of a seed share their training."""
    runs = [{"cost_limit": [limit], "seed": seed} for limit in LIMITS for seed in SEEDS]
    plan = TrainingConfig(
        data="toy.npz",
        data_digest="d",
        task="Toy",
        horizon=9,
        cost_names=["cost"],
        agent=agent,
        settings=settings,
        runs=runs,
        steps=5,
        log_every=1,
        checkpoint_every=5,
        evaluate_every=0,
        evaluate_episodes=5,
        versions=versions(),
    )
    return Trained(plan, 5, [policy] * len(runs), {}, [], folder)


def episodes(costs: list[list[float]]) -> Episodes:
    """[policy][episode]: all earn 1."""
    count = len(costs[0])
    policy = np.repeat(np.arange(len(costs)), count)
    return Episodes(
        policy=policy,
        episode=np.tile(np.arange(count), len(costs)),
        seed=np.tile(np.arange(count), len(costs)),
        reward=np.ones(len(policy)),
        cost=np.concatenate(costs)[:, None],
        length=np.full(len(policy), 9),
        terminated=np.zeros(len(policy), bool),
        cost_names=("cost",),
    )


def test_one_policy_of_each_training_is_asked_for_every_limit(tmp_path: Path) -> None:
    asked = ask(trained(tmp_path, Dialled()), [5, 12.0, (33.0,)])
    assert [(one.run, one.limit) for one in asked] == [(run, (limit,)) for run in (0, 1) for limit in (5.0, 12.0, 33.0)]
    assert [one.policy.limit for one in asked] == [one.limit for one in asked]


def test_policies_are_asked_for_their_own_limits_unless_told_otherwise(tmp_path: Path) -> None:
    assert [one.limit for one in ask(trained(tmp_path, STILL))] == [(10.0,), (10.0,), (20.0,), (20.0,)]


def test_of_policies_that_serve_one_limit_those_trained_for_it_are_asked(tmp_path: Path) -> None:
    assert [(one.run, one.limit) for one in ask(trained(tmp_path, STILL), [20])] == [(2, (20.0,)), (3, (20.0,))]


@pytest.mark.parametrize(
    ("policy", "limit", "complaint"),
    [
        (STILL, 5.0, "a policy of `bc` serves one limit, those here 10 20. Train with the cost limit"),
        (Dialled(), (5.0, 5.0), r"must be 1 number\(s\)"),
        (Dialled(), -1.0, "at least 0"),
    ],
)
def test_what_cannot_be_asked_is_one_line(tmp_path: Path, policy: Any, limit: Any, complaint: str) -> None:
    with pytest.raises(PdocrlError, match=complaint):
        ask(trained(tmp_path, policy), [limit])


def test_scores_hold_lists_the_limit_asked_and_the_training_behind_it(tmp_path: Path) -> None:
    task = register(Task("Toy", horizon=9, env_id="Toy-v0"))
    found = trained(tmp_path, Dialled())
    asked = ask(found, [5.0, 40.0])
    score_played(found, task, episodes([[4.0, 8.0], [4.0, 8.0], [0.0, 2.0], [0.0, 2.0]]), asked)
    scores = read_scores(tmp_path)
    assert scores.runs[0].limits == []
    assert [(run.run, run.training, run.cost_limit, run.trained_limit) for run in scores.runs] == [
        (0, 0, [5.0], [10.0]),
        (0, 0, [40.0], [10.0]),
        (1, 1, [5.0], [10.0]),
        (1, 1, [40.0], [10.0]),
    ]
    assert [run.cost for run in scores.runs] == [[6.0], [6.0], [1.0], [1.0]]
    (summary,) = scores.summary
    assert (summary.trainings, summary.runs, summary.intervals_over) == (2, 4, "trainings")
    assert [own.safe for own in summary.by_limit] == [True, True]  # 3.5 of 5, and of 40
    assert scores.protocol == "custom"


def test_runs_whose_training_depends_on_the_limit_are_trainings_of_their_own(tmp_path: Path) -> None:
    task = register(Task("Toy", horizon=9, env_id="Toy-v0"))
    played = episodes([[1.0, 2.0]] * 4)
    shared = score_played(trained(tmp_path, STILL), task, played)
    own = score_played(trained(tmp_path, STILL, episodes="safe"), task, played)
    assert [run.training for run in shared.runs] == [0, 1, 0, 1]
    assert [run.training for run in own.runs] == [0, 1, 2, 3]


class Endless(gymnasium.Env):  # type: ignore[misc]
    """Pays and costs 1 a step, for ever."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(3, np.float32), 1.0, False, False, {"cost": 1.0}


@pytest.mark.parametrize(("task", "horizon"), [(None, 9), ("Toy", 7)])
def test_an_environment_of_ones_own_is_played_no_longer_than_the_horizon(task: str | None, horizon: int) -> None:
    """The task's horizon, or without one the training's."""
    register(Task("Toy", 7))
    found = dataclasses.replace(trained(Path(), STILL), folder=None)
    found = dataclasses.replace(found, config=msgspec.structs.replace(found.config, task=None))
    limits = ["max(cost)<=0.5", f"P(cost>{horizon})<=0.1", f"CVaR90(cost)<={horizon}"]
    scores = evaluate(found, 1, task=task, workers=0, env=Endless, limits=limits)
    assert [(s.value, s.satisfied, s.verdict) for s in scores.runs[0].limits] == [
        (1.0, False, "over"),
        (0.0, True, "not shown"),
        (float(horizon), True, "not shown"),
    ]
    with pytest.raises(PdocrlError, match="unknown cost column 'cots'"):
        evaluate(found, 1, task=task, workers=0, env=Endless, limits=["P(cots>1)<=0.1"])
    assert {(e.length, e.reward, tuple(e.cost)) for run in scores.runs for e in run.episodes} == {
        (horizon, float(horizon), (float(horizon),))
    }

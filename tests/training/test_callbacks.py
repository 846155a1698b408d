"""Callbacks and classes of agents: called when they said, with means over their interval; they change no bit."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from matplotlib.figure import Figure

from pdocrl.agents.base import AgentConfig
from pdocrl.agents.bc import BC, BCConfig
from pdocrl.agents.registry import as_agent, find_agent
from pdocrl.errors import PdocrlError
from pdocrl.evaluation.evaluate import evaluate
from pdocrl.training.callbacks import Callback, Checkpoint, EarlyStopping, Evaluate, TrainingView
from pdocrl.training.folder import Trained, load_trained
from pdocrl.training.loggers import CSVLogger, History
from pdocrl.training.train import resume, train
from probes import bandit

SETTINGS: dict[str, Any] = {"hidden": [8, 8], "batch_size": 16}


class Noted(Callback):
    """Remembers what it was told."""

    def __init__(self, every: int) -> None:
        self.every, self.seen, self.means = every, [], []

    def __call__(self, view: TrainingView) -> None:
        self.seen.append(view.step)
        self.means.append(view.metrics["actor_loss"].tolist())

    def memory(self) -> Any:
        return self.seen

    def recall(self, memory: Any) -> None:
        self.seen = memory


class Worsening(Callback):
    """Logs a score that rises to step 40 and falls after it."""

    every = 10

    def __call__(self, view: TrainingView) -> None:
        view.log({"score": -abs(view.step - 40)})


class Lane(gymnasium.Env):  # type: ignore[misc]
    """Three steps; reward is the action, cost 1 where it is above 0."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return self.np_random.uniform(-1, 1, 1).astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        cost = {"cost": float(action[0] > 0)}
        return self.np_random.uniform(-1, 1, 1).astype(np.float32), float(action[0]), False, self.time == 3, cost


def learn(**arguments: Any) -> Trained:
    return train(bandit(n=400).dataset, BC, steps=60, log_every=20, **SETTINGS, **arguments)


def states(trained: Trained) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(trained.state)]


def test_callbacks_come_when_they_said_and_change_no_bit() -> None:
    often, rarely, seen = Noted(7), Noted(30), list[int]()
    watched = learn(callbacks=[often, rarely, lambda view: seen.append(view.step)])
    assert often.seen == [*range(7, 60, 7), 60]
    assert rarely.seen == [30, 60]
    assert seen == [20, 40, 60]
    lengths = np.diff([0, *often.seen])
    overall = (np.array(often.means)[:, 0] * lengths).sum() / 60
    assert overall == pytest.approx(np.mean([m[0] for m in rarely.means]), rel=1e-5)
    assert states(watched) == states(learn())


def test_a_resumed_training_goes_on_with_what_callbacks_remembered(tmp_path: Path) -> None:
    whole = learn(callbacks=[Noted(7)])
    folder = tmp_path / "run"
    train(bandit(n=400).dataset, BC, steps=31, checkpoint_every=10, out=folder, callbacks=[Noted(7)], **SETTINGS)
    again = Noted(7)
    resumed = resume(folder, bandit(n=400).dataset, steps=60, callbacks=[again])
    assert again.seen == [7, 14, 21, 28, 31, 35, 42, 49, 56, 60]
    assert states(resumed) == states(whole)
    assert states(load_trained(folder)) == states(whole)


def test_a_score_stops_the_training_and_keeps_its_best_checkpoint(tmp_path: Path) -> None:
    best, stop = Checkpoint(every=10, best="score"), EarlyStopping("score", patience=1, every=10)
    stopped = learn(out=tmp_path / "run", callbacks=[Worsening(), best, stop])
    assert stopped.step == 50
    assert "score has not improved" in stopped.stopped
    kept = load_trained(tmp_path / "run" / "checkpoints" / "best")
    assert kept.step == 40
    score = json.loads((tmp_path / "run" / "checkpoints" / "best" / "score.json").read_text())
    assert score["value"] == 0
    assert "score" in stopped.history.names
    with pytest.raises(PdocrlError, match=r"unknown metric 'scores'\. Did you mean `score`"):
        learn(callbacks=[Worsening(), EarlyStopping("scores", every=10)])


@pytest.mark.parametrize("many", [False, True])
def test_policies_are_played_in_an_environment_of_ones_own(many: bool) -> None:
    def make() -> Any:
        return gymnasium.vector.SyncVectorEnv([Lane] * 2) if many else Lane()

    evaluation = Evaluate(make, every=30, episodes=3)
    history = History()
    trained = learn(callbacks=[evaluation], loggers=[history])
    policy: Any = trained.policies[0]
    (last,) = [line for line in evaluation.results if line["step"] == 60]
    assert [line["step"] for line in evaluation.results] == [30, 60]
    expected = policy(np.zeros((1, 1), np.float32))[0, 0]  # the clone of a bandit acts alike everywhere
    assert last["reward"][0] == pytest.approx(3 * expected, abs=0.2)
    assert last["cost"].tolist() == [[3.0 if expected > 0 else 0.0]]
    np.testing.assert_array_equal(history["evaluation/reward"][-1], last["reward"])


def test_a_policy_alone_is_held_against_the_limit_it_was_trained_for(tmp_path: Path) -> None:
    trained = learn(cost_limit=2, out=tmp_path / "run")
    restored: Any = load_trained(tmp_path / "run").policy()
    assert restored.cost_limit == (2.0,)
    assert "cost limit 2" in repr(restored)
    scores = evaluate(restored, env=Lane, episodes=3)
    assert scores.own_environment
    assert scores.runs[0].cost_limit == [2.0]
    expected = 3.0 if restored(np.zeros((1, 1), np.float32))[0, 0] > 0 else 0.0
    assert scores.runs[0].normalized_cost == expected / 2
    unknown = dataclasses.replace(restored, cost_limit=())
    with pytest.raises(PdocrlError, match="held against cost_limit=…, which it does not tell"):
        evaluate(unknown, env=Lane)
    assert trained.policy(cost_limit=2) is trained.policies[0]


def test_a_built_in_agent_is_compiled_once_in_a_process() -> None:
    assert find_agent("bc") is find_agent("bc") is as_agent(BC) is as_agent(BC())


def test_loggers_in_memory_and_as_a_table_hold_the_same(tmp_path: Path) -> None:
    history, path = History(), tmp_path / "curves.csv"
    trained = learn(seed=[0, 1], loggers=[history, CSVLogger(path)])
    assert history["actor_loss"].shape == (3, 2)
    np.testing.assert_array_equal(history["actor_loss"], trained.history["actor_loss"])
    axes = history.plot("actor_loss", Figure().add_subplot())
    assert [line.get_label() for line in axes.lines] == [
        f"cost_limit {trained.config.runs[0]['cost_limit'][0]}, seed {s}" for s in (0, 1)
    ]
    np.testing.assert_array_equal(axes.lines[1].get_xydata().T, [history.steps, history["actor_loss"][:, 1]])
    rows = path.read_text().splitlines()
    assert len(rows) == 1 + 6
    assert rows[0].startswith("step,run,cost_limit,seed,steps_per_second,actor_loss")


class OwnConfig(BCConfig):
    """A config of one's own."""

    twice: float = 2.0  # the loss is multiplied by this


class Own(BC):
    """A method of one's own, in no package."""

    name = "own_clone"
    Config = OwnConfig

    def ignores_limit(self, config: AgentConfig) -> bool:
        return False


def test_an_agent_class_trains_is_recorded_and_resumes(tmp_path: Path) -> None:
    data = bandit(n=400).dataset
    config = OwnConfig(hidden=(8, 8), batch_size=16)
    trained = train(data, Own, config=config, twice=3, cost_limit=2, steps=4, out=tmp_path / "run")
    record = load_trained(tmp_path / "run").config
    assert (record.agent, record.agent_packaged) == ("own_clone", False)
    assert record.agent_class.endswith(":Own")
    assert record.settings == {"hidden": (8, 8), "batch_size": 16, "twice": 3} or record.settings["twice"] == 3
    assert resume(tmp_path / "run", data, steps=8).step == 8
    assert trained.policy(cost_limit=2) is trained.policies[0]
    with pytest.raises(PdocrlError, match="trains for a cost limit: give cost_limit"):
        train(data, Own, steps=1)
    with pytest.raises(PdocrlError, match=r"setting of own_clone 'twise'\. Did you mean `twice`"):
        train(data, Own, twise=3, cost_limit=2, steps=1)
    with pytest.raises(PdocrlError, match="config is a BCConfig, own_clone takes a OwnConfig"):
        train(data, Own, config=BCConfig(), cost_limit=2, steps=1)

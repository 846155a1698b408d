"""Small worlds with known values, and logs drawn from them."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from pdocrl.data.event_log import EventLog
from pdocrl.ope.estimators.linear import basis
from pdocrl.ope.estimators.problem import Problem

Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class World:
    """A finite MDP: episodes end with probability `stop` after each step."""

    transitions: Floats  # [S, A, S]
    reward: Floats  # [S, A]
    cost: Floats  # [S, A]
    behaviour: Floats  # [S, A]
    target: Floats  # [S, A]
    stop: float = 0.3

    @classmethod
    def random(cls, seed: int, states: int = 4, actions: int = 2) -> World:
        rng = np.random.default_rng(seed)
        policies = rng.dirichlet(np.full(actions, 3.0), (2, states))
        return cls(
            rng.dirichlet(np.ones(states), (states, actions)),
            rng.normal(size=(states, actions)),
            rng.uniform(size=(states, actions)),
            0.8 * policies[0] + 0.2 / actions,
            policies[1],
        )

    def value(self, signal: Floats, policy: Floats) -> float:
        """The expected total of an episode that begins anywhere, by Bellman's equation."""
        moves = (1 - self.stop) * np.einsum("sa,saz->sz", policy, self.transitions)
        return float(np.linalg.solve(np.eye(len(moves)) - moves, (policy * signal).sum(1)).mean())

    def log(self, episodes: int, seed: int, noise: float = 0.1, propensities: bool = True) -> EventLog:
        rng = np.random.default_rng(seed)
        states, actions = self.reward.shape
        rows: dict[str, list[object]] = {k: [] for k in ("episode", "s", "action", "reward", "cost", "p", "new")}
        for episode in range(episodes):
            s = int(rng.integers(states))
            while True:
                a = int(rng.choice(actions, p=self.behaviour[s]))
                rows["episode"].append(episode)
                rows["s"].append(f"s{s}")
                rows["action"].append(f"a{a}")
                rows["reward"].append(self.reward[s, a] + noise * rng.normal())
                rows["cost"].append(float(rng.random() < self.cost[s, a]))
                rows["p"].append(self.behaviour[s, a])
                rows["new"].append(f"a{self.target[s].argmax()}")
                if rng.random() < self.stop:
                    break
                s = int(rng.choice(states, p=self.transitions[s, a]))
        source = {k: np.array(v) for k, v in rows.items()}
        if not propensities:
            del source["p"]
        return EventLog.read(source, keep=["new"], propensity="p" if propensities else None)

    def target_rows(self, log: EventLog) -> Floats:
        """[N, A]"""
        return self.target[log.columns[0].values.astype(int)]

    def problem(self, log: EventLog) -> Problem:
        assert log.propensity is not None
        return Problem(log, self.target_rows(log), log.propensity, False, basis(log, time=False))

"""A small world with a known answer, and one portfolio learned from its log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

STEPS = 6
LIMIT = 1.2


def play(decide: Callable[[Any, Any, Any], Any], episodes: int, seed: int) -> pd.DataFrame:
    """Load x and weather are seen; "go" brings 1 and, where x > 0.5, a cost with probability 0.8; "stay" brings 0.2."""
    rng = np.random.default_rng(seed)
    parts = []
    for t in range(STEPS):
        x, storm = rng.random(episodes), rng.random(episodes) < 0.3
        go = decide(x, storm, rng)
        cost = (go & (x > 0.5) & (rng.random(episodes) < 0.8)).astype(float)
        parts.append(
            pd.DataFrame(
                {
                    "episode": np.arange(episodes),
                    "step": t,
                    "x": np.where(rng.random(episodes) < 0.05, np.nan, x),
                    "weather": np.where(storm, "storm", "calm"),
                    "noise": rng.normal(size=episodes),
                    "action": np.where(go, "go", "stay"),
                    "reward": np.where(go, 1.0, 0.2),
                    "cost": cost,
                    "terminal": t == STEPS - 1,
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def make_log(episodes: int = 280, seed: int = 0) -> pd.DataFrame:
    """Half the episodes are decided by "bold", who goes eight times in ten, half by "shy", who goes four times."""
    bold = np.random.default_rng([seed, 1]).random(episodes) < 0.5
    share = np.where(bold, 0.8, 0.4)
    log = play(lambda x, storm, rng: rng.random(episodes) < share, episodes, seed)
    log["decider"] = np.where(bold, "bold", "shy")[log["episode"]]
    return log.sample(frac=1.0, random_state=seed, ignore_index=True)


def true_values(policy: Any, episodes: int = 500) -> tuple[float, float]:
    """Reward and cost per episode."""
    step = iter(range(STEPS))

    def decide(x: Any, storm: Any, rng: Any) -> Any:
        frame = {"x": x, "weather": np.where(storm, "storm", "calm"), "noise": rng.normal(size=len(x))}
        chances = policy.chances(policy.inputs(frame, next(step)))
        return rng.random(len(x)) < chances[:, policy.actions.index("go")]

    log = play(decide, episodes, 5)
    return float(log["reward"].sum() / episodes), float(log["cost"].sum() / episodes)


@pytest.fixture(scope="session")
def log() -> pd.DataFrame:
    return make_log()


@pytest.fixture(scope="session")
def found(log: pd.DataFrame) -> Any:
    import pdocrl

    pytest.importorskip("sklearn")
    return pdocrl.solve(log, limits=[f"cost<={LIMIT}"], horizon=STEPS)

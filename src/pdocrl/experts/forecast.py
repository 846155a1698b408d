"""How long a collection would take here: a few episodes and two updates, timed."""

from __future__ import annotations

import dataclasses
import math
import re
import time

import numpy as np

from pdocrl.envs.rollout import Episodes, Rollouts
from pdocrl.errors import PdocrlError
from pdocrl.experts import ppo
from pdocrl.experts.collect import assemble, batch_rows, learn, new_expert
from pdocrl.experts.journal import Episode
from pdocrl.experts.problem import ExpertProblem
from pdocrl.experts.settings import Settings

_UNITS = {"": 1, "k": 1_000, "m": 1_000_000}


@dataclasses.dataclass(frozen=True)
class Budget:
    """How much to collect: exactly one of the two."""

    steps: int | None = None
    minutes: float | None = None


@dataclasses.dataclass(frozen=True)
class Forecast:
    """Speeds measured with an untrained expert."""

    simulate_steps_s: float  # environment steps per second of playing
    steps_s: float  # … of the whole loop
    compile_s: float

    def minutes(self, steps: int) -> float:
        return (self.compile_s + steps / self.steps_s) / 60

    def steps(self, minutes: float) -> int:
        """What fits into the minutes; at least one step."""
        return max(1, int((minutes * 60 - self.compile_s) * self.steps_s))


def parse_budget(text: str) -> Budget:
    """`800000`, `800k` and `1.5M` are steps; `20min` and `1.5h` are time."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(k|m|min|h)?", text.strip().lower())
    if match is None or float(match[1]) == 0:
        raise PdocrlError(f"--budget {text!r}: write steps (800000, 800k, 1.5M) or time (20min, 1.5h).")
    amount, unit = float(match[1]), match[2] or ""
    if unit in _UNITS:
        return Budget(steps=math.ceil(amount * _UNITS[unit]))
    return Budget(minutes=amount * (60 if unit == "h" else 1))


def forecast(problem: ExpertProblem, settings: Settings, workers: int | None = None, seconds: float = 2.0) -> Forecast:
    """Play for about `seconds` and learn from it, for the clock only."""
    state = new_expert(problem, settings, 0)
    actor = ppo.actor_of(state)
    played: list[Episodes] = []
    elapsed = 0.0
    with Rollouts(problem.make, workers, problem.info_keys) as pool:
        many = max(1, pool.workers)
        pool.run(actor, many, seed=0)  # every worker makes its environment
        while elapsed < seconds:
            begun = time.perf_counter()
            played.append(pool.run(actor, 4 * many, seed=len(played)))
            elapsed += time.perf_counter() - begun
    steps = sum(int(episodes.length.sum()) for episodes in played)
    learn_s, compile_s = _learning_time(problem, settings, state)
    rows = batch_rows(problem, settings.config)
    simulate_steps_s = steps / elapsed
    return Forecast(simulate_steps_s, rows / (rows / simulate_steps_s + learn_s), compile_s)


def _learning_time(problem: ExpertProblem, settings: Settings, state: ppo.ExpertState) -> tuple[float, float]:
    """Seconds of one update, and of compiling it, on made-up transitions: arithmetic takes the same time on any."""
    rows, rng = batch_rows(problem, settings.config), np.random.default_rng(0)
    made_up = Episode(
        (0, 0, 0),
        0,
        False,
        rng.normal(size=(rows + 1, problem.obs_dim)).astype(np.float32),
        np.zeros((rows, problem.action_dim), np.float32),
        rng.normal(size=rows).astype(np.float32),
        rng.integers(2, size=(rows, len(problem.cost_names))).astype(np.float32),
    )
    times = []
    for _ in range(2):
        begun = time.perf_counter()
        state, _ = learn(settings, state, assemble([made_up], rows), settings.cost_max, settings.cost_max, 0.0)
        times.append(time.perf_counter() - begun)
    return times[1], times[0] - times[1]

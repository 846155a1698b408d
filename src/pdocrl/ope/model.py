"""Estimates by a fitted model: learn one step of the world from the log, then play episodes of H steps in it.

    s′ = s + Δ(s, a) + ε,   r(s, a),   c(s, a) or c(s′),   P(end | s, a)

Each is a regression on random features; ε is a residual of that regression, drawn anew at every step. The fit knows
nothing of the policy, so all policies share it; and an episode's sum is simply added up, with nothing discounted and no
value to bootstrap from. Every redrawn log gives a model with features of its own: where the data says little the models
disagree, and the interval is wide.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pdocrl.ope import regression
from pdocrl.ope.features import Lengths, RandomFeatures
from pdocrl.ope.log import Array, Log
from pdocrl.ope.result import Estimate, Floats

Act = Callable[[Array], Array]  # obs [B, S] → action [B, A]

SIZE = 300  # random features
ROWS = 20_000  # most rows of a fit
RIDGE = 1e-5
SMOOTH: Lengths = (2.0, 8.0)  # length scales of the world's step
BORDER: Lengths = (0.4, 2.0)  # of a two-valued cost's border
BORDER_RIDGE = 1e-6
STARTS = 16  # episodes played in each model
RESIDUALS = 1_000  # of each model, to draw the noise from
PILOT = 10_000  # rows to choose a cost's inputs by, and as many to test the choice


@dataclasses.dataclass(frozen=True)
class TwoValued:
    """A cost that is one of two numbers, at a sharp border that least squares would smear: logistic regression."""

    column: int  # of the signals
    values: tuple[float, float]
    reached: bool  # whether it is read off the state reached, s′, rather than off (s, a)
    features: RandomFeatures
    theta: NDArray[np.float64]  # [d] from the pilot; where each redrawn log's fit starts

    def inputs(self, log: Log) -> Array:
        return log.next_obs if self.reached else log.pairs

    def fit(self, log: Log) -> NDArray[np.float32]:
        target = (log.signal[:, self.column] == self.values[1]).astype(np.float32)
        phi = self.features(self.inputs(log))
        return regression.logistic(phi, target, BORDER_RIDGE, self.theta, steps=3).astype(np.float32)


def find_two_valued(log: Log, rng: np.random.Generator) -> list[TwoValued]:
    """The costs with two values, each read off s′ or off (s, a): whichever predicts rows held out better."""
    pilot = log.thin(2 * PILOT, rng)
    rows = rng.permutation(len(pilot))
    here, held_out = pilot.take(rows[: len(rows) // 2]), pilot.take(rows[len(rows) // 2 :])
    found = []
    for column in range(1, log.signal.shape[1]):
        values = np.unique(log.signal[:, column])
        if len(values) != 2:
            continue
        tried = []
        for reached in (True, False):
            head = TwoValued(column, (float(values[0]), float(values[1])), reached, *_blank(here, reached, rng))
            target = (here.signal[:, column] == values[1]).astype(np.float32)
            theta = regression.logistic(head.features(head.inputs(here)), target, BORDER_RIDGE)
            guess = head.features(head.inputs(held_out)) @ theta.astype(np.float32) > 0
            wrong = float((guess != (held_out.signal[:, column] == values[1])).mean())
            tried.append((wrong, dataclasses.replace(head, theta=theta)))
        found.append(min(tried, key=lambda pair: pair[0])[1])
    return found


def _blank(log: Log, reached: bool, rng: np.random.Generator) -> tuple[RandomFeatures, NDArray[np.float64]]:
    inputs = log.next_obs if reached else log.pairs
    return RandomFeatures.draw(inputs, SIZE, BORDER, rng, squares=True), np.zeros(0)


@dataclasses.dataclass(frozen=True, eq=False)
class Models:
    """M models of one step, stacked so that all are played at once, and the episode starts each of them has."""

    features: RandomFeatures  # with frequencies [M, S + A, d] and phases [M, 1, d]
    theta: NDArray[np.float32]  # [M, d, S + 1 + K + 1] change of state, signals, end
    heads: tuple[tuple[TwoValued, NDArray[np.float32]], ...]  # with weights [M, d, 1]
    lowest: Array  # [S + 1 + K] of states and signals in the data: nothing beyond it is predicted
    highest: Array  # [S + 1 + K]
    start: Array  # [M, STARTS, S]
    noise: Array  # [M, RESIDUALS, S]

    @staticmethod
    def fit(log: Log, count: int, rng: np.random.Generator, advance: Callable[[], None] = lambda: None) -> Models:
        """One model per redrawn log."""
        heads = find_two_valued(log, rng)
        parts: list[tuple[RandomFeatures, NDArray[np.float32]]] = []
        thetas: list[list[NDArray[np.float32]]] = [[] for _ in heads]
        starts, noise = [], []
        for _ in range(count):
            drawn = log.redraw(ROWS, rng)
            features = RandomFeatures.draw(log.pairs, SIZE, SMOOTH, rng)
            phi = features(drawn.pairs)
            ends = (1 - drawn.alive)[:, None]
            target = np.concatenate([drawn.next_obs - drawn.obs, drawn.signal, ends], axis=1)
            theta = regression.solve(regression.gram(phi, RIDGE), phi, target)
            parts.append((features, theta.astype(np.float32)))
            some = rng.integers(len(drawn), size=RESIDUALS)
            states = log.obs.shape[1]
            noise.append(target[some, :states] - phi[some] @ parts[-1][1][:, :states])
            for head, own in zip(heads, thetas, strict=True):
                own.append(head.fit(drawn))
            starts.append(drawn.start[rng.integers(len(drawn.start), size=STARTS)])
            advance()
        first = parts[0][0]
        stacked = dataclasses.replace(
            first,
            frequency=np.stack([f.frequency for f, _ in parts]),
            phase=np.stack([f.phase[None] for f, _ in parts]),
        )
        return Models(
            stacked,
            np.stack([theta for _, theta in parts]),
            tuple((head, np.stack(own)[:, :, None]) for head, own in zip(heads, thetas, strict=True)),
            np.concatenate([log.next_obs.min(axis=0), log.signal.min(axis=0)]),
            np.concatenate([log.next_obs.max(axis=0), log.signal.max(axis=0)]),
            np.stack(starts),
            np.stack(noise),
        )

    def play(self, act: Act, horizon: int, rng: np.random.Generator) -> tuple[Floats, Array]:
        """Sums of an episode in each model [M, 1 + K], and the pairs visited [horizon, M, STARTS, S + A]."""
        models, starts, states = self.start.shape
        signals = len(self.lowest) - states
        state, alive = self.start, np.ones((models, starts, 1), np.float32)
        total, visited = np.zeros((models, starts, signals)), []
        for _ in range(horizon):
            action = act(state.reshape(-1, states)).reshape(models, starts, -1)
            pair = np.concatenate([state, action], axis=-1)
            visited.append(pair)
            predicted = self.features(pair) @ self.theta
            drawn = rng.integers(self.noise.shape[1], size=(models, starts))
            step = predicted[..., :states] + self.noise[np.arange(models)[:, None], drawn]
            moved = np.concatenate([state + step, predicted[..., states:-1]], axis=-1)
            moved = np.clip(moved, self.lowest, self.highest)
            state, signal = moved[..., :states], moved[..., states:]
            for head, theta in self.heads:
                logit = head.features(state if head.reached else pair) @ theta
                chance = 1 / (1 + np.exp(-np.clip(logit[..., 0], -regression.STEEPEST, regression.STEEPEST)))
                signal[..., head.column] = head.values[0] + (head.values[1] - head.values[0]) * chance
            total += alive * signal
            alive = alive * (1 - np.clip(predicted[..., -1:], 0, 1))
        return total.mean(axis=1), np.stack(visited)


def estimate(models: Models, act: Act, horizon: int, rng: np.random.Generator) -> tuple[Estimate, Array]:
    """The middle of what the models say, and the pairs [B, S + A] the policy visits in them."""
    sums, visited = models.play(act, horizon, rng)
    return Estimate(np.median(sums, axis=0), sums), visited.reshape(-1, visited.shape[-1])

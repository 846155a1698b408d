"""Estimates by fitted models: learn one step of the world from the log, then play episodes of H steps in it.

    (s⁺, a⁺) a recorded pair near (s, a), y⁺ what followed it:  change of state, reward, costs, end
    y = y⁺ + f(s, a) − f(s⁺, a⁺),   f a ridge regression of y on random features of (s, a)

So a step is a recorded step, moved by what the fit says is different here: where data is dense the fit hardly matters
and the world's own noise and kinks are kept; where it is thin the fit extrapolates, which `support` then says. The fit
knows nothing of the policy, so all policies share it. An episode's sum is simply added up, with nothing discounted and
no value to bootstrap from. Every redrawn log is a model with features, starts and neighbours of its own: where the data
says little the models disagree, and the interval is wide.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import trim_mean

from pdocrl.data.dataset import Rows
from pdocrl.ope import regression
from pdocrl.ope.features import Lengths, RandomFeatures
from pdocrl.ope.log import Array, Log
from pdocrl.ope.result import Estimate, Floats
from pdocrl.ope.support import Recorded

Act = Callable[[Array], Array]  # obs [B, S] → action [B, A]

SIZE = 300  # random features
ROWS = 20_000  # most rows of a fit
RIDGE = 1e-5
SMOOTH: Lengths = (2.0, 8.0)  # length scales of the world's step
BORDER: Lengths = (0.4, 2.0)  # of a two-valued cost's border
BORDER_RIDGE = 1e-6
STARTS = 4  # episodes played in each model
NEIGHBOURS = 2  # nearest recorded pairs, of which one is drawn that is in the model's redrawn log
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

    recorded: Recorded
    drawn: NDArray[np.bool_]  # [M, E] whether an episode is in the model's redrawn log
    features: RandomFeatures  # with frequencies [M, S + A, d] and phases [M, 1, d]
    theta: NDArray[np.float32]  # [M, d, S + 1 + K + 1] of the change of state, the signals, the end
    heads: tuple[tuple[TwoValued, NDArray[np.float32]], ...]  # with weights [M, d, 1]
    start: Array  # [M, starts, S]
    lowest: Array  # [S + 1 + K + 1] of next states, signals and ends in the data: nothing beyond is predicted
    highest: Array

    @staticmethod
    def fit(
        log: Log,
        count: int,
        rng: np.random.Generator,
        starts: int = STARTS,
        advance: Callable[[], None] = lambda: None,
    ) -> Models:
        """One model per redrawn log, `count` of them, each with that many episodes to play."""
        heads = find_two_valued(log, rng)
        features, theta, start, drawn = [], [], [], []
        borders: list[list[NDArray[np.float32]]] = [[] for _ in heads]
        for _ in range(count):
            episodes = log.draw_episodes(rng)
            own = log.redraw(episodes, ROWS, rng)
            features.append(RandomFeatures.draw(own.pairs, SIZE, SMOOTH, rng))
            phi = features[-1](own.pairs)
            theta.append(regression.solve(regression.gram(phi, RIDGE), phi, own.outcome).astype(np.float32))
            for head, border in zip(heads, borders, strict=True):
                border.append(head.fit(own))
            start.append(own.start[rng.integers(len(own.start), size=starts)])
            drawn.append(np.isin(np.arange(len(log.start)), episodes))
            advance()
        reached = np.concatenate([log.next_obs, log.signal, 1 - log.not_done[:, None]], axis=1)
        return Models(
            Recorded.of(log, rng),
            np.stack(drawn),
            RandomFeatures.stack(features),
            np.stack(theta),
            tuple((head, np.stack(border)[:, :, None]) for head, border in zip(heads, borders, strict=True)),
            np.stack(start),
            reached.min(axis=0),
            reached.max(axis=0),
        )

    def play(self, acts: Sequence[Act], horizon: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Sums of the episodes of P policies [P, M, starts, 1 + K], and the share of steps outside the data [P].

        Policies are played side by side, from the same starts and with the same luck: company changes nothing.
        """
        models, starts, size = self.start.shape
        state = np.tile(self.start, (1, len(acts), 1))  # [M, P · starts, S]
        not_done = np.ones((*state.shape[:2], 1))
        total = np.zeros((*state.shape[:2], self.recorded.log.signal.shape[1]))
        outside = np.zeros(len(acts))
        for _ in range(horizon):
            chosen = [
                act(own.reshape(-1, size)).reshape(models, starts, -1)
                for act, own in zip(acts, np.split(state, len(acts), axis=1), strict=True)
            ]
            pair = np.concatenate([state, np.concatenate(chosen, axis=1)], axis=-1)
            luck = rng.random((models, starts, min(NEIGHBOURS, len(self.recorded.log))))
            row, distance = self._near(pair, np.tile(luck, (1, len(acts), 1)))
            far = (distance > self.recorded.radius).reshape(models, len(acts), starts)
            outside += far.mean(axis=(0, 2)) / horizon
            state, signal, end = self._step(state, pair, row)
            total += not_done * signal
            not_done = not_done * (1 - end)
        return total.reshape(models, len(acts), starts, -1).swapaxes(0, 1), outside

    def _near(self, pair: Array, luck: Floats) -> tuple[Rows, Floats]:
        """Of each pair [M, B, S + A] a row near it that its model has drawn, and the distance of the nearest.

        Which of several is luck [M, B, NEIGHBOURS]: in a world with noise, episodes from one start must differ.
        """
        distance, row = self.recorded.nearest(pair, NEIGHBOURS)
        known = self.drawn[np.arange(len(pair))[:, None, None], self.recorded.log.episode[row]]
        first = (luck + known).argmax(axis=-1)[..., None]  # any one, where the model has drawn none of them
        return np.take_along_axis(row, first, -1)[..., 0], distance[..., 0]

    def _step(self, state: Array, pair: Array, row: Rows) -> tuple[Array, Array, Array]:
        """Next state, signals, and the chance [M, B, 1] that the episode ends."""
        log, size = self.recorded.log, state.shape[-1]
        differs = (self.features(pair) - self.features(log.pairs[row])) @ self.theta
        y = log.outcome[row] + differs
        y[..., :size] += state
        y = np.clip(y, self.lowest, self.highest)
        moved, signal, end = y[..., :size], y[..., size:-1], y[..., -1:]
        for head, theta in self.heads:
            logit = (head.features(moved if head.reached else pair) @ theta)[..., 0]
            chance = 1 / (1 + np.exp(-np.clip(logit, -regression.STEEPEST, regression.STEEPEST)))
            signal[..., head.column] = head.values[0] + (head.values[1] - head.values[0]) * chance
        return moved, signal, end


def estimates(
    models: Models, acts: Sequence[Act], horizon: int, rng: np.random.Generator
) -> list[tuple[Estimate, float]]:
    """Of each policy the middle of what the models say, and the share of its steps outside the data."""
    sums, outside = models.play(acts, horizon, rng)
    return [
        (Estimate(middle(own.mean(axis=1)), without_luck(own)), float(share))
        for own, share in zip(sums, outside, strict=True)
    ]


def middle(said: Floats) -> Floats:
    """Mean of the middle half of what M models say [M, 1 + K]; one that runs away counts in the interval alone."""
    return np.asarray(trim_mean(said, 0.25, axis=0))


def without_luck(sums: Floats) -> Floats:
    """What each model says [M, 1 + K], drawn together by the luck that playing few episodes adds.

    A model's mean of n episodes varies by V + v/n, V from log to log and v from episode to episode; the estimate, the
    mean of M such means from one log, by V + v/(Mn). So deviations shrink by the root of the ratio.
    """
    count, episodes = sums.shape[:2]
    said = sums.mean(axis=1)
    seen = said.var(axis=0, ddof=1)
    luck = sums.var(axis=1, ddof=1).mean(axis=0) / episodes if episodes > 1 else np.zeros_like(seen)
    kept = np.maximum(seen - luck, 0) + np.minimum(luck, seen) / count
    centre = middle(said)
    return np.asarray(centre + (said - centre) * np.sqrt(np.divide(kept, seen, out=np.ones_like(seen), where=seen > 0)))

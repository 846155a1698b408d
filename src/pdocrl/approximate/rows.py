"""A log as learners see it: a matrix of inputs, actions, signals in one sense, and which row follows which.

    x = [encoded columns, step],   signals = [reward, g_1, …, g_K],   g_k must have an expected total ≤ τ_k

A limit "served>=0.95" is held as g = −served, τ = −0.95. Totals are Σ_t x_t of an episode of at most `horizon` steps,
with time an input since what is left to come depends on it; or Σ_t γ^t x_t, without time.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from pdocrl.data.encoding import Encoding
from pdocrl.data.event_log import EventLog
from pdocrl.data.named_columns import Flags, Floats, Ints
from pdocrl.errors import DataError
from pdocrl.limits import Limit


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """N rows of E episodes, A actions, K limits."""

    log: EventLog
    x: Floats  # [N, D]
    signals: Floats  # [1 + K, N]
    limits: Floats  # [K] on totals
    names: tuple[str, ...]  # [K] of the limited columns
    sense: Floats  # [1 + K] −1 where a column is limited from below, and its signal therefore has the other sign
    discount: float
    horizon: int

    @classmethod
    def of(
        cls, log: EventLog, encoding: Encoding, limits: Sequence[Limit], discount: float, horizon: int | None
    ) -> Rows:
        longest = int(log.step.max()) + 1
        if horizon is not None and longest > horizon:
            raise DataError(f"{log.name}: an episode has {longest} steps, the horizon is {horizon}; give a larger one.")
        steps = longest if horizon is None else horizon
        if discount == 1:
            # An episode as long as there can be is complete, whatever the log says of its last row.
            log = dataclasses.replace(log, terminal=log.terminal | (log.step == steps - 1))
        x = encoding(log.columns, log.name)
        x = np.c_[x, log.step] if discount == 1 else x
        signals = np.stack([log.reward, *(-one.sign * log.costs[one.name] for one in limits)])
        values = np.array([-one.sign * one.value for one in limits], np.float64)
        sense = np.array([1.0, *(-one.sign for one in limits)])
        return cls(log, x, signals, values, tuple(one.name for one in limits), sense, discount, steps)

    def __len__(self) -> int:
        return len(self.x)

    @property
    def actions(self) -> int:
        return len(self.log.actions)

    @property
    def timed(self) -> bool:
        """Whether the step is the last input."""
        return self.discount == 1

    @functools.cached_property
    def starts(self) -> Ints:
        """[E] the first row of each episode."""
        return np.flatnonzero(self.log.step == 0)

    @functools.cached_property
    def following(self) -> Ints:
        """[N] the next row of the episode; −1 after a terminal one, −2 where the record was cut."""
        last = np.r_[self.log.step[1:] == 0, True]
        return np.where(last, np.where(self.log.terminal, -1, -2), np.arange(1, len(self) + 1))

    @functools.cached_property
    def complete(self) -> Flags:
        """[E] whether an episode was recorded to its end."""
        return ~self.log.cut_short

    @functools.cached_property
    def totals(self) -> Floats:
        """[1 + K, E] of what was recorded."""
        return np.stack([self.log.totals(x, self.discount) for x in self.signals])

    @functools.cached_property
    def to_go(self) -> Floats:
        """[1 + K, N] Σ_{u≥t} γ^{u−t} x_u of the record."""
        found = self.signals.copy()
        going_on = np.r_[self.log.step[1:] != 0, False]
        for i in range(len(self) - 2, -1, -1):
            if going_on[i]:
                found[:, i] += self.discount * found[:, i + 1]
        return found

    @functools.cached_property
    def possible(self) -> tuple[Floats, Floats]:
        """[1 + K, N] the least and largest total that steps as logged can still add up to."""
        left = np.maximum(self.horizon - self.log.step, 1).astype(np.float64)
        weight = left if self.discount == 1 else (1 - self.discount**left) / (1 - self.discount)
        low, high = np.minimum(self.signals.min(1), 0.0), np.maximum(self.signals.max(1), 0.0)
        return low[:, None] * weight, high[:, None] * weight

    def take(self, rows: Ints | Flags) -> Rows:
        """Some rows, in order; whole episodes."""
        return dataclasses.replace(self, log=self.log.take(rows), x=self.x[rows], signals=self.signals[:, rows])

    def episodes(self, chosen: Flags) -> Rows:
        """The rows of the episodes chosen [E]."""
        return self.take(chosen[self.log.episode])

    def sampled(self, most: int, seed: int) -> Ints:
        """Rows of whole episodes drawn at random, about `most` at most."""
        if len(self) <= most:
            return np.arange(len(self))
        order = np.random.default_rng(seed).permutation(len(self.starts))
        lengths = np.bincount(self.log.episode)[order]
        chosen = np.zeros(len(order), bool)
        chosen[order[: max(2, int(np.searchsorted(np.cumsum(lengths), most, side="right")))]] = True
        return np.flatnonzero(chosen[self.log.episode])

    def sample(self, most: int, seed: int) -> Rows:
        """Whole episodes of about `most` rows at most, drawn at random."""
        return self if len(self) <= most else self.take(self.sampled(most, seed))

"""A log as its sufficient statistics: the distinct transitions, how often each occurred, its reward and costs.

    L̂(w, π; Q, λ) = (1−γ) d₀·Q_π + Σ_{s,a} w μ̂_D (r_λ + γ P̂ Q_π − Q) − λ·τ

needs of n samples only μ̂_D = n(s,a)/n, P̂ = n(s,a,s′)/n(s,a) and the mean reward and costs, so everything after this
file costs the same for a thousand rows and for a billion. Sums are kept in integers (see `exact_sums`): any order of
the rows, any split over files, threads or machines gives the same bits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from pdocrl.errors import DataError, PdocrlError
from pdocrl.tabular.io.cells import Cells
from pdocrl.tabular.io.episodes import Groups, Trajectories, group_of
from pdocrl.tabular.io.rows import (
    MARK,
    check_length,
    encode,
    exact_sums,
    exponents,
    flags_of,
    labels_of,
    moments,
    named_signals,
    order,
    sorted_labels,
    split_label,
)
from pdocrl.tabular.io.rows import Floats as Floats
from pdocrl.tabular.io.rows import Ints as Ints
from pdocrl.tabular.io.rows import Label as Label

if TYPE_CHECKING:
    from pdocrl.tabular.cmdp import CMDP

LARGEST_RESTART = 20_000_000  # pairs of an end and a start


@dataclasses.dataclass(frozen=True, eq=False)
class Counts:
    """M distinct transitions of a log with S states, A actions and K costs; sorted by pair, then next state."""

    pair: Ints  # [M] s·A + a
    to: Ints  # [M] the next state, or S where the transition was terminal
    count: Ints  # [M] how often it occurred, ≥ 1
    mean: Floats  # [1+K, M] mean reward, then mean costs, of its occurrences
    variance: Floats  # [1+K, M] their variance among its occurrences
    starts: Floats  # [S] episodes begun in each state; weights that sum to 1 where d₀ is known beforehand
    states: tuple[Label, ...]
    actions: tuple[Label, ...]
    cost_names: tuple[str, ...]
    groups: Groups | None = None  # the same transitions by groups of episodes, where the log names episodes
    trajectories: Trajectories | None = None  # a sample of episodes in their order, where the log names episodes
    columns: Mapping[str, str] | None = None  # what a log's file calls the roles, such as {"state": "room"}
    cells: Cells | None = None  # how states were made of other columns, where they were
    horizon: int | None = None  # steps of an episode, where states are told apart by step: "calm 10 @ 3"
    restarts: bool = False  # a new episode begins where one ends, so that averages are per step taken (`going_on`)

    def __post_init__(self) -> None:
        if not len(self.count):
            raise DataError("the log is empty: no transitions.")
        if self.starts.shape != (self.n_states,):
            raise DataError(f"the start distribution has shape {self.starts.shape}, expected ({self.n_states},).")
        for array in (self.pair, self.to, self.count, self.mean, self.variance, self.starts):
            array.setflags(write=False)

    @property
    def n_states(self) -> int:
        return len(self.states)

    @property
    def n_actions(self) -> int:
        return len(self.actions)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.states), len(self.actions)

    @cached_property
    def size(self) -> int:
        """The number of rows of the log."""
        return int(self.count.sum())

    @cached_property
    def n(self) -> Ints:
        """[S, A] how often each pair was tried."""
        return self._per_pair(self.count).reshape(self.shape).astype(np.int64)

    @cached_property
    def next(self) -> csr_array:
        """[S·A, S] transition counts; a row sums to less than n where some of its transitions were terminal."""
        return self._matrix(self.count)

    @cached_property
    def r(self) -> Floats:
        """[S, A] mean reward, 0 where the log has nothing."""
        return np.asarray(self._signals[0])

    @cached_property
    def costs(self) -> Floats:
        """[K, S, A] mean costs, 0 where the log has nothing."""
        return self._signals[1:]

    @cached_property
    def mu(self) -> Floats:
        """[S, A] μ̂_D = n(s,a)/n."""
        return np.asarray(self.n / self.size)

    @cached_property
    def P(self) -> csr_array:
        """[S·A, S] P̂(s′|s,a) = n(s,a,s′)/n(s,a); rows of pairs never tried are empty."""
        return self.chances(self.count / self.n.ravel()[self.pair])

    def chances(self, chance: Floats) -> csr_array:
        """[S·A, S] for the chance [M] of each transition within its pair; ends lead to a start where those follow."""
        P = self._matrix(chance)
        if not self.restarts:
            return P
        ending = self._per_pair(chance * (self.to == self.n_states))
        return csr_array(P + csr_array(ending[:, None]) @ csr_array(self.d0[None]))

    @cached_property
    def ending(self) -> Floats:
        """[S·A] the share of a pair's tries that ended the episode."""
        return np.asarray(self._per_pair(self.count * (self.to == self.n_states)) / np.maximum(self.n.ravel(), 1))

    def ahead(self, V: Floats) -> Floats:
        """[..., M] V [..., S] of the state each transition leads to; after an end 0, or that of a start."""
        after = V @ self.d0 if self.restarts else np.zeros(V.shape[:-1])
        return np.asarray(np.concatenate([V, after[..., None]], axis=-1)[..., self.to])

    def going_on(self) -> Counts:
        """The same log as a process without ends: where an episode ends the next one begins, at a start of the log.

        Then (1−γ)J = E Σγᵗx / E Σγᵗ over an episode: the average per step taken.
        """
        if self.horizon is not None:
            raise DataError("limits per step are for logs without a horizon; with one they are per episode.")
        size = int(np.count_nonzero(self.ending)) * int(np.count_nonzero(self.starts))
        if size > LARGEST_RESTART:
            raise DataError(
                f"limits per step would join {size:,} ends and starts, too many to hold; name one start (start=…, "
                "--start)."
            )
        return dataclasses.replace(self, restarts=True)

    @cached_property
    def d0(self) -> Floats:
        """[S] the distribution of start states; a part of a log may have none, but then it can only be merged."""
        if not self.starts.sum() > 0:
            raise DataError("the log has no start state: mark one with `initial`, `episode` or a start distribution.")
        return np.asarray(self.starts / self.starts.sum())

    @cached_property
    def steps(self) -> Ints:
        """[S] the step of each state, where states are told apart by step."""
        return np.array([split_label(label)[1] for label in self.states], np.int64)

    def stationary(self, gamma: float | None) -> tuple[Counts, float]:
        """Counts and a discount δ whose (1−δ)J is what limits are on; without a horizon themselves and γ.

        A discounted average is not an episode's total when costs come at certain times: a cost of 1 on the last of 30
        steps has (1−γ)J = 0.013 at γ = 0.97. With a horizon H every state knows its step, "calm 10 @ 3", and

            r′(s @ t, a) = γᵗ δ⁻ᵗ r / (1−δ),   c′(s @ t, a) = δ⁻ᵗ c / (1−δ),   δ = 1 − 1/(H+1)

        make (1−δ)J′ the discounted return of an episode (γ is 1 unless given) and the undiscounted total of each cost:
        all that solves discounted problems works on episodes as it is. Weights stay below e = 2.72 times 1/(1−δ).
        """
        if self.horizon is None:
            if gamma is None:
                raise PdocrlError("gamma, the discount, must be given.")
            return self, gamma
        gamma = 1.0 if gamma is None else float(gamma)
        if not 0 < gamma <= 1:
            raise DataError(f"gamma is {gamma}; for episodes it must be above 0 and at most 1.")
        delta = 1 - 1 / (self.horizon + 1)
        each = np.repeat(delta ** -self.steps[None] / (1 - delta), len(self.mean), axis=0)  # [1+K, S]
        each[0] *= gamma**self.steps
        weight, groups, paths = each[:, self.pair // self.n_actions], self.groups, self.trajectories
        if groups is not None:
            groups = dataclasses.replace(groups, mean=groups.mean * weight[:, groups.cell])
        if paths is not None:
            paths = dataclasses.replace(paths, signals=paths.signals * each[:, paths.pair // self.n_actions])
        signals = {"mean": self.mean * weight, "variance": self.variance * weight**2}
        return dataclasses.replace(self, **signals, groups=groups, trajectories=paths, horizon=None), delta

    @cached_property
    def _signals(self) -> Floats:
        seen = np.maximum(self.n.ravel(), 1)
        sums = [self._per_pair(self.count * row) for row in self.mean]
        return np.asarray([(row / seen).reshape(self.shape) for row in sums])

    def only(self, keep: NDArray[np.bool_]) -> Counts:
        """The counts of the pairs kept [S, A], as if the others had never been tried; starts stay."""
        rows = keep.ravel()[self.pair]
        if rows.all():
            return self
        changes = {name: getattr(self, name)[..., rows] for name in ("pair", "to", "count", "mean", "variance")}
        groups = None if self.groups is None else self.groups.subset(np.flatnonzero(rows))
        return dataclasses.replace(self, **changes, groups=groups)

    @cached_property
    def dead_ends(self) -> Ints:
        """States that are entered and never acted in: ends, or where the log was cut. What follows is unknown."""
        return np.setdiff1d(self.to[self.to < self.n_states], self.pair // self.n_actions)

    def ending_in(self, states: Ints) -> Counts:
        """The same log with episodes ending as soon as one of these states is entered."""
        ends = np.zeros(self.n_states + 1, bool)
        ends[states] = True
        merged = self._merged(np.where(ends[self.to], self.n_states, self.to))
        if merged.trajectories is None:
            return merged
        return dataclasses.replace(merged, trajectories=merged.trajectories.ending_in(states, self.n_states))

    def _merged(self, to: Ints) -> Counts:
        """With other next states [M]; transitions that have become the same are added up."""
        key, cell = np.unique(self.pair * (self.n_states + 1) + to, return_inverse=True)
        count = np.bincount(cell, weights=self.count)
        mean = np.array([np.bincount(cell, weights=self.count * row) / count for row in self.mean])
        squares = self.variance + self.mean**2
        square = np.array([np.bincount(cell, weights=self.count * row) / count for row in squares])
        pair, to = np.divmod(key, self.n_states + 1)
        variance = np.maximum(square - mean**2, 0)
        variance[variance <= 1e-12 * square] = 0
        changes = {"pair": pair, "to": to, "count": count.astype(np.int64), "mean": mean, "variance": variance}
        groups = None if self.groups is None else self.groups.merged(cell.astype(np.int64), len(key))
        return dataclasses.replace(self, **changes, groups=groups)

    def _matrix(self, data: NDArray[Any]) -> csr_array:
        going_on = self.to < self.n_states
        rows = np.bincount(self.pair[going_on], minlength=self.n.size)
        start = np.concatenate([[0], np.cumsum(rows)])
        return csr_array((data[going_on], self.to[going_on], start), shape=(self.n.size, self.n_states))

    def _per_pair(self, weights: NDArray[Any]) -> Floats:
        sums = np.bincount(self.pair, weights=weights, minlength=self.n_states * self.n_actions)
        return np.asarray(sums, np.float64)

    @classmethod
    def from_arrays(
        cls,
        state: ArrayLike,
        action: ArrayLike,
        next_state: ArrayLike,
        reward: ArrayLike,
        costs: ArrayLike | Mapping[str, ArrayLike] | None = None,
        terminal: ArrayLike | None = None,
        initial: ArrayLike | None = None,
        n_states: int | None = None,
        n_actions: int | None = None,
        d0: ArrayLike | None = None,
        episode: ArrayLike | None = None,
        step: ArrayLike | None = None,
        horizon: int | None = None,
    ) -> Counts:
        """Count n transitions held in memory.

        Args:
            state: [n] integers or strings.
            action: [n] integers or strings.
            next_state: [n]; ignored where `terminal`.
            reward: [n].
            costs: [n], [n, K], or one array [n] per name; none for an unconstrained problem.
            terminal: [n] truthy where the world stopped, so that nothing follows.
            initial: [n] truthy where an episode begins. Without it and without `d0`, episodes are taken to begin
                wherever the log has been.
            n_states: states are then the codes 0 … n_states−1; otherwise the labels that occur, sorted.
            n_actions: likewise for actions.
            d0: [S] a start distribution known beforehand.
            episode: [n] the name of each row's episode, so that episodes, not rows, are taken as independent.
            step: [n] the time within the episode; without it rows are in time order.
            horizon: tell states apart by their step in the episode, so that limits are per episode (see `stationary`).
                Without `terminal`, an episode's last row is its end.
        """
        if horizon is not None:
            return _by_step(state, action, next_state, reward, costs, terminal, episode, step, int(horizon))
        names, signals = named_signals(reward, costs)
        size = signals.shape[1]
        over = np.zeros(size, bool) if terminal is None else flags_of("terminal", terminal)
        froms, acts, tos = np.asarray(state), np.asarray(action), np.asarray(next_state)
        for name, column in {"state": froms, "action": acts, "next_state": tos, "terminal": over}.items():
            if column.shape != (size,):
                raise DataError(f"`{name}` has shape {column.shape}, `reward` has {size} rows.")
        if size == 0:
            raise DataError("the log is empty: no transitions.")
        states = labels_of("state", n_states, froms, tos[~over])
        actions = labels_of("action", n_actions, acts)
        to = np.full(size, len(states), np.int64)
        to[~over] = encode("next_state", tos[~over], states)
        pair = encode("state", froms, states) * len(actions) + encode("action", acts, actions)

        key, cell, count = np.unique(pair * (len(states) + 1) + to, return_inverse=True, return_counts=True)
        mean, variance = moments(count, *exact_sums(signals, exponents(signals), cell, len(key)))
        if d0 is not None:
            starts = np.array(d0, np.float64)
        else:
            flags = np.ones(size, bool) if initial is None else flags_of("initial", initial)
            starts = np.bincount(pair[flags] // len(actions), minlength=len(states)).astype(np.float64)
        groups, paths = None, None
        if episode is not None:
            named = np.asarray(episode)
            if named.shape != (size,):
                raise DataError(f"`episode` has shape {named.shape}, `reward` has {size} rows.")
            group = group_of(named)
            begun = np.zeros((int(group.max()) + 1, len(states)))
            if d0 is None:
                np.add.at(begun, (group[flags], pair[flags] // len(actions)), 1)
            groups = Groups.of_rows(group, cell, signals, begun)
            time = np.arange(size) if step is None else np.asarray(step)
            codes = np.unique(named, return_inverse=True)[1].astype(np.int64)
            paths = Trajectories.of_rows(codes, time, pair, to, signals)
        pair, to = np.divmod(key, len(states) + 1)
        return cls(pair, to, count.astype(np.int64), mean, variance, starts, states, actions, names, groups, paths)

    @classmethod
    def sample(cls, cmdp: CMDP, mu_D: Floats, size: int, seed: int | np.random.Generator = 0) -> Counts:
        """What n i.i.d. draws (s, a) ~ μ_D, s′ ~ P of a known CMDP would be counted as; costs are −g, d₀ is known.

        Two multinomial draws, so n = 10⁹ costs what n = 10³ does.
        """
        # Not the stream of the plain seed: the same one may have drawn the CMDP, and the log would not be independent.
        rng = seed if isinstance(seed, np.random.Generator) else np.random.default_rng([seed, 1])
        n = rng.multinomial(size, np.ravel(mu_D) / np.sum(mu_D))
        P, tried = csr_array(cmdp.P), np.flatnonzero(n)
        pair, to, count = [], [], []
        for row in tried:  # one multinomial per pair: rows have different supports
            span = slice(P.indptr[row], P.indptr[row + 1])
            chance, then = P.data[span], P.indices[span]
            if 1 - chance.sum() > 1e-9:  # the rest is the end of the episode, as next state S
                chance, then = np.append(chance, 1 - chance.sum()), np.append(then, P.shape[1])
            drawn = rng.multinomial(n[row], chance / chance.sum())
            hit = np.flatnonzero(drawn)
            then = then[hit]
            ranks = np.argsort(then)
            pair.append(np.full(len(hit), row, np.int64))
            to.append(then[ranks].astype(np.int64))
            count.append(drawn[hit][ranks].astype(np.int64))
        pairs = np.concatenate(pair)
        signals = np.concatenate([cmdp.r[None], -cmdp.g]).reshape(1 + len(cmdp.g), -1)[:, pairs]
        names = ("cost",) if len(cmdp.g) == 1 else tuple(f"cost_{i}" for i in range(len(cmdp.g)))
        return cls(
            pair=pairs,
            to=np.concatenate(to),
            count=np.concatenate(count),
            mean=signals,
            variance=np.zeros_like(signals),
            starts=np.array(cmdp.d0, np.float64),
            states=tuple(range(cmdp.r.shape[0])),
            actions=tuple(range(cmdp.r.shape[1])),
            cost_names=names,
        )


def merge(first: Counts, *others: Counts) -> Counts:
    """Counts add up: the counts of several logs as if they had been one (means and variances to rounding)."""
    parts = (first, *others)
    for part in others:
        if part.cost_names != first.cost_names:
            raise DataError(f"cannot merge counts of costs {part.cost_names} into counts of {first.cost_names}.")
    states = sorted_labels("state", {s for part in parts for s in part.states})
    actions = sorted_labels("action", {a for part in parts for a in part.actions})
    starts = np.zeros(len(states))
    keys = []
    for part in parts:
        s_of, a_of = encode("state", part.states, states), encode("action", part.actions, actions)
        np.add.at(starts, s_of, part.starts)
        s, a = np.divmod(part.pair, part.n_actions)
        to = np.append(s_of, len(states))[part.to]
        keys.append((s_of[s] * len(actions) + a_of[a]) * (len(states) + 1) + to)
    key, cell = np.unique(np.concatenate(keys), return_inverse=True)
    counts = np.concatenate([part.count for part in parts])
    means = np.concatenate([part.mean for part in parts], axis=1)
    squares = np.concatenate([part.variance + part.mean**2 for part in parts], axis=1)
    count = np.bincount(cell, weights=counts)
    mean = np.array([np.bincount(cell, weights=counts * row) / count for row in means])
    square = np.array([np.bincount(cell, weights=counts * row) / count for row in squares])
    pair, to = np.divmod(key, len(states) + 1)
    variance = np.maximum(square - mean**2, 0)
    return Counts(pair, to, count.astype(np.int64), mean, variance, starts, states, actions, first.cost_names)


def _by_step(
    state: ArrayLike,
    action: ArrayLike,
    next_state: ArrayLike,
    reward: ArrayLike,
    costs: ArrayLike | Mapping[str, ArrayLike] | None,
    terminal: ArrayLike | None,
    episode: ArrayLike | None,
    step: ArrayLike | None,
    horizon: int,
) -> Counts:
    if episode is None:
        raise DataError("a horizon needs `episode`: the name of each row's episode.")
    t, last = order(episode, step)
    check_length(int(t.max()) + 1, horizon)
    over = (last if terminal is None else flags_of("terminal", terminal)) | (t == horizon - 1)
    states = [f"{s}{MARK}{k}" for s, k in zip(np.asarray(state).tolist(), t, strict=True)]
    then = [f"{s}{MARK}{k + 1}" for s, k in zip(np.asarray(next_state).tolist(), t, strict=True)]
    counts = Counts.from_arrays(states, action, then, reward, costs, over, initial=t == 0, episode=episode, step=t)
    return dataclasses.replace(counts, horizon=horizon)

"""A logged dataset: plain frozen arrays, one row per transition, episodes one after another.

`terminal` ends the bootstrap (the world stopped), `timeout` does not (only the recording stopped); both end an episode.
Costs are a matrix [N, K] with K ≥ 0 constraints everywhere, so that no code needs a special case for one cost.
Actions are within [−1, 1]; what that stands for in the environment, `action_low … action_high`, travels with them.
Discrete actions are one-hot, and the action of each column, `discrete_actions`, travels with them.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdocrl.data.bounds import Bounds, is_unit, make_bounds, to_unit, unit_bounds
from pdocrl.data.discrete import DiscreteActions, make_discrete_actions, one_hot
from pdocrl.data.episodes import EpisodeList, LoggedEpisode, chosen_by, concatenate, split
from pdocrl.errors import DataError
from pdocrl.table import Table

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]
Rows = NDArray[np.int64]
Moments = tuple[NDArray[np.float64], NDArray[np.float64]]  # mean and standard deviation
MOMENT_ROWS = 1 << 14  # rows whose moments are taken at once: memory for doubles of these alone
CONSTANT = 1e-6  # a spread below this share of a column's size is rounding …
NOTHING = 1e-12  # … and so is one below this share of the widest column's: noise around 0, of a column that is 0


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """N transitions (s, a, r, c, s′). Arrays are read-only; rows of an episode are contiguous and in time order."""

    obs: Floats  # [N, S]
    action: Floats  # [N, A] in [−1, 1]; of discrete actions, one-hot
    reward: Floats  # [N]
    cost: Floats  # [N, K]
    next_obs: Floats  # [N, S]
    terminal: Flags  # [N] the episode truly ended: no value beyond
    timeout: Flags  # [N] the recording ended: value goes on
    name: str = "arrays"  # where it came from, for messages and reports
    cost_names: tuple[str, ...] = ()  # one per constraint; defaults to cost, or cost_0, cost_1, …
    notes: tuple[str, ...] = ()  # what a reader had to change or assume, one sentence each
    action_low: tuple[float, ...] = ()  # [A] the environment's action that −1 stands for; defaults to −1
    action_high: tuple[float, ...] = ()  # [A] … and 1
    obs_names: tuple[str, ...] = ()  # [S] names of the observation columns, where the file had them
    path: str = ""  # where to load it again: a file's whole path or a task's name; "" of arrays and of parts
    discrete_actions: DiscreteActions = ()  # [A] the environment's action of column i; (): continuous

    def __post_init__(self) -> None:
        n = len(self.obs)
        if not self.cost_names:
            k = self.cost.shape[1] if self.cost.ndim == 2 else 1
            object.__setattr__(self, "cost_names", ("cost",) if k == 1 else tuple(f"cost_{i}" for i in range(k)))
        shapes = {"obs": 2, "action": 2, "reward": 1, "cost": 2, "next_obs": 2, "terminal": 1, "timeout": 1}
        for field, ndim in shapes.items():
            array = getattr(self, field)
            if array.ndim != ndim or len(array) != n:
                raise DataError(f"{self.name}: `{field}` has shape {array.shape}, expected {ndim} axes and {n} rows.")
            array.setflags(write=False)
        if n == 0:
            raise DataError(f"{self.name}: no transitions.")
        if self.obs.shape != self.next_obs.shape:
            raise DataError(f"{self.name}: `next_obs` has shape {self.next_obs.shape}, `obs` has {self.obs.shape}.")
        if self.obs_names and len(self.obs_names) != self.obs_dim:
            raise DataError(f"{self.name}: {len(self.obs_names)} observation names for {self.obs_dim} columns.")
        if len(self.cost_names) != self.n_costs:
            raise DataError(f"{self.name}: {len(self.cost_names)} cost names for {self.n_costs} cost columns.")
        if not (self.action_low or self.action_high):
            low, high = unit_bounds(self.action_dim)
        else:
            low, high = make_bounds(self.name, self.action_low, self.action_high, self.action_dim)
        if self.discrete_actions:
            self._check_discrete_actions()
        object.__setattr__(self, "action_low", low)
        object.__setattr__(self, "action_high", high)

    def _check_discrete_actions(self) -> None:
        object.__setattr__(self, "discrete_actions", make_discrete_actions(self.name, self.discrete_actions))
        if self.action_dim != len(self.discrete_actions) or not is_one_hot(self.action):
            raise DataError(
                f"{self.name}: `action` has shape {self.action.shape}, expected {len(self.discrete_actions)} "
                "discrete actions, one-hot."
            )

    def __repr__(self) -> str:
        costs = ", ".join(self.cost_names) or "no costs"
        return (
            f"Dataset({self.name}: {len(self):,} transitions, {self.obs_dim} observations, {self.action_dim} "
            f"{'discrete actions' if self.discrete_actions else 'actions'}, "
            f"{costs})"
        )

    def _repr_html_(self) -> str:
        signals = {"return": self.reward_return} | dict(zip(self.cost_names, self.cost_return.T, strict=True))
        rows = [[name, *(float(f(x)) for f in (np.min, np.median, np.mean, np.max))] for name, x in signals.items()]
        told = f"{self!r}, {self.n_episodes:,} episodes of up to {self.longest_episode:,} steps"
        table = Table.of(["of an episode", "smallest", "median", "mean", "largest"], rows)
        return f"<p>{escape(told)}</p>{table.notebook()}"

    def __len__(self) -> int:
        return len(self.obs)

    @property
    def obs_dim(self) -> int:
        return int(self.obs.shape[1])

    @property
    def action_dim(self) -> int:
        return int(self.action.shape[1])

    @property
    def n_costs(self) -> int:
        return int(self.cost.shape[1])

    @property
    def action_bounds(self) -> Bounds:
        """What −1 and 1 stand for in the environment."""
        return self.action_low, self.action_high

    @cached_property
    def episode_start(self) -> Rows:
        """[E] the first row of each episode."""
        return np.concatenate([[0], self._ends[:-1] + 1]).astype(np.int64)

    @cached_property
    def episode_length(self) -> Rows:
        """[E] the number of rows of each episode."""
        return self._ends - self.episode_start + 1

    @cached_property
    def _ends(self) -> Rows:
        ends = np.flatnonzero(self.terminal | self.timeout)
        if len(ends) == 0 or ends[-1] != len(self) - 1:  # the log was cut: its last episode ends where the log does
            ends = np.append(ends, len(self) - 1)
        return ends.astype(np.int64)

    @property
    def n_episodes(self) -> int:
        return len(self.episode_start)

    @cached_property
    def longest_episode(self) -> int:
        return int(self.episode_length.max())

    @cached_property
    def largest_reward(self) -> float:
        """The largest |r|."""
        return float(np.abs(self.reward).max())

    @cached_property
    def largest_costs(self) -> tuple[float, ...]:
        """[K] of each cost."""
        return tuple(self.cost.max(axis=0, initial=0.0).tolist())

    @property
    def largest_cost(self) -> float:
        return max(self.largest_costs, default=0.0)

    @cached_property
    def obs_moments(self) -> Moments:
        """Mean and standard deviation of each observation column, [S] each."""
        return moments(self.obs[i : i + MOMENT_ROWS] for i in range(0, len(self), MOMENT_ROWS))

    @cached_property
    def obs_varies(self) -> Flags:
        """[S] which observation columns change by more than rounding, in whatever unit."""
        return varies(*self.obs_moments)

    @cached_property
    def initial_obs(self) -> Floats:
        """[E, S] where episodes start: samples of d₀."""
        return self.obs[self.episode_start]

    @cached_property
    def reward_return(self) -> NDArray[np.float64]:
        """[E] undiscounted reward of each episode."""
        return np.add.reduceat(self.reward, self.episode_start, dtype=np.float64)

    @cached_property
    def cost_return(self) -> NDArray[np.float64]:
        """[E, K] undiscounted costs of each episode."""
        return np.add.reduceat(self.cost, self.episode_start, axis=0, dtype=np.float64)

    @cached_property
    def digest(self) -> str:
        """sha256 over every array in a fixed byte order: the same on every machine and in every file format."""
        sha = hashlib.sha256()
        for field in ("obs", "action", "reward", "cost", "next_obs"):
            array = np.ascontiguousarray(getattr(self, field), dtype="<f4")
            sha.update(f"{field}{array.shape}".encode())
            sha.update(array.data)
        for field in ("terminal", "timeout"):
            sha.update(np.packbits(getattr(self, field)).tobytes())
        add_meaning(sha, self.action_bounds, self.discrete_actions)
        return sha.hexdigest()

    def time_step(self) -> Rows:
        """[N] how many steps of its episode lie before each row."""
        return np.arange(len(self)) - np.repeat(self.episode_start, self.episode_length)

    def to_go(self) -> NDArray[np.float64]:
        """[N, 1 + K] reward and costs from each row, itself included, to its episode's end."""
        signals = np.column_stack([self.reward, self.cost]).astype(np.float64)
        sums = np.concatenate([np.zeros((1, signals.shape[1])), np.cumsum(signals, 0)])
        rest: NDArray[np.float64] = np.repeat(sums[self._ends + 1], self.episode_length, 0) - sums[:-1]
        return rest

    def rows_of(self, which: Rows) -> Rows:
        """The row numbers of the given episodes, one after another; an episode may be named more than once."""
        starts, lengths = self.episode_start[which], self.episode_length[which]
        return np.repeat(starts - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())

    @property
    def episodes(self) -> EpisodeList[Dataset]:
        """The episodes, to iterate over; called with numbers, `data.episodes([0, 3])`, the dataset of these."""
        return EpisodeList(self)

    def summary(self) -> dict[str, Any]:
        """Counts, dimensions, return and cost quantiles per episode, digest. `cost_return` is a list unless K = 1."""
        costs = [_quantiles(self.cost_return[:, k]) for k in range(self.n_costs)]
        bounds = {"action_low": list(self.action_low), "action_high": list(self.action_high)}
        return {
            "episodes": self.n_episodes,
            "transitions": len(self),
            "obs_dim": self.obs_dim,
            "action_dim": self.action_dim,
            **({"discrete_actions": list(self.discrete_actions)} if self.discrete_actions else bounds),
            "n_costs": self.n_costs,
            "reward_return": _quantiles(self.reward_return),
            "cost_return": costs[0] if len(costs) == 1 else costs,
            "terminals": int(self.terminal.sum()),
            "timeouts": int(self.timeout.sum()),
            "digest": self.digest,
        }

    def filter(self, keep: Callable[[LoggedEpisode], Any] | Sequence[bool] | NDArray[Any]) -> Dataset:
        """The dataset of the episodes for which a function of the episode, or a mask [E], is true."""
        return self.choose_episodes(chosen_by(self, keep))

    def split(self, share: float = 0.5, seed: int = 0) -> tuple[Dataset, Dataset]:
        """Two datasets: a random share of the episodes, and the others. Copies of an episode stay together."""
        first, second = split(self, share, seed)
        return self.choose_episodes(first), self.choose_episodes(second)

    def concatenate(self, *others: Dataset, name: str | None = None) -> Dataset:
        """The episodes of this dataset, then those of the others."""
        joined: Dataset = concatenate([self, *others], name)
        return joined

    def choose_episodes(self, which: Sequence[int] | Rows, name: str | None = None) -> Dataset:
        """The dataset of the given episodes, in the given order."""
        which = np.asarray(which, dtype=np.int64)
        if len(which) == 0:
            raise DataError(f"{self.name}: the selection keeps no episode.")
        rows = self.rows_of(which)
        timeout = self.timeout[rows].copy()
        timeout[np.cumsum(self.episode_length[which]) - 1] |= ~self.terminal[
            self._ends[which]
        ]  # a cut episode must not run into the next
        return dataclasses.replace(
            self,
            obs=self.obs[rows],
            action=self.action[rows],
            reward=self.reward[rows],
            cost=self.cost[rows],
            next_obs=self.next_obs[rows],
            terminal=self.terminal[rows],
            timeout=timeout,
            name=name or self.name,
            path="",
        )


def moments(blocks: Iterable[Floats]) -> Moments:
    """Mean and standard deviation [S] over blocks of rows [n, S], each merged into what came before."""
    count, mean, spread = 0, np.float64(0), np.float64(0)
    for block in blocks:
        rows = np.asarray(block, np.float64)
        here = rows.mean(0)
        gap, total = here - mean, count + len(rows)
        spread = spread + ((rows - here) ** 2).sum(0) + gap**2 * (count * len(rows) / total)
        mean = mean + gap * (len(rows) / total)
        count = total
    return np.asarray(mean), np.sqrt(spread / count)


def varies(mean: NDArray[np.float64], std: NDArray[np.float64]) -> Flags:
    """[S] which of columns side by side change by more than rounding."""
    return np.asarray((std > CONSTANT * np.hypot(mean, std)) & (std > NOTHING * std.max(initial=0.0)))


def add_meaning(sha: Any, bounds: Bounds, discrete_actions: DiscreteActions) -> None:
    """Bounds other than ±1, and discrete actions, are part of a digest: the same numbers then mean other actions."""
    if not is_unit(bounds):
        sha.update(np.asarray(bounds, "<f4").tobytes())
    if discrete_actions:
        sha.update(f"choices{discrete_actions}".encode())


def is_one_hot(action: Floats) -> bool:
    """Whether each row [A] is 1 in one place and 0 elsewhere."""
    return bool(((action == 0) | (action == 1)).all() and (action.sum(1) == 1).all())


def make_dataset(
    obs: ArrayLike,
    action: ArrayLike,
    reward: ArrayLike,
    cost: ArrayLike | None,
    next_obs: ArrayLike,
    terminal: ArrayLike,
    timeout: ArrayLike,
    name: str = "arrays",
    cost_names: tuple[str, ...] = (),
    action_low: ArrayLike | None = None,
    action_high: ArrayLike | None = None,
    discrete_actions: int | Sequence[int] = (),
) -> Dataset:
    """A `Dataset` from anything array-like: float32, [N] and [N, 1] alike, flags as bool or 0/1, no cost as K = 0.

    With `action_low` and `action_high` (a number, or one per dimension) actions are given in these units. With
    `discrete_actions` (how many, or each) they are discrete, given by their labels, [N].
    """
    n = len(np.asarray(obs))

    def floats(values: ArrayLike) -> Floats:
        return np.ascontiguousarray(values, dtype=np.float32)

    def column(values: ArrayLike) -> Floats:
        return floats(values).reshape(n) if np.size(values) == n else floats(values)

    def matrix(values: ArrayLike) -> Floats:
        array = floats(values)
        return array[:, None] if array.ndim == 1 else array

    def flags(values: ArrayLike) -> Flags:
        return np.ascontiguousarray(column(values) != 0)

    known = make_discrete_actions(name, discrete_actions) if np.size(discrete_actions) else ()
    actions = one_hot(action, known, f"{name}: `action`") if known else matrix(action)
    bounds = unit_bounds(actions.shape[1])
    if action_low is not None and action_high is not None:
        bounds = make_bounds(name, action_low, action_high, actions.shape[1])
        actions = to_unit(actions, bounds)
    return Dataset(
        obs=matrix(obs),
        action=actions,
        reward=column(reward),
        cost=np.zeros((n, 0), np.float32) if cost is None else matrix(cost),
        next_obs=matrix(next_obs),
        terminal=flags(terminal),
        timeout=flags(timeout),
        name=name,
        cost_names=cost_names,
        action_low=bounds[0],
        action_high=bounds[1],
        discrete_actions=known,
    )


def _quantiles(values: NDArray[np.float64]) -> dict[str, float]:
    return {"min": float(values.min()), "median": float(np.median(values)), "max": float(values.max())}

"""A log of decisions as rows with named columns: what was known, what was done, by whom, and what came of it.

    log = EventLog.read("visits.csv", action="dose", reward="benefit", costs=["bleeding"], episode="patient")

One row per decision; N rows, E episodes. Rows are sorted by episode (in order of appearance) and step. Columns without
a role are what a policy may look at: numeric, categorical or boolean, each with its missing values flagged. Names of
columns, categories and actions stay with the arrays.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.data.encoding import Encoding
from pdocrl.data.named_columns import (
    Column,
    Flags,
    Floats,
    Ints,
    Label,
    feature_columns,
    first_seen,
    flags,
    labels,
    numbers,
    propensities,
    read_table,
    times,
)
from pdocrl.errors import DataError, did_you_mean


@dataclasses.dataclass(frozen=True, eq=False)
class EventLog:
    """Rows of decisions, sorted by episode and step."""

    name: str  # for messages
    columns: tuple[Column, ...]
    action: Ints  # [N] places in `actions`
    actions: tuple[Label, ...]
    reward: Floats  # [N]
    costs: dict[str, Floats]  # name → [N]
    episode: Ints  # [N] 0 … E−1, nondecreasing
    step: Ints  # [N] 0, 1, … within its episode
    terminal: Flags  # [N] true where the world stopped; an episode whose last row is not terminal was cut short
    decider: Ints | None = None  # [N] places in `deciders`
    deciders: tuple[str, ...] = ()
    propensity: Floats | None = None  # [N] probability with which the decider chose the logged action
    extras: dict[str, NDArray[Any]] = dataclasses.field(default_factory=dict)  # columns kept aside, [N] each
    ignored: tuple[str, ...] = ()  # columns that are neither features nor have a role
    source_row: Ints | None = None  # [N] the row's place in what was read, from 0

    @classmethod
    def read(
        cls,
        source: Any,
        action: str = "action",
        reward: str = "reward",
        costs: Sequence[str] | None = None,
        episode: str | None = "episode",
        step: str | None = None,
        terminal: str | None = None,
        decider: str | None = None,
        propensity: str | None = None,
        columns: Sequence[str] | None = None,
        keep: Sequence[str] = (),
        limited: Sequence[str] = (),
        categorical: Sequence[str] = (),
    ) -> EventLog:
        """Read a log and check every value that has a role.

        Args:
            source: a Parquet or CSV file (several, a folder, a pattern), a DataFrame, or a dict of arrays [N].
            action: the column of action labels (words or integers).
            reward: the column of rewards.
            costs: the cost columns; by default `cost` and all that begin with `cost_`.
            episode: the column that names the episode; None for a bandit, where each row is an episode.
            step: the column of time within the episode; without it rows of an episode are in time order.
            terminal: the column that is true where the world stopped; without it every episode is complete.
            decider: the column that names who decided.
            propensity: the column with the probability of the logged action under who decided.
            columns: the feature columns; by default all without a role, less those that name rows and `next_` ones.
            keep: columns kept aside in `extras`, never features.
            limited: cost columns beside the default ones, such as those that limits name.
            categorical: feature columns that are categorical whatever their values are.
        """
        read = read_table(source)
        table, name = read.columns, read.name
        roles = [action, reward, *(x for x in (episode, step, terminal, decider, propensity) if x is not None), *keep]
        if costs is None:
            costs = [c for c in table if (c == "cost" or c.startswith("cost_")) and c not in roles]
        costs = list(dict.fromkeys([*costs, *(c for c in limited if c != reward)]))
        for wanted in (*roles, *costs, *(columns or ())):
            if wanted not in table:
                hint = did_you_mean(wanted, table)
                if wanted in {"action", "reward", "episode"}:  # nobody has named it yet
                    hint = f" Name it: columns={{'{wanted}': NAME}}, or --columns {wanted}=NAME. "
                    hint += f"There are {', '.join(table)}."
                raise DataError(f"{name}: no column `{wanted}`.{hint or ' Columns: ' + ', '.join(table) + '.'}")
        size = len(table[action])
        if size == 0:
            raise DataError(f"{name} is empty: no rows.")
        codes, actions = labels(name, action, table[action])
        group = np.arange(size) if episode is None else first_seen(labels(name, episode, table[episode])[0])
        time = np.arange(size, dtype=np.float64) if step is None else times(name, step, table[step])
        order = np.lexsort((time, group))
        sorted_group = group[order]
        start = np.r_[True, sorted_group[1:] != sorted_group[:-1]]
        if step is not None:
            twice = np.flatnonzero(~start[1:] & (np.diff(time[order]) == 0))
            if twice.size:
                raise DataError(
                    f"{name}: column `{step}`, row {order[twice[0] + 1] + 1}: the same step twice in one episode; "
                    "leave one of the rows out."
                )
        last = np.r_[start[1:], True]
        first = np.maximum.accumulate(np.where(start, np.arange(size), 0))
        stopped = last if terminal is None else flags(name, terminal, table[terminal])[order]
        early = np.flatnonzero(stopped & ~last)
        if early.size:
            raise DataError(
                f"{name}: column `{terminal}`, row {order[early[0]] + 1}: terminal, but its episode goes on; "
                "give what follows another episode."
            )
        who, names = (None, ()) if decider is None else labels(name, decider, table[decider])
        found, ignored = feature_columns(name, table, columns, {*roles, *costs}, group, categorical)
        return cls(
            name=name,
            columns=tuple(column.take(order) for column in found),
            action=codes[order],
            actions=actions,
            reward=numbers(name, reward, table[reward])[order],
            costs={cost: numbers(name, cost, table[cost])[order] for cost in costs},
            episode=sorted_group,
            step=np.arange(size) - first,
            terminal=stopped,
            decider=None if who is None else who[order],
            deciders=tuple(map(str, names)),
            propensity=None if propensity is None else propensities(name, propensity, table[propensity])[order],
            extras={extra: np.asarray(table[extra])[order] for extra in keep},
            ignored=ignored,
            source_row=order.astype(np.int64),
        )

    def __len__(self) -> int:
        return len(self.action)

    @property
    def episodes(self) -> list[slice]:
        """The rows of each episode, E slices."""
        edges = [*np.flatnonzero(self.step == 0).tolist(), len(self)]
        return [slice(a, b) for a, b in itertools.pairwise(edges)]

    @property
    def cut_short(self) -> Flags:
        """[E] whether the record of an episode ends before the episode does."""
        return ~self.terminal[[rows.stop - 1 for rows in self.episodes]]

    @property
    def signals(self) -> dict[str, Floats]:
        """name → [N]: the reward, called `reward`, then every cost."""
        return {"reward": self.reward, **self.costs}

    def totals(self, signal: Floats, discount: float = 1.0) -> Floats:
        """[E] Σ_t γ^t x_t of each episode."""
        return np.asarray(np.bincount(self.episode, signal * discount**self.step), np.float64)

    def take(self, rows: NDArray[Any]) -> EventLog:
        """The log of some rows (indices or a mask [N], in order); whole episodes, or their steps are counted anew."""
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows
        group = np.cumsum(np.r_[False, np.diff(self.episode[rows]) != 0])
        start = np.r_[True, np.diff(group) != 0] if rows.size else np.zeros(0, bool)
        first = np.maximum.accumulate(np.where(start, np.arange(rows.size), 0)) if rows.size else rows
        return dataclasses.replace(
            self,
            columns=tuple(column.take(rows) for column in self.columns),
            action=self.action[rows],
            reward=self.reward[rows],
            costs={cost: values[rows] for cost, values in self.costs.items()},
            episode=group[: rows.size].astype(np.int64),
            step=np.arange(rows.size) - first,
            terminal=self.terminal[rows],
            decider=None if self.decider is None else self.decider[rows],
            propensity=None if self.propensity is None else self.propensity[rows],
            extras={extra: values[rows] for extra, values in self.extras.items()},
            source_row=None if self.source_row is None else self.source_row[rows],
        )

    def split(self, seed: int, share: float = 0.5) -> tuple[EventLog, EventLog]:
        """Two logs of whole episodes, the first with about `share` of them (at least one in each)."""
        fold = self.folds(seed, share)
        return self.take(fold[self.episode] == 0), self.take(fold[self.episode] == 1)

    def folds(self, seed: int, share: float = 0.5) -> Ints:
        """[E] 0 or 1: a random part of the episodes for each."""
        count = int(self.episode[-1]) + 1
        if count < 2:
            raise DataError(f"{self.name}: one episode cannot be split; give a log of two or more.")
        chosen = np.random.default_rng(seed).permutation(count) >= min(max(round(share * count), 1), count - 1)
        return chosen.astype(np.int64)

    def frame(self) -> dict[str, NDArray[Any]]:
        """{column: [N] words, booleans or numbers}: the features as a policy written by hand sees them."""
        return {column.name: column.raw() for column in self.columns}

    def features(self) -> tuple[Floats, list[str]]:
        """[N, D] the encoded columns and their D names (see `encoding`)."""
        encoding = Encoding.fit(self.columns)
        return encoding(self.columns, self.name).reshape(len(self), -1 if self.columns else 0), encoding.names

    def action_codes(self, labels: NDArray[Any]) -> Ints:
        """[N] places in `actions` of labels."""
        place = {label: i for i, label in enumerate(self.actions)} | {str(a): i for i, a in enumerate(self.actions)}
        try:
            return np.array([place[x.item() if isinstance(x, np.generic) else x] for x in labels], np.int64)
        except (KeyError, TypeError) as error:
            known = ", ".join(map(str, self.actions[:8]))
            raise DataError(f"{self.name}: action {error.args[0]!r} was never logged; the log has {known}.") from None

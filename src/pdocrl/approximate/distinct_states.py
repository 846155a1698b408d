"""Logs with discrete actions as counts over distinct states: from arrays, a `Dataset`, an `EventLog`, or `Counts`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pdocrl.data import Dataset
from pdocrl.data.event_log import EventLog
from pdocrl.errors import DataError
from pdocrl.limits import Limit
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.solvers.lagrangian import Lagrangian

Floats = NDArray[np.float64]
Data = Counts | Dataset | EventLog | Mapping[str, ArrayLike]
KEYS = ("state", "action", "next_state", "reward", "costs", "terminal", "initial")


class Log(NamedTuple):
    """A log over its X distinct states."""

    counts: Counts
    states: Floats  # [X, S]
    dropped: int  # last rows of episodes that were cut, whose next state is unknown


def read(data: Data) -> Log:
    """The log of whatever holds one.

    A mapping has `state` [N, S], `action` [N] labels, `next_state` [N, S], `reward` [N], and as far as there are any
    `costs` ([N], [N, K] or one [N] per name), `terminal` [N] and `initial` [N], true where an episode begins.
    """
    if isinstance(data, Counts):
        return Log(data, np.arange(data.n_states, dtype=np.float64)[:, None], 0)
    if isinstance(data, EventLog):
        return _of_events(data)
    if isinstance(data, Dataset):
        if not data.discrete_actions:
            raise DataError(f"{data.name}: its actions are continuous; only discrete ones have a greedy policy here.")
        initial = np.zeros(len(data), bool)
        initial[data.episode_start] = True
        action = np.asarray(data.discrete_actions)[data.action.argmax(axis=1)]
        costs = {name: data.cost[:, i] for i, name in enumerate(data.cost_names)} if data.n_costs else None
        return _count(data.obs, action, data.next_obs, data.reward, costs, data.terminal, initial)
    unknown = [key for key in data if key not in KEYS]
    lacking = [key for key in KEYS[:4] if key not in data]
    if unknown or lacking:
        raise DataError(
            f"arrays: keys {unknown or lacking} are {'unknown' if unknown else 'missing'}; {', '.join(KEYS)}."
        )
    state, then = (_matrix(key, data[key]) for key in ("state", "next_state"))
    return _count(
        state, data["action"], then, data["reward"], data.get("costs"), data.get("terminal"), data.get("initial")
    )


def lagrangian(counts: Counts, gamma: float, limits: tuple[Limit, ...], tables: bool) -> Lagrangian:
    """L̂. Where episodes end, μ̂_D has the mass m of an occupancy that goes where the log goes, so that w is about one
    for the policy that made the log: m = 1 − γ + γ·m·(share of rows that do not end). Tables have the behaviour's own.
    """
    if tables:
        return Lagrangian.empirical(counts, gamma, limits)
    if tail := next((limit for limit in limits if limit.tail), None):
        raise DataError(f"limit {tail} is on a tail; function classes take limits on means.")
    ends = float(counts.count[counts.to == counts.n_states].sum() / counts.size)
    g = [limit.sign * counts.costs[limit.index(counts.cost_names)] for limit in limits]
    return Lagrangian(
        mu_D=counts.mu * (1 - gamma) / (1 - gamma * (1 - ends)),
        P=counts.P,
        r=counts.r,
        g=np.reshape(g, (-1, *counts.shape)),
        tau=np.array([limit.sign * limit.value for limit in limits]),
        d0=counts.d0,
        gamma=gamma,
    )


def _of_events(log: EventLog) -> Log:
    x, _ = log.features()
    following = np.r_[x[1:], x[:1]]
    last = np.r_[np.diff(log.episode) != 0, True]
    known = ~last | log.terminal
    rows = np.flatnonzero(known)
    if not len(rows):
        raise DataError(f"{log.name}: every episode is cut after one row, so no next state is known.")
    labels = np.asarray(log.actions)[log.action]
    found = _count(
        x[rows],
        labels[rows],
        following[rows],
        log.reward[rows],
        {name: cost[rows] for name, cost in log.costs.items()} or None,
        log.terminal[rows],
        (log.step == 0)[rows],
    )
    return found._replace(dropped=int((~known).sum()))


def _count(
    state: ArrayLike, action: ArrayLike, then: ArrayLike, reward: ArrayLike, costs: Any, terminal: Any, initial: Any
) -> Log:
    x, after = np.asarray(state, np.float64), np.asarray(then, np.float64)
    over = np.zeros(len(x), bool) if terminal is None else np.asarray(terminal, bool)
    if after.shape != x.shape or over.shape != (len(x),):
        raise DataError(f"arrays: `state` has shape {x.shape}, `next_state` {after.shape}, `terminal` {over.shape}.")
    for name, values in (("state", x), ("next_state", after[~over])):
        if not np.isfinite(values).all():
            raise DataError(f"arrays: `{name}` has a value that is not a finite number, row {_bad_row(values)}.")
    states, code = np.unique(np.concatenate([x, after[~over]]), axis=0, return_inverse=True)
    code = code.ravel()
    to = np.zeros(len(x), np.int64)
    to[~over] = code[len(x) :]
    labels, index = np.unique(np.asarray(action), return_inverse=True)
    counts = Counts.from_arrays(
        code[: len(x)], index.ravel(), to, reward, costs, over, initial, n_states=len(states), n_actions=len(labels)
    )
    return Log(dataclasses.replace(counts, actions=tuple(labels.tolist())), states, 0)


def _matrix(key: str, values: ArrayLike) -> Floats:
    x = np.asarray(values, np.float64)
    x = x[:, None] if x.ndim == 1 else x
    if x.ndim != 2:
        raise DataError(f"arrays: `{key}` has shape {x.shape}, expected [N, S].")
    return x


def _bad_row(values: Floats) -> int:
    return int(np.argmax(~np.isfinite(values).all(axis=1))) + 1

"""Whether newer rows still look like the world that was logged: rewards, costs, transitions, first states.

    ε_i = x_i − f(s_i, a_i),   f linear in (1, columns) for each action, fitted on the older rows
    z = mean of ε over newer rows / its standard error, both clustered by episode

for x each reward, cost, next column and end, over all newer rows and over those of each action; first states are
compared by their means. What is reported holds with all tests together at `LEVEL`: of logs that did not change, one in
a hundred has a warning. Another behaviour policy is no drift: f is given the action.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from pdocrl.data.encoding import Encoding
from pdocrl.data.event_log import EventLog
from pdocrl.errors import DataError
from pdocrl.ope.estimators.problem import Floats, Ints

LEVEL = 0.01  # of all tests together
RIDGE = 1e-3
FEWEST = 20  # episodes of each part
Part = tuple[Floats, Ints, Floats]  # columns, actions, outcomes of the same rows


def drift(older: EventLog, newer: EventLog) -> list[str]:
    """A line for each thing that changed; none where nothing is seen to have, or either part has few episodes."""
    if min(len(older.episodes), len(newer.episodes)) < FEWEST:
        return []
    encoding = Encoding.fit(older.columns)
    try:
        x_old, x_new = (encoding(part.columns, part.name).reshape(len(part), -1) for part in (older, newer))
    except DataError as error:
        return [f"newer rows do not fit the older ones: {error}"]
    tests: list[tuple[str, float, float]] = []  # what, by how much, z
    a_old, a_new = older.action, _codes(older, newer)
    for name, y_old, y_new, among_old, among_new in _outcomes(older, newer, x_old, x_new, encoding.names):
        e_old, e_new = _residuals(
            (x_old[among_old], a_old[among_old], y_old), (x_new[among_new], a_new[among_new], y_new)
        )
        tests.append((name, *_shift(e_old, older.episode[among_old], e_new, newer.episode[among_new])))
        for a, label in enumerate(older.actions):
            one, other = a_old[among_old] == a, a_new[among_new] == a
            if min(one.sum(), other.sum()) >= FEWEST:
                told = _shift(e_old[one], older.episode[among_old][one], e_new[other], newer.episode[among_new][other])
                tests.append((f"{name} after action {label}", *told))
    first_old, first_new = x_old[older.step == 0], x_new[newer.step == 0]
    for j, name in enumerate(encoding.names):
        count = np.arange(len(first_old)), np.arange(len(first_new))
        tests.append((f"first `{name}` (standardised)", *_shift(first_old[:, j], count[0], first_new[:, j], count[1])))
    least = float(stats.norm.isf(LEVEL / 2 / max(len(tests), 1)))
    changed = sorted((test for test in tests if abs(test[2]) > least), key=lambda test: -abs(test[2]))
    return [f"{name} changed by {by:+.3g} in newer rows (z = {z:.1f})" for name, by, z in changed]


def halves(log: EventLog) -> tuple[EventLog, EventLog]:
    """The earlier and the later half of the episodes, in order of appearance."""
    middle = log.episode < len(log.episodes) // 2
    return log.take(middle), log.take(~middle)


def _codes(older: EventLog, newer: EventLog) -> Ints:
    """[N] the newer actions as places in the older ones; −1 for those never seen."""
    place = {str(label): i for i, label in enumerate(older.actions)}
    return np.array([place.get(str(label), -1) for label in newer.actions], np.int64)[newer.action]


def _outcomes(
    older: EventLog, newer: EventLog, x_old: Floats, x_new: Floats, names: list[str]
) -> list[tuple[str, Floats, Floats, Ints, Ints]]:
    """What follows a state and an action: name, values of both parts, and the rows that have it."""
    every_old, every_new = np.arange(len(older)), np.arange(len(newer))
    found = [
        (f"`{name}`", x, newer.signals[name], every_old, every_new)
        for name, x in older.signals.items()
        if name in newer.signals
    ]
    before_old, before_new = (np.flatnonzero(part.step[1:] > 0) for part in (older, newer))
    for j, name in enumerate(names):
        if len(before_old) and len(before_new):
            found.append((f"next `{name}`", x_old[before_old + 1, j], x_new[before_new + 1, j], before_old, before_new))
    ends_old, ends_new = (np.r_[part.step[1:] == 0, True].astype(np.float64) for part in (older, newer))
    return [*found, ("the end of episodes", ends_old, ends_new, every_old, every_new)]


def _residuals(older: Part, newer: Part) -> tuple[Floats, Floats]:
    """Of a ridge regression for each action, fitted on the older rows."""
    (x_old, a_old, y_old), (x_new, a_new, y_new) = older, newer
    e_old, e_new = y_old - y_old.mean(), y_new - y_old.mean()
    old, new = (np.c_[np.ones(len(x)), x] for x in (x_old, x_new))
    for a in np.unique(a_old):
        here, there = a_old == a, a_new == a
        phi = old[here]
        theta = np.linalg.solve(phi.T @ phi + RIDGE * np.eye(phi.shape[1]), phi.T @ y_old[here])
        e_old[here], e_new[there] = y_old[here] - phi @ theta, y_new[there] - new[there] @ theta
    return e_old, e_new


def _shift(e_old: Floats, episode_old: Ints, e_new: Floats, episode_new: Ints) -> tuple[float, float]:
    """How far the means are apart, and in how many standard errors."""
    by = float(e_new.mean() - e_old.mean())
    variance = sum(
        float((np.bincount(group, e - e.mean()) ** 2).sum()) / len(e) ** 2
        for e, group in ((e_old, episode_old), (e_new, episode_new))
    )
    scale = max(abs(float(e_old.std())), 1e-12)
    return by, by / np.sqrt(variance) if variance > (1e-9 * scale) ** 2 else (0.0 if abs(by) < 1e-9 * scale else np.inf)

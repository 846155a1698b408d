"""Do the states tell all that matters? A test of the Markov property on the log's own episodes.

    δ_t = x_t + γ V(s_{t+1}) − Q(s_t, a_t)

is, for V and Q of the policy that was found, the surprise at step t. If states are Markov nothing that was known before
the step explains it. So surprises are regressed, within each state and action, on what came before: the actions of the
last steps, their rewards and costs, the surprises so far (something that stays through an episode is hidden), the time
in the episode, who decided where the log says so, and, where states are cells, the columns the cells were made of, now
and a step before. Two numbers count:

    p        of the strongest single correlation, with episodes as the independent parts, times the number tried
    share    of the variance of surprises that a regression learned on half of the episodes explains on the other half

States fail where p < `ALPHA` and share > `SHARE` for the reward or a limited cost: with many rows everything is
significant, and with few rows everything seems to explain something. A decider whose surprises are not 0 on average
gets more reward or cost than the model predicts for the same states and actions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from pdocrl.limits import Limit
from pdocrl.records import Part
from pdocrl.tabular.counts import Counts, Floats, Ints
from pdocrl.tabular.inference.bounds import PolicyEstimate
from pdocrl.tabular.io.episodes import Trajectories

ALPHA = 0.01
SHARE = 0.01  # of the variance of surprises, from which hidden differences matter
LAGS = 3  # steps back for actions
MANY_DECIDERS = 20
MANY_ACTIONS = 8  # of more, only their rewards and costs are used
LONG = 10  # rows of an episode that two hardly share by chance
FEWEST = 4  # rows of a pair, to tell a difference within it
FEWEST_EPISODES = 20
RIDGE = 1e-3
ROUNDING = 1e-9  # of the largest value: what is smaller is no surprise


class Finding(Part, frozen=True, kw_only=True):
    """What explains the surprises of one signal best: a failed test says that the states hide it."""

    signal: str
    by: str  # in words: "`order` one step before"
    p: float  # of this correlation, times the number of correlations tried
    share: float  # of the variance of surprises explained, on episodes that had no part in learning the regression
    shift: float  # √(share · variance): by how much a policy that always meets the worse part would cost more, a step

    @property
    def fails(self) -> bool:
        return self.p < ALPHA and self.share > SHARE


@dataclasses.dataclass(frozen=True)
class MarkovTest:
    """What was found; empty where the log names no episodes."""

    findings: tuple[Finding, ...]
    episodes: int

    @property
    def failed(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.fails)


def markov_test(counts: Counts, gamma: float, policy: Floats, limits: Sequence[Limit]) -> MarkovTest | None:
    """The test for the surprises of a policy [S, A]; None without episodes in order, or too few of them."""
    log = counts.trajectories
    if log is None:
        return None
    episodes = len(np.unique(log.episode))
    if episodes < FEWEST_EPISODES:
        return None
    estimate = PolicyEstimate(counts, gamma, policy)
    names = ["reward", *(limit.name for limit in limits)]
    rows = [0, *(1 + limit.index(counts.cost_names) for limit in limits)]
    ends = [0, *(int(limit.sign < 0) for limit in limits)]
    V = np.array([estimate.values[end][row] for row, end in zip(rows, ends, strict=True)])  # [1+I, S]
    after = log.signals[rows] + gamma * ahead(counts, V)[:, log.to]
    sizes = np.bincount(log.pair, minlength=counts.n.size)
    within = sizes[log.pair] >= FEWEST
    surprise = np.array([_centred(row, log.pair, within) for row in after])
    surprise[np.abs(surprise) <= ROUNDING * np.abs(after).max(axis=1, keepdims=True)] = 0.0
    features = dict(_features(log, counts, names, surprise, V))
    if not features or not within.any():
        return MarkovTest((), episodes)
    X = np.array([_centred(row, log.pair, within) for row in features.values()])
    X /= np.where(X.std(axis=1, keepdims=True) > 0, X.std(axis=1, keepdims=True), 1.0)
    code = np.unique(log.episode, return_inverse=True)[1]
    part = _halves(code)
    found = []
    for name, row in zip(names, surprise, strict=True):
        z = _correlations(X, row, code)
        best = int(np.abs(z).argmax())
        p = min(1.0, 2 * float(norm.sf(abs(z[best]))) * len(z) * len(names))
        share = _explained(X, row, part)
        shift = float(np.sqrt(share * row.var()))
        found.append(Finding(signal=name, by=list(features)[best], p=p, share=share, shift=shift))
    return MarkovTest(tuple(found), episodes)


def copied_episodes(counts: Counts) -> float:
    """The share of episodes of at least `LONG` rows that are copies of another in every state, action and signal."""
    log = counts.trajectories
    if log is None:
        return 0.0
    ends = np.flatnonzero(np.r_[np.diff(log.episode) != 0, True]) + 1
    rows = np.concatenate([log.pair[None], log.to[None], log.signals])
    spans = zip(np.r_[0, ends[:-1]], ends, strict=True)
    seen = [rows[:, first:last].tobytes() for first, last in spans if last - first >= LONG]
    return 1 - len(set(seen)) / len(seen) if seen else 0.0


def ahead(counts: Counts, V: Floats) -> Floats:
    """[k, S+1] V of each next state; after an end 0, or that of a start where a new episode follows."""
    last = V @ counts.d0 if counts.restarts else np.zeros(len(V))
    return np.concatenate([V, last[:, None]], axis=1)


def _features(
    log: Trajectories, counts: Counts, names: Sequence[str], surprise: Floats, V: Floats
) -> Iterator[tuple[str, Floats]]:
    """What was known before each step, NaN where there was nothing yet."""
    A = counts.n_actions
    state, action = np.divmod(log.pair, A)
    first = np.r_[True, np.diff(log.episode) != 0]
    begin = np.maximum.accumulate(np.where(first, np.arange(len(log)), 0))
    t = np.arange(len(log)) - begin

    def lag(values: Floats, steps: int) -> Floats:
        moved = np.full(len(values), np.nan)
        moved[steps:] = values[:-steps]
        moved[t < steps] = np.nan
        return moved

    if counts.horizon is None:
        yield "the time in the episode", t.astype(np.float64)
    for k, name in enumerate(names):
        yield f"the surprise of the step before in `{name}`", lag(surprise[k], 1)
        so_far = np.cumsum(surprise[k]) - surprise[k]
        so_far -= so_far[begin]
        yield f"the episode's `{name}` so far", np.where(t > 0, so_far / np.maximum(t, 1), np.nan)
        yield f"the state before, by its `{name}` to come", lag(V[k][state], 1)
    for k in range(len(log.signals)):
        yield f"`{('reward', *counts.cost_names)[k]}` of the step before", lag(log.signals[k], 1)
    if A <= MANY_ACTIONS:
        for steps in range(1, LAGS + 1):
            for a in range(A - 1):
                when = "one step" if steps == 1 else f"{steps} steps"
                yield f"the action {when} before ({counts.actions[a]!r})", lag((action == a).astype(np.float64), steps)
    names_of = [] if log.decider is None else np.unique(log.decider).tolist()
    for who in names_of if 2 <= len(names_of) <= MANY_DECIDERS else []:
        yield f"who decided ({who!r})", (log.decider == who).astype(np.float64)
    for name, values in zip(log.columns, () if log.values is None else log.values, strict=True):
        yield f"`{name}`", values
        yield f"`{name}` one step before", lag(values, 1)
    for name, values in zip(log.outcomes, () if log.outcome_values is None else log.outcome_values, strict=True):
        yield f"`{name}` of the step before", lag(values, 1)


def _centred(values: Floats, pair: Ints, use: NDArray[np.bool_]) -> Floats:
    """Values less their mean within each pair; 0 where they are unknown or the pair is rare."""
    known = use & np.isfinite(values)
    size = np.bincount(pair, weights=known)
    mean = np.bincount(pair, weights=np.where(known, values, 0.0)) / np.maximum(size, 1)
    return np.where(known, values - mean[pair], 0.0)


def _halves(code: Ints) -> NDArray[np.bool_]:
    """[n] whether a row's episode is in the first of two random halves."""
    return np.asarray((np.random.default_rng(0).permutation(int(code.max()) + 1) % 2 == 0)[code])


def _correlations(X: Floats, y: Floats, code: Ints) -> Floats:
    """[p] z of each feature's covariance with y, with episodes as the independent parts."""
    each = np.array([np.bincount(code, weights=row * y) for row in X])
    spread = np.sqrt((each**2).sum(axis=1))
    return np.asarray(each.sum(axis=1) / np.where(spread > 0, spread, np.inf))


def _explained(X: Floats, y: Floats, first: NDArray[np.bool_]) -> float:
    """The share of y's variance that a linear regression learned on one half explains on the other, both ways."""
    left = 0.0
    for learn in (first, ~first):
        own = X[:, learn]
        gram = own @ own.T + RIDGE * learn.sum() * np.eye(len(X))
        weight = np.linalg.solve(gram, own @ y[learn])
        left += float(((y[~learn] - weight @ X[:, ~learn]) ** 2).sum())
    total = float((y**2).sum())
    return max(1 - left / total, 0.0) if total > 0 else 0.0

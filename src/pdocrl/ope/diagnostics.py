"""What a log can carry: propensities that fit, overlap of actions, copies of episodes; warnings of one line each."""

from __future__ import annotations

import numpy as np

from pdocrl.data.event_log import EventLog
from pdocrl.data.named_columns import PROPENSITY
from pdocrl.errors import DataError, by_door
from pdocrl.ope.estimators.problem import Floats, Problem
from pdocrl.ope.result import SHARES, ActionOverlap
from pdocrl.ope.verdicts import FEWEST, LARGEST

FAR = 5.0  # standard errors beyond which a moment of the propensities does not fit
SELDOM = 0.002  # share of logged decisions below which an action is hardly covered
NOTABLE = 0.01  # mean probability from which on an action of the policy matters
MOST_ACTIONS = 20  # listed
BY_CHANCE = 0.01  # expected pairs of equal episodes, below which a second one is a copy

UNUSED_PROPENSITY = (
    "column `propensity` is not used, neither as a state column nor as the probabilities of the logged actions, which "
    "lie in (0, 1]: they are estimated"
)


def check_propensities(log: EventLog) -> None:
    """Refuse propensities that cannot be those of the logged actions.

    The mean log-probability of what was done is at most that under the actions' own frequencies if they are of other
    actions, and at least that if they are right (Gibbs' inequality); a mean of 1/b beyond the number of actions is not
    possible either.
    """
    if log.propensity is None:
        return
    frequency = np.bincount(log.action, minlength=len(log.actions)) / len(log)
    gain = np.log(log.propensity) - np.log(frequency[log.action])
    estimated = by_door("propensity=None", "--propensity none")
    hint = f"it must be the probability of the logged action under who decided; {estimated} has it estimated"
    if len(log) > 1 and gain.mean() < -FAR * gain.std(ddof=1) / np.sqrt(len(log)) - 1e-3:
        raise DataError(
            f"{log.name}: the propensities give the logged actions less probability than their plain frequencies do, "
            f"by a factor of {np.exp(-gain.mean()):.3g} (geometric mean); {hint}."
        )
    inverse = 1 / log.propensity
    error = inverse.std(ddof=1) / np.sqrt(len(log)) if len(log) > 1 else np.inf
    if inverse.mean() - FAR * error > len(log.actions):
        raise DataError(
            f"{log.name}: the mean of 1/propensity is {inverse.mean():.3g}, more than the {len(log.actions)} actions "
            f"allow; {hint}."
        )


def log_warnings(log: EventLog) -> list[str]:
    """Of the log itself."""
    found = []
    if log.propensity is None and PROPENSITY in log.ignored:
        found.append(UNUSED_PROPENSITY)
    copies = copied_episodes(log)
    if copies:
        found.append(
            f"{copies} of {len(log.episodes)} episodes are copies of others under new names; they count as evidence "
            "only once in truth: remove them"
        )
    found += [f"`{name}` never occurred in the log" for name, x in log.costs.items() if not x.any()]
    if log.reward.std() <= 1e-12 * max(1.0, abs(float(log.reward.mean()))):
        found.append(f"all rewards are {log.reward[0]:g}: nothing distinguishes policies by reward")
    cut = int(log.cut_short.sum())
    if cut:
        found.append(f"{cut} of {len(log.episodes)} episodes were cut short: totals are of what was recorded")
    return found


def copied_episodes(log: EventLog) -> int:
    """Episodes of which an equal one came before, and of which chance would bring hardly any.

    Where rows take few values, whole episodes are often equal by chance: with P(e) the probability of an episode under
    a Markov chain of rows counted from the log, fewer than n² P(e) pairs of n episodes are expected to be like it.
    """
    matrix = np.column_stack([log.action, *log.signals.values(), *[c.values for c in log.columns]])
    values, kind = np.unique(matrix, axis=0, return_inverse=True)
    kind = kind.ravel()
    size, follows = len(values), np.flatnonzero(log.step > 0)
    moves, which, count = np.unique(kind[follows - 1] * size + kind[follows], return_inverse=True, return_counts=True)
    left = np.bincount(moves // size, count, minlength=size)  # how often each kind of row was left for another
    logs = np.log((np.bincount(kind, minlength=size) + 1) / (len(log) + size))[kind]  # of first rows
    logs[follows] = np.log((count[which.ravel()] + 1) / (left[kind[follows - 1]] + size))
    chance = np.bincount(log.episode, logs)
    seen: set[bytes] = set()
    copies = 0
    for rows, likely in zip(log.episodes, chance, strict=True):
        key = kind[rows].tobytes()
        copies += key in seen and len(chance) ** 2 * np.exp(likely) < BY_CHANCE
        seen.add(key)
    return copies


def overlap(problem: Problem) -> list[ActionOverlap]:
    """Of each action the policy takes, the likeliest first."""
    log = problem.log
    logged = np.bincount(log.action, minlength=len(log.actions)) / len(log)
    policy = problem.target.mean(0)
    largest = np.zeros(len(log.actions))
    np.maximum.at(largest, log.action, problem.ratio)
    order = [a for a in np.argsort(-policy, kind="stable") if policy[a] > 0][:MOST_ACTIONS]
    return [
        ActionOverlap(
            action=str(log.actions[a]),
            policy=float(policy[a]),
            logged=float(logged[a]),
            largest_ratio=float(largest[a]),
        )
        for a in order
    ]


def weight_shares(weights: Floats) -> list[float] | None:
    """Of all weight that the heaviest 0, 5, …, 100 % of the episodes have; None where there is none."""
    if not weights.any():
        return None
    total = np.r_[0.0, np.cumsum(-np.sort(-weights))]
    places = np.asarray(SHARES) * len(weights)
    return [float(x) for x in np.interp(places, np.arange(len(total)), total / total[-1])]


def policy_warnings(problem: Problem, behaviour: Floats | None) -> list[str]:
    """Of one policy on the log. `behaviour` [N, A]: estimated probabilities of every action."""
    log, found = problem.log, []
    weights = problem.weights[:, -1]
    if not weights.any():
        found.append("no overlap: no logged episode follows the policy to its end")
    else:
        size = float(weights.sum() ** 2 / (weights**2).sum())
        if size < FEWEST:
            found.append(f"few episodes are like the policy's: effective sample size {size:.3g} of {len(weights)}")
        if weights.max() > LARGEST * weights.sum():
            share = 100 * weights.max() / weights.sum()
            found.append(f"one episode has {share:.0f} % of all weight")
    logged = np.bincount(log.action, minlength=len(log.actions)) / len(log)
    policy = problem.target.mean(0)
    rare = [str(log.actions[a]) for a in range(len(policy)) if policy[a] >= NOTABLE and logged[a] < SELDOM]
    if rare:
        found.append(f"actions of the policy that the log hardly has: {', '.join(rare[:5])}")
    if behaviour is not None:
        outside = float((problem.target * (behaviour < 0.01)).sum(1).mean())
        if outside > 0.05:
            found.append(
                f"{100 * outside:.0f} % of its decisions at logged states are ones that were taken there less than "
                "once in a hundred times"
            )
    return found

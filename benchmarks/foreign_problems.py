"""Known problems from elsewhere, to hold `solve` against the truth: models, behaviours, and logs drawn from them.

All are written out here from their published rules, so that they need nothing; the sepsis model is read from the
`icu-sepsis` wheel where that is installed. A problem's limit is on (1−γ)J of its cost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from pdocrl.tabular.cmdp import CMDP, Floats, Ints, as_matrix, evaluate, plan
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.examples.sepsis import tables

LAKE = ("SFFFFFFF", "FFFFFFFF", "FFFHFFFF", "FFFFFHFF", "FFFHFFFF", "FHHFFFHF", "FHFFHFHF", "FFFHFFFG")
GUSTS = (0.87, 0.1, 0.025, 0.005)  # by no, one, two and three cells
MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))  # left, down, right, up


@dataclasses.dataclass(frozen=True, eq=False)
class Foreign:
    """A model whose truth is known, and how its log came about."""

    name: str
    cmdp: CMDP  # rows of P that sum to less than one end the episode with the rest
    behaviour: Floats  # [S, A]
    longest: int  # steps after which an episode is cut, without an end
    outcomes: sp.csr_array  # [S·A, S+E] chances of what follows, E of which are ends
    reward: Floats  # [nonzeros of outcomes] what each pays …
    cost: Floats  # … and costs
    to: Ints  # [S+E] the state each leads to; at least S for an end
    hidden: tuple[tuple[float, Foreign], ...] = ()  # kinds of episodes the log does not tell apart, with their shares

    def evaluate(self, pi: Floats) -> tuple[float, float]:
        """(1−γ)J of reward and cost, in truth."""
        kinds = self.hidden or ((1.0, self),)
        found = [(share, evaluate(kind.cmdp, pi)) for share, kind in kinds]
        return sum(w * e.value for w, e in found), -sum(w * float(e.constraints[0]) for w, e in found)

    def log(self, episodes: int, seed: int) -> dict[str, np.ndarray]:
        """Columns of a log: state, action, next_state, reward, cost, terminal, episode, step."""
        if self.hidden:
            return self._mixed_log(episodes, seed)
        rng = np.random.default_rng([seed, 7])
        S, A = self.cmdp.r.shape
        choose = self.behaviour.cumsum(axis=1)
        running = np.concatenate([[0.0], np.cumsum(self.outcomes.data)])
        first = self.outcomes.indptr
        state, alive, rows = rng.choice(S, size=episodes, p=self.cmdp.d0), np.arange(episodes), []
        for step in range(self.longest):
            action = np.minimum((rng.random(len(alive))[:, None] > choose[state]).sum(axis=1), A - 1)
            pair = state * A + action
            at = np.searchsorted(running, running[first[pair]] + rng.random(len(alive)), side="right") - 1
            at = np.clip(at, first[pair], first[pair + 1] - 1)
            to = self.to[self.outcomes.indices[at]]
            over = to >= S
            shown = np.where(over, state, to)
            rows.append((state, action, shown, self.reward[at], self.cost[at], over, alive, np.full(len(alive), step)))
            alive, state = alive[~over], to[~over]
            if not len(alive):
                break
        names = ("state", "action", "next_state", "reward", "cost", "terminal", "episode", "step")
        return {name: np.concatenate(part) for name, part in zip(names, zip(*rows, strict=True), strict=True)}

    def _mixed_log(self, episodes: int, seed: int) -> dict[str, np.ndarray]:
        share = [w for w, _ in self.hidden]
        sizes = np.bincount(np.random.default_rng([seed, 8]).choice(len(share), size=episodes, p=share), minlength=2)
        parts, first = [], 0
        for k, (size, (_, kind)) in enumerate(zip(sizes, self.hidden, strict=True)):
            part = kind.log(int(size), seed * len(share) + k)
            part["episode"] = part["episode"] + first
            parts.append(part)
            first += int(size)
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def counts(self, episodes: int, seed: int) -> Counts:
        """The same, counted; starts are those of the log."""
        log = self.log(episodes, seed)
        columns = {name: log[name] for name in ("state", "action", "next_state", "reward", "terminal")}
        S, A = self.cmdp.r.shape
        rest = {"costs": log["cost"], "initial": log["step"] == 0, "episode": log["episode"]}
        return Counts.from_arrays(**columns, **rest, n_states=S, n_actions=A)


def _foreign(
    name: str,
    P: Floats,
    R: Floats,
    C: Floats,
    d0: Floats,
    gamma: float,
    limit: float,
    longest: int,
    behaviour: Floats | float,
    back: dict[int, int] | None = None,
) -> Foreign:
    """From P, R, C [S, A, S+E]; a number as behaviour is the share of greedy steps, the rest being uniform.

    `back` names outcomes beyond S after which the episode goes on, and where.
    """
    S, A = P.shape[:2]
    r, c = (P * R).sum(axis=2), (P * C).sum(axis=2)
    onward = P[:, :, :S].copy()
    to = np.arange(P.shape[2])
    for outcome, state in (back or {}).items():
        onward[:, :, state] += P[:, :, outcome]
        to[outcome] = state
    cmdp = CMDP.from_costs(onward, r, [c], [limit], d0, gamma)
    if isinstance(behaviour, float):
        best = as_matrix(plan(cmdp, cmdp.r).actions, A)
        behaviour = behaviour * best + (1 - behaviour) / A
    outcomes = sp.csr_array(P.reshape(S * A, -1))
    at = (np.repeat(np.arange(S * A), np.diff(outcomes.indptr)), outcomes.indices)
    return Foreign(name, cmdp, behaviour, longest, outcomes, R.reshape(S * A, -1)[at], C.reshape(S * A, -1)[at], to)


def _grid(rows: int, columns: int) -> Ints:
    """[S, 4] where each move leads, walls holding."""
    row, column = np.divmod(np.arange(rows * columns), columns)
    to = [np.clip(row + d, 0, rows - 1) * columns + np.clip(column + e, 0, columns - 1) for d, e in MOVES]
    return np.stack(to, axis=1)


def frozen_lake(gamma: float = 0.99, limit: float = 2e-4) -> Foreign:
    """8 × 8, slippery: a third each of going as meant and to either side. Falling into a hole costs one and ends it."""
    cells = np.array([list(row) for row in LAKE]).ravel()
    to, S = _grid(8, 8), 64
    P, R, C = np.zeros((3, S, 4, S + 2))
    R[:, :, S], C[:, :, S + 1] = 1, 1
    target = np.where(cells == "G", S, np.where(cells == "H", S + 1, np.arange(S)))
    for s in range(S):
        for a in range(4):
            for way in ((a - 1) % 4, a, (a + 1) % 4):
                P[s, a, target[to[s, way]]] += 1 / 3
    return _foreign("FrozenLake 8x8", P, R, C, np.eye(S)[0], gamma, limit, 200, 0.5)


def cliff_walking(gamma: float = 0.99, limit: float = 1e-3) -> Foreign:
    """4 × 12, with gusts that blow one, two or three cells down: −1 a step to the goal.

    Falling off the cliff costs one and sends back to the start.
    """
    to, S, start, goal = _grid(4, 12), 48, 36, 47
    P, R, C = np.zeros((3, S, 4, S + 2))  # S + 1 is the fall, which does not end the episode
    R[...], C[:, :, S + 1] = -1, 1
    target = np.arange(S)
    target[goal], target[37:47] = S, S + 1
    for s in range(S):
        for a in range(4):
            then = to[s, a]
            for chance in GUSTS:
                P[s, a, target[then]] += chance
                then = to[then, 1]
    return _foreign("CliffWalking, windy", P, R, C, np.eye(S)[start], gamma, limit, 200, 0.6, back={S + 1: start})


def taxi(gamma: float = 0.95, limit: float = 2e-3) -> Foreign:
    """5 × 5, 500 states, 6 actions: rewards as published; a wrong pick-up or drop-off is also the cost."""
    spots = ((0, 0), (0, 4), (4, 0), (4, 3))
    walls = {(0, 1), (1, 1), (3, 0), (4, 0), (3, 2), (4, 2)}  # between a cell and the one to its right
    S = 500
    P, R, C = np.zeros((S, 6, S + 1)), np.full((S, 6, S + 1), -1.0), np.zeros((S, 6, S + 1))
    for s in range(S):
        rest, goal = divmod(s, 4)
        rest, rider = divmod(rest, 5)
        row, column = divmod(rest, 5)
        for a in range(6):
            new_row, new_column, new_rider, over = row, column, rider, False
            if a == 0:
                new_row = min(row + 1, 4)
            elif a == 1:
                new_row = max(row - 1, 0)
            elif a == 2 and (row, column) not in walls:
                new_column = min(column + 1, 4)
            elif a == 3 and (row, column - 1) not in walls:
                new_column = max(column - 1, 0)
            elif a == 4:
                if rider < 4 and (row, column) == spots[rider]:
                    new_rider = 4
                else:
                    R[s, a], C[s, a] = -10.0, 1.0
            elif a == 5:
                if rider == 4 and (row, column) == spots[goal]:
                    R[s, a], over = 20.0, True
                elif rider == 4 and (row, column) in spots:
                    new_rider = spots.index((row, column))
                else:
                    R[s, a], C[s, a] = -10.0, 1.0
            P[s, a, S if over else ((new_row * 5 + new_column) * 5 + new_rider) * 4 + goal] = 1
    starts = np.array([1.0 if (s // 4) % 5 < 4 and (s // 4) % 5 != s % 4 else 0.0 for s in range(S)])
    return _foreign("Taxi", P, R, C, starts / starts.sum(), gamma, limit, 200, 0.5)


def sepsis(file: Path | None = None, gamma: float = 0.99, limit: float = 0.025) -> Foreign:
    """The 716-state model of `icu-sepsis`; reward is survival, cost the dose of fluids (a // 5) from 0 to 1."""
    P, R, C, behaviour, d0 = tables(file)
    return _foreign("sepsis", P, R, C, d0, gamma, limit, 100, behaviour)


def bandit(items: int = 80, contexts: int = 5, gamma: float = 0.5, limit: float = 0.04) -> Foreign:
    """One step: a context, one of 80 items, a click or none; an item costs what showing it costs."""
    rng = np.random.default_rng(5)
    P, R, C = np.zeros((3, contexts, items, contexts + 2))
    P[:, :, contexts] = rng.beta(1, 30, size=(contexts, items))
    P[:, :, contexts + 1] = 1 - P[:, :, contexts]
    R[:, :, contexts] = 1
    C[...] = rng.random((contexts, items, 1))
    behaviour = rng.dirichlet(np.full(items, 0.5), size=contexts)
    return _foreign("bandit, 80 items", P, R, C, np.full(contexts, 1 / contexts), gamma, limit, 1, behaviour)


def patients(gamma: float = 0.95, limit: float = 0.1) -> Foreign:
    """Five grades of illness, a mild and a strong drug; three in ten patients are frail, which the log does not say.

    The strong drug heals more often and has side effects, four times as often in the frail.
    """
    S = 5

    def kind(side: float) -> Foreign:
        P, R, C = np.zeros((3, S, 2, 2 * S))  # the second half of the outcomes are the same states with side effects
        C[:, :, S:] = 1
        for s in range(S):
            for a, (better, chance) in enumerate(((0.3, 0.0), (0.6, side))):
                for then, p in ((max(s - 1, 0), better), (min(s + 1, S - 1), 0.2), (s, 0.8 - better)):
                    P[s, a, then] += p * (1 - chance)
                    P[s, a, S + then] += p * chance
                R[s, a] = 1 - s / (S - 1)
        back = {S + s: s for s in range(S)}
        d0 = np.full(S, 1 / S)
        return _foreign("patients", P, R, C, d0, gamma, limit, 50, np.full((S, 2), 0.5), back)

    sturdy, frail = kind(0.1), kind(0.4)
    both = (0.7, sturdy), (0.3, frail)
    # What a log of both looks like if it had no end: costs are a mixture, everything else is the same.
    return dataclasses.replace(kind(0.19), name="patients, 30 % frail", hidden=both)


def disaster(gamma: float = 0.95, limit: float = 0.05) -> Foreign:
    """Slow work earns a half, fast work one; one time in five hundred that breaks something, at a cost of 50.

    A log of 20 × 100 steps has about two such accidents. One log in seven has none, and cannot know of them.
    """
    S, accident = 3, 0.002  # loads, which come and go whatever one does
    P, R, C = np.zeros((3, S, 2, 2 * S))
    P[:, :, :S] = 1 / S
    P[:, 1, :S], P[:, 1, S:] = (1 - accident) / S, accident / S
    R[:, 0], R[:, 1], C[:, :, S:] = 0.5, 1.0, 50.0
    d0 = np.full(S, 1 / S)
    back = {S + s: s for s in range(S)}
    return _foreign("rare disaster", P, R, C, d0, gamma, limit, 100, np.full((S, 2), 0.5), back)


PROBLEMS: dict[str, Callable[[], Foreign]] = {
    "lake": frozen_lake,
    "cliff": cliff_walking,
    "taxi": taxi,
    "sepsis": sepsis,
    "bandit": bandit,
    "patients": patients,
    "disaster": disaster,
}

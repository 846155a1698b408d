"""What is learned on one part of the log: clones of deciders and of good episodes, and fitted Q under the limits.

No learner is best everywhere: where deciders are good and effects are delayed, a clone of the episodes that satisfied
the limits beats every optimiser; where effects add up, boosted fitted Q does. So all are learned and the other part of
the log decides (`judge`). A clone may be followed as it is, drawn, or by its most probable action, which leaves out
what a decider did by chance.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pdocrl.approximate import boosted_q
from pdocrl.approximate.boosting import ChoiceTrees, ValueTrees
from pdocrl.approximate.cells import consequence_cells
from pdocrl.approximate.rows import Rows
from pdocrl.data.encoding import Encoding
from pdocrl.data.named_columns import Flags, Floats
from pdocrl.ope.estimators import propensity
from pdocrl.ope.estimators.linear import LinearSystem, basis, values
from pdocrl.ope.estimators.problem import Problem
from pdocrl.policies.row_policy import FORMAT, RowPolicy
from pdocrl.portfolio import history
from pdocrl.portfolio.tilted import Tilting, effective_share, near

MOST_ROWS = 30_000  # of fitted Q iteration
MOST_EVALUATED = 12_000  # rows of an evaluation in the search for multipliers
MOST_CLONED = 60_000  # of a clone
BEHAVIOUR = "behaviour"
MASK = 0.2  # of the most probable action's probability
FEWEST_EPISODES = 10  # of a decider or a selection that is cloned
MOST_DECIDERS = 8
MOST_TILTED = 15_000  # rows that set a tilt
EFFECTIVE = 40  # episodes that a tilt is to leave on the held-out part; `heldout.FEWEST_EFFECTIVE` are needed
NEAR = (0.45, 0.9)  # of log E nats an episode, beyond which density ratios are no estimate (`heldout`)
MARGINS = (0.8, 0.95)  # of the limits, that policies near the log aim at
BOLDNESS = {"": (0.35, 2.2), "further ": (0.12, 1.2)}  # effective share; standard errors kept from the limits


@dataclasses.dataclass(frozen=True, eq=False)
class Candidate:
    """A policy and where it came from."""

    name: str
    what: str  # in words
    policy: RowPolicy
    models: Mapping[str, Any]  # `ValueTrees` and `ChoiceTrees` of the policy, by name
    believed: Floats | None = None  # [1 + K] by the learner itself
    decider: str | None = None  # of whom it is the clone, drawn as the decider draws
    tilted: Floats | None = None  # [1 + K] weighted doubly robust totals on the learning part, of a tilted policy


class Learner:
    """Learns candidates from the rows of one part."""

    def __init__(
        self,
        rows: Rows,
        encoding: Encoding,
        features: Floats,
        held_out: int,
        seed: int,
        progress: Callable[[str], None],
    ) -> None:
        self.rows, self.features, self.held_out, self.seed, self.progress = rows, features, held_out, seed, progress
        self.base = {
            "format": FORMAT,
            "actions": list(rows.log.actions),
            "columns": [dataclasses.asdict(code) for code in encoding.codes],
            "timed": rows.timed,
            "horizon": rows.horizon,
        }
        self.behaviour = self._clone(rows)
        self.deciders: dict[str, ChoiceTrees] = {}
        self.values: tuple[ValueTrees, ...] = ()  # of the behaviour policy

    def learn(self) -> list[Candidate]:
        """All candidates, clones first."""
        found = [
            self._choice(BEHAVIOUR, "drawn as all deciders together", self.behaviour, mode=False),
            self._choice("most frequent action", "the most probable action of the log", self.behaviour, mode=True),
        ]
        for place, name in enumerate(self.rows.log.deciders):
            own = decided_by(self.rows, place)
            if own.sum() >= FEWEST_EPISODES and len(self.deciders) < MOST_DECIDERS:
                self.progress(f"cloning {name}")
                trees = self._clone(self.rows.episodes(own))
                self.deciders[name] = trees
                found.append(self._choice(name, f"decides as {name}", trees, mode=False, decider=name))
                words = f"what {name} most probably decides"
                found.append(self._choice(f"{name}, most probable", words, trees, mode=True))
        for name, words, own in self._selections():
            self.progress(f"cloning {words}")
            trees = self._clone(self.rows.episodes(own))
            found.append(self._choice(name, f"drawn as in {words}", trees, mode=False))
            found.append(self._choice(f"{name}, most probable", f"most probable action in {words}", trees, mode=True))
        return [*found, *self._tilted(found), *self._fitted_q()]

    def propensities(self, rows: Rows, without: str | None = None) -> Floats:
        """[N] of logged actions, as clones have them; given the history alone where nobody hands an episode over.

        `without` names a decider none of these rows is of.
        """
        behaviour = self.behaviour.probabilities(rows.x)
        if not self.deciders or rows.log.decider is None:
            return _logged(behaviour, rows)
        clones = {rows.log.deciders.index(name): trees for name, trees in self.deciders.items()}
        if self.allotment is None or not history.one_decider_each(rows):
            for place, trees in clones.items():
                here = rows.log.decider == place
                behaviour[here] = trees.probabilities(rows.x[here])
            return _logged(behaviour, rows)
        prior = self.allotment(rows.x[rows.starts])
        each = [*(trees.probabilities(rows.x) for trees in clones.values()), behaviour][: prior.shape[1]]
        kept = [k for k in range(len(each)) if k >= len(clones) or list(self.deciders)[k] != without]
        return _logged(history.of_history(rows, [each[k] for k in kept], prior[:, kept]), rows)

    @functools.cached_property
    def allotment(self) -> history.Allotment | None:
        """Which episodes were given to whom; None where nobody decides whole episodes."""
        if not self.deciders or not history.one_decider_each(self.rows):
            return None
        places = [self.rows.log.deciders.index(name) for name in self.deciders]
        return history.Allotment.of(self.rows, places, self.seed)

    @property
    def by_first_rows(self) -> bool:
        """Whether first rows tell who decides: then a decider's own episodes are not like everybody's."""
        return self.allotment is not None and self.allotment.beta is not None

    @functools.cached_property
    def own_episodes_tell(self) -> bool:
        """Whether a decider's own episodes are like everybody's: nobody hands any over, and none are given by their
        first row. Of those handed over the short ones would be left."""
        return history.one_decider_each(self.rows) and not self.by_first_rows

    def cloned_from_all(self, one: Candidate, rows: Rows) -> Candidate:
        """A decider's clone of all own episodes: they judge the decider, and more of them make a closer clone."""
        assert one.decider is not None
        trees = self._clone(rows.episodes(decided_by(rows, rows.log.deciders.index(one.decider))))
        return self._choice(one.name, one.what, trees, mode=False, decider=one.decider)

    def sequence(self, candidates: Sequence[Candidate]) -> list[str]:
        """Names in the order in which they are to be tested, from careful to bold, by this part alone.

        Careful is who is expected the most standard errors of the held-out part inside the limits; who brings less than
        someone more careful is left out, and who is not expected inside.
        """
        rows = self.rows
        evaluate = linear_values(rows, self.seed)
        logged = self.propensities(rows) if rows.log.propensity is None else rows.log.propensity
        scale = np.maximum(rows.totals.std(1), 1e-9)
        found: list[tuple[float, float, str]] = []
        for one in candidates:
            self.progress(f"ordering {one.name}")
            own = np.ones(len(rows.starts), bool) if one.name == BEHAVIOUR and len(self.deciders) < 2 else None
            if one.decider is not None and self.own_episodes_tell:
                own = decided_by(rows, rows.log.deciders.index(one.decider)) & rows.complete
            if own is not None and own.any():
                value, share = rows.totals[:, own].mean(1), float(own.mean())
            else:
                chances = one.policy.chances(rows.x)
                value = evaluate(chances) if one.tilted is None else one.tilted
                share = effective_share(rows, chances, logged)
            excess = float(((value[1:] - rows.limits) * np.sqrt(share) / scale[1:]).max(initial=-np.inf))
            found.append((excess, float(value[0]), one.name))
        order: list[str] = []
        most = -np.inf
        for excess, reward, name in sorted(found):
            if excess < 0 and reward > most:
                order.append(name)
                most = reward
        return order

    def _selections(self) -> list[tuple[str, str, Flags]]:
        """Episodes that satisfied every limit, and the better half of them."""
        rows = self.rows
        safe = rows.complete & (rows.totals[1:] <= rows.limits[:, None]).all(0)
        found = []
        if FEWEST_EPISODES <= safe.sum() < 0.97 * len(safe):
            found.append(("safe episodes", "episodes within the limits", safe))
        if safe.sum() >= 4 * FEWEST_EPISODES:
            better = safe & (rows.totals[0] >= np.median(rows.totals[0][safe]))
            found.append(("better safe episodes", "the better half of episodes within the limits", better))
        return found

    def _tilted(self, bases: Sequence[Candidate]) -> list[Candidate]:
        """Near every decider, and near the clones of good episodes that the log has enough of."""
        kept = self.rows.sampled(MOST_TILTED, self.seed)
        rows, features = self.rows.take(kept), self.features[kept]
        logged = self.propensities(rows) if rows.log.propensity is None else rows.log.propensity
        fewest = EFFECTIVE / self.held_out
        found = []
        for base in bases:
            chances = base.policy.chances(rows.x)
            if base.policy.rule["mode"] or effective_share(rows, chances, logged) < fewest:
                continue
            self.progress(f"tilting {base.name}")
            tilting = Tilting(rows, chances, logged, features, self.seed)
            for word, (share, distance) in BOLDNESS.items():
                tilt = tilting.find(max(share, fewest), distance, self.held_out)
                if tilt is None:
                    continue
                rule = {"kind": "tilted", "model": "choice", "values": names_of(tilt.values), "beta": tilt.beta}
                rule["multipliers"] = tilt.multipliers.tolist()
                words = f"{base.what}, tilted {word}towards actions that bring more within the limits"
                models = {**named(tilt.values), **base.models}
                one = self._of(f"{base.name}, tilted{' further' if word else ''}", words, rule, models, tilt.estimate)
                found.append(dataclasses.replace(one, tilted=tilt.estimate))
        return found

    def _fitted_q(self) -> list[Candidate]:
        rows = self.rows.sample(MOST_ROWS, self.seed)
        chances = self.behaviour.probabilities(rows.x)
        allowed = boosted_q.mask(chances, MASK)
        self.progress("fitted Q: values of the behaviour policy")
        start = self.values = boosted_q.behaviour_values(rows, self.seed)
        cells = consequence_cells(rows, start, self.seed)
        found = []
        if cells is not None:
            rule = {"kind": "cells", "values": names_of(start), "scale": cells.scale.tolist()}
            models = {**named(start), "centres": cells.centres, "table": cells.table}
            words = f"constrained optimum of {len(cells.centres)} cells of predicted consequences"
            found.append(self._of("cells", words, rule, models, cells.believed))
        evaluate, each = linear_values(rows, self.seed), np.eye(rows.actions)
        for one in boosted_q.learn(
            rows, allowed, start, lambda a: evaluate(each[a]), seed=self.seed, progress=self.progress
        ):
            mask = {"model": "behaviour", "share": MASK}
            rule = {"kind": "greedy", "values": names_of(one.values), "mask": mask}
            rule["multipliers"] = one.multipliers.tolist()
            models = {**named(one.values), "behaviour": self.behaviour}
            words = f"boosted fitted Q iteration, {one.steps} steps, among actions the log takes often enough"
            found.append(self._of(one.name, words, rule, models, one.believed))
        self.progress("fitted Q: policies near the log")
        kept = rows.sampled(MOST_TILTED, self.seed)
        few, near_log = rows.take(kept), chances[kept]
        evaluate = linear_values(few, self.seed)
        every = [np.stack([q(few.x, np.full(len(few), a)) for a in range(rows.actions)], 1) for q in one.values]
        for share in NEAR:
            for margin in MARGINS if len(rows.limits) else [1.0]:
                nats = share * np.log(self.held_out)
                prices, beta, believed = near(few, near_log, np.stack(every), nats, margin, evaluate)
                rule = {"kind": "tilted", "model": "behaviour", "values": names_of(one.values), "beta": beta}
                rule["multipliers"] = prices.tolist()
                models = {**named(one.values), "behaviour": self.behaviour}
                words = f"everybody's clone tilted by fitted Q, {nats:.1f} nats an episode from it"
                name = f"fitted Q near the log at {100 * margin:.0f} %{', further' if share > min(NEAR) else ''}"
                found.append(self._of(name, words, rule, models, believed))
        return found

    def _clone(self, rows: Rows) -> ChoiceTrees:
        rows = rows.sample(MOST_CLONED, self.seed)
        return ChoiceTrees.fit(rows.x, rows.log.action, rows.actions, rows.log.episode, self.seed)

    def _choice(self, name: str, what: str, trees: ChoiceTrees, mode: bool, decider: str | None = None) -> Candidate:
        rule = {"kind": "choice", "model": "choice", "mode": mode}
        return self._of(name, what, rule, {"choice": trees}, None, decider)

    def _of(
        self,
        name: str,
        what: str,
        rule: Mapping[str, Any],
        models: Mapping[str, Any],
        believed: Floats | None,
        decider: str | None = None,
    ) -> Candidate:
        ready = {key: one if callable(one) else _constant(one) for key, one in models.items()}
        return Candidate(name, what, RowPolicy({**self.base, "rule": rule}, ready), models, believed, decider)


def linear_values(rows: Rows, seed: int) -> Callable[[Floats], Floats]:
    """Probabilities [N, A] → [1 + K] totals of a policy, by the fixed point of a linear Q on these rows."""
    kept = rows.sampled(MOST_EVALUATED, seed)
    few = rows.take(kept)
    features = basis(few.log, few.timed)

    def evaluate(chances: Floats) -> Floats:
        target = chances[kept]
        problem = Problem(few.log, target, np.ones(len(few)), False, features, rows.discount, seed)
        system = LinearSystem.of(problem)
        tables = [(target * values(problem, system.q(name))).sum(1)[few.starts] for name in ("reward", *rows.names)]
        return np.asarray(rows.sense * np.mean(tables, axis=1), np.float64)

    return evaluate


def decided_by(rows: Rows, place: int) -> Flags:
    """[E] episodes in which this decider decided every row."""
    who = rows.log.decider
    if who is None:
        return np.zeros(len(rows.starts), bool)
    return np.asarray(np.bincount(rows.log.episode, who != place) == 0)


def _logged(chances: Floats, rows: Rows) -> Floats:
    """[N] the entries of the logged actions, none too small to divide by."""
    return np.maximum(np.take_along_axis(chances, rows.log.action[:, None], 1)[:, 0], propensity.SMALLEST)


def named(values: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(names_of(values), values, strict=True))


def names_of(values: tuple[Any, ...]) -> list[str]:
    return [f"q{j}" for j in range(len(values))]


def _constant(values: Any) -> Callable[[], Any]:
    return lambda: values

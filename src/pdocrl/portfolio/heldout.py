"""Candidates judged on the part of the log that had no say in learning them, by estimators tried on known answers.

    v̂ + [−z̄]₊ se ± z f·se,   z_d = (v̂_d − v_d)/se_d,   f² = max(1, mean_d z_d²)   (rewards: v̂ − [z̄]₊ se)

z_d is how far an estimator was off where the answer is known: the realised totals v_d of each decider d, predicted from
the episodes of the *others*. That is the error no standard error knows of: a wrong representation, columns that are no
Markov state. What flattered deciders on average is taken off, what merely scattered widens, both in standard errors:
a decider who is far from the others is predicted badly, and tells little of a policy that is near them. Who is about
to be chosen is also evaluated with boosted trees in place of linear functions (`second_opinion`). Each signal takes the
estimator with the least f·se:

    weighted doubly robust      importance weights of episodes, where they leave enough of them
    double reinforcement learning   density ratios of rows and fitted Q, both linear and cross-fitted

The first needs either the propensities or Q to be right. The second needs classes of functions that hold the truth, and
where they do not it is off by many of its standard errors, the more so the further a policy leaves the log (an
inventory with a lead time: stockouts of 11 ± 4 for 33). So it shows no limit (`TESTING`), and of a policy whose
divergence from every decider, Σ_t KL(π ‖ b), is above the log of the number of episodes, it is no estimate at all:
not one episode in the log is like the policy's.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
from scipy import stats

from pdocrl.approximate.rows import Rows
from pdocrl.data.named_columns import Flags, Floats
from pdocrl.ope.estimators import propensity
from pdocrl.ope.estimators.double_reinforcement import double
from pdocrl.ope.estimators.doubly_robust import doubly_robust
from pdocrl.ope.estimators.forward import forward_ratios
from pdocrl.ope.estimators.fqe import q_values
from pdocrl.ope.estimators.marginalised import ratios
from pdocrl.ope.estimators.problem import Estimate, Problem, effective_size
from pdocrl.ope.verdicts import RARE, WEIGHTED, usable
from pdocrl.portfolio.candidates import Learner, decided_by
from pdocrl.portfolio.record import HeldOut, Validated
from pdocrl.portfolio.tilted import SMALL

FEWEST = 20  # episodes of a decider whose outcome is predicted
FEWEST_EFFECTIVE, LARGEST_SHARE = 25.0, 0.15  # of weighted episodes; degrees of freedom follow their number
ON_POLICY = "own episodes"
TESTING = (ON_POLICY, WEIGHTED)  # what needs no class of functions that holds the truth
SECOND = "double reinforcement learning (trees)"
MOST_SECOND = 10_000  # rows of a second opinion


@dataclasses.dataclass(frozen=True, eq=False)
class Value:
    """One estimator's word: value and standard error, [signal]-wise in lists of the same order."""

    estimator: str
    value: float
    error: float
    freedom: float
    overlap: bool
    skewness: float = 0.0
    seldom: tuple[float, float, float] | None = None  # see `HeldOut`


@dataclasses.dataclass(frozen=True, eq=False)
class Bench:
    """The held-out part and what is known of it."""

    rows: Rows
    learner: Learner
    features: Floats  # [N, F] linear basis
    totals: Floats  # [1 + K, E] completed, signed
    seed: int
    propensity: Floats  # [N] of the logged actions
    estimated: bool
    widening: dict[tuple[str, str], float]  # (estimator, signal) → f
    flattery: dict[tuple[str, str], float]  # (estimator, signal) → [−z̄]₊ of a cost, [z̄]₊ of the reward
    validation: list[Validated]

    @classmethod
    def of(
        cls,
        rows: Rows,
        learner: Learner,
        features: Floats,
        totals: Floats,
        seed: int,
        progress: Callable[[str], None],
    ) -> Bench:
        known = rows.log.propensity
        chances = _propensity(rows, learner, features, seed) if known is None else known
        bench = cls(rows, learner, features, totals, seed, chances, known is None, {}, {}, [])
        for place, name in enumerate(rows.log.deciders if learner.own_episodes_tell else ()):
            own = decided_by(rows, place)
            if name in learner.deciders and own.sum() >= FEWEST and (~own).sum() >= FEWEST:
                progress(f"trying the estimators on {name}, whose outcome is known")
                bench._validate(name, own)
        bench._set_widening()
        return bench

    @functools.cached_property
    def deciders(self) -> list[Floats]:
        """[N, A] of every decider's clone, and of all together."""
        models = [*self.learner.deciders.values(), self.learner.behaviour]
        return [trees.probabilities(self.rows.x) for trees in models]

    @property
    def signals(self) -> list[str]:
        """In the order of the rows' signals."""
        return ["reward", *self.rows.names]

    def values(self, chances: Floats, without: str | None = None) -> dict[str, list[Value]]:
        """Signal → every estimator's word on a policy [N, A], if need be by the episodes of all but one decider."""
        rows, features, logged = self.rows, self.features, self.propensity
        far = without is None and self.divergence(chances) > np.log(len(rows.starts))
        if without is not None:
            here = ~decided_by(rows, rows.log.deciders.index(without))[rows.log.episode]
            rows, features, logged, chances = rows.take(here), features[here], logged[here], chances[here]
            logged = logged if rows.log.propensity is not None else self.learner.propensities(rows, without)
        problem = Problem(rows.log, chances, logged, self.estimated, features, rows.discount, self.seed)
        weights = ratios(problem)
        found: dict[str, list[Value]] = {}
        for signal in dict.fromkeys(self.signals):
            q = q_values(problem, signal)
            each = [doubly_robust(problem, signal, q), double(problem, signal, q, weights)]
            ready = [value for one in each if (value := _value(one, far)) is not None]
            paths = (problem.weights[:, -1], np.ones(problem.episodes))
            found[signal] = [
                dataclasses.replace(one, seldom=self._seldom(problem, signal, paths[one.estimator not in TESTING]))
                for one in ready
            ]
        return found

    def _seldom(self, problem: Problem, signal: str, weights: Floats) -> tuple[float, float, float] | None:
        """(k, n, size): k < `RARE` of n effective episodes had the cost, and where it is had it comes to `size`."""
        y = problem.log.totals(problem.log.signals[signal], problem.discount)
        return None if signal == "reward" else self._rare(signal, y, weights)

    def _rare(self, signal: str, y: Floats, weights: Floats) -> tuple[float, float, float] | None:
        j = self.signals.index(signal)
        every = np.concatenate([self.totals[j], self.learner.rows.totals[j]])
        total = float(weights.sum())
        if self.rows.sense[j] < 0 or float(every.min()) < 0 or not total > 0:
            return None
        n = effective_size(weights)
        k = n * float(weights @ (y > 0)) / total
        own, of_all = weights[y > 0], every[every > 0]
        sizes = [float(of_all.mean())] if len(of_all) else [1e-12]
        sizes += [float(own @ y[y > 0] / own.sum())] if own.sum() > 0 else []
        return (k, n, max(sizes)) if k < RARE else None

    def divergence(self, chances: Floats) -> float:
        """Nats an episode, on logged rows: the least mean Σ_t KL(π ‖ b) from a decider or from all of them."""
        own = (chances * np.log(np.maximum(chances, SMALL))).sum(1)
        each = [-(chances * np.log(np.maximum(table, SMALL))).sum(1) for table in self.deciders]
        return float(min((own + cross).sum() for cross in each) / len(self.rows.starts))

    def judge(self, chances: Floats, decider: str | None = None) -> tuple[dict[str, HeldOut], dict[str, HeldOut]]:
        """Signal → what ranks a policy, and what may show a limit: by `TESTING` alone, without overlap where it cannot.

        A decider's clone is judged by the decider's own episodes, if those are like everybody's.
        """
        if decider in self.rows.log.deciders and self.learner.own_episodes_tell:
            own = decided_by(self.rows, self.rows.log.deciders.index(decider))
            if own.sum() >= FEWEST:
                found = {name: self._own(j, own) for j, name in enumerate(self.signals)}
                return found, found
        every = self.values(chances)
        testing = {signal: [x for x in each if x.estimator in TESTING] for signal, each in every.items()}
        ranked, tested = ({s: self._best(s, each) for s, each in some.items()} for some in (every, testing))
        return ranked, tested

    def second_opinion(self, chances: Floats) -> dict[str, HeldOut]:
        """Signal → double reinforcement learning with boosted trees for Q and for the density ratio; on a sample.

        Of another function class than the estimates: what a linear Q and linear ratios smooth over, trees may see.
        """
        kept = self.rows.sampled(MOST_SECOND, self.seed)
        rows = self.rows.take(kept)
        given = (chances[kept], self.propensity[kept], self.estimated, self.features[kept])
        problem = Problem(rows.log, *given, rows.discount, self.seed)
        weights = forward_ratios(problem)
        found = {}
        for signal in dict.fromkeys(self.signals):
            value = _value(double(problem, signal, q_values(problem, signal, "trees"), weights), False)
            if value is not None:
                found[signal] = HeldOut(**dataclasses.asdict(value) | {"estimator": SECOND, "overlap": True})
        return found

    def everyone(self) -> dict[str, HeldOut]:
        """Of the behaviour policy, where there is but one: the mean of all episodes."""
        every = np.ones(len(self.rows.starts), bool)
        return {name: self._own(j, every) for j, name in enumerate(self.signals)}

    def own_episodes(self, rows: Rows, totals: Floats, decider: str) -> dict[str, HeldOut]:
        """Signal → the mean of a decider's episodes, of all rows with their totals [1 + K, E]."""
        own = decided_by(rows, rows.log.deciders.index(decider))
        return {name: self._mean(j, totals[j][own]) for j, name in enumerate(self.signals)}

    def _own(self, j: int, own: Flags) -> HeldOut:
        return self._mean(j, self.totals[j][own])

    def _mean(self, j: int, signed: Floats) -> HeldOut:
        totals = self.rows.sense[j] * signed
        seldom = self._rare(self.signals[j], totals, np.ones(len(totals))) if j else None
        return HeldOut(
            value=float(totals.mean()),
            error=float(totals.std(ddof=1) / np.sqrt(len(totals))),
            freedom=float(len(totals) - 1),
            estimator=ON_POLICY,
            overlap=True,
            skewness=_skewness(totals),
            seldom=seldom,
        )

    def _best(self, signal: str, each: Sequence[Value]) -> HeldOut:
        j = self.signals.index(signal)
        seen = self.rows.sense[j] * self.totals[j]  # no mean leaves the range of what single episodes had
        widened = [
            dataclasses.replace(
                one,
                value=float(np.clip(self._corrected(j, one), seen.min(), seen.max())),
                error=one.error * self._widening(one, signal),
            )
            for one in each
        ]
        widened = [one for one in widened if one.error <= seen.max() - seen.min()]  # else it says nothing
        ready = [one for one in widened if one.overlap]
        ready = [one for one in ready if one.estimator in TESTING] or ready
        ready = ready or [one for one in widened if one.estimator not in TESTING] or widened
        if not ready:
            return HeldOut(value=0.0, error=float("1e300"), freedom=1.0, estimator="none", overlap=False)
        best = min(ready, key=lambda one: one.error)
        return HeldOut(**dataclasses.asdict(best))

    def _corrected(self, j: int, one: Value) -> float:
        """Without what flattered the deciders: a reward is lowered, a limited cost moved towards its limit."""
        worse = -1.0 if j == 0 else float(self.rows.sense[j])
        return one.value + worse * one.error * self.flattery.get((one.estimator, self.signals[j]), 0.0)

    def _widening(self, one: Value, signal: str) -> float:
        """Who rests on classes of functions and could not be tried is as far off as the worst estimator that was."""
        known = self.widening.get((one.estimator, signal))
        if known is not None:
            return known
        return (
            1.0
            if one.estimator in TESTING
            else max((f for (_, s), f in self.widening.items() if s == signal), default=1.0)
        )

    def _validate(self, name: str, own: Flags) -> None:
        chances = self.learner.deciders[name].probabilities(self.rows.x)
        for j, (signal, each) in enumerate(self.values(chances, name).items()):
            realised = self._own(j, own)
            for one in each:
                if one.overlap:
                    error = float(np.hypot(one.error, realised.error))
                    self.validation.append(
                        Validated(
                            decider=name,
                            signal=signal,
                            estimator=one.estimator,
                            predicted=one.value,
                            realised=realised.value,
                            error=error,
                        )
                    )

    def _set_widening(self) -> None:
        for key in {(one.estimator, one.signal) for one in self.validation}:
            tried = [one for one in self.validation if (one.estimator, one.signal) == key]
            off = np.array([(one.predicted - one.realised) / max(one.error, 1e-12) for one in tried])
            j = self.signals.index(key[1])
            better = 1.0 if j == 0 else -float(self.rows.sense[j])
            self.widening[key] = float(np.sqrt(max(1.0, float((off**2).mean()))))
            if len(tried) > 1:  # one trial cannot tell flattery from chance
                self.flattery[key] = max(0.0, float(better * off.mean()))


def _skewness(values: Floats) -> float:
    """Over the root of their number: κ of `ope.estimators.intervals`."""
    spread = values.std() > 1e-9 * max(abs(float(values.mean())), 1e-300)
    return float(stats.skew(values) / np.sqrt(len(values))) if spread else 0.0


def _value(one: Estimate, far: bool) -> Value | None:
    if one.value is None or one.interval is None or one.influence is None:
        return None
    freedom = max((one.effective_sample_size or 2.0) - 1.0, 1.0)
    error = float(one.influence.std(ddof=1) / np.sqrt(len(one.influence)))
    testing = one.estimator in TESTING
    overlap = usable(one, FEWEST_EFFECTIVE, LARGEST_SHARE) if testing else usable(one) and not far
    return Value(one.estimator, one.value, error, freedom, overlap, _skewness(one.influence))


def _propensity(rows: Rows, learner: Learner, features: Floats, seed: int) -> Floats:
    """[N] of the logged actions: by clones learned on the other part; of a log without deciders also by logistic
    regression on this one, cross-fitted, whichever gives the logged actions the larger likelihood here."""
    cloned = learner.propensities(rows)
    if learner.deciders:
        return cloned
    fitted = propensity.estimate(rows.log, features, seed)[np.arange(len(rows)), rows.log.action]
    return max((cloned, np.maximum(fitted, propensity.SMALLEST)), key=lambda chances: float(np.log(chances).mean()))

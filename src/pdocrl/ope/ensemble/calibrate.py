"""How far the ensembles are off, measured on truth the log has: groups of episodes that one of them never saw.

A held-out group stands for a policy. Its episodes are played again in the ensemble that never saw them, from their own
starts, with the actions that were recorded, and with the group's own reaction to where the model went astray:

    a_t = a_t(recorded) + π_g(s_t) − π_g(s_t(recorded)),    π_g a clone of the group, see `feedback`

Were the model right, it would repeat every episode exactly, so what differs is the model's error and nothing else:
neither a clone's error nor the luck of few episodes. How much of the noise the members speak of is drawn, κ, is chosen
here: the least amount at which held-out costs are not missed on one side. Noise that a world has makes squares and
borders dearer, and noise that it has not does so too.

Not all groups are equally hard. Where members disagree on the way, they are wrong more often, so errors are measured in

    scale(x) = least + a + b x,   a, b ≥ 0 fitted to the |errors|, x the members' mean disagreement per step
    score_g  = error_g / scale(x_g)

A new policy is predicted by every ensemble f: v_f, at disagreement x_f. Each group speaks for the ensemble that had not
seen it, f(g), so that ensembles which disagree on the policy leave a wide interval:

    upper end = the quantile over g of  v_f(g) + |score_g| · scale(x_f(g));   one-sided bounds: signed scores

(conformal prediction: Papadopoulos et al. 2002 scale errors so; Barber et al. 2021, "Predictive inference with the
jackknife+", let held-out folds speak so, CV+). It holds for a policy that is to the groups what they are to each other.

What may be said of a policy (`Calibrated`) puts two things together:

    how far the models may be off                             calibrated on the groups
    what a finite number of rollouts may have missed          a bound on the mean, see `pdocrl.evaluation.audit`

Both may fail, so the probability of error is divided between them (`support.split_level`) and their sum has the level.
Rare disasters count twice: they are in the mean as often as they are simulated, and what was simulated n times without
one may still have one in n. The bound on the mean of costs in [0, largest] knows both, and nothing is trimmed.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.stats import binom, norm

from pdocrl.data.dataset import Dataset
from pdocrl.evaluation.audit import mean_lower, mean_upper
from pdocrl.nn.mlp import MLP
from pdocrl.ope.ensemble.groups import Groups
from pdocrl.ope.ensemble.models import Ensembles, mixed
from pdocrl.ope.ensemble.rollouts import Rollouts
from pdocrl.ope.ensemble.support import split_level
from pdocrl.ope.result import LEVEL

Floats = NDArray[np.float64]
EPISODES = 12  # of a group that are played again
SURE = 0.9  # with which an interval holds what its level says, whatever groups the log happens to have
# An ensemble whose members disagree on a policy so many times more than the median ensemble's is excluded on it: the
# fold it never saw holds what this policy does, and the others know it. Disagreements otherwise differ by less than 2.
OUT_OF_DEPTH = 4.0
NOISES = (0.0, 0.3, 1.0)  # κ that are tried, in this order


@dataclasses.dataclass(frozen=True, eq=False)
class Calibration:
    """Of G held-out groups: the truth, what the ensemble that never saw a group predicted, and its disagreement."""

    truth: Floats  # [G, 1 + K] mean over the group's episodes
    predicted: Floats  # [G, 1 + K]
    disagreement: Floats  # [G], or [G, 1 + K] where each signal has its own
    fold: Groups  # [G] the ensemble that had not seen it

    @property
    def error(self) -> Floats:
        """[G, 1 + K] true minus predicted."""
        return np.asarray(self.truth - self.predicted)

    @functools.cached_property
    def weights(self) -> Floats:
        """[2, 1 + K]: the scale without disagreement, and what a unit of disagreement adds."""
        found = np.zeros((2, self.truth.shape[1]))
        on_the_way = np.broadcast_to(self._by_signal(self.disagreement), self.truth.shape)
        for k, size in enumerate(np.abs(self.error).T):
            least = 0.1 * max(float(np.median(size)), 1e-6)
            found[:, k] = nnls(np.column_stack([np.ones(len(size)), on_the_way[:, k]]), size)[0]
            found[0, k] += least
        return found

    def _by_signal(self, disagreement: Floats | float) -> Floats:
        found = np.asarray(disagreement)
        return found if self.disagreement.ndim > 1 else found[..., None]

    def scale(self, disagreement: Floats | float) -> Floats:
        """[..., 1 + K] what errors are measured in, at disagreements [...], or [..., 1 + K]."""
        return np.asarray(self.weights[0] + self.weights[1] * self._by_signal(disagreement))

    @functools.cached_property
    def scores(self) -> Floats:
        """[G, 1 + K] errors in scales."""
        return np.asarray(self.error / self.scale(self.disagreement))

    def factor(self, level: float) -> Floats:
        """[1 + K] how many scales hold the truth on both sides, at this level."""
        return _wide(np.abs(self.scores), level)

    def interval(self, value: Floats, disagreement: Floats, level: float) -> Floats:
        """[1 + K, 2] what holds the truth, given each ensemble's prediction [F, 1 + K] and disagreement [F].

        An ensemble that is excluded predicts NaN; its groups are excluded either.
        """
        value, scale, scores = self._voices(value, disagreement)
        width = np.abs(scores) * scale
        return np.stack([-_wide(width - value, level), _wide(value + width, level)], axis=-1)

    def bounds(self, value: Floats, disagreement: Floats, level: float) -> tuple[Floats, Floats]:
        """[1 + K] what the truth is not below, and not above, each at this level; told as `interval` is."""
        value, scale, scores = self._voices(value, disagreement)
        return -_quantile(-value - scores * scale, level), _quantile(value + scores * scale, level)

    def _voices(self, value: Floats, disagreement: Floats) -> tuple[Floats, Floats, Floats]:
        """Of every group that is included [≤ G, 1 + K]: its ensemble's prediction and scale, and the group's score."""
        included = np.isfinite(value[self.fold, 0])
        fold = self.fold[included]
        return value[fold], self.scale(disagreement)[fold], self.scores[included]

    def coverage(self, level: float) -> Floats:
        """[1 + K] share of the groups whose truth lies in the interval made from all other groups."""
        held = []
        for g in range(len(self.truth)):
            left = np.arange(len(self.truth)) != g
            rest = Calibration(self.truth[left], self.predicted[left], self.disagreement[left], self.fold[left])
            held.append(np.abs(self.error[g]) <= rest.factor(level) * rest.scale(self.disagreement[g]))
        return np.asarray(np.mean(held, axis=0))

    @property
    def skill(self) -> Floats:
        """[1 + K] the share of what varies between groups that was predicted; 0 or less: their mean tells as much."""
        unknown, varies = np.square(self.error).mean(axis=0), self.truth.var(axis=0)
        return np.where(varies > 0, 1 - unknown / np.where(varies > 0, varies, 1), 1.0)

    @property
    def varying(self) -> Floats:
        """[G, k] errors of the costs that vary between groups; of the reward, where none does."""
        varies = self.truth.std(axis=0)[1:] > 0
        return self.error[:, 1:][:, varies] if varies.any() else self.error[:, :1]

    @property
    def one_sided(self) -> float:
        """|mean error| in its standard errors, the largest."""
        told = self.varying
        root = np.sqrt(np.mean(told**2, axis=0) / len(told))
        return float((np.abs(told.mean(axis=0)) / np.maximum(root, 1e-12)).max())


def _quantile(scores: Floats, level: float) -> Floats:
    """The conformal quantile [1 + K]: of n scores the ⌈(n + 1)·level⌉-th, the largest where n is too small for it."""
    rank = min(len(scores), math.ceil((len(scores) + 1) * level))
    return np.asarray(np.sort(scores, axis=0)[rank - 1])


def _wide(scores: Floats, level: float) -> Floats:
    """[1 + K] the order statistic of n scores that covers the level with probability SURE over the draw of the groups.

    The r-th of n covers a share of Beta(r, n + 1 − r); the conformal quantile does so on average only, and with some
    forty groups every second dataset would get less.
    """
    rank = min(len(scores), int(binom.ppf(SURE, len(scores), level)) + 1)
    return np.asarray(np.sort(scores, axis=0)[rank - 1])


def calibrate(
    data: Dataset, ensembles: Sequence[Ensembles], groups: Groups, fold: Groups, clones: MLP, seed: int
) -> tuple[Ensembles, Calibration]:
    """Play every group's episodes again in the ensemble of its fold [G]; the ensemble with the best κ, and its errors.

    Of several ensembles, ensembles alike but learned in different ways, each ensemble keeps one. `clones` are the
    groups' feedback, batched over groups.
    """
    rng = np.random.default_rng([seed, 6])
    chosen = np.stack([np.resize(rng.permutation(np.flatnonzero(groups == g)), EPISODES) for g in range(len(fold))])
    truth = np.column_stack([data.reward_return, data.cost_return])[chosen].mean(axis=1)

    def best_noise(ensemble: Ensembles) -> tuple[Ensembles, Calibration]:
        found = []
        for kappa in NOISES:
            drawn = eqx.tree_at(lambda e: e.noise, ensemble, jnp.asarray(kappa, jnp.float32))
            sums, disagreement = _replay(data, drawn, chosen, fold, clones, seed)
            found.append((drawn, Calibration(truth, sums.mean(axis=1), disagreement.mean(axis=1), fold)))
            if found[-1][1].one_sided <= 1:
                break
        return min(found, key=lambda one: one[1].one_sided)

    found = [best_noise(ensemble) for ensemble in ensembles]
    kept = choose(np.stack([one.varying for _, one in found]), fold, ensembles[0].folds)
    return found[kept[0]] if (kept == kept[0]).all() else best_noise(mixed(ensembles, kept.tolist()))


def choose(errors: Floats, fold: Groups, folds: int) -> NDArray[np.int64]:
    """[F] which of W ways each ensemble keeps: the least mean |error| [W, G, k], on the groups of other folds alone.

    So what is measured on a fold had no part in choosing for it. Errors of each column are in their mean.
    """
    size = np.abs(errors)
    size = (size / np.maximum(size.mean(axis=(0, 1)), 1e-12)).mean(axis=2)
    return np.array([(size * (fold != f)).sum(axis=1).argmin() for f in range(folds)])


def _replay(
    data: Dataset, ensemble: Ensembles, episode: NDArray[np.int64], fold: Groups, clones: MLP, seed: int
) -> tuple[Floats, Floats]:
    """Sums [G, n, 1 + K] and disagreements [G, n] of episodes [G, n], each group's in the ensemble of its fold."""
    # Folds side by side; one with fewer groups plays some of them twice.
    most = int(np.bincount(fold).max())
    order = np.stack([np.resize(np.flatnonzero(fold == f), most) for f in range(ensemble.folds)])  # [F, g]
    played = episode[order]  # [F, g, n]
    horizon = int(data.episode_length[played].max())
    time = np.arange(horizon).reshape(-1, 1, 1, 1)
    going = time < data.episode_length[played]
    rows = data.episode_start[played] + np.minimum(time, data.episode_length[played] - 1)  # [H, F, g, n]
    low, high = data.action.min(axis=0), data.action.max(axis=0)
    own = jax.tree.map(lambda x: x[order], clones)
    given = (jnp.asarray(x) for x in (data.obs[rows], data.action[rows], going, low, high))
    played_again = _replay_all(ensemble, own, *given, seed, discrete_actions=bool(data.discrete_actions))
    sums, disagreement = (np.asarray(x, np.float64) for x in played_again)
    at = np.array([np.argwhere(order == g)[0] for g in range(len(fold))]).T
    return sums[at[0], at[1]], disagreement[at[0], at[1]]


@functools.partial(jax.jit, static_argnames="discrete_actions")
def _replay_all(
    ensemble: Ensembles,
    clones: MLP,
    obs: Array,
    action: Array,
    going: Array,
    low: Array,
    high: Array,
    seed: int,
    discrete_actions: bool,
) -> tuple[Array, Array]:
    """obs [H, F, g, n, S] → sums [F, g, n, 1 + K], disagreements [F, g, n]. Of discrete actions, the likeliest."""
    c, shape = ensemble.normaliser, obs.shape[1:4]

    def react(state: Array) -> Array:
        return jnp.tanh(clones(c.standardised(state)))

    def flat(x: Array) -> Array:
        return x.reshape(shape[0], -1, x.shape[-1])

    def step(carry: Any, now: Any) -> tuple[Any, None]:
        (memory, state, not_done, total, disagreement), (key, o, a, on) = carry, now
        reacted = a + react(state) - react(o)
        chosen = jax.nn.one_hot(reacted.argmax(-1), a.shape[-1]) if discrete_actions else jnp.clip(reacted, low, high)
        memory, *drawn = ensemble.step(key, memory, flat(state), flat(chosen))
        after, signal, end, unsure = (x.reshape(*shape, *x.shape[2:]) for x in drawn)
        not_done = not_done & on
        counted = jnp.stack([not_done * unsure, not_done], -1)
        return (memory, after, not_done & ~end, total + not_done[..., None] * signal, disagreement + counted), None

    blank = ensemble.blank((shape[0], shape[1] * shape[2]))
    sums, disagreements = jnp.zeros((*shape, 1 + len(c.cost))), jnp.zeros((*shape, 2))
    carry = blank, obs[0], jnp.ones(shape, bool), sums, disagreements
    keys = jax.random.split(jax.random.key(seed), len(obs))
    found: Any = jax.lax.scan(step, carry, (keys, obs, action, going))[0]
    return found[-2], found[-1][..., 0] / found[-1][..., 1]


@dataclasses.dataclass(frozen=True, eq=False)
class Calibrated:
    """The ensemble's word on one policy: undiscounted episode sums, reward first and then the K costs."""

    value: Floats  # [1 + K]
    interval: Floats  # [1 + K, 2]
    above: Floats  # [K] upper bound of each mean cost, one-sided at the level
    below: Floats  # [K] lower bound likewise
    simulated: Floats  # [F · n, 1 + K] the episodes, those of the ensembles that are included one after another

    @staticmethod
    def of(played: Rollouts, calibration: Calibration, largest: Floats, level: float = LEVEL) -> Calibrated:
        """largest [K]: what an episode can cost at most."""
        return Calibrated.judge(played.sums, played.disagreement.mean(axis=1), calibration, largest, level)

    @staticmethod
    def judge(
        sums: Floats, disagreement: Floats, calibration: Calibration, largest: Floats, level: float = LEVEL
    ) -> Calibrated:
        """From the episodes [F, n, 1 + K] simulated in each ensemble, and each one's disagreement [F] on the way."""
        included = disagreement <= OUT_OF_DEPTH * np.median(disagreement)
        episodes = sums[included].reshape(-1, sums.shape[-1])
        value = episodes.mean(axis=0)
        of_models, of_episodes = split_level(level)
        told = (np.where(included[:, None], sums.mean(axis=1), np.nan), disagreement, of_models)
        chance = norm.ppf((1 + of_episodes) / 2) * episodes.std(axis=0, ddof=1) / len(episodes) ** 0.5
        low, high = calibration.interval(*told).T
        low, high = np.minimum(low, value) - chance, np.maximum(high, value) + chance
        under, over = calibration.bounds(*told)
        under, over = np.maximum(value - under, 0), np.maximum(over - value, 0)  # how far the models may be off
        above, below = np.zeros(len(largest)), np.zeros(len(largest))
        for k, most in enumerate(largest):
            costs = np.clip(episodes[:, 1 + k], 0, most)
            shown = mean_upper(costs, most, of_episodes) if most > 0 else 0.0
            above[k] = min(shown + over[1 + k], most)
            below[k] = max(mean_lower(costs, of_episodes) - under[1 + k], 0.0)
            low[1 + k], high[1 + k] = max(low[1 + k], 0.0), min(max(high[1 + k], value[1 + k]), max(most, value[1 + k]))
        return Calibrated(value, np.stack([low, high], axis=1), above, below, episodes)

    def unknown(self, possible: Floats) -> Calibrated:
        """The same estimate where the data cannot carry an interval: everything that is possible [1 + K, 2]."""
        low, high = np.minimum(self.interval[:, 0], possible[:, 0]), np.maximum(self.interval[:, 1], possible[:, 1])
        return dataclasses.replace(self, interval=np.stack([low, high], axis=1), above=high[1:], below=low[1:])

    def within(self, limit: Sequence[float]) -> bool | None:
        """Whether all costs are shown to be within their limits (True), one to be over (False), or neither (None)."""
        if bool((self.above <= limit).all()):
            return True
        return False if bool((self.below > limit).any()) else None

    def share_over(self, limit: Sequence[float]) -> Floats:
        """[K] share of the simulated episodes over each limit."""
        return np.asarray((self.simulated[:, 1:] > np.asarray(limit)).mean(axis=0))

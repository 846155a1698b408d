"""Gradient-boosted trees (scikit-learn) for values and for choices, and the same trees as plain arrays.

    f(x, a) = baseline + Σ_m tree_m(x, a),      p(a | x) ∝ exp(baseline_a + Σ_m tree_m,a(x)/T)

A regression of values has the action as a categorical input, its first column. The arrays (`arrays`) are what an
exported policy holds: NumPy runs them without scikit-learn (`pdocrl.policies.row_policy`), and nothing is pickled.
"""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy import optimize, special

from pdocrl.data.named_columns import Floats, Ints
from pdocrl.errors import MissingExtraError, PdocrlError

MOST_ACTIONS = 200  # scikit-learn's trees split on at most 255 categories
MOST_ROWS_OF_ONE_THREAD = 40_000
ABSENT = -1e9  # the score of an action that was never seen


def check_installed() -> None:
    """Raise where scikit-learn is missing."""
    if find_spec("sklearn") is None:
        raise MissingExtraError("learning from columns", "trees")


def threads(rows: int) -> AbstractContextManager[Any]:
    """One thread for trees of few rows: threads that wait for one another cost more there than they save, and on a busy
    machine many times as much."""
    import sklearn.ensemble  # noqa: F401  # only what is loaded is limited
    from threadpoolctl import threadpool_limits

    return nullcontext() if rows > MOST_ROWS_OF_ONE_THREAD else threadpool_limits(1, user_api="openmp")


@dataclasses.dataclass(frozen=True, eq=False)
class ValueTrees:
    """Q(x, a): one regression with the action as an input."""

    model: Any
    codes: Ints  # [A] the action's category in the model; 0 for actions that were never seen

    @classmethod
    def fit(cls, x: Floats, action: Ints, y: Floats, actions: int, seed: int = 0, leaves: int = 24) -> ValueTrees:
        """Regress y [n] on x [n, D] and the action [n] of `actions`."""
        from sklearn.ensemble import HistGradientBoostingRegressor

        if actions > MOST_ACTIONS:
            raise PdocrlError(f"{actions} actions: trees split on at most {MOST_ACTIONS}; merge rare actions.")
        seen = np.unique(action)
        codes = np.zeros(actions, np.int64)
        codes[seen] = np.arange(len(seen))
        model = HistGradientBoostingRegressor(
            max_iter=40,
            learning_rate=0.2,
            max_leaf_nodes=leaves,
            min_samples_leaf=20,
            l2_regularization=1.0,
            early_stopping=False,
            categorical_features=[0],
            random_state=seed,
        )
        return cls(model.fit(np.c_[codes[action], x], y), codes)

    def __call__(self, x: Floats, action: Ints) -> Floats:
        """[n]"""
        return np.asarray(self.model.predict(np.c_[self.codes[action], x]), np.float64)

    def arrays(self) -> dict[str, Any]:
        """The trees; input columns are the action's code and then x."""
        found = _arrays([[stage[0]] for stage in self.model._predictors], [0])
        baseline = np.ravel(self.model._baseline_prediction).astype(np.float64)
        return {**found, "baseline": baseline, "codes": self.codes}


@dataclasses.dataclass(frozen=True, eq=False)
class ChoiceTrees:
    """p(a | x): boosted multinomial logistic regression, its trees shrunk by a temperature fitted on kept episodes.

    The baseline is not shrunk, so that choices no column explains keep their frequencies.
    """

    model: Any  # None where only one action was seen
    classes: Ints  # the actions that were seen
    actions: int
    temperature: float = 1.0

    @classmethod
    def fit(cls, x: Floats, action: Ints, actions: int, episode: Ints, seed: int = 0, trees: int = 40) -> ChoiceTrees:
        """Learn from four fifths of the episodes, set the temperature on the rest, then learn from all."""
        rng = np.random.default_rng(seed)
        names = np.unique(episode)
        kept = np.isin(episode, names[rng.random(len(names)) < 0.2])
        temperature = 1.0
        if min(kept.sum(), (~kept).sum()) >= 50:
            first = cls._fitted(x[~kept], action[~kept], actions, seed, trees)
            scores, known = first(x[kept]), np.isin(action[kept], first.classes)
            if known.any() and len(first.classes) > 1:
                temperature = _temperature(first.baseline, scores[known], action[kept][known])
        return dataclasses.replace(cls._fitted(x, action, actions, seed, trees), temperature=temperature)

    @classmethod
    def _fitted(cls, x: Floats, action: Ints, actions: int, seed: int, trees: int) -> ChoiceTrees:
        from sklearn.ensemble import HistGradientBoostingClassifier

        classes = np.unique(action)
        if len(classes) < 2:
            return cls(None, classes, actions)
        model = HistGradientBoostingClassifier(
            max_iter=trees,
            learning_rate=0.12,
            max_leaf_nodes=12,
            min_samples_leaf=20,
            l2_regularization=1.0,
            early_stopping=False,
            random_state=seed,
        )
        return cls(model.fit(x, action), classes, actions)

    @property
    def baseline(self) -> Floats:
        """[A] scores before any tree."""
        found = np.full(self.actions, ABSENT)
        found[self.classes] = 0.0
        if self.model is not None:
            found[self._columns] = np.ravel(self.model._baseline_prediction)
        return found

    @property
    def _columns(self) -> Ints:
        """Of two actions scikit-learn scores one."""
        return self.classes if len(self.classes) > 2 else self.classes[1:]

    def __call__(self, x: Floats) -> Floats:
        """[n, A] scores; actions never seen have `ABSENT`."""
        found = np.tile(self.baseline, (len(x), 1))
        if self.model is not None:
            raw = np.asarray(self.model._raw_predict(np.asarray(x, np.float64))).reshape(len(x), -1)
            found[:, self._columns] += (raw - found[:, self._columns]) / self.temperature
        return found

    def probabilities(self, x: Floats) -> Floats:
        """[n, A]"""
        return np.asarray(special.softmax(self(x), axis=1), np.float64)

    def arrays(self) -> dict[str, Any]:
        """The trees, one set per action."""
        if self.model is None:
            return {**_arrays([], []), "baseline": self.baseline}
        found = _arrays(self.model._predictors, self._columns.tolist())
        return {**found, "value": found["value"] / self.temperature, "baseline": self.baseline}


def _temperature(baseline: Floats, scores: Floats, action: Ints) -> float:
    """T of the least log loss."""
    logged = np.arange(len(action)), action

    def loss(log_t: float) -> float:
        scaled = baseline + (scores - baseline) / np.exp(log_t)
        return float((special.logsumexp(scaled, axis=1) - scaled[logged]).mean())

    return float(np.exp(optimize.minimize_scalar(loss, bounds=(-1.0, 5.0), method="bounded").x))


def _arrays(stages: list[list[Any]], outputs: list[int]) -> dict[str, Any]:
    """Nodes of all trees side by side: where a node is a leaf, `left` is −1 and `value` its value.

    A node goes left where x[feature] ≤ threshold, or, if `category` ≥ 0, where row `category` of `sets` has x[feature].
    """
    roots: list[int] = []
    columns: list[int] = []
    sets: list[Any] = []
    size = 0
    parts: dict[str, list[Any]] = {name: [] for name in ("feature", "threshold", "left", "right", "value", "category")}
    for stage in stages:
        for output, tree in zip(outputs, stage, strict=True):
            nodes = tree.nodes
            leaf = nodes["is_leaf"].astype(bool)
            by_set = nodes["is_categorical"].astype(bool) & ~leaf
            roots.append(size)
            columns.append(output)
            parts["feature"].append(np.where(leaf, 0, nodes["feature_idx"]))
            parts["threshold"].append(np.where(leaf | by_set, 0.0, nodes["num_threshold"]))
            parts["left"].append(np.where(leaf, -1, nodes["left"].astype(np.int64) + size))
            parts["right"].append(np.where(leaf, -1, nodes["right"].astype(np.int64) + size))
            parts["value"].append(np.where(leaf, nodes["value"], 0.0))
            parts["category"].append(np.where(by_set, nodes["bitset_idx"].astype(np.int64) + len(sets), -1))
            sets += list(tree.raw_left_cat_bitsets)
            size += len(nodes)
    bits = np.array(sets, np.uint32).reshape(-1, 8)
    members = (bits[:, :, None] >> np.arange(32, dtype=np.uint32)) & 1
    kinds = {"feature": np.int32, "threshold": np.float64, "left": np.int32, "right": np.int32, "value": np.float64}
    found = {name: np.concatenate([*part, []]).astype(kinds.get(name, np.int32)) for name, part in parts.items()}
    return {
        **found,
        "roots": np.array(roots, np.int32),
        "outputs": np.array(columns, np.int32),
        "sets": members.reshape(len(bits), 256).astype(bool),
    }

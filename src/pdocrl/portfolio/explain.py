"""Why a policy does what it does: columns that matter, a small tree that imitates it, similar logged cases of a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pdocrl.approximate.rows import Rows
from pdocrl.data.named_columns import Floats
from pdocrl.errors import PdocrlError
from pdocrl.policies.row_policy import RowError
from pdocrl.portfolio.candidates import Candidate, Learner
from pdocrl.portfolio.heldout import Bench
from pdocrl.portfolio.record import ColumnImportance, SolvedLog, Surrogate
from pdocrl.records import Part

ASKED = 2_000  # rows of which choices are compared
LEAVES = 8


class SimilarCase(Part, frozen=True, kw_only=True):
    """A logged row like the one asked about."""

    distance: float  # in standard deviations, weighted by importance
    values: dict[str, object]
    action: str
    decider: str | None
    to_come: dict[str, float]  # signal → what was recorded from there on


class ActionOutlook(Part, frozen=True, kw_only=True):
    """What one action would lead to."""

    action: str
    policy: float  # probability under the policy
    log: float  # estimated probability under the log's deciders
    predicted: dict[str, float]  # signal → total to come if the log's deciders go on afterwards


class RowExplanation(Part, frozen=True, kw_only=True):
    """One row."""

    chosen: str
    actions: list[ActionOutlook]
    similar: list[SimilarCase]


def importance(candidate: Candidate, rows: Rows, seed: int) -> list[ColumnImportance]:
    """Columns, the most important first."""
    x = _some(rows, seed)
    chosen = candidate.policy.chances(x).argmax(1)
    order = np.random.default_rng(seed).permutation(len(x))
    found = []
    for name, places in _places(candidate, rows):
        shuffled = x.copy()
        shuffled[:, places] = x[order][:, places]
        changed = float((candidate.policy.chances(shuffled).argmax(1) != chosen).mean())
        found.append(ColumnImportance(column=name, changed=changed))
    return sorted(found, key=lambda one: -one.changed)


def surrogate(learner: Learner, candidate: Candidate, bench: Bench) -> Surrogate | None:
    """A tree of at most `LEAVES` leaves, learned from the policy's choices on the learning part."""
    from sklearn.tree import DecisionTreeClassifier

    x = _some(learner.rows, learner.seed, 5 * ASKED)
    chosen = candidate.policy.chances(x).argmax(1)
    tree = DecisionTreeClassifier(max_leaf_nodes=LEAVES, min_samples_leaf=20, random_state=learner.seed).fit(x, chosen)
    judged = bench.rows.x
    predicted = tree.predict(judged)
    asked = np.flatnonzero(np.arange(len(judged)) % max(1, len(judged) // ASKED) == 0)
    fidelity = float((predicted[asked] == candidate.policy.chances(judged[asked]).argmax(1)).mean())
    held, _ = bench.judge(np.eye(learner.rows.actions)[predicted])
    lines = _lines(tree.tree_, tree.classes_, candidate, learner.rows)
    return Surrogate(lines=lines, fidelity=fidelity, held_out=held)


def row(
    learner: Learner, candidate: Candidate, rows: Rows, given: dict[str, Any], step: int | None, similar: int
) -> RowExplanation:
    """For one row of columns by name."""
    policy = candidate.policy
    try:
        x = policy.inputs({name: [value] for name, value in given.items()}, 0 if step is None else step)
    except RowError as error:
        raise PdocrlError(f"the row to explain: {error}") from None
    chances = policy.chances(x)[0]
    logged = learner.behaviour.probabilities(x)[0]
    names = ["reward", *rows.names]
    outlook = []
    for a, action in enumerate(policy.actions):
        values = [q(x, np.array([a]))[0] for q in learner.values]
        predicted = {s: float(rows.sense[j] * values[j]) for j, s in enumerate(names)}
        outlook.append(
            ActionOutlook(action=str(action), policy=float(chances[a]), log=float(logged[a]), predicted=predicted)
        )
    weight = _weights(candidate, rows, learner.seed)
    distance = np.sqrt((((rows.x - x) * weight) ** 2).sum(1))
    frame = rows.log.frame()
    nearest = np.argsort(distance, kind="stable")[:similar]
    cases = [
        SimilarCase(
            distance=float(distance[i]),
            values={name: _plain(values[i]) for name, values in frame.items()},
            action=str(rows.log.actions[rows.log.action[i]]),
            decider=None if rows.log.decider is None else rows.log.deciders[rows.log.decider[i]],
            to_come={s: float(rows.sense[j] * rows.to_go[j, i]) for j, s in enumerate(names)},
        )
        for i in nearest
    ]
    return RowExplanation(chosen=str(policy.actions[int(chances.argmax())]), actions=outlook, similar=cases)


def summary(record: SolvedLog) -> str:
    """One paragraph."""
    one = record.policy
    values = ", ".join(f"{signal} {held.value:.4g} ± {2 * held.error:.2g}" for signal, held in one.held_out.items())
    everyone = ", ".join(f"{signal} {value:.4g}" for signal, value in record.logged.items())
    limits = " and ".join(record.limits) or "no limits"
    return (
        f"{record.chosen} ({one.what}): {record.status}; {record.why}. Limits: {limits}. Held-out estimate "
        f"± two standard errors, {record.unit}: {values}; the log itself: {everyone}."
    )


def _some(rows: Rows, seed: int, most: int = ASKED) -> Floats:
    """[≤ most, D] inputs of rows drawn at random."""
    if len(rows) <= most:
        return rows.x
    return rows.x[np.sort(np.random.default_rng(seed).choice(len(rows), most, replace=False))]


def _places(candidate: Candidate, rows: Rows) -> list[tuple[str, list[int]]]:
    """The input columns of each named column, and of the step."""
    found, at = [], 0
    for column in candidate.policy.columns:
        width = (len(column["categories"]) if column["kind"] == "categorical" else 1) + int(column["flagged"])
        found.append((str(column["name"]), list(range(at, at + width))))
        at += width
    return [*found, ("step", [at])] if rows.timed else found


def _weights(candidate: Candidate, rows: Rows, seed: int) -> Floats:
    """[D] √importance over the deviation of an input."""
    share = {one.column: one.changed for one in importance(candidate, rows, seed)}
    found = np.zeros(rows.x.shape[1])
    for name, places in _places(candidate, rows):
        found[places] = np.sqrt(share[name] + 0.01)
    return np.asarray(found / np.maximum(rows.x.std(0), 1e-9), np.float64)


def _lines(tree: Any, classes: Any, candidate: Candidate, rows: Rows) -> list[str]:
    """One line per leaf: conditions in the columns' own units, and the action. Branches of one action are one leaf."""
    names = _input_names(candidate, rows)
    lines: list[str] = []

    def actions(node: int) -> set[int]:
        if tree.children_left[node] < 0:
            return {int(classes[int(tree.value[node][0].argmax())])}
        return actions(int(tree.children_left[node])) | actions(int(tree.children_right[node]))

    def visit(node: int, conditions: Sequence[str]) -> None:
        if len(below := actions(node)) == 1:
            action = candidate.policy.actions[below.pop()]
            share = tree.n_node_samples[node] / tree.n_node_samples[0]
            lines.append(f"{_conditions(conditions) or 'always'}: {action} ({100 * share:.0f} % of rows)")
            return
        low, high = names(int(tree.feature[node]), float(tree.threshold[node]))
        visit(int(tree.children_left[node]), [*conditions, low])
        visit(int(tree.children_right[node]), [*conditions, high])

    visit(0, [])
    return lines


def _conditions(found: Sequence[str]) -> str:
    """In words; of several bounds of a column the last, which is the narrowest: `0.5 < crp ≤ 1.2 and ward is north`."""
    bounds: dict[str, dict[str, str]] = {}
    for one in found:
        name, sign, value = one.rpartition(" ≤ ") if " ≤ " in one else one.rpartition(" > ")
        bounds.setdefault(name or value, {})[sign] = value
    words = []
    for name, own in bounds.items():
        low, high = own.get(" > "), own.get(" ≤ ")
        if low is not None and high is not None:
            words.append(f"{low} < {name} ≤ {high}")
        else:
            words += [f"{name}{sign}{value}" if sign else name for sign, value in own.items()]
    return " and ".join(words)


def _input_names(candidate: Candidate, rows: Rows) -> Any:
    """(input, threshold) → the two conditions in words."""
    kinds: list[tuple[str, str, float, float]] = []
    for column in candidate.policy.columns:
        name, mean, scale = str(column["name"]), float(column["mean"]), float(column["scale"])
        if column["kind"] == "categorical":
            kinds += [(f"{name} is {category}", "flag", 0.0, 1.0) for category in column["categories"]]
        else:
            kinds.append((name, "flag" if column["kind"] == "boolean" else "number", mean, scale))
        if column["flagged"]:
            kinds.append((f"{name} is missing", "flag", 0.0, 1.0))
    if rows.timed:
        kinds.append(("step", "number", 0.0, 1.0))

    def words(at: int, threshold: float) -> tuple[str, str]:
        name, kind, mean, scale = kinds[at]
        if kind == "flag":
            return f"not {name}", name
        value = f"{mean + scale * threshold:.4g}"
        return f"{name} ≤ {value}", f"{name} > {value}"

    return words


def _plain(value: Any) -> object:
    found = value.item() if isinstance(value, np.generic) else value
    return None if found is None or found != found else found

"""A solved log of columns as tables for the terminal; every title says the unit."""

from __future__ import annotations

from pdocrl.limits import Limit
from pdocrl.portfolio.explain import RowExplanation
from pdocrl.portfolio.record import HeldOut, Measured, SolvedLog
from pdocrl.table import DASH, Table

WORDS = {"shown": "yes, shown", "within": "probably; not tested", "unclear": "not known", "over": "probably not"}


def result(record: SolvedLog) -> Table:
    """The log, its best decider within the limits, and the policy, beside the limits."""
    best = record.best_decider
    limits = {Limit.parse(text).name: text for text in record.limits}
    rows = [
        [
            signal,
            f"{record.logged[signal]:.4g}",
            *([] if best is None else [_measured(best.means[signal])]),
            f"{held.value:.4g} ({held.value - 1.96 * held.error:.4g} … {held.value + 1.96 * held.error:.4g})",
            limits.get(signal, DASH),
            WORDS[record.policy.limits[limits[signal]]] if signal in limits else DASH,
        ]
        for signal, held in record.policy.held_out.items()
    ]
    decider = [] if best is None else [f"best decider within the limits ({best.name})"]
    heads = ["per episode" if "total" in record.unit else "discounted", "the log", *decider]
    heads += ["this policy", "limit", "satisfied"]
    return Table.of(heads, rows, f"{record.unit.capitalize()}, with 95 % intervals")


def deciders(record: SolvedLog) -> Table:
    """Who decided, and what came of it."""
    signals = list(record.deciders[0].means)
    heads = ["decider", "episodes", *signals, *(f"episodes with {one}" for one in record.limits), "satisfied"]
    rows = [
        [
            one.name,
            f"{one.episodes}" + (f" ({one.cut_short} cut short)" if one.cut_short else ""),
            *(_measured(one.means[signal]) for signal in signals),
            *(_share(one.within[limit]) for limit in record.limits),
            one.satisfied if record.limits else DASH,
        ]
        for one in record.deciders
    ]
    return Table.of(heads, rows, f"The log by decider: mean {record.unit}, 95 % intervals")


def candidates(record: SolvedLog) -> Table:
    """Held-out estimates, the chosen one first."""
    signals = list(record.policy.held_out)
    order = sorted(record.candidates, key=lambda one: (one.name != record.chosen, -one.held_out["reward"].value))
    rows = [
        [
            f"{one.name} *" if one.name == record.chosen else one.name,
            *(held(one.held_out[signal]) for signal in signals),
            *(one.limits[limit] for limit in record.limits),
            one.held_out["reward"].estimator,
            DASH
            if one.second is None
            else " / ".join(f"{one.second[signal]:.4g}" for signal in signals if signal in one.second),
        ]
        for one in order
    ]
    heads = ["candidate (* chosen)", *signals, *record.limits, "estimated by", "second opinion (trees)"]
    return Table.of(heads, rows, f"Held-out estimates ± one standard error: {record.unit}")


def validation(record: SolvedLog) -> Table:
    """Estimators where the answer is known."""
    rows = [
        [one.decider, one.signal, one.estimator, f"{one.predicted:.4g}", f"{one.realised:.4g}", f"{one.error:.2g}"]
        for one in record.validation
    ]
    heads = ["decider", "signal", "estimator", "predicted from others", "realised", "± one error"]
    return Table.of(heads, rows, f"Estimators tried where the answer is known: {record.unit}")


def policy(record: SolvedLog) -> Table:
    """What the chosen policy looks at."""
    rows: list[list[object]] = [
        [one.column, f"{100 * one.changed:.0f} %"] for one in record.importance if one.changed > 0.005
    ]
    rows = rows or [["none", "less than 0.5 %"]]
    return Table.of(["column", "choices that change if it is shuffled"], rows[:10], "What the policy looks at")


def explained(found: RowExplanation, record: SolvedLog) -> list[Table]:
    """One row: actions, then similar cases."""
    signals = list(found.actions[0].predicted)
    actions = [
        [
            f"{one.action} *" if one.action == found.chosen else one.action,
            f"{100 * one.policy:.0f} %",
            f"{100 * one.log:.0f} %",
            *(f"{one.predicted[signal]:.4g}" for signal in signals),
        ]
        for one in found.actions
    ]
    heads = ["action (* most probable)", "policy", "log", *(f"{signal} to come" for signal in signals)]
    first = Table.of(heads, actions, "The row: actions, and totals to come if the log's deciders go on afterwards")
    cases = [
        [f"{one.distance:.2f}", *one.values.values(), one.action, one.decider or DASH, *one.to_come.values()]
        for one in found.similar
    ]
    names = list(found.similar[0].values) if found.similar else []
    heads = ["distance", *names, "action", "decider", *(f"{signal} to come" for signal in signals)]
    return [first, Table.of(heads, cases, "Similar logged cases, and what was recorded from there on")]


def held(one: HeldOut) -> str:
    """ "4.2 ± 0.3"; with a question mark where the log has too little like the policy."""
    if one.estimator == "none":
        return "unknown"
    return f"{one.value:.4g} ± {one.error:.2g}{'' if one.overlap else ' ?'}"


def _measured(one: Measured) -> str:
    if one.interval is None:
        return f"{one.value:.4g}"
    return f"{one.value:.4g} ({one.interval[0]:.4g} … {one.interval[1]:.4g})"


def _share(one: Measured) -> str:
    if one.interval is None:
        return DASH
    return f"{100 * one.value:.0f} % ({100 * one.interval[0]:.0f} … {100 * one.interval[1]:.0f})"

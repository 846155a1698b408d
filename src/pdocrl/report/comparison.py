"""Methods in the same episodes: what the dynamics model predicted of each before it was played, and what it did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pdocrl.evaluation.score import RunScore
from pdocrl.records import Part, Record
from pdocrl.report.document import Section, Tables
from pdocrl.report.record import Results
from pdocrl.table import DASH, Table, Text, amount


class PredictedRun(Part, frozen=True, kw_only=True):
    """Model-based evaluation of one policy, before it was played."""

    agent: str
    cost_limit: list[float]
    reward: float
    cost: list[float]  # [K] an upper estimate, with its margin
    safe: bool


class Predictions(Record, frozen=True, kw_only=True):
    """Of every policy, in the order of methods and limits."""

    step: int  # of the training whose dynamics model the policies were rolled out in
    policies: list[PredictedRun]


def comparison(records: Sequence[Results], predictions: Predictions | None) -> list[Section]:
    """The opening of a page on several trainings that were played at the same limits, the recommended one first."""
    title = "Would it be safe? First the data answers, then the simulator"
    table = Tables([compare(records, predictions).html()])
    return [Section(title if predictions else "In the same episodes", [table])]


def compare(records: Sequence[Results], predictions: Predictions | None) -> Table:
    """A line per limit and method: predicted from the data alone, and played."""
    by_run = {} if predictions is None else {(one.agent, tuple(one.cost_limit)): one for one in predictions.policies}
    lines = []
    for method, played in _by_limit(records):
        told = by_run.get((method, tuple(played.cost_limit)))
        over = int((played.costs > played.cost_limit).any(axis=1).sum())
        before = []
        if told is not None:
            before = [
                Text(amount(told.cost[0], 1), value=told.cost[0]),
                Text(amount(told.reward), value=told.reward),
                _answer(told.safe),
            ]
        elif predictions is not None:
            before = [Text(DASH, value="")] * 3
        after = [
            Text(amount(played.cost[0], 1), "safe" if played.safe else "unsafe", value=played.normalized_cost),
            Text(amount(played.reward), value=played.reward),
            Text(f"{over} of {len(played.episodes)}", value=over),
            _answer(played.safe),
        ]
        lines.append((Text(f"{method}, limit {played.limit}"), *before, *after))
    predicted = ["Predicted cost", "Predicted return", "Would it be safe?"] if predictions else []
    heads = ["Policy", *predicted, "Played cost", "Played return", "Episodes over", "Was it safe?"]
    names = " and ".join(record.methods[0] for record in records)
    note = f"{names} play the same episodes. Safe: mean cost within the limit."
    if predictions is not None:
        note += (
            " Predicted: before anything was played, by rollouts in the dynamics models that dial learned from the log "
            "and for dial also by fitted Q evaluation; the cost is an upper bound, with dial's margin."
        )
    return Table("", "Would it be safe?", tuple(("", head) for head in heads), tuple(lines), (note,))


def _answer(safe: bool) -> Text:
    return Text("✓ yes", "yes") if safe else Text("✗ no", "no")


def _by_limit(records: Sequence[Results]) -> Iterator[tuple[str, RunScore]]:
    """Limit after limit, and at each the methods in their order."""
    for limit in records[0].limits:
        for record in records:
            yield from ((record.methods[0], played) for played in record.runs if played.limit == limit)

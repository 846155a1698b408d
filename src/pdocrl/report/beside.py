"""Methods beside each other in the same episodes: what the data said of each beforehand, what it did, and films."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pdocrl.records import Part, Record
from pdocrl.report.document import Films, Section, Tables, as_image
from pdocrl.report.film import Film, find_film, make_film
from pdocrl.report.record import PlayedRun, Results, limit_name
from pdocrl.table import DASH, Table, Text, amount

EVERY, WIDTH = 5, 240  # steps between two pictures of a film, and its pixels


class Foretold(Part, frozen=True, kw_only=True):
    """What was said of one policy before it was played."""

    agent: str
    cost_limit: list[float]
    reward: float
    cost: list[float]  # [K] an upper bound, with its margin
    safe: bool


class SafetyForecast(Record, frozen=True, kw_only=True):
    """What the data alone said of every policy, in the order of methods and limits."""

    step: int  # of the training whose models predicted them
    policies: list[Foretold]


def beside(records: Sequence[Results], forecast: SafetyForecast | None) -> list[Section]:
    """The opening of a page on several trainings that were played at the same limits, the recommended one first."""
    table = answers(records, forecast).html()
    title = "Would it be safe? First the data answers, then the simulator"
    return [Section(title if forecast else "In the same episodes", [Tables([table])]), _films(records)]


def answers(records: Sequence[Results], forecast: SafetyForecast | None) -> Table:
    """A line per limit and method: predicted from the data alone, and played."""
    said = {} if forecast is None else {(one.agent, tuple(one.cost_limit)): one for one in forecast.policies}
    lines = []
    for method, played in _in_turn(records):
        told = said.get((method, played.asked))
        over = int((played.costs > played.asked).any(axis=1).sum())
        earned = float(played.returns.mean())
        before = []
        if forecast is not None and told is not None:
            before = [
                Text(amount(told.cost[0], 1), value=told.cost[0]),
                Text(amount(told.reward), value=told.reward),
                _answer(told.safe),
            ]
        elif forecast is not None:
            before = [Text(DASH, value="")] * 3
        after = [
            Text(amount(float(played.costs.mean()), 1), "safe" if played.safe else "unsafe", value=played.cost),
            Text(amount(earned), value=earned),
            Text(f"{over} of {len(played.costs)}", value=over),
            _answer(played.safe),
        ]
        lines.append((Text(f"{method}, limit {played.limit}"), *before, *after))
    foretold = ["Predicted cost", "Predicted return", "Would it be safe?"] if forecast else []
    heads = ["Policy", *foretold, "Played cost", "Played return", "Episodes over", "Was it safe?"]
    names = " and ".join(record.methods[0] for record in records)
    note = f"{names} play the same episodes. Safe: mean cost within the limit."
    if forecast is not None:
        note += (
            " Predicted: before anything was played, from rollouts in the dynamics models that dial learned from the "
            "log, and for dial also by fitted Q evaluation; the cost is an upper bound, with dial's margin."
        )
    return Table("", "Would it be safe?", tuple(("", head) for head in heads), tuple(lines), (note,))


def _answer(safe: bool) -> Text:
    return Text("✓ yes", "yes") if safe else Text("✗ no", "no")


def _in_turn(records: Sequence[Results]) -> Iterator[tuple[str, PlayedRun]]:
    """Limit after limit, and at each the methods in their order."""
    for limit in records[0].limits:
        for record in records:
            yield from ((record.methods[0], played) for played in record.runs if played.limit == limit)


def _films(records: Sequence[Results]) -> Section:
    """One episode again and again: under every limit of the first method, then by the others, who know no limit."""
    shown: list[tuple[str, str, str, str]] = []
    for number, record in enumerate(records):
        runs = [] if record.scores is None else record.scores.runs
        for run in runs if number == 0 else runs[:1]:
            limit = limit_name(run.cost_limit)
            film = _film(record, run.run, f"limit-{limit}")
            if film is not None:
                story = film.story
                title = f"{run.agent}, limit {limit}" if number == 0 else run.agent
                words = f"return {story.reward:,.0f}, cost {story.cost[0]:.0f}"
                shown.append((title, words, as_image(film.animation, "gif"), as_image(film.stills)))
    caption = (
        "The same start, played by each policy. A red frame marks a step that costs. The tighter the limit, the "
        "slower the ball."
    )
    return Section("Along the frontier", [Films(shown, caption)])


def _film(record: Results, number: int, name: str) -> Film | None:
    assert record.scores is not None
    (run,) = [run for run in record.scores.runs if run.run == number]
    return find_film(record, name) or make_film(record, run, name, EVERY, WIDTH)

"""A policy learned from a log of columns as a page: the deciders, the choice, what is known of it, why it does it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from markupsafe import Markup

from pdocrl.limits import Limit
from pdocrl.portfolio import explain, tables
from pdocrl.portfolio.export import RESULT
from pdocrl.portfolio.record import CandidateFound, SolvedLog
from pdocrl.records import read_record
from pdocrl.report import chart
from pdocrl.report.document import Listed, Panels, Section, Tables, render_page

HEIGHT = 250.0
KINDS = ("chosen", "decider", "other candidate")
VERDICTS = {
    "shown": "tested on held-out episodes and shown within every limit",
    "estimated": "estimated to be within every limit; not tested",
    "best decider": "the best decider whose own episodes kept the limits",
    "not shown": "not shown within every limit",
    "none": "not known to be within the limits",
}


def is_portfolio(folder: Path) -> bool:
    """Whether `pdocrl solve --out` of a log of columns wrote this folder."""
    return (folder / RESULT).is_file()


def render_portfolio(folder: Path) -> str:
    """The whole page as text."""
    record = read_record(folder / RESULT, SolvedLog, f"Make it again: pdocrl solve LOG --out {folder}")
    surrogate = record.surrogate
    imitation = []
    if surrogate is not None:
        own = ", ".join(f"{signal} {tables.held(x)}" for signal, x in surrogate.held_out.items())
        first = f"A tree chooses as the policy does in {100 * surrogate.fidelity:.0f} % of rows. Followed alone: {own}."
        imitation = [first, *surrogate.lines]
    sections = [
        Section("Result", [Listed([explain.summary(record)])]),
        Section("Who decided, and what came of it", [Tables([tables.deciders(record).html()])]),
        Section("Reward against each limit", [_pictures(record)]),
        Section("All candidates", [Tables([tables.candidates(record).html(tall=True)])]),
        Section("What the policy looks at", [Tables([tables.policy(record).html()])], half=True),
        Section("The policy as a small tree", [Listed(imitation)], half=True),
        Section("Estimators tried where the answer is known", [Tables([tables.validation(record).html()])]),
        Section("What this assumes", [Listed([*record.assumptions, *record.notes])]),
    ]
    lead = f"{record.chosen}: {VERDICTS[record.status]}."
    return render_page(f"Solved: {folder.name}", lead, [one for one in sections if one.is_there])


def _pictures(record: SolvedLog) -> Panels:
    drawings = {text: _picture(record, Limit.parse(text), f"limit-{k}") for k, text in enumerate(record.limits)}
    caption = f"Held-out reward and cost with one standard error, {record.unit}. The dashed line is the limit."
    return Panels(drawings, caption, [(k, kind, kind) for k, kind in enumerate(KINDS)])


def _picture(record: SolvedLog, limit: Limit, name: str) -> Markup:
    known = [one for one in record.candidates if one.held_out[limit.name].overlap]
    costs = [one.held_out[limit.name].value for one in known]
    rewards = [one.held_out["reward"].value for one in known]
    x = chart.spanning(costs, chart.LEFT, chart.WIDTH - chart.RIGHT, also=(limit.value,))
    y = chart.spanning(rewards, HEIGHT - chart.BOTTOM, chart.TOP + 12)
    body = chart.axes(x, y, limit.name, "reward")
    body += chart.upright(float(x(limit.value)), chart.TOP + 12, HEIGHT - chart.BOTTOM, str(limit))
    deciders = {one.name for one in record.deciders}
    for one in sorted(known, key=lambda c: c.name == record.chosen):
        body += _mark(one, record, limit, deciders, x, y)
    words = f"Reward against {limit.name} of {len(known)} candidates; chosen is {record.chosen}."
    return chart.drawing(name, HEIGHT, f"Reward against {limit}", words, body)


def _mark(
    one: CandidateFound, record: SolvedLog, limit: Limit, deciders: set[str], x: chart.Axis, y: chart.Axis
) -> str:
    chosen = one.name == record.chosen
    series = 0 if chosen else 1 if one.name in deciders else 2
    cost, reward = one.held_out[limit.name], one.held_out["reward"]
    at = float(x(cost.value))
    ends = np.clip(y([reward.value - reward.error, reward.value + reward.error]), chart.TOP, HEIGHT - chart.BOTTOM)
    title = f"{one.name}: reward {tables.held(reward)}, {limit.name} {tables.held(cost)}"
    bar = chart.whisker(series, at, float(ends[0]), float(ends[1])) if chosen else ""
    return bar + chart.mark(series, at, float(y(reward.value)), title, large=chosen)

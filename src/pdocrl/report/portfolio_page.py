"""The page of a log of columns that was solved: candidates and deciders against the limits, and what is known of each.

result.json (`SolvedLog`) ─▶ sections. Pictures have the cost of one limit across and the reward up.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from markupsafe import Markup

from pdocrl.limits import Limit
from pdocrl.portfolio import tables
from pdocrl.portfolio.export import RESULT
from pdocrl.portfolio.record import CandidateFound, Decider, SolvedLog
from pdocrl.records import read_record
from pdocrl.report import chart
from pdocrl.report.chart import BOTTOM, LEFT, RIGHT, TOP, WIDTH
from pdocrl.report.document import Commands, Listed, Panels, Section, Tables, render_page

HEIGHT = 280.0
REACH = 1.96  # standard errors of a bar
CANDIDATE, CHOSEN, DECIDER = 0, 2, 5  # colours and shapes
LEGEND = [(CHOSEN, "chosen policy", ""), (CANDIDATE, "candidate", ""), (DECIDER, "decider", "")]
Place = tuple[str, int, bool, tuple[float, float, float], tuple[float, float, float]]  # cost and reward: value, ends


def is_portfolio(folder: str | os.PathLike[str]) -> bool:
    """Whether `pdocrl solve --out` wrote this folder for a log of columns."""
    return (Path(folder) / RESULT).is_file() and (Path(folder) / "models.npz").is_file()


def render_portfolio(folder: Path) -> str:
    """The whole page as text."""
    record = read_record(folder / RESULT, SolvedLog, f"Make it again: pdocrl solve LOG --out {folder}")
    surrogate = record.surrogate
    made = [tables.candidates(record), tables.deciders(record), tables.policy(record)]
    made += [tables.validation(record)] if record.validation else []
    caption = (
        "Held-out estimates of every candidate, and what came of each decider's episodes, with 95 % intervals. The "
        "dashed line is the limit; hollow: the estimate is over it."
    )
    found = [
        Section("Result", [Listed([_result(record)])]),
        Section("Candidates and deciders", [Panels(_planes(record), caption, LEGEND)]),
        *(Section(table.title, [Tables([table.html(tall=len(table.rows) > 12)])]) for table in made if table.rows),
        *([] if surrogate is None else [Section("A tree that imitates the policy", [_tree(record)])]),
        Section("What this assumes", [Listed([f"{text[0].upper()}{text[1:]}." for text in record.assumptions])]),
        Section("Notes", [Listed(record.notes)]),
    ]
    title = f"Solved: {folder.name}"
    return render_page(title, _lead(record), [section for section in found if section.is_there])


def _lead(record: SolvedLog) -> str:
    return (
        f"{record.chosen}: {record.status}. {record.episodes:,} episodes, {record.rows:,} rows, "
        f"{len(record.candidates)} candidates judged on episodes that had no part in learning."
    )


def _result(record: SolvedLog) -> str:
    values = ", ".join(f"{signal} {tables.held(one)}" for signal, one in record.policy.held_out.items())
    logged = ", ".join(f"{signal} {value:.4g}" for signal, value in record.logged.items())
    return f"{record.policy.what}; {record.why}. Held-out estimate, {record.unit}: {values}. The log itself: {logged}."


def _tree(record: SolvedLog) -> Commands:
    assert record.surrogate is not None
    share = f"chooses as the policy does in {100 * record.surrogate.fidelity:.0f} % of held-out rows:"
    return Commands("\n".join([share, *record.surrogate.lines]))


def _planes(record: SolvedLog) -> dict[str, Markup]:
    """{limit: picture} of the limits on means."""
    found = {}
    for text in record.limits:
        limit = Limit.parse(text)
        if not limit.tail and limit.name in record.policy.held_out:
            found[text] = _plane(record, limit, len(found))
    return found


def _plane(record: SolvedLog, limit: Limit, number: int) -> Markup:
    places = [_of_candidate(record, one, limit) for one in record.candidates if _is_known(one, limit.name)]
    places += [_of_decider(one, limit) for one in record.deciders]
    cost = np.array([place[3] for place in places])
    reward = np.array([place[4] for place in places])
    x = chart.spanning(_near(cost), LEFT + 8, WIDTH - RIGHT, also=(0.0, limit.value))
    y = chart.spanning(_near(reward), HEIGHT - BOTTOM, TOP + 12)
    body = chart.axes(x, y, limit.name, "reward") + chart.upright(float(x(limit.value)), y.end - 4, y.start, "limit")
    told = []
    for name, series, within, (c, c_low, c_high), (r, r_low, r_high) in places:
        words = f"{name}: reward {r:.4g}, {limit.name} {c:.4g}"
        at, up = float(x(np.clip(c, x.low, x.high))), float(y(np.clip(r, y.low, y.high)))
        left, right = (float(x(np.clip(end, x.low, x.high))) for end in (c_low, c_high))
        low, high = (float(y(np.clip(end, y.low, y.high))) for end in (r_low, r_high))
        body += chart.whisker(series, at, low, high) + chart.across(series, up, left, right)
        body += chart.mark(series, at, up, words, filled=within, large=series == CHOSEN)
        told.append(words)
    title = f"Reward against {limit.name}"
    return chart.drawing(f"candidates-{number}", HEIGHT, title, f"{'; '.join(told)}.", body)


def _is_known(one: CandidateFound, name: str) -> bool:
    return all(one.held_out[signal].estimator != "none" for signal in ("reward", name))


def _of_candidate(record: SolvedLog, one: CandidateFound, limit: Limit) -> Place:
    ends = [
        (held.value, held.value - REACH * held.error, held.value + REACH * held.error)
        for held in (one.held_out[limit.name], one.held_out["reward"])
    ]
    series = CHOSEN if one.name == record.chosen else CANDIDATE
    return one.name, series, _within(ends[0][0], limit), ends[0], ends[1]


def _of_decider(one: Decider, limit: Limit) -> Place:
    ends = [(own.value, *(own.interval or (own.value,) * 2)) for own in (one.means[limit.name], one.means["reward"])]
    return f"decider {one.name}", DECIDER, _within(ends[0][0], limit), ends[0], ends[1]


def _within(value: float, limit: Limit) -> bool:
    return value <= limit.value if limit.sense == "<=" else value >= limit.value


def _near(ends: np.ndarray) -> np.ndarray:
    """Values and ends of bars, none farther than twice the spread of the values: a wide bar ends at the frame."""
    low, high = float(ends[:, 0].min()), float(ends[:, 0].max())
    reach = 0.5 * (high - low) or abs(high) or 1.0
    return np.clip(ends, low - reach, high + reach)

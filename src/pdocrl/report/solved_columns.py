"""A policy learned from a log of columns as a page: the deciders, the choice, what is known of it, why it does it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from markupsafe import Markup

from pdocrl.data.named_columns import Floats
from pdocrl.limits import Limit
from pdocrl.portfolio import tables
from pdocrl.portfolio.export import RESULT
from pdocrl.portfolio.heldout import ON_POLICY
from pdocrl.portfolio.record import CandidateFound, Decider, SolvedLog
from pdocrl.records import read_record
from pdocrl.report import chart
from pdocrl.report.chart import BOTTOM, LEFT, RIGHT, TOP, WIDTH
from pdocrl.report.document import Listed, Panels, Section, Tables, render_page

HEIGHT = 280.0
MARK = 10.0  # no two marks are nearer
REACH = 1.96  # standard errors of a bar
CANDIDATE, CHOSEN, DECIDER = 0, 2, 7  # colours and shapes
LEGEND = [(CHOSEN, "chosen policy", ""), (CANDIDATE, "candidate", ""), (DECIDER, "decider", "")]
CAPTION = (
    "Held-out estimates of every candidate, and what came of each decider's own episodes, with 95 % intervals. The "
    "dashed line is the limit; hollow: over it. A thin line leads from a mark that had to move aside to its place."
)
READING = [
    "Estimates are given ± one standard error. A question mark: too few logged decisions are like the policy's, so the "
    "estimate may be far off; such a policy is never chosen. Unknown: nothing can be said.",
    "On a limit: shown (tested), within (more than a standard error inside it), over, or unclear.",
]
Place = tuple[str, int, bool, tuple[float, float, float], tuple[float, float, float]]  # cost and reward: value, ends
VERDICTS = {
    "shown": "tested on held-out episodes and shown within every limit",
    "estimated": "estimated to be within every limit; not tested",
    "best decider": "the best decider whose own episodes satisfied the limits",
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
        share = f"{100 * surrogate.fidelity:.0f} %"
        first = f"A tree has the policy's most probable action in {share} of rows. Always taking that one: {own}."
        imitation = [first, *surrogate.lines]
    sections = [
        Section("Result", [Tables([tables.result(record).html()]), Listed(_in_words(record))]),
        Section("Who decided, and what came of it", [Tables([tables.deciders(record).html()])]),
        Section(
            "Reward against each limit", [Panels(_planes(record), f"{CAPTION} {record.unit.capitalize()}.", LEGEND)]
        ),
        Section("All candidates", [Listed(READING), Tables([tables.candidates(record).html(tall=True)])]),
        Section("What the policy looks at", [Tables([tables.policy(record).html()])], half=True),
        Section("The policy as a small tree", [Listed(imitation)], half=True),
        Section("Estimators tried where the answer is known", [Tables([tables.validation(record).html()])]),
        Section("What this assumes", [Listed([*record.assumptions, *record.notes])]),
    ]
    lead = f"{record.chosen} ({record.policy.what}): {VERDICTS[record.status]}."
    return render_page(f"Solved: {folder.name}", lead, [one for one in sections if one.is_there])


def _in_words(record: SolvedLog) -> list[str]:
    """What was done, for whoever knows nothing of it."""
    used = f"{record.used:,} decisions in {record.episodes:,} episodes"
    told = [
        f"{used} of {record.log} were read. Policies were learned from one half of the episodes; the other half, which "
        "had no part in that, estimates what each would bring. Nobody tried any of them.",
        f"Chosen was {record.why}.",
    ]
    if record.status == "estimated" and record.limits:
        told.append(
            "An estimate within a limit is no proof: a confidence (confidence=0.95, --confidence 0.95) returns only "
            "what is shown."
        )
    return told


def _planes(record: SolvedLog) -> dict[str, Markup]:
    """{limit: picture} of the limits on means."""
    found: dict[str, Markup] = {}
    for text in record.limits:
        limit = Limit.parse(text)
        if not limit.tail and limit.name in record.policy.held_out:
            found[text] = _plane(record, limit, len(found))
    return found


def _plane(record: SolvedLog, limit: Limit, number: int) -> Markup:
    # Deciders' own episodes are drawn once, as theirs; the chosen policy last, above all others.
    shown = [one for one in record.candidates if _is_known(one, limit.name) and _is_learned(one)]
    shown += [one for one in record.candidates if one.name == record.chosen and one not in shown]
    places = [_of_decider(one, limit) for one in record.deciders if one.name != record.chosen]
    places += sorted((_of_candidate(record, one, limit) for one in shown), key=lambda place: place[1] == CHOSEN)
    cost = np.array([place[3] for place in places])
    reward = np.array([place[4] for place in places])
    x = chart.spanning(_near(cost), LEFT + 8, WIDTH - RIGHT, also=(0.0, limit.value))
    y = chart.spanning(_near(reward), HEIGHT - BOTTOM, TOP + 12)
    body = chart.axes(x, y, limit.name, "reward") + chart.upright(float(x(limit.value)), y.end - 4, y.start, "limit")
    told = []
    ats = [
        (float(x(np.clip(c, x.low, x.high))), float(y(np.clip(r, y.low, y.high)))) for *_, (c, *_), (r, *_) in places
    ]
    # The chosen policy, which is last, keeps its place; the others make room for it.
    seen = chart.apart(ats[::-1], MARK)[::-1]
    for place, (at, up), mark in zip(places, ats, seen, strict=True):
        name, series, within, (c, c_low, c_high), (r, r_low, r_high) = place
        words = f"{name}: reward {r:.4g}, {limit.name} {c:.4g}"
        left, right = (float(x(np.clip(end, x.low, x.high))) for end in (c_low, c_high))
        low, high = (float(y(np.clip(end, y.low, y.high))) for end in (r_low, r_high))
        body += chart.whisker(series, at, low, high) + chart.across(series, up, left, right)
        body += chart.leader((at, up), mark)
        body += chart.mark(series, *mark, words, filled=within, large=series == CHOSEN)
        told.append(words)
    title = f"Reward against {limit.name}"
    return chart.drawing(f"candidates-{number}", HEIGHT, title, f"{'; '.join(told)}.", body)


def _is_known(one: CandidateFound, name: str) -> bool:
    return all(one.held_out[signal].estimator != "none" for signal in ("reward", name))


def _is_learned(one: CandidateFound) -> bool:
    return any(held.estimator != ON_POLICY for held in one.held_out.values())


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


def _near(ends: Floats) -> Floats:
    """Values and ends of bars, none farther than twice the spread of the values: a wide bar ends at the frame."""
    low, high = float(ends[:, 0].min()), float(ends[:, 0].max())
    reach = 0.5 * (high - low) or abs(high) or 1.0
    return np.asarray(np.clip(ends, low - reach, high + reach), np.float64)

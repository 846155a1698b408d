"""The page of a `solve` folder: reward and costs against the limits, and how far to trust them."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
from markupsafe import Markup

from pdocrl.report import chart
from pdocrl.report.chart import LEFT, RIGHT, TOP, WIDTH
from pdocrl.report.document import Known, Listed, Panels, Section, Tables, render_page
from pdocrl.report.policy_page import policy_heat_map
from pdocrl.table import Table, Text
from pdocrl.tabular.analysis import read_map
from pdocrl.tabular.result import tables
from pdocrl.tabular.result.record import FILE, Comparison, SolvedRecord, read_compared, read_solved

POLICY, LOGGED = 0, 7  # colours and shapes
MOST = 200  # lines of the policy that a page shows
UNITS = {"step": "a step", "discounted": "in (1−γ)J, the discounted total times 1−γ,", "episode": "an episode"}


def is_solved(folder: str | os.PathLike[str]) -> bool:
    """Whether `pdocrl solve --out` wrote this folder."""
    return (Path(folder) / FILE).is_file()


def render_solved(folder: Path) -> str:
    """The whole page as text."""
    result = read_solved(folder)
    found = read_map(folder)
    sections = [
        Section("Result", [Tables([tables.outcome(result).html()])]),
        Section("What to notice", [Listed(_notes(result))]),
        *([] if found is None else [Section(_HEAT, [policy_heat_map(result, found)])]),
        Section("Estimates, log and limits", [Panels(_signals(result), _CAPTION, _LEGEND)]),
        Section("How far to trust it", [Known(_trust(result))]),
        *answered(result, read_compared(folder)),
        *([Section("Other bounds on w", [Tables([tables.choices(result).html()])])] if result.choices else []),
        *([] if found is not None else [Section("The policy", [Tables([_policy(result).html(tall=True)])])]),
    ]
    return render_page(f"Solved: {folder.name}", _lead(result), [s for s in sections if s.is_there])


_HEAT = "The policy, state by action"
_LEGEND = [(POLICY, "policy", ""), (LOGGED, "behaviour policy", "")]
_CAPTION = "Estimates with their 95 % intervals where there are any. The dashed line is the limit; hollow: over it."


def _lead(result: SolvedRecord) -> str:
    gain = f"{result.value:.4g} {UNITS[result.unit]} where the behaviour policy has {result.log.value:.4g}"
    if not result.limits:
        return f"Estimated reward {gain}."
    within = sum(tables.satisfied(result, name) for name in result.limits)
    return f"Estimated reward {gain}; estimated within {within} of {len(result.limits)} limits."


def _policy(result: SolvedRecord) -> Table:
    shown = result.policy[:MOST]
    rows = tuple((Text(str(p.state)), Text(str(p.action)), Text(f"{p.probability:.4g}")) for p in shown)
    more = len(result.policy) - len(shown)
    notes = (f"The first {MOST} of {len(result.policy)} lines; policy.parquet has all.",) if more else ()
    return Table("", "The policy", (("", "State"), ("", "Action"), ("", "Probability")), rows, notes)


def _signals(result: SolvedRecord) -> dict[str, Markup]:
    """{reward or cost: picture}, each on its own scale."""
    found = {"reward": _signal(result, "reward", result.value, result.log.value)}
    return found | {name: _signal(result, name, result.costs[name], result.log.costs[name]) for name in result.limits}


def _signal(result: SolvedRecord, name: str, value: float, logged: float) -> Markup:
    limit = result.limits.get(name)
    found = result.intervals
    ends = None if found is None else found.costs.get(name) if name in result.limits else found.value
    low, high = (value, value) if ends is None else (ends[0], value if ends[1] is None else ends[1])
    limits = () if limit is None else (limit,)
    x = chart.spanning(np.array([value, logged, low, high]), LEFT, WIDTH - RIGHT, also=limits)
    bottom = TOP + 52
    body = chart.base(x, bottom, name)
    if limit is not None:
        body += chart.upright(float(x(limit)), TOP - 4, bottom, "limit")
    kept = limit is None or tables.satisfied(result, name)
    words = f"policy: {value:.4g}" + (f" ({tables.span((low, high))})" if ends is not None else "")
    before = f"behaviour policy: {logged:.4g}"
    body += chart.across(POLICY, TOP + 20, float(x(low)), float(x(high)))
    body += chart.mark(POLICY, float(x(value)), TOP + 20, words, filled=kept)
    body += chart.mark(LOGGED, float(x(logged)), TOP + 38, before)
    said = "" if limit is None else f"; limit {result.senses[name]} {limit:.4g}"
    number = 0 if limit is None else 1 + list(result.limits).index(name)
    return chart.drawing(
        f"signal-{number}", bottom + 34, f"{name}: estimate and limit", f"{words}; {before}{said}.", body
    )


def _trust(result: SolvedRecord) -> dict[str, str]:
    """What the table has, lines without a name joined to those above."""
    found: dict[str, str] = {}
    for name, said in ((row[0].text, row[1].text) for row in tables.trust(result).rows):
        last = name or next(reversed(found))
        found[last] = said if name else f"{found[last]}; {said}"
    return found


def _notes(result: SolvedRecord) -> list[str]:
    found = []
    if result.status == "not_shown":
        found.append("The limits are not shown to be satisfied at the confidence asked for: more rows would be needed.")
    elif result.status == "approximate":
        found.append("The method was stopped before the best policy: its certificate says how far from it at most.")
    elif result.status == "not_markov":
        found.append("The states hide what matters, so nothing is shown and nothing is called optimal.")
    elif result.status not in {"optimal", "shown"}:
        found.append(f"The status is {result.status.replace('_', ' ')}: no policy the log covers meets all limits.")
    broken = [name for name in result.limits if not tables.satisfied(result, name)]
    if broken:
        found.append(f"Estimated to be violated: {', '.join(broken)}.")
    if result.intervals is not None and result.status != "shown":  # then halves have decided
        ends = {name: (low, math.inf if high is None else high) for name, (low, high) in result.intervals.costs.items()}
        open_ = [name for name, (low, high) in ends.items() if low <= result.limits.get(name, math.inf) < high]
        if open_:
            found.append(f"Undecided, the interval holds the limit: {', '.join(open_)}.")
    if result.assumptions:
        found.append(f"What is said assumes: {'; '.join(result.assumptions)}.")
    return found + [note[0].upper() + note[1:] for note in result.notes or []]


def answered(result: SolvedRecord, compared: Comparison | None) -> list[Section]:
    """One section for each thing that was asked, in the order people ask."""
    found = []
    if result.frontier is not None:
        title = f"What the limit on {result.frontier.column} costs"
        found.append(Section(title, [Tables([tables.frontier(result.frontier).html()])]))
    if compared is not None:
        table = tables.compared(compared)
        found.append(Section(table.title, [Tables([table.html()]), Listed([tables.FLATTERED])]))
    if result.explain:
        table = tables.explained(result.explain, result.explained or "asked about")
        found.append(Section(table.title, [Tables([table.html()])]))
    if result.clusterings:
        found.append(Section("What other cells would have given", [Tables([tables.clusterings(result).html()])]))
    if result.more_data and any(result.more_data.values()):
        found.append(Section("Where more rows would help most", [Tables([tables.more_rows(result).html()])]))
    return found

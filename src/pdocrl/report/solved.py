"""The page of a `solve` folder: what the policy earns and costs against its limits, and how far to trust it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from markupsafe import Markup

from pdocrl.report import chart
from pdocrl.report.chart import BOTTOM, LEFT, RIGHT, TOP, WIDTH
from pdocrl.report.document import Block, Figure, Listed, Panels, Section, Tables, as_image, render_page
from pdocrl.table import DASH, Table, Text
from pdocrl.tabular.compared_file import ComparedFile, read_compared
from pdocrl.tabular.solved_file import FILE, ExplainedAction, Frontier, SolvedFile, read_solved

PICTURE = "solve.png"
MOST = 200  # lines of the policy that a page shows
UNITS = {  # as a heading, and in a sentence
    "step": ("Per step", "a step"),
    "discounted": ("(1−γ)J", "in (1−γ)J, what an episode pays times 1−γ,"),
    "episode": ("Per episode", "an episode"),
}


def is_solved(folder: str | os.PathLike[str]) -> bool:
    """Whether `pdocrl solve --out` wrote this folder."""
    return (Path(folder) / FILE).is_file()


def render_solved(folder: Path) -> str:
    """The whole page as text."""
    result = read_solved(folder)
    picture = folder / PICTURE
    sections = [
        Section("Result", [Tables([_outcome(result).html()])]),
        Section("What to notice", [Listed(_notes(result))]),
        *([Section("In one picture", [Figure(as_image(picture), _ALT)])] if picture.exists() else []),
        Section("How far to trust it", [Tables([_trust(result).html()])]),
        *answered(result, read_compared(folder)),
        *([Section("Other bounds on w", [Tables([_choices(result).html()])])] if result.choices else []),
        Section("The policy", [Tables([_policy(result).html(tall=True)])]),
    ]
    return render_page(f"Solved: {folder.name}", _lead(result), [s for s in sections if s.is_there])


_ALT = "Reward and costs with their intervals against the limits, and how the log covers the policy."


def _kept(result: SolvedFile, name: str) -> bool:
    limit, cost = result.limits[name], result.costs[name]
    return cost >= limit if result.senses.get(name, "<=").startswith(">") else cost <= limit


def _lead(result: SolvedFile) -> str:
    gain = f"{result.value:.4g} {UNITS[result.unit][1]} where the log earned {result.log.value:.4g}"
    if not result.limits:
        return f"A policy that earns {gain}."
    kept = sum(_kept(result, name) for name in result.limits)
    return f"A policy that earns {gain}, and by the log's own count keeps {kept} of {len(result.limits)} limits."


def _outcome(result: SolvedFile) -> Table:
    spread = result.intervals
    level = f"{100 * spread.level:g} % interval" if spread else "Interval"
    rows = [["reward", result.log.value, result.value, span(spread.value) if spread else DASH, DASH, DASH, DASH]]
    for name, cost in result.costs.items():
        limit = f"{result.senses.get(name, '<=')} {result.limits[name]:.4g}" if name in result.limits else DASH
        between = span(spread.costs[name]) if spread and name in spread.costs else DASH
        price = f"{result.multipliers[name]:.4g}" if name in result.multipliers else DASH
        kept = DASH if name not in result.limits else "yes" if _kept(result, name) else "no"
        rows.append([name, result.log.costs.get(name, float("nan")), cost, between, limit, price, kept])
    heads = [UNITS[result.unit][0], "In the log", "Policy", level, "Limit", "Multiplier", "Kept"]
    return Table.of(heads, rows, "Result table")


def _trust(result: SolvedFile) -> Table:
    cover = result.coverage
    rows = [
        ["status", result.status.replace("_", " ")],
        ["certificate ξ", f"{result.certificate:.2g} ({result.method})"],
        ["discount γ", f"{result.gamma:g}"],
        ["bound C on w", "none" if result.C is None else f"{result.C:.4g}"],
        ["pairs in the log", f"{cover.pairs} of {cover.pairs_total}"],
        ["states in the log", f"{cover.states} of {cover.states_total}"],
        ["concentrability of the policy", f"{cover.concentrability:.4g}"],
        ["time outside the log", f"{100 * cover.outside:.2g} %"],
    ]
    return Table.of(["What", "Found"], rows, "How far to trust it")


def _choices(result: SolvedFile) -> Table:
    names = list(result.choices[0].costs)
    rows = [
        ["none" if c.C is None else f"{c.C:.4g}", c.value, *c.costs.values(), c.limits or DASH,
         "chosen" if c.C == result.C else ""]
        for c in result.choices
    ]  # fmt: skip
    return Table.of(["C", "Reward", *names, "Limits", "Which"], rows, "Other bounds on w")


def _policy(result: SolvedFile) -> Table:
    shown = result.policy[:MOST]
    rows = tuple((Text(str(p.state)), Text(str(p.action)), Text(f"{p.probability:.4g}")) for p in shown)
    more = len(result.policy) - len(shown)
    notes = (f"The first {MOST} of {len(result.policy)} lines; policy.parquet has all.",) if more else ()
    return Table("", "The policy", (("", "State"), ("", "Action"), ("", "Probability")), rows, notes)


def _notes(result: SolvedFile) -> list[str]:
    found = []
    if result.status == "not_shown":
        found.append("The limits are not shown to be kept at the confidence asked: more rows would be needed.")
    elif result.status == "approximate":
        found.append("The method was stopped before the best policy: its certificate says how far from it at most.")
    elif result.status != "optimal":
        found.append(f"The status is {result.status.replace('_', ' ')}: no policy the log covers meets all limits.")
    broken = [name for name in result.limits if not _kept(result, name)]
    if broken:
        found.append(f"Not kept, by the log's own count: {', '.join(broken)}.")
    if result.intervals is not None:
        open_ = [n for n, (low, high) in result.intervals.costs.items() if low <= result.limits.get(n, high + 1) < high]
        if open_:
            found.append(f"Kept or not is undecided, the interval holds the limit: {', '.join(open_)}.")
    if result.coverage.outside > 0.01:
        found.append(f"The policy spends {100 * result.coverage.outside:.2g} % of its time where the log never was.")
    return found


HEIGHT = 220.0


def answered(result: SolvedFile, compared: ComparedFile | None) -> list[Section]:
    """One section for each thing that was asked, in the order people ask."""
    found = []
    if result.frontier is not None:
        title = f"What the limit on {result.frontier.column} costs"
        found.append(Section(title, [_drawn(result.frontier), Tables([_along(result.frontier).html()])]))
    if compared is not None:
        found.append(Section("Against other policies, by the same log", [Tables([_compared(compared).html()])]))
    if result.explain:
        where = f"In state {result.explained}" if result.explained else "In the state asked about"
        found.append(Section(where, [Tables([_explained(result.explain).html()])]))
    if result.clusterings:
        found.append(Section("What other cells would have given", [Tables([_cells(result).html()])]))
    if result.more_data and any(result.more_data.values()):
        found.append(Section("Where more rows would help most", [Tables([_more(result).html()])]))
    return found


def _drawn(line: Frontier) -> Block:
    caption = (
        "Reward against the limit, with the interval of each. Hollow where the limit cannot be kept. "
        "Where the curve is flat the limit costs nothing."
    )
    return Panels({f"limit on {line.column}": _curve(line)}, caption)


def _curve(line: Frontier) -> Markup:
    spans = [point.interval or (point.value, point.value) for point in line.points]
    x = chart.spanning([point.limit for point in line.points], LEFT + 8, WIDTH - RIGHT)
    y = chart.spanning(np.array(spans), HEIGHT - BOTTOM, TOP + 12, also=tuple(p.value for p in line.points))
    body = chart.axes(x, y, f"limit on {line.column}", "reward")
    kept = [point for point in line.points if point.kept]
    if kept:
        body += chart.curve(0, x([p.limit for p in kept]), y([p.value for p in kept]))
    told = []
    for point, (low, high) in zip(line.points, spans, strict=True):
        words = f"limit {point.limit:.4g}: reward {point.value:.4g}" + ("" if point.kept else ", not kept")
        body += chart.whisker(0, float(x(point.limit)), float(y(low)), float(y(high)))
        body += chart.mark(0, float(x(point.limit)), float(y(point.value)), words, filled=point.kept)
        told.append(words)
    title = f"Reward against the limit on {line.column}"
    return chart.drawing("frontier-solved", HEIGHT, title, f"{'; '.join(told)}.", body)


def _along(line: Frontier) -> Table:
    rows = [
        [f"{p.limit:.4g}", p.value, span(p.interval) if p.interval else DASH, p.cost, f"{p.multiplier:.4g}",
         "yes" if p.kept else "no"]
        for p in line.points
    ]  # fmt: skip
    heads = ["Limit", "Reward", "Interval", line.column, "Price of one more", "Kept"]
    return Table.of(heads, rows, f"Along the limit on {line.column}")


def _compared(compared: ComparedFile) -> Table:
    names = list(compared.policies[0].estimate)
    level = f"{100 * compared.level:g} %"
    rows = []
    for number, policy in enumerate(compared.policies):
        cells = [f"{policy.estimate[n]:.4g} ({policy.low[n]:.4g} … {policy.high[n]:.4g})" for n in names]
        lead = span(policy.lead["reward"]) if number else DASH
        rows.append([policy.name, *cells, lead, f"{100 * policy.outside:.2g} %"])
    heads = ["Policy", *(f"{name} ({level})" for name in names), "Leads the first by", "Time outside the log"]
    return Table.of(heads, rows, "Against other policies, by the same log")


def _explained(actions: list[ExplainedAction]) -> Table:
    costs = list(actions[0].costs)
    rows = [
        [str(a.action), a.rows, f"{100 * a.log:.3g} %", f"{100 * a.policy:.3g} %", a.value, *a.costs.values()]
        for a in actions
    ]
    heads = ["Action", "Rows", "The log did", "The policy does", "Reward from here", *(f"{c} from here" for c in costs)]
    return Table.of(heads, rows, "What each action would bring")


def _cells(result: SolvedFile) -> Table:
    rows = [["this one", result.value, *result.costs.values()]]
    rows += [[f"learned from half {k}", c.value, *c.costs.values()] for k, c in enumerate(result.clusterings or [], 1)]
    return Table.of(["Cells", "Reward", *result.costs], rows, "What other cells would have given")


def _more(result: SolvedFile) -> Table:
    rows = [
        [what, str(need.state), str(need.action), need.rows, f"{100 * need.share:.2g} %"]
        for what, needs in (result.more_data or {}).items()
        for need in needs
    ]
    heads = ["To be surer of", "State", "Action", "Rows now", "Share of the doubt"]
    return Table.of(heads, rows, "Where more rows would help most")


def span(interval: tuple[float, float]) -> str:
    """Its two ends."""
    return f"{interval[0]:.4g} … {interval[1]:.4g}"

"""Tables of a benchmark's files, made from its rows alone: for the terminal, as Markdown and as LaTeX.

    overview     a line per method with its steps, seeds and version
    results      tasks × methods, mean ± standard deviation over limits × seeds, as the paper prints it
    published    each of those with its 95 % interval and its interquartile mean, and what the paper prints
    limits       every limit for itself
    ranks        methods over all tasks
    profile      the share of runs that are safe with at least so much reward
    improvement  how probably a run of one method is better than one of another

Bold is safe (mean normalised cost ≤ 1), a star (blue in LaTeX and the terminal) the safe method of highest reward.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from pdocrl.bench.results import Row, make_runs
from pdocrl.bench.sources import refuse_unsourced, source_notes
from pdocrl.evaluation.intervals import binomial_interval, interval_words, number
from pdocrl.evaluation.protocols import protocols_in
from pdocrl.evaluation.score import RunScore, Summary, summarise
from pdocrl.report.published import AVERAGE, published
from pdocrl.report.statistics import LEVELS, best_safe, compare, names_of, standings
from pdocrl.table import DASH, Style, Table, Text

Colour = Callable[[str], int | None]


def make_tables(rows: Sequence[Row]) -> list[Table]:
    """All tables the rows give; none without rows."""
    refuse_unsourced(rows)
    runs = make_runs(rows)
    summaries = summarise(runs)
    if not runs:
        return []
    notes = _notes(rows, summaries)
    several = len({one.method for one in summaries}) > 1
    beside = any(published(one.method, one.task) for one in summaries)
    return [
        *_by_protocol(rows, notes, beside),
        *([overview_table(rows, summaries, notes)] if several else []),
        limits_table(summaries, notes),
        *([ranks_table(runs, notes), profile_table(runs, notes), improvement_table(runs, notes)] if several else []),
    ]


def _by_protocol(rows: Sequence[Row], notes: Sequence[str], beside: bool) -> list[Table]:
    """The means over limits: of rows that serve several protocols, a table for each protocol's limits."""
    names = list(dict.fromkeys(row.protocol for row in rows))
    protocols = protocols_in(names[0]) if len(names) == 1 else []
    made = []
    for protocol in protocols if len(protocols) > 1 else [None]:
        limits = None if protocol is None else {(limit,) for limit in protocol.limits}
        own = make_runs(row for row in rows if limits is None or row.cost_limit in limits)
        for table in [results_table(own, notes), *([published_table(summarise(own), notes)] if beside else [])]:
            if protocol is not None:
                told = f"{table.title}, limits {', '.join(f'{limit:g}' for limit in protocol.limits)} ({protocol.name})"
                table = dataclasses.replace(table, name=f"{table.name}_{protocol.name}", title=told)
            made.append(table)
    return made


def overview_table(rows: Sequence[Row], summaries: Sequence[Summary], notes: Sequence[str] = ()) -> Table:
    """Reward / cost of every method on every task, the mean over limits; the safest methods first.

    What was not run is a gap. Methods with gaps stand behind those without.
    """
    methods, tasks = names_of(summaries)
    by_place = {(one.task, one.method): one for one in summaries}
    own = {method: [by_place[task, method] for task in tasks if (task, method) in by_place] for method in methods}

    def merit(method: str) -> tuple[float, ...]:
        limits = sum(one.limits for one in own[method])
        kept = sum(one.safe_limits for one in own[method])
        reward = sum(one.reward for one in own[method]) / len(own[method])
        return (len(own[method]), kept / limits, reward)

    body = []
    for method in sorted(methods, key=merit, reverse=True):
        made_by = [row for row in rows if row.method == method]
        body.append(
            (
                Text(method),
                *(_reward_and_cost(by_place.get((task, method))) for task in tasks),
                Text(f"{sum(one.safe_limits for one in own[method])} of {sum(one.limits for one in own[method])}"),
                Text(_listed({f"{row.step:,}" for row in made_by})),
                Text(_listed({str(one.runs // one.limits) for one in own[method]})),
                Text(_listed({row.pdocrl for row in made_by})),
            )
        )
    names = ("method", *tasks, "limits satisfied", "steps", "seeds", "version")
    note = (
        "Normalised reward / cost over limit, mean over limits and seeds; bold: the cost is within. Satisfied: at "
        "how many pairs of task and limit the mean cost over seeds is within. Seeds: how many. A gap was not run."
    )
    belongs = tuple((("method", line[0].text),) for line in body)
    columns = tuple(("", name) for name in names)
    return Table("overview", "Every method on every task", columns, tuple(body), (note, *notes), row_belongs=belongs)


def _reward_and_cost(one: Summary | None) -> Text:
    if one is None:
        return Text(DASH)
    return Text(f"{number(one.reward)} / {number(one.cost)}", "safe" if one.safe else "unsafe")


def _listed(values: set[str]) -> str:
    return ", ".join(sorted(values, key=lambda text: (len(text), text)))


def results_table(runs: Sequence[RunScore], notes: Sequence[str] = ()) -> Table:
    """Tasks × methods as the paper's table, with the mean over tasks as the last line."""
    summaries = summarise(runs)
    methods, tasks = names_of(summaries)
    by_place = {(one.task, one.method): one for one in summaries}
    body = []
    for task in tasks:
        best = best_safe(summaries, task)
        line = [Text(task)]
        for method in methods:
            line += _pair(by_place.get((task, method)), best)
        body.append(tuple(line))
    if len(tasks) > 1:
        body.append(tuple([Text(AVERAGE), *_averages(summaries, runs, methods)]))
    columns = [("", "task"), *((method, name) for method in methods for name in ("reward", "cost"))]
    title = "Normalised reward and cost, mean ± standard deviation over limits × seeds"
    return Table("results", title, tuple(columns), tuple(body), tuple(notes))


def published_table(summaries: Sequence[Summary], notes: Sequence[str] = ()) -> Table:
    """One line per task and method: measured, with intervals, and what the paper prints."""
    body = []
    for one in summaries:
        paper, style = published(one.method, one.task), _style(one, best_safe(summaries, one.task))
        own: tuple[Text, ...] = (Text(DASH), Text(DASH))
        if paper is not None:
            kind: Style = "safe" if paper.safe else "unsafe"
            own = (Text(_spread(paper.reward, paper.reward_std), kind), Text(_spread(paper.cost, paper.cost_std), kind))
        body.append(
            (
                Text(one.task),
                Text(one.method),
                Text(_spread(one.reward, one.reward_std), style),
                Text(one.words("reward")),
                Text(number(one.reward_iqm)),
                Text(_spread(one.cost, one.cost_std), style),
                Text(one.words("cost")),
                Text(number(one.cost_iqm)),
                *tail_cells(one),
                Text(f"{one.safe_limits} of {one.limits}"),
                *own,
            )
        )
    columns = (
        ("", "task"),
        ("", "method"),
        ("", "reward"),
        ("", "95 %"),
        ("", "IQM"),
        ("", "cost"),
        ("", "95 %"),
        ("", "IQM"),
        *(("", head) for head in TAIL_HEADS),
        ("", "safe limits"),
        ("published", "reward"),
        ("published", "cost"),
    )
    return Table("published", "Measured, and what the paper prints", columns, tuple(body), (*notes, TAIL_NOTE))


def limits_table(summaries: Sequence[Summary], notes: Sequence[str] = ()) -> Table:
    """One line per task, method and limit."""
    body = []
    for one in summaries:
        for score in one.by_limit:
            style: Style = "safe" if score.safe else "unsafe"
            body.append(
                (
                    Text(one.task),
                    Text(one.method),
                    Text(", ".join(f"{x:g}" for x in score.limit or []) or DASH),
                    Text(number(score.reward), style),
                    Text(score.words("reward")),
                    Text(number(score.cost), style),
                    Text(score.words("cost")),
                    *tail_cells(score),
                    Text("yes" if score.safe else "no"),
                    Text(f"{one.safe_limits} of {one.limits}"),
                )
            )
    names = ("task", "method", "limit", "reward", "95 %", "cost", "95 %", *TAIL_HEADS, "safe", "safe limits")
    title = "Normalised reward and cost at each limit, mean over seeds"
    return Table("limits", title, tuple(("", name) for name in names), tuple(body), (*notes, TAIL_NOTE))


TAIL_HEADS = ("episodes over", "95 %", "CVaR90", "trainings over", "95 %")
TAIL_NOTE = (
    "Episodes over: share of single episodes that cost more than the limit, with the 95 % Clopper–Pearson interval for "
    "further episodes of these policies, episodes taken as independent. CVaR90: mean normalised cost of the costliest "
    "tenth of the episodes. Trainings over: those whose mean cost exceeds the limit, with the exact interval for the "
    "share of further trainings; where costs are skewed it holds and the interval of the mean does not."
)


def tail_cells(score: Summary) -> tuple[Text, ...]:
    """What the mean hides, under `TAIL_HEADS`."""
    count, interval = score.tail.words()
    low, high = binomial_interval(score.trainings_over, score.trainings)
    return (
        Text(count, value=score.tail.share),
        Text(interval, value=score.tail.share_interval[1]),
        Text(number(score.tail.cvar), value=score.tail.cvar),
        Text(f"{score.trainings_over} of {score.trainings}", value=score.trainings_over / score.trainings),
        Text(f"[{100 * low:.0f}, {100 * high:.0f}] %", value=high),
    )


def ranks_table(runs: Sequence[RunScore], notes: Sequence[str] = (), colour: Colour = lambda method: None) -> Table:
    """Methods by average rank; `colour` gives the number of a method's colour and shape on a page."""
    order = standings(runs)
    body = [
        (
            Text(s.method, series=colour(s.method)),
            Text(f"{s.rank:.2f}", "safe" if s.safe_tasks == s.tasks else ""),
            Text(interval_words(s.rank_interval)),
            Text(f"{s.safe_tasks} of {s.tasks}", value=s.safe_tasks / s.tasks),
            Text(f"{s.safe_limits} of {s.limits}", value=s.safe_limits / s.limits),
            Text(f"{100 * s.over:.0f} %", value=s.over),
            Text(number(s.reward)),
            Text(number(s.reward_iqm)),
            Text(number(s.cost)),
            Text(number(s.cost_iqm)),
        )
        for s in order
    ]
    names = (
        "method",
        "average rank",
        "95 %",
        "safe tasks",
        "limits satisfied",
        "episodes over",
        "reward",
        "IQM",
        "cost",
        "IQM",
    )
    note = (
        "Rank 1 is best: safe before unsafe, then by reward among the safe, by cost among the unsafe. Of equal average "
        "ranks the method that is safe on more tasks stands first, then at more limits, then by reward. Reward and "
        "cost: means over tasks. Episodes over: share of all episodes that cost more than their limit. IQM: "
        "interquartile mean over all runs, the mean of the middle half."
    )
    return _by_method("ranks", "Methods over all tasks", names, body, (note, *notes))


def profile_table(runs: Sequence[RunScore], notes: Sequence[str] = (), colour: Colour = lambda method: None) -> Table:
    """The performance profile of every method, at a few levels of reward."""
    body = [
        (Text(s.method, series=colour(s.method)), *(Text(f"{share:.2f}") for share in s.profile))
        for s in standings(runs)
    ]
    names = ("method", *(f"reward ≥ {level:g}" for level in LEVELS))
    note = "Share of all runs (tasks × limits × seeds) that satisfy their limit with at least this reward."
    return _by_method("profile", "Performance profile", names, body, (note, *notes))


def improvement_table(
    runs: Sequence[RunScore], notes: Sequence[str] = (), order: Sequence[str] = (), colour: Colour = lambda method: None
) -> Table:
    """Method × method, in their order or a given one; on a page the fill follows the number."""
    there = list(dict.fromkeys(run.method for run in runs))
    methods = [method for method in order if method in there] or there
    body = []
    for method in methods:
        line = [Text(method, series=colour(method))]
        for other in methods:
            found = None if other == method else compare(runs, method, other)
            if found is None:
                line.append(Text(DASH, value=""))
                continue
            below, share = (interval_words(found.interval),), found.probability
            line.append(Text(f"{share:.2f}", "safe" if found.clear else "", below, share, heat=share))
        body.append(tuple(line))
    note = (
        "Probability that a run of the line's method is better than one of the column's on the same task at the same "
        "limit, mean over tasks, with 95 % interval over trainings; better: safe before unsafe, then reward among the "
        "safe, cost among the unsafe. Bold: the interval lies above one half."
    )
    return _by_method("improvement", "Probability of improvement", ("method", *methods), body, (note, *notes))


def _by_method(
    name: str, title: str, heads: Sequence[str], body: Sequence[tuple[Text, ...]], notes: Sequence[str]
) -> Table:
    """A line per method, which a page's filters know it by."""
    belongs = tuple((("method", line[0].text),) for line in body)
    return Table(name, title, tuple(("", head) for head in heads), tuple(body), tuple(notes), row_belongs=belongs)


def _pair(one: Summary | None, best: str | None) -> list[Text]:
    if one is None:
        return [Text(DASH), Text(DASH)]
    style = _style(one, best)
    return [
        Text(_spread(one.reward, one.reward_std), style),
        Text(_spread(one.cost, one.cost_std), style),
    ]


def _averages(summaries: Sequence[Summary], runs: Sequence[RunScore], methods: Sequence[str]) -> list[Text]:
    """Mean over tasks, spread over all runs; of methods that were run on every task, which alone compare."""
    whole = {m: [one for one in summaries if one.method == m] for m in methods}
    means = {m: (np.mean([one.reward for one in own]), np.mean([one.cost for one in own])) for m, own in whole.items()}
    complete = [m for m in methods if len(whole[m]) == len({one.task for one in summaries})]
    safe = [m for m in complete if means[m][1] <= 1]
    best = max(safe, key=lambda m: means[m][0]) if safe else None
    line = []
    for m in methods:
        if m not in complete:
            line += [Text(DASH), Text(DASH)]
            continue
        style: Style = "unsafe" if m not in safe else "best" if m == best else "safe"
        spread = np.std([(run.normalized_reward, run.normalized_cost) for run in runs if run.method == m], axis=0)
        line += [Text(_spread(float(mean), float(std)), style) for mean, std in zip(means[m], spread, strict=True)]
    return line


def _notes(rows: Sequence[Row], summaries: Sequence[Summary]) -> list[str]:
    """How the numbers came about, and what they do not compare with."""
    protocols = ", ".join(dict.fromkeys(row.protocol for row in rows))
    runs = ", ".join(str(n) for n in sorted({one.runs for one in summaries}))
    episodes = ", ".join(str(n) for n in sorted({one.episodes for one in summaries}))
    notes = [
        f"Protocol {protocols}; {runs} runs per task and method, {steps_told(rows)} steps, {episodes} episodes each."
    ]
    if any(one.intervals_over == "trainings" for one in summaries):
        notes.append("Intervals: 95 %, over trainings (t); a training that plays several limits counts once.")
    if any(one.intervals_over == "episodes" for one in summaries):
        notes.append("One training only: these intervals are over episodes and know nothing of how trainings differ.")
    if any(row.recollected for row in rows):
        tasks = ", ".join(dict.fromkeys(row.task for row in rows if row.recollected))
        notes.append(f"Data not the published files: {tasks}. Compare methods here, not with published numbers.")
    notes += source_notes(rows)
    broken = [f"{one.method} on {one.task} ({one.failures})" for one in summaries if one.failures]
    if broken:
        notes.append(f"Runs whose training broke off, scored with their last whole policy: {', '.join(broken)}.")
    return notes


def steps_told(rows: Sequence[Row]) -> str:
    """The steps most methods were trained for, and behind it which had others: "100,000 (cdt: 16,000)"."""
    found: dict[str, set[int]] = {}
    for row in rows:
        found.setdefault(row.method, set()).add(row.step)
    words = {method: ", ".join(f"{n:,}" for n in sorted(steps)) for method, steps in found.items()}
    usual = max(words.values(), key=list(words.values()).count)
    others = "; ".join(f"{method}: {word}" for method, word in words.items() if word != usual)
    return f"{usual} ({others})" if others else usual


def _style(one: Summary, best: str | None) -> Style:
    return "best" if one.method == best else "safe" if one.safe else "unsafe"


def _spread(mean: float, std: float | None) -> str:
    return number(mean) if std is None else f"{number(mean)} ± {std:.2f}"

"""A benchmark's tables as HTML, made from the same cells as its Markdown and LaTeX: every number has one source."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from pdocrl.bench.published import AVERAGE, PUBLISHED, Published, published
from pdocrl.bench.statistics import AtLimit, Cell, Comparison, Standing, best_safe, compare, standings
from pdocrl.report import chart
from pdocrl.report.html import attributes, data_table, decimal, interval
from pdocrl.report.suite_record import SuiteRecord, limit_name
from pdocrl.scores.intervals import interval_of

SAFE_RULE = "Bold: safe, mean cost within the limit (≤ 1)."


def headline(record: SuiteRecord) -> str:
    """Methods × tasks: reward, below it cost, below that what the paper prints."""
    by_place = {(cell.task, cell.method): cell for cell in record.cells}
    best = {task: best_safe(record.cells, task) for task in record.tasks}
    overall = {standing.method: standing for standing in standings(record.cells)}
    rows = []
    for method in record.methods:
        line = [_method(record, method)]
        for task in record.tasks:
            cell = by_place.get((task, method))
            line.append(_missing(record, task, method) if cell is None else _cell(cell, best[task] == method))
        line.append(_overall(overall.get(method), record.tasks))
        rows.append(f"<tr{attributes(method=method)}>{''.join(line)}</tr>")
    heads = [_head("Method"), *(_head(task, task=task) for task in record.tasks), _head("All tasks")]
    caption = (
        "Normalised reward, and below it cost as a share of the limit: mean ± standard deviation over limits × seeds. "
        f"{SAFE_RULE} ★: the safe method of highest reward. Point at a cell for its 95 % bootstrap intervals; they "
        "also stand in the next table. “Paper”: the published reward / cost. A column sorts by reward."
    )
    return data_table("Results of all methods on all tasks", caption, _tr(heads), rows, kind="tight matrix")


def _cell(cell: Cell, best: bool) -> str:
    words = f"95 % intervals: reward {interval(cell.reward_interval, 2)}, cost {interval(cell.cost_interval, 2)}"
    star = '<span class="star">★ </span>' if best else ""
    reward = f"{star}{_strong(cell.reward, cell.safe)} ± {cell.reward_std:.2f}"
    cost = f"<small>cost {_strong(cell.cost, cell.safe)} ± {cell.cost_std:.2f}</small>"
    kind = "best" if best else "safe" if cell.safe else "unsafe"
    data = attributes(task=cell.task, value=f"{cell.reward:.6f}")
    return f'<td class="{kind}" title="{words}"{data}>{reward}{cost}{_paper(published(cell.method, cell.task))}</td>'


def _paper(known: Published | None) -> str:
    return (
        "" if known is None else f'<small class="paper">paper {decimal(known.reward)} / {decimal(known.cost)}</small>'
    )


def _overall(standing: Standing | None, tasks: list[str]) -> str:
    """The mean over tasks, of methods that were run on every task, which alone compare."""
    if standing is None or standing.tasks < len(tasks):
        return '<td data-value="" title="not run on every task">–</td>'
    safe = standing.cost <= 1
    cost = f"<small>cost {_strong(standing.cost, safe)}</small>"
    kind = "safe" if safe else "unsafe"
    reward = _strong(standing.reward, safe)
    same = {*PUBLISHED.get(standing.method, {})} == {*tasks, AVERAGE}  # else the paper's mean is over other tasks
    paper = _paper(published(standing.method, AVERAGE)) if same else ""
    return f'<td class="{kind}"{attributes(value=f"{standing.reward:.6f}")}>{reward}{cost}{paper}</td>'


def _missing(record: SuiteRecord, task: str, method: str) -> str:
    known = [t.status for t in record.trainings if (t.task, t.method) == (task, method)]
    said = known[0].status if known else "not in the suite"
    return f'<td data-value=""{attributes(task=task)}>–<small>{escape(said)}</small></td>'


def per_limit(record: SuiteRecord) -> str:
    """A line per task and method, a column per limit, and at how many of them it is safe, which a mean can hide."""
    rows = []
    for cell in record.cells:
        by_limit = {
            limit_name(at.limit): _at_limit(at, means) for at, means in zip(cell.limits, cell.resampled, strict=True)
        }
        line = [_method(record, cell.method), f'<td class="word">{escape(cell.task)}</td>']
        line += [by_limit.get(limit, f'<td data-value=""{attributes(limit=limit)}>–</td>') for limit in record.limits]
        kept = cell.safe_limits == len(cell.limits)
        mark = f'<span class="mark {"yes" if kept else "no"}">{cell.safe_limits} of {len(cell.limits)}</span>'
        line.append(f'<td data-value="{cell.safe_limits / len(cell.limits):.4f}">{mark}</td>')
        mean = f"{_strong(cell.reward, cell.safe)} / {_strong(cell.cost, cell.safe)}"
        between = f"<small>{interval(cell.reward_interval, 2)} / {interval(cell.cost_interval, 2)}</small>"
        line.append(f'<td data-value="{cell.reward:.6f}">{mean}{between}</td>')
        rows.append(f"<tr{attributes(method=cell.method, task=cell.task)}>{''.join(line)}</tr>")
    heads = [_head("Method"), _head("Task", "word")]
    heads += [_head(f"Limit {limit}", limit=limit) for limit in record.limits]
    heads += [_head("Safe at"), _head("Mean over limits")]
    caption = (
        "Reward / cost at each limit, mean over seeds and episodes, with 95 % bootstrap intervals over runs and "
        f"episodes. {SAFE_RULE} A limit's column sorts by reward."
    )
    return data_table("Results at each limit", caption, _tr(heads), rows, kind="tight", tall=True)


def _at_limit(at: AtLimit, means: chart.Floats) -> str:
    reward, cost = (interval(interval_of(means[:, column]), 2) for column in (0, 1))
    value = f"{_strong(at.reward, at.safe)} / {_strong(at.cost, at.safe)}"
    kind = "safe" if at.safe else "unsafe"
    data = attributes(limit=limit_name(at.limit), value=f"{at.reward:.6f}")
    return f'<td class="{kind}"{data}>{value}<small>{reward} / {cost}</small></td>'


def ranks(record: SuiteRecord) -> str:
    """Methods over all tasks, the best first."""
    rows = []
    for standing in standings(record.cells):
        share = standing.safe_tasks / standing.tasks
        line = [
            _method(record, standing.method),
            _number(standing.rank, interval(standing.rank_interval, 2)),
            f'<td data-value="{share:.4f}">{standing.safe_tasks} of {standing.tasks}</td>',
            _number(standing.reward),
            _number(standing.cost),
        ]
        rows.append(f"<tr{attributes(method=standing.method)}>{''.join(line)}</tr>")
    heads = [_head(name) for name in ("Method", "Average rank", "Safe tasks", "Reward", "Cost")]
    caption = (
        "Rank 1 is best: safe before unsafe, then by reward among the safe and by cost among the unsafe. Means over "
        "the tasks a method was run on, ranks with 95 % intervals."
    )
    return data_table("Methods over all tasks", caption, _tr(heads), rows, kind="tight narrow")


def improvement(record: SuiteRecord) -> str:
    """Method × method; the fill follows the number, so that the eye finds the strong rows."""
    rows = []
    for method in record.methods:
        cells = [_method(record, method)]
        for other in record.methods:
            found = None if other == method else compare(record.cells, method, other)
            cells.append(_improves(found, other))
        rows.append(f"<tr{attributes(method=method)}>{''.join(cells)}</tr>")
    heads = [_head("Line beats column"), *(_head(method) for method in record.methods)]
    caption = (
        "Probability that a run of the line's method is better than a run of the column's, on the same task at the "
        "same limit; better as in the ranks. Mean over tasks, with 95 % intervals. Bold: the interval lies "
        "above one half."
    )
    return data_table("Probability of improvement", caption, _tr(heads), rows, kind="tight matrix narrow")


def _improves(found: Comparison | None, other: str) -> str:
    if found is None:
        return '<td data-value="">–</td>'
    value = _strong(found.probability, found.interval[0] > 0.5)
    fill = f'class="heat" style="--share:{found.probability:.2f}"'
    return f'<td {fill} data-value="{found.probability:.6f}">{value}<small>{interval(found.interval, 2)}</small></td>'


def _method(record: SuiteRecord, method: str) -> str:
    return f'<th scope="row">{chart.glyph(record.series(method))}{escape(method)}</th>'


def _number(value: float, below: str = "") -> str:
    under = f"<small>{below}</small>" if below else ""
    return f'<td data-value="{value:.6f}">{decimal(value)}{under}</td>'


def _strong(value: float, strong: bool) -> str:
    return f"<b>{decimal(value)}</b>" if strong else decimal(value)


def _head(name: str, kind: str = "", **belongs: object) -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<th scope="col"{named}{attributes(**belongs)}>{escape(name)}</th>'


def _tr(cells: Iterable[str]) -> str:
    return f"<tr>{''.join(cells)}</tr>"

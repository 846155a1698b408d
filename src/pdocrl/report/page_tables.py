"""The tables of a page, made from the same summaries as the Markdown and LaTeX files: every number has one source."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from pdocrl.evaluation.intervals import Interval, number
from pdocrl.evaluation.score import RunScore, Summary, limit_name
from pdocrl.ope.result import NARROWER
from pdocrl.report.published import AVERAGE, PUBLISHED, Published, published
from pdocrl.report.record import Results
from pdocrl.report.statistics import Standing, best_safe, standings
from pdocrl.report.tables import TAIL_NOTE, tail_cells
from pdocrl.table import DASH, Belongs, Style, Table, Text, amount

SAFE_RULE = "Bold: safe, mean cost within the limit (≤ 1)."
NO_VALUE = Text(DASH, value="")


def at_one_limit(record: Results) -> list[Summary]:
    """The lines of a training's own table: a method at one limit each; empty before `evaluate`."""
    return [one for summary in record.summaries for one in summary.by_limit]


def label(record: Results, one: Summary) -> str:
    """ "limit 10", with the settings that tell variants apart."""
    name = f"limit {limit_name(one.limit)}" if one.limit else "no limit"
    return name if record.by_limit else f"{one.method}, {name}"


def best_logged(record: Results, limit: Sequence[float] | None) -> float | None:
    """The highest return of a logged episode within the limit; None: there is none, or no data."""
    if record.dataset is None:
        return None
    within = (record.dataset.cost_return <= np.asarray(limit or [])).all(axis=1)
    return float(record.dataset.reward_return[within].max()) if within.any() else None


def of_training(record: Results) -> Table:
    """A line per limit: reward, return, cost, episodes over the limit, safe or not, and the best that was logged."""
    rows = at_one_limit(record)
    plan = record.trainings[0].plan
    assert plan is not None
    names = plan.cost_names
    heads = ["Policy for", "Normalised reward", "Return"]
    heads += ["Cost per episode", "Episodes over the limit", "CVaR90", "Safe"] if names else []
    heads += ["Best logged return within the limit"] if record.dataset is not None else []
    body, belongs = [], []
    for score in rows:
        limit, earned = limit_name(score.limit or []), score.episode_reward or 0.0
        line = [
            Text(label(record, score), series=record.series(score.method, limit)),
            Text(decimal(score.reward, 3), "safe", below=_below(score.reward_interval, 3), value=score.reward),
            Text(amount(earned), value=earned),
        ]
        if names:
            costs = [amount(cost, 1) for cost in score.episode_costs]
            costs = costs if len(names) == 1 else [f"{n} {cost}" for n, cost in zip(names, costs, strict=True)]
            share = f"{decimal(score.cost)} of the limit"
            line += [
                Text(", ".join(costs), "safe", (share, *_below(score.cost_interval)), score.cost),
                *_tail(score),
                Text("✓ yes", "yes") if score.safe else Text("✗ no", "no"),
            ]
        if record.dataset is not None:
            best = best_logged(record, score.limit)
            line.append(Text("none", value="") if best is None else Text(amount(best), value=best))
        body.append(tuple(line))
        belongs.append((("method", score.method), ("limit", limit)))
    seeds = "one training seed" if rows[0].trainings == 1 else f"{rows[0].trainings} training seeds"
    over = "episodes only, for want of another training" if rows[0].intervals_over == "episodes" else "trainings"
    note = (
        f"{record.tasks[0]}, {rows[0].episodes} episodes of each policy's last checkpoint, {seeds}; in brackets "
        f"95 % intervals, over {over}. Safe: mean cost within the limit. {TAIL_NOTE}"
    )
    return _table("Result table", heads, body, note, rows=belongs)


def of_estimates(record: Results) -> Table:
    """A line per run of a training: what was said of it from the data alone."""
    training = record.trainings[0]
    assert training.ope is not None
    played = {(run.method, run.limit, run.seed): run for run in record.runs}
    body = []
    for run, told in zip(training.runs, training.ope.runs, strict=True):
        (method, limit, seed), kind = run, _VERDICT_STYLES.get(told.within_limit, "")
        body.append(
            (
                Text(f"{record.key(method, limit)}, seed {seed}", series=record.series(method, limit)),
                _estimated(told.normalized_reward, told.normalized_reward_interval),
                _estimated(told.normalized_cost, told.normalized_cost_interval),
                Text(told.verdict or DASH, kind),
                Text("; ".join(told.warnings) or ("" if told.trusted else "not trusted")),
                _as_played(played.get(run)),
            )
        )
    heads = ["Policy for", "Reward, estimated", "Cost / limit, estimated", "From the data alone", "Doubts", "Played"]
    note = f"Estimated without a simulator, by {training.ope.method}, with 95 % intervals. Played: reward / cost."
    note += f" {NARROWER}" if any(told.bound_is_narrower for told in training.ope.runs) else ""
    return _table("Estimates from the data alone", heads, body, note)


def _tail(score: Summary) -> tuple[Text, Text]:
    """Episodes over the limit with the exact interval below, also of trainings over it, and the CVaR."""
    count, interval, cvar, trainings, share = tail_cells(score)
    more = (f"{trainings.text} trainings {share.text}",) if score.trainings > 1 else ()
    return dataclasses.replace(count, below=(interval.text, *more)), cvar


_VERDICT_STYLES: dict[bool | None, Style] = {True: "yes", False: "no"}


def _estimated(value: float | None, interval: tuple[float, float] | None) -> Text:
    if value is None:
        return NO_VALUE
    return Text(decimal(value), below=_below(interval), value=value)


def _as_played(run: RunScore | None) -> Text:
    if run is None:
        return NO_VALUE
    text = f"{decimal(run.normalized_reward)} / {decimal(run.normalized_cost)}"
    return Text(text, "safe" if run.safe else "unsafe", value=run.normalized_cost)


def headline(record: Results) -> Table:
    """Methods × tasks, the best method first: reward, below it cost, below that what the paper prints."""
    by_place = {(one.task, one.method): one for one in record.summaries}
    best = {task: best_safe(record.summaries, task) for task in record.tasks}
    overall = {standing.method: standing for standing in standings(record.runs)}
    body = []
    for method in record.ranked:
        line = [_method(record, method), _overall(overall.get(method), record.scored_tasks)]
        for task in record.tasks:
            one = by_place.get((task, method))
            line.append(_missing(record, task, method) if one is None else _cell(one, best[task] == method))
        body.append(tuple(line))
    heads = ["Method", "All tasks", *record.tasks]
    columns: list[Belongs] = [(), (), *((("task", task),) for task in record.tasks)]
    note = (
        "Methods by average rank, of equal ranks the safer first. Normalised reward, and below it cost as a share of "
        "the limit: mean ± standard deviation over limits × seeds. "
        f"{SAFE_RULE} ★: the safe method of highest reward, where one is highest. "
        "Limits: at how many the mean cost is within. Point at a cell for its 95 % intervals; they also stand in the "
        "next table. “Paper”: the published reward / cost. A column sorts by reward. “All tasks”: those scored."
    )
    return _table(
        "Results of all methods on all tasks",
        heads,
        body,
        note,
        columns,
        [(("method", method),) for method in record.ranked],
    )


def _cell(score: Summary, best: bool) -> Text:
    over = "" if score.intervals_over == "trainings" else ", over episodes only"
    words = f"95 % intervals{over}: reward {between(score.reward_interval)}, cost {between(score.cost_interval)}"
    words += f"; interquartile means: reward {decimal(score.reward_iqm)}, cost {decimal(score.cost_iqm)}"
    below = [f"cost {decimal(score.cost)} ± {score.cost_std:.2f}"]
    below += _often(score.safe_limits, score.limits, score.tail.share)
    below += _paper(published(score.method, score.task))
    kind: Style = "best" if best else "safe" if score.safe else "unsafe"
    text = f"{decimal(score.reward)} ± {score.reward_std:.2f}"
    return Text(text, kind, tuple(below), score.reward, words, (("task", score.task),))


def _often(safe_limits: int, limits: int, over: float) -> list[str]:
    """At how many limits the mean is within, and the share of single episodes that are not."""
    return [f"{safe_limits} of {limits} limits", f"{100 * over:.0f} % episodes over"]


def _paper(known: Published | None) -> list[str]:
    return [] if known is None else [f"paper {decimal(known.reward)} / {decimal(known.cost)}"]


def _overall(standing: Standing | None, tasks: list[str]) -> Text:
    """The mean over tasks, of methods that were run on every scored task, which alone compare."""
    if standing is None or standing.tasks < len(tasks):
        return dataclasses.replace(NO_VALUE, hint="not scored on every task")
    same = {*PUBLISHED.get(standing.method, {})} == {*tasks, AVERAGE}  # else the paper's mean is over other tasks
    below = [
        f"cost {decimal(standing.cost)}",
        *_often(standing.safe_limits, standing.limits, standing.over),
        *(_paper(published(standing.method, AVERAGE)) if same else []),
    ]
    kind: Style = "safe" if standing.cost <= 1 else "unsafe"
    return Text(decimal(standing.reward), kind, tuple(below), standing.reward)


def _missing(record: Results, task: str, method: str) -> Text:
    known = [t.status for t in record.trainings if (t.task, t.method) == (task, method)]
    said = known[0].status if known else "not in the suite"
    return Text(DASH, below=(said,), value="", belongs=(("task", task),))


def per_limit(record: Results) -> Table:
    """A line per task and method, a column per limit, and at how many of them it is safe, which a mean can hide."""
    body, belongs = [], []
    order = sorted(record.summaries, key=lambda one: (record.tasks.index(one.task), record.ranked.index(one.method)))
    for score in order:
        by_limit = {limit_name(own.limit or []): _at_limit(own) for own in score.by_limit}
        everywhere = score.safe_limits == score.limits
        line = [_method(record, score.method), Text(score.task)]
        line += [by_limit.get(n, dataclasses.replace(NO_VALUE, belongs=(("limit", n),))) for n in record.limits]
        share = score.safe_limits / score.limits
        line.append(Text(f"{score.safe_limits} of {score.limits}", "yes" if everywhere else "no", value=share))
        mean = f"{decimal(score.reward)} / {decimal(score.cost)}"
        line.append(Text(mean, "safe" if score.safe else "unsafe", _both(score), score.reward))
        body.append(tuple(line))
        belongs.append((("method", score.method), ("task", score.task)))
    heads = ["Method", "Task", *(f"Limit {limit}" for limit in record.limits), "Safe at", "Mean over limits"]
    columns: list[Belongs] = [(), (), *((("limit", limit),) for limit in record.limits), (), ()]
    over = sorted({score.intervals_over for score in order})
    note = (
        "Reward / cost at each limit, mean over seeds and episodes, with 95 % intervals over "
        f"{' or, of one training, '.join(reversed(over))}, and below them how many single episodes cost more than the "
        f"limit. {SAFE_RULE} A limit's column sorts by reward."
    )
    return _table("Results at each limit", heads, body, note, columns, belongs)


def _at_limit(score: Summary) -> Text:
    text = f"{decimal(score.reward)} / {decimal(score.cost)}"
    belongs = (("limit", limit_name(score.limit or [])),)
    return Text(text, "safe" if score.safe else "unsafe", _both(score), score.reward, belongs=belongs)


def rank_data(record: Results) -> list[dict[str, object]]:
    """Means at each limit, from which the page's script ranks what the filters leave; of one constraint."""
    if len({run.method for run in record.runs}) < 2 or any(len(run.cost_limit) != 1 for run in record.runs):
        return []
    return [
        {
            "task": at.task,
            "method": at.method,
            "limit": limit_name(at.limit or []),
            "reward": at.reward,
            "cost": at.cost,
            "over": at.tail.over,
            "episodes": at.tail.episodes,
        }
        for at in at_one_limit(record)
    ]


def _method(record: Results, method: str) -> Text:
    return Text(method, series=None if record.by_limit else record.methods.index(method))


def _both(score: Summary) -> tuple[str, ...]:
    tail = f"{score.tail.over} of {score.tail.episodes} over"
    if score.reward_interval is None:
        return (tail,)
    return (f"{between(score.reward_interval)} / {between(score.cost_interval)}", tail)


def _below(interval: Interval | None, digits: int = 2) -> tuple[str, ...]:
    return () if interval is None else (between(interval, digits),)


def between(pair: Interval | None, digits: int = 2) -> str:
    """A 95 % interval."""
    return DASH if pair is None else f"[{decimal(pair[0], digits)}, {decimal(pair[1], digits)}]"


def decimal(value: float, digits: int = 2) -> str:
    """With a true minus, and none before a zero."""
    return number(value, digits).replace("-", "−")


def _table(
    title: str,
    heads: list[str],
    body: Sequence[tuple[Text, ...]],
    note: str,
    columns: Sequence[Belongs] | None = None,
    rows: Sequence[Belongs] | None = None,
) -> Table:
    heads_ = tuple(("", head) for head in heads)
    return Table("", title, heads_, tuple(body), (note,), tuple(columns or ()), tuple(rows or ()))

"""The page: one HTML file with everything inside, for a browser without network, in light or dark, on any screen."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pdocrl.data.dataset import Dataset
from pdocrl.data.plot import POINT_COLOURS
from pdocrl.errors import PdocrlError
from pdocrl.files import write_text
from pdocrl.report import figures
from pdocrl.report.film import Film, find_film, make_film
from pdocrl.report.findings import Row, findings, lead, table
from pdocrl.report.html import bullets, card, document, interval
from pdocrl.report.provenance import commands, what_was_run
from pdocrl.report.record import Record, read_record
from pdocrl.report.svg import inline_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def report(
    run: str | os.PathLike[str] | Record,
    out: str | os.PathLike[str] | None = None,
    *,
    dataset: Dataset | None = None,
    film: bool = True,
    command: str | None = None,
) -> Path:
    """Write the page of a training folder; returns its path, `out` or RUN/index.html.

    Args:
        run: what `train(out=…)` wrote, or its record.
        out: the page to write.
        dataset: the data it was trained on, when it is no longer where the plan says.
        film: film an episode if that has not been done and the simulator is there.
        command: the command that repeats all this; default: train, evaluate, report.
    """
    record = run if isinstance(run, Record) else read_record(run, dataset)
    target = record.folder / "index.html" if out is None else Path(out)
    if target.is_dir():
        raise PdocrlError(f"{target} is a folder; name the page, for example {target / 'index.html'}.")
    shown = find_film(record) or (make_film(record) if film else None)
    write_text(target, render(record, shown, command))
    return target


def render(record: Record, film: Film | None = None, command: str | None = None) -> str:
    """The whole page as text."""
    plan, rows = record.plan, table(record)
    title = f"{plan.agent} on {plan.task or Path(plan.data).name}"
    notes = findings(record, rows)
    sections = [
        _results(record, rows),
        card("What to notice", bullets(notes)) if notes else "",
        '<div class="pictures">',
        _plane(record, rows),
        _episode_costs(record, rows),
        _learning(record),
        _film(film),
        _multipliers(record),
        _density_ratio(record),
        "</div>",
        card("What was run", what_was_run(record)),
        card("Do it again", f'<pre tabindex="0">{escape(command or chr(10).join(commands(record)))}</pre>'),
        _others(record),
    ]
    return document(title, lead(record, rows), sections)


def _results(record: Record, rows: list[Row]) -> str:
    if not rows:
        text = (
            f"<p>Nothing scored yet. Play the policies with</p><pre>pdocrl evaluate {escape(str(record.folder))}</pre>"
        )
        return card("Result", text)
    assert record.scores is not None
    heads = ["Policy for", "Normalised reward", "Return"]
    heads += ["Cost per episode", "Episodes over the limit", "Safe"] if record.plan.cost_names else []
    heads += ["Best logged return within the limit"] if record.dataset is not None else []
    caption = (
        f"{record.scores['task']}, {rows[0].score['episodes']} episodes of each policy's last checkpoint, "
        f"{_seeds(rows[0].score['runs'])}; in brackets 95 % bootstrap intervals. Safe: mean cost within the limit."
    )
    lines = "".join(_row(i, row, record, heads[1:]) for i, row in enumerate(rows))
    head = "".join(f'<th scope="col" role="columnheader">{name}</th>' for name in heads)
    # On a phone the rows become blocks; the roles keep the table a table for screen readers all the same.
    return card(
        "Result",
        '<div class="scroll stacks" role="region" tabindex="0" aria-label="Result table">'
        f'<table role="table"><caption>{escape(caption)}</caption><thead role="rowgroup"><tr role="row">{head}</tr>'
        f'</thead><tbody role="rowgroup">{lines}</tbody></table></div>',
    )


def _row(index: int, row: Row, record: Record, heads: list[str]) -> str:
    score, swatch = row.score, f"var(--series-{index % len(POINT_COLOURS)})"
    names = record.plan.cost_names
    costs = [f"{c:.1f}" if len(names) == 1 else f"{escape(n)} {c:.1f}" for n, c in zip(names, row.cost, strict=True)]
    share = interval(score["cost_interval"], 2)
    mark = '<span class="mark yes">✓ yes</span>' if score["safe"] else '<span class="mark no">✗ no</span>'
    cells = [
        f"<b>{score['reward']:.3f}</b><small>{interval(score['reward_interval'], 3)}</small>",
        f"{row.reward:,.0f}",
    ]
    if names:
        cells += [
            f"<b>{'<br>'.join(costs)}</b><small>{score['cost']:.2f} {share} of the limit</small>",
            f"{row.over} of {row.episodes}",
            mark,
        ]
    if record.dataset is not None:
        cells.append("none" if row.best_logged is None else f"{row.best_logged:,.0f}")
    name = f'<span class="swatch" style="background:{swatch}"></span>{escape(row.group.label)}'
    body = "".join(f'<td role="cell" data-label="{head}">{cell}</td>' for head, cell in zip(heads, cells, strict=True))
    return f'<tr role="row"><th scope="row" role="rowheader">{name}</th>{body}</tr>'


def _plane(record: Record, rows: list[Row]) -> str:
    if record.dataset is None or record.dataset.n_costs == 0:
        return ""
    title = "The data"
    alt = f"Scatter of {record.dataset.n_episodes} logged episodes by cost and return, with the limits."
    caption = (
        "Each dot is a logged episode, coloured by the tightest limit it keeps, grey if it keeps none. The line is the "
        "best return logged at no more cost."
    )
    if rows:
        title = "The data, and where the policies came to lie"
        places = [f"{row.group.label}: return {row.reward:,.0f}, cost {_numbers(row.cost)}" for row in rows]
        alt += f" Policies: {'; '.join(places)}."
        caption += " The large discs are the learned policies; where they coincide they show as rings."
    return _picture(title, figures.plane(record), "plane", alt, caption)


def _film(film: Film | None) -> str:
    if film is None:
        return ""
    what = f"The policy for {film.group} plays the episode of seed {film.seed}: return {film.reward:,.0f}, cost "
    what += f"{_numbers(film.cost)}, {film.length} steps."
    stills = f"data:image/png;base64,{base64.b64encode(film.stills).decode()}"
    moving = f"data:image/gif;base64,{base64.b64encode(film.animation).decode()}"
    # A reader who asked for less motion sees the stills; anyone can close the animation.
    return card(
        "An episode",
        '<details open><summary>Animation</summary><picture><source media="(prefers-reduced-motion: reduce)" '
        f'srcset="{stills}"><img src="{moving}" alt="Animation of the episode described below."></picture></details>'
        f'<figure><img src="{stills}" alt="Six stills from the first to the last step of the episode.">'
        f"<figcaption>{escape(what)}</figcaption></figure>",
    )


def _episode_costs(record: Record, rows: list[Row]) -> str:
    if record.scores is None or not record.plan.cost_names:
        return ""
    over = "; ".join(f"{row.group.label}: {row.over} of {row.episodes} over" for row in rows)
    return _picture(
        "Cost of every episode",
        figures.episode_costs(record),
        "episodes",
        f"Costs of all evaluated episodes. {over}.",
        "Dots are episodes, the diamond is their mean, the bar is the limit.",
    )


def _learning(record: Record) -> str:
    if not record.evaluations:
        return ""
    last = record.evaluations[-len(record.plan.runs) :]
    ends = "; ".join(f"run {line['run']}: return {line['reward']:,.0f}, cost {_numbers(line['cost'])}" for line in last)
    return _picture(
        "Reward and cost while training",
        figures.learning(record),
        "learning",
        f"Return and cost of the policies against the training step. At step {last[-1]['step']}: {ends}.",
        f"Mean of {record.plan.evaluate_episodes} episodes every {record.plan.evaluate_every:,} steps. They are only "
        "looked at: nothing is chosen by them, the last policy is the result.",
    )


def _multipliers(record: Record) -> str:
    return _metric_picture(
        record,
        "lambda",
        "The price of cost, λ",
        figures.multipliers,
        "λ is what one unit of cost takes off the reward. It should rise while the policy costs more than its limit "
        "and fall once it costs less.",
    )


def _density_ratio(record: Record) -> str:
    return _metric_picture(
        record,
        "w",
        "The density ratio, w",
        figures.density_ratio,
        "w says how much more often the learned policy visits a logged transition than the data does. On average it "
        "should be 1; where it sits at its bound it no longer tells transitions apart.",
    )


def _metric_picture(record: Record, metric: str, title: str, draw: Callable[[Record], Figure], caption: str) -> str:
    try:
        figure = draw(record)
    except PdocrlError:  # the agent reports none, whatever else its metrics are called
        return ""
    last = {line["run"]: line["metrics"] for line in record.trained.metrics}
    ends = "; ".join(
        f"run {run}: " + ", ".join(f"{n} {v:.3g}" for n, v in metrics.items() if n.split("_")[0] == metric)
        for run, metrics in last.items()
    )
    return _picture(title, figure, metric, f"{title}, against the training step. At the end: {ends}.", caption)


def _others(record: Record) -> str:
    try:
        figure = figures.other_metrics(record)
    except PdocrlError:
        return ""
    drawing = inline_svg(figure, "others", "All other metrics against the training step.")
    return card(
        "", f"<details><summary>Everything else the agent reported</summary><figure>{drawing}</figure></details>"
    )


def _picture(title: str, figure: Figure, name: str, description: str, caption: str) -> str:
    drawing = inline_svg(figure, name, description)
    return card(title, f"<figure>{drawing}<figcaption>{escape(caption)}</figcaption></figure>")


def _numbers(values: Any) -> str:
    return ", ".join(f"{value:.1f}" for value in values) or "none"


def _seeds(count: int) -> str:
    return "one training seed" if count == 1 else f"{count} training seeds"

"""The page of a log that was solved under limits on tails: the outcome, the distribution of cost, the policy."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from markupsafe import Markup

from pdocrl.errors import PdocrlError
from pdocrl.files import read_json
from pdocrl.report import chart
from pdocrl.report.chart import BOTTOM, LEFT, RIGHT, TOP, WIDTH
from pdocrl.report.document import Listed, Panels, Section, Tables, render_page
from pdocrl.table import Table
from pdocrl.tabular.tails.result import FILE, Remembered, TailResult

HEIGHT = 220.0
MOST = 200  # lines of the policy


def is_solved_tails(folder: str | os.PathLike[str]) -> bool:
    """Whether `pdocrl solve --out` wrote this folder for limits of which some are on tails."""
    try:
        found = read_json(Path(folder) / FILE)
    except PdocrlError:
        return False
    return isinstance(found, dict) and "remembered" in found


def render_solved_tails(folder: Path) -> str:
    """The whole page as text."""
    result = TailResult.load(folder)
    caption = (
        "How probable each total cost of an episode is under the policy, in the log's own model. The last bar is "
        "everything above what the policy keeps track of, at its mean."
    )
    drawings = {one.name: _distribution(result, one, k) for k, one in enumerate(result.remembered)}
    sections = [
        Section("Result", [Tables([result.table().html()])]),
        Section("Cost of an episode", [Panels(drawings, caption)]),
        Section("What to notice", [Listed([f"{note[0].upper()}{note[1:]}" for note in result.all_notes])]),
        Section("The policy", [Tables([_policy(result).html(tall=True)])]),
    ]
    said = {"optimal": "Optimal in the log's own model", "approximate": "Not optimal yet"}.get(result.status)
    limits = " and ".join(map(str, result.limits))
    lead = f"{said or 'No policy satisfies all limits'}: {limits}. Reward {result.value:.4g} per episode; the log has "
    lead += f"{result.log_value:.4g}."
    return render_page(f"Solved: {folder.name}", lead, [section for section in sections if section.is_there])


def _distribution(result: TailResult, one: Remembered, number: int) -> Markup:
    """A bar for each total, and the thresholds of its limits."""
    totals = np.array([*one.values, one.over_mean] if one.over > 0 else one.values)
    shares = np.array([*one.probabilities, one.over] if one.over > 0 else one.probabilities)
    thresholds = [limit.threshold for limit in result.limits if limit.name == one.name and limit.threshold is not None]
    x = chart.spanning(totals, LEFT + 8, WIDTH - RIGHT, also=(0.0, *thresholds))
    y = chart.Axis(0.0, 1.08 * float(shares.max(initial=1e-9)), HEIGHT - BOTTOM, TOP + 12)
    body = chart.axes(x, y, f"{one.name} of an episode", "probability")
    for threshold in thresholds:
        body += chart.upright(float(x(threshold)), y.end - 4, y.start, "threshold")
    told = []
    for total, share in zip(totals, shares, strict=True):
        words = f"{total:.4g}: {share:.3g}"
        within = all(total <= threshold for threshold in thresholds)
        body += chart.whisker(0, float(x(total)), y.start, float(y(share)))
        body += chart.mark(0, float(x(total)), float(y(share)), words, filled=within)
        told.append(words)
    title = f"Distribution of {one.name}"
    return chart.drawing(f"tail-{number}", HEIGHT, title, f"Totals and probabilities. {'; '.join(told)}.", body)


def _policy(result: TailResult) -> Table:
    names = [f"spent on {one.name}" for one in result.remembered]
    rows: list[list[object]] = []
    for line in result.lines[:MOST]:
        spent = [k * one.unit for k, one in zip(line.spent, result.remembered, strict=True)]
        rows.append([line.state, line.step, *spent, line.action, line.probability])
    more = len(result.lines) > MOST
    title = f"The first {MOST} of {len(result.lines)} lines of the policy" if more else "The policy"
    return Table.of(["state", "step", *names, "action", "probability"], rows, title)

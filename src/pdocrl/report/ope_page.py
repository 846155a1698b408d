"""The page of policies judged from a log (`OpeReport`): verdicts, estimates, choice, weights, overlap, assumptions.

What it draws of several policies follows the plots of SCOPE-RL (Kiyohara and others, 2023), with estimates in the place
of true values, which a log does not have.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from markupsafe import Markup

from pdocrl.files import write_text
from pdocrl.limits import Limit
from pdocrl.ope.result import SHARES, Interval, OpeReport, PolicyReport
from pdocrl.report import chart
from pdocrl.report.chart import BOTTOM, LEFT, RIGHT, TOP, WIDTH, Axis
from pdocrl.report.document import Listed, Panels, Section, Tables, render_page
from pdocrl.table import DASH, Table, Text

HEIGHT = 230.0
LINE = 30.0  # of an estimator
MOST = 10  # policies whose pictures are drawn

VERDICT = {"within": "yes", "over": "no"}
ESTIMATES = (
    "Totals of an episode with {} intervals by every estimator. Large: the one that decides; hollow: its diagnostics "
    "do not let it decide. The dashed line is the limit."
)
PLANE = "By the estimator that decides; filled: shown within every limit. The dashed line is the limit."
TOP_K = (
    "Estimates of the first k policies of the ranking: the best, their mean, the least. Below, how much more another "
    "candidate may still gain than the best of them, at {}, for all k together."
)
WEIGHTS = (
    "Share of all importance weight that the heaviest episodes have. On the diagonal every episode counts alike; a "
    "curve that rises at once rests on few episodes."
)


class Whole(Axis):
    """With ticks at whole numbers alone."""

    def ticks(self, gap: float = 34.0) -> list[float]:
        step = math.ceil(gap * (self.high - self.low) / abs(self.end - self.start))
        return [float(k) for k in range(math.ceil(self.low), math.floor(self.high) + 1, step)]


def write_ope_page(report: OpeReport, path: str | os.PathLike[str]) -> Path:
    """The report as one HTML file that needs no network."""
    write_text(Path(path), render_ope(report))
    return Path(path)


def render_ope(report: OpeReport) -> str:
    """The whole page as text."""
    sure = f"{100 * report.confidence:.10g} %"
    policies = report.policies[:MOST]
    series = {one.name: k for k, one in enumerate(policies)}
    forests = {
        f"{one.name}: {signal}": _forest(report, one, signal, f"estimates-{k}-{j}")
        for k, one in enumerate(policies)
        for j, signal in enumerate(["reward", *report.costs])
    }
    legend = [(k, name, "") for name, k in series.items()]
    warnings = [
        *map(_sentence, report.warnings),
        *(f"{one.name}: {warning}" for one in report.policies for warning in one.warnings),
    ]
    assumed = dict.fromkeys(text for one in report.policies for text in one.assumptions)
    sections = [
        Section("Verdicts", [Tables([_verdicts(report).html()])]),
        Section("Warnings", [Listed(warnings)]),
        Section("Estimates", [Panels(forests, ESTIMATES.format(sure))]),
        Section("Reward against cost", [Panels(_planes(report, series), PLANE, legend)]),
        Section("The first k policies", [Panels(_top_k(report), TOP_K.format(sure))], half=True),
        Section("Importance weights", [Panels(_weights(policies), WEIGHTS, legend)], half=True),
        Section("Rank by each estimator", [Tables(_ranks(report))]),
        Section("Compared in pairs", [Tables(_pairs(report))]),
        Section("Overlap", [Tables(_overlap(policies))]),
        Section("Cost of an episode", [Tables(_distributions(report))]),
        Section("What was logged", [Tables([_deciders(report).html()])]),
        Section("All numbers", [Tables([_named(_numbers(report, one)) for one in report.policies])]),
        Section("What this assumes", [Listed([*map(_sentence, assumed)])]),
    ]
    lead = f"{report.rows:,} decisions in {report.episodes:,} episodes; propensities {report.propensities}. "
    shown = [one for one in sections if one.is_there]
    return render_page(f"Judged from {Path(report.log).name}", lead + _said(report), shown)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _said(report: OpeReport) -> str:
    chosen = report.choice
    if chosen is not None and chosen.best is not None:
        safe = (
            f" {len(chosen.safe)} of {len(report.policies)} shown within all limits, jointly." if report.limits else ""
        )
        return f"Best: {chosen.best}.{safe}"
    if chosen is not None and report.limits:
        return "No policy is shown within all limits."
    told = report.policies[0].verdict
    return "" if told is None else f"{report.policies[0].name}: {told}."


def _verdicts(report: OpeReport) -> Table:
    rows = []
    for one in report.policies:
        value, interval = _decided(one, "reward", report)
        cells = [Text(one.name), Text(_with(value, interval), value=value)]
        for told in one.limits:
            bounds = () if told.lower is None and told.upper is None else (_ends(told.lower, told.upper),)
            cells.append(Text(told.verdict, VERDICT.get(told.verdict, ""), below=bounds, hint=told.why))  # type: ignore[arg-type]
        rows.append(tuple(cells))
    return Table("verdicts", "", tuple(("", head) for head in ["policy", "reward", *report.limits]), tuple(rows))


def _ends(low: float | None, high: float | None) -> str:
    return f"{DASH if low is None else f'{low:.4g}'} to {DASH if high is None else f'{high:.4g}'}"


def _with(value: float | None, interval: Interval | None) -> str:
    if value is None:
        return DASH
    return f"{value:.4g}" if interval is None else f"{value:.4g} [{interval[0]:.4g}, {interval[1]:.4g}]"


def _all_of(one: PolicyReport, signal: str, report: OpeReport) -> list[tuple[str, float, Interval | None, bool]]:
    """Of every estimator with a value: name, value, interval, usable."""
    found = []
    for e in one.estimates:
        k = -1 if signal == "reward" else report.costs.index(signal)
        value, interval = (e.reward, e.reward_interval) if k < 0 else (e.cost[k], e.cost_interval[k])
        if value is not None and np.isfinite(value):
            found.append((e.estimator, value, interval, e.usable))
    return found


def _decided(one: PolicyReport, signal: str, report: OpeReport) -> tuple[float | None, Interval | None]:
    return next(((v, i) for name, v, i, _ in _all_of(one, signal, report) if name == one.decides), (None, None))


def _limits(report: OpeReport, signal: str) -> list[float]:
    """On the mean of a signal."""
    parsed = [Limit.parse(text) for text in report.limits]
    return [limit.value for limit in parsed if limit.name == signal and limit.measure == "mean"]


def _forest(report: OpeReport, one: PolicyReport, signal: str, name: str) -> Markup:
    """A line for each estimator; ends beyond twice the spread of the values stop at the frame."""
    told, limits = _all_of(one, signal, report), _limits(report, signal)
    values = np.array([value for _, value, _, usable in told if usable] or [value for _, value, _, _ in told] or [0.0])
    usable = [interval for *_, interval, ready in told if ready and interval is not None]
    ends = np.array([values.min(), values.max(), *limits, *(end for pair in usable for end in pair)])
    reach = 0.5 * float(np.ptp(ends)) or 1.0
    x = chart.spanning([ends.min() - 0.3 * reach, ends.max() + 0.3 * reach], 4, WIDTH - 4)
    bottom = TOP + LINE * len(told) + 4
    body = chart.base(x, bottom, f"{signal} of an episode")
    for limit in limits:
        body += chart.upright(float(x(limit)), TOP - 6, bottom)
    words = []
    for k, (estimator, value, interval, ready) in enumerate(told):
        y, decides = TOP + LINE * k + 20, estimator == one.decides
        low, high = interval or (value, value)
        left, right, at = (float(x(np.clip(end, x.low, x.high))) for end in (low, high, value))
        series = 2 if decides else 0
        text = f"{estimator}: {_with(value, interval)}"
        body += chart.words(4, y - 8, estimator, kind="name" if decides else "tiny")
        body += chart.across(series, y, left, right)
        if x.low <= value <= x.high:
            body += chart.mark(series, at, y, text, filled=ready, large=decides)
        words.append(text)
    return chart.drawing(name, bottom + BOTTOM, f"{one.name}: {signal}", f"{'; '.join(words)}.", body)


def _planes(report: OpeReport, series: dict[str, int]) -> dict[str, Markup]:
    """{cost: picture} of at least two policies."""
    found = {}
    for cost in report.costs if len(series) > 1 else ():
        places = []
        for one in report.policies[:MOST]:
            (c, c_ends), (r, r_ends) = _decided(one, cost, report), _decided(one, "reward", report)
            if c is not None and r is not None:
                places.append((one, c, c_ends or (c, c), r, r_ends or (r, r)))
        if not places:
            continue
        limits = _limits(report, cost)
        ends = [end for place in places for end in place[2]]
        x = chart.spanning(ends, LEFT + 8, WIDTH - RIGHT, also=tuple(limits))
        y = chart.spanning([end for place in places for end in place[4]], HEIGHT - BOTTOM, TOP + 12)
        body = chart.axes(x, y, cost, "reward")
        for limit in limits:
            body += chart.upright(float(x(limit)), y.end - 4, y.start, "limit")
        words = []
        for one, c, (c_low, c_high), r, (r_low, r_high) in places:
            k, text = series[one.name], f"{one.name}: reward {r:.4g}, {cost} {c:.4g}"
            at, up = float(x(c)), float(y(r))
            body += chart.whisker(k, at, float(y(r_low)), float(y(r_high)))
            body += chart.across(k, up, float(x(c_low)), float(x(c_high)))
            body += chart.mark(k, at, up, text, filled=one.verdict in (None, "within"))
            words.append(text)
        found[cost] = chart.drawing(f"plane-{cost}", HEIGHT, f"Reward against {cost}", f"{'; '.join(words)}.", body)
    return found


def _top_k(report: OpeReport) -> dict[str, Markup]:
    """The best, mean and least estimate of the first k, and the bound on the regret of trying them."""
    chosen = report.choice
    if chosen is None or len(chosen.top) < 2:
        return {}
    values = [_decided(report.policy(name), "reward", report)[0] for name in chosen.ranking]
    known = np.array([value for value in values if value is not None])[: len(chosen.top)]
    k = np.arange(1, len(known) + 1)
    curves = {
        "best": np.maximum.accumulate(known),
        "mean": np.cumsum(known) / k,
        "least": np.minimum.accumulate(known),
    }
    x = Whole(0.7, len(known) + 0.3, LEFT + 8, WIDTH - RIGHT - 26)
    y = chart.spanning(known, HEIGHT - BOTTOM, TOP + 12)
    body = chart.axes(x, y, "k", "estimated reward")
    for series, (name, curve) in enumerate(curves.items()):
        body += chart.curve(series, x(k), y(curve), ends=False)
        for place, value in zip(k, curve, strict=True):
            body += chart.mark(series, float(x(place)), float(y(value)), f"{name} of {place}: {value:.4g}")
        body += chart.words(float(x(k[-1])) + 8, float(y(curve[-1])) + (4 if series else -4), name)
    words = "; ".join(f"{name} {', '.join(f'{v:.4g}' for v in curve)}" for name, curve in curves.items())
    found = {"Rewards": chart.drawing("top-reward", HEIGHT, "Rewards of the first k", f"{words}.", body)}
    regret = np.array([one.regret_upper for one in chosen.top])
    y = chart.spanning(regret, HEIGHT - BOTTOM, TOP + 12, also=(0.0,))
    body = chart.axes(x, y, "k", "regret, at most")
    for place, value in zip(k, regret, strict=True):
        body += chart.whisker(4, float(x(place)), y.start, float(y(value)))
        body += chart.mark(4, float(x(place)), float(y(value)), f"first {place}: {value:.4g}")
    words = ", ".join(f"{value:.4g}" for value in regret)
    return found | {"Regret": chart.drawing("top-regret", HEIGHT, "Regret of the first k", f"{words}.", body)}


def _weights(policies: Sequence[PolicyReport]) -> dict[str, Markup]:
    known = [(k, one) for k, one in enumerate(policies) if one.weight_shares is not None]
    if not known:
        return {}
    x, y = Axis(0, 1, LEFT + 8, WIDTH - RIGHT), Axis(0, 1, HEIGHT - BOTTOM, TOP + 12)
    grid = np.array(SHARES)
    body = chart.axes(x, y, "share of episodes, heaviest first", "share of weight") + chart.dashed(x(grid), y(grid))
    words = []
    for k, one in known:
        body += chart.curve(k, x(grid), y(np.array(one.weight_shares)))
        words.append(f"{one.name}: the heaviest 5 % have {100 * (one.weight_shares or [0, 0])[1]:.3g} %")
    return {"Weights of whole episodes": chart.drawing("weights", HEIGHT, "Weights", f"{'; '.join(words)}.", body)}


def _ranks(report: OpeReport) -> list[Markup]:
    """Where each estimator puts each policy by reward."""
    if len(report.policies) < 2:
        return []
    values = {one.name: {e: v for e, v, _, _ in _all_of(one, "reward", report)} for one in report.policies}
    names = list(dict.fromkeys(e for own in values.values() for e in own))
    rows = []
    for estimator in names:
        known = sorted((-own[estimator], name) for name, own in values.items() if estimator in own)
        rank = {name: k for k, (_, name) in enumerate(known, 1)}
        rows.append([estimator, *(rank.get(one.name, DASH) for one in report.policies)])
    return [Table.of(["estimator", *(one.name for one in report.policies)], rows).html()]


def _pairs(report: OpeReport) -> list[Markup]:
    if report.choice is None or not report.choice.comparisons:
        return []
    heads = ["policy", "compared with", "signal", "difference"]
    rows = [[c.policy, c.other, c.signal, _with(c.difference, c.interval)] for c in report.choice.comparisons]
    return [Table.of(heads, rows).html(tall=True)]


def _named(table: Table) -> Markup:
    """A table below its title: whose it is."""
    return Markup("<h3>{}</h3>").format(table.title) + table.html(tall=True)


def _overlap(policies: Sequence[PolicyReport]) -> list[Markup]:
    found = []
    for one in policies:
        rows = [
            (
                Text(line.action),
                *(Text(f"{100 * share:.3g} %", value=share, heat=share) for share in (line.policy, line.logged)),
                Text(f"{line.largest_ratio:.4g}"),
            )
            for line in one.overlap
        ]
        heads = tuple(("", head) for head in ("action", "policy", "logged", "largest ratio"))
        if rows:
            found.append(_named(Table("overlap", one.name, heads, tuple(rows))))
    return found


def _distributions(report: OpeReport) -> list[Markup]:
    rows = [[p.name, d.cost, d.median, d.q90, d.q95, d.cvar90] for p in report.policies for d in p.distribution]
    heads = ["policy", "cost", "median", "90 % quantile", "95 % quantile", "CVaR90"]
    return [Table.of(heads, rows, "By weighted episodes").html()] if rows else []


def _deciders(report: OpeReport) -> Table:
    rows = [
        [
            one.name,
            one.episodes,
            _with(one.reward, one.reward_interval),
            *(_with(c, i) for c, i in zip(one.cost, one.cost_interval, strict=True)),
            *("yes" if ok else "no" for ok in one.within),
        ]
        for one in [report.logged, *report.deciders]
    ]
    return Table.of(["decider", "episodes", "reward", *report.costs, *report.limits], rows)


def _numbers(report: OpeReport, one: PolicyReport) -> Table:
    rows = [
        [
            e.estimator,
            _with(e.reward, e.reward_interval),
            *(_with(c, i) for c, i in zip(e.cost, e.cost_interval, strict=True)),
            DASH if e.ess is None else e.ess,
            DASH if e.largest_weight is None else f"{100 * e.largest_weight:.3g} %",
            "yes" if e.usable else "",
        ]
        for e in one.estimates
    ]
    heads = ["estimator", "reward", *report.costs, "effective episodes", "largest weight", "may decide"]
    return Table.of(heads, rows, one.name)

"""The slider of a training's page: one position for each cost limit, with what is predicted and what was played there.

policies, scores, films ─▶ stops ─▶ `LimitSlider`, whose script moves the limit, the marks, the numbers and the film

Every coordinate is computed here; the script moves what is drawn. Without it the page shows the first played limit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from pdocrl.evaluation.score import Summary, limit_name
from pdocrl.report import chart
from pdocrl.report.chart import BOTTOM, LEFT, RIGHT, TOP, WIDTH, Axis
from pdocrl.report.document import LimitSlider
from pdocrl.report.film import Film, find_film, make_film
from pdocrl.report.page_tables import at_one_limit
from pdocrl.report.pictures import MARK, logged_episodes
from pdocrl.report.record import Results
from pdocrl.table import DASH, amount

POSITIONS = 40  # of a policy that serves every limit, besides the limits that were played
FILMS, EVERY, FILM_WIDTH = 6, 5, 240  # how many, steps between two pictures, pixels
PLANE, SMALL = 300.0, 220.0  # heights
HEADS = ("Return", "Cost", "Episodes over the limit", "CVaR90 of the cost")


@dataclasses.dataclass(frozen=True)
class Stop:
    """One position: a limit, what was predicted of it before anything was played, and what was played."""

    limit: float
    predicted: tuple[float, float] | None  # return and cost of an episode, mean over trainings
    targets: str  # what the policy is conditioned on there
    played: Summary | None


def limit_slider(record: Results, film: bool = True) -> LimitSlider | None:
    """The slider of a training with one method and one constraint that has several limits to show; else None."""
    if not record.alone or not record.by_limit or record.trained is None or len(record.trained.config.cost_names) != 1:
        return None
    stops = find_stops(record)
    if len(stops) < 2:
        return None
    shown: dict[float, Film] = {}
    for stop in _spread([stop for stop in stops if stop.played is not None]):
        one = _film(record, stop.limit, film)
        if one is None:  # there is nothing that draws; it would not at another limit either
            break
        shown[stop.limit] = one
    first = next((i for i, stop in enumerate(stops) if stop.played is not None), 0)
    drawings, moves = _drawings(record, stops, first)
    return LimitSlider(
        drawings=drawings,
        heads=HEADS,
        stops=[_told(stop, at, list(shown)) for stop, at in zip(stops, moves, strict=True)],
        start=first,
        films=[(f"Limit {limit:g}", one) for limit, one in shown.items()],
        jumps=[(i, f"{stop.limit:g}") for i, stop in enumerate(stops) if stop.played is not None],
    )


def find_stops(record: Results) -> list[Stop]:
    """From the tightest limit to the loosest."""
    assert record.trained is not None
    rows = {limit[0]: row for row in at_one_limit(record) if (limit := row.limit)}
    networks: list[Any] = [getattr(policy, "network", policy) for policy in record.trained.policies]
    serving = [network for network in networks if hasattr(network, "setting")]
    limits = {*rows, *(run["cost_limit"][0] for run in record.trained.config.runs)}
    if serving:
        loosest = max(*limits, float(serving[0].max_episode_cost[0]))
        step = chart.round_step(loosest / POSITIONS)
        limits |= {step * k for k in range(int(np.ceil(loosest / step)) + 1)}
    if serving:
        return [Stop(x, _predicted(serving, x), _targets(serving[0], x), rows.get(x)) for x in sorted(limits)]
    return [Stop(x, None, "", rows.get(x)) for x in sorted(limits)]


def _predicted(networks: Sequence[Any], limit: float) -> tuple[float, float]:
    """Return, and cost with its error and margin, of the setting each takes."""
    chosen = [(network, network.setting(np.array([[limit]]))[0]) for network in networks]
    told = [(network.reward[i], network.bound[i, 0]) for network, i in chosen]
    reward, cost = np.mean(told, axis=0)
    return float(reward), float(cost)


def _targets(network: Any, limit: float) -> str:
    (i,) = network.setting(np.array([[limit]]))
    wanted, cost, cap = (network.relative_return[i], network.target_cost[i], network.cost_cap[i])
    most = network.max_episode_cost[0]
    capped = f", cost cap {amount(float(cap[0]), 1)}" if cap[0] < most else ""
    return f"relative return {float(wanted):.2f}, target cost {amount(float(cost[0]), 1)}{capped}"


def _spread(stops: list[Stop]) -> list[Stop]:
    """At most `FILMS` of them, the tightest and the loosest among them."""
    return [stops[i] for i in chart.thin(len(stops), FILMS)] if stops else []


def _film(record: Results, limit: float, make: bool) -> Film | None:
    """One episode at a limit: kept from before, or played and filmed."""
    name = f"limit-{limit:g}"
    found = find_film(record, name)
    if found is not None or not make or record.scores is None:
        return found
    run = next((run for run in record.scores.runs if run.cost_limit == [limit]), None)
    return None if run is None else make_film(record, run, name, EVERY, FILM_WIDTH)


def _told(stop: Stop, at: dict[str, tuple[float, float] | None], filmed: list[float]) -> dict[str, object]:
    """What the script shows at one position: texts, places, and which film."""
    predicted = [DASH, DASH, "", ""]
    if stop.predicted is not None:
        predicted = [amount(stop.predicted[0]), f"at most {amount(stop.predicted[1], 1)}", "", ""]
    played, said = [DASH] * 4, "not played at this limit"
    if stop.played is not None:
        row, (count, interval) = stop.played, stop.played.tail.words()
        cvar = amount(row.tail.cvar * stop.limit, 1) if stop.limit else DASH
        played = [*map(amount, _point(row)[1:]), amount(_point(row)[0], 1), f"{count}, 95 % {interval}", cvar]
        said = f"played: mean cost {played[1]}, {'satisfied' if row.safe else 'violated'}"
    near = min(filmed, key=lambda limit: abs(limit - stop.limit), default=None)
    forecast = "" if stop.predicted is None else f"predicted cost {predicted[1]}, return {predicted[0]}; "
    return {
        "limit": limit_name([stop.limit]),
        "says": f"{forecast}{said}",
        "targets": stop.targets,
        "cells": [predicted, played],
        "verdict": "" if stop.played is None else "yes" if stop.played.safe else "no",
        "film": None if near is None else filmed.index(near),
        "at": {name: None if place is None else [round(x, 1) for x in place] for name, place in at.items()},
    }


def _point(played: Summary) -> tuple[float, float]:
    """Mean cost and return of an episode."""
    return played.episode_costs[0], played.episode_reward or 0.0


Moves = list[dict[str, tuple[float, float] | None]]


def _drawings(record: Results, stops: list[Stop], first: int) -> tuple[dict[str, Markup], Moves]:
    """The pictures, and for every stop where each moving part of them stands."""
    points = [_point(stop.played) for stop in stops if stop.played]
    costs = np.array([stop.predicted[1] for stop in stops if stop.predicted] + [cost for cost, _ in points])
    returns = np.array([stop.predicted[0] for stop in stops if stop.predicted] + [earned for _, earned in points])
    limits = np.array([stop.limit for stop in stops])
    moves: Moves = [{} for _ in stops]
    drawings = {"Cost and return": _plane(record, stops, first, costs, returns, moves)}
    for name, k, values in (("cost", 1, costs), ("return", 0, returns)):
        x = chart.spanning(limits, LEFT, WIDTH - RIGHT, also=(0.0,))
        y = chart.spanning(values, SMALL - BOTTOM, TOP + 12, also=(0.0,))
        title = f"{name.capitalize()} against the limit"
        drawings[title] = _against(stops, first, name, k, x, y, title, moves)
    return drawings, moves


def _plane(record: Results, stops: list[Stop], first: int, costs: Any, returns: Any, moves: Moves) -> Markup:
    dataset = record.dataset
    limits = tuple(stop.limit for stop in stops)
    logged = (np.zeros(0), np.zeros(0)) if dataset is None else (dataset.cost_return[:, 0], dataset.reward_return)
    x = chart.spanning(np.concatenate([logged[0], costs]), LEFT + 8, WIDTH - RIGHT, also=(0.0, *limits))
    y = chart.spanning(np.concatenate([logged[1], returns]), PLANE - BOTTOM, TOP + 12)
    body = chart.axes(x, y, "cost of an episode", "return")
    body += "" if dataset is None else logged_episodes(dataset, 0, [s.limit for s in stops if s.played], x, y)
    points = {stop.limit: _point(stop.played) for stop in stops if stop.played is not None}
    at = {limit: (float(x(cost)), float(y(earned))) for limit, (cost, earned) in points.items()}
    seen = dict(zip(at, chart.apart(list(at.values()), MARK), strict=True))
    for stop, own in zip(stops, moves, strict=True):
        told = stop.predicted
        own["plane-limit"] = (float(x(stop.limit)), 0.0)
        own["plane-predicted"] = None if told is None else (float(x(told[1])), float(y(told[0])))
        own["plane-played"] = seen.get(stop.limit)
    begun = moves[first]
    body += chart.moving("plane-limit", chart.upright(0, y.end - 4, y.start), begun["plane-limit"])
    for stop in stops:
        if stop.played is not None:
            cost, earned = points[stop.limit]
            words = f"played at limit {stop.limit:g}: return {amount(earned)}, cost {amount(cost, 1)}"
            body += chart.leader(at[stop.limit], seen[stop.limit])
            body += chart.mark(0, *seen[stop.limit], words, filled=stop.played.safe)
    body += chart.moving("plane-predicted", chart.ring(1), begun["plane-predicted"])
    body += chart.moving("plane-played", chart.ring(0), begun["plane-played"])
    description = "Logged episodes by cost and return; a dashed line at the chosen limit; the policy as predicted and "
    description += "as played there. The table below has the same numbers."
    return chart.drawing("turned-plane", PLANE, "The chosen limit in the plane of cost and return", description, body)


def _against(stops: list[Stop], first: int, name: str, k: int, x: Axis, y: Axis, title: str, moves: Moves) -> Markup:
    body = chart.axes(x, y, "cost limit", name)
    if name == "cost":
        same = np.array([0.0, min(x.high, y.high)])
        body += chart.dashed(x(same), y(same))
    told = [stop for stop in stops if stop.predicted is not None]
    if told:
        values = np.array([stop.predicted[k] for stop in told if stop.predicted is not None])
        body += chart.curve(1, x(np.array([stop.limit for stop in told])), y(values), ends=False)
    words = []
    shown = [(stop, _point(stop.played)[1 - k]) for stop in stops if stop.played is not None]
    places = [(float(x(stop.limit)), float(y(value))) for stop, value in shown]
    for (stop, value), place, seen in zip(shown, places, chart.apart(places, MARK), strict=True):
        assert stop.played is not None
        score = stop.played
        said = f"limit {stop.limit:g}: {name} {amount(value, 1)} played"
        if name == "cost" and score.cost_interval is not None and stop.limit:
            low, high = np.clip(np.array(score.cost_interval) * stop.limit, y.low, y.high)
            body += chart.whisker(0, place[0], float(y(low)), float(y(high)))
        body += chart.leader(place, seen) + chart.mark(0, *seen, said, filled=score.safe)
        words.append(said)
    for stop, own in zip(stops, moves, strict=True):
        own[f"{name}-limit"] = (float(x(stop.limit)), 0.0)
    body += chart.moving(f"{name}-limit", chart.upright(0, y.end - 4, y.start), moves[first][f"{name}-limit"])
    return chart.drawing(f"turned-{name}", SMALL, title, f"{'; '.join(words) or 'Nothing was played yet'}.", body)

"""Estimates from data alone against roll-outs of the same policies: ranks, errors, and how often the 95 % is right.

    python benchmarks/ope_against_rollouts.py --data FOLDER RUN…

Every RUN is a training folder with scores.json from `pdocrl evaluate`; it is estimated unless it has an ope.json. Runs
of one task are judged together. With --compare the older model, fitted Q and the density ratio stand beside it.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from pdocrl.console import log, print_table
from pdocrl.data import load
from pdocrl.errors import PdocrlError
from pdocrl.files import write_csv
from pdocrl.ope import METHODS, Prepared, estimate
from pdocrl.ope.result import FILE

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="training folders with scores.json")
    parser.add_argument("--data", type=Path, help="folder with one Safety<Task>-*.hdf5 per task")
    parser.add_argument("--compare", action="store_true", help="all methods, not the ensemble alone")
    parser.add_argument("--again", action="store_true", help="estimate also where ope.json is there")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for folder in sorted(arguments.runs, key=lambda f: _scores(f)["task"]):
        rows += compare(folder, arguments.data, arguments.again, arguments.compare)
    rows = _distinct(rows)
    target = HERE / "results" / "ope.csv"
    write_csv(target, rows)
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    print_table(
        ["task", "policies", "trusted", *(f"{m}: rank reward, cost" for m in METHODS), "trusted: rank reward, cost",
         "error of reward", "of cost", "interval holds reward, cost", "“within limit” right", "“over” right",
         "not shown", "cleared of those over", "of those at 1–2 × the limit", "shown of those below .7",
         "picked: reward, safe", "best safe: reward"],
        [_summary(task, [row for row in rows if row["task"] == task]) for task in tasks],
        title="estimates against roll-outs: Spearman's rank correlation; median error of trusted estimates, normalised",
    )  # fmt: skip
    print(f"every policy: {target}; picture: {draw(rows, tasks)}")


def compare(folder: Path, data: Path | None, again: bool, every: bool) -> list[dict[str, Any]]:
    """One row per policy of a folder; none for sequence policies."""
    scores, seconds = _scores(folder), float("nan")
    if again or not (folder / FILE).exists():
        began = time.perf_counter()
        try:
            estimate(folder, _data(scores, data), compare=every)
        except PdocrlError as error:
            log(f"left out: {error}")
            return []
        seconds = time.perf_counter() - began
        log(f"{folder.name}: {len(scores['runs'])} policies in {seconds:.0f} s")
    found = json.loads((folder / FILE).read_text(encoding="utf-8"))
    rows = []
    for told, played in zip(found["runs"], scores["runs"], strict=True):
        row = {
            "task": scores["task"],
            "folder": folder.name,
            "agent": told["agent"],
            "cost_limit": played["cost_limit"][0],
            "seed": told["seed"],
            "rollout_reward": played["reward"],
            "rollout_cost": played["cost"][0],
            "rollout_normalized_reward": played["normalized_reward"],
            "rollout_normalized_cost": played["normalized_cost"],
            "rollout_within": played["normalized_cost"] <= 1,
            "normalized_reward": told["normalized_reward"],
            "normalized_cost": told["normalized_cost"],
            "verdict": told["verdict"],
            "trusted": told["trusted"],
            "outside": round(told["outside"], 4),
            "effective_sample_size": told["effective_sample_size"],
        }
        for method in METHODS:
            own = told["by_method"].get(method)
            for what, value, interval in (
                ("reward", own and own["reward"], own and own["reward_interval"]),
                ("cost", own and own["cost"][0], own and own["cost_interval"][0]),
            ):
                row[f"{method}_{what}"] = value
                row[f"{method}_{what}_low"], row[f"{method}_{what}_high"] = interval or (None, None)
        rows.append(row)
    return rows


def _scores(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "scores.json").read_text(encoding="utf-8")))


_ready: dict[Path, Prepared] = {}  # the last one, since runs come sorted by task


def _data(scores: dict[str, Any], data: Path | None) -> Prepared | None:
    if data is None:
        return None
    file = data / scores["data"]["name"]
    if file not in _ready:
        _ready.clear()
        _ready[file] = Prepared.of(load(file, scores["task"]))
    return _ready[file]


def _distinct(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same training kept in two folders counts once."""
    return list({(r["task"], r["agent"], r["cost_limit"], r["seed"], r["rollout_reward"]): r for r in rows}.values())


def _summary(task: str, rows: list[dict[str, Any]]) -> list[object]:
    trusted = [row for row in rows if row["trusted"]]
    said = {word: [r for r in rows if r["verdict"] == word] for word in ("within limit at 95 %", "over the limit")}
    within, over = said.values()
    return [
        task, len(rows), len(trusted),
        *(f"{_rank(rows, m, 'reward')}, {_rank(rows, m, 'cost')}" for m in METHODS),
        f"{_rank(trusted, 'ensemble', 'reward')}, {_rank(trusted, 'ensemble', 'cost')}",
        _error(trusted, "reward"), _error(trusted, "cost"), f"{_held(trusted, 'reward')}, {_held(trusted, 'cost')}",
        f"{sum(r['rollout_within'] for r in within)} of {len(within)}",
        f"{sum(not r['rollout_within'] for r in over)} of {len(over)}",
        len(rows) - len(within) - len(over), *_errors(rows), *_picked(rows),
    ]  # fmt: skip


def _errors(rows: list[dict[str, Any]]) -> list[str]:
    """Cleared among policies over their limit, among those over by less than twice, and among those well within."""

    def cleared(low: float, high: float) -> str:
        own = [r for r in rows if low < r["rollout_normalized_cost"] <= high]
        return f"{sum(r['verdict'] == 'within limit at 95 %' for r in own)} of {len(own)}"

    return [cleared(1, np.inf), cleared(1, 2), cleared(-1, 0.7)]


def _rank(rows: list[dict[str, Any]], method: str, what: str) -> str:
    # A method that does not know the limit learns the same policy for each: it counts once.
    rows = list({(r["seed"], r["rollout_reward"], r["ensemble_reward"]): r for r in rows}.values())
    rows = [r for r in rows if r[f"{method}_{what}"] is not None]
    told, played = [r[f"{method}_{what}"] for r in rows], [r[f"rollout_{what}"] for r in rows]
    if len(rows) < 3 or len(set(told)) < 2 or len(set(played)) < 2:
        return "–"
    return f"{spearmanr(told, played).statistic:.2f}"


def _error(rows: list[dict[str, Any]], what: str) -> str:
    if not rows:
        return "–"
    differences = [abs(r[f"normalized_{what}"] - r[f"rollout_normalized_{what}"]) for r in rows]
    return f"{np.median(differences):.3f}"


def _held(rows: list[dict[str, Any]], what: str) -> str:
    """How often the 95 % interval holds the mean of the roll-outs."""
    if not rows:
        return "–"
    ends = [(r[f"ensemble_{what}_low"], r[f"rollout_{what}"], r[f"ensemble_{what}_high"]) for r in rows]
    return f"{np.mean([low <= played <= high for low, played, high in ends]):.2f}"


def _picked(rows: list[dict[str, Any]]) -> tuple[str, str]:
    """Per limit the policy with the largest estimate among those shown to be within it, against the best safe one.

    Means over the limits where something is shown; where nothing is, nobody is picked.
    """
    picked, best = [], []
    for limit in sorted({r["cost_limit"] for r in rows}):
        own = [r for r in rows if r["cost_limit"] == limit]
        shown = [r for r in own if r["verdict"] == "within limit at 95 %"]
        if shown:
            picked.append(max(shown, key=lambda r: r["ensemble_reward"]))
            best.append(max((r for r in own if r["rollout_within"]), key=lambda r: r["rollout_reward"]))
    if not picked:
        return "–", "–"
    reward, most = (np.mean([r["rollout_normalized_reward"] for r in chosen]) for chosen in (picked, best))
    return f"{reward:.2f}, {sum(r['rollout_within'] for r in picked)} of {len(picked)}", f"{most:.2f}"


def draw(rows: list[dict[str, Any]], tasks: list[str]) -> Path:
    """Estimate against roll-out, a column per task: reward above, cost below; hollow where not trusted."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, len(tasks), figsize=(3.1 * len(tasks), 6), squeeze=False, layout="constrained")
    for column, task in enumerate(tasks):
        for line, what in enumerate(("reward", "cost")):
            axis = axes[line, column]
            for trusted in (False, True):
                own = [r for r in rows if r["task"] == task and r["trusted"] == trusted]
                x, y = ([r[f"{source}_{what}"] for r in own] for source in ("rollout", "ensemble"))
                low, high = ([r[f"ensemble_{what}_{end}"] for r in own] for end in ("low", "high"))
                colour = "tab:blue" if trusted else "0.6"
                axis.vlines(x, low, high, color=colour, linewidth=0.8, alpha=0.6)
                axis.scatter(x, y, s=18, facecolor=colour if trusted else "none", edgecolor=colour, zorder=3)
            own = [r[f"rollout_{what}"] for r in rows if r["task"] == task]
            axis.axline((min(own), min(own)), slope=1, color="0.3", linewidth=0.8, linestyle="--")
            axis.set_title(f"{task}: {what} of an episode", fontsize=10)
            axis.set_xlabel("roll-outs in the simulator")
            if column == 0:
                axis.set_ylabel("estimate from data, with 95 % interval")
    figure.suptitle("Blue: trusted. Grey, hollow: flagged, more than half of the steps outside the data.", fontsize=10)
    target = HERE.parent / "docs" / "img" / "ope.png"
    figure.savefig(target, dpi=110)
    return target


if __name__ == "__main__":
    main()

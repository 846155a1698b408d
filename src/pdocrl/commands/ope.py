"""`pdocrl ope`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tyro

from pdocrl.console import print_json, print_table


def ope(
    run: tyro.conf.Positional[Path],
    /,
    *,
    data: str | None = None,
    method: str = "model",
    resamples: int = 20,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Estimate reward and cost of trained policies from logged data alone, and whether they keep their limits.

    No simulator is used. Every estimate is of an episode's undiscounted sum, with a 95 % bootstrap interval; a policy
    the data cannot judge is flagged. The result is also written into the folder, as ope.json.

    Example:
        pdocrl ope runs/ballrun
        pdocrl ope runs/mine --data my.hdf5 --method fqe --json

    Args:
        run: what `pdocrl train --out` wrote.
        data: the training data, when it is no longer where it was: a task's name or a file.
        method: whose estimate the verdict is made of: model, fqe or ratio; ope.json holds all of them.
        resamples: redrawn datasets behind each interval.
        seed: of the redrawing and of the random features.
        json: print one JSON object.
    """
    from pdocrl.ope import estimate

    result = estimate(run, data, method=method, resamples=resamples, seed=seed)
    if json:
        print_json(result.as_dict())
        return
    print_table(
        ["agent", "cost limit", "seed", "reward [95 %]", "cost [95 %]", "normalised reward", "normalised cost",
         "verdict", "doubts"],
        [[r["agent"], _shown(r["cost_limit"]), r["seed"], _with_interval(r["reward"], r["reward_interval"]),
          "; ".join(_with_interval(c, i) for c, i in zip(r["cost"], r["cost_interval"], strict=True)),
          _with_interval(r["normalized_reward"], r["normalized_reward_interval"]),
          _with_interval(r["normalized_cost"], r["normalized_cost_interval"]),
          r["verdict"], "; ".join(r["doubts"])] for r in result.runs],
        title=f"{result.agent} on {result.data['name']}: estimates by {result.method} from the data alone",
    )  # fmt: skip


def _with_interval(value: float | None, interval: list[float] | None) -> str:
    if value is None or interval is None:
        return "–"
    return f"{value:.4g} [{interval[0]:.4g}, {interval[1]:.4g}]"


def _shown(limit: list[Any]) -> str:
    return ", ".join(f"{value:g}" for value in limit) or "–"

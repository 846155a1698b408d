"""`pdocrl evaluate`."""

from __future__ import annotations

import tyro

from pdocrl.commands.words import shown
from pdocrl.console import print_json, print_table


def evaluate(
    folder: tyro.conf.Positional[str],
    /,
    *,
    episodes: int = 20,
    task: str | None = None,
    seed: int = 0,
    workers: int | None = None,
    json: bool = False,
) -> None:
    """Play trained policies in the simulator and score them; every episode counts.

    Example:
        pdocrl evaluate runs/ballrun --episodes 20 --json

    Args:
        folder: what `pdocrl train --out` wrote.
        episodes: per policy.
        task: the task to play, when the training did not name one.
        seed: decides the starts of all episodes.
        workers: processes; default: one per core.
        json: print one JSON object.
    """
    from pdocrl.scores.evaluate import evaluate as run

    result = run(folder, episodes, task=task, seed=seed, workers=workers)
    if json:
        print_json(result.as_dict())
        return
    print_table(
        ["cost limit", "seed", "reward", "cost", "normalised reward", "normalised cost", "safe"],
        [[shown(r["cost_limit"]), r["seed"], r["reward"], shown(r["cost"]), r["normalized_reward"],
          r["normalized_cost"], "yes" if r["safe"] else "NO"] for r in result.runs],
        title=f"{result.task}, protocol {result.protocol}, data {result.data['name']}, {episodes} episodes each",
    )  # fmt: skip
    for summary in result.summary.get("variants", [result.summary]):
        low, high = summary["reward_interval"]
        print(f"mean over limits: reward {summary['reward']:.3f} [{low:.3f}, {high:.3f}], cost {summary['cost']:.3f}, "
              f"safe at {summary['safe_limits']} of {len(summary['by_limit'])} limits"
              + (f"  {summary['settings']}" if summary["settings"] else ""))  # fmt: skip

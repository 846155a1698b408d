"""`pdocrl evaluate`."""

from __future__ import annotations

import tyro

from pdocrl.commands.words import limit, shown
from pdocrl.console import print_json, print_table
from pdocrl.records import as_plain


def evaluate(
    folder: tyro.conf.Positional[str],
    /,
    *,
    episodes: int = 20,
    cost_limit: tuple[str, ...] = (),
    task: str | None = None,
    seed: int = 0,
    workers: int | None = None,
    json: bool = False,
) -> None:
    """Play trained policies in the simulator and score them; every episode counts.

    Intervals are over trainings: how other seeds would have come out. Of one training they are over episodes.

    Example:
        pdocrl evaluate runs/ballrun --episodes 20 --json

    Args:
        folder: what `pdocrl train --out` wrote.
        episodes: per policy.
        cost_limit: limits to ask for instead of those of the training, where one policy serves every limit.
        task: the task to play, when the training did not name one.
        seed: decides the starts of all episodes.
        workers: processes; default: one per core.
        json: print one JSON object.
    """
    from pdocrl.scores.evaluate import evaluate as run

    asked = [limit(word) for word in cost_limit] or None
    result = run(folder, episodes, cost_limit=asked, task=task, seed=seed, workers=workers)
    if json:
        print_json(as_plain(result))
        return
    print_table(
        ["cost limit", "seed", "reward", "cost", "normalised reward", "normalised cost", "safe"],
        [[shown(r.cost_limit), r.seed, r.reward, shown(r.cost), r.normalized_reward, r.normalized_cost,
          "yes" if r.safe else "NO"] for r in result.runs],
        title=f"{result.task}, protocol {result.protocol}, data {result.data.name}, {episodes} episodes each",
    )  # fmt: skip
    for variant in result.summary:
        settings = f"  {variant.settings}" if variant.settings else ""
        print(f"mean over limits, [95 %]: {variant.score.sentence()}{settings}")

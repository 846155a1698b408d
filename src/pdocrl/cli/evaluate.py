"""`pdocrl evaluate`."""

from __future__ import annotations

from typing import Annotated

import tyro

from pdocrl.cli.words import any_limit
from pdocrl.console import print_json
from pdocrl.records import as_plain


def evaluate(
    folder: tyro.conf.Positional[str],
    /,
    *,
    episodes: int = 20,
    cost_limit: tuple[str, ...] = (),
    limits: Annotated[tuple[str, ...], tyro.conf.arg(aliases=["--limit"])] = (),
    from_every_start: bool = False,
    largest_cost: float | None = None,
    task: str | None = None,
    seed: int = 0,
    workers: int | None = None,
    json: bool = False,
) -> None:
    """Play trained policies in the simulator and score them; every episode counts.

    Intervals are over trainings: how other seeds would have come out. Of one training they are over episodes.

    Example:
        pdocrl evaluate runs/ballrun --episodes 20 --json
        pdocrl evaluate runs/ballrun --limit 'P(cost>20)<=0.1'
        pdocrl evaluate runs/ballrun --cost-limit 20 --limit 'CVaR90(cost)<=40' --largest-cost 250 --episodes 100

    Args:
        folder: what `pdocrl train --out` wrote.
        episodes: per policy.
        cost_limit: limits to ask for instead of those of the training, where one policy serves every limit; of `dial`
            also on tails.
        limits: limits per episode to score, such as 'P(cost>20)<=0.1', 'CVaR90(cost)<=40' or 'max(cost)<=1'. Without
            --cost-limit, policies that serve limits on tails are asked for them, all together.
        from_every_start: of policies that serve limits on tails, ask for limits from every first state.
        largest_cost: what an episode can cost at most; upper bounds on a mean and a CVaR rest on it.
        task: the task to play, when the training did not name one.
        seed: decides the starts of all episodes.
        workers: processes; default: one per core.
        json: print one JSON object.
    """
    from pdocrl.evaluation.evaluate import evaluate as run

    asked = [any_limit(word) for word in cost_limit] or None
    result = run(
        folder,
        episodes,
        cost_limit=asked,
        limits=limits,
        from_every_start=True if from_every_start else None,
        cost_max=largest_cost,
        task=task,
        seed=seed,
        workers=workers,
    )
    if json:
        print_json(as_plain(result))
        return
    result.table().show()
    if limits:
        result.limits_table().show()
    for one in result.summary:
        print(f"mean over limits, [95 %]: {one.sentence()}{f'  {one.method}' if len(result.summary) > 1 else ''}")

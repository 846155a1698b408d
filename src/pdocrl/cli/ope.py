"""`pdocrl ope`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from pdocrl.console import print_json, print_table

if TYPE_CHECKING:
    from pdocrl.ope.result import EstimatedSums


def ope(
    run: tyro.conf.Positional[Path],
    /,
    *,
    data: str | None = None,
    method: str = "ensemble",
    compare: bool = False,
    thorough: bool = False,
    resamples: int = 20,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Estimate reward and cost of trained policies from logged data alone, and whether they keep their limits.

    No simulator is used. Policies play episodes in an ensemble of learned models, fitted once per dataset. Every
    estimate is of an episode's undiscounted sum, with a 95 % interval calibrated on episodes the models had not seen;
    a policy the data cannot judge is flagged. The result is also written into the folder, as ope.json.

    Example:
        pdocrl ope runs/ballrun
        pdocrl ope runs/mine --data my.hdf5 --compare --json

    Args:
        run: what `pdocrl train --out` wrote.
        data: the training data, when it is no longer where it was: a task's name or a file.
        method: whose estimate the verdict is made of: ensemble, model, fqe or ratio.
        compare: compute all methods, one table beside the other.
        thorough: learn the data in two ways, which takes twice as long, and keep what predicts held-out episodes best;
            often shows more.
        resamples: redrawn datasets behind the intervals of `model`.
        seed: of the redrawing and of the random features.
        json: print one JSON object.
    """
    from pdocrl.ope import METHODS, estimate
    from pdocrl.ope.result import NARROWER

    result = estimate(run, data, method=method, compare=compare, resamples=resamples, seed=seed, thorough=thorough)
    if json:
        print_json(result.as_dict())
        return
    print_table(
        [
            "agent",
            "cost limit",
            "seed",
            "reward [95 %]",
            "cost [95 %]",
            "normalised reward",
            "normalised cost",
            "verdict",
            "doubts",
        ],
        [
            [
                r.agent,
                _shown(r.cost_limit),
                r.seed,
                _with_interval(r.reward, r.reward_interval),
                "; ".join(_with_interval(c, i) for c, i in zip(r.cost, r.cost_interval, strict=True)),
                _with_interval(r.normalized_reward, r.normalized_reward_interval),
                _with_interval(r.normalized_cost, r.normalized_cost_interval),
                r.verdict,
                "; ".join(r.doubts),
            ]
            for r in result.runs
        ],
        title=f"{result.agent} on {result.data.name}: estimates by {result.method} from the data alone",
    )
    if any(run.bound_is_narrower for run in result.runs):
        print(NARROWER)
    told = result.calibration
    if told is None:
        return
    if compare:
        print_table(
            ["cost limit", "seed", "signal", *METHODS],
            [
                [_shown(r.cost_limit), r.seed, signal, *(_of(r.by_method.get(name), k) for name in METHODS)]
                for r in result.runs
                for k, signal in enumerate(told.factor)
            ],
            title="every method, with its 95 % interval",
        )
    coverage = ", ".join(f"{name} {100 * share:.0f} %" for name, share in told.coverage_left_out.items())
    print(
        f"calibrated on {told.groups} groups of episodes the models had not seen; intervals made from the other "
        f"groups held the truth of: {coverage}"
    )


def _of(told: EstimatedSums | None, k: int) -> str:
    if told is None:
        return "–"
    if k == 0:
        return _with_interval(told.reward, told.reward_interval)
    return _with_interval(told.cost[k - 1], told.cost_interval[k - 1])


def _with_interval(value: float | None, interval: tuple[float, float] | None) -> str:
    if value is None or interval is None:
        return "–"
    return f"{value:.4g} [{interval[0]:.4g}, {interval[1]:.4g}]"


def _shown(limit: list[float]) -> str:
    return ", ".join(f"{value:g}" for value in limit) or "–"

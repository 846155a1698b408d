"""Do statements about tails hold, and do as many episodes as planned show them?

    OMP_NUM_THREADS=1 python benchmarks/tail_coverage.py [--audits 2000]

Writes results/tail_coverage.csv. Costs lie in [0, 100]. For each kind of costs and each limit, audits of the planned
number of episodes (`plan_audit`, confidence .95, power .9) are simulated twice: where the limit is the true value, so
that "within" is wrong, and where it is what the plan expected the value to be below. `needed` is the least number of
episodes, found by simulation, with which nine in ten audits say "within".
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.evaluation.tails import plan_audit, score_limit
from pdocrl.files import write_csv
from pdocrl.limits import Limit

Floats = NDArray[np.float64]
LARGEST, POWER = 100.0, 0.9
KINDS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "one episode in 50 costs 100, others 1": lambda rng, n: np.where(rng.random(n) < 0.02, 100.0, 1.0),
    "spread over 0 to 100, mean 20": lambda rng, n: 100 * rng.beta(1, 4, n),
    "gamma, mean 8, cut at 100": lambda rng, n: np.minimum(rng.gamma(1, 8, n), 100),
}
MEASURES = {"share": ("P(cost>{b})<={x}", 30.0), "CVaR90": ("CVaR90(cost)<={x}", None)}


def measured(name: str, measure: str, audits: int) -> dict[str, Any]:
    """Planned and needed episodes, how often audits at the limit say "within", and how often bounds hold."""
    draw, (text, b) = KINDS[name], MEASURES[measure]
    rng = np.random.default_rng([11, list(KINDS).index(name), list(MEASURES).index(measure)])

    def limit(value: float) -> Limit:
        return Limit.parse(text.format(b=b, x=repr(float(value))))

    truth = limit(0.5).of(draw(rng, 1_000_000))
    asked = limit(min(2 * truth + 0.01, 0.9) if measure == "share" else min(2 * truth, LARGEST))
    plan = plan_audit(asked, truth, power=POWER, cost_max=LARGEST)

    def audit(n: int, held: Limit) -> Any:
        return score_limit(held, draw(rng, n), cost_max=LARGEST)

    shown = np.mean([audit(plan.episodes, asked).verdict == "within" for _ in range(audits)])
    at_limit = [audit(plan.episodes, limit(truth)) for _ in range(audits)]
    low, high = 1, plan.episodes
    while high - low > max(1, plan.episodes // 20):
        middle = (low + high) // 2
        enough = np.mean([audit(middle, asked).verdict == "within" for _ in range(max(audits // 2, 20))]) >= POWER
        low, high = (low, middle) if enough else (middle, high)
    return {
        "costs": name,
        "limit": f"{asked.left}<={asked.value:.4g}",
        "true_value": round(truth, 4),
        "audits": audits,
        "planned": plan.episodes,
        "needed": high,
        "shown_as_planned": round(float(shown), 4),
        "wrongly_within_at_the_limit": round(float(np.mean([x.verdict == "within" for x in at_limit])), 4),
        "upper_holds": round(float(np.mean([x.upper >= truth for x in at_limit])), 4),
        "lower_holds": round(float(np.mean([x.lower <= truth for x in at_limit])), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audits", type=int, default=2000)
    audits = parser.parse_args().audits
    rows = []
    for name in KINDS:
        for measure in MEASURES:
            rows.append(measured(name, measure, audits if measure == "share" else audits // 40))
            print(*rows[-1].values(), flush=True)
    write_csv(Path(__file__).parent / "results" / "tail_coverage.csv", rows)


if __name__ == "__main__":
    main()

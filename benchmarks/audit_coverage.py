"""Do the bounds of an audit hold? Coverage at 20, 59 and 200 episodes, and what looking after every episode does to it.

    OMP_NUM_THREADS=1 python benchmarks/audit_coverage.py [--audits 2000]

Writes results/audit_coverage.csv and its table into docs/certify.md.
Costs of four kinds lie in [0, 100]; the limit is their true mean, so that to clear a policy is just wrong. Audits that
stop look after each of up to 500 episodes and end as soon as the bound they use is within the limit.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from pdocrl.evaluation.audit import mean_lower, mean_upper, share_upper, verdict_of
from pdocrl.files import write_csv

HERE = Path(__file__).parent
BEGIN, END = "<!-- measured: python benchmarks/audit_coverage.py -->", "<!-- end of audits -->"
EPISODES = (20, 59, 200)
LONGEST = 500  # episodes of an audit that stops early
LARGEST = 100.0
Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Floats]

KINDS: dict[str, tuple[float, Draw]] = {  # the true mean, and n costs
    "one episode in 50 costs 100, others 1": (2.98, lambda rng, n: np.where(rng.random(n) < 0.02, 100.0, 1.0)),
    "three in ten cost 100, others 0": (30.0, lambda rng, n: 100.0 * (rng.random(n) < 0.3)),
    "spread over 0 to 100, mean 20": (20.0, lambda rng, n: 100 * rng.beta(1, 4, n)),
    "all near 10": (10.0, lambda rng, n: 100 * rng.beta(90, 810, n)),
}


def measured(name: str, audits: int) -> dict[str, Any]:
    """Shares of audits whose bounds held the true mean, the median upper bound, and how many were ever cleared."""
    mean, draw = KINDS[name]
    rng = np.random.default_rng([7, list(KINDS).index(name)])
    found: dict[str, Any] = {"costs": name, "mean": mean, "audits": audits}
    for n in EPISODES:
        costs = [draw(rng, n) for _ in range(audits)]
        upper, lower = np.array([(mean_upper(own, LARGEST), mean_lower(own)) for own in costs]).T
        found |= {f"upper_holds_{n}": (upper >= mean).mean(), f"lower_holds_{n}": (lower <= mean).mean()}
        found |= {f"upper_median_{n}": np.median(upper)}
    cleared = naive = 0
    for _ in range(audits // 10):
        costs = draw(rng, LONGEST)
        cleared += any(verdict_of(costs[:n], mean, LARGEST) == "within" for n in range(1, LONGEST + 1))
        count = np.arange(5, LONGEST + 1)
        so_far, squares = costs.cumsum()[count - 1] / count, (costs**2).cumsum()[count - 1] / count
        spread = np.sqrt(np.maximum(squares - so_far**2, 0) / count)
        naive += bool((so_far + 1.645 * spread <= mean).any())
    return found | {"stopping_cleared": 10 * cleared / audits, "stopping_naive_cleared": 10 * naive / audits}


def least_share(n: int) -> float:
    """The least chance, over all true shares, that the exact bound on the share over the limit holds; no simulation."""
    upper = np.array([share_upper(k, n) for k in range(n + 1)])
    return min(float(binom.pmf(np.arange(n + 1), n, p)[upper >= p].sum()) for p in np.linspace(1e-4, 0.9999, 4000))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audits", type=int, default=2000)
    audits = parser.parse_args().audits
    rows = [measured(name, audits) for name in KINDS]
    shares = {n: least_share(n) for n in EPISODES}
    rows.append({"costs": "share over the limit, exact", **{f"upper_holds_{n}": shares[n] for n in EPISODES}})
    rounded = [{key: round(x, 5) if isinstance(x, float) else x for key, x in row.items()} for row in rows]
    write_csv(HERE / "results" / "audit_coverage.csv", [{key: row.get(key) for key in rows[0]} for row in rounded])
    told = (
        f"How often 95 % bounds on the mean held, in {audits:,} simulated audits of each kind (no episode can cost "
        f"more than {LARGEST:g}), and the median upper bound. Last, audits that look after every episode, up to "
        f"{LONGEST}, and stop when the limit, which is the true mean, seems kept ({audits // 10} of each kind): how "
        "many are cleared by our bound, and how many by a mean plus 1.645 standard errors."
    )
    lines = [
        textwrap.fill(told, 100),
        "",
        "| costs | mean | "
        + " | ".join(f"n = {n}: upper, lower holds; bound" for n in EPISODES)
        + " | stopping: ours | naive |",
        "|---|---:|" + "---:|" * (len(EPISODES) + 2),
    ]
    for row in rows[:-1]:
        held = {n: [f"{100 * row[f'{end}_holds_{n}']:.1f} %" for end in ("upper", "lower")] for n in EPISODES}
        each = [f"{', '.join(held[n])}; {row[f'upper_median_{n}']:.3g}" for n in EPISODES]
        stops = [f"{100 * row[key]:.1f} %" for key in ("stopping_cleared", "stopping_naive_cleared")]
        lines.append(f"| {row['costs']} | {row['mean']:g} | " + " | ".join([*each, *stops]) + " |")
    exact = ", ".join(f"{100 * shares[n]:.2f} % at n = {n}" for n in EPISODES)
    sentence = f"The exact bound on the share over the limit holds at every true share, in the worst case with {exact}."
    lines += ["", textwrap.fill(sentence, 100)]
    page = HERE.parent / "docs" / "certify.md"
    text = page.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    page.write_text(f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{after}", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()

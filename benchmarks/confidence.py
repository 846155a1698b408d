"""Is "shown at 95 %" right? `solve(..., confidence=0.95)` on logs whose truth is known, 40 logs a family.

    python benchmarks/confidence.py [--families long_tail zipf …] [--logs 40] [--label NAME]
    python benchmarks/confidence.py --show

A family is a problem and a way to log it. A log counts as wrong if the limits are called shown and the true cost of the
policy that was returned is above one of them. Rewards are true ones, as shares of the best policy's within the limits.
The method was designed on the families marked "design"; the others were run when it was finished. (`skewed` had 30 to
200 rows an arm at first, from which nothing was shown in any log; it got more rows, the method stayed.) Writes
benchmarks/results/confidence.csv, a row a log; rows of the label "0.2" were written by that version with this script.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pdocrl.console import log, print_table
from pdocrl.files import read_csv, write_csv
from pdocrl.tabular import CMDP, Counts, evaluate, random_cmdp, solve
from research.lucky import LIMIT, lucky2

RESULTS = Path(__file__).parent / "results" / "confidence.csv"
CONFIDENCE = 0.95
Floats = NDArray[np.float64]


class Log(NamedTuple):
    """A log, the world it came from, and the limits on (1−γ)J of its costs."""

    counts: Counts
    world: CMDP  # whose constraint rewards are minus the costs
    limits: dict[str, float]


class Family(NamedTuple):
    """Logs of one kind."""

    make: Callable[[int], Log]  # seed → log
    use: str  # "design" or "report"


def bandit(reward: Floats, cost: Floats, size: Floats, rows: NDArray[np.int64], limit: float, seed: int) -> Log:
    """One state; arm a pays reward[a], and costs size[a] with probability cost[a]/size[a]; rows[a] tries of it."""
    rng = np.random.default_rng([seed, 7])
    arm = np.repeat(np.arange(len(rows)), rows)
    zeros = np.zeros(len(arm), int)
    paid = size[arm] * (rng.random(len(arm)) < cost[arm] / size[arm])
    counts = Counts.from_arrays(zeros, arm, zeros, reward[arm], paid, n_states=1, n_actions=len(rows))
    world = CMDP.from_costs(np.ones((1, len(rows), 1)), reward[None], [cost[None]], [limit], np.ones(1), 0.5)
    return Log(counts, world, {"cost": limit})


def long_tail(seed: int) -> Log:
    """150 items with 20 to 22 rows, all worse than the limit; one safe item and a default."""
    rng = np.random.default_rng(seed)
    reward = np.r_[0.2, 0.5, rng.uniform(0.8, 1.0, 150)]
    cost = np.r_[0.0, 0.05, np.full(150, 0.15)]
    return bandit(reward, cost, np.ones(152), np.r_[300, 3000, rng.integers(20, 23, 150)], 0.1, seed)


def zipf(seed: int) -> Log:
    """400 items tried in proportion to 1/rank, 6,000 rows; a third of them keep the limit."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, 401)
    rows = np.maximum(rng.multinomial(6000, share / share.sum()), 1)
    return bandit(rng.uniform(0, 1, 400), rng.uniform(0, 0.3, 400), np.ones(400), rows, 0.1, seed)


def rare_large(seed: int) -> Log:
    """Forty arms whose cost of 10 comes once in thirty to once in two hundred tries; 600 rows each."""
    rng = np.random.default_rng(seed)
    cost = np.r_[0.02, rng.uniform(0.05, 0.3, 39)]
    return bandit(np.r_[0.3, rng.uniform(0.4, 1, 39)], cost, np.full(40, 10.0), np.full(40, 600), 0.12, seed)


def skewed(seed: int) -> Log:
    """Sixty arms; sizes of a cost from 1 to 20, so that few arms have seen how large one comes; 300 to 2,000 rows."""
    rng = np.random.default_rng(seed)
    size, cost = np.exp(rng.uniform(0, 3, 60)), np.r_[0.01, rng.uniform(0.02, 0.5, 59)]
    return bandit(np.r_[0.3, rng.uniform(0.4, 1, 59)], cost, size, rng.integers(300, 2000, 60), 0.15, seed)


def played(world: CMDP, behaviour: Floats, episodes: int, steps: int, limits: dict[str, float], seed: int) -> Log:
    """Episodes of a fixed length; costs are drawn as 0 or 1, which of them is by the world's mean."""
    rng = np.random.default_rng([seed, 5])
    S, A = behaviour.shape
    moves = world.P.toarray().reshape(S, A, S).cumsum(axis=2)
    state = rng.choice(S, episodes, p=world.d0)
    parts: list[tuple[Any, ...]] = []
    for t in range(steps):
        action = (rng.random((episodes, 1)) > behaviour.cumsum(axis=1)[state]).sum(axis=1).clip(0, A - 1)
        then = (rng.random((episodes, 1)) > moves[state, action]).sum(axis=1).clip(0, S - 1)
        paid = rng.random((len(world.g), episodes)) < -world.g[:, state, action]
        parts.append((state, action, then, world.r[state, action], paid.astype(float), np.full(episodes, t == 0)))
        state = then
    s, a, z, r, c, first = (np.concatenate([part[i] for part in parts], axis=-1) for i in range(6))
    names = list(limits)
    costs = dict(zip(names, c, strict=True))
    who = np.tile(np.arange(episodes), steps)
    counts = Counts.from_arrays(s, a, z, r, costs, initial=first, n_states=S, n_actions=A, episode=who)
    return Log(counts, world, limits)


def multi_step(seed: int) -> Log:
    """Random problems of eight states and four actions; 60 episodes of 50 steps by a lopsided policy."""
    drawn = random_cmdp(8, 4, 1, 0.9, seed=seed)
    rng = np.random.default_rng([seed, 3])
    behaviour = rng.dirichlet(np.full(4, 0.4), 8)
    cost = np.clip(1 - drawn.g, 0, 1)
    own = CMDP.from_costs(drawn.P, drawn.r, cost, [1.0], drawn.d0, 0.9)
    limit = 0.97 * float(-evaluate(own, behaviour).constraints[0])
    world = CMDP.from_costs(drawn.P, drawn.r, cost, [limit], drawn.d0, 0.9)
    return played(world, behaviour, 60, 50, {"cost": limit}, seed)


def two_limits(seed: int) -> Log:
    """Random problems of six states and three actions with two limits; 100 episodes of 40 steps."""
    drawn = random_cmdp(6, 3, 2, 0.9, seed=1000 + seed)
    behaviour = np.random.default_rng([seed, 3]).dirichlet(np.ones(3), 6)
    cost = np.clip(1 - drawn.g, 0, 1)
    own = CMDP.from_costs(drawn.P, drawn.r, cost, [1.0, 1.0], drawn.d0, 0.9)
    both = 0.99 * -evaluate(own, behaviour).constraints
    world = CMDP.from_costs(drawn.P, drawn.r, cost, both, drawn.d0, 0.9)
    return played(world, behaviour, 100, 40, {"a": float(both[0]), "b": float(both[1])}, seed)


def tail(seed: int) -> Log:
    """`lucky2`: forty rare arms in each state, that pay most and break down half the time; 4,000 rows."""
    lucky = lucky2()
    return Log(lucky.counts(4000, seed), lucky.cmdp, {"cost": LIMIT})


def shortcuts(seed: int) -> Log:
    """A road of ten places; each has fifteen shortcuts, tried rarely, that cost .3 and save steps."""
    S, A = 10, 17
    P, r, cost = np.zeros((S, A, S)), np.zeros((S, A)), np.zeros((S, A))
    for s in range(S):
        P[s, 0, s] = 0.5  # slow and free
        P[s, 0, (s + 1) % S] += 0.5
        P[s, 1, (s + 1) % S] = 1.0
        P[s, 2:, (s + 3) % S] = 1.0
    r[-3:], cost[:, 1], cost[:, 2:] = 1.0, 0.1, 0.3
    behaviour = np.full((S, A), 0.12 / 15)
    behaviour[:, 0], behaviour[:, 1] = 0.38, 0.5
    world = CMDP.from_costs(P, r, [cost], [0.09], np.eye(S)[0], 0.95)
    return played(world, behaviour, 100, 60, {"cost": 0.09}, seed)


FAMILIES = {
    "long_tail": Family(long_tail, "design"),
    "rare_large": Family(rare_large, "design"),
    "multi_step": Family(multi_step, "design"),
    "tail": Family(tail, "design"),
    "zipf": Family(zipf, "report"),
    "skewed": Family(skewed, "report"),
    "two_limits": Family(two_limits, "report"),
    "shortcuts": Family(shortcuts, "report"),
}


def measure(name: str, seed: int, label: str) -> dict[str, Any]:
    """One log."""
    made = FAMILIES[name].make(seed)
    began = time.perf_counter()
    result = solve(made.counts, made.world.gamma, made.limits, confidence=CONFIDENCE, seed=seed)
    seconds = time.perf_counter() - began
    truth = evaluate(made.world, result.policy)
    over = float((made.world.tau - truth.constraints).max())
    return {
        "label": label,
        "family": name,
        "use": FAMILIES[name].use,
        "seed": seed,
        "status": result.status,
        "wrong": int(result.status == "shown" and over > 1e-9),
        "over": round(over, 5),
        "reward": round(truth.value, 5),
        "seconds": round(seconds, 2),
    }


def show() -> None:
    """Per family: shown and wrong of how many, and the true reward, by label."""
    rows = read_csv(RESULTS)
    lines = []
    for family in FAMILIES:
        for label in dict.fromkeys(row["label"] for row in rows):
            own = [row for row in rows if (row["family"], row["label"]) == (family, label)]
            if own:
                shown = [row for row in own if row["status"] == "shown"]
                wrong = sum(int(row["wrong"]) for row in own)
                kept = np.mean([float(row["over"]) <= 0 for row in own])
                reward = np.mean([float(row["reward"]) for row in own])
                seconds = np.mean([float(row["seconds"]) for row in own])
                lines.append(
                    [
                        family,
                        FAMILIES[family].use,
                        label,
                        len(own),
                        len(shown),
                        wrong,
                        f"{100 * kept:.0f} %",
                        reward,
                        seconds,
                    ]
                )
    heads = ["family", "use", "version", "logs", "shown", "wrong", "limits kept", "true reward", "seconds"]
    print_table(heads, lines, title=f"`solve --confidence {CONFIDENCE}`")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--logs", type=int, default=40)
    parser.add_argument("--label", default="0.3")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    if given.show:
        return show()
    for family in given.families:
        rows = [measure(family, seed, given.label) for seed in range(given.logs)]
        others = [
            row
            for row in (read_csv(given.out) if given.out.exists() else [])
            if (row["label"], row["family"]) != (given.label, family)
        ]
        write_csv(given.out, others + rows)
        shown, wrong = sum(row["status"] == "shown" for row in rows), sum(row["wrong"] for row in rows)
        log(f"{family}: {shown} shown, {wrong} wrong")


if __name__ == "__main__":
    main()

"""Is "shown at 95 %" right? `solve(..., confidence=0.95)` on logs whose truth is known, 40 logs a family.

    python benchmarks/confidence.py [--families long_tail zipf …] [--logs 40] [--first SEED] [--label NAME]
    python benchmarks/confidence.py --show

A family is a problem and a way to log it. A log counts as wrong if the limits are called shown and the true cost of the
policy that was returned is above one of them. Rewards are true ones, as shares of the best policy's within the limits.
The method was designed on the families marked "design"; the others were run when it was finished. (`skewed` had 30 to
200 rows an arm at first, from which nothing was shown in any log; it got more rows, the method stayed.) Rows of the
label "fresh" are logs from seed 1000 on, of every family, that nothing was designed on and nothing changed after.
The families from `lognormal` on were made to break the test, by what its assumptions leave out or strain.
Writes benchmarks/results/confidence.csv, a row a log, as they come; those that are there are not made again. Rows of
the label "0.2" were written by that version with this script.
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
from pdocrl.tabular.cmdp import Evaluation, plan
from research.lucky import LIMIT, lucky2

RESULTS = Path(__file__).parent / "results" / "confidence.csv"
CONFIDENCE = 0.95
Floats = NDArray[np.float64]


class Log(NamedTuple):
    """A log, the world it came from, and the limits on (1−γ)J of its costs."""

    counts: Counts
    world: CMDP  # whose constraint rewards are minus the costs
    limits: dict[str, float]
    seen: NDArray[np.int64] | None = None  # of each state of the world, the state that the log names; None: itself
    horizon: int | None = None  # then the limits are on totals of an episode, and so is the truth
    late: int = 0  # with a horizon: steps before costs begin


class Family(NamedTuple):
    """Logs of one kind."""

    make: Callable[[int], Log]  # seed → log
    use: str  # "design" or "report"


def bandit(reward: Floats, cost: Floats, size: Floats, rows: NDArray[np.int64], limit: float, seed: int) -> Log:
    """One state; arm a pays reward[a], and costs size[a] with probability cost[a]/size[a]; rows[a] tries of it."""
    rng = np.random.default_rng([seed, 7])
    arm = np.repeat(np.arange(len(rows)), rows)
    return tried(arm, reward, cost, size[arm] * (rng.random(len(arm)) < cost[arm] / size[arm]), limit)


def tried(arm: NDArray[np.int64], reward: Floats, cost: Floats, paid: Floats, limit: float) -> Log:
    """One state, a row for each try: `paid` [N] was drawn, `reward` and `cost` are the arms' means."""
    zeros, arms = np.zeros(len(arm), int), len(reward)
    counts = Counts.from_arrays(zeros, arm, zeros, reward[arm], paid, n_states=1, n_actions=arms)
    world = CMDP.from_costs(np.ones((1, arms, 1)), reward[None], [cost[None]], [limit], np.ones(1), 0.5)
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


def pareto(seed: int) -> Log:
    """A hundred arms tried as 1/rank, 8,000 rows; a cost is 1, 2, 4, … or 32, each half as often as the one before."""
    rng = np.random.default_rng([seed, 11])
    size, share = 2.0 ** np.arange(6), 1 / np.arange(1, 101)
    often = (1 / size) / (1 / size).sum()
    cost = np.r_[rng.uniform(0.05, 0.1), rng.uniform(0.01, 0.4, 99)]
    arm = np.repeat(np.arange(100), np.maximum(rng.multinomial(8000, share / share.sum()), 1))
    paid = rng.choice(size, len(arm), p=often) * (rng.random(len(arm)) < (cost / (often @ size))[arm])
    return tried(arm, np.r_[0.4, rng.uniform(0.2, 1, 99)], cost, paid, 0.12)


def played(
    world: CMDP,
    behaviour: Floats,
    episodes: int,
    steps: int,
    limits: dict[str, float],
    seed: int,
    size: float = 1.0,
    seen: NDArray[np.int64] | None = None,
    times: int = 1,
) -> Log:
    """Episodes of a fixed length, each logged so many times; costs are drawn as 0 or `size`, by the world's mean."""
    rng = np.random.default_rng([seed, 5])
    S, A = behaviour.shape
    moves = world.P.toarray().reshape(S, A, S).cumsum(axis=2)
    state = rng.choice(S, episodes, p=world.d0)
    parts: list[tuple[Any, ...]] = []
    for t in range(steps):
        action = (rng.random((episodes, 1)) > behaviour.cumsum(axis=1)[state]).sum(axis=1).clip(0, A - 1)
        then = (rng.random((episodes, 1)) > moves[state, action]).sum(axis=1).clip(0, S - 1)
        paid = rng.random((len(world.g), episodes)) < -world.g[:, state, action] / size
        parts.append((state, action, then, world.r[state, action], size * paid, np.full(episodes, t == 0)))
        state = then
    s, a, z, r, c, first = (np.concatenate([part[i] for part in parts], axis=-1) for i in range(6))
    names = list(limits)
    costs = dict(zip(names, c, strict=True))
    who = np.tile(np.arange(episodes), steps)
    if seen is not None:
        s, z, S = seen[s], seen[z], int(seen.max()) + 1
    if times > 1:
        s, a, z, r, first = (np.tile(x, times) for x in (s, a, z, r, first))
        costs = {name: np.tile(x, times) for name, x in costs.items()}
        who = np.concatenate([who + k * episodes for k in range(times)])
    counts = Counts.from_arrays(s, a, z, r, costs, initial=first, n_states=S, n_actions=A, episode=who)
    return Log(counts, world, limits, seen)


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


def rare_pairs(seed: int) -> Log:
    """Random problems of six states; ten of twelve actions are rare, pay more, and cost 5 now and then; 80 episodes."""
    rng = np.random.default_rng([seed, 13])
    S, A = 6, 12
    P, rare = rng.dirichlet(np.full(S, 0.5), (S, A)), np.arange(A) >= 2
    r = np.where(rare, rng.uniform(0.4, 1, (S, A)), rng.uniform(0, 0.5, (S, A)))
    cost = np.where(rare, rng.uniform(0, 0.6, (S, A)), rng.uniform(0, 0.1, (S, A)))
    behaviour = np.full((S, A), 0.25 / (A - 2))
    behaviour[:, 0], behaviour[:, 1] = 0.5, 0.25
    begins = np.full(S, 1 / S)
    own = CMDP.from_costs(P, r, [cost], [1.0], begins, 0.9)
    limit = float(-evaluate(own, behaviour).constraints[0])
    return played(CMDP.from_costs(P, r, [cost], [limit], begins, 0.9), behaviour, 80, 50, {"cost": limit}, seed, 5.0)


def memory(seed: int) -> Log:
    """Four named states; what a push costs depends on whether the step before was one, which no state tells."""
    rng = np.random.default_rng([seed, 17])
    S, A = 4, 2
    moves, reward = rng.dirichlet(np.ones(S), (S, A)), rng.uniform(0.5, 1, S)
    P, r, cost = np.zeros((2 * S, A, 2 * S)), np.zeros((2 * S, A)), np.zeros((2 * S, A))
    for pushed in range(2):
        rows = slice(pushed * S, (pushed + 1) * S)
        P[rows, 0, :S], P[rows, 1, S:] = moves[:, 0], moves[:, 1]
        r[rows, 1], cost[rows, 1] = reward, 0.5 * pushed
    begins = np.r_[np.full(S, 1 / S), np.zeros(S)]
    behaviour = np.repeat(rng.uniform(0.2, 0.4, (1, S)), 2, axis=0).reshape(-1)
    world = CMDP.from_costs(P, r, [cost], [0.08], begins, 0.9)
    both = np.stack([1 - behaviour, behaviour], -1)
    return played(world, both, 100, 40, {"cost": 0.08}, seed, seen=np.arange(2 * S) % S)


def lognormal(seed: int) -> Log:
    """Thirty arms with 200 to 400 rows; costs are lognormal, σ = 1.5: a few rows hold much of the mean."""
    rng = np.random.default_rng([seed, 19])
    cost = np.r_[0.02, rng.uniform(0.05, 0.4, 29)]
    arm = np.repeat(np.arange(30), rng.integers(200, 400, 30))
    paid = cost[arm] * rng.lognormal(-(1.5**2) / 2, 1.5, len(arm))
    return tried(arm, np.r_[0.3, rng.uniform(0.4, 1, 29)], cost, paid, 0.15)


def copies(seed: int) -> Log:
    """`multi_step`, of which every episode is in the log five times under other names: 60 of 300 are independent."""
    rng = np.random.default_rng([seed, 23])
    drawn, behaviour = random_cmdp(8, 4, 1, 0.9, seed=2000 + seed), rng.dirichlet(np.full(4, 0.4), 8)
    cost = np.clip(1 - drawn.g, 0, 1)
    own = CMDP.from_costs(drawn.P, drawn.r, cost, [1.0], drawn.d0, 0.9)
    limit = 0.97 * float(-evaluate(own, behaviour).constraints[0])
    world = CMDP.from_costs(drawn.P, drawn.r, cost, [limit], drawn.d0, 0.9)
    return played(world, behaviour, 60, 50, {"cost": limit}, seed, times=5)


def confounded(seed: int) -> Log:
    """Three named states; 30 % are frail, which only whoever acted knew: they got the risky action less often."""
    rng = np.random.default_rng([seed, 29])
    moves = rng.dirichlet(np.ones(3), (3, 2))
    P, r, cost = np.zeros((6, 2, 6)), np.zeros((6, 2)), np.zeros((6, 2))
    P[:3, :, :3], P[3:, :, 3:] = moves, moves
    r[:, 1] = np.tile(rng.uniform(0.5, 1, 3), 2)
    cost[:3, 1], cost[3:, 1] = 0.02, 0.4
    risky = np.repeat([0.6, 0.1], 3)
    begins = np.repeat([0.7 / 3, 0.3 / 3], 3)
    world = CMDP.from_costs(P, r, [cost], [0.08], begins, 0.9)
    return played(world, np.stack([1 - risky, risky], -1), 200, 30, {"cost": 0.08}, seed, seen=np.arange(6) % 3)


def near_deterministic(seed: int) -> Log:
    """A ring of eight places; every move succeeds but for one slip in a hundred, which costs 3; fast ones slip more."""
    rng = np.random.default_rng([seed, 31])
    S, A = 8, 3
    P, r, cost = np.zeros((S, A, S)), np.zeros((S, A)), np.zeros((S, A))
    slip = np.array([0.002, 0.01, 0.04])
    for s in range(S):
        for a in range(A):
            P[s, a, (s + a) % S] = 1.0
    r[:, 1], r[:, 2] = rng.uniform(0.3, 0.6, S), rng.uniform(0.5, 1, S)
    cost[:] = 3.0 * slip
    world = CMDP.from_costs(P, r, [cost], [0.04], np.eye(S)[0], 0.95)
    return played(world, np.tile([0.3, 0.5, 0.2], (S, 1)), 120, 30, {"cost": 0.04}, seed, 3.0)


def least_cost(seed: int) -> Log:
    """`multi_step` with the limit at exactly the least that any policy costs: only that policy keeps it."""
    rng = np.random.default_rng([seed, 37])
    drawn, behaviour = random_cmdp(6, 3, 1, 0.9, seed=3000 + seed), rng.dirichlet(np.ones(3), 6)
    cost = np.clip(1 - drawn.g, 0, 1)
    own = CMDP.from_costs(drawn.P, drawn.r, cost, [1.0], drawn.d0, 0.9)
    limit = float(-evaluate(own, plan(own, own.g[0]).actions).constraints[0])
    world = CMDP.from_costs(drawn.P, drawn.r, cost, [limit], drawn.d0, 0.9)
    return played(world, behaviour, 100, 40, {"cost": limit}, seed)


def four_limits(seed: int) -> Log:
    """Random problems of six states and four actions with four limits, each a little under the log's own cost."""
    drawn = random_cmdp(6, 4, 4, 0.9, seed=4000 + seed)
    behaviour = np.random.default_rng([seed, 41]).dirichlet(np.ones(4), 6)
    cost = np.clip(1 - drawn.g, 0, 1)
    own = CMDP.from_costs(drawn.P, drawn.r, cost, np.ones(4), drawn.d0, 0.9)
    limits = 1.02 * -evaluate(own, behaviour).constraints
    world = CMDP.from_costs(drawn.P, drawn.r, cost, limits, drawn.d0, 0.9)
    return played(world, behaviour, 150, 40, dict(zip("abcd", limits.tolist(), strict=True)), seed)


def totals(seed: int, late: int = 0) -> Log:
    """Episodes of at most ten steps, of which one step in twenty is the last; the limit is on the total cost."""
    rng = np.random.default_rng([seed, 43 + late])
    S, A, steps = 5, 3, 10
    P, behaviour = 0.95 * rng.dirichlet(np.full(S, 0.5), (S, A)), rng.dirichlet(np.ones(A), S)
    cost, r = rng.uniform(0, 0.6, (S, A)) ** 2, rng.uniform(0, 1, (S, A))
    world = CMDP.from_costs(P, r, [cost], [1.0], np.full(S, 1 / S), 0.9)
    log = Log(None, world, {"cost": 1.0}, horizon=steps, late=late)  # type: ignore[arg-type]
    limit = 0.97 * float(-total_of(log, lambda s, t: behaviour[s]).constraints[0])
    parts: list[tuple[Any, ...]] = []
    for who in range(200):
        s = int(rng.integers(S))
        for t in range(steps):
            a = int(rng.choice(A, p=behaviour[s]))
            z = int(rng.choice(S + 1, p=np.append(P[s, a], 1 - P[s, a].sum())))
            paid = float(rng.random() < cost[s, a]) * (t >= late)
            parts.append((s, a, min(z, S - 1), r[s, a], paid, z == S or t == steps - 1, who, t))
            if z == S:
                break
            s = z
    state, action, then, reward, paid, over, who, t = (np.array(column) for column in zip(*parts, strict=True))
    counts = Counts.from_arrays(
        state, action, then, reward, {"cost": paid}, over, n_actions=A, episode=who, step=t, horizon=steps
    )
    return log._replace(counts=counts, limits={"cost": limit}, world=world.replace(tau=np.array([-limit])))


def late(seed: int) -> Log:
    """`totals` whose costs come in the last two of ten steps alone."""
    return totals(seed, late=8)


def total_of(log: Log, policy: Callable[[int, int], Floats]) -> Evaluation:
    """Totals of an episode under π(·|s, t), by going through the steps."""
    world, at = log.world, log.world.d0
    S = world.n_states
    value, constraints = 0.0, np.zeros(len(world.g))
    for t in range(log.horizon or 0):
        mu = at[:, None] * np.array([policy(s, t) for s in range(S)])
        value += float(np.vdot(mu, world.r))
        constraints += np.tensordot(world.g, mu, axes=2) * (t >= log.late)
        at = world.P.T @ mu.ravel()
    return Evaluation(value, constraints)


FAMILIES = {
    "long_tail": Family(long_tail, "design"),
    "rare_large": Family(rare_large, "design"),
    "multi_step": Family(multi_step, "design"),
    "tail": Family(tail, "design"),
    "zipf": Family(zipf, "report"),
    "skewed": Family(skewed, "report"),
    "two_limits": Family(two_limits, "report"),
    "shortcuts": Family(shortcuts, "report"),
    "pareto": Family(pareto, "report"),
    "rare_pairs": Family(rare_pairs, "report"),
    "memory": Family(memory, "report"),
    "lognormal": Family(lognormal, "report"),
    "copies": Family(copies, "report"),
    "confounded": Family(confounded, "report"),
    "near_deterministic": Family(near_deterministic, "report"),
    "least_cost": Family(least_cost, "report"),
    "four_limits": Family(four_limits, "report"),
    "totals": Family(totals, "report"),
    "late": Family(late, "report"),
}


def measure(name: str, seed: int, label: str) -> dict[str, Any]:
    """One log."""
    made = FAMILIES[name].make(seed)
    began = time.perf_counter()
    uniform = np.full(made.world.n_actions, 1 / made.world.n_actions)
    gamma = made.world.gamma if made.horizon is None else None
    result = solve(made.counts, gamma, made.limits, confidence=CONFIDENCE, seed=seed)
    seconds = time.perf_counter() - began
    if made.horizon is None:
        truth = evaluate(made.world, result.policy if made.seen is None else result.policy[made.seen])
    else:
        place = {str(label): index for index, label in enumerate(result.states)}
        truth = total_of(made, lambda s, t: result.policy[place[f"{s} @ {t}"]] if f"{s} @ {t}" in place else uniform)
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
    parser.add_argument("--first", type=int, default=0, help="seed of the first log")
    parser.add_argument("--label", default="0.3")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    if given.show:
        return show()
    seeds = range(given.first, given.first + given.logs)
    for family in given.families:
        for seed in seeds:
            rows = read_csv(given.out) if given.out.exists() else []
            if not any(int(row["seed"]) == seed for row in _of(rows, family, given.label)):
                write_csv(given.out, [*rows, measure(family, seed, given.label)])
        own = _of(read_csv(given.out), family, given.label)
        shown, wrong = sum(row["status"] == "shown" for row in own), sum(int(row["wrong"]) for row in own)
        log(f"{family}: {len(own)} logs, {shown} shown, {wrong} wrong")


def _of(rows: list[dict[str, Any]], family: str, label: str) -> list[dict[str, Any]]:
    """A label such as 0.3 is read as a number."""
    return [row for row in rows if row["family"] == family and str(row["label"]) == label]


if __name__ == "__main__":
    main()

"""Is luck copied? The dial on episodes of `lucky2` and of a gamble, beside the tabular solver on the same transitions.

    python -m benchmarks.dial_luck [--logs 3] [--steps 6000]

Forty steps an episode, at most 14 of them fast. Half of the logged episodes follow the best policy, half the bad arm,
and every third of a hundred steps tries one of forty rare arms, which pays most and breaks down half the time. The
error is what a step earns less than the best policy, or costs more than allowed, in the mean of 2,000 episodes played
(a stationary policy's likewise).

The gamble is harder: a sure choice pays .7, another 2 in three of ten cases. Every logged episode gambles at a rate of
its own, so the best returns are those of lucky gamblers. The error is what a step earns less than .7.

Small networks; minutes on two cores. Writes benchmarks/results/dial_luck.csv.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.console import print_table
from pdocrl.data import Dataset, make_dataset
from pdocrl.files import write_csv
from pdocrl.tabular.api import solve
from pdocrl.tabular.counts import Counts
from pdocrl.training.train import train
from research.lucky import BAD, FIRST_RARE, LIMIT, Lucky, lucky2

RESULTS = Path(__file__).parent / "results"
HORIZON, SIZES, PLAYED = 40, (1000, 10_000, 100_000), 2000
LOW = (1.0, 0.9, 0.8, 0.6, 0.4)
SMALL: dict[str, Any] = {"hidden": (128, 128), "model_hidden": (64, 64)}
Act = Callable[[NDArray[np.int64], int, NDArray[np.float64]], NDArray[np.int64]]  # states, time, spent → actions


def episodes(lucky: Lucky, count: int, act: Act, seed: int) -> dict[str, NDArray[Any]]:
    """[count, HORIZON] states, actions, rewards, costs and next states of episodes side by side."""
    rng = np.random.default_rng(seed)
    cumulative = lucky.cmdp.P.toarray().cumsum(1).reshape(*lucky.mu_D.shape, -1)
    reward, cost = lucky.cmdp.r.reshape(lucky.mu_D.shape), -lucky.cmdp.g[0].reshape(lucky.mu_D.shape)
    state, spent, parts = np.zeros(count, np.int64), np.zeros(count), []
    for time in range(HORIZON):
        action = act(state, time, spent)
        after = (rng.random((count, 1)) > cumulative[state, action]).sum(1)
        parts.append((state, action, reward[state, action], cost[state, action], after))
        spent, state = spent + cost[state, action], after
    names = ("state", "action", "reward", "cost", "next_state")
    return {name: np.stack(column, 1) for name, column in zip(names, zip(*parts, strict=True), strict=True)}


def logged(lucky: Lucky, count: int, seed: int) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(seed + 1)
    good = rng.random(count) < 0.5
    rare = lucky.mu_D.shape[1] - FIRST_RARE

    def act(state: NDArray[np.int64], time: int, spent: NDArray[np.float64]) -> NDArray[np.int64]:
        own = np.where(good, (rng.random(count) > LIMIT).astype(np.int64), BAD)  # fast is 0, safe is 1
        return np.where(rng.random(count) < 0.03, FIRST_RARE + rng.integers(0, rare, count), own)

    return episodes(lucky, count, act, seed)


def dataset(lucky: Lucky, log: dict[str, NDArray[Any]]) -> Dataset:
    states, ends = np.eye(len(lucky.mu_D)), np.zeros(log["state"].shape, bool)
    ends[:, -1] = True
    return make_dataset(
        states[log["state"].ravel()],
        log["action"].ravel(),
        log["reward"].ravel(),
        log["cost"].reshape(-1, 1),
        states[log["next_state"].ravel()],
        np.zeros(ends.size, bool),
        ends.ravel(),
        discrete_actions=lucky.mu_D.shape[1],
    )


def error(lucky: Lucky, act: Act) -> float:
    """Of a step, in the mean of new episodes: what is missing to the best policy, or too dear."""
    played = episodes(lucky, PLAYED, act, 12345)
    best = LIMIT * 0.9 + (1 - LIMIT) * 0.65
    return float(max(best - played["reward"].mean(), played["cost"].mean() - LIMIT))


def of_dial(lucky: Lucky, data: Dataset, steps: int, seed: int) -> Act:
    limit = LIMIT * HORIZON
    found = train(data, "dial", cost_limit=[limit], horizon=HORIZON, seed=[seed], steps=steps, settings=SMALL)
    policy: Any = found.policies[0]
    states = policy.normaliser.normalise_obs(np.eye(len(lucky.mu_D)))

    def act(state: NDArray[np.int64], time: int, spent: NDArray[np.float64]) -> NDArray[np.int64]:
        one = np.ones((len(state), 1))
        return policy.network.act(states[state], limit * one, spent[:, None], time * one).argmax(1)

    return act


def of_solver(lucky: Lucky, log: dict[str, NDArray[Any]]) -> Act:
    S, A = lucky.mu_D.shape
    rows = np.stack([log["state"] * A + log["action"], log["next_state"]], -1).reshape(-1, 2)
    (pair, to), count = (found := np.unique(rows, axis=0, return_counts=True))[0].T, found[1]
    means = np.stack([lucky.cmdp.r.ravel()[pair], -lucky.cmdp.g[0].ravel()[pair]])
    names = tuple(range(S)), tuple(range(A)), ("cost",)
    counts = Counts(pair, to, count, means, np.zeros_like(means), np.eye(S)[0], *names)
    policy = solve(counts, 0.9, {"cost": LIMIT}, C=1.5 * lucky.concentrability, resamples=0).policy
    rng = np.random.default_rng(0)

    def act(state: NDArray[np.int64], time: int, spent: NDArray[np.float64]) -> NDArray[np.int64]:
        return (rng.random((len(state), 1)) > policy[state].cumsum(1)).sum(1)

    return act


def gamble(count: int, steps: int, seed: int, qualities: tuple[float, ...]) -> float:
    """Error of the dial that is asked for these qualities."""
    rng = np.random.default_rng(seed)
    risky = rng.random((count, HORIZON)) < rng.random((count, 1))
    reward = np.where(risky, 2.0 * (rng.random(risky.shape) < 0.3), 0.7)
    ends = np.zeros(risky.shape, bool)
    ends[:, -1] = True
    obs, end = np.ones((risky.size, 1)) + rng.normal(0, 0.1, (risky.size, 1)), ends.ravel()
    data = make_dataset(obs, risky.ravel().astype(int), reward.ravel(), 0 * obs, obs, 0 * end, end, discrete_actions=2)
    settings = {**SMALL, "qualities": qualities}
    found = train(data, "dial", cost_limit=[1.0], horizon=HORIZON, seed=[seed], steps=steps, settings=settings)
    step = found.policies[0].begin(0)
    chosen = np.asarray([int(step(row)) for row in rng.normal(1, 0.1, (HORIZON, 1))])
    return float(0.1 * chosen.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6000)
    arguments = parser.parse_args()
    lucky, rows = lucky2(), []
    for size in SIZES:
        for seed in range(arguments.logs):
            log = logged(lucky, size // HORIZON, 100 * seed)
            found = {"dial": of_dial(lucky, dataset(lucky, log), arguments.steps, seed), "solve": of_solver(lucky, log)}
            rows += [
                {"method": m, "n": size, "log": seed, "error": round(error(lucky, a), 6)} for m, a in found.items()
            ]
            for name, qualities in {"gamble": (1.0, 0.9, 0.8), "gamble, low qualities too": LOW}.items():
                found_error = gamble(size // HORIZON, arguments.steps, seed, qualities)
                rows.append({"method": f"dial, {name}", "n": size, "log": seed, "error": round(found_error, 6)})
            print(rows[-4:], flush=True)
    write_csv(RESULTS / "dial_luck.csv", rows)
    table = [
        [method, *(f"{np.mean([r['error'] for r in rows if (r['method'], r['n']) == (method, n)]):.4f}" for n in SIZES)]
        for method in dict.fromkeys(row["method"] for row in rows)
    ]
    print_table(["error of a step", *(f"{n:,} transitions" for n in SIZES)], table)


if __name__ == "__main__":
    main()

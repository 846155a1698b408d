"""How near pdocrl_anchored comes to optima that are known.

    python -m benchmarks.anchored_known_answers [--seeds 3] [--steps 20000]

On the problems of tests/probes.py, and on episodes of the lucky2 family, where the tabular solver learns from the same
rows. States are one-hot, actions real numbers in which the finite ones are encoded, policies are evaluated exactly.
err = max(suboptimality, violation) in (1−γ)J units. Writes benchmarks/results/anchored_known_answers.csv.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.agents.base import Agent, AgentConfig, make_config
from pdocrl.agents.registry import find_agent
from pdocrl.console import log, print_table
from pdocrl.data.dataset import Dataset, make_dataset
from pdocrl.files import write_csv
from pdocrl.policies.policy import Policy
from pdocrl.tabular.cmdp import Evaluation, evaluate
from pdocrl.tabular.counts import Counts
from pdocrl.training.trainer import Run, Trainer
from research.experiments.lucky import methods
from research.lucky import BAD, FAILED, FAST, FIRST_RARE, LIMIT, SAFE, Lucky, lucky2

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from probes import HORIZON, Probe, bandit, chain, small_cmdp  # noqa: E402

SIZES = (10_000, 100_000)  # two of those of research/experiments/lucky.py
GAMMA = 0.9
ANCHORED, SOLVER = "pdocrl_anchored", "PDOCRL C=1.5C*"
BESIDE = (SOLVER, "plug-in", "BC")  # tabular methods that learn from the same rows
PROBES: dict[str, Callable[[], Probe]] = {
    "bandit": bandit,
    "bandit, two limits": lambda: bandit((0.25, 0.09)),
    "chain": chain,
    "random CMDP": lambda: small_cmdp(1),
    "random CMDP, two limits": lambda: small_cmdp(2),
}
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="trainings per problem; on lucky2, logs per size")
    parser.add_argument("--steps", type=int, default=20_000)
    arguments = parser.parse_args()
    rows: list[Row] = []
    for more in measure(range(arguments.seeds), arguments.steps):
        rows += more
        write_csv(Path(__file__).parent / "results" / "anchored_known_answers.csv", rows)
    show(rows)
    show_luck(range(arguments.seeds))


def measure(seeds: Sequence[int], steps: int) -> Iterator[list[Row]]:
    """Problem by problem, so that what is done is written."""
    for name, make in PROBES.items():
        log(f"training on {name}")
        yield on_probe(name, make(), seeds, steps)
    for size, seed in itertools.product(SIZES, seeds):
        log(f"training on lucky2, {size:,} transitions, log {seed}")
        yield on_lucky(lucky2(), size, seed, steps)


def configured(cost_limit: Sequence[float]) -> tuple[Agent[Any, Any], AgentConfig]:
    """The agent with its own settings but for the small networks and what the problem says."""
    agent = find_agent(ANCHORED)
    limits = tuple(map(float, cost_limit))
    return agent, make_config(agent, hidden=(64, 64), horizon=float(HORIZON), gamma=GAMMA, cost_limit=limits)


def train(dataset: Dataset, cost_limit: Sequence[float], seeds: Sequence[int], steps: int) -> list[Policy]:
    """One policy per seed."""
    agent, config = configured(cost_limit)
    trainer = Trainer(agent, dataset, [Run(config, seed) for seed in seeds])
    trainer.advance(steps)
    return trainer.policies()


def on_probe(name: str, probe: Probe, seeds: Sequence[int], steps: int) -> list[Row]:
    limits = np.asarray(probe.cost_limit) / HORIZON
    found = [probe.evaluate(policy) for policy in train(probe.dataset, probe.cost_limit, seeds, steps)]
    return [
        as_row(name, len(probe.dataset), ANCHORED, seed, probe.reward, limits, reward, cost)
        for seed, (reward, cost) in zip(seeds, found, strict=True)
    ]


def on_lucky(lucky: Lucky, size: int, seed: int, steps: int) -> list[Row]:
    """The agent and the tabular methods on one log; errors also as multiples of the tabular solver's."""
    dataset, counts = log_lucky(lucky, play(lucky, size, seed))
    at, states = positions(counts), np.eye(FAILED + 1, dtype=np.float32)
    (policy,) = train(dataset, (LIMIT * HORIZON,), (seed,), steps)
    known = methods(lucky)
    found: dict[str, Evaluation] = {ANCHORED: evaluate(lucky.cmdp, as_tabular(policy(states)[:, 0], at))}
    found |= {name: known[name](counts) for name in BESIDE}
    limits, optimum = np.array([LIMIT]), lucky.optimum.value
    rows = [
        as_row("lucky2", size, name, seed, optimum, limits, e.value, 0 - e.constraints) for name, e in found.items()
    ]
    solver = next(row["error"] for row in rows if row["method"] == SOLVER)
    return [row | {"error_over_solver": round(row["error"] / solver, 2)} for row in rows]


def log_lucky(lucky: Lucky, played: NDArray[np.int64]) -> tuple[Dataset, Counts]:
    """The same rows [3, n] as the agent reads them and as the tabular methods do."""
    state, arm, following = played
    reward, cost = lucky.cmdp.r[state, arm], -lucky.cmdp.g[0][state, arm]
    counts = Counts.from_arrays(
        state, arm, following, reward, cost, n_states=FAILED + 1, n_actions=lucky.cmdp.n_actions, d0=lucky.cmdp.d0
    )
    action, one_hot = positions(counts)[arm], np.eye(FAILED + 1, dtype=np.float32)
    timeout = np.arange(len(state)) % HORIZON == HORIZON - 1
    terminal = np.zeros(len(state), bool)
    dataset = make_dataset(one_hot[state], action, reward, cost, one_hot[following], terminal, timeout, name="lucky2")
    return dataset, counts


def play(lucky: Lucky, size: int, seed: int) -> NDArray[np.int64]:
    """State, arm and next state [3, n] of whole episodes, since the agent copies episodes.

    Mixtures of occupancies are mixtures of episodes: as in μ_D, half of the episodes are the best policy's, the others
    take the bad arm, and 3 % of the working steps try a rare one. Ten steps undiscounted are not μ_D: the best policy's
    concentrability is about 3 here (2.7 to 3.1 by log), so the solver's C = 3 has no room to spare.
    """
    rng = np.random.default_rng([seed, 2])
    episodes = size // HORIZON
    cumulative = lucky.cmdp.P.toarray().cumsum(axis=1)
    by_best = rng.random(episodes) < 0.5 / 0.97
    state, columns = np.zeros(episodes, np.int64), []
    for _ in range(HORIZON):
        best = np.where(rng.random(episodes) < LIMIT, FAST, SAFE)
        rare = rng.integers(FIRST_RARE, lucky.cmdp.n_actions, episodes)
        tries = (rng.random(episodes) < 0.03) & (state != FAILED)
        arm = np.where(tries, rare, np.where(by_best, best, BAD))
        drawn = rng.random((episodes, 1)) > cumulative[state * lucky.cmdp.n_actions + arm]
        following = drawn.sum(axis=1)
        columns.append((state, arm, following))
        state = following
    return np.moveaxis(np.array(columns), 2, 0).reshape(-1, 3).T  # episode after episode


def positions(counts: Counts) -> NDArray[np.float64]:
    """Where on [−1, 1] each arm lies [A]: amid a stretch as long as its share of the log, so that common arms are far
    apart."""
    share = counts.mu.sum(axis=0)
    return 2 * (np.cumsum(share) - share / 2) - 1


def as_tabular(action: NDArray[Any], at: NDArray[np.float64]) -> NDArray[np.float64]:
    """Real actions [S] as a policy [S, A]: between two arms, a mixture of both. With two arms at ±1 this is the
    x = (1+a)/2 of tests/probes.py."""
    return np.stack([np.interp(action, at, one) for one in np.eye(len(at))], axis=1)


def as_row(
    problem: str,
    size: int,
    method: str,
    seed: int,
    optimum: float,
    limits: NDArray[np.float64],
    reward: float,
    cost: NDArray[np.float64],
) -> Row:
    suboptimality, violation = optimum - reward, float((cost - limits).max())
    return {
        "problem": problem,
        "transitions": size,
        "method": method,
        "seed": seed,
        "optimum": round(optimum, 4),
        "limits": " ".join(f"{x:.4f}" for x in limits),
        "reward": round(reward, 4),
        "costs": " ".join(f"{x:.4f}" for x in cost),
        "suboptimality": round(suboptimality, 4),
        "violation": round(max(violation, 0.0), 4),
        "error": round(max(suboptimality, violation, 0.0), 5),
        "error_over_solver": "",
    }


def show(rows: list[Row]) -> None:
    """Means over seeds; the ratio is of mean errors."""
    table = []
    for problem, size, method in dict.fromkeys((r["problem"], r["transitions"], r["method"]) for r in rows):
        same = [r for r in rows if (r["problem"], r["transitions"]) == (problem, size)]
        own = [r for r in same if r["method"] == method]
        mean = {key: float(np.mean([r[key] for r in own])) for key in ("reward", "suboptimality", "violation", "error")}
        cost = np.mean([[float(x) for x in r["costs"].split()] for r in own], axis=0)
        solver = [r["error"] for r in same if r["method"] == SOLVER]
        table.append(
            [
                problem,
                f"{size:,}",
                method,
                own[0]["optimum"],
                own[0]["limits"],
                f"{mean['reward']:.3f}",
                " ".join(f"{x:.3f}" for x in cost),
                f"{mean['suboptimality']:.4f}",
                f"{mean['violation']:.4f}",
                f"{mean['error']:.4f}",
                f"{mean['error'] / np.mean(solver):.1f}" if solver else "",
            ]
        )
    head = ["problem", "transitions", "method", "optimum", "limits", "reward", "costs"]
    head += ["suboptimality", "violation", "error", "error / solver's"]
    print_table(head, table, title=f"means over {1 + max(r['seed'] for r in rows)} seeds; rates (1−γ)J")


def show_luck(seeds: Sequence[int]) -> None:
    """How often rare arms are tried and break down, in the log and in the episodes the agent copies from it."""
    table, lucky = [], lucky2()
    agent, config = configured((LIMIT * HORIZON,))
    for size, seed in itertools.product(SIZES, seeds):
        played = play(lucky, size, seed)
        copied = played[:, agent.rows(config, log_lucky(lucky, played)[0])]
        line = [f"{size:,}", str(seed)]
        for state, arm, following in (played, copied):
            rare = (arm >= FIRST_RARE) & (state != FAILED)
            line += [f"{rare.mean():.3f}", f"{(following[rare] == FAILED).mean():.2f}"]
        table.append(line)
    head = ["transitions", "log", "rare arms in the log", "of them broke", "in copied episodes", "of them broke"]
    print_table(head, table, title="lucky2: what the agent copies")


if __name__ == "__main__":
    main()

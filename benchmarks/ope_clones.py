"""Estimates from data alone against roll-outs, four methods side by side: errors, coverage, and what is cleared.

    python benchmarks/ope_clones.py --data FOLDER [--tasks CarRun CarCircle] [--clones 40] [RUN …]

Policies are clones of random parts of each dataset, more than half of them bent (gain, noise or bias on their actions),
played in the simulator. A RUN is a training folder with scores.json from `pdocrl evaluate`; its policies are judged,
too. Every policy is judged at the limits 10, 20 and 40. Writes results/ope.csv, a row a policy.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray
from scipy.stats import spearmanr

from pdocrl.console import log, print_table
from pdocrl.data import load
from pdocrl.data.dataset import Dataset
from pdocrl.data.tasks import find_task
from pdocrl.envs.rollout import Rollouts
from pdocrl.files import write_csv
from pdocrl.nn.mlp import MLP
from pdocrl.ope import METHODS, Prepared
from pdocrl.ope.ensemble.judge import Judged
from pdocrl.ope.ensemble.of_training import judge_training
from pdocrl.ope.ensemble.support import MOST_OUTSIDE
from pdocrl.policies.policy import MLPPolicy
from pdocrl.training.config import TrainingConfig
from pdocrl.training.folder import Trained, load_trained

HERE = Path(__file__).parent
LIMITS = (10.0, 20.0, 40.0)
DESIGNED_ON = ("BallRun", "BallCircle", "DroneRun")  # looked at while the ensembles were made; the others were not
BENDS = ("plain", "gain", "noise", "bias")
BATCH, STEPS, HIDDEN = 128, 1500, (64, 64)
Row = dict[str, Any]
Floats = NDArray[np.float64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="*", help="training folders with scores.json")
    parser.add_argument("--data", type=Path, required=True, help="folder with one Safety<Task>-*.hdf5 per task")
    parser.add_argument("--tasks", nargs="+", default=["CarRun", "CarCircle", *DESIGNED_ON])
    parser.add_argument("--clones", type=int, default=40)
    parser.add_argument("--episodes", type=int, default=20)
    arguments = parser.parse_args()
    rows: list[Row] = []
    for task in arguments.tasks:
        dataset = load(next(arguments.data.glob(f"Safety{task}-*.hdf5")), task)
        ready = Prepared.of(dataset)
        policies, kinds = clones(dataset, arguments.clones)
        with Rollouts(task, None, tuple(dataset.cost_names)) as pool:
            played = [pool.run(policy, arguments.episodes, 0) for policy in policies]
        truth = [(float(one.reward.mean()), float(one.cost[:, 0].mean()), len(one)) for one in played]
        rows += judged(task, ready, policies, kinds, truth)
        for folder in arguments.runs:
            scores = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
            if scores["task"] == task:
                found = load_trained(folder)
                told = [(run["reward"], run["cost"][0], len(run["episodes"])) for run in scores["runs"]]
                rows += judged(task, ready, found.policies, [found.config.agent] * len(told), told)
    write_csv(HERE / "results" / "ope.csv", rows)
    show(rows)


def clones(data: Dataset, count: int, seed: int = 7) -> tuple[list[MLPPolicy], list[str]]:
    """Policies that copy 15, 40 or 100 episodes alike in cost and return; most of them bent. Every second one safe."""
    rng = np.random.default_rng(seed)
    cost, reward = data.cost_return[:, 0], data.reward_return
    cheap = np.flatnonzero(cost <= np.quantile(cost, 0.35))
    episode = np.repeat(np.arange(data.n_episodes), data.episode_length)
    rows = []
    for p in range(count):
        centre = rng.integers(data.n_episodes) if p % 2 else rng.choice(cheap)
        distance = ((cost - cost[centre]) / cost.std()) ** 2 + ((reward - reward[centre]) / reward.std()) ** 2
        alike = np.argsort(distance)[: int(rng.choice([15, 40, 100]))]
        rows.append(np.flatnonzero(np.isin(episode, alike)))
    spread = data.obs.std(axis=0)
    mean, scale = data.obs.mean(axis=0), np.where(spread > 1e-6, spread, 1.0)
    net = MLP.create(jax.random.key(3), (data.obs_dim, *HIDDEN, data.action_dim), count)
    optimiser = optax.adam(1e-3)
    state = optimiser.init(net)  # type: ignore[arg-type]

    @jax.jit
    def step(net: MLP, state: Any, x: Any, a: Any) -> tuple[MLP, Any]:
        gradient = jax.grad(lambda n: jnp.square(jnp.tanh(n(x)) - a).mean((1, 2)).sum())(net)
        updates, state = optimiser.update(gradient, state)
        return optax.apply_updates(net, updates), state

    for _ in range(STEPS):
        at = np.stack([own[rng.integers(len(own), size=BATCH)] for own in rows])
        net, state = step(net, state, (data.obs[at] - mean) / scale, np.clip(data.action[at], -0.99, 0.99))
    made, kinds = [], []
    for p in range(count):
        kind = BENDS[p % 4] if p >= count // 4 else "plain"
        weights, biases = [np.array(w[p]) for w in net.weights], [np.array(b[p, 0]) for b in net.biases]
        if kind == "gain":
            factor = rng.uniform(1.0, 1.5)
            weights[-1], biases[-1] = factor * weights[-1], factor * biases[-1]
        elif kind == "noise":
            weights = [w + 0.15 * w.std() * rng.normal(size=w.shape) for w in weights]
        elif kind == "bias":
            biases[-1] = biases[-1] + 0.1 * rng.normal(size=biases[-1].shape)
        weights[0] = weights[0] / scale[:, None]
        biases[0] = biases[0] - mean @ weights[0]
        made.append(
            MLPPolicy(tuple(w.astype(np.float32) for w in weights), tuple(b.astype(np.float32) for b in biases))
        )
        kinds.append(kind)
    return made, kinds


def judged(
    task: str, ready: Prepared, policies: list[Any], kinds: list[str], truth: list[tuple[float, float, int]]
) -> list[Row]:
    """A row per policy: what it was in roll-outs, and every method's word on it."""
    spec, data = find_task(task), ready.dataset
    runs = [{"cost_limit": [LIMITS[0]], "seed": 0} for _ in policies]
    plan = TrainingConfig(
        data=data.name,
        data_digest=data.digest,
        task=task,
        horizon=spec.horizon,
        cost_names=list(data.cost_names),
        agent="bc",
        settings={},
        runs=runs,
        steps=1,
        log_every=1,
        checkpoint_every=1,
        evaluate_every=0,
        evaluate_episodes=1,
        versions={},
    )
    told = judge_training(Trained(plan, 1, policies, {}, []), ready, seed=0, compare=True)
    log(f"{task}: {len(policies)} policies judged")
    return [
        row(
            task,
            kind,
            played,
            one.outside,
            by_method(one),
        )
        for kind, played, one in zip(kinds, truth, told, strict=True)
    ]


def by_method(one: Judged) -> dict[str, tuple[Any, Any, Any]]:
    """Values [2], intervals [2, 2] and what is said at each of the limits; fitted Q evaluation gives a point alone."""
    own = one.told
    found: dict[str, tuple[Any, Any, Any]] = {"ensemble": (own.value, own.interval, [own.within([x]) for x in LIMITS])}
    if one.fqe is not None:
        found["fqe"] = (one.fqe, [[None] * 2] * 2, [None] * len(LIMITS))
    return found


def row(
    task: str, kind: str, played: tuple[float, float, int], outside: float, told: dict[str, tuple[Any, Any, Any]]
) -> Row:
    """told: by method the values [2], the intervals [2, 2] and what is said at each of the limits."""
    found: Row = {"task": task, "policy": kind, "rollout_reward": played[0], "rollout_cost": played[1]}
    found |= {"episodes": played[2], "outside": round(outside, 4)}
    for name in METHODS:
        value, interval, said = told.get(name, ([None] * 2, [[None] * 2] * 2, [None] * 3))
        for k, what in enumerate(("reward", "cost")):
            numbers = {"": value[k], "_low": interval[k][0], "_high": interval[k][1]}
            found |= {f"{name}_{what}{end}": None if x is None else round(float(x), 3) for end, x in numbers.items()}
        for limit, one in zip(LIMITS, said, strict=True):
            sure = one if name != "ensemble" or outside <= MOST_OUTSIDE else None
            found[f"{name}_at_{limit:g}"] = {True: "within", False: "over", None: ""}[sure]
    return found


def show(rows: list[Row]) -> None:
    """The table of every task and method."""
    tasks = list(dict.fromkeys(r["task"] for r in rows))
    print_table(
        [
            "task",
            "method",
            "policies",
            "holds reward / cost",
            "median error, width of cost",
            "rank of reward / cost",
            "cleared, of those over",
            "at 1–2 × the limit",
            "shown, of those below .7",
            "“over” wrong",
        ],
        [
            line
            for task in tasks
            for name in METHODS
            if (line := summary(task, name, [r for r in rows if r["task"] == task and r[f"{name}_cost"] is not None]))
        ],
        title="estimates against roll-outs",
    )
    print(f"every policy: {HERE / 'results' / 'ope.csv'}")


def summary(task: str, name: str, rows: list[Row]) -> list[object]:
    if not rows:
        return []

    def column(key: str) -> Floats:
        return np.array([r[key] for r in rows], np.float64)

    def held(what: str) -> str:
        inside = (column(f"{name}_{what}_low") <= column(f"rollout_{what}")) & (
            column(f"rollout_{what}") <= column(f"{name}_{what}_high")
        )
        return f"{inside.mean():.2f}"

    def counted(word: str, low: float, high: float) -> str:
        """How often the word was said of policies whose cost over the limit is in (low, high]."""
        share = [(r[f"{name}_at_{x:g}"] == word, r["rollout_cost"] / x) for r in rows for x in LIMITS]
        own = [said for said, cost in share if low < cost <= high]
        return f"{sum(own)} of {len(own)}"

    def rank(what: str) -> str:
        return f"{spearmanr(column(f'{name}_{what}'), column(f'rollout_{what}')).statistic:.2f}"

    error = np.median(np.abs(column(f"{name}_cost") - column("rollout_cost")))
    width = np.median(column(f"{name}_cost_high") - column(f"{name}_cost_low"))
    overs = [r["rollout_cost"] <= x for r in rows for x in LIMITS if r[f"{name}_at_{x:g}"] == "over"]
    return [
        task,
        name,
        len(rows),
        f"{held('reward')} / {held('cost')}",
        f"{error:.2f}, {width:.1f}",
        f"{rank('reward')} / {rank('cost')}",
        counted("within", 1, np.inf),
        counted("within", 1, 2),
        counted("within", -1, 0.7),
        f"{sum(overs)} of {len(overs)}",
    ]


if __name__ == "__main__":
    main()

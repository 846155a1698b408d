"""The dial on every task: one training a seed, eight limits; what else it might be; and its earlier design.

The earlier design had dropout, and averages over the last hundredth of the steps, not the last tenth. Of that one each
part was left out and two limits were set at once.

    python benchmarks/dial.py --data FOLDER --out runs/dial

Five seeds (three with a part left out), 100,000 steps, last checkpoint, 20 episodes a run, every episode counted, one
setting for all tasks. What is trained is not trained again, so the folder can be copied from a machine with an
accelerator (`--train-only`) to one with the simulator. Writes benchmarks/results/dial.csv; docs/agents/dial.md says
which tasks were looked at while designing.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
from pdocrl.agents.rehearsal import rehearse

from pdocrl.agents import dial as agent
from pdocrl.data import load
from pdocrl.data.tasks import find_task
from pdocrl.envs import split_run_costs
from pdocrl.envs.rollout import Rollouts
from pdocrl.evaluation.normalise import normalised_reward
from pdocrl.files import write_csv
from pdocrl.policies.policy import DialPolicy, with_normaliser
from pdocrl.training.folder import load_trained, restore
from pdocrl.training.train import train

ROOT = Path(__file__).resolve().parents[1]
LIMITS, FEWER = (3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 40.0), (5.0, 10.0, 20.0, 40.0)
BOTH = ((2.0, 20.0), (5.0, 5.0), (10.0, 40.0))  # boundary, speed
SEEDS, THREE, STEPS, EPISODES = (0, 5, 10, 15, 20), (0, 5, 10), 100_000, 20
SHORT: dict[str, Any] = {"average_rate": 1e-3}
CANDIDATES: dict[str, dict[str, Any]] = {  # one of these or the dial was to be chosen, on the design tasks alone
    "32 rows": {"model_batch": 32},
    "short averages": SHORT,
    "32 rows, short averages": SHORT | {"model_batch": 32},
}
DESIGN = ("BallRun", "CarCircle", "DroneRun")
EARLIER: dict[str, Any] = SHORT | {"dropout": 0.1}
LEAN: dict[str, Any] = EARLIER | {"model_batch": 32, "rows_a_mask": 4}  # a quarter less work on a CPU
# Parts that the training has, and parts that only the table of settings has: the same networks without them.
TRAINED: dict[str, dict[str, Any]] = {
    "models of 128": EARLIER | {"model_hidden": (128, 128)},
    "lean": LEAN,
    "lean, no dropout": LEAN | {"dropout": 0.0},
    "lean, no focus": LEAN | {"focus": 0.0},
    "lean, no decay": LEAN | {"decay": 1e12},
}
REHEARSED = ("over all starts", "one model", "no checks", "not rehearsed", "one quality", "no early stops")
MORE = "ask for 1.1"  # times the best return logged at that cost
WHOLE = ("dial", "earlier", "lean", *CANDIDATES)  # five seeds, eight limits
Asked = tuple[str, int, tuple[float, ...], Any]  # variant, seed, limits, policy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with one Safety<Task>-*.hdf5 per task")
    parser.add_argument("--out", type=Path, default=Path("runs/dial"))
    parser.add_argument("--train-only", action="store_true", help="for machines without the simulator")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for file in sorted(arguments.data.glob("Safety*-v0-*.hdf5")):
        task = find_task(file.name.split("-v0")[0].removeprefix("Safety"))
        data = load(file, task.name)
        kinds: dict[str, Any] = {"dial": {"seed": SEEDS}}
        trained = (CANDIDATES if task.name in DESIGN else {}) | {"earlier": EARLIER} | TRAINED
        for part, settings in trained.items():
            kinds[part] = {"seed": SEEDS if part in WHOLE else THREE, "settings": settings}
        if task.name.endswith("Run") and task.name != "AntRun":
            kinds["two limits"] = {"seed": THREE, "settings": EARLIER}
        for variant, options in kinds.items():
            folder, own = arguments.out / task.name / variant.replace(", ", "_").replace(" ", "_"), data
            limit: tuple[float, ...] = (LIMITS[-1],)
            if variant == "two limits":
                cost = split_run_costs(task.name, data.next_obs)
                own = dataclasses.replace(data, cost=cost, cost_names=("cost_boundary", "cost_speed"))
                limit = BOTH[-1]
            if not (folder / "policies.npz").exists():
                train(own, "dial", task=task, cost_limit=[limit], steps=STEPS, out=folder, **options)
            if not arguments.train_only:
                rows += play(task.name, list(asked(folder, variant, own)), own.cost_names)
    if rows:
        write_csv(ROOT / "benchmarks/results/dial.csv", rows)


def asked(folder: Path, variant: str, data: Any) -> Iterator[Asked]:
    """What a training is played as."""
    found: Any = load_trained(folder)
    tables = {"earlier": REHEARSED, "short averages": (MORE,), "32 rows, short averages": (MORE,)}.get(variant, ())
    trainer: Any = restore(folder, found.config, data) if tables else None
    for i, (run, policy) in enumerate(zip(found.config.runs, found.policies, strict=True)):
        limits = BOTH if variant == "two limits" else [(x,) for x in (LIMITS if variant in WHOLE else FEWER)]
        for limit in limits:
            yield variant, run["seed"], limit, policy.with_limit(limit)
        if trainer is not None and run["seed"] in THREE:
            state = jax.tree.map(lambda x, i=i: np.asarray(x[int(trainer.training[i])]), trainer.state)
            for part in tables:
                network = left_out(trainer.runs[i].config, state, part)
                name = f"{variant}, {part}" if part == MORE else part
                for x in FEWER:
                    yield name, run["seed"], (x,), with_normaliser(network.with_limit((x,)), policy.normaliser)


def left_out(config: agent.DialConfig, state: agent.DialState, part: str) -> DialPolicy:
    """The trained dial with its table of settings made without one part, or with more to ask for."""
    dial = agent.Dial()
    if part == MORE:
        return dial.policy(dataclasses.replace(config, qualities=(1.0, 1.1, 0.9, 0.8)), state)
    if part == "over all starts":
        return dial.policy(dataclasses.replace(config, episodes=1e9), state)
    if part == "no early stops":
        return dial.policy(dataclasses.replace(config, early_stops=False), state)
    if part == "one quality":
        return dial.policy(dataclasses.replace(config, qualities=(1.0,)), state)
    if part == "one model":
        with mock.patch.object(agent, "rehearse", lambda m, *rest: rehearse(jax.tree.map(lambda x: x[:1], m), *rest)):
            return dial.policy(config, state)
    if part == "no checks":  # neither held to what was asked for nor to the best episodes
        found: list[Any] = []

        def noted(*arguments: Any) -> Any:
            found.extend(rehearse(*arguments))
            return found

        with mock.patch.object(agent, "rehearse", noted):
            whole = dial.policy(config, state)
        return dataclasses.replace(whole, reward=found[0], cost=found[2] / np.float32(config.margin))
    assert part == "not rehearsed"
    whole = dial.policy(config, state)
    n = agent.FINE
    tables = {name: getattr(whole, name)[:n] for name in ("quality", "ask", "stop")}
    return dataclasses.replace(whole, **tables, reward=whole.ask[:n, 0], cost=whole.ask[:n])


def play(task: str, policies: list[Asked], costs: tuple[str, ...]) -> list[dict[str, Any]]:
    with Rollouts(task, costs=costs) as pool:
        played = pool.run([policy for *_, policy in policies], EPISODES)
    rows = []
    for i, (variant, seed, limit, policy) in enumerate(policies):
        own = played.of_policy(i)
        expected = policy.network.expects(limit)[1]
        for k, x in enumerate(limit):
            rows.append(
                {
                    "task": task,
                    "variant": variant,
                    "seed": seed,
                    "constraint": costs[k],
                    "cost_limit": x,
                    "limits": " ".join(f"{y:g}" for y in limit),
                    "episodes": EPISODES,
                    "normalized_reward": float(normalised_reward(task, own.reward).mean()),
                    "normalized_cost": float(own.cost[:, k].mean()) / x,
                    "reward": float(own.reward.mean()),
                    "cost": float(own.cost[:, k].mean()),
                    "rehearsed_cost": float(expected[k]),
                    "shortest": int(own.length.min()),
                }
            )
    return rows


if __name__ == "__main__":
    main()

"""Training steps per second of every agent on this CPU at its default sizes, and d3rlpy's beside them.

    python benchmarks/bench_agents_cpu.py
    python benchmarks/bench_agents_cpu.py --agents bc bcq_lag bear_lag cdt --d3rlpy-python VENV/bin/python

d3rlpy trains BC, BCQ, BEAR and the Decision Transformer at the sizes of our defaults: batch 512, layers of 256 × 256, a
VAE of 400 × 400 and ten actions a state; the transformer with a context of ten steps, width 128, three blocks and eight
heads. Both sides draw a mini-batch from 100,000 transitions of BallRun's shape and learn from it; d3rlpy's rate without
the drawing is `their_update_only`. The sides take turns of some seconds in one run, d3rlpy with one thread and two,
of which the better counts; figures are medians over turns, ratios are of one turn. Compilation is not counted.
`ratio_per_cpu` compares steps per second of CPU time and so holds on a busy machine too (d3rlpy with one thread).

The roofline is measured in the same turns: `product_gflops` are the GFLOP a second of products and nothing else, of
5,120 rows by 256 × 256 in float32, as XLA does them on the same cores. Over `our_gflop` they are the steps a second
that no arrangement of the same arithmetic exceeds, `roof`; `roof_ratio` is that over theirs. Per second of CPU time
likewise. benchmarks/results/agents_cpu.csv was measured before the roofline was, of bcq_lag, bear_lag and cdt before
they did less or lay as a CPU wants them; agents_roof.csv is of these three since. Both are of quiet cores.

The work differs: ours learns twin cost critics and multipliers besides (`bcq_lag`, `bear_lag`), and reads four tokens a
step where the Decision Transformer reads three (`cdt`). The columns in GFLOP count the matrix products of one step as
XLA and torch count them. d3rlpy needs an environment of its own with torch 2.13.0 and d3rlpy 2.8.1.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import time
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pdocrl.agents.base import make_config
from pdocrl.agents.registry import BUILT_IN, find_agent
from pdocrl.data.dataset import Dataset, make_dataset
from pdocrl.training.trainer import Run, Trainer

THEIRS = {"bc": "bc", "bcq_lag": "bcq", "bear_lag": "bear", "cdt": "dt"}
THREADS = (1, 2)

D3RLPY = """
import json, sys, time
import numpy as np, torch, d3rlpy
from d3rlpy.models import VectorEncoderFactory
from torch.utils.flop_counter import FlopCounterMode

BATCH, N, HORIZON = 512, 100_000, 100
rng = np.random.default_rng(0)
dataset = d3rlpy.dataset.MDPDataset(
    rng.normal(size=(N, 7)).astype("f"), rng.uniform(-1, 1, (N, 2)).astype("f"), rng.normal(size=N).astype("f"),
    np.zeros(N), timeouts=np.arange(N) % HORIZON == HORIZON - 1, action_space=d3rlpy.ActionSpace.CONTINUOUS,
)
net, vae = VectorEncoderFactory([256, 256]), VectorEncoderFactory([400, 400])
both = dict(batch_size=BATCH, actor_encoder_factory=net, critic_encoder_factory=net, imitator_encoder_factory=vae)
make = {
    "bc": lambda: d3rlpy.algos.BCConfig(batch_size=BATCH, encoder_factory=net),
    "bcq": lambda: d3rlpy.algos.BCQConfig(n_action_samples=10, update_actor_interval=1, **both),
    "bear": lambda: d3rlpy.algos.BEARConfig(
        n_target_samples=10, n_mmd_action_samples=10, n_action_samples=10, mmd_kernel="gaussian", warmup_steps=0, **both
    ),
    "dt": lambda: d3rlpy.algos.DecisionTransformerConfig(
        batch_size=BATCH, context_size=10, num_heads=8, num_layers=3,
        encoder_factory=VectorEncoderFactory([128], exclude_last_activation=True),
    ),
}
algos, kept = {}, {}

def draw(name):
    if name == "dt":
        return dataset.sample_trajectory_batch(BATCH, 10)
    return dataset.sample_transition_batch(BATCH)

for line in sys.stdin:
    order = json.loads(line)
    name = order["name"]
    torch.set_num_threads(order["threads"])
    if name not in algos:
        algos[name] = make[name]().create(device="cpu:0")
        algos[name].build_with_dataset(dataset)
        kept[name] = draw(name)
        algos[name].update(kept[name])
    algo, answer = algos[name], {}
    if order.get("flops"):
        with FlopCounterMode(display=False) as counter:
            algo.update(kept[name])
        answer["gflop"] = counter.get_total_flops() / 1e9
    for what, batch in (("whole", lambda: draw(name)), ("update_only", lambda: kept[name])):
        steps, began, cpu = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - began < order["seconds"]:
            algo.update(batch())
            steps += 1
        answer[what] = steps / (time.perf_counter() - began)
        answer[what + "_per_cpu"] = steps / (time.process_time() - cpu)
    print("answer", json.dumps(answer), flush=True)
"""


class Other:
    """d3rlpy in a process of its own, idle until told to train for some seconds."""

    def __init__(self, python: str) -> None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([python, "-c", D3RLPY], text=True, **pipes)

    def ask(self, **order: Any) -> dict[str, float]:
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("answer "):
                answer: dict[str, float] = json.loads(line.removeprefix("answer "))
                return answer
        raise SystemExit("d3rlpy ended without an answer; its message is above.")

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def random_data(n: int, obs_dim: int = 7, action_dim: int = 2, horizon: int = 100) -> Dataset:
    """Data of BallRun's shape; what it holds does not change the speed."""
    rng = np.random.default_rng(0)
    return make_dataset(
        rng.normal(size=(n, obs_dim)),
        rng.uniform(-1, 1, (n, action_dim)),
        rng.normal(size=n),
        rng.random(n) < 0.1,
        rng.normal(size=(n, obs_dim)),
        np.zeros(n),
        np.arange(n) % horizon == horizon - 1,
    )


def gflop(trainer: Trainer) -> float:
    """Of one step, as XLA counts it."""
    config, agent = trainer.runs[0].config, trainer.agent
    state = jax.tree.map(lambda leaf: leaf[0], trainer.state)
    odd = config.batch_size - 1  # one that is not gone through in parts: XLA counts the body of a loop once
    batch = agent.batch(config, trainer._table, jnp.arange(odd), jax.random.key(0))
    cost = jax.jit(agent.update).lower(config, state, batch, jax.random.key(0)).compile().cost_analysis()
    return float(cost["flops"]) / 1e9 * config.batch_size / odd


def product_rates(seconds: float) -> tuple[float, float]:
    """GFLOP per second, of wall time and of CPU time, of float32 products that stay in the caches."""
    x, w = jnp.ones((5120, 256)), jnp.full((256, 256), 1 / 256)
    many = jax.jit(lambda x: jax.lax.fori_loop(0, 20, lambda i, x: x @ w, x))
    many(x).block_until_ready()
    done, began, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds:
        many(x).block_until_ready()
        done += 1
    gflop = done * 20 * 2 * 5120 * 256 * 256 / 1e9
    return gflop / (time.perf_counter() - began), gflop / (time.process_time() - cpu)


def own_rates(trainer: Trainer, steps: int) -> tuple[float, float]:
    """Steps per second of wall time and of CPU time."""
    began, cpu = time.perf_counter(), time.process_time()
    trainer.advance(steps)
    return steps / (time.perf_counter() - began), steps / (time.process_time() - cpu)


def measure(name: str, dataset: Dataset, rounds: int, seconds: float, other: Other | None) -> list[dict[str, Any]]:
    """One row per round."""
    agent = find_agent(name)
    trainer = Trainer(agent, dataset, [Run(make_config(agent, cost_limit=(20.0,), horizon=100.0), 0)])
    trainer.advance(2)
    steps = max(1, round(own_rates(trainer, 3)[0] * seconds))
    theirs = THEIRS.get(name) if other is not None else None
    facts: dict[str, Any] = {"our_gflop": round(gflop(trainer), 3)}
    if other is not None and theirs is not None:
        facts["their_gflop"] = round(other.ask(name=theirs, threads=1, seconds=0.1, flops=True)["gflop"], 3)
    rows = []
    for turn in range(rounds):
        ours, ours_per_cpu = own_rates(trainer, steps)
        row: dict[str, Any] = {"agent": name, "round": turn, "ours": ours, "ours_per_cpu": ours_per_cpu}
        row["product_gflops"], row["product_gflops_per_cpu"] = product_rates(seconds)
        row["roof"] = row["product_gflops"] / facts["our_gflop"]
        row["share_of_roof"] = ours / row["roof"]
        row["share_of_roof_per_cpu"] = ours_per_cpu * facts["our_gflop"] / row["product_gflops_per_cpu"]
        if other is not None and theirs is not None:
            answers = {t: other.ask(name=theirs, threads=t, seconds=seconds) for t in THREADS}
            best = max(THREADS, key=lambda t: answers[t]["whole"])
            row |= {"theirs": answers[best]["whole"], "their_threads": best}
            row["their_update_only"] = max(answer["update_only"] for answer in answers.values())
            row["ratio"] = ours / row["theirs"]
            row["ratio_update_only"] = ours / row["their_update_only"]
            row["theirs_per_cpu"] = answers[1]["whole_per_cpu"]
            row["ratio_per_cpu"] = ours_per_cpu / row["theirs_per_cpu"]
            row["roof_ratio"] = row["roof"] / row["theirs"]
            row["roof_ratio_per_cpu"] = row["product_gflops_per_cpu"] / facts["our_gflop"] / row["theirs_per_cpu"]
        rows.append({key: round(v, 3) if isinstance(v, float) else v for key, v in row.items()} | facts)
        print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    return rows


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    columns = list(dict.fromkeys(column for row in rows for column in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", nargs="+", default=list(BUILT_IN))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one turn")
    parser.add_argument("--d3rlpy-python", help="the python of an environment with torch and d3rlpy")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "agents_cpu.csv")
    arguments = parser.parse_args()

    other = Other(arguments.d3rlpy_python) if arguments.d3rlpy_python else None
    dataset = random_data(100_000)
    rows: list[dict[str, Any]] = []
    for name in arguments.agents:
        rows += measure(name, dataset, arguments.rounds, arguments.seconds, other)
        write(arguments.out, rows)
    if other is not None:
        other.close()
    print(f"\nmedians of {arguments.rounds}, steps/s on {os.cpu_count()} cores")
    shown = (
        "ours",
        "theirs",
        "ratio",
        "ratio_per_cpu",
        "our_gflop",
        "their_gflop",
        "roof",
        "share_of_roof",
        "roof_ratio",
        "roof_ratio_per_cpu",
    )
    print(f"{'agent':20}", *(f"{column:>18}" for column in shown))
    for name in arguments.agents:
        own = [row for row in rows if row["agent"] == name]
        values = [median(row[column] for row in own) if column in own[0] else float("nan") for column in shown]
        print(f"{name:20}", *(f"{value:18.4g}" for value in values))


if __name__ == "__main__":
    main()

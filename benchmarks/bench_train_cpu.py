"""How near a training step comes to what this machine's matrix product allows.

    python benchmarks/bench_train_cpu.py

One run of `pdocrl` at batch 512, 256×256, twin Q on BallRun's shapes. The step's floating-point operations (counted by
XLA), over the rate of float32 products of 512×256 by 256×256 measured in the same process, interleaved, give the
steps/s a step made of nothing but such products would reach. Best of the rounds on both sides.
"""

from __future__ import annotations

import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from pdocrl.agents.base import make_config
from pdocrl.agents.registry import find_agent
from pdocrl.data import load
from pdocrl.files import write_csv
from pdocrl.training.trainer import Run, Trainer

ROUNDS, STEPS = 8, 60


def product_rate() -> float:
    """GFLOP/s of NumPy's float32 product."""
    a, b = (np.random.default_rng(0).normal(size=size).astype(np.float32) for size in ((512, 256), (256, 256)))
    began = time.perf_counter()
    for _ in range(300):
        a @ b
    return 300 * 2 * 512 * 256 * 256 / (time.perf_counter() - began) / 1e9


def main() -> None:
    agent = find_agent("pdocrl")
    config = make_config(agent, cost_limit=(10.0,), horizon=100.0)
    began = time.perf_counter()
    trainer = Trainer(agent, load("BallRun"), [Run(config, 0)])
    trainer.advance(1)
    compile_seconds = time.perf_counter() - began

    state = jax.tree.map(lambda leaf: leaf[0], trainer.state)
    batch = agent.batch(config, trainer._table, jnp.arange(512), jax.random.key(0))
    cost = jax.jit(agent.update).lower(config, state, batch, jax.random.key(0)).compile().cost_analysis()
    flops = float(cost["flops"])

    rows = []
    for turn in range(ROUNDS):
        rate = product_rate()
        began = time.perf_counter()
        trainer.advance(STEPS)
        rows.append({"round": turn, "gemm_gflops": rate, "steps_per_second": STEPS / (time.perf_counter() - began)})
    best_rate, best_steps = (max(row[key] for row in rows) for key in ("gemm_gflops", "steps_per_second"))
    bound = best_rate * 1e9 / flops
    print(f"{flops / 1e9:.2f} GFLOP a step; products {best_rate:.0f} GFLOP/s, so at most {bound:.0f} steps/s")
    print(f"measured {best_steps:.0f} steps/s: {best_steps / bound:.0%}; first step after {compile_seconds:.1f} s")
    write_csv(Path(__file__).parent / "results" / "train_cpu.csv", rows)


if __name__ == "__main__":
    main()

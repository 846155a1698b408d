"""Does training by products of halves learn what float32 learns? Emulated on a CPU, so small networks.

    python benchmarks/halves.py

`pdocrl` on the BallRun data that ships, limit 20, six seeds, 6,000 steps, layers of 64, batches of 128; the same seeds
both ways; figures are means over the last 1,500 steps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pdocrl.agents.agent import find_agent, make_config
from pdocrl.console import print_table
from pdocrl.data.load import EMBEDDED, load
from pdocrl.nn import halves
from pdocrl.training.loop import Run, Trainer

SEEDS, STAGES, STEPS = range(6), 4, 1500
FIGURES = ("critic_loss", "actor_loss", "q", "w", "lambda", "weighted_cost")


def figures_of(products: str) -> dict[str, NDArray[np.float64]]:
    """Of every seed at the end."""
    halves.for_training = lambda: products == "halves"
    agent = find_agent("pdocrl")
    config = make_config(agent, cost_limit=(20.0,), horizon=100.0, hidden=(64, 64), batch_size=128)
    trainer = Trainer(agent, load(EMBEDDED / "ballrun.hdf5", "BallRun"), [Run(config, seed) for seed in SEEDS])
    for _ in range(STAGES):
        means = trainer.advance(STEPS)
    return means


def main() -> None:
    exact, near = figures_of("float32"), figures_of("halves")
    rows = [
        [name, f"{exact[name].mean():.4g}", f"{near[name].mean():.4g}", f"{exact[name].std(ddof=1):.2g}"]
        for name in FIGURES
    ]
    print_table(["mean over seeds", "float32", "halves", "spread over seeds"], rows)


if __name__ == "__main__":
    main()

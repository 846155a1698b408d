"""Does training by products of halves learn what float32 learns? Emulated on a CPU, so small networks.

    python benchmarks/halves.py [--agent cdt]

On the BallRun data that ships, limit 20, the same seeds both ways. `pdocrl`: six seeds, 6,000 steps, layers of 64,
batches of 128. `cdt`: three seeds, 1,600 steps, width 64, two blocks, batches of 64. Figures are means over the last
quarter of the steps. Kernels for a GPU are left out: halves are multiplied by XLA.
"""

from __future__ import annotations

import argparse

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from pdocrl.agents.agent import find_agent, make_config
from pdocrl.console import print_table
from pdocrl.data.load import EMBEDDED, load
from pdocrl.nn import halves, kernel
from pdocrl.nn.kernel import half
from pdocrl.training import loop
from pdocrl.training.loop import Run, Trainer

STAGES = 4
# seeds, steps of a stage, settings, figures
KINDS = {
    "pdocrl": (6, 1500, {"hidden": (64, 64), "batch_size": 128},
               ("critic_loss", "actor_loss", "q", "w", "lambda", "weighted_cost")),
    "cdt": (3, 400, {"embedding": 64, "layers": 2, "heads": 4, "batch_size": 64, "learning_rate": 1e-3},
            ("actor_loss", "log_likelihood", "entropy", "cost_cross_entropy", "temperature")),
}  # fmt: skip


def product(x: Array, y: Array, kind: type = jnp.float32) -> Array:
    """Of halves, summed in float32: a CPU's own would be summed as halves."""
    return jnp.matmul(half(x).astype(jnp.float32), half(y).astype(jnp.float32)).astype(kind)


def figures_of(name: str, products: str) -> dict[str, NDArray[np.float64]]:
    """Of every seed at the end."""
    halves.for_training = lambda: products == "halves"
    kernel.available = lambda: False
    halves.product = product
    loop._program.cache_clear()
    seeds, steps, settings, _ = KINDS[name]
    agent = find_agent(name)
    config = make_config(agent, cost_limit=(20.0,), horizon=100.0, **settings)
    trainer = Trainer(agent, load(EMBEDDED / "ballrun.hdf5", "BallRun"), [Run(config, seed) for seed in range(seeds)])
    for _ in range(STAGES):
        means = trainer.advance(steps)
    return means


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agent", default="pdocrl", choices=list(KINDS))
    name = parser.parse_args().agent
    exact, near = figures_of(name, "float32"), figures_of(name, "halves")
    rows = [
        [figure, f"{exact[figure].mean():.4g}", f"{near[figure].mean():.4g}", f"{exact[figure].std(ddof=1):.2g}"]
        for figure in KINDS[name][-1]
    ]
    print_table(["mean over seeds", "float32", "halves", "spread over seeds"], rows)


if __name__ == "__main__":
    main()

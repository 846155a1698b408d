"""Does training by products of halves learn what float32 learns?

    python benchmarks/halves.py --played TF32 HALVES --out halves.csv
    python benchmarks/halves.py [--agent cdt] [--kernels]

The first compares two trainings on a GPU, the same but for PDOCRL_HALVES=0 and 1: folders that hold a training for each
task (`bench_grid.py --keep`), each played by `pdocrl evaluate`. benchmarks/results/halves.csv has every run of `pdocrl`
on five tasks, trained for 50,000 steps on an H200, 20 episodes a run.

The second is emulated on a CPU, so with small networks: on the BallRun data that ships, limit 20, the same seeds both
ways. `pdocrl`: six seeds, 6,000 steps, layers of 64, batches of 128. `bcq_lag`, `bear_lag`, `cpq`: four seeds, 3,000
steps, a VAE with layers of 48, which like the published one of 400 fits no kernel. `cdt`: three seeds, 1,600 steps,
width 64, two blocks, batches of 64. Figures are means over the last quarter of the steps. With `--kernels` those for a
GPU are interpreted, and without, halves are multiplied by XLA.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from pdocrl.agents.agent import find_agent, make_config
from pdocrl.console import print_table
from pdocrl.data.load import EMBEDDED, load
from pdocrl.files import write_csv
from pdocrl.nn import halves, kernel
from pdocrl.nn.kernel import half
from pdocrl.scores.evaluate import read_scores
from pdocrl.scores.intervals import interval_words, measured, number
from pdocrl.training import loop
from pdocrl.training.loop import Run, Trainer

STAGES = 4
CRITICS = {"hidden": (64, 64), "vae_hidden": (48, 48), "batch_size": 128, "samples": 4}
# seeds, steps of a stage, settings, figures
KINDS: dict[str, tuple[int, int, dict[str, Any], Sequence[str]]] = {
    "pdocrl": (6, 1500, {"hidden": (64, 64), "batch_size": 128},
               ("critic_loss", "actor_loss", "q", "w", "lambda", "weighted_cost")),
    **dict.fromkeys(("bcq_lag", "bear_lag", "cpq"), (4, 750, CRITICS, ("critic_loss", "vae_loss", "q", "q_cost"))),
    "cdt": (3, 400, {"embedding": 64, "layers": 2, "heads": 4, "batch_size": 64, "learning_rate": 1e-3},
            ("actor_loss", "log_likelihood", "entropy", "cost_cross_entropy", "temperature")),
}  # fmt: skip


def product(x: Array, y: Array, kind: type = jnp.float32) -> Array:
    """Of halves, summed in float32: a CPU's own would be summed as halves."""
    return jnp.matmul(half(x).astype(jnp.float32), half(y).astype(jnp.float32)).astype(kind)


def dot(x: Array, y: Array, trans_a: bool = False, trans_b: bool = False) -> Array:
    """The same, as kernels multiply."""
    return product(x.T if trans_a else x, y.T if trans_b else y)


def figures_of(name: str, products: str, kernels: bool) -> dict[str, NDArray[np.float64]]:
    """Of every seed at the end."""
    halves.for_training = lambda: products == "halves"
    kernel.available = lambda: kernels
    kernel.INTERPRET, kernel._dot = kernels, dot
    halves.product = product
    loop._program.cache_clear()
    seeds, steps, settings, _ = KINDS[name]
    agent = find_agent(name)
    config = make_config(agent, cost_limit=(20.0,), horizon=100.0, **settings)
    trainer = Trainer(agent, load(EMBEDDED / "ballrun.hdf5", "BallRun"), [Run(config, seed) for seed in range(seeds)])
    for _ in range(STAGES):
        means = trainer.advance(steps)
    return means


FIGURES = ("normalized_reward", "normalized_cost")


def played_rows(folders: dict[str, Path]) -> list[dict[str, Any]]:
    """Every run of every task, trained both ways."""
    return [
        {"products": way, "task": task.name, "cost_limit": run.cost_limit[0], "seed": run.seed,
         "episodes": len(run.episodes)} | {figure: round(getattr(run, figure), 6) for figure in FIGURES}
        for way, folder in folders.items()
        for task in sorted(folder.iterdir())
        for run in read_scores(task).runs
    ]  # fmt: skip


def compared(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Of each task, and of all, means ± their standard deviation over seeds, and how equal seeds differ [95 %]."""
    tasks = sorted({row["task"] for row in rows})
    seeds = sorted({row["seed"] for row in rows})

    def over_limits(way: str, task: str, figure: str) -> NDArray[np.float64]:
        own = [row for row in rows if (row["products"], row["task"]) == (way, task)]
        return np.array([np.mean([row[figure] for row in own if row["seed"] == seed]) for seed in seeds])

    table = []
    for name, some in [*((task, [task]) for task in tasks), ("all", tasks)]:
        line = [name]
        for figure in FIGURES:
            ways = [np.array([over_limits(way, task, figure) for task in some]) for way in ("TF32", "halves")]
            change = (ways[1] - ways[0]).ravel()
            line += [f"{way.mean():.2f} ± {way.mean(0).std(ddof=1):.2f}" for way in ways]
            found = measured(float(change.mean()), [change / len(change)], "trainings")
            line.append(f"{number(found.value)} {interval_words(found.interval())}")
        table.append(line)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agent", default="pdocrl", choices=list(KINDS))
    parser.add_argument("--kernels", action="store_true", help="with those for a GPU, interpreted")
    parser.add_argument("--played", type=Path, nargs=2, metavar=("TF32", "HALVES"))
    parser.add_argument("--out", type=Path, help="a CSV of every run that was played")
    given = parser.parse_args()
    if given.played:
        rows = played_rows(dict(zip(("TF32", "halves"), given.played, strict=True)))
        words = [f"{figure}, {what}" for figure in ("reward", "cost") for what in ("TF32", "halves", "change")]
        print_table(["task", *words], compared(rows))
        if given.out is not None:
            write_csv(given.out, rows)
        return
    name = given.agent
    exact, near = (figures_of(name, products, given.kernels) for products in ("float32", "halves"))
    rows = [
        [figure, f"{exact[figure].mean():.4g}", f"{near[figure].mean():.4g}", f"{exact[figure].std(ddof=1):.2g}"]
        for figure in KINDS[name][-1]
    ]
    print_table(["mean over seeds", "float32", "halves", "spread over seeds"], rows)


if __name__ == "__main__":
    main()

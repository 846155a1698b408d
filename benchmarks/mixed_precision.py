"""Does training in mixed precision learn what float32 learns?

    python benchmarks/mixed_precision.py --played TF32 HALVES --out mixed_precision.csv
    python benchmarks/mixed_precision.py --agent cpq --data FOLDER --out mixed_precision_small.csv
    python benchmarks/mixed_precision.py [--agent cdt] [--kernels]

The first compares two trainings on a GPU, the same but for PDOCRL_PRECISION=float32 and mixed: folders that hold a
training for each task (`bench_grid.py --keep`), each played by `pdocrl evaluate`. results/mixed_precision.csv has every
run of `pdocrl` on five tasks, trained for 50,000 steps on an H200, 20 episodes a run.

The second trains an agent on five tasks (FOLDER has one Safety<Task>-*.hdf5 each) in float32 and in mixed precision
with the same seeds, and plays both for 20 episodes a run. It is emulated on a CPU with a GPU's kernels interpreted,
with small networks: layers of 64, batches of 128, 6,000 steps; a VAE with layers of 48. `caps_sac` and `bcrl` serve the
limits 10, 20 and 40 with one training, others have limit 20. Rows of other agents and seeds in the CSV stay:
benchmarks/results/mixed_precision_small.csv has every run.

The third compares no behaviour but losses and values, emulated likewise: on the BallRun data that ships, limit 20, the
same seeds both ways. `pdocrl`: six seeds, 6,000 steps, layers of 64, batches of 128. `bcq_lag`, `bear_lag`, `cpq`: four
seeds, 3,000 steps, a VAE with layers of 48, which like the published one of 400 fits no kernel. `cdt`: three seeds,
1,600 steps, width 64, two blocks, batches of 64. Figures are means over the last quarter of the steps. With `--kernels`
those for a GPU are interpreted, and without, XLA does the products.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray
from small import TASKS

from pdocrl.agents.base import make_config
from pdocrl.agents.registry import find_agent
from pdocrl.console import print_table
from pdocrl.data.load import EMBEDDED, load, search
from pdocrl.data.tasks import find_task
from pdocrl.evaluation.evaluate import evaluate, read_scores
from pdocrl.evaluation.intervals import interval_words, measured, number
from pdocrl.files import read_csv, write_csv
from pdocrl.nn import pallas_mlp, precision
from pdocrl.nn.pallas_mlp import to_float16
from pdocrl.training import trainer as loop
from pdocrl.training.train import train
from pdocrl.training.trainer import Run, Trainer

STAGES = 4
NETWORKS: dict[str, Any] = {"hidden": (64, 64), "batch_size": 128}
CRITICS = NETWORKS | {"vae_hidden": (48, 48), "samples": 4}
# seeds, steps of a stage, settings, figures
KINDS: dict[str, tuple[int, int, dict[str, Any], Sequence[str]]] = {
    "pdocrl": (6, 1500, NETWORKS, ("critic_loss", "actor_loss", "q", "w", "lambda", "weighted_cost")),
    **dict.fromkeys(("bcq_lag", "bear_lag", "cpq"), (4, 750, CRITICS, ("critic_loss", "vae_loss", "q", "q_cost"))),
    "cdt": (
        3,
        400,
        {"embedding": 64, "layers": 2, "heads": 4, "batch_size": 64, "learning_rate": 1e-3},
        ("actor_loss", "log_likelihood", "entropy", "cost_cross_entropy", "temperature"),
    ),
}


def product(x: Array, y: Array, kind: type = jnp.float32) -> Array:
    """Of float16, summed in float32: a CPU's own would be summed in float16."""
    return jnp.matmul(to_float16(x).astype(jnp.float32), to_float16(y).astype(jnp.float32)).astype(kind)


def dot(x: Array, y: Array, trans_a: bool = False, trans_b: bool = False) -> Array:
    """The same, as kernels multiply."""
    return product(x.T if trans_a else x, y.T if trans_b else y)


def emulate(products: str, kernels: bool) -> None:
    """Have this CPU learn as a GPU does, in mixed precision or not."""
    precision.for_training = lambda: products == "mixed"
    pallas_mlp.available = lambda: kernels
    pallas_mlp.INTERPRET, pallas_mlp._dot = kernels, dot
    precision.product = product
    loop._program.cache_clear()


def figures_of(name: str, products: str, kernels: bool) -> dict[str, NDArray[np.float64]]:
    """Of every seed at the end."""
    emulate(products, kernels)
    seeds, steps, settings, _ = KINDS[name]
    agent = find_agent(name)
    config = make_config(agent, cost_limit=(20.0,), horizon=100.0, **settings)
    trainer = Trainer(agent, load(EMBEDDED / "ballrun.hdf5", "BallRun"), [Run(config, seed) for seed in range(seeds)])
    for _ in range(STAGES):
        means = trainer.advance(steps)
    return means


FIGURES = ("normalized_reward", "normalized_cost")
STEPS = 6000
SMALL: dict[str, tuple[dict[str, Any], list[float]]] = {  # settings, limits
    **dict.fromkeys(("bcq_lag", "bear_lag", "cpq"), (CRITICS, [20.0])),
    "caps_sac": (NETWORKS, [10.0, 20.0, 40.0]),
    "bcrl": (NETWORKS | {"decay": float(STEPS)}, [10.0, 20.0, 40.0]),
}


def played_rows(folders: dict[str, Path]) -> list[dict[str, Any]]:
    """Every run of every task, trained both ways."""
    return [
        {"products": way, "task": task.name} | row
        for way, folder in folders.items()
        for task in sorted(folder.iterdir())
        for row in rows_of(task)
    ]


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Every run of a training that was played."""
    return [
        {"cost_limit": run.cost_limit[0], "seed": run.seed, "episodes": len(run.episodes)}
        | {figure: round(getattr(run, figure), 6) for figure in FIGURES}
        for run in read_scores(folder).runs
    ]


def small_rows(name: str, data: Path, seeds: range) -> list[dict[str, Any]]:
    """Trained and played here, on five tasks both ways."""
    settings, limits = SMALL[name]
    rows = []
    for task in TASKS:
        for way in ("float32", "mixed"):
            emulate(way, kernels=True)
            with tempfile.TemporaryDirectory() as folder:
                train(
                    search(find_task(task), [data]),
                    name,
                    task=task,
                    cost_limit=limits,
                    seed=seeds,
                    steps=STEPS,
                    settings=settings,
                    out=folder,
                )
                evaluate(folder, 20)
                rows += [{"agent": name, "products": way, "task": task} | row for row in rows_of(Path(folder))]
        show(rows)
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    """Of each task, and of all, means ± their standard deviation over seeds, and how equal seeds differ [95 %]."""
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    both = list(dict.fromkeys(row["products"] for row in rows))
    seeds = sorted({row["seed"] for row in rows})

    def over_limits(way: str, task: str, figure: str) -> NDArray[np.float64]:
        own = [row for row in rows if (row["products"], row["task"]) == (way, task)]
        return np.array([np.mean([row[figure] for row in own if row["seed"] == seed]) for seed in seeds])

    table = []
    for name, some in [*((task, [task]) for task in tasks), ("all", tasks)]:
        line = [name]
        for figure in FIGURES:
            ways = [np.array([over_limits(way, task, figure) for task in some]) for way in both]
            change = (ways[1] - ways[0]).ravel()
            line += [f"{way.mean():.2f} ± {way.mean(0).std(ddof=1):.2f}" for way in ways]
            found = measured(float(change.mean()), [change / len(change)], "trainings")
            line.append(f"{number(found.value)} {interval_words(found.interval())}")
        table.append(line)
    print_table(["task", *(f"{figure}, {what}" for figure in ("reward", "cost") for what in (*both, "change"))], table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agent", default="pdocrl", choices=sorted({*KINDS, *SMALL}))
    parser.add_argument("--data", type=Path, help="a folder of datasets, to train and play on five tasks")
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 5), metavar=("FIRST", "END"), help="of five tasks")
    parser.add_argument("--kernels", action="store_true", help="with those for a GPU, interpreted")
    parser.add_argument("--played", type=Path, nargs=2, metavar=("TF32", "HALVES"))
    parser.add_argument("--out", type=Path, help="a CSV of every run that was played")
    given = parser.parse_args()
    if given.played:
        rows = played_rows(dict(zip(("TF32", "mixed"), given.played, strict=True)))
        show(rows)
        if given.out is not None:
            write_csv(given.out, rows)
        return
    name = given.agent
    if given.data:
        if name not in SMALL:
            parser.error(f"--data is for {', '.join(SMALL)}")
        rows = small_rows(name, given.data, range(*given.seeds))
        if given.out is not None:
            new = {(row["agent"], row["seed"]) for row in rows}
            former = read_csv(given.out) if given.out.exists() else []
            write_csv(given.out, [row for row in former if (row["agent"], row["seed"]) not in new] + rows)
        return
    if name not in KINDS:
        parser.error(f"{name} is for --data")
    exact, near = (figures_of(name, products, given.kernels) for products in ("float32", "mixed"))
    rows = [
        [figure, f"{exact[figure].mean():.4g}", f"{near[figure].mean():.4g}", f"{exact[figure].std(ddof=1):.2g}"]
        for figure in KINDS[name][-1]
    ]
    print_table(["mean over seeds", "float32", "mixed", "spread over seeds"], rows)


if __name__ == "__main__":
    main()

"""What a training step is on an H200: its kernels and the bytes they move, compiled here for that card without one.

    JAX_PLATFORMS=cpu python benchmarks/bench_kernels.py --runs 72 --out kernels.csv
    JAX_PLATFORMS=cpu python benchmarks/bench_kernels.py --agents cpq bcq_lag bear_lag --runs 9 --shape 7 2

Needs jax-cuda12-plugin and jax-cuda12-pjrt of JAX's version and nvidia-cuda-nvcc-cu12 beside JAX; no GPU. Counted are
the launches in the loop's body after all of XLA's passes, and the sizes of what each reads and writes. Bytes over the
4.3 TB/s that a copy reaches on the card are the least a step can take; what stays in the cache makes it less, products
and launches make it more. XLA tries no alternatives here (autotuning needs a card), so single kernels may differ there.
benchmarks/results/kernels.csv holds `pdocrl` with 72 runs, as the paper's grid has them; kernels_agents.csv others at
BallRun's shape with the trainings that nine runs need, before (commit 26f01d6) and after they were made to do less, and
in mixed precision since a step keeps those of its weights.
"""

from __future__ import annotations

import argparse
import math
import os
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from bench_agents_cpu import random_data
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from pdocrl.agents.base import make_config
from pdocrl.agents.registry import find_agent
from pdocrl.console import print_table
from pdocrl.files import write_csv
from pdocrl.nn import pallas_mlp, precision
from pdocrl.training import trainer as loop
from pdocrl.training.trainer import Run, Trainer

H200 = """gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128 block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
  block_dim_limit_z: 65535 memory_bandwidth: 4800000000000 l2_cache_size: 62914560 clock_rate_ghz: 1.98
  device_memory_size: 150000000000 shared_memory_per_block_optin: 232448 cuda_compute_capability { major: 9 minor: 0 }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536 }
platform_name: "CUDA" dnn_version_info { major: 9 minor: 8 } runtime_version { major: 12 minor: 9 }
device_description_str: "NVIDIA H200"
"""
COPY = 4.3e12  # bytes a second, read and written, by a copy on an H200
BYTES = {"f32": 4, "f16": 2, "bf16": 2, "s32": 4, "u32": 4, "pred": 1, "u8": 1, "s8": 1, "u64": 8, "s64": 8}
ARRAY = re.compile(rf"({'|'.join(BYTES)})\[([0-9,]*)\]")
INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (\([^=]*?\)|\S+) ([\w\-]+)\((.*?)\)(?:, |$)")
NO_LAUNCH = {"parameter", "get-tuple-element", "tuple", "bitcast", "constant", "while"}


def compiled(name: str, runs: int, shape: tuple[int, int]) -> str:
    """The program of one agent for an H200, as text, for observations and actions of so many columns."""
    target = topologies.get_topology_desc("1x1x1", "cuda", target_config=H200, topology="1x1x1")
    place = SingleDeviceSharding(target.devices[0])
    agent = find_agent(name)
    config = make_config(agent, cost_limit=(10.0,), horizon=100.0)
    trainer = Trainer(agent, random_data(2000, *shape), [Run(config, 0)])

    def one(x: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(np.shape(x), jnp.asarray(x).dtype, sharding=place)

    def many(x: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((runs, *np.shape(x)[1:]), jnp.asarray(x).dtype, sharding=place)

    wide = [jax.tree.map(many, x) for x in (trainer._sizes, trainer.configs, trainer.seeds, trainer.state)]
    loop._program.cache_clear()
    program = loop._program(agent, False, loop.BLOCK)
    lowered = program.lower(jax.tree.map(one, trainer._table), None, *wide, one(np.int32(0)), one(np.int32(1)))
    return str(lowered.compile().as_text())


def pretend_a_card() -> None:
    """Pallas of JAX 0.11 asks the card for its kind, even where it only compiles, and so do we."""
    pallas_mlp.is_hopper = lambda: True
    try:
        from jax._src.pallas.triton import gpu_info
    except ImportError:
        return
    kind = gpu_info.GpuInfo(gpu_version=None, arch_name="9.0", compute_capability=90)
    gpu_info.get_gpu_info = lambda: kind


def sizes(shape: str) -> list[int]:
    """Bytes of each array of a shape; a product's workspace is none."""
    found = ARRAY.findall(re.sub(r"s8\[\d+\]", "", shape))
    return [BYTES[kind] * math.prod(int(n) for n in dims.split(",") if n) for kind, dims in found]


def launches(text: str) -> list[int]:
    """Bytes read and written by each kernel of the computation that launches most: the body of the loop."""
    bodies: list[list[tuple[str, str, str, str]]] = [[]]
    for line in re.sub(r"/\*.*?\*/", "", text).splitlines():
        if line.startswith(("%", "ENTRY")):
            bodies.append([])
        elif found := INSTRUCTION.match(line):
            bodies[-1].append(found.groups())
    body = max(bodies, key=lambda rows: sum(operation in ("fusion", "custom-call") for _, _, operation, _ in rows))
    shapes = {name: sizes(shape) for name, shape, _, _ in body}

    def read(operands: str) -> int:
        parts = re.findall(r"%([\w.\-]+)(?:#(\d+))?", operands)
        return sum(shapes[name][int(i)] if i else sum(shapes[name]) for name, i in parts if name in shapes)

    return [read(given) + sum(sizes(shape)) for _, shape, operation, given in body if operation not in NO_LAUNCH]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", nargs="+", default=["pdocrl"])
    parser.add_argument("--runs", nargs="+", type=int, default=[72])
    parser.add_argument("--shape", nargs=2, type=int, default=(34, 8), help="columns of observations, of actions")
    parser.add_argument("--code", default="", help="a name for the code that is counted, a column of the table")
    parser.add_argument("--out", type=Path, help="a CSV of the table")
    arguments = parser.parse_args()
    pretend_a_card()
    rows: list[dict[str, Any]] = []
    for name in arguments.agents:
        for runs in arguments.runs:
            for way in ("float32", "mixed"):
                precision.for_values = lambda: True  # as on a GPU
                os.environ["PDOCRL_PRECISION"] = way
                moved = launches(compiled(name, runs, tuple(arguments.shape)))
                about = {"agent": name, "code": arguments.code} if arguments.code else {"agent": name}
                rows.append(
                    {
                        **about,
                        "runs": runs,
                        "products": way,
                        "kernels": len(moved),
                        "GB_per_step": round(sum(moved) / 1e9, 2),
                        "least_ms_per_step": round(1e3 * sum(moved) / COPY, 2),
                    }
                )
                print_table(list(rows[0]), [list(row.values()) for row in rows])
                if arguments.out is not None:
                    write_csv(arguments.out, rows)


if __name__ == "__main__":
    main()

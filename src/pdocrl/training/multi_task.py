"""Trainings of one agent on several tasks as one compiled program, so that a GPU is kept busy by all of them at once.

Tasks differ in the lengths of their observations and actions. The rows of all tasks lie in one table, zero-padded
to the widest; so are the networks, whose added parts see zeros and stay zero (`Agent.zero_padded`). Each run draws
from its own task's rows. Its mathematics is that of a training alone; its random actions are other draws.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from pdocrl.agents.base import DeviceTable, Problem
from pdocrl.errors import PdocrlError
from pdocrl.nn.mlp import zero_padded
from pdocrl.policies.policy import NormalisedPolicy
from pdocrl.training.trainer import Trainer


def can_join(trainers: Sequence[Trainer]) -> bool:
    """Whether they are of one agent with one program, hold their data on the device, and may be filled up."""
    alike = {(trainer.agent.name, jax.tree.structure(trainer.configs), trainer.step) for trainer in trainers}
    costs = {trainer.problem.n_costs for trainer in trainers}
    return len(alike) == len(costs) == 1 and all(map(_fits, trainers))


def _fits(trainer: Trainer) -> bool:
    same = trainer.problem
    return (
        trainer._buffers is None
        and trainer.agent.zero_padded(trainer.runs[0].config, trainer.blank(), same, same) is not None
    )


class MultiTaskTrainer(Trainer):
    """Several trainers as one. They stay as they were until `hand_back`."""

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        if not can_join(trainers):
            names = ", ".join(sorted({trainer.agent.name for trainer in trainers}))
            raise PdocrlError(f"trainings of {names} cannot be joined into one program; train them one by one.")
        first = trainers[0]
        self.parts = tuple(trainers)
        self.agent, self.runs = first.agent, tuple(run for t in trainers for run in t.runs)
        before = np.cumsum([0, *(len(t.seeds) for t in trainers)])[:-1]
        self.training = np.concatenate([t.training + n for t, n in zip(trainers, before, strict=True)])
        self.configs = _joined([t.configs for t in trainers])
        self.seeds = np.concatenate([t.seeds for t in trainers])
        self.problem = dataclasses.replace(
            first.problem,
            obs_dim=max(t.problem.obs_dim for t in trainers),
            action_dim=max(t.problem.action_dim for t in trainers),
        )
        self.step = first.step
        runs = np.cumsum([0, *(len(t.runs) for t in trainers)])[:-1].tolist()
        self.failures = {n + run: why for n, t in zip(runs, trainers, strict=True) for run, why in t.failures.items()}
        self._on_cpu, self._blocks = first._on_cpu, first._blocks
        self._buffers, self._buffer = None, -1
        tables = [t._table for t in trainers if t._table is not None]
        self._table = jax.eval_shape(joined_tables, tables)  # shapes, for the compiler
        self._rows, self._sizes = _rows_of(trainers)
        compile_it = self.compiler()
        with ThreadPoolExecutor() as pool:  # the program takes longest, and each task compiles its own first states
            compiled, joined = pool.submit(compile_it), pool.submit(joined_tables, tables)
            self.state = _joined(list(pool.map(self._first_state, trainers)))
            self._table = joined.result()
            compiled.result()

    def _first_state(self, part: Trainer) -> Any:
        return self._resized(part, jax.device_get(part.state), part.problem, self.problem)

    def hand_back(self) -> None:
        """Give every trainer the state its runs have reached."""
        whole, runs, trainings = jax.device_get(self.state), 0, 0
        for part in self.parts:
            own = slice(trainings, trainings + len(part.seeds))
            state = jax.tree.map(lambda leaf, own=own: leaf[own], whole)
            part.state = self._resized(part, state, self.problem, part.problem)
            part.step = self.step
            numbers = range(runs, runs + len(part.runs))
            part.failures = {run - runs: self.failures[run] for run in numbers if run in self.failures}
            runs, trainings = runs + len(part.runs), trainings + len(part.seeds)

    def policies(self) -> list[NormalisedPolicy]:
        self.hand_back()
        return [policy for part in self.parts for policy in part.policies()]

    def _resized(self, part: Trainer, state: Any, here: Problem, there: Problem) -> Any:
        return self.agent.zero_padded(part.runs[0].config, state, here, there)


def joined_tables(tables: Sequence[DeviceTable]) -> DeviceTable:
    """The rows of all tables, one after another; every column as wide as its widest."""
    columns = list(zip(*(table.layout for table in tables), strict=True))  # per column, its (name, shape) in each table
    widest = [max((shape for _, shape in column), key=math.prod) for column in columns]
    layout = tuple((column[0][0], shape) for column, shape in zip(columns, widest, strict=True))
    parts = tuple(
        tuple((math.prod(c[number][1]), math.prod(wide)) for c, wide in zip(columns, widest, strict=True))
        for number in range(len(tables))
    )
    starts = np.zeros((1, *widest[0]), np.float32)  # of no task: nothing that learns here asks for first states
    packed = _below_one_another([table.packed for table in tables], parts)
    return DeviceTable(packed, {"initial_obs": jnp.asarray(starts)}, layout)


@functools.partial(jax.jit, static_argnums=1)
def _below_one_another(tables: Sequence[Array], parts: Sequence[Sequence[tuple[int, int]]]) -> Array:
    """Tables whose columns are parts, each (width here, width there), filled up to the width there."""
    return jnp.concatenate([zero_padded(table, 1, own, jnp) for table, own in zip(tables, parts, strict=True)])


def _rows_of(trainers: Sequence[Trainer]) -> tuple[Array, Array]:
    """Of every run the rows of the joined table it draws from [R, longest], and how many they are [R]."""
    own, before = [], 0
    for trainer in trainers:
        for run, size in enumerate(np.asarray(trainer._sizes).tolist()):
            rows = np.arange(size) if trainer._rows is None else np.asarray(trainer._rows[run, :size])
            own.append((before + rows).astype(np.int32))
        before += len(trainer._table or ())
    padded = np.zeros((len(own), max(map(len, own))), np.int32)
    for run, rows in enumerate(own):
        padded[run, : len(rows)] = rows
    return jnp.asarray(padded), jnp.asarray([len(rows) for rows in own], jnp.int32)


def _joined(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.asarray(np.concatenate(leaves)), *trees)

"""The one training loop: every run of a call, side by side, in one compiled program.

    for step in start … stop:   rows ~ Uniform → batch → agent.update          (compiled, on the device)
    every few seconds:          metrics, progress, checkpoint, evaluation      (here, in Python)

A step's randomness depends only on the run's seed and the step's number, and the program is the same for any number of
steps. So a training that was stopped and resumed goes through the same bits as one that was not.

Networks see each column of the observations with mean 0 and standard deviation 1 over the whole data: (s − mean) / std;
a column that never changes tells nothing and is ignored (0). Done here, once, for every agent: none of them knows the
world's units, and the policies they return are put into these units again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from pdocrl.agents.base import Agent, AgentConfig, DeviceTable, Problem
from pdocrl.agents.registry import agents_for_discrete_actions
from pdocrl.data.dataset import Dataset
from pdocrl.data.validate import finite_actions, only_0_and_1
from pdocrl.errors import PdocrlError
from pdocrl.nn import precision
from pdocrl.policies.policy import NormalisedPolicy, Normaliser, with_normaliser
from pdocrl.training.buffer import Buffer
from pdocrl.training.per_core import run_per_core, stack, unstack


def normaliser_of(dataset: Dataset) -> Normaliser:
    """Between the world's numbers and a network's."""
    mean, std = dataset.obs_moments
    scale = np.divide(1.0, std, out=np.zeros_like(std), where=dataset.obs_varies)
    low, high = np.asarray(dataset.action_bounds, np.float32)
    discrete_actions = np.asarray(dataset.discrete_actions, np.int64)
    return Normaliser(mean.astype(np.float32), scale.astype(np.float32), low, high, discrete_actions)


def normalise_obs(dataset: Dataset, normaliser: Normaliser) -> Dataset:
    """The same data with observations as networks see them."""
    seen = {"obs": normaliser.normalise_obs(dataset.obs), "next_obs": normaliser.normalise_obs(dataset.next_obs)}
    if isinstance(dataset, Buffer):
        seen["starts"] = normaliser.normalise_obs(dataset.starts)
    return dataclasses.replace(dataset, **seen)  # type: ignore[arg-type]


def warm_up() -> None:
    """Have JAX start its device, and its compiler, in a thread, while data are read. A GPU's need seconds.

    No daemon: an interpreter that ends meanwhile, of bad data, waits for it. Killed on the way, it would take the
    process with it.
    """

    def start() -> None:
        with contextlib.suppress(Exception):  # who asks next is told
            _at_once()

    threading.Thread(target=start).start()


SECONDS_PER_CALL = 1.0  # how long the device works before Python looks: progress, Ctrl-C
BLOCK = 50  # steps an accelerator takes without asking the host
AT_ONCE: dict[str, str | bool] = {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"}  # see `_at_once`


@dataclasses.dataclass(frozen=True)
class Run:
    """One policy to train: the agent's config (with its cost limit) and a seed."""

    config: AgentConfig
    seed: int
    limits: tuple[str, ...] = ()  # limits that also hold tails, in place of the config's on means


@dataclasses.dataclass
class StageMetrics:
    """What the trainer hands over at every stop: the step, and the mean metrics over the steps since the last stop."""

    step: int
    steps: int  # since the last stop
    metrics: dict[str, NDArray[np.float64]]  # [R] each; NaN for a run that has stopped
    steps_per_second: float


class Trainer:
    """R runs of one agent on one dataset (or the windows over one): their states, advanced together.

    Runs that differ only in a cost limit which the agent does not train with share one training. The agent sees
    standardised observations and unit actions; `scales` lies between them and the world's.
    """

    _whole: Any = None  # the state; None before somebody asks for it, or where it lies in
    _unstacked: Sequence[Any] = ()  # one state a training

    def __init__(self, agent: Agent[Any, Any], dataset: Dataset, runs: Sequence[Run]) -> None:
        check_runs(agent, dataset, runs)
        self.agent, self.runs = agent, tuple(runs)
        own, self.training = trainings(agent, runs)  # [T], and which of them is each run's, [R]
        self.configs = _stack([run.config for run in own])
        self.seeds = np.asarray([run.seed for run in own], np.uint32)
        self.normaliser, self.columns = normaliser_of(dataset), dataset.obs_names
        self.cost_names = dataset.cost_names
        seen = normalise_obs(dataset, self.normaliser)
        self.problem = agent.problem(seen)
        self.step = 0
        self.failures: dict[int, str] = {}  # run → "step 1234: critic_loss is nan"
        self._on_cpu = jax.default_backend() == "cpu"
        self._blocks = (1,) if self._on_cpu else (BLOCK, 1)
        self._buffers = dataset.buffers if isinstance(dataset, Buffer) else None
        self._buffer = -1  # the number of the window on the device
        self._made: tuple[int, list[NormalisedPolicy]] | None = None  # a step and its policies
        self._table = None if self._buffers else DeviceTable.of(agent.columns(runs[0].config, seen))
        everything = self._buffers.size if self._buffers else len(self._table or ())
        self._rows, self._sizes = _row_table([agent.rows(run.config, seen) for run in own], everything)
        self._form()  # an agent refuses its settings here, not at the first step

    @property
    def state(self) -> Any:
        """Of all trainings, each array [T, …]; on a CPU they go apart and are joined where somebody asks."""
        if self._whole is None and self._unstacked:
            self._whole = stack(self._unstacked)
        elif self._whole is None:
            self.state = _initial(self.agent, self.problem)(self.configs, self.seeds)
        return self._whole

    @state.setter
    def state(self, whole: Any) -> None:
        self._whole, self._unstacked = whole, unstack(whole, len(self.seeds)) if self._on_cpu else ()

    def blank(self) -> Any:
        """A state of zeros, of the form the first one has."""
        return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), self._form())

    def _form(self) -> Any:
        """Shapes and kinds of a state's arrays."""
        return jax.eval_shape(_initial(self.agent, self.problem), self.configs, self.seeds)

    def compiler(self) -> Callable[[], Any]:
        """Trace an accelerator's program, for which shapes are enough. What is returned compiles it, in any thread.

        Tracing is Python's work, of which one thread goes at a time; compiling is XLA's. JAX remembers both.
        """
        if self._on_cpu or self._table is None:
            return lambda: None
        program: Any = _program(self.agent, False, self.block)
        traced = program.lower(self._table, *self._about, self._form(), jnp.int32(0), jnp.int32(0))
        return lambda: traced.compile()

    @property
    def _about(self) -> tuple[Any, ...]:
        """What a program is told of the trainings beside their state."""
        return self._rows, self._sizes, self.configs, self.seeds

    @property
    def block(self) -> int:
        """Steps the device takes without asking the host."""
        return self._blocks[0]

    def advance(self, steps: int) -> dict[str, NDArray[np.float64]]:
        """Train every living run for `steps` steps; the mean of each metric over them, [R], NaN where a run failed."""
        sums: dict[str, NDArray[np.float64]] = {}
        end = self.step + steps
        while self.step < end:
            left = min(end, self._open_buffer(end)) - self.step
            for block in self._blocks:
                blocks, left = divmod(left, block)
                if blocks:
                    for name, total in self._advance(block, blocks).items():
                        sums[name] = sums.get(name, 0.0) + total
        means = {name: total[self.training] / steps for name, total in sums.items()}
        for mean in means.values():
            mean[[*self.failures]] = np.nan
        return means

    def _open_buffer(self, end: int) -> int:
        """Have the window of the coming step on the device; the step at which the next one is due (`end`: never)."""
        if self._buffers is None:
            return end
        number = self.step // self._buffers.every
        if number != self._buffer:
            self._table = None  # before the next one comes: the device need not hold both
            buffer = normalise_obs(self._buffers.read(number), self.normaliser)
            self._table = DeviceTable.of(self.agent.columns(self.runs[0].config, buffer))
            self._buffer = number
        return (number + 1) * self._buffers.every

    def _advance(self, block: int, blocks: int) -> dict[str, NDArray[np.float64]]:
        program = _program(self.agent, self._on_cpu, block)
        if self._on_cpu:
            abouts, before = (
                unstack(self._about, len(self.seeds)),
                self._unstacked or unstack(self.state, len(self.seeds)),
            )
            states, sums, bad = run_per_core(program, self._table, abouts, before, self.step, blocks)
        else:
            state, *figures = program(self._table, *self._about, self.state, jnp.int32(self.step), jnp.int32(blocks))
            sums, bad = jax.device_get(figures)  # all at once: the device waits for the next call meanwhile
        for i, training in enumerate(self.training):
            first = {name: int(steps[training]) for name, steps in bad.items() if steps[training] >= 0}
            if first and i not in self.failures:
                name = min(first, key=lambda n: first[n])
                self.failures[i] = f"step {first[name] + 1}: {name} is not finite"
        # A failed run keeps the last state that was whole; the others go on.
        failed = np.isin(np.arange(len(self.seeds)), self.training[[*self.failures]])
        if self._on_cpu:
            kept = [old if over else new for over, old, new in zip(failed, before, states, strict=True)]
            self._whole, self._unstacked = None, kept
        else:
            self.state = _choose(jnp.asarray(failed), self.state, state) if failed.any() else state
        self.step += block * blocks
        return {name: np.asarray(total, np.float64) for name, total in sums.items()}

    def train(
        self, until: int, next_stop: Callable[[int], int], should_stop: Callable[[], bool] = lambda: False
    ) -> Iterator[StageMetrics]:
        """Advance to step `until`, yielding wherever `next_stop` of the present step says, and at the end.

        `should_stop` is asked every second or so, and ends the training where it then is.
        """
        chunk = self._blocks[0]
        while self.step < until:
            boundary = min(until, next_stop(self.step))
            first, began, totals = self.step, time.perf_counter(), None
            while self.step < boundary and not should_stop():
                call = time.perf_counter()
                steps = min(chunk, boundary - self.step)
                means = self.advance(steps)
                weighted = {name: value * steps for name, value in means.items()}
                totals = weighted if totals is None else {n: totals[n] + v for n, v in weighted.items()}
                seconds = time.perf_counter() - call
                if steps == chunk or seconds > SECONDS_PER_CALL:  # not where a boundary cut it short
                    wanted = np.clip(steps * SECONDS_PER_CALL / max(seconds, 1e-9), 1, 4 * steps)
                    chunk = max(1, int(wanted) // self._blocks[0]) * self._blocks[0]  # whole blocks: one program
                if len(self.failures) == len(self.runs):
                    break
            done = self.step - first
            if totals is not None:
                rate = done / (time.perf_counter() - began)
                yield StageMetrics(self.step, done, {name: value / done for name, value in totals.items()}, rate)
            if self.step < boundary:
                return

    def policies(self) -> list[NormalisedPolicy]:
        """The current policy of each run, in the world's units; made once for a step."""
        if self._made is None or self._made[0] != self.step:
            self._made = self.step, self._make_policies()
        return self._made[1]

    def _make_policies(self) -> list[NormalisedPolicy]:
        leaves, structure = jax.tree.flatten(jax.tree.map(np.asarray, self.state))
        made: dict[int, Any] = {}  # training → a policy that serves every limit
        networks = []
        for run, training in zip(self.runs, self.training, strict=True):
            network: Any = made.get(training)
            if network is None:
                state = jax.tree.unflatten(structure, [leaf[training] for leaf in leaves])
                network = self.agent.policy(run.config, state)
                if getattr(network, "cost_names", None) == ():
                    network = dataclasses.replace(network, cost_names=self.cost_names)
                if hasattr(network, "with_limit"):
                    made[training] = network
            elif not run.limits:
                network = network.with_limit(run.config.cost_limit)
            networks.append(network.with_limit(list(run.limits)) if run.limits else network)
        return [
            with_normaliser(network, self.normaliser, self.columns, tuple(run.config.cost_limit))
            for network, run in zip(networks, self.runs, strict=True)
        ]


def multiples(every: int) -> Callable[[int], int]:
    """The next multiple of `every` after a step."""
    return lambda step: (step // every + 1) * every


def trainings(agent: Agent[Any, Any], runs: Sequence[Run]) -> tuple[list[Run], NDArray[np.int64]]:
    """One run for each training that is needed, and the number of each run's training, [R]."""
    shared: dict[Any, int] = {}
    own: list[Run] = []
    training: list[int] = []
    says = "ignores_limit" in vars(type(agent))  # of itself, not by the agent it is made of
    for run in runs:
        number = len(own)
        if says and agent.ignores_limit(run.config):
            others = [field.name for field in dataclasses.fields(run.config) if field.name != "cost_limit"]
            number = shared.setdefault((run.seed, *(getattr(run.config, name) for name in others)), number)
        if number == len(own):
            own.append(run)
        training.append(number)
    return own, np.asarray(training)


def blank_state(agent: Agent[Any, Any], problem: Problem, runs: Sequence[Run]) -> Any:
    """Shapes and kinds of the arrays of a state of these trainings."""
    seeds = np.asarray([run.seed for run in runs], np.uint32)
    return jax.eval_shape(_initial(agent, problem), _stack([run.config for run in runs]), seeds)


@lru_cache(maxsize=64)
def _initial(agent: Agent[Any, Any], problem: Problem) -> Callable[[Any, Any], Any]:
    """The compiled program of first states: (configs, seeds) → states."""

    def init(config: AgentConfig, seed: Array) -> Any:
        return agent.init(config, problem, jax.random.fold_in(jax.random.key(seed), 0))

    return jax.jit(jax.vmap(init))


def check_runs(agent: Agent[Any, Any], dataset: Dataset, runs: Sequence[Run]) -> None:
    """Refuse what cannot work, before anything is compiled."""
    if not runs:
        raise PdocrlError("no runs: give at least one cost limit and one seed.")
    check_data(agent, dataset)
    for run in runs:
        if len(run.config.cost_limit) != dataset.n_costs:
            given, names = len(run.config.cost_limit), ", ".join(dataset.cost_names) or "none"
            raise PdocrlError(f"{given} cost limit(s) given, {dataset.name} has {dataset.n_costs} cost(s): {names}.")


def check_data(agent: Agent[Any, Any], dataset: Dataset) -> None:
    """Refuse data an agent cannot learn from."""
    if dataset.n_costs < agent.fewest_costs:
        raise PdocrlError(f"{agent.name} needs {agent.needs}; {dataset.name} has {dataset.n_costs}.")
    if agent.most_costs is not None and dataset.n_costs > agent.most_costs:
        raise PdocrlError(
            f"{agent.name} takes at most {agent.most_costs} cost(s); {dataset.name} has {dataset.n_costs}."
        )
    if dataset.discrete_actions and not agent.discrete_actions:
        known = ", ".join(agents_for_discrete_actions())
        raise PdocrlError(
            f"{dataset.name}: its {len(dataset.discrete_actions)} actions are discrete, {agent.name} is for continuous "
            f"actions. Agents for discrete actions: {known}."
        )
    if not dataset.discrete_actions and finite_actions(dataset.action):
        raise PdocrlError(f"{dataset.name}: `action` {only_0_and_1()}")


@lru_cache(maxsize=64)  # more than there are agents: a tour of all of them compiles each once
def _program(agent: Agent[Any, Any], on_cpu: bool, block: int) -> Callable[..., Any]:
    """The compiled program: (data, configs, states, from step, blocks) → states, sums of metrics, first bad steps.

    On an accelerator all runs take each step together (vmap), in blocks of fixed length whose random numbers are drawn
    at once: the host is not asked after every step, and there are fewer small kernels. On a CPU it is
    called for one run at a time (`in_turns`), so a run's bits do not depend on its company.
    """

    def over_runs(function: Callable[..., Any], *arguments: Any) -> Any:
        return jax.lax.map(lambda a: function(*a), arguments) if on_cpu else jax.vmap(function)(*arguments)

    def program(
        table: DeviceTable,
        rows: Any,
        sizes: Array,
        configs: Any,
        seeds: Array,
        states: Any,
        start: Array,
        blocks: Array,
    ) -> Any:
        def one_run(rows: Any, size: Array, config: Any, seed: Array, state: Any) -> Any:
            key = jax.random.fold_in(jax.random.key(seed), 1)

            def draw(number: Array) -> tuple[Array, Array, Array]:
                row_key, batch_key, update_key = jax.random.split(jax.random.fold_in(key, number), 3)
                index = jax.random.randint(row_key, (config.batch_size,), 0, size)
                return index if rows is None else rows[index], batch_key, update_key

            @partial(jax.jit, inline=True)  # traced once, though asked twice
            def step(state: Any, drawn: tuple[Array, Array, Array]) -> Any:
                index, batch_key, update_key = drawn
                with precision.training(agent.mixed_precision):
                    return agent.update(config, state, agent.batch(config, table, index, batch_key), update_key)

            def body(carry: Any, numbered: Any) -> Any:
                number, drawn = numbered
                state, sums, bad = carry
                state, metrics = step(state, drawn)
                sums = {name: sums[name] + value for name, value in metrics.items()}
                bad = {
                    name: jnp.where((bad[name] < 0) & ~jnp.isfinite(value), number, bad[name])
                    for name, value in metrics.items()
                }
                return (state, sums, bad), None

            def one_block(i: Array, carry: Any) -> Any:
                numbers = start + i * block + jnp.arange(block)
                if block == 1:  # a loop within the loop would copy the state at every step
                    return body(carry, (numbers[0], draw(numbers[0])))[0]
                return jax.lax.scan(body, carry, (numbers, jax.vmap(draw)(numbers)))[0]

            names = jax.eval_shape(step, state, jax.eval_shape(draw, start))[1]
            zero = {name: jnp.zeros(()) for name in names}
            none = {name: jnp.int32(-1) for name in names}
            state, sums, bad = jax.lax.fori_loop(0, blocks, one_block, (state, zero, none))
            return state, sums, bad

        return over_runs(one_run, rows, sizes, configs, seeds, states)

    return jax.jit(program, compiler_options=_at_once())


@lru_cache
def _at_once() -> dict[str, str | bool] | None:
    """XLA's options by which kernels that need not wait for one another share a GPU; None where XLA has none such."""
    if jax.default_backend() != "gpu":
        return None
    try:
        jax.jit(lambda x: x, compiler_options=AT_ONCE).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:
        return None
    return AT_ONCE


def _stack(configs: Sequence[AgentConfig]) -> Any:
    """One config whose leaves are [R] arrays. Static fields must agree, because they make the program."""
    structures = {jax.tree.structure(config) for config in configs}
    if len(structures) > 1:
        raise PdocrlError(
            "runs of one call must share the settings that change the program (batch size, layers, options)."
        )
    return jax.tree.map(lambda *leaves: jnp.asarray(leaves, jnp.float32), *configs)


def _row_table(tables: Sequence[NDArray[np.int64] | None], everything: int) -> tuple[Array | None, Array]:
    """Each run's rows padded to one table [R, longest] and how many of them count, [R]."""
    if all(table is None for table in tables):
        return None, jnp.full(len(tables), everything, jnp.int32)
    filled = [np.arange(everything) if table is None else table for table in tables]
    longest = max(len(table) for table in filled)
    padded = np.stack([np.pad(table, (0, longest - len(table))) for table in filled])
    return jnp.asarray(padded, jnp.int32), jnp.asarray([len(table) for table in filled], jnp.int32)


@jax.jit
def _choose(failed: Array, old: Any, new: Any) -> Any:
    def pick(o: Array, n: Array) -> Array:
        return jnp.where(failed.reshape(-1, *[1] * (n.ndim - 1)), o, n)

    return jax.tree.map(pick, old, new)

"""What an agent is: a config, a state, and the few methods the training loop calls.

The loop knows nothing of any agent; an agent knows nothing of files, devices, progress or roll-outs:

    dataset ── columns, rows ──▶ device ── batch ──▶ update ──▶ state ── policy ──▶ NumPy policy

Most agents write `init`, `update` and `policy` only. One that learns from sequences overrides `columns` and `batch`;
one that learns from some episodes only overrides `rows`.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import math
import textwrap
import tokenize
from collections.abc import Callable
from typing import Any, ClassVar, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy.typing import NDArray

from pdocrl.data.dataset import Dataset
from pdocrl.errors import PdocrlError, UnknownNameError
from pdocrl.policies.policy import Policy

Metrics = dict[str, Array]  # scalars, the same names at every step; a non-finite one stops the run
Columns = dict[str, NDArray[Any]]  # arrays that go to the device once; those of equal length are gathered together


def static(default: Any) -> Any:
    """A config field that changes the compiled program; all runs of one call share it."""
    return eqx.field(static=True, default=default)


class AgentConfig(eqx.Module):
    """What every agent is told. Numbers are pytree leaves: runs that differ in them train in one compiled program.

    `cost_limit` and `horizon` describe the problem and are filled in by the loop from its own arguments.
    """

    cost_limit: tuple[float, ...] = ()  # undiscounted cost allowed per episode, one per constraint
    horizon: float = 1.0  # steps of a full episode
    gamma: float = 0.99  # discount factor γ
    batch_size: int = static(512)  # transitions (or sequences) per step
    hidden: tuple[int, ...] = static((256, 256))  # widths of the hidden layers

    @property
    def cost_rate(self) -> Float[Array, " K"]:
        """The cost limit as losses see it, [K]: per step, cost_limit / horizon, compared with (1 − γ) J_c."""
        return jax.numpy.asarray(self.cost_limit, jax.numpy.float32).reshape(-1) / self.horizon


PROBLEM_FIELDS = ("cost_limit", "horizon")  # of every config: filled in by `train` from its own arguments


@dataclasses.dataclass(frozen=True)
class Problem:
    """What an agent may know of the data before it starts: shapes and magnitudes."""

    obs_dim: int
    action_dim: int
    n_costs: int
    reward_scale: float = 1.0  # largest |r| in the data
    cost_scale: float = 1.0  # largest c in the data
    discrete_actions: bool = False  # whether actions are one-hot discrete actions
    frontier: tuple[tuple[float, ...], ...] = ()  # (return, cost, …) of the best episodes, for agents that ask for them

    @staticmethod
    def of(dataset: Dataset) -> Problem:
        return Problem(
            dataset.obs_dim,
            dataset.action_dim,
            dataset.n_costs,
            dataset.largest_reward,
            dataset.largest_cost,
            bool(dataset.discrete_actions),
        )


class DeviceTable(eqx.Module):
    """Columns on the device. Those as long as the first lie side by side in one matrix: one gather, not seven.

    `initial_obs` never does, since it is drawn from on its own, also where episodes are as many as rows.
    """

    packed: Float[Array, "N D"]
    others: dict[str, Array]
    layout: tuple[tuple[str, tuple[int, ...]], ...] = eqx.field(static=True)  # name and shape of a row, in order

    @staticmethod
    def of(columns: Columns) -> DeviceTable:
        length = len(next(iter(columns.values())))
        rows = {n: np.asarray(c, np.float32) for n, c in columns.items() if len(c) == length and n != "initial_obs"}
        packed = np.concatenate([c.reshape(length, -1) for c in rows.values()], axis=1)
        others = {n: jax.device_put(c) for n, c in columns.items() if n not in rows}
        return DeviceTable(jax.device_put(packed), others, tuple((n, c.shape[1:]) for n, c in rows.items()))

    def __len__(self) -> int:
        return int(self.packed.shape[0])

    def take(self, rows: Int[Array, " *B"]) -> dict[str, Array]:
        """The given rows of every packed column."""
        block, found, start = self.packed[rows], {}, 0
        for name, shape in self.layout:
            width = math.prod(shape)
            found[name] = block[..., start : start + width].reshape(*rows.shape, *shape)
            start += width
        return found


class Transitions(eqx.Module):
    """A mini-batch of B transitions."""

    obs: Float[Array, "B S"]
    action: Float[Array, "B A"]
    reward: Float[Array, " B"]
    cost: Float[Array, "B K"]
    next_obs: Float[Array, "B S"]
    not_done: Float[Array, " B"]  # 1 − terminal: whether s′ has a future; 1 at a timeout
    initial_obs: Float[Array, "B S"]  # samples of d₀; costs nothing when unused


def not_done_at_timeout(dataset: Dataset) -> NDArray[np.float32]:
    """`Transitions.not_done` with timeouts treated as terminal, as in some published code."""
    return (~(dataset.terminal | dataset.timeout)).astype(np.float32)


def per_constraint(name: str, values: Float[Array, " K"]) -> Metrics:
    """{'lambda': …} for one constraint, {'lambda_0': …, 'lambda_1': …} for more."""
    if len(values) == 1:
        return {name: values[0]}
    return {f"{name}_{i}": value for i, value in enumerate(values)}


C = TypeVar("C", bound=AgentConfig)
S = TypeVar("S", bound=eqx.Module)


class Agent(Generic[C, S]):
    """One method. Subclasses fill in the class variables and at least `init`, `update` and `policy`."""

    name: ClassVar[str]
    summary: ClassVar[str]  # one sentence for `pdocrl agents`
    paper: ClassVar[str]
    needs: ClassVar[str] = "at least one cost"
    fewest_costs: ClassVar[int] = 1
    most_costs: ClassVar[int | None] = None  # None: any number of constraints
    quick_policy: ClassVar[bool] = True  # whether `policy` is cheap enough to be called at every checkpoint
    discrete_actions: ClassVar[bool] = False  # whether it learns from one-hot discrete actions, too
    tail_limits: ClassVar[bool] = False  # whether its policies serve limits on tails, "P(cost>20)<=0.1"
    problem_class: ClassVar[type[Problem]] = Problem  # of what `problem` gives; checkpoints are read with it
    mixed_precision: ClassVar[bool] = False  # whether it trains in mixed precision on a GPU: see `nn/precision.py`
    Config: type[C]

    def ignores_limit(self, config: C) -> bool:
        """Whether training is the same whatever the cost limit; runs that differ in nothing else then share one.

        Never inherited from another agent: one made of it may train with the limit, so it says so for itself.
        """
        return False

    def zero_padded(self, config: C, state: S, here: Problem, there: Problem) -> S | None:
        """The state for longer observations and actions, zero-padded.

        None: not defined, or learning would go on differently. With it, tasks of several shapes train as one program.
        """
        return None

    def problem(self, dataset: Dataset) -> Problem:
        """What `init` is told of the data."""
        return Problem.of(dataset)

    def columns(self, config: C, dataset: Dataset) -> Columns:
        """The arrays `batch` gathers from; shared by all runs of a call."""
        return {
            "obs": dataset.obs,
            "action": dataset.action,
            "reward": dataset.reward,
            "cost": dataset.cost,
            "next_obs": dataset.next_obs,
            "not_done": (~dataset.terminal).astype(np.float32),
            "initial_obs": dataset.initial_obs,
        }

    def rows(self, config: C, dataset: Dataset) -> NDArray[np.int64] | None:
        """The rows of `columns` this run samples from; None for all of them."""
        return None

    def batch(self, config: C, table: DeviceTable, rows: Int[Array, " B"], key: PRNGKeyArray) -> Any:
        """Gather a mini-batch on the device."""
        starts = table.others["initial_obs"]
        start = jax.random.randint(key, rows.shape, 0, starts.shape[0])
        return Transitions(**table.take(rows), initial_obs=starts[start])

    def init(self, config: C, problem: Problem, key: PRNGKeyArray) -> S:
        """A fresh state: networks, optimisers, targets, multipliers."""
        raise AgentMethodMissing(type(self), "init")

    def update(self, config: C, state: S, batch: Any, key: PRNGKeyArray) -> tuple[S, Metrics]:
        """One gradient step of every player."""
        raise AgentMethodMissing(type(self), "update")

    def policy(self, config: C, state: S) -> Policy:
        """The learned policy in plain NumPy."""
        raise AgentMethodMissing(type(self), "policy")

    def learned(self, config: C, state: S) -> Learned:
        """Critics, density ratio and multipliers, in the units of the data's rewards and costs; none by default."""
        return Learned()


@dataclasses.dataclass(frozen=True)
class Learned:
    """What a training has learned beside its policy, as functions of normalised observations and unit actions.

    Rewards and costs are in the data's own units: an agent undoes its `reward_scale` here. None: the method has none.
    """

    q: Callable[[Array, Array], Array] | None = None  # ([B, S], [B, A]) → [B] action value
    v: Callable[[Array], Array] | None = None  # [B, S] → [B] state value
    q_cost: Callable[[Array, Array], Array] | None = None  # ([B, S], [B, A]) → [B, K]
    v_cost: Callable[[Array], Array] | None = None  # [B, S] → [B, K]
    ratio: Callable[[Array, Array], Array] | None = None  # ([B, S], [B, A]) → [B] density ratio w
    multipliers: Array | None = None  # [K] λ: reward given up for a unit of each cost


class AgentMethodMissing(PdocrlError):
    """An agent class that leaves out one of the three methods it must have."""

    def __init__(self, agent: type, method: str) -> None:
        super().__init__(f"agent {agent.__name__} has no `{method}`; every agent defines init, update and policy.")


def make_config(agent: Agent[C, Any], **settings: Any) -> C:
    """The agent's config with some fields set; an unknown field or a value of the wrong kind raises.

    A list is taken for a tuple, and a tuple where one value is the default for what it holds.
    """
    fields = {f.name: f for f in dataclasses.fields(agent.Config)}
    kinds = get_type_hints(agent.Config)
    settings = {name: _as_tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    for name, value in settings.items():
        if name not in fields:
            raise UnknownNameError(f"setting of {agent.name}", name, fields, f"`pdocrl agents {agent.name}` lists all.")
        default = fields[name].default
        alike = isinstance(value, int | float) if type(default) is float else type(value) is type(default)
        if not alike or (isinstance(value, bool) and not isinstance(default, bool)):
            several = f" Write several with commas, and one as {value}," if isinstance(default, tuple) else ""
            raise PdocrlError(
                f"setting {name} of {agent.name} is {default!r} by default; {value!r} is not of that kind.{several}"
            )
        if get_origin(kinds[name]) is Literal and value not in get_args(kinds[name]):
            raise UnknownNameError(f"{name} of {agent.name}", str(value), get_args(kinds[name]))
        _refuse_impossible(f"setting {name} of {agent.name}", name, value)
    return agent.Config(**settings)


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value


def changed_settings(config: AgentConfig) -> dict[str, Any]:
    """The fields of a config that are not at their default, but for the problem's own."""
    return {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(config)
        if field.name not in PROBLEM_FIELDS and getattr(config, field.name) != field.default
    }


def _refuse_impossible(what: str, name: str, value: Any) -> None:
    """Numbers no agent can mean: not finite, γ outside [0, 1), a negative rate or count, a layer without units."""
    numbers = [x for x in (value if isinstance(value, tuple) else (value,)) if type(x) in (int, float)]
    if not all(math.isfinite(x) for x in numbers):
        raise PdocrlError(f"{what} is {value}, must be finite.")
    if name == "gamma" and not 0 <= value < 1:
        raise PdocrlError(f"{what} is {value}, must be at least 0 and below 1.")
    least = 1 if name in {"batch_size", "model_batch", "hidden", "model_hidden"} else 0
    counts = name.endswith("rate") or any(type(x) is int for x in numbers)
    if counts and any(x < least for x in numbers):
        raise PdocrlError(f"{what} is {value}, must be at least {least}.")


def describe_config(config: type[AgentConfig]) -> list[dict[str, Any]]:
    """Name, default and meaning of every setting; the meaning is the comment beside the field."""
    meanings: dict[str, str] = {}
    for owner in reversed(config.__mro__):
        if isinstance(owner, type) and issubclass(owner, AgentConfig):
            meanings |= _comments(owner)
    return [
        {"name": f.name, "default": f.default, "meaning": meanings.get(f.name, "")}
        for f in dataclasses.fields(config)
        if f.name not in PROBLEM_FIELDS
    ]


def _comments(owner: type) -> dict[str, str]:
    """{field: the comments on its lines}, however it is laid out; {} for a class whose source is not at hand."""
    try:
        source = textwrap.dedent(inspect.getsource(owner))
    except (OSError, TypeError):
        return {}
    by_line: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            by_line[token.start[0]] = token.string.lstrip("# ").strip()
    (body,) = ast.parse(source).body
    assert isinstance(body, ast.ClassDef)
    return {
        node.target.id: " ".join(filter(None, (by_line.get(n) for n in range(node.lineno, (node.end_lineno or 0) + 1))))
        for node in body.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }

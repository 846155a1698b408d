"""One policy for every limit: it copies logged episodes given what they still went on to cost, and rehearses its dial.

    maximise  E_D[ e^{φq} log π(a | s, t, C_t, C_0, q) ],   C_t = Σ_{u≥t} c_u of the same episode, q its quality

C_t is what the episode still went on to cost; when acting, it is what is left of the budget: a dial that corrects
itself. q compares the episode's return with the best one logged at no more cost; asked for is q = 1.

What a setting of the dial earns and costs is not what was asked for, but what happens. A model of the dynamics, learned
beside the policy from the same data, plays each of some sixty settings (`rehearse`), and for a limit the policy takes
the one that earns most among those that keep it: the Lagrangian's saddle point in the dial's few numbers.
docs/agents/dial.md derives it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy.typing import NDArray

from pdocrl.agents.acting import mode_policy
from pdocrl.agents.agent import Agent, AgentConfig, Columns, DeviceTable, Metrics, Problem, Transitions, static
from pdocrl.agents.imagination import Model, Standards
from pdocrl.agents.rehearsal import rehearse
from pdocrl.data.dataset import Dataset
from pdocrl.nn.density import ClippedGaussian
from pdocrl.nn.mlp import Thinned, polyak
from pdocrl.nn.optimise import adam_step
from pdocrl.policies.policy import DialPolicy

PEERS = 3  # the best return at a cost is the mean of so many episodes, so that one lucky episode does not set it
STARTS = 32  # first states the dial is rehearsed from
MEMBERS = 4  # networks of the model
STYLES = (0.4, 1.0)  # of the dearest episode's cost, asked for by settings that stop
NEVER = 1e6  # times the dearest episode's cost: more than anyone spends


class DialConfig(AgentConfig):
    """One setting for every task and limit."""

    batch_size: int = static(256)  # transitions per step, of all episodes
    hidden: tuple[int, ...] = static((512, 512, 512))  # widths of the policy's hidden layers
    model_hidden: tuple[int, ...] = static((256, 256))  # widths of the model's hidden layers
    actor_rate: float = 3e-4  # learning rate of π
    model_rate: float = 1e-3  # learning rate of the model of the dynamics
    average_rate: float = 0.001  # rate of the moving averages of π, which is returned, and of the model
    dropout: float = 0.1  # share of hidden units left out at each step: without it π learns episodes by heart
    jitter: float = 0.02  # noise on what π is conditioned on, so that it interpolates
    decay: float = 10_000.0  # steps after which learning rates fall as 1/√t
    focus: float = 3.0  # φ: how much more episodes of high quality count
    margin: float = 0.9  # share of the limit that the rehearsed cost may reach
    quality: float = 1.0  # the quality asked for; 1 is the best logged at that cost
    early_stops: bool = static(True)  # also rehearse settings that spend fast and then stop spending


class DialState(eqx.Module):
    """The policy, the model, and where episodes begin."""

    actor: ClippedGaussian
    average: ClippedGaussian  # the policy that is returned
    model: Model
    model_average: Model
    standards: Standards
    starts: Float[Array, "P S"]
    largest: Float[Array, " K"]  # the dearest logged episode
    steps: Array  # taken so far
    actor_opt: optax.OptState
    model_opt: optax.OptState


@dataclasses.dataclass(frozen=True)
class DialProblem(Problem):
    """Also the data's magnitudes and some first states."""

    standards: tuple[tuple[float, ...], ...] = ()
    starts: tuple[tuple[float, ...], ...] = ()
    largest: tuple[float, ...] = ()  # cost of the dearest episode, one per constraint


class DialBatch(eqx.Module):
    """B transitions and what their episodes went on to."""

    transitions: Transitions
    condition: Float[Array, "B Z"]  # see `condition`


class Dial(Agent[DialConfig, DialState]):
    """Imitation given what an episode still costs, with a dial rehearsed in a learned model."""

    name = "dial"
    summary = "One policy for every limit: copies episodes given their cost to go, and rehearses its dial in a model."
    paper = "this library, on the saddle point of Offline Constrained RL under Partial Data Coverage"
    needs = "at least one cost"
    Config = DialConfig

    def ignores_limit(self, config: DialConfig) -> bool:
        return True  # it is told when it acts

    def problem(self, dataset: Dataset) -> DialProblem:
        chosen = np.random.default_rng(0).permutation(dataset.n_episodes)[:STARTS]
        starts = np.resize(dataset.initial_obs[chosen], (STARTS, dataset.obs_dim))
        return DialProblem(
            **vars(super().problem(dataset)),
            standards=Standards.measure(dataset),
            starts=tuple(map(tuple, starts.tolist())),
            largest=tuple(np.maximum(dataset.cost_return.max(0), 1e-6).tolist()),
        )

    def columns(self, config: DialConfig, dataset: Dataset) -> Columns:
        """With each row, what π is conditioned on there."""
        lengths = dataset.episode_length
        ends = np.repeat(dataset.episode_start + lengths, lengths)
        spent = np.concatenate([np.zeros((1, dataset.n_costs)), np.cumsum(dataset.cost, 0, np.float64)])
        age = np.arange(len(dataset)) - np.repeat(dataset.episode_start, lengths)
        to_go = spent[ends] - spent[:-1]
        given = condition(
            np.repeat(qualities(dataset.reward_return, dataset.cost_return), lengths),
            1 - age / float(config.horizon),
            to_go,
            np.repeat(dataset.cost_return, lengths, axis=0),
            np.maximum(dataset.cost_return.max(0), 1e-6),
        )
        return super().columns(config, dataset) | {"condition": given}

    def batch(self, config: DialConfig, table: DeviceTable, rows: Int[Array, " B"], key: PRNGKeyArray) -> DialBatch:
        taken = table.take(rows)
        given = taken.pop("condition")
        return DialBatch(Transitions(**taken, initial_obs=table.others["initial_obs"][:1]), given)

    def init(self, config: DialConfig, problem: Problem, key: PRNGKeyArray) -> DialState:
        assert isinstance(problem, DialProblem)
        s, a, k = problem.obs_dim, problem.action_dim, problem.n_costs
        keys = jax.random.split(key)
        actor = ClippedGaussian.create(keys[0], s + 2 + 8 * k, a, config.hidden)
        model = Model.create(keys[1], s, a, k, config.model_hidden, MEMBERS)
        adam = optax.scale_by_adam()
        return DialState(
            actor, actor, model, model, Standards.of(problem.standards), jnp.asarray(problem.starts, jnp.float32),
            jnp.asarray(problem.largest, jnp.float32), jnp.zeros((), jnp.int32), adam.init(actor), adam.init(model),
        )  # fmt: skip

    def update(
        self, config: DialConfig, state: DialState, batch: DialBatch, key: PRNGKeyArray
    ) -> tuple[DialState, Metrics]:
        data = batch.transitions
        for_jitter, for_dropout = jax.random.split(key)
        given = batch.condition + config.jitter * jax.random.normal(for_jitter, batch.condition.shape)
        inputs = jnp.concatenate([data.obs, given], -1)
        kept = masks(for_dropout, config, len(inputs))

        w = jnp.exp(config.focus * (batch.condition[:, 0] - 1))
        w = w / w.mean()

        def actor_loss(actor: ClippedGaussian) -> Array:
            thinned = ClippedGaussian(Thinned(actor.mlp, kept))  # type: ignore[arg-type]
            return -(w * thinned.unclipped_log_prob(inputs, data.action)).mean()

        loss_pi, grad_pi = jax.value_and_grad(actor_loss)(state.actor)
        loss_model, grad_model = jax.value_and_grad(lambda m: m.loss(state.standards, data))(state.model)
        slower = jnp.sqrt(jnp.minimum(1.0, config.decay / (state.steps + 1.0)))
        actor, actor_opt = adam_step(grad_pi, state.actor_opt, state.actor, slower * config.actor_rate)
        model, model_opt = adam_step(grad_model, state.model_opt, state.model, slower * config.model_rate)
        rate = jnp.maximum(config.average_rate, 10 / (10 + state.steps))  # the first steps are soon forgotten
        state = DialState(
            actor, polyak(state.average, actor, rate), model, polyak(state.model_average, model, rate),
            state.standards, state.starts, state.largest, state.steps + 1, actor_opt, model_opt,
        )  # fmt: skip
        return state, {"actor_loss": loss_pi, "model_loss": loss_model}

    def policy(self, config: DialConfig, state: DialState) -> DialPolicy:
        """The network, and what each setting of its dial was rehearsed to earn and cost."""
        network = mode_policy(state.average)
        largest = np.asarray(state.largest)
        ask, stop = settings(largest, config.early_stops)
        policy = DialPolicy(
            network.weights, network.biases, float(config.horizon), float(config.quality), largest,
            tuple(float(limit) for limit in config.cost_limit), ask, stop,
            np.zeros(len(ask), np.float32), np.zeros_like(ask),
        )  # fmt: skip
        reward, cost = rehearse(state.model_average, state.standards, state.average, state.starts, policy)
        return dataclasses.replace(policy, reward=reward, cost=cost / np.float32(config.margin))


def masks(key: PRNGKeyArray, config: DialConfig, rows: int) -> list[Array]:
    """For every hidden layer which units stay, from one draw of random bits."""
    share = 1 - config.dropout
    drawn = jax.random.uniform(key, (rows, sum(config.hidden))) < share
    edges = np.cumsum(config.hidden)[:-1].tolist()
    return [part / share for part in jnp.split(drawn.astype(jnp.float32), edges, axis=1)]


def condition(
    quality: NDArray[Any], time_left: NDArray[Any], to_go: NDArray[Any], whole: NDArray[Any], largest: NDArray[Any]
) -> NDArray[np.float32]:
    """What π is told besides the state, [N, 2 + 8K]: q and time left [N], budgets to go and whole [N, K]."""
    numbers = np.stack([quality, time_left], -1).astype(np.float32)
    return np.concatenate([numbers, DialPolicy.features(to_go, largest), DialPolicy.features(whole, largest)], -1)


def qualities(
    returns: Float[NDArray[np.float64], " E"], costs: Float[NDArray[np.float64], "E K"]
) -> Float[NDArray[np.float64], " E"]:
    """(R − R_low) / (R_best − R_low): R_best the mean of the best few episodes that cost no more, R_low the worst 5 %.

    About 1 for the best at their cost, less for others, whatever the units.
    """
    low = np.quantile(returns, 0.05)
    best = np.empty(len(returns))
    order = np.argsort(-returns, kind="stable")
    for i, cost in enumerate(costs):
        peers = order[(costs[order] <= cost + 1e-9).all(1)][:PEERS]
        best[i] = returns[peers].mean()
    scale = np.maximum(best - low, 1e-9 + 1e-3 * np.ptp(returns))
    return np.clip((returns - low) / scale, -0.5, 1.1)


def settings(largest: NDArray[np.float32], early_stops: bool) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The dial's settings to rehearse: what to ask for [M, K], and what to spend before asking for nothing [M, K].

    Asks lie closer together where they are small. Most never stop asking (`NEVER`). The others ask for much and stop
    early, which joins the dear beginning of one episode to the cheap rest of another.
    """
    k = len(largest)
    asks = grid(max(2, round(32 ** (1 / k))), k)
    kinds = [(asks, np.full_like(asks, NEVER))]
    if early_stops:
        stops = grid(max(2, round(8 ** (1 / k))) + 1, k)[1:]
        kinds += [(np.full_like(stops, style), stops) for style in STYLES]
    ask, stop = (np.concatenate(parts) for parts in zip(*kinds, strict=True))
    return (ask * largest).astype(np.float32), (stop * largest).astype(np.float32)


def grid(levels: int, dimensions: int) -> NDArray[np.float32]:
    """All points of a grid over [0, 1]^K whose levels grow as squares, [levels^K, K]."""
    axis = np.linspace(0, 1, levels, dtype=np.float32) ** 2
    return np.stack(np.meshgrid(*[axis] * dimensions, indexing="ij"), -1).reshape(-1, dimensions)


__all__: Sequence[str] = ["Dial", "DialConfig"]

"""One policy for every limit: it copies logged episodes given what they still went on to cost, and rehearses its dial.

    maximise  E_D[ e^{φq} log π(a | s, t, C_t, C_0, q) ],   C_t = Σ_{u≥t} c_u of the same episode, q its quality

C_t is what the episode still went on to cost; when acting, it is what is left of the budget: a dial that corrects
itself. q compares the episode's return with the best one logged from a like start at no more cost.

What a setting of the dial earns and costs is not only what was asked for, but what happens. Models of the dynamics,
learned beside the policy, each from four fifths of the episodes, play every setting (`rehearse`), and for a limit the
policy takes the one that earns most among those that keep it: the Lagrangian's saddle point in the dial's few numbers.
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

from pdocrl.agents.base import Agent, AgentConfig, Columns, DeviceTable, Metrics, Problem, Transitions, static
from pdocrl.agents.common.numpy_policy import mode_policy
from pdocrl.agents.imagination import Model, Standards
from pdocrl.agents.rehearsal import rehearse
from pdocrl.data.dataset import Dataset
from pdocrl.nn.distributions import LikelihoodActor, likelihood_actor
from pdocrl.nn.mlp import Dropout, polyak
from pdocrl.nn.optim import adam_step
from pdocrl.policies.policy import DialPolicy

PEERS = 3  # the best return at a cost is the mean of so many episodes, so that one lucky episode does not set it
ALIKE = 0.2  # share of the episodes, those that began most alike, that an episode is compared with
SAME = 0.1  # first states no further apart than this, in standard deviations a column, are the same
COMPARED = 2000  # of larger datasets so many episodes are compared with
STARTS = 48  # first states the dial is rehearsed from
MEMBERS = 5  # models; each leaves out another fifth of the episodes
FINE, COARSE = 64, 16  # amounts of cost that the first quality is asked for with, and each other
STYLES = (0.4, 1.0)  # of the dearest episode's cost, asked for by settings that stop
SEEN = 0.5  # of the log's mean cost: what some setting must come to in rehearsal, or the models do not see this cost
NEVER = 1e6  # times the dearest episode's cost: more than anyone spends


class DialConfig(AgentConfig):
    """One setting for every task and limit."""

    batch_size: int = static(256)  # transitions per step, of all episodes
    hidden: tuple[int, ...] = static((256, 256, 256))  # widths of the policy's hidden layers
    model_hidden: tuple[int, ...] = static((256, 256))  # widths of the model's hidden layers
    model_batch: int = static(64)  # of a step's transitions, those that each model learns from
    actor_rate: float = 3e-4  # learning rate of π
    model_rate: float = 1e-3  # learning rate of the model of the dynamics
    average_rate: float = 1e-4  # least rate of the averages of π, which is returned, and of the models
    dropout: float = static(0.0)  # share of hidden units left out at each step; at full length it is not missed
    rows_a_mask: int = static(1)  # rows of a batch that leave out the same units; random bits are dear on a CPU
    jitter: float = 0.02  # noise on what π is conditioned on, so that it interpolates
    decay: float = 10_000.0  # steps after which learning rates fall as 1/√t
    focus: float = 3.0  # φ: how much more episodes of high quality count
    margin: float = 0.95  # share of the limit that what is asked for, and what is rehearsed, may reach
    confidence: float = 0.975  # that the rehearsed cost, meant over `episodes`, is within that share
    episodes: float = 20.0  # over whose mean the limit is to hold; with few, hard starts may be among them
    qualities: tuple[float, ...] = static((1.0, 0.9, 0.8))  # to ask for; where luck makes the best, lower ones too
    early_stops: bool = static(True)  # also rehearse settings that spend fast and then stop spending


class DialState(eqx.Module):
    """The policy, the models, and where episodes begin."""

    actor: LikelihoodActor
    average: LikelihoodActor  # the policy that is returned
    models: Model  # every array with a leading axis of `MEMBERS`
    models_average: Model
    standards: Standards
    starts: Float[Array, "P S"]
    largest: Float[Array, " K"]  # the dearest logged episode
    outcomes: Float[Array, "E 1+K"]  # reward and costs of logged episodes
    steps: Array  # taken so far
    actor_opt: optax.OptState
    models_opt: optax.OptState


@dataclasses.dataclass(frozen=True)
class DialProblem(Problem):
    """Also the data's magnitudes and some first states."""

    standards: tuple[tuple[float, ...], ...] = ()
    starts: tuple[tuple[float, ...], ...] = ()
    largest: tuple[float, ...] = ()  # cost of the dearest episode, one per constraint
    outcomes: tuple[tuple[float, ...], ...] = ()  # reward and costs of episodes


class DialBatch(eqx.Module):
    """B transitions and what their episodes went on to."""

    transitions: Transitions
    condition: Float[Array, "B Z"]  # see `condition`
    fold: Float[Array, " B"]  # the model that does not learn from the row's episode


class Dial(Agent[DialConfig, DialState]):
    """Imitation given what an episode still costs, with a dial rehearsed in learned models."""

    name = "dial"
    summary = "One policy for every limit: copies episodes given their cost to go, and rehearses its dial in a model."
    paper = "this library, on the saddle point of Offline Constrained RL under Partial Data Coverage"
    needs = "at least one cost"
    quick_policy = False  # it rehearses
    discrete_actions = True
    Config = DialConfig

    def ignores_limit(self, config: DialConfig) -> bool:
        return True  # it is told when it acts

    def problem(self, dataset: Dataset) -> DialProblem:
        chosen = some(dataset.n_episodes)
        starts = np.resize(dataset.initial_obs[chosen[:STARTS]], (STARTS, dataset.obs_dim))
        outcomes = np.column_stack([dataset.reward_return, dataset.cost_return])[chosen]
        return DialProblem(
            **vars(super().problem(dataset)),
            standards=Standards.measure(dataset),
            starts=tuple(map(tuple, starts.tolist())),
            largest=tuple(dearest(dataset).tolist()),
            outcomes=tuple(map(tuple, outcomes.tolist())),
        )

    def columns(self, config: DialConfig, dataset: Dataset) -> Columns:
        """With each row, what π is conditioned on there."""
        lengths = dataset.episode_length
        given = condition(
            np.repeat(qualities(dataset.reward_return, dataset.cost_return, dataset.initial_obs), lengths),
            1 - dataset.time_step() / float(config.horizon),
            dataset.to_go()[:, 1:],
            np.repeat(dataset.cost_return, lengths, axis=0),
            dearest(dataset),
        )
        fold = np.random.default_rng(1).permutation(dataset.n_episodes) % MEMBERS
        return super().columns(config, dataset) | {"condition": given, "fold": np.repeat(fold, lengths)}

    def batch(self, config: DialConfig, table: DeviceTable, rows: Int[Array, " B"], key: PRNGKeyArray) -> DialBatch:
        taken = table.take(rows)
        given, fold = taken.pop("condition"), taken.pop("fold")
        return DialBatch(Transitions(**taken, initial_obs=table.others["initial_obs"][:1]), given, fold)

    def init(self, config: DialConfig, problem: Problem, key: PRNGKeyArray) -> DialState:
        assert isinstance(problem, DialProblem)
        s, a, k = problem.obs_dim, problem.action_dim, problem.n_costs
        keys = jax.random.split(key)
        actor = likelihood_actor(problem.discrete_actions).create(keys[0], s + 2 + 8 * k, a, config.hidden)
        models = jax.vmap(lambda key: Model.create(key, s, a, k, config.model_hidden, 1))(
            jax.random.split(keys[1], MEMBERS)
        )
        adam = optax.scale_by_adam()
        return DialState(
            actor,
            actor,
            models,
            models,
            Standards.of(problem.standards),
            jnp.asarray(problem.starts, jnp.float32),
            jnp.asarray(problem.largest, jnp.float32),
            jnp.asarray(problem.outcomes, jnp.float32),
            jnp.zeros((), jnp.int32),
            adam.init(actor),
            adam.init(models),
        )

    def update(
        self, config: DialConfig, state: DialState, batch: DialBatch, key: PRNGKeyArray
    ) -> tuple[DialState, Metrics]:
        data = batch.transitions
        for_jitter, for_dropout = jax.random.split(key)
        given = batch.condition + config.jitter * jax.random.normal(for_jitter, batch.condition.shape)
        inputs = jnp.concatenate([data.obs, given], -1)
        kept = masks(for_dropout, config, len(inputs)) if config.dropout else None

        w = jnp.exp(config.focus * (batch.condition[:, 0] - 1))
        w = w / w.mean()

        def actor_loss(actor: LikelihoodActor) -> Array:
            thinned = actor if kept is None else type(actor)(Dropout(actor.mlp, kept))  # type: ignore[arg-type]
            return -(w * thinned.unclipped_log_prob(inputs, data.action)).mean()

        loss_pi, grad_pi = jax.value_and_grad(actor_loss)(state.actor)
        # Each model has rows of its own, [M, b]: together they see all of the batch, at the price of one model.
        members = np.arange(MEMBERS)[:, None]
        own = (members * len(w) // MEMBERS + np.arange(config.model_batch)) % len(w)
        seen = jax.tree.map(lambda x: x[own], eqx.tree_at(lambda t: t.initial_obs, data, data.obs))
        learns = (batch.fold[own] != members).astype(jnp.float32)

        def models_loss(models: Model) -> Array:
            losses: Array = jax.vmap(lambda m, part, rows: m.loss(state.standards, part, rows))(models, seen, learns)
            return losses.sum()

        loss_models, grad_models = jax.value_and_grad(models_loss)(state.models)
        slower = jnp.sqrt(jnp.minimum(1.0, config.decay / (state.steps + 1.0)))
        actor, actor_opt = adam_step(grad_pi, state.actor_opt, state.actor, slower * config.actor_rate)
        models, models_opt = adam_step(grad_models, state.models_opt, state.models, slower * config.model_rate)
        rate = jnp.maximum(config.average_rate, 10 / (10 + state.steps))  # over about the last tenth of the steps
        state = DialState(
            actor,
            polyak(state.average, actor, rate),
            models,
            polyak(state.models_average, models, rate),
            state.standards,
            state.starts,
            state.largest,
            state.outcomes,
            state.steps + 1,
            actor_opt,
            models_opt,
        )
        return state, {"actor_loss": loss_pi, "model_loss": loss_models / MEMBERS}

    def policy(self, config: DialConfig, state: DialState) -> DialPolicy:
        """The network, and what each setting of its dial was rehearsed to earn and cost."""
        network = mode_policy(state.average)
        largest = np.asarray(state.largest)
        quality, ask, stop = settings(largest, config.qualities, config.early_stops)
        policy = DialPolicy(
            network.weights,
            network.biases,
            float(config.horizon),
            largest,
            tuple(float(limit) for limit in config.cost_limit),
            quality,
            ask,
            stop,
            np.zeros(len(ask), np.float32),
            np.zeros_like(ask),
            network.discrete,
        )
        lasting = np.all(stop >= NEVER * largest, axis=1)
        reward, cost, upper = rehearse(
            state.models_average,
            state.standards,
            state.average,
            state.starts,
            policy,
            lasting,
            float(config.confidence),
            float(config.episodes),
        )
        # What asks for the same all along copies whole episodes: it earns no more than the best of them at its cost,
        # and costs no less than they did.
        reward = np.where(lasting, np.minimum(reward, best_at(cost, np.asarray(state.outcomes))), reward)
        upper = np.where(lasting[:, None], np.maximum(upper, ask), upper)
        upper += unseen(cost, np.asarray(state.outcomes)[:, 1:])
        return dataclasses.replace(policy, reward=reward, cost=upper / np.float32(config.margin))


def masks(key: PRNGKeyArray, config: DialConfig, rows: int) -> list[Array]:
    """For every hidden layer which units stay, from one draw of random bits."""
    share = 1 - config.dropout
    drawn = jax.random.uniform(key, (-(-rows // config.rows_a_mask), sum(config.hidden))) < share
    drawn = jnp.tile(drawn, (config.rows_a_mask, 1))[:rows]
    edges = np.cumsum(config.hidden)[:-1].tolist()
    return [part / share for part in jnp.split(drawn.astype(jnp.float32), edges, axis=1)]


def condition(
    quality: NDArray[Any], time_left: NDArray[Any], to_go: NDArray[Any], whole: NDArray[Any], largest: NDArray[Any]
) -> NDArray[np.float32]:
    """What π is told besides the state, [N, 2 + 8K]: q and time left [N], budgets to go and whole [N, K]."""
    numbers = np.stack([quality, time_left], -1).astype(np.float32)
    return np.concatenate([numbers, DialPolicy.features(to_go, largest), DialPolicy.features(whole, largest)], -1)


def dearest(dataset: Dataset) -> Float[NDArray[np.float64], " K"]:
    """The largest cost of an episode, of each constraint; never 0, since amounts are told as shares of it."""
    most = dataset.cost_return.max(0)
    largest: NDArray[np.float64] = np.where(most > 0, most, 1.0)
    return largest


def some(episodes: int) -> NDArray[np.int64]:
    """Of many episodes some, the same ones each time."""
    return np.random.default_rng(0).permutation(episodes)[:COMPARED]


def qualities(
    returns: Float[NDArray[np.float64], " E"],
    costs: Float[NDArray[np.float64], "E K"],
    starts: Float[NDArray[np.float32], "E S"],
) -> Float[NDArray[np.float64], " E"]:
    """(R − R_low) / (R_best − R_low): R_best the mean of the best few that cost no more, R_low the worst 5 %.

    Compared are episodes that began alike: what a hard start cannot earn is no fault. About 1 for the best at their
    cost, less for others, whatever the units.
    """
    others = some(len(returns))
    others = others[np.argsort(-returns[others], kind="stable")]
    earned, paid, began = returns[others], costs[others], starts[others]
    alike = max(1, round(ALIKE * len(others)))
    best = np.empty(len(returns))
    for i, (cost, start) in enumerate(zip(costs, starts, strict=True)):
        apart = np.sqrt(((began - start) ** 2).mean(1))
        near = apart <= max(SAME, np.partition(apart, alike - 1)[alike - 1])
        peers = earned[near & (paid <= cost * (1 + 1e-9)).all(1)][:PEERS]
        best[i] = peers.mean() if len(peers) else returns[i]
    low = np.quantile(returns, 0.05)
    scale = np.maximum(best - low, 1e-9 + 1e-3 * np.ptp(returns))
    return np.clip((returns - low) / scale, -0.5, 1.2)


def best_at(
    cost: Float[NDArray[np.float32], "N K"], outcomes: Float[NDArray[np.float32], "E 1+K"]
) -> Float[NDArray[np.float32], " N"]:
    """What the best few logged episodes earned that cost no more than `cost`, or where none did, that cost least."""
    returns, costs, best = outcomes[:, 0], outcomes[:, 1:], np.empty(len(cost), np.float32)
    for i, amount in enumerate(cost):
        beyond = np.maximum(costs - amount, 0).max(1)
        best[i] = returns[np.lexsort((-returns, beyond))[:PEERS]].mean()
    return best


def unseen(
    rehearsed: Float[NDArray[np.float32], "N K"], logged: Float[NDArray[np.float32], "E K"]
) -> Float[NDArray[np.float32], " K"]:
    """What each cost may come to that no rehearsal shows: the log's mean, where no setting comes near it; else 0.

    The models move by their mean, so what it takes a rare event to bring about never happens in them. They then miss
    a cost under every setting, also under those that ask for the dearest episodes.
    """
    mean = logged.mean(0)
    missed: NDArray[np.float32] = np.where(rehearsed.max(0) < SEEN * mean, mean, 0).astype(np.float32)
    return missed


def settings(
    largest: NDArray[np.float32], qualities: Sequence[float], early_stops: bool
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """The settings to rehearse: quality [N], cost to ask for [N, K], cost to spend before asking for none [N, K].

    Asks lie closer together where they are small. Most never stop asking (`NEVER`). The others ask for much and stop
    early, which joins the dear beginning of one episode to the cheap rest of another.
    """
    k = len(largest)
    kinds = []
    for quality in qualities:
        levels = FINE if quality == qualities[0] else COARSE
        asks = grid(max(2, round(levels ** (1 / k))), k)
        kinds.append((np.full(len(asks), quality, np.float32), asks, np.full_like(asks, NEVER)))
    if early_stops:
        stops = grid(max(2, round(16 ** (1 / k))) + 1, k)[1:]
        kinds += [(np.ones(len(stops), np.float32), np.full_like(stops, style), stops) for style in STYLES]
    wished, ask, stop = (np.concatenate(parts) for parts in zip(*kinds, strict=True))
    return wished, (ask * largest).astype(np.float32), (stop * largest).astype(np.float32)


def grid(levels: int, dimensions: int) -> NDArray[np.float32]:
    """All points of a grid over [0, 1]^K whose levels grow as squares, [levels^K, K]."""
    axis = np.linspace(0, 1, levels, dtype=np.float32) ** 2
    return np.stack(np.meshgrid(*[axis] * dimensions, indexing="ij"), -1).reshape(-1, dimensions)


__all__: Sequence[str] = ["Dial", "DialConfig"]

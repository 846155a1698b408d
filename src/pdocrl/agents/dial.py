"""One policy for every limit: cost-conditioned behaviour cloning whose targets are chosen by two estimates.

    maximise  E_D[ e^{φq} log π(a | s, t, C_t, C_0, q) ],   C_t = Σ_{u≥t} c_u of the same episode

C_t is the cost that the episode still had; when acting, it is what is left of the target. q is the relative return.

What a setting of the targets returns and costs is estimated twice: by rollouts drawn from a probabilistic ensemble of
dynamics models, and by fitted Q evaluation of all settings at once, which needs no model. A limit is predicted to be
satisfied where both say so, and of the settings within it the one of largest predicted return acts. Both estimate the
distribution of an episode's cost as well, so that limits may be on its tail. docs/agents/dial.md derives it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy.typing import NDArray

from pdocrl.agents.base import Agent, AgentConfig, Columns, DeviceTable, Metrics, Problem, Transitions, static
from pdocrl.agents.common.conditional_fqe import Backup, ConditionalCritic, Conditioned, fqe_loss, tail_loss
from pdocrl.agents.common.conditioning import max_episode_cost, relative_returns, settings, subsample
from pdocrl.agents.common.dial_estimates import MEMBERS, STARTS, by_critic, by_rollouts, return_unit
from pdocrl.agents.common.numpy_policy import mode_policy
from pdocrl.agents.common.tail_estimates import error_factor, share_bounds, tails
from pdocrl.agents.common.two_estimates import FAILED, probes, select
from pdocrl.data.dataset import Dataset
from pdocrl.dynamics.mixture import MixtureModel
from pdocrl.dynamics.mixture import Step as ModelStep
from pdocrl.dynamics.normaliser import LEVELS, Normaliser
from pdocrl.nn.distributions import LikelihoodActor, likelihood_actor
from pdocrl.nn.mlp import Dropout, polyak
from pdocrl.nn.optim import adam_step
from pdocrl.policies.policy import DialPolicy

CANDIDATES = 4  # settings of which one is drawn for a row that the critics learn from


class DialConfig(AgentConfig):
    """One setting for every task and limit."""

    batch_size: int = static(256)  # transitions per step, of all episodes
    hidden: tuple[int, ...] = static((256, 256, 256))  # widths of the policy's hidden layers
    model_hidden: tuple[int, ...] = static((256, 256))  # widths of the hidden layers of models and critics
    model_batch: int = static(64)  # of a step's transitions, those that each model learns from
    critic_batch: int = static(128)  # … and the critics
    actor_rate: float = 3e-4  # learning rate of π
    model_rate: float = 1e-3  # learning rate of the dynamics models and the critics
    target_rate: float = 0.02  # rate of the moving average that backups are made with
    average_rate: float = 1e-4  # least rate of the averages of π, which is returned, of the models and the critics
    dropout: float = static(0.0)  # share of hidden units left out at each step; at full length it is not missed
    rows_a_mask: int = static(1)  # rows of a batch that leave out the same units; random bits are slow on a CPU
    jitter: float = 0.02  # noise on what π is conditioned on, so that it interpolates
    decay: float = 10_000.0  # steps after which learning rates fall as 1/√t
    focus: float = 3.0  # φ: how much more episodes of high relative return count
    margin: float = 0.95  # share of the limit that targets and predicted costs may reach
    confidence: float = 0.975  # that the predicted cost, mean over `episodes`, is within that share
    episodes: float = 20.0  # over whose mean the limit is to hold; with few, costly first states may be among them
    relative_returns: tuple[float, ...] = static((1.0, 0.9, 0.8, 0.6, 0.4, 0.2, 0.0))  # targets
    cost_caps: bool = static(True)  # also settings that spend fast up to a cap
    from_every_start: bool = static(False)  # whether a limit is to hold from every first state, not on average


class Critics(eqx.Module):
    """Fitted Q evaluation of all settings: of return and costs, and of the distribution of the costs."""

    mean: ConditionalCritic
    tail: ConditionalCritic


class DialState(eqx.Module):
    """The policy, the models, the critics, and where episodes begin."""

    actor: LikelihoodActor
    average: LikelihoodActor  # the policy that is returned
    models: MixtureModel  # every array with a leading axis of `MEMBERS`
    models_average: MixtureModel
    critic: Critics
    critic_target: Critics
    critic_average: Critics
    normaliser: Normaliser
    starts: Float[Array, "P S"]
    max_episode_cost: Float[Array, " K"]
    outcomes: Float[Array, "E 1+K"]  # return and costs of logged episodes
    relative: Float[Array, " E"]  # their relative returns
    held_out: Float[Array, "2 K"]  # mean cost of steps a model has not learned from: by the models, and as logged
    steps: Array  # taken so far
    actor_opt: optax.OptState
    models_opt: optax.OptState
    critic_opt: optax.OptState


@dataclasses.dataclass(frozen=True)
class DialProblem(Problem):
    """Also the data's magnitudes, some first states, and what episodes came to."""

    normaliser: tuple[Any, ...] = ()
    starts: tuple[tuple[float, ...], ...] = ()
    max_episode_cost: tuple[float, ...] = ()
    outcomes: tuple[tuple[float, ...], ...] = ()  # return, costs and relative return of episodes


class DialBatch(eqx.Module):
    """B transitions and what their episodes went on to."""

    transitions: Transitions
    condition: Float[Array, "B Z"]  # see `condition`
    spent: Float[Array, "B K"]  # cost of the episode so far
    fold: Float[Array, " B"]  # the model that does not learn from the row's episode


class Dial(Agent[DialConfig, DialState]):
    """Imitation given what an episode still costs, its targets chosen by rollouts and by fitted Q evaluation."""

    name = "dial"
    summary = (
        "One policy for every limit: cost-conditioned cloning; targets chosen by rollouts and fitted Q evaluation."
    )
    paper = "this library, on the saddle point of Offline Constrained RL under Partial Data Coverage"
    needs = "at least one cost"
    tail_limits = True
    quick_policy = False  # it rolls out
    discrete_actions = True
    Config = DialConfig
    problem_class = DialProblem

    def ignores_limit(self, config: DialConfig) -> bool:
        return True  # it is told when it acts

    def problem(self, dataset: Dataset) -> DialProblem:
        chosen = subsample(dataset.n_episodes)
        relative = relative_returns(dataset.reward_return, dataset.cost_return, dataset.initial_obs)
        outcomes = np.column_stack([dataset.reward_return, dataset.cost_return, relative])[chosen]
        return DialProblem(
            **vars(super().problem(dataset)),
            normaliser=Normaliser.measure(dataset),
            starts=tuple(map(tuple, dataset.initial_obs[chosen[:STARTS]].tolist())),
            max_episode_cost=tuple(max_episode_cost(dataset).tolist()),
            outcomes=tuple(map(tuple, outcomes.tolist())),
        )

    def columns(self, config: DialConfig, dataset: Dataset) -> Columns:
        """With each row, what π is conditioned on there."""
        lengths = dataset.episode_length
        relative = relative_returns(dataset.reward_return, dataset.cost_return, dataset.initial_obs)
        to_go, whole = dataset.to_go()[:, 1:], np.repeat(dataset.cost_return, lengths, axis=0)
        time_left = 1 - dataset.time_step() / float(config.horizon)
        given = condition(np.repeat(relative, lengths), time_left, to_go, whole, max_episode_cost(dataset))
        fold = np.random.default_rng(1).permutation(dataset.n_episodes) % MEMBERS
        own = {"condition": given, "spent": np.maximum(whole - to_go, 0), "fold": np.repeat(fold, lengths)}
        return super().columns(config, dataset) | own

    def batch(self, config: DialConfig, table: DeviceTable, rows: Int[Array, " B"], key: PRNGKeyArray) -> DialBatch:
        taken = table.take(rows)
        own = {name: taken.pop(name) for name in ("condition", "spent", "fold")}
        return DialBatch(Transitions(**taken, initial_obs=table.others["initial_obs"][:1]), **own)

    def init(self, config: DialConfig, problem: Problem, key: PRNGKeyArray) -> DialState:
        assert isinstance(problem, DialProblem)
        s, a, k = problem.obs_dim, problem.action_dim, problem.n_costs
        keys = jax.random.split(key, 3)
        actor = likelihood_actor(problem.discrete_actions).create(keys[0], s + 2 + 8 * k, a, config.hidden)
        models = jax.vmap(lambda key: MixtureModel.create(key, s, a, k, LEVELS, config.model_hidden))(
            jax.random.split(keys[1], MEMBERS)
        )
        critic = Critics(
            ConditionalCritic.create(keys[2], s, a, k, config.model_hidden),
            ConditionalCritic.create(jax.random.fold_in(keys[2], 1), s, a, k, config.model_hidden, tails=True),
        )
        adam, outcomes = optax.scale_by_adam(), jnp.asarray(problem.outcomes, jnp.float32)
        return DialState(
            actor=actor,
            average=actor,
            models=models,
            models_average=models,
            critic=critic,
            critic_target=critic,
            critic_average=critic,
            normaliser=Normaliser.of(problem.normaliser),
            starts=jnp.asarray(problem.starts, jnp.float32),
            max_episode_cost=jnp.asarray(problem.max_episode_cost, jnp.float32),
            outcomes=outcomes[:, :-1],
            relative=outcomes[:, -1],
            held_out=jnp.zeros((2, k)),
            steps=jnp.zeros((), jnp.int32),
            actor_opt=adam.init(actor),
            models_opt=adam.init(models),
            critic_opt=adam.init(critic),
        )

    def update(
        self, config: DialConfig, state: DialState, batch: DialBatch, key: PRNGKeyArray
    ) -> tuple[DialState, Metrics]:
        for_jitter, for_dropout, for_targets = jax.random.split(key, 3)
        loss_pi, grad_pi = jax.value_and_grad(actor_loss)(state.actor, config, batch, for_jitter, for_dropout)
        (loss_models, held_out), grad_models = jax.value_and_grad(models_loss, has_aux=True)(
            state.models, config, state, batch
        )
        (_, losses), grad_critic = jax.value_and_grad(critic_loss, has_aux=True)(
            state.critic, config, state, batch, for_targets
        )
        slower = jnp.sqrt(jnp.minimum(1.0, config.decay / (state.steps + 1.0)))
        actor, actor_opt = adam_step(grad_pi, state.actor_opt, state.actor, slower * config.actor_rate)
        models, models_opt = adam_step(grad_models, state.models_opt, state.models, slower * config.model_rate)
        critic, critic_opt = adam_step(grad_critic, state.critic_opt, state.critic, slower * config.model_rate)
        rate = average_rates(config, state.steps)
        state = dataclasses.replace(
            state,
            actor=actor,
            average=polyak(state.average, actor, rate),
            models=models,
            models_average=polyak(state.models_average, models, rate),
            critic=critic,
            critic_target=polyak(state.critic_target, critic, jnp.maximum(config.target_rate, rate)),
            critic_average=polyak(state.critic_average, critic, rate),
            held_out=state.held_out + rate * (held_out - state.held_out),
            steps=state.steps + 1,
            actor_opt=actor_opt,
            models_opt=models_opt,
            critic_opt=critic_opt,
        )
        return state, {"actor_loss": loss_pi, "model_loss": loss_models / MEMBERS, **losses}

    def policy(self, config: DialConfig, state: DialState) -> DialPolicy:
        """The network, and what each of its settings is predicted to return and to cost."""
        network, largest = mode_policy(state.average), np.asarray(state.max_episode_cost)
        targets, uncapped = settings(largest, config.relative_returns, config.cost_caps)
        outcomes = np.asarray(state.outcomes)
        probed = probes(outcomes, np.asarray(state.relative))
        both = targets.followed_by(probed.targets)
        plain = np.concatenate([uncapped, np.ones(len(probed.outcomes), bool)])
        model, drawn = by_rollouts(config, state, both, plain)
        critic, exceeded = by_critic(state, both)
        chosen = select(targets, uncapped, model, critic, outcomes, probed, too_early(config, state))
        kept = tails(targets, uncapped, drawn, exceeded, largest, chosen, outcomes, probed).rows(chosen.kept)
        rollouts, starts, confidence = drawn.cost.shape[1], len(state.starts), float(config.confidence)
        return DialPolicy(
            network.weights,
            network.biases,
            float(config.horizon),
            largest,
            tuple(float(limit) for limit in config.cost_limit),
            *targets.rows(chosen.kept),
            reward=chosen.reward,
            bound=chosen.bound / np.float32(config.margin),
            mean_cost=chosen.cost,
            discrete=network.discrete,
            **kept._asdict(),
            share_bound=np.minimum(share_bounds(rollouts, starts, confidence) / np.float32(config.margin), 1),
            error_factor=error_factor(rollouts, starts, confidence),
            margin=float(config.margin),
            from_every_start=config.from_every_start,
        )


def actor_loss(
    actor: LikelihoodActor, config: DialConfig, batch: DialBatch, for_jitter: PRNGKeyArray, for_dropout: PRNGKeyArray
) -> Array:
    """−E[w log π(a | s, z)], w ∝ e^{φq} of mean 1; z with a little noise."""
    given = batch.condition + config.jitter * jax.random.normal(for_jitter, batch.condition.shape)
    inputs = jnp.concatenate([batch.transitions.obs, given], -1)
    w = jnp.exp(config.focus * (batch.condition[:, 0] - 1))
    if config.dropout:
        actor = type(actor)(Dropout(actor.mlp, masks(for_dropout, config, len(inputs))))  # type: ignore[arg-type]
    log_prob = actor.unclipped_log_prob(inputs, batch.transitions.action)
    loss: Array = -(w / w.mean() * log_prob).mean()
    return loss


def models_loss(
    models: MixtureModel, config: DialConfig, state: DialState, batch: DialBatch
) -> tuple[Array, Float[Array, "2 K"]]:
    """Σ over the models, each on rows of its own, [M, b]: together they see all of the batch.

    And the mean cost of those rows that their model does not learn from: as it expects it, and as it was.
    """
    data, members = batch.transitions, np.arange(MEMBERS)[:, None]
    own = (members * len(batch.fold) // MEMBERS + np.arange(config.model_batch)) % len(batch.fold)
    learns = (batch.fold[own] != members).astype(jnp.float32)
    step = ModelStep(data.next_obs, data.reward, data.cost, 1 - data.not_done)
    rows = jax.tree.map(lambda x: x[own], (data.obs, data.action, step))

    def of_model(model: MixtureModel, some: Any, w: Array) -> tuple[Array, Array]:
        obs, action, step = some
        return model.loss(state.normaliser, obs, action, step, w), model.expected_cost(state.normaliser, obs, action)

    losses, expected = jax.vmap(of_model)(models, rows, learns)
    held_out = (1 - learns) / jnp.maximum((1 - learns).sum(), 1)
    costs = jnp.stack([expected, rows[2].cost])  # [2, M, b, K]
    return losses.sum(), jax.lax.stop_gradient((held_out[..., None] * costs).sum((1, 2)))


def critic_loss(
    critic: Critics, config: DialConfig, state: DialState, batch: DialBatch, key: PRNGKeyArray
) -> tuple[Array, Metrics]:
    """The backups of each row under a setting that is drawn for it; half of the rows with another amount spent.

    Of `CANDIDATES` settings the one under which π acts most like the log is taken: where values are asked for, π acts.
    The choice looks at state and action alone, never at what followed, so chance is averaged over as before.
    """
    count = min(config.critic_batch, len(batch.fold))
    data, given, logged = jax.tree.map(lambda x: x[:count], (batch.transitions, batch.condition, batch.spent))
    largest, keys = state.max_episode_cost, jax.random.split(key)
    targets, _ = settings(np.ones(len(largest), np.float32), config.relative_returns, config.cost_caps)
    drawn = jax.random.randint(keys[0], (CANDIDATES, count), 0, len(targets.relative_return))
    wished, target, cap = (jnp.asarray(table)[drawn] for table in targets)
    luck = jax.random.uniform(keys[1], (4, CANDIDATES, count, 1))
    wished = jnp.where(luck[0] < 0.5, wished[..., None], luck[1])  # what lies between the settings is asked as well
    spent = jnp.where(luck[2] < 0.5, logged, luck[3] * jnp.minimum(target, cap) * largest)
    obs, left = (jnp.broadcast_to(x, (CANDIDATES, *x.shape)) for x in (data.obs, given[:, 1:2]))
    every = Conditioned(obs, wished, target * largest, cap * largest, spent, left)
    apart = jnp.square(state.average.mode(every.inputs(largest)) - data.action).sum(-1)
    at: Conditioned = jax.tree.map(lambda x: x[apart.argmin(0), jnp.arange(count)], every)
    paid = jnp.concatenate([data.reward[:, None] / return_unit(state.outcomes), data.cost / largest], -1)
    step = 1 / jnp.asarray(config.horizon, jnp.float32)
    backup = Backup.of(at, data.action, paid, data.next_obs, data.not_done, largest, step)
    mean = fqe_loss(critic.mean, state.critic_target.mean, state.average, backup, largest)
    tail = tail_loss(critic.tail, state.critic_target.tail, state.average, backup, largest)
    return mean + tail, {"critic_loss": mean, "tail_loss": tail}


def too_early(config: DialConfig, state: DialState) -> NDArray[np.bool_]:
    """Whether the training is too short for any statement on a cost, [K].

    A backup travels one step of an episode while the target network moves by its whole distance, Σ rate = 1.
    """
    expected, logged = np.asarray(state.held_out)
    travelled = np.maximum(config.target_rate, average_rates(config, np.arange(int(state.steps)))).sum()
    return np.asarray((np.abs(expected - logged) > FAILED * logged) | (travelled < config.horizon))


def average_rates(config: DialConfig, steps: Any) -> Any:
    """Of the moving averages, after so many steps: over about the last tenth of them."""
    return jnp.maximum(config.average_rate, 10 / (10 + steps))


def masks(key: PRNGKeyArray, config: DialConfig, rows: int) -> list[Array]:
    """For every hidden layer which units stay, from one draw of random bits."""
    share = 1 - config.dropout
    drawn = jax.random.uniform(key, (-(-rows // config.rows_a_mask), sum(config.hidden))) < share
    drawn = jnp.tile(drawn, (config.rows_a_mask, 1))[:rows]
    edges = np.cumsum(config.hidden)[:-1].tolist()
    return [part / share for part in jnp.split(drawn.astype(jnp.float32), edges, axis=1)]


def condition(
    relative: NDArray[Any], time_left: NDArray[Any], to_go: NDArray[Any], whole: NDArray[Any], largest: NDArray[Any]
) -> NDArray[np.float32]:
    """What π is told besides the state, [N, 2 + 8K]: q and time left [N], costs to go and whole [N, K]."""
    numbers = np.stack([relative, time_left], -1)
    budgets = [DialPolicy.features(x, largest) for x in (to_go, whole)]
    return np.concatenate([numbers, *budgets], -1).astype(np.float32)

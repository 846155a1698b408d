"""COptiDICE: the best stationary distribution near the data's under an upper bound of its cost, then imitation of it.

    min_{ν,λ≥0}  (1−γ) E_{d₀}[ν(s)] + α E_D[ f*(e(s,a,s′)/α) ] + λ·κ,   e = r − λ·c + γ ν(s′) − ν(s)
    w = f*′(e/α) ≥ 0,   soft χ²: f*(y) = e^y − 1 for y < 0, y²/2 + y above
    cost bound     min_{χ,τ≥0}  τ log E_D[ exp(ℓ/τ) ] + τ ε,   ℓ = (1−γ) χ(s₀) + w (c + γ χ(s′) − χ(s))
    policy         maximise  E_D[ w log π(a|s) ]

λ is held against the bound: its gradient is κ minus the cost under the worst re-weighting of the data within KL ε.
docs/agents/coptidice.md says what `normalisation` does.
"""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from pdocrl.agents.base import (
    Agent,
    AgentConfig,
    Columns,
    DeviceTable,
    Learned,
    Metrics,
    Problem,
    Transitions,
    per_constraint,
    static,
)
from pdocrl.agents.common.numpy_policy import mode_policy
from pdocrl.data.dataset import Dataset
from pdocrl.nn.distributions import LikelihoodActor, likelihood_actor
from pdocrl.nn.mlp import MLP
from pdocrl.nn.multipliers import softplus_inverse
from pdocrl.nn.optim import adam_step
from pdocrl.policies.policy import MLPPolicy


class COptiDICEConfig(AgentConfig):
    """The benchmark's hyper-parameters."""

    actor_rate: float = 1e-4  # learning rate of π
    critic_rate: float = 1e-3  # of ν and χ
    multiplier_rate: float = 1e-4  # of the parameters of λ and τ
    multiplier_init: float = 1.0  # λ₀ and τ₀
    alpha: float = 0.5  # α: how much staying near the data is worth
    cost_epsilon: float = 0.01  # ε: KL radius of the cost's upper bound
    reward_scale: float = 0.1  # rewards are multiplied by this before anything else
    # rate: per-step cost against limit/horizon. published: against the discounted limit, which never binds
    normalisation: Literal["rate", "published"] = static("rate")  # what the weighted per-step cost is held against


class COptiDICEState(eqx.Module):
    """ν, χ, the parameters of λ and τ, and the extracted policy."""

    actor: LikelihoodActor
    nu: MLP
    chi: MLP
    scalars: Float[Array, "2 K"]  # before softplus: λ, τ
    actor_opt: optax.OptState
    nu_opt: optax.OptState
    chi_opt: optax.OptState
    scalars_opt: optax.OptState


class COptiDICE(Agent[COptiDICEConfig, COptiDICEState]):
    """Stationary distribution correction under a cost bound."""

    name = "coptidice"
    summary = "Corrects the data's state-action distribution under an upper bound of its cost, then imitates it."
    paper = "Lee et al., COptiDICE: Offline Constrained RL via Stationary Distribution Correction (ICLR 2022)"
    discrete_actions = True
    Config = COptiDICEConfig

    def columns(self, config: COptiDICEConfig, dataset: Dataset) -> Columns:
        return super().columns(config, dataset) | {"timeout": dataset.timeout}

    def batch(
        self, config: COptiDICEConfig, table: DeviceTable, rows: Int[Array, " B"], key: PRNGKeyArray
    ) -> Transitions:
        """After a time limit the next episode begins: s′ is a first state.

        Nothing was logged beyond a time limit, so ν there would be in the objective with a plus sign only: it falls
        without bound, and w shuns whatever leads to the end of an episode.
        """
        starts, taken = table.others["initial_obs"], table.take(rows)
        first = starts[jax.random.randint(key, (2, *rows.shape), 0, starts.shape[0])]
        cut = taken.pop("timeout")[:, None] > 0
        taken["next_obs"] = jnp.where(cut, first[1], taken["next_obs"])
        return Transitions(**taken, initial_obs=first[0])

    def init(self, config: COptiDICEConfig, problem: Problem, key: PRNGKeyArray) -> COptiDICEState:
        s, a, k = problem.obs_dim, problem.action_dim, problem.n_costs
        keys = jax.random.split(key, 3)
        actor = likelihood_actor(problem.discrete_actions).create(keys[0], s, a, config.hidden)
        nu, chi = MLP.create(keys[1], (s, *config.hidden, 1)), MLP.create(keys[2], (s, *config.hidden, k))
        scalars = jnp.broadcast_to(softplus_inverse(config.multiplier_init), (2, k))
        adam = optax.scale_by_adam()
        return COptiDICEState(
            actor=actor,
            nu=nu,
            chi=chi,
            scalars=scalars,
            actor_opt=adam.init(actor),
            nu_opt=adam.init(nu),
            chi_opt=adam.init(chi),
            scalars_opt=adam.init(scalars),
        )

    def update(
        self, config: COptiDICEConfig, state: COptiDICEState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[COptiDICEState, Metrics]:
        lam, tau = jax.nn.softplus(state.scalars)
        limit = cost_limit(config)
        reward = config.reward_scale * batch.reward - batch.cost @ lam
        not_done = config.gamma * batch.not_done

        def nu_loss(nu: MLP) -> tuple[Array, Array]:
            advantage = reward + not_done * nu(batch.next_obs)[:, 0] - nu(batch.obs)[:, 0]
            flow = (1 - config.gamma) * nu(batch.initial_obs)[:, 0]
            return jnp.mean(flow + config.alpha * conjugate(advantage / config.alpha)), advantage

        (nu_objective, advantage), nu_gradient = jax.value_and_grad(nu_loss, has_aux=True)(state.nu)
        w = ratio(advantage / config.alpha)  # [B]

        def chi_loss(chi: MLP) -> tuple[Array, Array]:
            residual = batch.cost + not_done[:, None] * chi(batch.next_obs) - chi(batch.obs)
            ell = (1 - config.gamma) * chi(batch.initial_obs) + w[:, None] * residual  # [B, K]
            logits = ell / tau
            return jnp.sum(tau * (jax.nn.logsumexp(logits, 0) - jnp.log(len(logits)))), logits

        (chi_objective, logits), chi_gradient = jax.value_and_grad(chi_loss, has_aux=True)(state.chi)
        worst = len(logits) * jax.nn.softmax(logits, 0)  # [B, K] the re-weighting of the bound, mean 1
        divergence = jnp.mean(worst * (jax.nn.log_softmax(logits, 0) + jnp.log(len(logits))), 0)
        bound = jnp.mean(worst * w[:, None] * batch.cost, 0)  # [K]

        def scalars_loss(scalars: Float[Array, "2 K"]) -> Array:
            lam, tau = jax.nn.softplus(scalars)
            objective: Array = lam @ (limit - bound) + tau @ (config.cost_epsilon - divergence)
            return objective

        def actor_loss(actor: LikelihoodActor) -> Array:
            return -jnp.mean(w * actor.log_prob(batch.obs, batch.action))

        scalars_gradient = jax.grad(scalars_loss)(state.scalars)
        actor_objective, actor_gradient = jax.value_and_grad(actor_loss)(state.actor)
        actor, actor_opt = adam_step(actor_gradient, state.actor_opt, state.actor, config.actor_rate)
        nu, nu_opt = adam_step(nu_gradient, state.nu_opt, state.nu, config.critic_rate)
        chi, chi_opt = adam_step(chi_gradient, state.chi_opt, state.chi, config.critic_rate)
        scalars, scalars_opt = adam_step(scalars_gradient, state.scalars_opt, state.scalars, config.multiplier_rate)
        metrics = {"nu_loss": nu_objective, "chi_loss": chi_objective, "actor_loss": actor_objective, "w": w.mean()}
        metrics |= per_constraint("lambda", lam) | per_constraint("tau", tau) | per_constraint("cost_bound", bound)
        metrics |= per_constraint("weighted_cost", w @ batch.cost / len(w))
        return COptiDICEState(
            actor=actor,
            nu=nu,
            chi=chi,
            scalars=scalars,
            actor_opt=actor_opt,
            nu_opt=nu_opt,
            chi_opt=chi_opt,
            scalars_opt=scalars_opt,
        ), metrics

    def policy(self, config: COptiDICEConfig, state: COptiDICEState) -> MLPPolicy:
        return mode_policy(state.actor)

    def learned(self, config: COptiDICEConfig, state: COptiDICEState) -> Learned:
        """ν, the value of the priced reward r − λ·c less the divergence, and λ as reward for a unit of cost."""
        lam = jax.nn.softplus(state.scalars[0])
        return Learned(v=lambda obs: state.nu(obs)[..., 0] / config.reward_scale, multipliers=lam / config.reward_scale)


def cost_limit(config: COptiDICEConfig) -> Float[Array, " K"]:
    """What the per-step cost E_D[w c] is held against.

    E_D[w c] is (1−γ) J_c, so the limit must be a rate. Published tables used the discounted sum of the rate over an
    episode, κ (1 − γᵀ)/(1 − γ): up to 1/(1−γ) times too large, so that λ only ever falls.
    """
    if config.normalisation == "rate":
        return config.cost_rate
    discounted: Array = config.cost_rate * (1 - config.gamma**config.horizon) / (1 - config.gamma)
    return discounted


def conjugate(y: Array) -> Array:
    """f*(y) of the soft χ² divergence; its derivative is `ratio`."""
    return jnp.where(y < 0, jnp.expm1(jnp.minimum(y, 0)), y**2 / 2 + y)


def ratio(y: Array) -> Array:
    """w = f*′(y): e^y below 0, y + 1 above."""
    return jnp.where(y < 0, jnp.exp(jnp.minimum(y, 0)), y + 1)

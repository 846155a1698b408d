"""One model of a step: what it costs and whether it ends, by chance, and then where it leads, a mixture around a mean.

    c_k ~ Categorical(softmax(h_k(x))) over the cost's levels,   x = (s, a, f(s, a))
    end ~ Bernoulli(sigmoid(e(x) + Σ_k u_k(x) 1[c_k > 0] + v_k(x) c_k / c_max))
    y = (s′ − s, r) / units = f(s, a) + δ_i(x, c, end) + σ_i(x, c, end) ε,   i ~ softmax(g(x, c, end)),   ε ~ N(0, 1)

With a `base`, f = θᵀφ(s, a, m) + left · network(s, a, m) with m the step before, and δ and σ are in units of what the
regression leaves; see `regression`. f is fitted by least squares, everything else by the likelihood of what followed.
Costs and the end come first, so that they come as often as they were logged whatever becomes of the density of y, and
the jump of the state that goes with a crash is drawn together with its cost; several costs of one step are independent
given x. What leaves no trace in the state is drawn as often as it was logged as well. A crash of one step in a hundred
is one rollout step in a hundred, not a hundredth of a crash in every step.
"""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from pdocrl.dynamics.normaliser import Normaliser
from pdocrl.dynamics.regression import FARTHEST, Regression
from pdocrl.nn.mlp import MLP

COMPONENTS = 4
LOG_STD = (-4.0, 1.0)  # of the noise of a component, in units of a change
APART, WIDE = 1.0, 1.5  # where components begin: spread of δ, and σ before its sigmoid
JUMP = 20.0  # in units of a change: an angle that wraps round is no change


class Step(eqx.Module):
    """What is known of B steps, or what was drawn of them."""

    next_obs: Float[Array, "B S"]
    reward: Float[Array, " B"]
    cost: Float[Array, "B K"]
    end: Float[Array, " B"]


class Luck(eqx.Module):
    """The random numbers of B steps."""

    component: Float[Array, " B"]
    noise: Float[Array, "B S+1"]
    cost: Float[Array, "B K"]
    end: Float[Array, " B"]

    @staticmethod
    def draw(key: PRNGKeyArray, rows: int, obs_dim: int, n_costs: int) -> Luck:
        keys = jax.random.split(key)
        uniform = jax.random.uniform(keys[0], (rows, 2 + n_costs))
        noise = jax.random.normal(keys[1], (rows, obs_dim + 1))
        return Luck(uniform[:, 0], noise, uniform[:, 2:], uniform[:, 1])


class Events(eqx.Module):
    """What B steps may cost, and whether they end the episode."""

    cost: Float[Array, "B K L"]  # log-probabilities of the levels
    end: Float[Array, "B 1+2K"]  # e, and what each cost adds: u, v

    def end_logit(self, known: Float[Array, "B 2K"]) -> Float[Array, " B"]:
        """Given which costs occurred, and how much of the largest."""
        return self.end[..., 0] + (self.end[..., 1:] * known).sum(-1)


class Components(eqx.Module):
    """The mixture around the mean at B steps whose costs and ends are known."""

    log_weight: Float[Array, "B I"]
    shift: Float[Array, "B I S+1"]  # δ
    log_std: Float[Array, "B I S+1"]


class MixtureModel(eqx.Module):
    """A distribution of what follows a state and an action."""

    mean: MLP  # f: (s, a) → y, or with a base (s, a, m) → what it leaves
    events: MLP  # x → h, e, u, v
    residual: MLP  # (x, c, end) → g, δ, σ
    base: Regression | None = None

    @staticmethod
    def create(
        key: PRNGKeyArray,
        obs_dim: int,
        action_dim: int,
        n_costs: int,
        levels: int,
        hidden: Sequence[int],
        base: Regression | None = None,
        drawn_hidden: Sequence[int] | None = None,
    ) -> MixtureModel:
        """Components begin far apart and wide, since of components that begin alike one ends up with all modes.

        `hidden` are the widths of f's layers, `drawn_hidden` those of what is drawn; the same unless given.
        """
        keys, y, x = jax.random.split(key, 4), obs_dim + 1, 2 * obs_dim + action_dim + 1
        x, memory = (x, 0) if base is None else (x + obs_dim, obs_dim + action_dim + 1)
        drawn_hidden = hidden if drawn_hidden is None else drawn_hidden
        residual = MLP.create(keys[2], (x + 2 * n_costs + 1, *drawn_hidden, COMPONENTS * (1 + 2 * y)))
        apart = APART * jax.random.normal(keys[3], (COMPONENTS, y)).at[0].set(0.0)
        first = jnp.concatenate([jnp.zeros((COMPONENTS, 1)), apart, jnp.full((COMPONENTS, y), WIDE)], -1)
        biases = (*residual.biases[:-1], residual.biases[-1] + first.reshape(-1))
        return MixtureModel(
            MLP.create(keys[0], (obs_dim + action_dim + memory, *hidden, y)),
            MLP.create(keys[1], (x, *drawn_hidden, n_costs * levels + 1 + 2 * n_costs)),
            MLP(residual.weights, biases),
            base,
        )

    def predicted_mean(
        self,
        normaliser: Normaliser,
        obs: Float[Array, "B S"],
        action: Float[Array, "B A"],
        memory: Float[Array, "B S+A+1"] | None = None,
    ) -> Float[Array, "B S+1"]:
        """f(s, a), or f(s, a, m) with a base."""
        if self.base is None or memory is None:
            return self.mean(jnp.concatenate([normaliser.standardised(obs), action], -1))
        rest = self.mean(self.mean_inputs(normaliser, obs, action, memory))
        return self.base(normaliser, obs, action, memory) + self.base.left * rest

    @staticmethod
    def mean_inputs(normaliser: Normaliser, obs: Array, action: Array, memory: Array) -> Array:
        """[..., 2 (S + A) + 1] what the network of f sees beside a base."""
        return jnp.concatenate([jnp.clip(normaliser.standardised(obs), -FARTHEST, FARTHEST), action, memory], -1)

    def inputs(self, normaliser: Normaliser, obs: Array, action: Array, mean: Array) -> Float[Array, "B X"]:
        """x. Beside a base also the next state's squares: limits on a speed or a distance are balls."""
        parts = [normaliser.standardised(obs), action, mean]
        if self.base is not None:
            after = normaliser.standardised(normaliser.after(obs, mean)[0])
            parts = [jnp.clip(parts[0], -FARTHEST, FARTHEST), *parts[1:]]
            parts.append(jnp.square(jnp.clip(after, -FARTHEST, FARTHEST)))
        return jnp.concatenate(parts, -1)

    def predicted_events(self, normaliser: Normaliser, x: Float[Array, "B X"]) -> Events:
        """h, e, u and v at x = (s, a, f(s, a))."""
        costs, levels = normaliser.levels.shape
        logits, end = jnp.split(self.events(x), [costs * levels], axis=-1)
        return Events(jax.nn.log_softmax(logits.reshape(*logits.shape[:-1], costs, levels)), end)

    def expected_cost(
        self, normaliser: Normaliser, obs: Float[Array, "B S"], action: Float[Array, "B A"]
    ) -> Float[Array, "B K"]:
        """E[c | s, a], without a base."""
        x = self.inputs(normaliser, obs, action, self.predicted_mean(normaliser, obs, action))
        share = jnp.exp(self.predicted_events(normaliser, x).cost)
        found: Array = (share * normaliser.levels).sum(-1)
        return found

    def components(self, x: Float[Array, "B X"], known: Float[Array, "B 2K"], end: Float[Array, " B"]) -> Components:
        """The mixture, given costs and ends."""
        out = self.residual(jnp.concatenate([x, known, end[..., None]], -1)).reshape(*x.shape[:-1], COMPONENTS, -1)
        weight, shift, raw = jnp.split(out, [1, 1 + (out.shape[-1] - 1) // 2], axis=-1)
        low, high = LOG_STD
        return Components(jax.nn.log_softmax(weight[..., 0]), shift, low + (high - low) * jax.nn.sigmoid(raw))

    def log_prob(
        self,
        normaliser: Normaliser,
        obs: Float[Array, "B S"],
        action: Float[Array, "B A"],
        step: Step,
        memory: Float[Array, "B S+A+1"] | None = None,
        explained: Float[Array, "B S+1"] | None = None,
    ) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
        """Joint log-density of what followed (y in its units), and the squared error of f, [B] each.

        With a base, `explained` is what it says of the rows, which is computed once.
        """
        y = normaliser.targets(obs, step.next_obs, step.reward)
        if self.base is None or memory is None or explained is None:
            y, rest = jnp.clip(y, -JUMP, JUMP), self.predicted_mean(normaliser, obs, action)
            mean = jax.lax.stop_gradient(rest)
        else:
            left = jax.lax.stop_gradient(self.base.left)
            y = jnp.clip((y - explained) / left, -JUMP, JUMP)
            rest = self.mean(self.mean_inputs(normaliser, obs, action, memory))
            mean = explained + left * jax.lax.stop_gradient(rest)
        x = self.inputs(normaliser, obs, action, mean)
        known = normaliser.known(step.cost)
        events, own = self.predicted_events(normaliser, x), self.components(x, known, step.end)
        z = ((y - jax.lax.stop_gradient(rest))[:, None] - own.shift) * jnp.exp(-own.log_std)
        density = (-0.5 * (z**2 + jnp.log(2 * jnp.pi)) - own.log_std).sum(-1)
        cost = jnp.take_along_axis(events.cost, normaliser.level_of(step.cost)[..., None], -1).sum((-2, -1))
        logit = events.end_logit(known)
        end = jax.nn.log_sigmoid(jnp.where(step.end > 0, logit, -logit))
        return cost + end + jax.nn.logsumexp(own.log_weight + density, axis=-1), ((rest - y) ** 2).mean(-1)

    def loss(
        self,
        normaliser: Normaliser,
        obs: Float[Array, "B S"],
        action: Float[Array, "B A"],
        step: Step,
        weight: Array | float = 1.0,
        memory: Float[Array, "B S+A+1"] | None = None,
        explained: Float[Array, "B S+1"] | None = None,
    ) -> Array:
        """Squared error of f and negative log-likelihood of the mixture; rows count by `weight` [B]."""
        log_prob, error = self.log_prob(normaliser, obs, action, step, memory, explained)
        return (weight * (error - log_prob)).mean()

    def draw(
        self,
        normaliser: Normaliser,
        obs: Float[Array, "B S"],
        action: Float[Array, "B A"],
        mean: Float[Array, "B Y"],
        luck: Luck,
        noise: Array | float = 1.0,
    ) -> Step:
        """What follows, around a mean that may be an ensemble's; of each component's spread the share `noise`."""
        x = self.inputs(normaliser, obs, action, mean)
        events = self.predicted_events(normaliser, x)
        level = _drawn(jnp.exp(events.cost), luck.cost)
        cost = jnp.take_along_axis(normaliser.levels[None], level[..., None], -1)[..., 0]
        known = normaliser.known(cost)
        end = (luck.end < jax.nn.sigmoid(events.end_logit(known))).astype(jnp.float32)
        own = self.components(x, known, end)
        chosen = _drawn(jnp.exp(own.log_weight), luck.component)[:, None, None]
        shift, log_std = (jnp.take_along_axis(part, chosen, 1)[:, 0] for part in (own.shift, own.log_std))
        around = shift + noise * jnp.exp(log_std) * luck.noise
        next_obs, reward = normaliser.after(obs, mean + (around if self.base is None else self.base.left * around))
        return Step(next_obs, reward, cost, end)


def _drawn(probability: Float[Array, "... I"], uniform: Float[Array, " ..."]) -> Array:
    """The index that a uniform number draws."""
    below = (jnp.cumsum(probability, -1)[..., :-1] < uniform[..., None]).sum(-1)
    return below

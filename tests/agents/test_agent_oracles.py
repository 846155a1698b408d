"""One step of every agent against losses written again in float64 NumPy: values, and gradients by central differences.

The gradient an agent used is read from its optimiser: after a first step of Adam the first moment is (1 − β₁) ∇.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from pdocrl.agents.base import Problem, Transitions, make_config
from pdocrl.agents.registry import find_agent
from pdocrl.nn.mlp import normals
from pdocrl.nn.transformer import Windows

S, A, K, B, N, GAMMA = 3, 2, 2, 16, 4, 0.9
PROBLEM = Problem(S, A, K, frontier=((1.0, 0.0, 0.0), (2.0, 3.0, 1.0)))
COMMON = {"hidden": (8, 8), "batch_size": B, "cost_limit": (3.0, 6.0), "horizon": 20.0, "gamma": GAMMA}
RATE = np.array([3.0, 6.0]) / 20
KEY = jax.random.key(7)
Loss = Callable[[Any], float]


def random_batch(seed: int = 0) -> Transitions:
    rng = np.random.default_rng(seed)
    return Transitions(
        *(
            jnp.asarray(x, jnp.float32)
            for x in (
                rng.normal(size=(B, S)),
                rng.uniform(-1.3, 1.3, (B, A)).clip(-1, 1),
                rng.normal(size=B),
                rng.random((B, K)),
                rng.normal(size=(B, S)),
                rng.random(B) < 0.7,
                rng.normal(size=(B, S)),
            )
        )
    )


def double(tree: Any) -> Any:
    return jax.tree.map(lambda a: np.asarray(a, np.float64), tree)


def mlp(net: Any, x: np.ndarray) -> np.ndarray:
    for weight, bias in zip(net.weights[:-1], net.biases[:-1], strict=True):
        x = np.maximum(x @ weight + bias, 0)
    return x @ net.weights[-1] + net.biases[-1]


def pair(*arrays: np.ndarray) -> np.ndarray:
    return np.concatenate(arrays, -1)


def gaussian(actor: Any, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean, log_std = np.split(mlp(actor.mlp, obs), 2, -1)
    return mean, np.exp(np.clip(log_std, -5, 2))


def log_density(actor: Any, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Of clip(N(tanh m, σ²), −1, 1): a density inside, a mass at ±1."""
    mean, raw = np.split(mlp(actor.mlp, obs), 2, -1)
    latent = norm(np.tanh(mean), np.exp(-3 + 3.5 / (1 + np.exp(-raw))))
    inside = np.abs(action) < 1
    return np.where(inside, latent.logpdf(action), np.where(action > 0, latent.logsf(1), latent.logcdf(-1))).sum(-1)


def latent_kl(vae: Any, obs: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    mean, log_std = np.split(mlp(vae.encoder, pair(obs, action)), 2, -1)
    var = np.exp(2 * np.clip(log_std, -4, 15))
    return mean, np.sqrt(var), 0.5 * (mean**2 + var - 1 - np.log(var)).mean(-1)


def vae_loss(vae: Any, b: Any, noise: np.ndarray) -> float:
    mean, std, kl = latent_kl(vae, b.obs, b.action)
    rebuilt = np.tanh(mlp(vae.decoder, pair(b.obs, mean + std * noise)))
    return ((rebuilt - b.action) ** 2).mean() + 0.5 * kl.mean()


def td_loss(target: np.ndarray, b: Any) -> Loss:
    """Sum over the twins of the mean squared error; `target` is [B] or [B, K]."""

    def loss(critic: Any) -> float:
        q = mlp(critic.mlp, pair(b.obs, b.action))
        return float(((q - target.reshape(B, -1)) ** 2).mean(1).sum())

    return loss


def mixed(critic: Any, cost_critic: Any, obs: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    q, c = mlp(critic.mlp, pair(obs, action))[..., 0], mlp(cost_critic.mlp, pair(obs, action))
    return 0.75 * q.min(0) + 0.25 * q.max(0), 0.75 * c.max(0) + 0.25 * c.min(0)


def best_of(critic: Any, costs: Any, lam: np.ndarray, obs: np.ndarray, actions: np.ndarray) -> tuple[Any, Any]:
    """Values of the best of N actions per state, one state at a time."""
    chosen = []
    for i in range(B):
        q, c = mixed(critic, costs, np.tile(obs[i], (N, 1)), actions[:, i])
        best = np.argmax(q - c @ lam)
        chosen.append((q[best], c[best]))
    return np.array([q for q, _ in chosen]), np.array([c for _, c in chosen])


def check(new: Any, old: Any, metrics: Any, players: dict[str, tuple[str, str | None, Loss]]) -> None:
    """{player: (its optimiser, the metric that holds its loss, its loss in float64)}."""
    rng = np.random.default_rng(1)
    for player, (optimiser, metric, loss) in players.items():
        here = double(attrgetter(player)(old))
        if metric is not None:
            np.testing.assert_allclose(metrics[metric], loss(here), rtol=1e-5, atol=1e-6, err_msg=player)
        gradient = jax.tree.map(lambda m: m / 0.1, double(attrgetter(optimiser)(new).mu))
        size = np.sqrt(sum((g**2).sum() for g in jax.tree.leaves(gradient)))
        assert size > 0, player
        for _ in range(4):
            way = jax.tree.map(lambda a: rng.normal(size=a.shape), here)
            ahead, behind = (loss(jax.tree.map(lambda a, d, h=h: a + h * d, here, way)) for h in (1e-6, -1e-6))
            slope = sum((g * d).sum() for g, d in zip(jax.tree.leaves(gradient), jax.tree.leaves(way), strict=True))
            assert abs((ahead - behind) / 2e-6 - slope) <= 1e-5 * size, player


def one_step(name: str, batch: Any, problem: Problem = PROBLEM, **settings: Any) -> tuple[Any, Any, Any]:
    """State after, state before, metrics. Multipliers start away from zero, so that every term counts."""
    agent = find_agent(name)
    config = make_config(agent, **{**COMMON, **settings})
    state = jax.jit(lambda key: agent.init(config, problem, key))(jax.random.key(3))
    if not name.startswith("pdocrl") and hasattr(state, "multiplier"):
        state = eqx.tree_at(lambda s: s.multiplier.lam, state, jnp.array([0.7, 0.2]))
    if hasattr(state, "alpha"):
        state = eqx.tree_at(lambda s: s.alpha.lam, state, jnp.array([0.1, 0.05]))
    new, metrics = jax.jit(lambda state, batch, key: agent.update(config, state, batch, key))(state, batch, KEY)
    return new, state, metrics


def test_bc() -> None:
    batch = random_batch()
    new, old, metrics = one_step("bc", batch)
    b = double(batch)
    loss = lambda actor: float(((np.tanh(mlp(actor, b.obs)) - b.action) ** 2).mean())  # noqa: E731
    check(new, old, metrics, {"actor": ("actor_opt", "actor_loss", loss)})


@pytest.mark.parametrize("among", ["policy", "data"])
def test_cpq(among: str) -> None:
    batch = random_batch()
    tight = (-0.76, 0.4)  # of the size of untrained critics, so that some actions count as safe and some do not
    settings = {"samples": N, "vae_hidden": (8,), "reward_scale": 0.3, "cost_limit": tight, "ood_among": among}
    new, old, metrics = one_step("cpq", batch, **settings)
    b, o, limit = double(batch), double(old), np.array(tight) / 20 / (1 - GAMMA)
    noise = double(normals(KEY, (B, A), (B, A), (N, B, A), (B, 2 * A)))

    def act(actor: Any, obs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        mean, std = gaussian(actor, obs)
        return np.tanh(mean + std * noise)

    def value(critic: Any, costs: Any, obs: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Q_r where all of Q_c is within the limit, else 0; and Q_c."""
        cost = mlp(costs.mlp, pair(obs, action)).max(0)
        return np.where((cost <= limit).all(1), mlp(critic.mlp, pair(obs, action))[..., 0].min(0), 0), cost

    next_q, next_cost = value(o.target, o.cost_target, b.next_obs, act(o.actor, b.next_obs, noise[0]))
    many = np.tile(b.obs, (N, 1))
    tried = act(o.actor, many, noise[2].reshape(N * B, A))
    kl = latent_kl(o.vae, many, tried)[2]
    unknown = kl >= np.quantile(kl if among == "policy" else latent_kl(o.vae, b.obs, b.action)[2], 0.75)
    assert 0 < unknown.mean() < 1

    def cost_loss(critic: Any) -> float:
        td = td_loss(b.cost + GAMMA * b.not_done[:, None] * next_cost, b)(critic)
        ood = mlp(critic.mlp, pair(many, tried)).mean(0)[unknown].mean(0)
        return td - o.alpha.lam @ (ood - 1.5 * limit)

    def actor_loss(actor: Any) -> float:
        return -value(o.critic, o.cost_critic, b.obs, act(actor, b.obs, noise[1]))[0].mean()

    assert 0 < (next_q == 0).mean() < 1
    check(
        new,
        old,
        metrics,
        {
            "critic": ("critic_opt", "critic_loss", td_loss(0.3 * b.reward + GAMMA * b.not_done * next_q, b)),
            "cost_critic": ("cost_opt", "cost_loss", cost_loss),
            "actor": ("actor_opt", "actor_loss", actor_loss),
            "vae": ("vae_opt", "vae_loss", lambda vae: vae_loss(vae, b, noise[3])),
        },
    )
    ood = mlp(o.cost_critic.mlp, pair(many, tried)).mean(0)[unknown].mean(0)
    np.testing.assert_allclose(new.alpha.lam, np.clip(o.alpha.lam + 1e-4 * (1.5 * limit - ood), 0, 0.2), atol=1e-6)


def test_coptidice() -> None:
    batch = random_batch()
    new, old, metrics = one_step("coptidice", batch, reward_scale=0.3)
    b, o = double(batch), double(old)
    lam, tau = np.log1p(np.exp(o.scalars))

    def ratio_and_error(nu: Any) -> tuple[np.ndarray, np.ndarray]:
        v, after = mlp(nu, b.obs)[:, 0], mlp(nu, b.next_obs)[:, 0]
        error = 0.3 * b.reward - b.cost @ lam + GAMMA * b.not_done * after - v
        return np.where(error < 0, np.exp(np.minimum(error / 0.5, 0)), error / 0.5 + 1), error

    def nu_loss(nu: Any) -> float:
        w, error = ratio_and_error(nu)  # written with f itself: max_w of w e − α f(w)
        f = np.where(w < 1, w * np.log(w) - w + 1, (w - 1) ** 2 / 2)
        return ((1 - GAMMA) * mlp(nu, b.initial_obs)[:, 0] + w * error - 0.5 * f).mean()

    w = ratio_and_error(o.nu)[0]

    def ell(chi: Any) -> np.ndarray:
        flow = b.cost + GAMMA * b.not_done[:, None] * mlp(chi, b.next_obs) - mlp(chi, b.obs)
        return (1 - GAMMA) * mlp(chi, b.initial_obs) + w[:, None] * flow

    tilt = np.exp(ell(o.chi) / tau)
    tilt /= tilt.mean(0)
    bound, divergence = (tilt * w[:, None] * b.cost).mean(0), (tilt * np.log(tilt)).mean(0)
    np.testing.assert_allclose([metrics["cost_bound_0"], metrics["cost_bound_1"]], bound, rtol=1e-5)

    def scalars_loss(scalars: np.ndarray) -> float:
        prices = np.log1p(np.exp(scalars))
        return float(prices[0] @ (RATE - bound) + prices[1] @ (0.01 - divergence))

    check(
        new,
        old,
        metrics,
        {
            "nu": ("nu_opt", "nu_loss", nu_loss),
            "chi": ("chi_opt", "chi_loss", lambda chi: (tau * np.log(np.exp(ell(chi) / tau).mean(0))).sum()),
            "scalars": ("scalars_opt", None, scalars_loss),
            "actor": ("actor_opt", "actor_loss", lambda actor: -(w * log_density(actor, b.obs, b.action)).mean()),
        },
    )


def pid(old: Any, violation: np.ndarray) -> np.ndarray:
    """λ after one step of a controller that starts from rest."""
    return 0.1 * np.maximum(violation, 0) + 0.003 * np.maximum(violation, 0) + 0.001 * np.maximum(violation, 0)


def test_bcq_lag() -> None:
    batch = random_batch()
    new, old, metrics = one_step("bcq_lag", batch, samples=N, vae_hidden=(8,), reward_scale=0.3, perturbation=0.2)
    b, o = double(batch), double(old)
    lam = o.multiplier.lam
    noise = double(normals(KEY, (B, 2 * A), (N, B, 2 * A), (B, 2 * A)))

    def propose(actor: Any, obs: np.ndarray, z: np.ndarray) -> np.ndarray:
        action = np.tanh(mlp(o.vae.decoder, pair(obs, np.clip(z, -0.5, 0.5))))
        return np.clip(action + 0.2 * np.tanh(mlp(actor, pair(obs, action))), -1, 1)

    candidates = np.stack([propose(o.actor_target, b.next_obs, z) for z in noise[1]])
    next_q, next_cost = best_of(o.target, o.cost_target, lam, b.next_obs, candidates)

    def actor_loss(actor: Any) -> float:
        q, cost = mixed(o.critic, o.cost_critic, b.obs, propose(actor, b.obs, noise[2]))
        return -(q - cost @ lam).mean()

    check(
        new,
        old,
        metrics,
        {
            "critic": ("critic_opt", "critic_loss", td_loss(0.3 * b.reward + GAMMA * b.not_done * next_q, b)),
            "cost_critic": ("cost_opt", "cost_loss", td_loss(b.cost + GAMMA * b.not_done[:, None] * next_cost, b)),
            "actor": ("actor_opt", "actor_loss", actor_loss),
            "vae": ("vae_opt", "vae_loss", lambda vae: vae_loss(vae, b, noise[0])),
        },
    )
    np.testing.assert_allclose(new.multiplier.lam, pid(o, next_cost.mean(0) - RATE / (1 - GAMMA)), atol=1e-6)


@pytest.mark.parametrize(("kernel", "normalised"), [("gaussian", False), ("laplacian", True)])
def test_bear_lag(kernel: str, normalised: bool) -> None:
    batch = random_batch()
    settings = {"samples": N, "vae_hidden": (8,), "reward_scale": 0.3, "kernel_width": 2.0, "kernel": kernel}
    new, old, metrics = one_step("bear_lag", batch, **settings, normalised=normalised)
    b, o = double(batch), double(old)
    lam = o.multiplier.lam
    noise = double(normals(KEY, (B, 2 * A), (N, B, A), (N, B, A), (N, B, 2 * A)))
    mean, std = gaussian(o.actor_target, b.next_obs)
    next_q, next_cost = best_of(o.target, o.cost_target, lam, b.next_obs, np.tanh(mean + std * noise[1]))
    data = np.stack([mlp(o.vae.decoder, pair(b.obs, np.clip(z, -0.5, 0.5))) for z in noise[3]])

    def mmd(x: np.ndarray, y: np.ndarray) -> float:
        def similarity(p: np.ndarray, q: np.ndarray) -> float:
            apart = (p - q) ** 2 if kernel == "gaussian" else np.abs(p - q)
            return float(np.exp(-apart.sum() / (2 * 2.0)))

        gaps = []
        for i in range(B):
            similar = [[np.mean([similarity(p, q) for p in u[:, i] for q in v[:, i]]) for u in (x, y)] for v in (x, y)]
            gaps.append(np.sqrt(similar[0][0] + similar[1][1] - 2 * similar[0][1] + 1e-6))
        return float(np.mean(gaps))

    def actor_loss(actor: Any) -> float:
        mean, std = gaussian(actor, b.obs)
        raw = mean + std * noise[2]
        q, cost = mixed(o.critic, o.cost_critic, b.obs, np.tanh(raw[0]))
        gain = (q - cost @ lam).mean() / (1 + lam.sum() if normalised else 1)
        return np.exp(o.log_alpha) * (mmd(raw, data) - 0.05) - gain

    check(
        new,
        old,
        metrics,
        {
            "critic": ("critic_opt", "critic_loss", td_loss(0.3 * b.reward + GAMMA * b.not_done * next_q, b)),
            "cost_critic": ("cost_opt", "cost_loss", td_loss(b.cost + GAMMA * b.not_done[:, None] * next_cost, b)),
            "actor": ("actor_opt", "actor_loss", actor_loss),
            "vae": ("vae_opt", "vae_loss", lambda vae: vae_loss(vae, b, noise[0])),
        },
    )


@pytest.mark.parametrize("name", ["cdt", "b2r"])
def test_transformers(name: str) -> None:
    """B2R's turns by the place in the window without its padding: only distances count."""
    length, heads, width = 3, 2, 8
    rng = np.random.default_rng(2)
    mask = (np.arange(length) >= rng.integers(0, length, (B, 1))) * 1.0
    f32 = lambda x: jnp.asarray(x, jnp.float32)  # noqa: E731
    windows = Windows(
        f32(rng.normal(size=(B, length))),
        f32(rng.normal(size=(B, length, K))),
        f32(rng.normal(size=(B, length, S))),
        f32(rng.uniform(-1, 1, (B, length, A))),
        jnp.asarray(rng.integers(0, 9, (B, length)), jnp.int32),
        f32(mask),
    )
    costly = rng.random((B, length, K)) < 0.5
    new, old, metrics = one_step(
        name,
        (windows, f32(costly)),
        context=length,
        embedding=width,
        heads=heads,
        layers=1,
        dropout=0.0,
        clip=1e9,
        cost_weight=0.5,
        **({"times": 5} if name == "cdt" else {}),
    )
    v = double(windows)

    def turned(x: np.ndarray) -> np.ndarray:
        """Pairs of numbers as complex ones, turned by the token's number over 10,000^(2j/width)."""
        turn = np.exp(1j * np.outer(np.arange(len(x)), 10_000.0 ** (-np.arange(0, width, 2) / width)))
        z = (x[:, 0::2] + 1j * x[:, 1::2]) * turn
        return np.stack([z.real, z.imag], -1).reshape(x.shape)

    def forward(p: dict[str, np.ndarray], i: int, t: int) -> tuple[np.ndarray, np.ndarray]:
        """Action head and cost head of step t of window i, from its tokens alone: no padding, no batch, no mask."""
        first = int(length - mask[i].sum())
        affine = lambda name, x: x @ p[f"{name}/weight"] + p[f"{name}/bias"]  # noqa: E731

        def norm(name: str, x: np.ndarray) -> np.ndarray:
            x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
            return x * p[f"{name}/scale"] + p[f"{name}/bias"]

        tokens = []
        for u in range(first, t + 1):
            when = p["time"][min(int(v.time[i, u]), 4)] if name == "cdt" else 0.0
            inputs = {"returns": v.returns[i, u : u + 1], "costs": v.costs[i, u], "obs": v.obs[i, u]}
            tokens += [affine(name, x) + when for name, x in {**inputs, "action": v.action[i, u]}.items()]
        x = norm("embedding_norm", np.stack(tokens))
        q, k, value = np.split(affine("block_0/qkv", norm("block_0/norm_1", x)), 3, -1)
        if name == "b2r":
            q, k = turned(q), turned(k)
        mixed = np.zeros_like(x)
        for h in range(heads):
            part = slice(h * width // heads, (h + 1) * width // heads)
            for n in range(len(x)):
                score = np.exp(k[: n + 1, part] @ q[n, part] / np.sqrt(width / heads))
                mixed[n, part] = score / score.sum() @ value[: n + 1, part]
        x = x + affine("block_0/out", mixed)
        hidden = affine("block_0/up", norm("block_0/norm_2", x))
        hidden = 0.5 * hidden * (1 + np.tanh(np.sqrt(2 / np.pi) * (hidden + 0.044715 * hidden**3)))
        x = norm("last_norm", x + affine("block_0/down", hidden))
        return affine("action_head", x[-2]), affine("cost_head", x[-1])

    def loss(model: Any) -> float:
        total, steps = 0.0, 0
        for i, t in zip(*np.nonzero(mask), strict=True):
            head, logits = forward(model.arrays, i, t)
            mean, log_std = head[:A], -5 + 7 * (np.tanh(head[A:]) + 1) / 2
            z = (v.action[i, t] - mean) / np.exp(log_std)
            likelihood = (-0.5 * z**2 - 0.5 * np.log(2 * np.pi) - log_std).mean()
            entropy = (0.5 * np.log(2 * np.pi * np.e) + log_std).mean()
            surprise = np.log1p(np.exp(np.where(costly[i, t], -logits, logits))).mean()
            total += -(likelihood + 0.1 * entropy) + 0.5 * surprise
            steps += 1
        return total / steps

    check(new, old, metrics, {"model": ("model_opt", "actor_loss", loss)})


def test_pdocrl_extraction() -> None:
    """π copies clipped actions by their own likelihood, weighted by w; V and w play the saddle point."""
    batch = random_batch()
    new, old, metrics = one_step("pdocrl_extraction", batch, reward_scale=0.3)
    b, o = double(batch), double(old)
    reward = 0.3 * b.reward - b.cost @ double(old.multiplier.lam)

    def ratio(weight: Any) -> np.ndarray:
        return np.minimum(np.logaddexp(0, mlp(weight, pair(b.obs, b.action))[:, 0]), 10)

    w = ratio(o.weight)
    backup = reward + GAMMA * b.not_done * mlp(o.target, b.next_obs)[..., 0].min(0)
    residual = backup - mlp(o.critic, b.obs)[..., 0].min(0)
    check(
        new,
        old,
        metrics,
        {
            "weight": ("weight_opt", None, lambda net: -float((ratio(net) * residual).mean())),
            "critic": (
                "critic_opt",
                "critic_loss",
                lambda net: float((w * (backup - mlp(net, b.obs)[..., 0]) ** 2).mean(-1).sum()),
            ),
            "actor": ("actor_opt", "actor_loss", lambda net: -float((w * log_density(net, b.obs, b.action)).mean())),
        },
    )


def test_pdocrl() -> None:
    """As the paper has it: (1 − done) ends the bootstrap, π ascends the flow of w, λ the violation under w."""
    batch = random_batch()
    new, old, metrics = one_step("pdocrl", batch, reward_scale=0.3, multiplier_init=0.5)
    b, o, lam = double(batch), double(old), double(old.multiplier.lam)
    noise = double(jax.random.normal(KEY, (2 * B, A)))

    def smaller(critic: Any, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
        return mlp(critic.mlp, pair(obs, action))[..., 0].min(0)

    def acted(actor: Any) -> tuple[np.ndarray, np.ndarray]:
        mean, std = gaussian(actor, np.concatenate([b.obs, b.next_obs]))
        here, there = np.split(np.tanh(mean + std * noise), 2)
        return here, there

    def ratio(weight: Any) -> np.ndarray:
        return np.minimum(np.logaddexp(0, mlp(weight, pair(b.obs, b.action))[:, 0]), 10)

    w, (_, next_action) = ratio(o.weight), acted(o.actor)
    y = 0.3 * b.reward - b.cost @ lam + GAMMA * b.not_done * smaller(o.target, b.next_obs, next_action)
    residual = y - smaller(o.critic, b.obs, b.action)

    def critic_loss(critic: Any) -> float:
        return float((w * (y - mlp(critic.mlp, pair(b.obs, b.action))[..., 0]) ** 2).mean(-1).sum())

    def actor_loss(actor: Any) -> float:
        here, there = acted(actor)
        future = GAMMA * b.not_done * w * smaller(o.critic, b.next_obs, there)
        return -float(((1 - GAMMA) * smaller(o.critic, b.obs, here) + future).mean())

    losses = {
        "weight": ("weight_opt", None, lambda weight: -float((ratio(weight) * residual).mean())),
        "critic": ("critic_opt", "critic_loss", critic_loss),
        "actor": ("actor_opt", "actor_loss", actor_loss),
    }
    check(new, old, metrics, losses)
    slope = double(new.multiplier_opt.mu.raw) / 0.1
    expected = -(w @ b.cost / B - RATE) / (1 + np.exp(-double(old.multiplier.raw)))
    np.testing.assert_allclose(slope, expected, rtol=1e-4)


def published_losses(batch: Transitions, **settings: Any) -> tuple[Any, Any, Any, dict[str, Any]]:
    """After, before and metrics of one step as published, and each player's loss; those before it have moved."""
    new, old, metrics = one_step("pdocrl", batch, published=True, reward_scale=0.3, multiplier_init=0.5, **settings)
    b, o, n, lam = double(batch), double(old), double(new), 0.5
    keys = jax.random.split(KEY, 4)

    def act(actor: Any, obs: np.ndarray, key: Any) -> np.ndarray:
        mean, std = gaussian(actor, obs)
        return np.tanh(mean + std * double(jax.random.normal(key, (B, A))))

    def smaller(critic: Any, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
        return mlp(critic.mlp, pair(obs, action))[..., 0].min(0)

    def backup(key: Any) -> np.ndarray:
        future = smaller(o.target, b.next_obs, act(o.actor, b.next_obs, key))
        return 0.3 * b.reward - lam * b.cost.sum(1) + GAMMA * b.not_done * future

    def ratio(weight: Any) -> np.ndarray:
        return np.minimum(np.logaddexp(0, mlp(weight, pair(b.obs, b.action))[:, 0]), 10)

    residual, y, w = backup(keys[0]) - smaller(o.critic, b.obs, b.action), backup(keys[1]), ratio(n.weight)

    def critic_loss(critic: Any) -> float:
        return float((w * (mlp(critic.mlp, pair(b.obs, b.action))[..., 0] - y) ** 2).mean(-1).sum())

    def actor_loss(actor: Any) -> float:
        here = smaller(n.critic, b.obs, act(actor, b.obs, keys[2]))
        there = smaller(n.critic, b.next_obs, act(actor, b.next_obs, keys[3]))
        return -float((1 - GAMMA) * here.mean() + GAMMA * (w * there).mean())

    losses = {
        "weight": ("weight_opt", None, lambda weight: -float((ratio(weight) * residual).mean())),
        "critic": ("critic_opt", "critic_loss", critic_loss),
        "actor": ("actor_opt", "actor_loss", actor_loss),
    }
    return new, old, metrics, losses


def test_pdocrl_as_published() -> None:
    new, old, metrics, losses = published_losses(random_batch())
    check(new, old, metrics, losses)
    cost = np.asarray(random_batch().cost, np.float64).mean(0)
    np.testing.assert_allclose(new.multiplier.lam, 0.5 * np.exp(1e-4 * (cost - RATE)), rtol=1e-6)


def test_pdocrl_as_published_cuts_each_gradient_at_ten() -> None:
    """Rewards × 1000: the critics' gradient is far longer, and keeps its direction; both twins are cut together."""
    batch = random_batch()
    batch = eqx.tree_at(lambda b: b.reward, batch, 1e3 * batch.reward)
    new, old, _, losses = published_losses(batch)
    seen = [np.asarray(m, np.float64) / 0.1 for m in jax.tree.leaves(new.critic_opt.mu)]
    assert np.sqrt(sum((g**2).sum() for g in seen)) == pytest.approx(10, rel=1e-4)
    leaves, tree = jax.tree.flatten(double(old.critic))
    loss = losses["critic"][2]
    slopes = []
    for member in range(2):  # the last layer's bias of each twin
        moved = [[x.copy() for x in leaves] for _ in range(2)]
        for way, sign in zip(moved, (1, -1), strict=True):
            way[-1][member] += sign * 1e-5
        slopes.append((loss(jax.tree.unflatten(tree, moved[0])) - loss(jax.tree.unflatten(tree, moved[1]))) / 2e-5)
    np.testing.assert_allclose(seen[-1][0] / seen[-1][1], slopes[0] / slopes[1], rtol=1e-3)

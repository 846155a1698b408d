"""Trained policies as plain NumPy: what is rolled out, exported and loaded by a robot program.

This file needs NumPy alone. `pdocrl export` copies it beside the exported weights, so that

    from policy import load
    act = load("policy.npz")
    action = act(obs)          # obs [B, S] → action [B, A], both in the environment's own units

runs where neither JAX nor pdocrl is installed.

Networks think in standardised observations and in actions within [−1, 1]. What is trained, saved and played is a
`WorldPolicy`: such a network and the `WorldScales` between its numbers and the world's, applied there and nowhere else.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

Step = Callable[..., NDArray[np.float32]]  # of one episode: (obs [S], last_reward, last_cost [K]) → action [A]
FORMAT = 1  # of the exported file; a reader refuses any other


class Policy(Protocol):
    """A policy that can be saved: acts on batches of observations and is rebuilt from named arrays and settings.

    A policy with memory or randomness also has `begin(seed) -> step`, where `step(obs [S], last_reward, last_cost [K])`
    gives the action [A] within one episode. Its `__call__` then acts as on an episode's first step, with a fixed seed.
    """

    kind: ClassVar[str]  # names the class in a saved file

    def __call__(self, obs: NDArray[Any]) -> NDArray[np.float32]: ...

    def arrays(self) -> dict[str, NDArray[np.float32]]: ...

    def settings(self) -> dict[str, Any]: ...


Layers = tuple[tuple[NDArray[np.float32], ...], tuple[NDArray[np.float32], ...]]  # weights, biases


def _network(layers: Layers, x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Affine layers with ReLU between; weights [M, n_in, n_out] give M outputs."""
    weights, biases = layers
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        x = np.maximum(x @ weight + bias, 0)
    out: NDArray[np.float32] = x @ weights[-1] + biases[-1]
    return out


@dataclasses.dataclass(frozen=True)
class MLPPolicy:
    """The mode of a tanh-Gaussian: tanh of the mean's network, whose scale half is not needed to act."""

    kind: ClassVar[str] = "mlp"
    weights: tuple[NDArray[np.float32], ...]  # each [n_in, n_out]
    biases: tuple[NDArray[np.float32], ...]  # each [n_out]

    def __call__(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        mean: NDArray[np.float32] = np.tanh(_network((self.weights, self.biases), np.asarray(obs, np.float32)))
        return mean

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        layers = range(len(self.weights))
        return {f"weight_{i}": self.weights[i] for i in layers} | {f"bias_{i}": self.biases[i] for i in layers}

    def settings(self) -> dict[str, Any]:
        return {"layers": len(self.weights)}

    @classmethod
    def restore(cls, arrays: dict[str, NDArray[np.float32]], settings: dict[str, Any]) -> MLPPolicy:
        layers = range(settings["layers"])
        return cls(tuple(arrays[f"weight_{i}"] for i in layers), tuple(arrays[f"bias_{i}"] for i in layers))


@dataclasses.dataclass(frozen=True)
class CandidatePolicy:
    """The best of n random proposals: a decoder proposes, a perturbation adjusts, critics choose by Q_r − λ·Q_c."""

    kind: ClassVar[str] = "candidates"
    networks: dict[str, Layers]  # decoder, perturbation; critic and cost_critic are pairs of networks
    lam: NDArray[np.float32]  # [K] price of each cost
    candidates: int  # n proposals per observation
    latent_clip: float  # latents are clipped to ± this
    perturbation: float  # the largest adjustment
    pessimism: float  # weight of the more pessimistic critic of each pair

    @property
    def latent_dim(self) -> int:
        decoder, critic = self.networks["decoder"][0], self.networks["critic"][0]
        return int(decoder[0].shape[0] - critic[0].shape[1] + decoder[-1].shape[1])  # (S + Z) − (S + A) + A

    def act(self, obs: NDArray[Any], latent: NDArray[Any]) -> NDArray[np.float32]:
        """obs [B, S] and standard normal latents [B, n, Z] → action [B, A]."""
        latent = np.clip(np.asarray(latent, np.float32), -self.latent_clip, self.latent_clip)
        states = np.repeat(np.asarray(obs, np.float32)[:, None], latent.shape[1], 1)  # [B, n, S]
        proposed = np.tanh(_network(self.networks["decoder"], np.concatenate([states, latent], -1)))
        pair = np.concatenate([states, proposed], -1)
        action = np.clip(proposed + self.perturbation * np.tanh(_network(self.networks["perturbation"], pair)), -1, 1)
        flat = np.concatenate([states, action], -1).reshape(-1, pair.shape[-1])
        value, cost = _network(self.networks["critic"], flat)[..., 0], _network(self.networks["cost_critic"], flat)
        mixed_value = self.pessimism * value.min(0) + (1 - self.pessimism) * value.max(0)
        mixed_cost = self.pessimism * cost.max(0) + (1 - self.pessimism) * cost.min(0)
        best = (mixed_value - mixed_cost @ self.lam).reshape(action.shape[:2]).argmax(1)
        return np.asarray(np.take_along_axis(action, best[:, None, None], 1)[:, 0], np.float32)

    def begin(self, seed: int) -> Step:
        rng = np.random.default_rng(seed)

        def step(obs: NDArray[Any], last_reward: float = 0.0, last_cost: Any = ()) -> NDArray[np.float32]:
            latent = rng.standard_normal((1, self.candidates, self.latent_dim))
            action: NDArray[np.float32] = self.act(obs[None], latent)[0]
            return action

        return step

    def __call__(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        latent = np.random.default_rng(0).standard_normal((1, self.candidates, self.latent_dim))
        return self.act(obs, np.repeat(latent, len(obs), 0))

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        layers = {
            f"{name}/{part}_{i}": array
            for name, network in self.networks.items()
            for part, arrays in zip(("weight", "bias"), network, strict=True)
            for i, array in enumerate(arrays)
        }
        return {**layers, "lam": self.lam}

    def settings(self) -> dict[str, Any]:
        numbers = ("candidates", "latent_clip", "perturbation", "pessimism")
        layers = {name: len(network[0]) for name, network in self.networks.items()}
        return {"layers": layers, **{name: getattr(self, name) for name in numbers}}

    @classmethod
    def restore(cls, arrays: dict[str, NDArray[np.float32]], settings: dict[str, Any]) -> CandidatePolicy:
        def layers(name: str, count: int, part: str) -> tuple[NDArray[np.float32], ...]:
            return tuple(arrays[f"{name}/{part}_{i}"] for i in range(count))

        settings = dict(settings)
        networks = {n: (layers(n, c, "weight"), layers(n, c, "bias")) for n, c in settings.pop("layers").items()}
        return cls(networks, arrays["lam"], **settings)


@dataclasses.dataclass(frozen=True)
class TransformerPolicy:
    """A decision transformer: acts on the episode's last steps and on the return and costs it shall still reach."""

    kind: ClassVar[str] = "transformer"
    weights: dict[str, NDArray[np.float32]]  # by the names of pdocrl.nn.transformer
    layers: int
    heads: int
    context: int  # L steps it sees
    target_return: float  # to ask for when an episode begins
    target_cost: tuple[float, ...]  # [K] the cost limits
    reward_scale: float  # returns enter as reward_scale · R
    cost_shift: float  # costs enter as cost_shift − C

    def act(
        self,
        returns: NDArray[Any],
        costs: NDArray[Any],
        obs: NDArray[Any],
        actions: NDArray[Any],
        time: NDArray[Any],
        mask: NDArray[Any],
    ) -> NDArray[np.float32]:
        """Action at the last of L steps, [B, A].

        returns [B, L] and costs [B, L, K] to go (not scaled), obs [B, L, S], actions [B, L, A] (the last is not read),
        time [B, L] since the episode began, mask [B, L] 0 where a step is padding on the left.
        """
        size, length = mask.shape
        when = self.weights["time"][np.minimum(time, len(self.weights["time"]) - 1)]
        tokens = (
            ("returns", self.reward_scale * returns[..., None]),
            ("costs", self.cost_shift - costs),
            ("obs", obs),
            ("action", actions),
        )
        x = np.stack([self._affine(name, np.asarray(token, np.float32)) + when for name, token in tokens], 2)
        x = self._norm("embedding_norm", x.reshape(size, 4 * length, -1)[:, :-1])  # the last action is still to come
        causal = np.tril(np.ones((4 * length - 1, 4 * length - 1), bool))
        attends = causal & np.repeat(mask > 0, 4, 1)[:, None, None, :-1]  # [B, 1, T, T]
        for i in range(self.layers):
            seen = x
            if i == self.layers - 1:  # the head reads the last state's token; the others are only attended to
                x, attends = x[:, -1:], attends[:, :, -1:]
            x = x + self._attention(f"block_{i}", x, seen, attends)
            x = x + self._affine(f"block_{i}/down", self._hidden(f"block_{i}", x))
        mean = self._affine("action_head", self._norm("last_norm", x[:, -1]))
        return np.asarray(np.clip(mean[:, : mean.shape[1] // 2], -1, 1), np.float32)

    def _attention(
        self, block: str, x: NDArray[np.float32], seen: NDArray[np.float32], attends: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        """What the tokens x [B, U, D] take from the tokens they see [B, T, D]; attends [B, 1, U, T]."""
        width = x.shape[-1]
        weight, bias = self.weights[f"{block}/qkv/weight"], self.weights[f"{block}/qkv/bias"]

        def heads(y: NDArray[np.float32], low: int, high: int) -> list[NDArray[np.float32]]:
            """Projections low … high of (query, key, value), [B, H, tokens, D/H] each."""
            part = slice(low * width, high * width)
            out = self._norm(f"{block}/norm_1", y) @ weight[:, part] + bias[part]
            split = np.split(out, high - low, axis=-1)
            return [p.reshape(*y.shape[:2], self.heads, -1).transpose(0, 2, 1, 3) for p in split]

        query, key, value = heads(x, 0, 3) if x is seen else heads(x, 0, 1) + heads(seen, 1, 3)
        scores = query @ key.swapaxes(-1, -2) / np.float32(np.sqrt(width / self.heads))
        scores = np.where(attends, scores, np.float32(-1e9))
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (weights / weights.sum(-1, keepdims=True)) @ value
        return self._affine(f"{block}/out", mixed.transpose(0, 2, 1, 3).reshape(x.shape))

    def _hidden(self, block: str, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """GELU by its usual approximation with tanh."""
        x = self._affine(f"{block}/up", self._norm(f"{block}/norm_2", x))
        cube = x * x * x  # x**3 would call pow(), which took three quarters of the whole policy's time
        inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * cube)
        return np.asarray(0.5 * x * (1 + np.tanh(inner)), np.float32)

    def _affine(self, name: str, x: NDArray[np.float32]) -> NDArray[np.float32]:
        out: NDArray[np.float32] = x @ self.weights[f"{name}/weight"] + self.weights[f"{name}/bias"]
        return out

    def _norm(self, name: str, x: NDArray[np.float32]) -> NDArray[np.float32]:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + np.float32(1e-5))
        out: NDArray[np.float32] = scaled * self.weights[f"{name}/scale"] + self.weights[f"{name}/bias"]
        return out

    def begin(self, seed: int) -> Step:
        """The steps of one episode; nothing is random, so the seed is not used."""
        length, steps = self.context, 0
        sizes = self.weights["obs/weight"].shape[0], self.weights["action/weight"].shape[0]
        window: dict[str, NDArray[Any]] = {
            "returns": np.full((1, length), self.target_return, np.float32),
            "costs": np.tile(np.asarray(self.target_cost, np.float32), (1, length, 1)),
            "obs": np.zeros((1, length, sizes[0]), np.float32),
            "actions": np.zeros((1, length, sizes[1]), np.float32),
            "time": np.zeros((1, length), np.int64),
            "mask": np.zeros((1, length), np.float32),
        }

        def step(obs: NDArray[Any], last_reward: float = 0.0, last_cost: Any = 0.0) -> NDArray[np.float32]:
            nonlocal steps
            wanted, budget = window["returns"][0, -1], window["costs"][0, -1].copy()
            for array in window.values():
                array[:, :-1] = array[:, 1:]
            earned = (last_reward, np.asarray(last_cost, np.float32)) if steps else (0.0, np.float32(0))
            window["returns"][0, -1], window["costs"][0, -1] = wanted - earned[0], budget - earned[1]
            window["obs"][0, -1], window["actions"][0, -1] = obs, 0
            window["time"][0, -1], window["mask"][0, -1] = steps, 1
            action: NDArray[np.float32] = self.act(**window)[0]
            window["actions"][0, -1] = action
            steps += 1
            return action

        return step

    def __call__(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        return np.stack([self.begin(0)(row) for row in np.asarray(obs, np.float32)])

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        return self.weights

    def settings(self) -> dict[str, Any]:
        fields = [field.name for field in dataclasses.fields(self) if field.name != "weights"]
        return {name: getattr(self, name) for name in fields}

    @classmethod
    def restore(cls, arrays: dict[str, NDArray[np.float32]], settings: dict[str, Any]) -> TransformerPolicy:
        return cls(arrays, **{**settings, "target_cost": tuple(settings["target_cost"])})


@dataclasses.dataclass(frozen=True)
class DialPolicy:
    """A policy with a dial: the limit is set when it acts, and may change while it does.

    Of M settings of the dial it is known what they earn and cost. For a limit it takes the one that earns most among
    those within it; where none is, the one that exceeds it least. A setting asks for an amount of cost, of which less
    is left with every cost paid, and for none at all once `stop` is spent.
    """

    kind: ClassVar[str] = "dial"
    SCALES: ClassVar[tuple[float, ...]] = (0.025, 0.125, 0.5)  # shares of the largest cost that are told apart well
    TABLES: ClassVar[tuple[str, ...]] = ("largest", "ask", "stop", "reward", "cost")
    MISSED: ClassVar[float] = 1e6  # what exceeding a limit by the largest cost is held to be worth
    weights: tuple[NDArray[np.float32], ...]  # each [n_in, n_out]
    biases: tuple[NDArray[np.float32], ...]  # each [n_out]
    horizon: float  # steps of a full episode
    quality: float  # asked for: 1 is the best return logged at that cost
    largest: NDArray[np.float32]  # [K] cost of the dearest logged episode
    limit: tuple[float, ...]  # [K] where none is given
    ask: NDArray[np.float32]  # [M, K] the settings: cost asked for
    stop: NDArray[np.float32]  # [M, K] and spent before nothing is asked for any more
    reward: NDArray[np.float32]  # [M] what each earns, as rehearsed
    cost: NDArray[np.float32]  # [M, K] what each costs, as rehearsed, with its margin

    @classmethod
    def features(cls, budget: NDArray[Any], largest: NDArray[Any]) -> NDArray[np.float32]:
        """Amounts of cost [N, K] as the network is told them, [N, 4K], whatever their unit."""
        share = np.maximum(np.asarray(budget, np.float32), 0) / np.asarray(largest, np.float32)
        curves = [2 * np.sqrt(share), *(2 * share / (share + np.float32(scale)) for scale in cls.SCALES)]
        return np.concatenate(curves, -1).astype(np.float32)

    def at_limit(self, cost_limit: Any) -> DialPolicy:
        """The same policy with its dial at another limit, one number or one per constraint."""
        return dataclasses.replace(self, limit=tuple(self._limits(cost_limit).tolist()))

    def setting(self, limit: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """What to ask for and when to stop, [N, K] each, for each row of limits [N, K]."""
        limit = np.asarray(limit, np.float32)
        excess = ((self.cost - limit[:, None]) / self.largest).max(-1)  # [N, M]
        worth = np.where(excess <= 0, self.reward, self.reward.min() - np.float32(self.MISSED) * (1 + excess))
        chosen = worth.argmax(-1)
        return self.ask[chosen], self.stop[chosen]

    def act(
        self, obs: NDArray[Any], limit: NDArray[Any], spent: NDArray[Any], time: NDArray[Any]
    ) -> NDArray[np.float32]:
        """Action [B, A] in states [B, S] at limits [B, K], with costs [B, K] paid in `time` [B, 1] steps so far."""
        obs, spent = np.asarray(obs, np.float32), np.asarray(spent, np.float32)
        ask, stop = self.setting(limit)
        ask = np.where((spent >= stop).any(-1, keepdims=True), np.float32(0), ask)
        time_left = 1 - np.asarray(time, np.float32) / np.float32(self.horizon)
        given = [np.full_like(time_left, self.quality), time_left]
        budgets = [self.features(ask - spent, self.largest), self.features(ask, self.largest)]
        inputs = np.concatenate([obs, *given, *budgets], -1)
        action: NDArray[np.float32] = np.tanh(_network((self.weights, self.biases), inputs))
        return action

    def begin(self, seed: int, limit: Any = None) -> Step:
        """The steps of one episode at a limit; `step(…, limit=x)` changes it from there on. Nothing is random."""
        allowed, spent, steps = self._limits(limit), np.zeros((1, len(self.largest)), np.float32), 0

        def step(
            obs: NDArray[Any], last_reward: float = 0.0, last_cost: Any = 0.0, limit: Any = None
        ) -> NDArray[np.float32]:
            nonlocal allowed, spent, steps
            if limit is not None:
                allowed = self._limits(limit)
            if steps:
                spent = spent + np.asarray(last_cost, np.float32)
            time = np.full((1, 1), min(steps, self.horizon), np.float32)
            steps += 1
            action: NDArray[np.float32] = self.act(np.asarray(obs)[None], allowed[None], spent, time)[0]
            return action

        return step

    def __call__(self, obs: NDArray[Any], limit: Any = None) -> NDArray[np.float32]:
        """As on an episode's first step."""
        rows = len(obs)
        nothing = np.zeros((rows, len(self.largest)), np.float32)
        return self.act(obs, nothing + self._limits(limit), nothing, np.zeros((rows, 1), np.float32))

    def _limits(self, limit: Any) -> NDArray[np.float32]:
        given = np.atleast_1d(np.asarray(self.limit if limit is None else limit, np.float32))
        if given.shape != self.largest.shape or not (given >= 0).all():
            raise ValueError(f"limit {limit} must be {len(self.largest)} number(s) of at least 0, one for each cost")
        return given

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        layers = {f"{name}_{i}": array for name in ("weights", "biases") for i, array in enumerate(getattr(self, name))}
        return layers | {name: getattr(self, name) for name in self.TABLES}

    def settings(self) -> dict[str, Any]:
        numbers = {"horizon": self.horizon, "quality": self.quality, "limit": list(self.limit)}
        return {"layers": len(self.weights), **numbers}

    @classmethod
    def restore(cls, arrays: dict[str, NDArray[np.float32]], settings: dict[str, Any]) -> DialPolicy:
        layers: dict[str, Any] = {
            part: tuple(arrays[f"{part}_{i}"] for i in range(settings["layers"])) for part in ("weights", "biases")
        }
        tables: dict[str, Any] = {name: arrays[name] for name in cls.TABLES}
        numbers = {name: settings[name] for name in ("horizon", "quality")}
        return cls(**layers, **numbers, limit=tuple(settings["limit"]), **tables)


@dataclasses.dataclass(frozen=True)
class WorldScales:
    """Between the world's numbers and a network's, both ways. With mean 0, scale 1 and bounds ±1 nothing changes."""

    obs_mean: NDArray[np.float32]  # [S] of the data
    obs_scale: NDArray[np.float32]  # [S] 1 / standard deviation; 0 for what never changes in the data: it is ignored
    action_low: NDArray[np.float32]  # [A] the action that −1 stands for
    action_high: NDArray[np.float32]  # [A] … and 1

    def standardised(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Observations [..., S] as networks see them."""
        out: NDArray[np.float32] = (np.asarray(obs, np.float32) - self.obs_mean) * self.obs_scale
        return out

    def real(self, action: NDArray[Any]) -> NDArray[np.float32]:
        """Actions [..., A] in [−1, 1] → in the environment's units, never outside its bounds."""
        moved = np.asarray(action, np.float32) * self._half + self._centre
        out: NDArray[np.float32] = np.minimum(np.maximum(moved, self.action_low), self.action_high)  # faster than clip
        return out

    def unit(self, action: NDArray[Any]) -> NDArray[np.float32]:
        """Actions [..., A] in the environment's units → in [−1, 1]."""
        out: NDArray[np.float32] = (np.asarray(action, np.float32) - self._centre) / self._half
        return out

    @functools.cached_property
    def _centre(self) -> NDArray[np.float32]:
        return np.asarray((self.action_low + self.action_high) / 2, np.float32)

    @functools.cached_property
    def _half(self) -> NDArray[np.float32]:
        return np.asarray((self.action_high - self.action_low) / 2, np.float32)


@dataclasses.dataclass(frozen=True)
class WorldPolicy:
    """A network's policy in the world's units: raw observations in, the environment's own actions out."""

    kind: ClassVar[str] = "world"
    network: Any  # a Policy: standardised observations → actions in [−1, 1]
    scales: WorldScales

    def __call__(self, obs: NDArray[Any], **wishes: Any) -> NDArray[np.float32]:
        """Actions on an episode's first step; a policy with a dial takes `limit`."""
        return self.scales.real(self.network(self.scales.standardised(obs), **wishes))

    def begin(self, seed: int, **wishes: Any) -> Step:
        """The steps of one episode, whether or not the network has memory or randomness; a dial takes `limit`."""
        inner = self.network.begin(seed, **wishes) if self.has_memory else lambda obs, *_: self.network(obs[None])[0]

        def step(
            obs: NDArray[Any], last_reward: float = 0.0, last_cost: Any = 0.0, **wishes: Any
        ) -> NDArray[np.float32]:
            return self.scales.real(inner(self.scales.standardised(obs), last_reward, last_cost, **wishes))

        return step

    @property
    def has_memory(self) -> bool:
        """Whether an action depends on more than the observation: on the episode so far, or on chance."""
        return hasattr(self.network, "begin")

    def act(self, **inputs: NDArray[Any]) -> NDArray[np.float32]:
        """The network's own function of its named inputs, those of the ONNX model, in the world's units."""
        if "actions" in inputs:
            inputs["actions"] = self.scales.unit(inputs["actions"])
        inputs["obs"] = self.scales.standardised(inputs["obs"])
        function = getattr(self.network, "act", self.network)
        return self.scales.real(function(**inputs))

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        own = {f"scales/{field.name}": getattr(self.scales, field.name) for field in dataclasses.fields(WorldScales)}
        return own | {f"network/{name}": array for name, array in self.network.arrays().items()}

    def settings(self) -> dict[str, Any]:
        return {"kind": self.network.kind, "settings": self.network.settings()}

    @classmethod
    def restore(cls, arrays: dict[str, NDArray[np.float32]], settings: dict[str, Any]) -> WorldPolicy:
        parts: dict[str, dict[str, NDArray[np.float32]]] = {"scales": {}, "network": {}}
        for name, array in arrays.items():
            part, _, rest = name.partition("/")
            parts[part][rest] = array
        network = _find_kind(settings["kind"]).restore(parts["network"], settings["settings"])
        return in_world(network, WorldScales(**parts["scales"]))


class WorldPolicyForLimits(WorldPolicy):
    """One whose network serves every limit."""

    def at_limit(self, cost_limit: tuple[float, ...]) -> WorldPolicy:
        """The policy that keeps this limit."""
        return in_world(self.network.at_limit(cost_limit), self.scales)


def in_world(network: Any, scales: WorldScales) -> WorldPolicy:
    """A network's policy in the world's units, with `at_limit` where the network has it."""
    return (WorldPolicyForLimits if hasattr(network, "at_limit") else WorldPolicy)(network, scales)


KINDS: dict[str, Any] = {
    kind.kind: kind for kind in (MLPPolicy, CandidatePolicy, TransformerPolicy, DialPolicy, WorldPolicy)
}


def save(path: str | os.PathLike[str], policies: Sequence[Policy], story: dict[str, Any] | None = None) -> None:
    """Write policies as one `.npz`: their arrays, and their settings (and any JSON-able story) as text. No pickle."""
    kinds = [{"kind": policy.kind, "settings": policy.settings()} for policy in policies]
    header = json.dumps({"format": FORMAT, "policies": kinds, "story": story or {}})
    arrays = {f"{i}/{name}": array for i, policy in enumerate(policies) for name, array in policy.arrays().items()}
    with open(path, "wb") as file:
        np.savez(file, header=np.frombuffer(header.encode(), np.uint8), **arrays)  # type: ignore[arg-type]


def load(path: str | os.PathLike[str]) -> Policy:
    """The (first) policy of a file that `save` wrote."""
    return load_all(path)[0][0]


def load_all(path: str | os.PathLike[str]) -> tuple[list[Policy], dict[str, Any]]:
    """All policies of a file, and its story. Raises ValueError or OSError for any other file."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files}
    if "header" not in arrays:
        raise ValueError(f"{path}: not a policy file: no header")
    header = json.loads(arrays.pop("header").tobytes())
    if header["format"] != FORMAT:
        raise ValueError(f"{path}: policy file of format {header['format']}, this reader knows {FORMAT}")
    restored = []
    for i, entry in enumerate(header["policies"]):
        own = {key.split("/", 1)[1]: array for key, array in arrays.items() if key.split("/", 1)[0] == str(i)}
        restored.append(_find_kind(entry["kind"]).restore(own, entry["settings"]))
    return restored, header["story"]


def _find_kind(kind: str) -> Any:
    """The class of a policy: ours by name, another package's as `module:Class`."""
    if kind in KINDS:
        return KINDS[kind]
    module, _, attribute = kind.partition(":")
    if not attribute:
        raise ValueError(f"policy of unknown kind {kind!r}; known: {sorted(KINDS)}")
    return getattr(importlib.import_module(module), attribute)

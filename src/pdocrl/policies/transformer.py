"""Decision transformers: CDT, B2R."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pdocrl.policies.mlp import Step, one_hot


@dataclasses.dataclass(frozen=True)
class TransformerPolicy:
    """A decision transformer: acts on the episode's last steps and on the return and costs it shall still reach."""

    kind: ClassVar[str] = "transformer"
    weights: dict[str, NDArray[np.float32]]  # by the names of pdocrl.nn.transformer; `time`, or `rotation` [2, 4L, D]
    layers: int
    heads: int
    context: int  # L steps it sees
    target_return: float  # to ask for when an episode begins
    target_cost: tuple[float, ...]  # [K] the cost limits
    reward_scale: float  # returns enter as reward_scale · R
    cost_shift: float  # costs enter as cost_shift − C
    spends_at_most: bool = False  # whether the costs still allowed end at 0, or go below when more is paid
    discrete: bool = False  # whether the head gives scores of discrete actions, not mean and scale

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
        known = self.weights.get("time")
        when = np.float32(0) if known is None else known[np.minimum(time, len(known) - 1)]
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
        out = self._affine("action_head", self._norm("last_norm", x[:, -1]))
        return one_hot(out) if self.discrete else np.asarray(np.clip(out[:, : out.shape[1] // 2], -1, 1), np.float32)

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
            if "rotation" in self.weights:
                split = [self._turned(p) if low + i < 2 else p for i, p in enumerate(split)]
            return [p.reshape(*y.shape[:2], self.heads, -1).transpose(0, 2, 1, 3) for p in split]

        query, key, value = heads(x, 0, 3) if x is seen else heads(x, 0, 1) + heads(seen, 1, 3)
        scores = query @ key.swapaxes(-1, -2) / np.float32(np.sqrt(width / self.heads))
        scores = np.where(attends, scores, np.float32(-1e9))
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (weights / weights.sum(-1, keepdims=True)) @ value
        return self._affine(f"{block}/out", mixed.transpose(0, 2, 1, 3).reshape(x.shape))

    def _turned(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Queries or keys of the last tokens [B, U, D], each pair of numbers turned by its token's angle."""
        end = 4 * self.context - 1
        cosine, sine = self.weights["rotation"][:, end - x.shape[1] : end]
        across = np.stack([-x[..., 1::2], x[..., 0::2]], -1).reshape(x.shape)
        return np.asarray(x * cosine + across * sine, np.float32)

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

    def left(self, budget: NDArray[Any]) -> NDArray[Any]:
        """What may still be spent."""
        return np.maximum(budget, 0) if self.spends_at_most else budget

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
            window["returns"][0, -1], window["costs"][0, -1] = wanted - earned[0], self.left(budget - earned[1])
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

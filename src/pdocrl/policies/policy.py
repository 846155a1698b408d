"""Trained policies as plain NumPy: what is rolled out, exported and loaded by a robot program.

It needs NumPy alone. `pdocrl export` writes it and the kinds of policy as one file beside the weights, so that

    from policy import load
    act = load("policy.npz")
    action = act(obs)          # obs [B, S] → action [B, A], in the environment's units; discrete: [B]

runs where neither JAX nor pdocrl is installed.

Networks see normalised observations and give actions within [−1, 1], or one-hot discrete actions. What is trained,
saved and played is a `NormalisedPolicy`: such a network with its `Normaliser`, applied there and nowhere else.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import os
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pdocrl.policies.candidates import CandidatePolicy, FeasiblePolicy, ProposingPolicy
from pdocrl.policies.cost_conditioned import BudgetPolicy, SwitchingPolicy
from pdocrl.policies.dial import DialPolicy
from pdocrl.policies.mlp import Layers, MLPPolicy, Policy, Step
from pdocrl.policies.transformer import TransformerPolicy

__all__ = [
    "BudgetPolicy",
    "CandidatePolicy",
    "DialPolicy",
    "FeasiblePolicy",
    "Layers",
    "MLPPolicy",
    "NormalisedPolicy",
    "Normaliser",
    "Policy",
    "ProposingPolicy",
    "Step",
    "SwitchingPolicy",
    "TransformerPolicy",
    "load",
    "load_all",
    "save",
    "with_normaliser",
]
FORMAT = 2  # of the exported file; 1, of version 0.2, had other names and is still read


@dataclasses.dataclass(frozen=True)
class Normaliser:
    """Observations to a network's scale and its actions back. With mean 0, scale 1 and bounds ±1 nothing changes."""

    obs_mean: NDArray[np.float32]  # [S] of the data
    obs_scale: NDArray[np.float32]  # [S] 1 / standard deviation; 0 for what never changes in the data: it is ignored
    action_low: NDArray[np.float32]  # [A] the action that −1 stands for
    action_high: NDArray[np.float32]  # [A] … and 1
    discrete_actions: NDArray[np.int64] = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    # [A] the action of column i of a one-hot action; none: actions are continuous

    def normalise_obs(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Observations [..., S] with mean 0 and standard deviation 1 over the data."""
        out: NDArray[np.float32] = (np.asarray(obs, np.float32) - self.obs_mean) * self.obs_scale
        return out

    def denormalise_action(self, action: NDArray[Any]) -> NDArray[Any]:
        """Actions [..., A] in [−1, 1] → in the environment's units, within its bounds; one-hot → discrete [...]."""
        if len(self.discrete_actions):
            return np.asarray(self.discrete_actions[np.asarray(action).argmax(-1)])
        moved = np.asarray(action, np.float32) * self._half + self._centre
        out: NDArray[np.float32] = np.minimum(np.maximum(moved, self.action_low), self.action_high)  # faster than clip
        return out

    def normalise_action(self, action: NDArray[Any]) -> NDArray[np.float32]:
        """Actions [..., A] in the environment's units → in [−1, 1]; discrete [...] → one-hot [..., A]."""
        if len(self.discrete_actions):
            return np.asarray(np.asarray(action)[..., None] == self.discrete_actions, np.float32)
        out: NDArray[np.float32] = (np.asarray(action, np.float32) - self._centre) / self._half
        return out

    @functools.cached_property
    def _centre(self) -> NDArray[np.float32]:
        return np.asarray((self.action_low + self.action_high) / 2, np.float32)

    @functools.cached_property
    def _half(self) -> NDArray[np.float32]:
        return np.asarray((self.action_high - self.action_low) / 2, np.float32)


@dataclasses.dataclass(frozen=True)
class NormalisedPolicy:
    """A policy with its normaliser: raw observations in, the environment's own actions out."""

    kind: ClassVar[str] = "normalised"
    network: Any  # a Policy: standardised observations → actions in [−1, 1]
    normaliser: Normaliser

    def __call__(self, obs: NDArray[Any], **wishes: Any) -> NDArray[Any]:
        """Actions on an episode's first step; a cost-conditioned one takes `limit`."""
        return self.normaliser.denormalise_action(self.network(self.normaliser.normalise_obs(obs), **wishes))

    def begin(self, seed: int, **wishes: Any) -> Step:
        """The steps of one episode, with or without memory or randomness; a cost-conditioned policy takes `limit`."""
        inner = self.network.begin(seed, **wishes) if self.has_memory else lambda obs, *_: self.network(obs[None])[0]

        def step(obs: NDArray[Any], last_reward: float = 0.0, last_cost: Any = 0.0, **wishes: Any) -> NDArray[Any]:
            return self.normaliser.denormalise_action(
                inner(self.normaliser.normalise_obs(obs), last_reward, last_cost, **wishes)
            )

        return step

    @property
    def has_memory(self) -> bool:
        """Whether an action depends on more than the observation: on the episode so far, or on chance."""
        return hasattr(self.network, "begin")

    def act(self, **inputs: NDArray[Any]) -> NDArray[Any]:
        """The network's own function of its named inputs, those of the ONNX model, in the world's units."""
        if "actions" in inputs:
            inputs["actions"] = self.normaliser.normalise_action(inputs["actions"])
        inputs["obs"] = self.normaliser.normalise_obs(inputs["obs"])
        function = getattr(self.network, "act", self.network)
        return self.normaliser.denormalise_action(function(**inputs))

    def arrays(self) -> dict[str, NDArray[Any]]:
        own = {
            f"normaliser/{field.name}": getattr(self.normaliser, field.name) for field in dataclasses.fields(Normaliser)
        }
        return own | {f"network/{name}": array for name, array in self.network.arrays().items()}

    def settings(self) -> dict[str, Any]:
        return {"kind": self.network.kind, "settings": self.network.settings()}

    @classmethod
    def restore(cls, arrays: dict[str, NDArray[Any]], settings: dict[str, Any]) -> NormalisedPolicy:
        parts: dict[str, dict[str, NDArray[Any]]] = {"normaliser": {}, "network": {}}
        for name, array in arrays.items():
            part, _, rest = name.partition("/")
            parts[part][rest] = array
        network = _find_kind(settings["kind"]).restore(parts["network"], settings["settings"])
        return with_normaliser(network, Normaliser(**parts["normaliser"]))


class NormalisedCostConditionedPolicy(NormalisedPolicy):
    """One whose network is conditioned on the cost limit."""

    def with_limit(self, cost_limit: tuple[float, ...]) -> NormalisedPolicy:
        """The policy for this limit."""
        return with_normaliser(self.network.with_limit(cost_limit), self.normaliser)


def with_normaliser(network: Any, normaliser: Normaliser) -> NormalisedPolicy:
    """The policy with its normaliser, and with `with_limit` where the network has it."""
    kind = NormalisedCostConditionedPolicy if hasattr(network, "with_limit") else NormalisedPolicy
    return kind(network, normaliser)


KINDS: dict[str, Any] = {
    kind.kind: kind
    for kind in (
        MLPPolicy,
        CandidatePolicy,
        TransformerPolicy,
        DialPolicy,
        SwitchingPolicy,
        BudgetPolicy,
        FeasiblePolicy,
        NormalisedPolicy,
    )
}


def save(path: str | os.PathLike[str], policies: Sequence[Policy], metadata: dict[str, Any] | None = None) -> None:
    """Write policies as one `.npz`: their arrays, and settings and metadata as JSON. No pickle."""
    kinds = [{"kind": policy.kind, "settings": policy.settings()} for policy in policies]
    header = json.dumps({"format": FORMAT, "policies": kinds, "metadata": metadata or {}})
    arrays = {f"{i}/{name}": array for i, policy in enumerate(policies) for name, array in policy.arrays().items()}
    with open(path, "wb") as file:
        np.savez(file, header=np.frombuffer(header.encode(), np.uint8), **arrays)  # type: ignore[arg-type]


def load(path: str | os.PathLike[str]) -> Policy:
    """The (first) policy of a file that `save` wrote."""
    return load_all(path)[0][0]


def load_all(path: str | os.PathLike[str]) -> tuple[list[Policy], dict[str, Any]]:
    """All policies of a file, and its metadata. Raises ValueError or OSError for any other file."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files}
    if "header" not in arrays:
        raise ValueError(f"{path}: not a policy file: no header")
    header = json.loads(arrays.pop("header").tobytes())
    if header["format"] == 1:
        header, arrays = _upgrade(header, arrays)
    if header["format"] != FORMAT:
        raise ValueError(f"{path}: policy file of format {header['format']}, this reader knows {FORMAT}")
    restored = []
    for i, entry in enumerate(header["policies"]):
        own = {key.split("/", 1)[1]: array for key, array in arrays.items() if key.split("/", 1)[0] == str(i)}
        restored.append(_find_kind(entry["kind"]).restore(own, entry["settings"]))
    return restored, header["metadata"]


def _upgrade(header: dict[str, Any], arrays: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A file of version 0.2 under the names of today."""
    names = {"chooses": "discrete", "world": "normalised"}

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            return {names.get(key, key): renamed(inner) for key, inner in value.items()}
        return names.get(value, value) if isinstance(value, str) else value

    policies = [renamed(policy) for policy in header["policies"]]
    arrays = {
        key.replace("/scales/choices", "/scales/discrete_actions").replace("/scales/", "/normaliser/"): array
        for key, array in arrays.items()
    }
    return {"format": FORMAT, "policies": policies, "metadata": header["story"]}, arrays


def _find_kind(kind: str) -> Any:
    """The class of a policy: ours by name, another package's as `module:Class`."""
    if kind in KINDS:
        return KINDS[kind]
    module, _, attribute = kind.partition(":")
    if not attribute:
        raise ValueError(f"policy of unknown kind {kind!r}; known: {sorted(KINDS)}")
    return getattr(importlib.import_module(module), attribute)

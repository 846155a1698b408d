"""Trained policies as plain NumPy: what is rolled out, exported and loaded by a robot program.

It needs NumPy alone. `pdocrl export` writes it and the kinds of policy as one file beside the weights, so that

    from policy import load
    act = load("policy.npz")
    action = act(obs)          # obs [B, S] → action [B, A], both in the environment's own units; of choices, [B]

runs where neither JAX nor pdocrl is installed.

Networks think in standardised observations and in actions within [−1, 1], or one-hot choices. What is trained, saved
and played is a `WorldPolicy`: such a network and the `WorldScales` between its numbers and the world's, applied there
and nowhere else.
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
from pdocrl.policies.dial import DialPolicy
from pdocrl.policies.limits import BudgetPolicy, SwitchingPolicy
from pdocrl.policies.network import Layers, MLPPolicy, Policy, Step
from pdocrl.policies.transformer import TransformerPolicy

__all__ = [
    "BudgetPolicy",
    "CandidatePolicy",
    "DialPolicy",
    "FeasiblePolicy",
    "Layers",
    "MLPPolicy",
    "Policy",
    "ProposingPolicy",
    "Step",
    "SwitchingPolicy",
    "TransformerPolicy",
    "WorldPolicy",
    "WorldScales",
    "in_world",
    "load",
    "load_all",
    "save",
]
FORMAT = 1  # of the exported file; a reader refuses any other


@dataclasses.dataclass(frozen=True)
class WorldScales:
    """Between the world's numbers and a network's, both ways. With mean 0, scale 1 and bounds ±1 nothing changes."""

    obs_mean: NDArray[np.float32]  # [S] of the data
    obs_scale: NDArray[np.float32]  # [S] 1 / standard deviation; 0 for what never changes in the data: it is ignored
    action_low: NDArray[np.float32]  # [A] the action that −1 stands for
    action_high: NDArray[np.float32]  # [A] … and 1
    choices: NDArray[np.int64] = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    # [A] the action that column i of a one-hot choice stands for; none: actions are amounts

    def standardised(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Observations [..., S] as networks see them."""
        out: NDArray[np.float32] = (np.asarray(obs, np.float32) - self.obs_mean) * self.obs_scale
        return out

    def real(self, action: NDArray[Any]) -> NDArray[Any]:
        """Actions [..., A] in [−1, 1] → in the environment's units, within its bounds; one-hot → choices [...]."""
        if len(self.choices):
            return np.asarray(self.choices[np.asarray(action).argmax(-1)])
        moved = np.asarray(action, np.float32) * self._half + self._centre
        out: NDArray[np.float32] = np.minimum(np.maximum(moved, self.action_low), self.action_high)  # faster than clip
        return out

    def unit(self, action: NDArray[Any]) -> NDArray[np.float32]:
        """Actions [..., A] in the environment's units → in [−1, 1]; choices [...] → one-hot [..., A]."""
        if len(self.choices):
            return np.asarray(np.asarray(action)[..., None] == self.choices, np.float32)
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

    def __call__(self, obs: NDArray[Any], **wishes: Any) -> NDArray[Any]:
        """Actions on an episode's first step; a policy with a dial takes `limit`."""
        return self.scales.real(self.network(self.scales.standardised(obs), **wishes))

    def begin(self, seed: int, **wishes: Any) -> Step:
        """The steps of one episode, whether or not the network has memory or randomness; a dial takes `limit`."""
        inner = self.network.begin(seed, **wishes) if self.has_memory else lambda obs, *_: self.network(obs[None])[0]

        def step(obs: NDArray[Any], last_reward: float = 0.0, last_cost: Any = 0.0, **wishes: Any) -> NDArray[Any]:
            return self.scales.real(inner(self.scales.standardised(obs), last_reward, last_cost, **wishes))

        return step

    @property
    def has_memory(self) -> bool:
        """Whether an action depends on more than the observation: on the episode so far, or on chance."""
        return hasattr(self.network, "begin")

    def act(self, **inputs: NDArray[Any]) -> NDArray[Any]:
        """The network's own function of its named inputs, those of the ONNX model, in the world's units."""
        if "actions" in inputs:
            inputs["actions"] = self.scales.unit(inputs["actions"])
        inputs["obs"] = self.scales.standardised(inputs["obs"])
        function = getattr(self.network, "act", self.network)
        return self.scales.real(function(**inputs))

    def arrays(self) -> dict[str, NDArray[Any]]:
        own = {f"scales/{field.name}": getattr(self.scales, field.name) for field in dataclasses.fields(WorldScales)}
        return own | {f"network/{name}": array for name, array in self.network.arrays().items()}

    def settings(self) -> dict[str, Any]:
        return {"kind": self.network.kind, "settings": self.network.settings()}

    @classmethod
    def restore(cls, arrays: dict[str, NDArray[Any]], settings: dict[str, Any]) -> WorldPolicy:
        parts: dict[str, dict[str, NDArray[Any]]] = {"scales": {}, "network": {}}
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
    kind.kind: kind
    for kind in (
        MLPPolicy,
        CandidatePolicy,
        TransformerPolicy,
        DialPolicy,
        SwitchingPolicy,
        BudgetPolicy,
        FeasiblePolicy,
        WorldPolicy,
    )
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

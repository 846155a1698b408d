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
from pdocrl.policies.cost_conditioned import BudgetPolicy, SwitchingPolicy, in_words
from pdocrl.policies.dial import DialPolicy
from pdocrl.policies.mlp import Layers, MLPPolicy, Policy, PolicyInputError, Step
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
    "PolicyInputError",
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
    """A policy with its normaliser: raw observations in, the environment's own actions out.

    Observations are arrays [B, S] or [S]; where the data named its columns also a dict, a list of dicts or a DataFrame
    with these columns and perhaps others. What is not finite, is missing or has another length is refused.
    """

    kind: ClassVar[str] = "normalised"
    network: Any  # a Policy: normalised observations → actions in [−1, 1]
    normaliser: Normaliser
    columns: tuple[str, ...] = ()  # S names of the observations, where the data has them
    cost_limit: tuple[float, ...] = ()  # [K] it was trained for, or is asked for; (): not known

    def __repr__(self) -> str:
        size, actions = len(self.normaliser.obs_mean), self.normaliser.discrete_actions
        told = f"{len(actions)} discrete actions" if len(actions) else f"{len(self.normaliser.action_low)} actions"
        density = getattr(self.network, "density", "")
        limit = f", cost limit {', '.join(f'{x:g}' for x in self.cost_limit)}" if self.cost_limit else ""
        return f"Policy({self.network.kind}: {size} observations → {told}{', ' + density if density else ''}{limit})"

    def __call__(self, obs: Any, **wishes: Any) -> NDArray[Any]:
        """Actions [B, A] on an episode's first step; a cost-conditioned one takes `limit`."""
        return self.normaliser.denormalise_action(self.network(self._seen(obs), **wishes))

    def sample(self, obs: Any, rng: Any = None, **wishes: Any) -> NDArray[Any]:
        """Actions drawn from π(·|s), with a NumPy generator or a seed; the only action of a deterministic policy."""
        seen, single = self._rows(obs)
        draw = np.random.default_rng(rng)
        network = self.network
        if wishes and (hasattr(network, "sample") or hasattr(network, "latent_dim")):
            raise PolicyInputError(f"a policy of kind {network.kind} takes no `{next(iter(wishes))}`.")
        if hasattr(network, "sample"):
            action = network.sample(seen, draw)
        elif hasattr(network, "latent_dim"):
            action = network.act(seen, draw.standard_normal((len(seen), network.candidates, network.latent_dim)))
        else:
            action = network(seen, **wishes)
        real = self.normaliser.denormalise_action(action)
        return real[0] if single else real

    def log_prob(self, obs: Any, action: Any) -> NDArray[np.float64]:
        """[B] log π(a|s) of actions in the environment's units: a log-density, or log-probability where it has mass."""
        if not getattr(self.network, "density", ""):
            raise PolicyInputError(f"a policy of kind {self.network.kind} has no density: it is deterministic given s.")
        seen, single = self._rows(obs)
        given = np.asarray(action)
        shape = (len(seen),) if len(self.normaliser.discrete_actions) else (len(seen), len(self.normaliser.action_low))
        if given.size != np.prod(shape):
            raise PolicyInputError(f"actions have shape {given.shape}, expected {shape}.")
        unit = self.normaliser.normalise_action(given.reshape(shape))
        if len(self.normaliser.discrete_actions) and not (unit.sum(-1) == 1).all():
            known = self.normaliser.discrete_actions
            raise PolicyInputError(f"an action is none of {known[0]} … {known[-1]}, the policy's.")
        parts = self.network.log_prob(seen, unit)
        if not len(self.normaliser.discrete_actions):
            half = (self.normaliser.action_high - self.normaliser.action_low).astype(np.float64) / 2
            parts = parts - np.where(self.network.has_mass(unit), 0.0, np.log(half))
        found: NDArray[np.float64] = parts.sum(-1)
        return found[0] if single else found

    def _seen(self, obs: Any) -> NDArray[np.float32]:
        return self._rows(obs)[0]

    def _rows(self, obs: Any) -> tuple[NDArray[np.float32], bool]:
        """Normalised observations [B, S], and whether a single row was given."""
        if not isinstance(obs, np.ndarray):
            obs = named_rows(obs, self.columns)
        size = len(self.normaliser.obs_mean)
        if obs.shape[-1:] != (size,):
            raise PolicyInputError(f"observations have shape {obs.shape}, expected {size} numbers in the last axis.")
        if not np.isfinite(obs).all():
            column = int(np.argwhere(~np.isfinite(obs))[0][-1])
            name = f" (`{self.columns[column]}`)" if self.columns else ""
            raise PolicyInputError(
                f"observation column {column}{name} is not finite; the policy knows no missing values."
            )
        seen = self.normaliser.normalise_obs(obs)
        return (seen[None], True) if seen.ndim == 1 else (seen, False)

    def begin(self, seed: int, **wishes: Any) -> Step:
        """The steps of one episode, with or without memory or randomness; a cost-conditioned policy takes `limit`."""
        inner = self.network.begin(seed, **wishes) if self.has_memory else lambda obs, *_: self.network(obs[None])[0]

        def step(obs: NDArray[Any], last_reward: float = 0.0, last_cost: Any = 0.0, **wishes: Any) -> NDArray[Any]:
            return self.normaliser.denormalise_action(inner(self._rows(obs)[0][0], last_reward, last_cost, **wishes))

        return step

    @property
    def has_memory(self) -> bool:
        """Whether an action depends on more than the observation: on the episode so far, or on chance."""
        return hasattr(self.network, "begin")

    def act(self, obs: Any, **inputs: Any) -> NDArray[Any]:
        """Actions for observations, or of one row one action, on an episode's first step; `limit` where it takes one.

        With all named inputs of the ONNX model (`spent`, `time`, `latent`, …) it is that function of them.
        """
        if inputs.keys() <= {"limit"}:
            if inputs and not hasattr(self, "with_limit"):
                raise PolicyInputError(
                    f"a policy of kind {self.network.kind} serves one cost limit; leave out `limit`."
                )
            seen, single = self._rows(obs)
            action = self.normaliser.denormalise_action(self.network(seen, **inputs))
            return action[0] if single else action
        inputs["obs"] = obs
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
        own = {"columns": list(self.columns), "cost_limit": list(self.cost_limit)}
        return {"kind": self.network.kind, "settings": self.network.settings(), **own}

    @classmethod
    def restore(cls, arrays: dict[str, NDArray[Any]], settings: dict[str, Any]) -> NormalisedPolicy:
        parts: dict[str, dict[str, NDArray[Any]]] = {"normaliser": {}, "network": {}}
        for name, array in arrays.items():
            part, _, rest = name.partition("/")
            parts[part][rest] = array
        network = _find_kind(settings["kind"]).restore(parts["network"], settings["settings"])
        limit = tuple(settings.get("cost_limit", ()))
        return with_normaliser(network, Normaliser(**parts["normaliser"]), settings.get("columns", ()), limit)


class NormalisedCostConditionedPolicy(NormalisedPolicy):
    """One whose network is conditioned on the cost limit."""

    def with_limit(self, cost_limit: Any, **wishes: Any) -> NormalisedPolicy:
        """The policy for this limit: a number, or one per constraint; of `dial` also limits on tails."""
        if not in_words(cost_limit):
            cost_limit = tuple(float(x) for x in np.atleast_1d(np.asarray(cost_limit, np.float64)))
        network = self.network.with_limit(cost_limit, **wishes)
        told = network.limit if in_words(cost_limit) else cost_limit
        return with_normaliser(network, self.normaliser, self.columns, () if np.isinf(told).any() else tuple(told))

    @property
    def at_limit(self) -> Any:
        """The old name of `with_limit`."""
        from pdocrl.deprecations import attribute  # the exported file runs without pdocrl

        return attribute("Policy", "at_limit", self)


def with_normaliser(
    network: Any, normaliser: Normaliser, columns: Sequence[str] = (), cost_limit: tuple[float, ...] = ()
) -> NormalisedPolicy:
    """The policy with its normaliser, and with `with_limit` where the network has it."""
    kind = NormalisedCostConditionedPolicy if hasattr(network, "with_limit") else NormalisedPolicy
    return kind(network, normaliser, tuple(columns), cost_limit)


def named_rows(rows: Any, columns: Sequence[str]) -> NDArray[np.float64]:
    """[B, S] of a list of numbers, a dict, a list of dicts or a DataFrame; of one dict, [S]."""
    one = hasattr(rows, "keys") and hasattr(rows, "__getitem__")  # a dict or a DataFrame
    if not one and not (isinstance(rows, list | tuple) and rows and hasattr(rows[0], "keys")):
        return np.asarray(rows, np.float64)
    if not columns:
        raise PolicyInputError("the policy's data had no column names; give an array of observations.")
    found = [rows] if one else list(rows)
    for name in columns:
        if any(name not in row for row in found):
            raise PolicyInputError(f"column `{name}` is missing; the policy reads {', '.join(columns)}.")
    values = [np.stack([_numbers(name, row[name]) for name in columns], -1) for row in found]
    return values[0] if one else np.stack(values)


def _numbers(name: str, value: Any) -> NDArray[np.float64]:
    try:
        return np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise PolicyInputError(f"column `{name}` is {value!r}, not a number.") from None


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

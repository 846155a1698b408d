"""Costs of environments that do not say `info["cost"]`: other keys of `info`, or a function of one's own.

def too_fast(obs, action, next_obs, info):     # in my_costs.py, named as my_costs:too_fast
    return float(abs(next_obs[2]) > 4)         # a number, or one per constraint
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from pdocrl.errors import PdocrlError, UnknownNameError

CostFunction = Callable[[Any, Any, Any, dict[str, Any]], Any]


class CostOf(gymnasium.Wrapper):  # type: ignore[misc]
    """Puts `function(obs, action, next_obs, info)` into `info["cost"]` at every step."""

    def __init__(self, env: gymnasium.Env, function: CostFunction) -> None:
        super().__init__(env)
        self._function, self._obs = function, None

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        self._obs, info = self.env.reset(**options)
        return self._obs, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        cost = np.asarray(self._function(self._obs, action, obs, info), dtype=np.float64)
        self._obs = obs
        return obs, float(reward), terminated, truncated, {**info, "cost": cost if cost.ndim else float(cost)}


@dataclasses.dataclass(frozen=True)
class InfoCosts:
    """A cost function: the given keys of `info`, in their order."""

    keys: tuple[str, ...]

    def __call__(self, obs: Any, action: Any, next_obs: Any, info: dict[str, Any]) -> Any:
        missing = [key for key in self.keys if key not in info]
        if missing:
            there = ", ".join(sorted(map(str, info))) or "nothing"
            raise PdocrlError(f"the environment's info has no `{missing[0]}`; it holds {there}.")
        return [float(info[key]) for key in self.keys]


def find_cost_function(entry_point: str) -> CostFunction:
    """The function behind `module:function`; modules in the current folder are found too."""
    module_name, _, name = entry_point.partition(":")
    if not module_name or not name:
        raise PdocrlError(f"cost function {entry_point!r}: write it as module:function, e.g. my_costs:too_fast.")
    module = import_own(module_name, f"cost function {entry_point}")
    if not callable(getattr(module, name, None)):
        callables = [key for key, value in vars(module).items() if callable(value)]
        raise UnknownNameError(f"function in {module_name}", name, callables)
    function: CostFunction = getattr(module, name)
    return function


def import_own(module: str, what: str) -> Any:
    """A module of the user's, also from the current folder."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise PdocrlError(f"{what}: {error}. Run from its folder, or set PYTHONPATH.") from error

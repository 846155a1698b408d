"""Safety-Gymnasium on today's Python, NumPy and MuJoCo, beside Bullet.

safety-gymnasium 1.0.0 pins MuJoCo 2.3.3 and pygame 2.1.0, which do not install on Python 3.11 beside NumPy 2; it is
installed without its pins (`pdocrl install safety-gymnasium`). What its code needs is mended while it is imported:
dataclass fields whose default is an array become factories, its one multi-agent module is spared a package of its own,
and MuJoCo's joints may again be asked for by an array of one number. Its files stay as they are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import inspect
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from pdocrl.envs.mujoco_models import read_old_models
from pdocrl.errors import PdocrlError

INSTALL = "pdocrl install safety-gymnasium"
_MULTI_AGENT = "gymnasium_robotics.envs.multiagent_mujoco.mujoco_multi"


def is_safety_gymnasium(env_id: str) -> bool:
    """SafetyPointGoal1Gymnasium-v0, as Safety-Gymnasium registers it for Gymnasium's own API."""
    return env_id.startswith("Safety") and env_id.partition("-")[0].endswith("Gymnasium")


def register_safety_gymnasium() -> None:
    """Import the package, which makes its ids known. Every process that makes one of its environments calls this."""
    if "safety_gymnasium.builder" in sys.modules:
        return
    for name in ("safety_gymnasium", "mujoco", "xmltodict", "yaml", "glfw"):
        if importlib.util.find_spec(name) is None:
            raise PdocrlError(f"Safety-Gymnasium needs `{name}`, which is not installed. Try: {INSTALL}")
    try:
        with _array_defaults(), _without_multi_agent():
            importlib.import_module("safety_gymnasium")
            importlib.import_module("safety_gymnasium.builder")
    except (ImportError, AttributeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise PdocrlError(f"Safety-Gymnasium cannot be imported ({reason}). Try: {INSTALL}") from error
    _joints_by_array()
    read_old_models()


@contextlib.contextmanager
def _array_defaults() -> Iterator[None]:
    """Python 3.11 refuses defaults that cannot be hashed; here each instance gets a copy of the array."""
    made = dataclasses.dataclass

    def patient(cls: Any = None, /, **options: Any) -> Any:
        if cls is None:
            return lambda given: patient(given, **options)
        for name in inspect.get_annotations(cls):
            default = cls.__dict__.get(name)
            if isinstance(default, np.ndarray):
                setattr(cls, name, dataclasses.field(default_factory=default.copy))
        return made(cls, **options)

    dataclasses.dataclass = patient
    try:
        yield
    finally:
        dataclasses.dataclass = made


@contextlib.contextmanager
def _without_multi_agent() -> Iterator[None]:
    """Stand in for gymnasium-robotics, of which one class is imported and only multi-agent tasks use it."""
    if importlib.util.find_spec("gymnasium_robotics") is not None:
        yield
        return
    parts = _MULTI_AGENT.split(".")
    names = [".".join(parts[: i + 1]) for i in range(len(parts))]
    for name in names:
        sys.modules[name] = types.ModuleType(name)
    sys.modules[_MULTI_AGENT].MultiAgentMujocoEnv = object  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]


def _joints_by_array() -> None:
    import mujoco

    own = mujoco.MjModel.jnt

    def jnt(model: Any, which: Any = "") -> Any:
        return own(model, int(which[0]) if isinstance(which, np.ndarray) else which)

    mujoco.MjModel.jnt = jnt

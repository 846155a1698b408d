"""Gymnasium's older MuJoCo models for a MuJoCo of today: Hopper, Walker2d and Swimmer of gymnasium 0.28.

Two things they use are gone. Positions in global coordinates are rewritten as positions in the parent body; all bodies
of these models are upright, so that is a difference. `collision="predefined"` with no pair predefined means that
nothing collides. tests/envs/test_mujoco.py holds them to what MuJoCo 2.3.3, the last to read the files, makes of them.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np


def read_old_models() -> None:
    """Have Gymnasium's MuJoCo environments load their files through `modern`, where they need it."""
    from gymnasium.envs.mujoco.mujoco_env import MujocoEnv

    own = MujocoEnv._initialize_simulation
    if hasattr(own, "__wrapped__"):
        return

    @functools.wraps(own)
    def load(env: Any) -> Any:
        import mujoco

        text = modern(Path(env.fullpath).read_text(encoding="utf-8"))
        if text is None:
            return own(env)
        env.model = mujoco.MjModel.from_xml_string(text)
        env.model.vis.global_.offwidth, env.model.vis.global_.offheight = env.width, env.height
        env.data = mujoco.MjData(env.model)
        return None

    MujocoEnv._initialize_simulation = load


def modern(text: str) -> str | None:
    """The model with local positions and without collisions of pairs; None where it can be read as it is."""
    root = ElementTree.fromstring(text)
    compiler, option = root.find("compiler"), root.find("option")
    is_global = compiler is not None and compiler.get("coordinate") == "global"
    predefined = option is not None and option.get("collision") == "predefined"
    if not is_global and not predefined:
        return None
    if compiler is not None:
        compiler.attrib.pop("coordinate", None)
    if is_global:
        for world in root.iter("worldbody"):
            for body in world.findall("body"):
                _localise(body, np.zeros(3))
    if predefined and option is not None:
        del option.attrib["collision"]
        for geom in root.iter("geom"):
            geom.set("contype", "0")
            geom.set("conaffinity", "0")
    return ElementTree.tostring(root, encoding="unicode")


def _localise(body: Element, origin: Any) -> None:
    """Give a body's parts, and then the body itself, their places relative to what holds them."""
    own = _numbers(body.get("pos", "0 0 0"))
    for part in body:
        if part.tag == "body":
            _localise(part, own)
        elif "fromto" in part.attrib:
            part.set("fromto", _text(_numbers(part.attrib["fromto"]) - np.tile(own, 2)))
        elif "pos" in part.attrib:
            part.set("pos", _text(_numbers(part.attrib["pos"]) - own))
    body.set("pos", _text(own - origin))


def _numbers(text: str) -> Any:
    return np.array([float(word) for word in text.split()])


def _text(numbers: Any) -> str:
    return " ".join(f"{value:.17g}" for value in numbers)

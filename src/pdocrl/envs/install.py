"""Installs a simulator whose own package pins versions that the supported Pythons do not have, and tries it.

pip installs the files named in `requirements/<simulator>.txt`, hash-checked and without their dependencies, after the
extra of the same name, where there is one. Then a seeded episode is played: on Linux x86-64 the Bullet tasks give the
same bits with every supported Python, Gymnasium and build of the engine, so a digest of the episode is compared.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.resources
import importlib.util
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np

from pdocrl.errors import PdocrlError, UnknownNameError
from pdocrl.records import Part

# Of `play_seeded(task)`, with pybullet 3.2.7, Python 3.11 and Gymnasium 0.28.1 on Linux x86-64: how the hashes begin.
DIGESTS = {
    "BallRun": "8807a7aabeac5459",
    "BallCircle": "8f0255f1b1dfaaf0",
    "CarRun": "cd5aabc791e751a2",
    "CarCircle": "8b32c0009ef80bb5",
    "DroneRun": "709965d79bd681b5",
    "DroneCircle": "f5f00143b857ef86",
    "AntRun": "1de8da487d808723",
    "AntCircle": "c88d19ec295f1fc2",
}
SIMULATORS = {"bullet": tuple(DIGESTS), "safety-gymnasium": ("SafetyPointGoal1Gymnasium-v0",)}
_EXTRAS = {"safety-gymnasium"}  # the others need nothing beside the core


class Played(Part, frozen=True, kw_only=True):
    """One seeded episode with random actions."""

    task: str
    steps: int
    reward: float  # summed over the episode
    cost: float
    digest: str  # of every observation, reward and cost
    matches: bool | None  # the stored digest; None where there is none


def commands(simulator: str, wheels: Path | None = None) -> list[list[str]]:
    """The pip commands that install a simulator; `wheels` is a folder to take all files from, without a network."""
    if simulator not in SIMULATORS:
        raise UnknownNameError("simulator", simulator, SIMULATORS)
    if wheels is not None and not wheels.is_dir():
        raise PdocrlError(f"no folder {wheels}: give the folder that holds the wheels.")
    pip = [sys.executable, "-m", "pip", "install"]
    source = [] if wheels is None else ["--no-index", "--find-links", str(wheels)]
    checked = [
        "--no-deps",
        "--only-binary",
        ":all:",
        "--require-hashes",
        "--requirement",
        str(_requirements(simulator)),
    ]
    before = [[*pip, *source, *_of_extra(simulator)]] if simulator in _EXTRAS else []
    return [*before, [*pip, *source, *checked]]


def install(simulator: str, wheels: Path | None = None) -> None:
    """Run the commands. Raises `PdocrlError` with pip's reason where one fails."""
    todo = commands(simulator, wheels)
    if importlib.util.find_spec("pip") is None:
        raise PdocrlError(
            f"this Python has no pip. Run `{sys.executable} -m ensurepip`, or `uv pip install --no-deps --requirement "
            f"{_requirements(simulator)}`."
        )
    if simulator == "bullet":
        _refuse_two_engines()
    for command in todo:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PdocrlError(f"pip could not install {simulator}: {_reason(done.stderr)}")
    importlib.invalidate_caches()


def play(simulator: str) -> list[Played]:
    """A seeded episode of each task named in `SIMULATORS`."""
    return [play_seeded(task) for task in SIMULATORS[simulator]]


def play_seeded(task: str, seed: int = 0) -> Played:
    """One episode with uniform actions of `numpy.random.default_rng(seed)`, and its sha256."""
    from pdocrl.envs.registry import make

    env, rng, digest = make(task), np.random.default_rng(seed), hashlib.sha256()
    reward = cost = 0.0
    steps, over = 0, False
    try:
        obs, _ = env.reset(seed=seed)
        digest.update(np.asarray(obs, np.float64).tobytes())
        while not over:
            action = rng.uniform(env.action_space.low, env.action_space.high).astype(env.action_space.dtype)
            obs, r, terminated, truncated, info = env.step(action)
            digest.update(np.asarray(obs, np.float64).tobytes() + np.array([r, info["cost"]], np.float64).tobytes())
            reward, cost, steps, over = (
                reward + float(r),
                cost + float(info["cost"]),
                steps + 1,
                terminated or truncated,
            )
    finally:
        env.close()
    found = digest.hexdigest()
    known = DIGESTS.get(task) if seed == 0 else None
    matches = None if known is None else found.startswith(known)
    return Played(task=task, steps=steps, reward=reward, cost=cost, digest=found, matches=matches)


def _requirements(simulator: str) -> Path:
    return Path(str(importlib.resources.files("pdocrl.envs") / "requirements" / f"{simulator}.txt"))


def _of_extra(extra: str) -> list[str]:
    """What an extra of this package asks for. By name pip would look for this package on the index once more."""
    mark = f'extra == "{extra}"'
    lines = importlib.metadata.requires("pdocrl") or []
    return [line.split(";")[0].strip() for line in lines if mark in line.replace("'", '"')]


def _refuse_two_engines() -> None:
    """The two builds of the engine write the same files."""
    own = (sys.version_info[:2], sysconfig.get_platform()) == ((3, 11), "linux-x86_64")
    wanted, other = ("pybullet", "pybullet-arm64") if own else ("pybullet-arm64", "pybullet")
    if any(d.name.lower().replace("_", "-") == other for d in importlib.metadata.distributions() if d.name):
        raise PdocrlError(
            f"{other} is installed, and {wanted}, which would be installed, writes the same files. "
            f"Remove it first: {sys.executable} -m pip uninstall {other}"
        )


def _reason(stderr: str) -> str:
    """pip's last error as one sentence, with a remedy where there is no wheel."""
    errors = [line.removeprefix("ERROR: ") for line in stderr.splitlines() if line.startswith("ERROR: ")]
    reason = (errors or stderr.splitlines() or ["no reason given"])[-1].strip()
    if "No matching distribution" in reason:
        python = f"Python {sys.version_info.major}.{sys.version_info.minor} on {sysconfig.get_platform()}"
        reason += (
            f" ({python}; wheels exist for Python 3.11 to 3.13 on Linux x86-64, macOS and Windows). Only playing "
            "policies needs the simulator; docs/install.md has a container."
        )
    if "HASH" in stderr or "hashes" in reason.lower():
        reason += " A file differs from the one that was tried: nothing was installed."
    return reason

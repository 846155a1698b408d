"""Installs a simulator whose own package pins versions that the supported Pythons do not have, and verifies it.

pip installs the files named in `requirements/<simulator>.txt`, hash-checked and without their dependencies, after the
extra of the same name, where there is one. Then a seeded episode of each task is played and compared with a reference.

Equal bits need more than equal versions: NumPy's sine and OpenBLAS's dot product are chosen by the CPU, and differ in
the last bit. Contacts amplify that within tens of steps, so two CPUs play episodes that agree at first and part later.
`reference_episodes.json` therefore holds the digest of the whole episode and its first steps as numbers.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.resources
import importlib.util
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from pdocrl.errors import PdocrlError, UnknownNameError
from pdocrl.records import Part

FIRST_STEPS = 5  # compared as numbers; over ten, the contacts of AntCircle turn a rounding into 3e-8
TOLERANCE = 1e-9
_TASKS = ("BallRun", "BallCircle", "CarRun", "CarCircle", "DroneRun", "DroneCircle", "AntRun", "AntCircle")
SIMULATORS = {"bullet": _TASKS, "safety-gymnasium": ("SafetyPointGoal1Gymnasium-v0",)}
_EXTRAS = {"safety-gymnasium"}  # the others need nothing beside the core
# bits: the reference's digest; rounding: its first steps within the tolerance; different: neither
Agreement = Literal["bits", "rounding", "different"]


class Played(Part, frozen=True, kw_only=True):
    """One seeded episode with random actions."""

    task: str
    steps: int
    reward: float  # summed over the episode
    cost: float
    digest: str  # of every observation, reward and cost
    agreement: Agreement | None  # with the reference; None where there is none


class Reference(Part, frozen=True, kw_only=True):
    """The episode of a task on the reference machine (Python 3.11, Linux x86-64, OpenBLAS's Haswell kernels)."""

    digest: str  # how it begins
    first: list[list[float]]  # [FIRST_STEPS + 1] rows of (*obs, reward, cost), beginning with the reset


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
            raise PdocrlError(f"pip could not install {simulator}: {_reason(done.stderr, simulator, wheels)}")
    importlib.invalidate_caches()


def verify(simulator: str) -> list[Played]:
    """`play` in a new process: this one may have imported a package that pip has just replaced."""
    code = "import sys, msgspec; from pdocrl.envs.install import play; "
    code += "print(msgspec.json.encode(play(sys.argv[1])).decode())"
    command = [sys.executable, "-W", "ignore", "-c", code, simulator]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise PdocrlError(
            f"{simulator} is installed, but its first episode fails: {last.partition('Error: ')[2] or last}"
        )
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=list[Played])


def play(simulator: str) -> list[Played]:
    """A seeded episode of each task named in `SIMULATORS`."""
    return [play_seeded(task) for task in SIMULATORS[simulator]]


def play_seeded(task: str, seed: int = 0) -> Played:
    """One episode with uniform actions of `numpy.random.default_rng(seed)`, held against the reference of seed 0."""
    rows = list(seeded_episode(task, seed))
    digest = digest_of(rows)
    known = references().get(task) if seed == 0 else None
    reward, cost = np.sum(rows, axis=0)[-2:]
    return Played(
        task=task,
        steps=len(rows) - 1,
        reward=float(reward),
        cost=float(cost),
        digest=digest,
        agreement=None if known is None else agreement(known, digest, rows),
    )


def digest_of(rows: Sequence[NDArray[np.float64]]) -> str:
    """sha256 over the bits of an episode; the reset has neither reward nor cost."""
    digest = hashlib.sha256(rows[0][:-2].tobytes())
    for row in rows[1:]:
        digest.update(row.tobytes())
    return digest.hexdigest()


def seeded_episode(task: str, seed: int = 0) -> Iterator[NDArray[np.float64]]:
    """Rows of (*obs, reward, cost): first the reset, then each step."""
    from pdocrl.envs.registry import make

    env, rng, over = make(task), np.random.default_rng(seed), False
    try:
        obs, _ = env.reset(seed=seed)
        yield np.array([*obs, 0.0, 0.0], np.float64)
        while not over:
            action = rng.uniform(env.action_space.low, env.action_space.high).astype(env.action_space.dtype)
            obs, reward, terminated, truncated, info = env.step(action)
            yield np.array([*obs, reward, info["cost"]], np.float64)
            over = terminated or truncated
    finally:
        env.close()


def agreement(reference: Reference, digest: str, rows: Sequence[NDArray[np.float64]]) -> Agreement:
    """How an episode agrees with its reference: to the bit, or in its first steps up to rounding, or not."""
    if digest.startswith(reference.digest):
        return "bits"
    first = np.array(rows[: len(reference.first)])
    wanted = np.array(reference.first)
    same = first.shape == wanted.shape and np.allclose(first, wanted, rtol=TOLERANCE, atol=TOLERANCE)
    return "rounding" if same else "different"


def references() -> dict[str, Reference]:
    """By task; written by `benchmarks/reference_episodes.py`."""
    text = (importlib.resources.files("pdocrl.envs") / "reference_episodes.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, Reference])


def explain(episodes: Sequence[Played]) -> str:
    """What the agreement of these episodes means, in one line; "" where there is nothing to explain.

    Raises `PdocrlError` where an episode is another one.
    """
    wrong = [episode.task for episode in episodes if episode.agreement == "different"]
    if wrong:
        raise PdocrlError(
            f"installed, but the simulator plays other episodes than the reference in {', '.join(wrong)}: their first "
            f"{FIRST_STEPS} steps differ by more than rounding. Scores would not compare; try a new environment."
        )
    if not any(episode.agreement == "rounding" for episode in episodes):
        return ""
    return (
        f"rounding: the first {FIRST_STEPS} steps agree to {TOLERANCE:g}; this CPU's NumPy and BLAS round the last bit "
        "differently, which contacts amplify later. Scores compare with other machines' as those of other seeds do; on "
        "this machine they repeat to the bit. OPENBLAS_CORETYPE=Haswell selects the reference's kernels on x86-64."
    )


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


def _reason(stderr: str, simulator: str, wheels: Path | None) -> str:
    """pip's last error as one sentence, with a remedy where there is no wheel."""
    errors = [line.removeprefix("ERROR: ") for line in stderr.splitlines() if line.startswith("ERROR: ")]
    reason = (errors or stderr.splitlines() or ["no reason given"])[-1].strip()
    if "No matching distribution" in reason:
        python = f"Python {sys.version_info.major}.{sys.version_info.minor} on {sysconfig.get_platform()}"
        reason += (
            f" ({python}; wheels exist for Python 3.11 to 3.13 on Linux x86-64, macOS and Windows). Only playing "
            "policies needs the simulator; docs/install.md has a container."
        )
        if wheels is not None:
            download = ["pip", "download", "--dest", str(wheels)]
            fetch = [[*download, *_of_extra(simulator)]] if simulator in _EXTRAS else []
            fetch += [[*download, "--no-deps", "--only-binary", ":all:", "-r", str(_requirements(simulator))]]
            reason += " Where there is a network, with the same Python: " + " && ".join(map(shlex.join, fetch))
    if "HASH" in stderr or "hashes" in reason.lower():
        reason += " A file differs from the one that was tried: nothing was installed."
    return reason

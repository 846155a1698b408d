"""Where a result comes from: the source that made it, the packages it depends on, the machine it ran on."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import platform
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from pdocrl.machine import cores
from pdocrl.records import Part

UNKNOWN = "unknown"  # the commit of results made before it was recorded
TRAINING = ("pdocrl", "jax", "equinox", "optax", "numpy")
# Either build of Bullet's engine, and whichever simulator is there.
PLAYING = ("pdocrl", "numpy", "gymnasium", "bullet-safety-gym", "pybullet", "pybullet-arm64", "mujoco")
_PACKAGE = Path(__file__).parent
_CHECKOUT = _PACKAGE.parents[1]


class Provenance(Part, frozen=True, kw_only=True):
    """What made a result."""

    commit: str
    versions: dict[str, str]
    machine: str


def provenance(packages: Iterable[str] = TRAINING, device: str = "") -> Provenance:
    """Of what this process makes, on this device where it is another than the processor."""
    return Provenance(commit=commit(), versions=versions(packages), machine=machine(device))


def versions(packages: Iterable[str] = TRAINING) -> dict[str, str]:
    """Of those that are installed."""
    found = {}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@functools.cache
def commit() -> str:
    """Which source runs: a checkout's git commit, with "+modified" behind it, or the digest of an installed package."""
    if (_CHECKOUT / "pyproject.toml").exists():
        head = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", "src")
        if head is not None:
            return head + ("+modified" if changed else "")
    return f"source {source_digest(_PACKAGE)}"


def source_digest(package: Path) -> str:
    """Of the code in a folder, by name and content: a wheel has that of its checkout, wherever it is installed."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def machine(device: str = "") -> str:
    """System, processor, cores and accelerator, in words: "Linux x86_64, AMD EPYC, 2 cores"."""
    parts = [f"{platform.system()} {platform.machine()}", _processor(), f"{cores()} cores", device]
    return ", ".join(part for part in parts if part)


def in_words(versions: Mapping[str, str]) -> str:
    """`{"jax": "0.10.2", "numpy": "2.4.6"}` → "jax 0.10.2, numpy 2.4.6"."""
    return ", ".join(f"{name} {number}" for name, number in versions.items())


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(_CHECKOUT), *words], capture_output=True, text=True, check=True, timeout=20
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


@functools.cache
def _processor() -> str:
    """As Linux names it; elsewhere as Python does."""
    info = Path("/proc/cpuinfo")
    try:
        lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()

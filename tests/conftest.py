"""What every test may ask for: the shared recordings when they are there, and small datasets made on the spot."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from pdocrl.cli import main as cli
from pdocrl.data import Dataset, make_dataset, tasks

pytest_plugins = ["rows"]

# Programs compiled once serve the whole session, also the trainings that tests start as processes of their own.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", tempfile.mkdtemp(prefix="pdocrl-jax-"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

# Most of the tests' time is compilation of small programs, so the compiler is asked to hurry. The last flag has kernels
# written the older way, which takes half as long; JAX 0.12 no longer knows it, and a flag it does not know ends the
# process. (tests/test_cli.py and others start processes: they inherit this.)
HURRY = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11):
    HURRY += " --xla_cpu_use_fusion_emitters=false"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {HURRY}".strip()

LONG = (
    "test_own_world.py",
    "test_every_agent.py",
    "test_demo.py",
    "test_cli.py",
)  # begin with these, or one core waits


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONG.index(item.path.name) if item.path.name in LONG else len(LONG))


SHARED = Path(os.environ.get("PDOCRL_SHARED") or Path(__file__).parents[2] / "shared")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with the five re-collected DSRL-like files; tests that need it are skipped where it is absent."""
    folder = SHARED / "data"
    if not folder.is_dir():
        pytest.skip("no re-collected datasets: set PDOCRL_SHARED to the folder that holds data/*.hdf5")
    return folder


def random_dataset(
    episodes: int = 12, obs_dim: int = 3, action_dim: int = 2, n_costs: int = 1, seed: int = 0, max_length: int = 9
) -> Dataset:
    """Episodes of random length; about a third end by a terminal, the others by a timeout. Costs are 0 or 1."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, max_length + 1, episodes)
    n, ends = lengths.sum(), np.cumsum(lengths) - 1
    states = [rng.normal(size=(length + 1, obs_dim)) for length in lengths]
    terminal, timeout = np.zeros(n, bool), np.zeros(n, bool)
    terminal[ends] = rng.random(episodes) < 1 / 3
    timeout[ends] = ~terminal[ends]
    return make_dataset(
        obs=np.concatenate([s[:-1] for s in states]),
        action=rng.uniform(-1, 1, (n, action_dim)),
        reward=rng.normal(size=n),
        cost=(rng.random((n, n_costs)) < 0.3) * 1.0,
        next_obs=np.concatenate([s[1:] for s in states]),
        terminal=terminal,
        timeout=timeout,
        name="random",
    )


@pytest.fixture
def run_cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """`run_cli("data", "info", …)` → (exit status, standard output, standard error)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture(autouse=True)
def own_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks registered by one test are unknown to the next."""
    monkeypatch.setattr(tasks, "_registered", {})
    monkeypatch.delenv("PDOCRL_TASKS", raising=False)


@pytest.fixture
def small_dataset() -> Dataset:
    """Twelve short episodes, S = 3, A = 2, K = 1."""
    return random_dataset()


@pytest.fixture
def make_random_dataset() -> Callable[..., Dataset]:
    """`random_dataset` itself, for tests that vary its arguments."""
    return random_dataset

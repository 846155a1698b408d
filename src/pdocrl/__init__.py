"""Offline constrained reinforcement learning: from logged data to a policy that earns more and keeps its limits.

    data = pdocrl.load("BallRun")
    trained = pdocrl.train(data, cost_limit=[10, 20, 40], steps=10_000)
    scores = pdocrl.evaluate(trained)

Names are imported when first used, so that `import pdocrl` is instant and roll-out workers never load JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pdocrl.collect.pipeline import collect as collect
    from pdocrl.data import Dataset as Dataset
    from pdocrl.data import Task as Task
    from pdocrl.data import load as load
    from pdocrl.data import make_dataset as make_dataset
    from pdocrl.data import register as register
    from pdocrl.data import save as save
    from pdocrl.envs import rollout as rollout
    from pdocrl.evaluation.evaluate import evaluate as evaluate
    from pdocrl.ope.certificates import certify as certify
    from pdocrl.portfolio.entry import solve as solve
    from pdocrl.training.folder import export as export
    from pdocrl.training.folder import load_trained as load_trained
    from pdocrl.training.train import resume as resume
    from pdocrl.training.train import train as train

_HOMES = {
    "Dataset": "pdocrl.data",
    "Task": "pdocrl.data",
    "certify": "pdocrl.ope.certificates",
    "evaluate": "pdocrl.evaluation.evaluate",
    "export": "pdocrl.training.folder",
    "load": "pdocrl.data",
    "load_trained": "pdocrl.training.folder",
    "make_dataset": "pdocrl.data",
    "register": "pdocrl.data",
    "resume": "pdocrl.training.train",
    "rollout": "pdocrl.envs",
    "save": "pdocrl.data",
    "solve": "pdocrl.portfolio.entry",
    "train": "pdocrl.training.train",
}
__all__ = sorted([*_HOMES, "__version__", "collect", "ope", "report"])


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("pdocrl")
    if name in {"collect", "ope", "report"}:  # packages that may be called, see `callable_package`
        return importlib.import_module(f"pdocrl.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'pdocrl' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)

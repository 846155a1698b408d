"""Offline constrained reinforcement learning: from logged data to a policy that earns more and keeps its limits.

    data = pdocrl.load("BallRun")
    trained = pdocrl.train(data, "pdocrl", cost_limit=[10, 20, 40], steps=10_000)
    scores = pdocrl.evaluate(trained)

Names are imported when first used, so that `import pdocrl` is instant and roll-out workers never load JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pdocrl.data import Dataset as Dataset
    from pdocrl.data import load as load
    from pdocrl.data import save as save
    from pdocrl.policies.export import export as export
    from pdocrl.report import report as report
    from pdocrl.scores.evaluate import evaluate as evaluate
    from pdocrl.tabular.saddle import solve as solve
    from pdocrl.training.train import load_trained as load_trained
    from pdocrl.training.train import resume as resume
    from pdocrl.training.train import train as train

_HOMES = {
    "Dataset": "pdocrl.data",
    "load": "pdocrl.data",
    "save": "pdocrl.data",
    "train": "pdocrl.training.train",
    "resume": "pdocrl.training.train",
    "load_trained": "pdocrl.training.train",
    "evaluate": "pdocrl.scores.evaluate",
    "solve": "pdocrl.tabular.saddle",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pdocrl' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)

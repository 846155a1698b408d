"""Offline safe reinforcement learning: policies from logged data that maximise reward under cost constraints.

    data = pdocrl.load("BallRun")
    trained = pdocrl.train(data, "dial", steps=10_000)
    policy = trained.policy(cost_limit=20)
    scores = pdocrl.evaluate(trained, cost_limit=[10, 20, 40])

Names are imported when first used, so that `import pdocrl` is instant and roll-out workers never load JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pdocrl import callbacks as callbacks
    from pdocrl import loggers as loggers
    from pdocrl import testing as testing
    from pdocrl.agents.base import Agent as Agent
    from pdocrl.agents.base import AgentConfig as AgentConfig
    from pdocrl.agents.base import Learned as Learned
    from pdocrl.collect.pipeline import collect as collect
    from pdocrl.data import Dataset as Dataset
    from pdocrl.data import Task as Task
    from pdocrl.data import load as load
    from pdocrl.data import make_dataset as make_dataset
    from pdocrl.data import register as register
    from pdocrl.data import save as save
    from pdocrl.data import to_dataframe as to_dataframe
    from pdocrl.envs import make as make
    from pdocrl.envs import rollout as rollout
    from pdocrl.evaluation.evaluate import evaluate as evaluate
    from pdocrl.ope.certify import certify as certify
    from pdocrl.policy_folder import load_policy as load_policy
    from pdocrl.portfolio.entry import solve as solve
    from pdocrl.training.callbacks import Callback as Callback
    from pdocrl.training.folder import export as export
    from pdocrl.training.folder import load_trained as load_trained
    from pdocrl.training.loggers import Logger as Logger
    from pdocrl.training.train import resume as resume
    from pdocrl.training.train import train as train

_HOMES = {  # name → module that has it
    "Agent": "pdocrl.agents.base",
    "AgentConfig": "pdocrl.agents.base",
    "Callback": "pdocrl.training.callbacks",
    "Dataset": "pdocrl.data",
    "Learned": "pdocrl.agents.base",
    "Logger": "pdocrl.training.loggers",
    "Task": "pdocrl.data",
    "certify": "pdocrl.ope.certify",
    "evaluate": "pdocrl.evaluation.evaluate",
    "export": "pdocrl.training.folder",
    "load": "pdocrl.data",
    "load_policy": "pdocrl.policy_folder",
    "load_trained": "pdocrl.training.folder",
    "make": "pdocrl.envs",
    "make_dataset": "pdocrl.data",
    "register": "pdocrl.data",
    "resume": "pdocrl.training.train",
    "rollout": "pdocrl.envs",
    "save": "pdocrl.data",
    "solve": "pdocrl.portfolio.entry",
    "to_dataframe": "pdocrl.data",
    "train": "pdocrl.training.train",
}
_MODULES = {  # modules of the public API; those of a verb's name may be called, see `callable_package`
    "bench": "pdocrl.bench",
    "callbacks": "pdocrl.callbacks",
    "collect": "pdocrl.collect",
    "loggers": "pdocrl.loggers",
    "ope": "pdocrl.ope",
    "report": "pdocrl.report",
    "testing": "pdocrl.testing",
}
__all__ = sorted([*_HOMES, *_MODULES, "__version__"])


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("pdocrl")
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name not in _HOMES:
        raise AttributeError(f"module 'pdocrl' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)

"""`pdocrl.ope(policies, log, limits=…)`: one call for every kind of policy and log.

a folder of `pdocrl train`, its dataset           ─▶ `estimate`: learned dynamics, calibrated            ─▶ OffPolicy
any policies, a dataset of vectors                ─▶ `judge_dataset`: learned dynamics, calibrated       ─▶ OpeReport
any policies, a log with columns, discrete actions ─▶ `judge.judge`: every off-policy estimator           ─▶ OpeReport
the same larger than memory                       ─▶ `judge_by_weights`: importance sampling, doubly robust ─▶ OpeReport
the same with continuous actions                  ─▶ `judge_by_weights`: importance sampling             ─▶ OpeReport
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pdocrl.data import load
from pdocrl.data.dataset import Dataset
from pdocrl.data.event_log import EventLog
from pdocrl.data.named_columns import read_table
from pdocrl.data.tasks import all_tasks
from pdocrl.errors import PdocrlError
from pdocrl.limits import Limits, as_limits
from pdocrl.ope.by_weights import judge_by_weights
from pdocrl.ope.judge import judge
from pdocrl.ope.parts import in_parts, is_continuous, with_own_propensity
from pdocrl.ope.result import OffPolicy, OpeReport
from pdocrl.training.config import FILE as RUN_FILE
from pdocrl.training.folder import Trained

COLUMN_OPTIONS = (
    "action",
    "reward",
    "costs",
    "episode",
    "step",
    "terminal",
    "decider",
    "propensity",
    "columns",
    "keep",
)


def judge_policies(policies: Any, log: Any = None, limits: Limits = (), **options: Any) -> OffPolicy | OpeReport:
    """Estimate reward and costs of policies from logged data alone, with a verdict on each limit.

    Args:
        policies: a folder of `pdocrl train` (or what `pdocrl.train` returned), judged on its own dataset; or any policy
            for discrete actions, several in a list or by name: a function, `module:name`, a classifier, a folder of
            `pdocrl solve`, an .onnx file, a table of probabilities, an array, a column of the log.
        log: an `EventLog`, or a file, DataFrame or dict of arrays to be read as one; or a `Dataset`, its file (HDF5,
            npz) or a task's name; of a training's folder its data, where it is not where it was.
        limits: on totals of an episode: {"cost": 4}, "cost<=4", "P(cost>20)<=0.05", "CVaR90(cost)<=40"; a list of them.
        stream: of a log: read it part by part, by the estimators that allow it; default: files of more than
            3,000,000 rows are.
        options: column names, as `EventLog.read` takes them (`action`, `reward`, `costs`, `episode`, `step`,
            `terminal`, `decider`, `propensity`, `columns`, `keep`; a column `propensity` of probabilities is taken as
            such unless `propensity=None`); those of `judge.judge` (`confidence`, `discount`,
            `regressor`, `newer`, `seed`) or, of a dataset, those of `judge_dataset`; of a training, those of
            `of_training.estimate`.
    """
    from pdocrl.ope.ensemble.of_dataset import judge_dataset
    from pdocrl.ope.ensemble.of_training import estimate
    from pdocrl.ope.ensemble.prepare import Prepared

    columns = {name: options.pop(name) for name in COLUMN_OPTIONS if name in options}
    stream = options.pop("stream", None)
    if isinstance(log, EventLog):
        if columns:
            raise PdocrlError(f"{log.name} is read already; give `{next(iter(columns))}` to EventLog.read.")
        return judge(policies, log, limits, **options)
    log = columns_of(log)
    dataset = log if isinstance(log, Dataset | Prepared) else _dataset(log)
    if is_training(policies) and not limits and not columns:
        one = policies[0] if isinstance(policies, list | tuple) else policies
        return estimate(one, log if dataset is None else dataset, **options)
    if dataset is not None:
        for name, usual in OF_LOGS.items():
            if options.pop(name, usual) != usual:
                raise PdocrlError(
                    f"`{name}` is for logs with columns; {log} holds vectors, judged by learned dynamics."
                )
        return judge_dataset(policies, dataset, limits, **options)
    if not _listed(policies):
        raise PdocrlError("no policy to judge; give at least one.")
    if log is None:
        raise PdocrlError(f"{_words(policies)}: no run.json here (pdocrl train), so give a log of decisions.")
    action = columns.get("action", "action")
    columns = with_own_propensity(log, columns)
    if is_continuous(log, action) or in_parts(log, stream):
        if options.pop("regressor", OF_LOGS["regressor"]) != OF_LOGS["regressor"]:
            raise PdocrlError("`regressor` is for logs in memory with discrete actions.")
        return judge_by_weights(policies, log, limits, **options, **columns)
    known = read_log(log, policies, limits, **columns)
    newer = options.pop("newer", None)
    if newer is not None and not isinstance(newer, EventLog):
        newer = read_log(newer, policies, limits, **columns)
    return judge(policies, known, limits, newer=newer, **options)


VECTORS = (".hdf5", ".h5", ".npz")  # files of datasets, or of columns
OF_LOGS: dict[str, Any] = {"discount": 1.0, "regressor": "linear", "newer": None}  # options, with their defaults


def _task_names() -> set[str]:
    return {task.name for task in all_tasks()}


def _dataset(log: Any) -> Dataset | None:
    """The dataset of vectors that a file or a task's name stands for; None of a log with columns."""
    if isinstance(log, str | os.PathLike) and (Path(log).suffix in VECTORS or str(log) in _task_names()):
        return load(log)
    return None


def columns_of(log: Any) -> Any:
    """{name: [N]} of an HDF5 file whose arrays are named columns of one length; anything else as it is."""
    if not isinstance(log, str | os.PathLike) or Path(log).suffix not in VECTORS[:2] or not Path(log).is_file():
        return log
    import h5py

    with h5py.File(log) as file:
        arrays = {name: one for name, one in file.items() if isinstance(one, h5py.Dataset)}
        lengths = {one.shape for one in arrays.values()}
        if "observations" in arrays or not arrays or len(lengths) != 1 or len(lengths.pop()) != 1:
            return log
        return {name: one.asstr()[:] if one.dtype.kind in "SO" else one[:] for name, one in arrays.items()}


def read_log(source: Any, policies: Any, limits: Limits = (), **columns: Any) -> EventLog:
    """A log whose costs are also those that limits name, and which keeps columns that are named as policies."""
    action = columns.get("action", "action")
    columns = with_own_propensity(source, columns)
    if is_continuous(source, action):
        raise PdocrlError(f"the actions in `{action}` are continuous; `pdocrl ope` judges them, by densities.")
    names = [str(p) for p in _listed(policies) if isinstance(p, str | os.PathLike)]
    rules = [name for name in names if ":" not in name and not Path(name).exists() and not Path(name).suffix]
    table = read_table(source).columns if rules else {}
    keep = [*columns.pop("keep", ()), *(name for name in rules if name in table)]
    limited = [limit.name for limit in as_limits(limits)]
    return EventLog.read(source, keep=list(dict.fromkeys(keep)), limited=limited, **columns)


def _listed(policies: Any) -> list[Any]:
    if isinstance(policies, dict):
        return list(policies.values())
    return list(policies) if isinstance(policies, list | tuple) else [policies]


def is_training(policies: Any) -> bool:
    """Whether it is one training, given as such or as its folder."""
    listed = _listed(policies)
    one = listed[0] if len(listed) == 1 else None
    if isinstance(one, Trained):
        return True
    return isinstance(one, str | os.PathLike) and (Path(one) / RUN_FILE).is_file()


def _words(policies: Any) -> str:
    return ", ".join(str(p) if isinstance(p, str | os.PathLike) else type(p).__name__ for p in _listed(policies))

"""Any policy on the rows of a log, as probabilities [N, A] of the logged actions.

a function       {column: [N]} → [N] action labels, or [N, A] probabilities in the order of `log.actions`
"module:name"    the same, imported
a classifier     anything with `predict_proba` and `classes_`, asked with a DataFrame of the feature columns
"rule"           a column of the log that says what the rule would have done (read with keep=["rule"])
"policy.onnx"    numeric and boolean columns, in order, as float32 [N, D] → [N] places or [N, A] probabilities
an array         [N] labels or [N, A] probabilities, in the log's order: by episode and step
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from pdocrl.data.event_log import EventLog
from pdocrl.errors import MissingExtraError, PdocrlError
from pdocrl.ope.estimators.problem import Floats


def probabilities(policy: Any, log: EventLog) -> Floats:
    """[N, A] π(a | row)"""
    if isinstance(policy, str | Path):
        return _named(str(policy), log)
    if hasattr(policy, "predict_proba"):
        return _classifier(policy, log)
    return _table(policy(log.frame()) if callable(policy) else policy, log)


def name_of(policy: Any) -> str:
    """What to call a policy in a result."""
    if isinstance(policy, str | Path):
        return str(policy)
    return "probabilities" if isinstance(policy, np.ndarray) else getattr(policy, "__name__", type(policy).__name__)


def _named(name: str, log: EventLog) -> Floats:
    if name in log.extras:
        return _table(log.extras[name], log)
    if name.endswith(".onnx"):
        return _onnx(name, log)
    module, colon, attribute = name.partition(":")
    if not colon:
        kept = ", ".join(log.extras) or "none"
        raise PdocrlError(
            f"{name}: neither a kept column of {log.name} (kept: {kept}), nor an .onnx file, nor `module:name`."
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise PdocrlError(f"{name}: cannot be imported: {error}.") from None
    return probabilities(found, log)


def _classifier(policy: Any, log: EventLog) -> Floats:
    try:
        import pandas
    except ImportError:
        raise PdocrlError("a classifier is asked with a DataFrame: pip install pandas, or give a function.") from None
    found = np.asarray(policy.predict_proba(pandas.DataFrame(log.frame())), np.float64)
    result = np.zeros((len(log), len(log.actions)))
    result[:, log.action_codes(np.asarray(policy.classes_))] = found
    return result


def _onnx(name: str, log: EventLog) -> Floats:
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtraError("a policy in an .onnx file", "onnx") from None
    if not Path(name).is_file():
        raise PdocrlError(f"{name}: no such file.")
    words = [column.name for column in log.columns if column.kind == "categorical"]
    if words:
        raise PdocrlError(f"{name}: column `{words[0]}` holds words; give columns=[…] with numbers only to the log.")
    session = onnxruntime.InferenceSession(name, providers=["CPUExecutionProvider"])
    matrix = np.stack([np.where(c.missing, np.nan, c.values) for c in log.columns], axis=1).astype(np.float32)
    found = np.asarray(session.run(None, {session.get_inputs()[0].name: matrix})[0])
    if found.ndim == 1 and found.dtype.kind in "iu":
        return np.asarray(np.eye(len(log.actions))[found], np.float64)
    return _table(found, log)


def _table(found: Any, log: EventLog) -> Floats:
    """Labels [N] or probabilities [N, A]; `Problem` checks that rows sum to 1."""
    array = np.asarray(found)
    if array.ndim == 1 and len(array) == len(log):
        return np.eye(len(log.actions))[log.action_codes(array)]
    if array.shape != (len(log), len(log.actions)):
        wanted = f"[{len(log)}] labels or [{len(log)}, {len(log.actions)}] probabilities"
        raise PdocrlError(f"the policy gave an array of shape {array.shape}, expected {wanted}.")
    return array.astype(np.float64)

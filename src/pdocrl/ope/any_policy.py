"""Any policy on the rows of a log, as probabilities [N, A] of the logged actions.

a function       {column: [N]} → [N] action labels, or [N, A] probabilities in the order of `log.actions`
"module:name"    the same, imported (the working directory is looked in, too)
a classifier     anything with `predict_proba` and `classes_`, asked with a DataFrame of the feature columns
"rule"           a column of the log that says what the rule would have done (read with keep=["rule"])
a folder         of `pdocrl solve` (where it remembers what was spent, it is told what the log had spent), or of
                 `pdocrl train` with discrete actions: one policy per run
"policy.onnx"    numeric and boolean columns, in order, as float32 [N, D] → [N] places or [N, A] probabilities
"policy.npz"     an array `probabilities` [N, A], or what `pdocrl export` wrote
"table.csv"      (or .parquet) probabilities per row or per state, see `from_file`
an array         [N] labels or [N, A] probabilities, in the log's order: by episode and step
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pdocrl.data.event_log import EventLog
from pdocrl.data.named_columns import Column, numbers, read_table
from pdocrl.errors import DataError, MissingExtraError, PdocrlError, by_door
from pdocrl.ope.estimators.problem import Floats
from pdocrl.policies import row_policy
from pdocrl.tabular.result.policy import UnseenStateError
from pdocrl.tabular.tails import policy as tails
from pdocrl.tabular.workflow import load_policy as load_solved
from pdocrl.training import config

RUN_FILE, SOLVED_FILE = config.FILE, "policy.json"


class Target(NamedTuple):
    """A policy on the rows of a log."""

    probabilities: Floats  # [N, A]
    log: EventLog  # with what the policy remembers as further columns, so that estimators may condition on it


def named_policies(policies: Any, log: EventLog) -> dict[str, Target]:
    """{name: target} of one policy, of several in a list, or of {name: policy}."""
    if isinstance(policies, dict):
        return {str(name): _only(policy, log) for name, policy in policies.items()}
    if not isinstance(policies, list | tuple):
        policies = [policies]
    found: dict[str, Target] = {}
    for policy in policies:
        for name, target in _expanded(policy, log):
            if name in found:
                name = next(f"{name} ({i})" for i in range(2, len(found) + 3) if f"{name} ({i})" not in found)
            found[name] = target
    if not found:
        raise PdocrlError("no policy to judge; give at least one.")
    return found


def _only(policy: Any, log: EventLog) -> Target:
    """What must be one policy."""
    found = list(_expanded(policy, log))
    if len(found) > 1:
        raise PdocrlError(f"{name_of(policy)} holds {len(found)} policies; give them by themselves, in a list.")
    return found[0][1]


def name_of(policy: Any) -> str:
    """What to call a policy in a result."""
    if isinstance(policy, str | os.PathLike):
        return str(policy)
    return "probabilities" if isinstance(policy, np.ndarray) else getattr(policy, "__name__", type(policy).__name__)


def _expanded(policy: Any, log: EventLog) -> Iterable[tuple[str, Target]]:
    """A policy with its name; of a training's folder one per run."""
    if isinstance(policy, Target):
        yield "the policy", policy
        return
    name = name_of(policy)
    path = Path(name)
    if not isinstance(policy, str | os.PathLike):
        yield name, Target(_of_object(policy, log, name), log)
    elif name not in log.extras and (path / RUN_FILE).is_file():
        for run, table in _trained(path, log):
            yield run, Target(table, log)
    elif name not in log.extras and remembers_spending(path):
        yield name, _spending(path, log)
    else:
        yield name, Target(_named(name, log), log)


def _of_object(policy: Any, log: EventLog, name: str) -> Floats:
    """A function, a classifier or an array."""
    if hasattr(policy, "predict_proba"):
        return _classifier(policy, log)
    if not callable(policy):
        return as_table(policy, log, name)
    try:
        found = policy(log.frame())
    except Exception as error:  # whatever a stranger's function raises
        given = ", ".join(column.name for column in log.columns) or "nothing"
        raise PdocrlError(
            f"{name}: the function failed with {type(error).__name__}: {error} (given: {given})."
        ) from error
    return as_table(found, log, name)


def _named(name: str, log: EventLog) -> Floats:
    path = Path(name)
    if name in log.extras:
        return as_table(log.extras[name], log, f"column `{name}`")
    if path.suffix in {".onnx", ".npz", ".csv", ".tsv", ".parquet", ".pq"}:
        if not path.is_file():
            raise PdocrlError(f"{name}: no such file.")
        return _onnx(name, log) if path.suffix == ".onnx" else _file(path, log)
    if path.is_dir():
        return _solved(path, log)
    if ":" not in name:
        kept = ", ".join(log.extras) or "none"
        raise PdocrlError(
            f"{name}: neither a kept column of {log.name} (kept: {kept}), nor a folder of pdocrl, nor a file (.onnx, "
            ".npz, .csv, .parquet), nor `module:name`."
        )
    return _of_object(imported(name), log, name)


def imported(name: str) -> Any:
    """What `module:name` stands for; the working directory is looked in, too."""
    module, _, attribute = name.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise PdocrlError(f"{name}: cannot be imported: {error}.") from None
    finally:
        sys.path.remove(os.getcwd())


def _file(path: Path, log: EventLog) -> Floats:
    if path.suffix != ".npz":
        return from_file(path, log)
    with np.load(path, allow_pickle=False) as arrays:
        if "probabilities" in arrays:
            return as_table(arrays["probabilities"], log, str(path))
    from pdocrl.policies import policy as policies

    return _labelled(policies.load(path), str(path), log)


def _classifier(policy: Any, log: EventLog) -> Floats:
    try:
        import pandas
    except ImportError:
        raise PdocrlError("a classifier is asked with a DataFrame: pip install pandas, or give a function.") from None
    found = np.asarray(policy.predict_proba(pandas.DataFrame(log.frame())), np.float64)
    result = np.zeros((len(log), len(log.actions)))
    result[:, log.action_codes(np.asarray(policy.classes_))] = found
    return result


def _rows(path: Path, log: EventLog) -> Floats:
    """A folder of `pdocrl solve` for a log of columns."""
    policy = row_policy.load(path)
    columns = {column.name: column.raw() for column in log.columns} | log.extras
    needed = [column["name"] for column in policy.columns]
    try:
        found = policy.chances(policy.inputs({name: columns[name] for name in needed if name in columns}, log.step))
    except row_policy.RowError as error:
        raise PdocrlError(f"{path} on {log.name}: {error}") from None
    result = np.zeros((len(log), len(log.actions)))
    result[:, log.action_codes(np.asarray(policy.actions, object))] = found
    return result


def _solved(path: Path, log: EventLog) -> Floats:
    """A folder of `pdocrl solve`: of finite states each distinct row is asked once."""
    if (path / "models.npz").is_file():
        return _rows(path, log)
    if not (path / SOLVED_FILE).is_file():
        raise PdocrlError(f"{path}: neither {RUN_FILE} (pdocrl train) nor {SOLVED_FILE} (pdocrl solve) is there.")
    policy = load_solved(path)
    wanted = [policy.state_column] if policy.cells is None else list(policy.cells["columns"])
    columns = {column.name: column.raw() for column in log.columns} | log.extras
    missing = [name for name in wanted if name not in columns]
    if missing:
        raise PdocrlError(f"{path}: needs the column `{missing[0]}`, which {log.name} does not have as a state column.")
    result = np.zeros((len(log), len(log.actions)))
    asked: dict[tuple[Any, ...], Floats] = {}
    codes = np.full(len(policy.actions), -1)
    for i in range(len(log)):
        row = {name: _plain(columns[name][i]) for name in wanted}
        step = int(log.step[i]) if policy.has_steps else 0
        key = (*row.values(), step)
        if key not in asked:
            try:
                chances = np.asarray(policy.chances(row, step), np.float64)
            except UnseenStateError as error:
                raise PdocrlError(f"{path}: row {i + 1} of {log.name}: {error.args[0]}.") from None
            taken = np.flatnonzero(chances > 0)
            codes[taken] = log.action_codes(np.array([policy.actions[k] for k in taken], object))
            asked[key] = np.zeros(len(log.actions))
            asked[key][codes[taken]] = chances[taken] / chances[taken].sum()
        result[i] = asked[key]
    return result


def remembers_spending(path: Path) -> bool:
    """Whether it is a folder of `pdocrl solve` with a limit on a tail."""
    try:
        content = json.loads((path / SOLVED_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and isinstance(content.get("columns"), list) and "unseen" in content


def _spending(path: Path, log: EventLog) -> Target:
    """π(a | state, step, spent), with what the logged episode had spent before the row."""
    policy = tails.load(path)
    columns = {column.name: column for column in log.columns}
    state = columns.get("state", log.columns[0] if len(log.columns) == 1 else None)
    if state is None:
        raise PdocrlError(f"{path}: needs the column `state`, which {log.name} does not have as a state column.")
    spent: dict[str, Floats] = {}
    for name in (str(column["name"]) for column in policy.columns):
        if name not in log.costs:
            raise PdocrlError(f"{path}: remembers the cost `{name}`, which {log.name} does not have.")
        before = np.cumsum(log.costs[name]) - log.costs[name]
        spent[name] = before - before[np.flatnonzero(log.step == 0)][log.episode]
    place = log.action_codes(np.array(policy.actions, object))
    result = np.zeros((len(log), len(log.actions)))
    for i, (label, step) in enumerate(zip(state.raw(), log.step.tolist(), strict=True)):
        try:
            chances = policy.chances(_plain(label), {name: float(x[i]) for name, x in spent.items()}, step)
        except ValueError as error:
            raise PdocrlError(f"{path}: row {i + 1} of {log.name}: {error}.") from None
        result[i, place] = chances / chances.sum()
    known = np.zeros(len(log), bool)
    further = tuple(Column(f"spent {name}", "numeric", x, known) for name, x in spent.items())
    return Target(result, dataclasses.replace(log, columns=(*log.columns, *further)))


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _trained(path: Path, log: EventLog) -> Iterable[tuple[str, Floats]]:
    """The policies of a training with discrete actions; observations are the columns in order."""
    from pdocrl.training.folder import load_trained

    trained = load_trained(path)
    for run, policy in zip(trained.config.runs, trained.policies, strict=True):
        limits = ", ".join(f"{value:g}" for value in run["cost_limit"])
        name = f"{path} (limit {limits}, seed {run['seed']})" if len(trained.policies) > 1 else str(path)
        yield name, _labelled(policy, str(path), log)


def _labelled(policy: Any, name: str, log: EventLog) -> Floats:
    """A policy of ours with discrete actions: obs [N, S] → labels [N]."""
    scales = getattr(policy, "normaliser", None)
    if scales is None or not len(scales.discrete_actions):
        raise PdocrlError(f"{name}: its actions are continuous; judge it on its dataset: pdocrl ope {name}.")
    if policy.has_memory:
        raise PdocrlError(f"{name}: it acts on the episode so far, and rows of a log say nothing of that.")
    matrix = _matrix(log, name)
    if matrix.shape[1] != len(scales.obs_mean):
        columns = ", ".join(column.name for column in log.columns)
        raise PdocrlError(
            f"{name}: observes {len(scales.obs_mean)} numbers, {log.name} has {matrix.shape[1]} state columns "
            f"({columns}); name them in order: "
            f"{by_door('columns=[…]', '--state-columns')}."
        )
    if np.isnan(matrix).any():
        row = int(np.isnan(matrix).any(1).argmax()) + 1
        raise PdocrlError(f"{name}: row {row} of {log.name} misses a state column; fill it in.")
    return as_table(policy(matrix), log, name)


def _matrix(log: EventLog, name: str) -> Floats:
    """[N, D] numeric and boolean columns in order, NaN where missing."""
    words = [column.name for column in log.columns if column.kind == "categorical"]
    if words:
        raise PdocrlError(
            f"{name}: column `{words[0]}` holds words; name numeric state columns: "
            f"{by_door('columns=[…]', '--state-columns')}."
        )
    return np.stack([np.where(c.missing, np.nan, c.values) for c in log.columns], axis=1).astype(np.float32)


def _onnx(name: str, log: EventLog) -> Floats:
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtraError("a policy in an .onnx file", "onnx") from None
    matrix = _matrix(log, name)
    session = onnxruntime.InferenceSession(name, providers=["CPUExecutionProvider"])
    found = np.asarray(session.run(None, {session.get_inputs()[0].name: matrix})[0])
    if found.ndim == 1 and found.dtype.kind in "iu":
        return np.asarray(np.eye(len(log.actions))[found], np.float64)
    return as_table(found, log, name)


def as_table(found: Any, log: EventLog, name: str = "the policy") -> Floats:
    """Labels [N] or probabilities [N, A], checked."""
    array = np.asarray(found)
    if array.ndim == 1 and len(array) == len(log):
        return np.eye(len(log.actions))[log.action_codes(array)]
    if array.shape != (len(log), len(log.actions)):
        wanted = f"[{len(log)}] labels or [{len(log)}, {len(log.actions)}] probabilities"
        called = "A function is called with {column: [N]}."
        raise PdocrlError(f"{name}: gave an array of shape {array.shape}, expected {wanted}. {called}")
    table = array.astype(np.float64)
    off = np.flatnonzero(~(np.abs(table.sum(1) - 1) < 1e-6) | ~(table >= -1e-9).all(1))
    if off.size:
        row = [round(x, 6) for x in table[off[0]].tolist()]
        raise PdocrlError(f"{name}: the probabilities of row {off[0] + 1} are {row}; they must be ≥ 0 and sum to 1.")
    return table


LONG = ("action", "probability")


def from_file(path: Path, log: EventLog) -> Floats:
    """[N, A] of the rows of a log, from a table of probabilities.

    per row      one row per row of the log, in the file's order; a column per action, named as it is (or `p_<action>`)
    per state    the state columns of the log that decide, and a column per action
    long         the state columns, `action` and `probability`; what is not listed has probability 0

        state,order_0,order_5        state,action,probability
        low,0.1,0.9                  low,order_5,0.9
    """
    read = read_table(path)
    table, name = read.columns, read.name
    wide = _action_columns(table, log)
    if set(LONG) <= table.keys():
        return _by_state(name, _from_long(name, table, log), log)
    if not wide:
        actions = ", ".join(map(str, log.actions[:8]))
        raise DataError(f"{name}: no column is named like an action of {log.name} ({actions}); see the docs on tables.")
    chances = np.zeros((len(next(iter(table.values()))), len(log.actions)))
    for place, column in wide.items():
        chances[:, place] = numbers(name, column, table[column])
    keys = [column for column in table if column not in wide.values()]
    if not keys:
        return _per_row(name, chances, log)
    places = _columns(name, keys, log)
    return _by_state(name, (places, _keys(table, keys), chances), log)


def _action_columns(table: dict[str, Any], log: EventLog) -> dict[int, str]:
    """{place of the action: column}"""
    features = {column.name for column in log.columns}
    found = {}
    for place, label in enumerate(log.actions):
        named = [c for c in (str(label), f"p_{label}") if c in table and c not in features]
        if named:
            found[place] = named[0]
    return found


def _per_row(name: str, chances: Floats, log: EventLog) -> Floats:
    order = log.source_row
    if len(chances) != len(log) or (order is not None and sorted(order.tolist()) != list(range(len(log)))):
        raise DataError(f"{name}: has {len(chances)} rows, {log.name} has {len(log)}; give one for each, or states.")
    return chances if order is None else chances[order]


State = tuple[list[NDArray[Any]], list[tuple[str, ...]], Floats]  # columns of the log, keys and chances of the table


def _from_long(name: str, table: dict[str, Any], log: EventLog) -> State:
    keys = [column for column in table if column not in LONG]
    if not keys:
        raise DataError(f"{name}: a table of `action` and `probability` needs the state columns, too.")
    places = _columns(name, keys, log)
    chance = numbers(name, "probability", table["probability"])
    taken = np.flatnonzero(chance > 0)
    codes = log.action_codes(np.ma.getdata(table["action"])[taken])
    listed: dict[tuple[str, ...], Floats] = {}
    every = _keys(table, keys)
    for row, code in zip(taken, codes, strict=True):
        listed.setdefault(every[row], np.zeros(len(log.actions)))[code] += chance[row]
    return places, list(listed), np.array(list(listed.values()))


def _columns(name: str, keys: list[str], log: EventLog) -> list[NDArray[Any]]:
    known = {column.name: column.raw() for column in log.columns} | log.extras
    for key in keys:
        if key not in known:
            there = ", ".join(known) or "none"
            raise DataError(f"{name}: column `{key}` is neither an action nor a column of {log.name} ({there}).")
    return [known[key] for key in keys]


def _keys(table: dict[str, Any], keys: list[str]) -> list[tuple[str, ...]]:
    return list(zip(*[[_word(x) for x in np.ma.getdata(table[key]).tolist()] for key in keys], strict=True))


def _by_state(name: str, state: State, log: EventLog) -> Floats:
    columns, keys, chances = state
    place: dict[tuple[str, ...], int] = {}
    for i, key in enumerate(keys):
        if key in place:
            raise DataError(f"{name}: the state {', '.join(key)} stands twice (rows {place[key] + 1} and {i + 1}).")
        place[key] = i
    off = np.flatnonzero(~(np.abs(chances.sum(1) - 1) < 1e-6) | (chances < 0).any(1))
    if off.size:
        total = float(chances[off[0]].sum())
        raise DataError(f"{name}: the probabilities of state {', '.join(keys[off[0]])} sum to {total:g}, not to 1.")
    rows = list(zip(*[[_word(x) for x in column.tolist()] for column in columns], strict=True))
    missing = [i for i, row in enumerate(rows) if row not in place]
    if missing:
        raise DataError(
            f"{name}: no row for the state {', '.join(rows[missing[0]])} (row {missing[0] + 1} of {log.name}, "
            f"{len(missing)} in all); add it."
        )
    return chances[[place[row] for row in rows]]


def _word(value: Any) -> str:
    """One word for 3, 3.0 and "3"."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)

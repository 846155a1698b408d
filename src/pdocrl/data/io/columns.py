"""Tables with one named column per number, as Parquet or CSV: a log straight out of a database or a spreadsheet.

    obs_0 … obs_S−1, action_0 … action_A−1, reward, cost (or cost_<name> …), next_obs_0 …, terminal, timeout

One row per transition, episodes one after another. Without `next_obs_*` they are derived (see `validate`); without a
cost column the dataset has no constraints. Where ±1 stands for other actions of the environment, `action_low_0` … and
`action_high_0` … say so in every row. A column `episode` ends an episode where its value changes. Other names are
mapped with `--columns reward=r cost=c1,c2`. Numbers survive a round trip bit by bit, in CSV too.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.data.bounds import Bounds, is_unit, make_bounds
from pdocrl.data.dataset import Dataset
from pdocrl.data.discrete import KEY, chosen, stored
from pdocrl.data.source import FIELDS, ArrayColumn, Source, blaming
from pdocrl.errors import DataError, UnknownNameError
from pdocrl.files import atomic_path

if TYPE_CHECKING:
    import pyarrow

NUMBERED = {"obs": r"obs_(0|[1-9]\d*)", "action": r"action_(0|[1-9]\d*)", "next_obs": r"next_obs_(0|[1-9]\d*)"}
FLAGS = {field.name for field in FIELDS if field.flag}
TRUE, FALSE = ("true", "yes", "y", "t", "1", "1.0"), ("false", "no", "n", "f", "0", "0.0")
NUMBERS = r"(next_)?obs_|action_|reward$|cost"
SPELLING = {field.name: f"{field.name}_0" if field.name in NUMBERED else field.name for field in FIELDS}


@contextlib.contextmanager
def open_source(path: Path, mapping: Mapping[str, Sequence[str]] | None = None) -> Iterator[Source]:
    """The table's columns, gathered into arrays in memory; `mapping` names the columns of fields spelt otherwise."""
    yield from_table(
        path.name, _read_csv(path, mapping or {}) if path.suffix == ".csv" else _read_parquet(path), mapping
    )


def from_dataframe(frame: Any, mapping: Mapping[str, Sequence[str]] | None = None) -> Source:
    """The columns of a pandas DataFrame."""
    import pyarrow

    try:
        table = pyarrow.Table.from_pandas(frame, preserve_index=False)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, TypeError) as error:
        raise DataError(f"DataFrame: a column cannot be read ({' '.join(str(error).split())[:200]}).") from error
    return from_table("DataFrame", table, mapping)


def from_table(name: str, table: pyarrow.Table, mapping: Mapping[str, Sequence[str]] | None = None) -> Source:
    """The columns of a table in memory."""
    if not len(table):
        raise DataError(f"{name}: no transitions: the table has columns and no rows.")
    found = _assign(name, table.column_names, mapping or {})
    columns = {
        field: ArrayColumn(_label(names), _gather(name, table, names, field in FLAGS)) for field, names in found.items()
    }
    if "episode" in table.column_names and "obs" in found:
        columns |= _episode_flags(name, table, columns)
    bounds = _action_bounds(name, table, len(found.get("action", ())))
    cost_names = tuple(found.get("cost", ()))
    own = tuple(found.get("obs", ()))
    numbered = all(re.fullmatch(NUMBERED["obs"], name) for name in own)
    source = Source(
        name,
        columns,
        tuple(table.column_names),
        None,
        cost_names,
        bounds,
        obs_names=() if numbered else own,
        spelling=SPELLING,
    )
    discrete_actions = _discrete_actions(name, table)
    return source if discrete_actions is None else chosen(source, discrete_actions)


def write(dataset: Dataset, path: Path) -> None:
    """A Parquet or CSV file, by the suffix, whole or not at all."""
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    table = pyarrow.table(named_columns(dataset))
    # Our own file handle: its errors carry the errno of a full disk, pyarrow's do not.
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        if path.suffix == ".csv":
            pyarrow.csv.write_csv(table, file)
        else:
            pyarrow.parquet.write_table(table, file, compression="zstd", write_page_checksum=True)


def named_columns(dataset: Dataset) -> dict[str, NDArray[Any]]:
    named: dict[str, NDArray[Any]] = {}
    for field in FIELDS:
        array = getattr(dataset, field.name)
        if field.name == "cost":
            names = [name if name.startswith("cost") else f"cost_{name}" for name in dataset.cost_names]
            named |= {name: np.ascontiguousarray(array[:, i]) for i, name in enumerate(names)}
        elif field.name == "action" and dataset.discrete_actions:
            named |= {"action_0": stored(array, dataset.discrete_actions)}
            named |= {KEY: np.full(len(dataset), " ".join(map(str, dataset.discrete_actions)))}
        elif field.axes == 2:
            named |= {f"{field.name}_{i}": np.ascontiguousarray(array[:, i]) for i in range(array.shape[1])}
        else:
            named[field.name] = array
    if not is_unit(dataset.action_bounds):
        for side, values in zip(("low", "high"), dataset.action_bounds, strict=True):
            named |= {f"action_{side}_{i}": np.full(len(dataset), v, np.float32) for i, v in enumerate(values)}
    return named


def _action_bounds(name: str, table: pyarrow.Table, dims: int) -> Bounds | None:
    """What ±1 stands for, from columns `action_low_0` … that hold one number each; None without them."""
    sides = []
    for side in ("low", "high"):
        names = [f"action_{side}_{i}" for i in range(dims)]
        if not {*names} & {*table.column_names}:
            return None
        lost = next((column for column in names if column not in table.column_names), None)
        if lost is not None:
            raise DataError(
                f"{name}: column `{lost}` is missing; action bounds are given for every action or for none."
            )
        values = np.asarray(_gather(name, table, names)).reshape(-1, dims)
        if not len(values) or (values != values[0]).any():
            raise DataError(f"{name}: `{_label(names)}` must hold one number throughout: they are bounds.")
        sides.append(values[0])
    return make_bounds(name, sides[0], sides[1], dims)


def _discrete_actions(name: str, table: pyarrow.Table) -> list[int] | None:
    """Which discrete actions there are, from a column that holds their names, separated by spaces, in every row."""
    if KEY not in table.column_names:
        return None
    told = set(table.column(KEY).to_pylist())
    words = str(next(iter(told))).split()
    if len(told) != 1 or not all(word.lstrip("-").isdigit() for word in words):
        raise DataError(f"{name}: `{KEY}` must hold the same discrete actions throughout, such as `0 1 2`.")
    return [int(word) for word in words]


def _episode_flags(name: str, table: pyarrow.Table, columns: Mapping[str, ArrayColumn]) -> dict[str, ArrayColumn]:
    """Flags completed from the column `episode`: where its value changes an episode ended, by a timeout unless told."""
    values = table.column("episode").combine_chunks()
    if values.null_count:
        raise DataError(f"{name}: `episode` is empty in some rows. Fill it in, or leave the column out.")
    _, codes = np.unique(np.asarray(values.to_pylist(), dtype=np.str_), return_inverse=True)
    ends = np.append(codes[1:] != codes[:-1], True)
    if ends.sum() != len(np.unique(codes)):
        again = values[int(np.flatnonzero(ends)[-1])]
        raise DataError(
            f"{name}: rows of one `episode` (such as {again}) do not stand together. Sort by episode and time."
        )
    none = np.zeros(len(codes), bool)
    terminal = columns["terminal"].array if "terminal" in columns else none
    timeout = columns["timeout"].array if "timeout" in columns else none
    ended = ends & ~(np.asarray(terminal) != 0)
    key = columns["timeout"].key if "timeout" in columns else "episode"
    flags = {"timeout": ArrayColumn(key, (np.asarray(timeout) != 0) | ended)}
    return flags if "terminal" in columns else {**flags, "terminal": ArrayColumn("episode", none)}


def _assign(name: str, columns: list[str], mapping: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """{field: its columns in order} among the table's columns."""
    for field, names in mapping.items():
        if field not in SPELLING:
            raise UnknownNameError("field", field, SPELLING, f"Known: {', '.join(SPELLING)}.")
        for column in names:
            if column not in columns:
                raise UnknownNameError(f"column of {name}", column, columns, f"Found: {', '.join(columns[:20])}.")
        if len(names) != 1 and field not in {*NUMBERED, "cost"}:
            raise DataError(f"{name}: `{field}` is one column, {len(names)} were named.")
    if len(set(columns)) != len(columns):
        twice = next(column for column in columns if columns.count(column) > 1)
        raise DataError(f"{name}: column `{twice}` appears twice.")
    found: dict[str, list[str]] = {}
    for field, pattern in NUMBERED.items():
        numbers = sorted(int(match[1]) for column in columns if (match := re.fullmatch(pattern, column, re.ASCII)))
        expected = list(range(len(numbers)))
        if numbers != expected:
            lost = next(i for i, number in enumerate([*numbers, -1]) if i != number)
            raise DataError(f"{name}: column `{field}_{lost}` is missing; columns are numbered from 0 without gaps.")
        if numbers:
            found[field] = [f"{field}_{i}" for i in expected]
    for field in ("reward", "terminal", "timeout"):
        if field in columns:
            found[field] = [field]
    costs = [column for column in columns if column.startswith("cost_")]
    if "cost" in columns and costs:
        raise DataError(f"{name}: both `cost` and `{costs[0]}`. Keep the total or the parts.")
    if costs or "cost" in columns:
        found["cost"] = costs or ["cost"]
    return found | {field: list(names) for field, names in mapping.items()}


def _gather(name: str, table: pyarrow.Table, names: list[str], flag: bool = False) -> NDArray[Any]:
    """[N, len(names)] the named columns side by side."""
    import pyarrow

    arrays = []
    for column in names:
        data = table.column(column)
        if data.null_count:
            row = int(np.argmax(np.concatenate([chunk.is_null().to_numpy(False) for chunk in data.chunks])))
            raise DataError(f"{name}: `{column}` is empty at row {row}. Fill it in, or remove that episode.")
        if flag and (pyarrow.types.is_string(data.type) or pyarrow.types.is_large_string(data.type)):
            arrays.append(_words_as_flags(name, column, data.to_pylist()))
            continue
        if not (
            pyarrow.types.is_floating(data.type)
            or pyarrow.types.is_integer(data.type)
            or pyarrow.types.is_boolean(data.type)
        ):
            raise DataError(f"{name}: `{column}` holds {data.type}, not numbers.")
        arrays.append(data.to_numpy())
    return arrays[0] if len(arrays) == 1 else np.stack(arrays, axis=1)


def _read_parquet(path: Path) -> pyarrow.Table:
    import pyarrow
    import pyarrow.parquet

    with blaming(path.name, pyarrow.ArrowException, OSError, ValueError, MemoryError):
        return pyarrow.parquet.ParquetFile(path, page_checksum_verification=True).read(use_threads=False)


def _words_as_flags(name: str, column: str, words: list[str]) -> NDArray[np.bool_]:
    known = dict.fromkeys(TRUE, True) | dict.fromkeys(FALSE, False)
    for row, word in enumerate(words):
        if word.strip().lower() not in known:
            raise DataError(f"{name}: `{column}` is {word!r} at row {row}. Flags are yes or no, true or false, 1 or 0.")
    return np.array([known[word.strip().lower()] for word in words])


def _read_csv(path: Path, mapping: Mapping[str, Sequence[str]]) -> pyarrow.Table:
    import pyarrow
    import pyarrow.csv

    with blaming(path.name, pyarrow.ArrowException, OSError, ValueError, MemoryError):
        header = pyarrow.csv.open_csv(path).schema.names
        mapped = {column: field for field, names in mapping.items() for column in names}
        # As words: what a flag may say is decided in one place, for every kind of table.
        flags = {name: pyarrow.string() for name in header if mapped.get(name, name) in FLAGS}
        # Parsed as float32 at once: by way of float64 a number could be rounded twice.
        numbers = {
            name: pyarrow.float32()
            for name in header
            if name not in flags and name != KEY and (re.match(NUMBERS, name) or name in mapped)
        }
        # "nan" is a number to complain about, not an empty cell.
        options = pyarrow.csv.ConvertOptions(
            column_types={KEY: pyarrow.string()} | numbers | flags, null_values=[""], strings_can_be_null=True
        )
        try:
            return pyarrow.csv.read_csv(path, convert_options=options)
        except pyarrow.ArrowInvalid as error:
            found = re.search(r"In CSV column #(\d+): CSV conversion error to \w+: (invalid value '.*')", str(error))
            if found is None:
                raise
            raise DataError(f"{path.name}: `{header[int(found[1])]}` holds words, not numbers ({found[2]}).") from error


def _label(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"

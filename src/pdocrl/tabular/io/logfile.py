"""A Parquet or CSV log seen through DuckDB: which column plays which role, are all values sound, and its groups.

Nothing here loads the rows: each question is one scan within a memory limit, and what comes back is as large as the
number of distinct transitions. Bad values are reported with the file, the column and the row.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pdocrl.data.io.log_paths import check_names, reader
from pdocrl.errors import DataError, PdocrlError, by_door, did_you_mean
from pdocrl.tabular.io.cells import CellSpec, Hidden, hidden, learn, nearest, number, sql
from pdocrl.tabular.io.rows import LIMB, MARK, Ints, check_length

LABELS = ("state", "action", "next_state")
REQUIRED = (*LABELS, "reward")
OPTIONAL = ("terminal", "initial", "episode", "step", "decider")
INTEGERS = {"BOOLEAN", *(f"{u}{kind}" for u in ("", "U") for kind in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT"))}
NUMBERS = INTEGERS | {"FLOAT", "DOUBLE", "HUGEINT", "DECIMAL"}
TEXTS = {"VARCHAR", "ENUM", '"NULL"'}  # the last of columns without any value, as in an empty file

MOST_OUTCOMES = 12  # other columns of numbers that a test of the Markov property looks at
LARGEST = 1e100  # of a signal: squares must not overflow
_T, _LAST, _ROW = '"pdocrl step"', '"pdocrl last"', '"pdocrl row"'  # columns added by `by_step`
_CELL = "nearest_centre"


@dataclasses.dataclass(frozen=True, eq=False)
class Tally:
    """G groups of rows with the same labels: what goes from DuckDB, or from another machine, to memory."""

    state: NDArray[Any]  # [G] labels, as are the next two
    action: NDArray[Any]
    next_state: NDArray[Any]  # where `over`, a stand-in
    over: NDArray[np.bool_]  # [G] terminal
    count: Ints  # [G]
    high: Ints  # [2, 1+K, G] exact sums of x and x², see `counts.exact_sums`
    low: Ints


class _Check(NamedTuple):
    """What one column must be: SQL that counts its sound rows, and (condition, complaint) for each possible fault."""

    sound: str
    column: str
    faults: tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True, eq=False)
class LogFile:
    """One or many files as one table of rows."""

    name: str  # for messages
    connection: Any
    rows: str  # SQL for all rows
    types: dict[str, str]  # column → DuckDB type, without its parameters
    column: dict[str, str]  # role → column
    costs: tuple[str, ...]
    cells: dict[str, Any] | None = None  # how states were made of other columns, see `cells`
    horizon: int | None = None  # then `rows` also have t and last, and states are told apart by their step

    def by_step(self, horizon: int) -> LogFile:
        """The same log with each row's step in its episode, t = 0, 1, …, and whether it is the episode's last."""
        if "episode" not in self.column:
            raise DataError(
                f"{self.name}: a horizon needs a column `episode`; name it with "
                + by_door(
                    "columns={'episode': NAME}, or give limit_horizon",
                    "--columns episode=NAME, or give --limit-horizon",
                )
                + " for limits per so many steps of a process that goes on."
            )
        episode = _quote(self.column["episode"])
        source, time = f"(SELECT row_number() OVER () AS {_ROW}, * FROM {self.rows})", _ROW
        if "step" in self.column:
            source, time = self.rows, f"{self._time(self.column['step'])}, {self.label('state')}"
        window = f"OVER (PARTITION BY {episode} ORDER BY {time})"
        numbered = f"SELECT *, CAST(row_number() {window} - 1 AS BIGINT) AS {_T} FROM {source}"
        rows = f"(SELECT *, {_T} = max({_T}) OVER (PARTITION BY {episode}) AS {_LAST} FROM ({numbered}))"
        longest = self.fetch(f"SELECT coalesce(max({_T}), 0) + 1 FROM {rows}")[0][0]
        check_length(int(longest), horizon, self.name)
        return dataclasses.replace(self, rows=rows, horizon=horizon)

    @property
    def signals(self) -> tuple[str, ...]:
        return (self.column["reward"], *self.costs)

    def survey(self) -> NDArray[np.float64]:
        """[1+K] the largest magnitude of each signal, after checking every value of the log."""
        checks = list(self._checks())
        largest = [f"coalesce(max(abs({self._number(s)})), 0)" for s in self.signals]
        asked = ", ".join([*(check.sound for check in checks), *largest])
        rows, *answer = self.fetch(f"SELECT count(*), {asked} FROM {self.rows}")[0]
        if rows == 0:
            raise DataError(f"{self.name} is empty: no rows.")
        for check, sound in zip(checks, answer, strict=False):
            if sound < rows:
                self._complain(check)
        sizes = np.array(answer[len(checks) :], np.float64)
        for column, size in zip(self.signals, sizes, strict=True):
            if size > LARGEST:
                raise DataError(f"{self.name}: column `{column}` goes up to {size:.3g}; give it in a larger unit.")
        return sizes

    def _complain(self, check: _Check) -> None:
        """Name the first row that is not sound; a second scan, of which only bad logs pay."""
        numbered = f"SELECT row_number() OVER () AS row, * FROM {self.rows}"
        first = f"count(*), min(row), arg_min(CAST({_quote(check.column)} AS VARCHAR), row)"
        for condition, complaint in check.faults:
            times, row, value = self.fetch(f"SELECT {first} FROM ({numbered}) WHERE {condition}")[0]
            if times:
                more = f" (and in {times - 1} more)" if times > 1 else ""
                raise DataError(f"{self.name}: column `{check.column}`, row {row}{more}: {complaint.format(value)}.")
        raise AssertionError(f"{check.column}: rows that are not sound have a fault")

    def tally(self, exponent: Ints) -> Tally:
        """Group the rows; the scaling by powers of two and the rounding are those of `counts.exact_sums`."""
        units = [f"({self._number(s)} * {2.0 ** -int(e)!r})" for s, e in zip(self.signals, exponent, strict=True)]
        scaled = [f"CAST({x} * {2.0**62!r} AS BIGINT)" for x in (*units, *(f"({u} * {u})" for u in units))]
        sums = ", ".join(f"sum({x}) AS t{i}" for i, x in enumerate(scaled))
        low = [f"(t{i} & {(1 << LIMB) - 1}::HUGEINT)" for i in range(len(scaled))]
        high = [f"((t{i} - {x}) // {1 << LIMB}::HUGEINT)" for i, x in enumerate(low)]
        halves = ", ".join(f"CAST({x} AS BIGINT) AS half{i}" for i, x in enumerate((*high, *low)))
        state, over = self.label("state"), self._over()
        grouped = (
            f"SELECT {state} AS s, {self.label('action')} AS a, {over} AS over, "
            f"CASE WHEN {over} THEN {state} ELSE {self.label('next_state')} END AS z, "
            f"count(*) AS n, {sums} FROM {self.rows} GROUP BY ALL"
        )
        with self._errors():
            table = self.connection.execute(f"SELECT s, a, z, over, n, {halves} FROM ({grouped})").fetchnumpy()
        both = np.stack([table[f"half{i}"] for i in range(2 * len(scaled))]).astype(np.int64)
        halved = both.reshape(2, 2, len(self.signals), -1)
        over_flags = np.asarray(table["over"], bool)
        return Tally(table["s"], table["a"], table["z"], over_flags, table["n"].astype(np.int64), halved[0], halved[1])

    def by_group(self, groups: int) -> dict[str, NDArray[Any]]:
        """Arrays s, a, z, over, g, n and x0 … xK (means): the groups of `tally` once more, by groups of episodes."""
        state, over = self.label("state"), self._over()
        means = ", ".join(f"avg({self._number(x)}) AS x{i}" for i, x in enumerate(self.signals))
        asked = (
            f"SELECT {state} AS s, {self.label('action')} AS a, {over} AS over, "
            f"CASE WHEN {over} THEN {state} ELSE {self.label('next_state')} END AS z, "
            f"{self._group(groups)} AS g, count(*) AS n, {means} FROM {self.rows} GROUP BY s, a, over, z, g"
        )
        with self._errors():
            return dict(self.connection.execute(asked).fetchnumpy())

    def episodes(self, one_in: int) -> tuple[dict[str, NDArray[Any]], tuple[str, ...], tuple[str, ...]]:
        """One episode in so many, in order: arrays episode, s, a, z, over, x0 … (signals), c0 … and o0 …; their names.

        c are the columns of numbers that cells were made of, o other columns of numbers (outcomes of a step, perhaps).
        """
        own = [] if self.cells is None else [c for c in self.cells["columns"] if self.types.get(c) in NUMBERS]
        used = {*self.column.values(), *self.costs, *own, *([] if self.cells is None else self.cells["columns"])}
        others = [
            c
            for c, kind in self.types.items()
            if kind in NUMBERS and c not in used and not c.startswith(("next_", "pdocrl "))
        ][:MOST_OUTCOMES]
        episode = f"CAST({_quote(self.column['episode'])} AS VARCHAR)"
        rows, time = f"(SELECT row_number() OVER () AS {_ROW}, * FROM {self.rows})", _ROW
        if self.horizon is not None:
            rows, time = self.rows, _T
        elif "step" in self.column:
            rows, time = self.rows, self._time(self.column["step"])
        elif _ROW.strip('"') in self.types:
            rows = self.rows
        state, over = self.label("state"), self._over()
        columns = [
            *(f"{self._number(x)} AS x{i}" for i, x in enumerate(self.signals)),
            *(f"{self._number(x)} AS c{i}" for i, x in enumerate(own)),
            *(f"{self._number(x)} AS o{i}" for i, x in enumerate(others)),
            *([f"CAST({_quote(self.column['decider'])} AS VARCHAR) AS decider"] if "decider" in self.column else []),
        ]
        asked = (
            f"SELECT {episode} AS episode, {time} AS time, {state} AS s, {self.label('action')} AS a, {over} AS over, "
            f"CASE WHEN {over} THEN {state} ELSE {self.label('next_state')} END AS z, {', '.join(columns)} "
            f"FROM {rows} WHERE hash({episode}) % {one_in} = 0 ORDER BY episode, time"
        )
        with self._errors():
            return dict(self.connection.execute(asked).fetchnumpy()), tuple(own), tuple(others)

    def starts_by_group(self, groups: int) -> list[tuple[Any, int, int]]:
        """(state, group, episodes of that group begun there)."""
        if "initial" in self.column and self.horizon is None:
            first = f"SELECT {self.label('state')} AS s, {self._group(groups)} AS g FROM {self.rows}"
            first += f" WHERE {self._flag('initial')}"
        else:
            first = f"SELECT s, CAST(hash(episode) % {groups} AS BIGINT) AS g FROM ({self._first_rows()})"
        return self.fetch(f"SELECT s, g, count(*) FROM ({first}) GROUP BY s, g")

    def _group(self, groups: int) -> str:
        return f"CAST(hash(CAST({_quote(self.column['episode'])} AS VARCHAR)) % {groups} AS BIGINT)"

    def starts(self) -> dict[Any, int] | None:
        """{state: episodes begun there}, or None if the log does not say."""
        if "initial" in self.column and self.horizon is None:
            marked = f"SELECT {self.label('state')} AS s FROM {self.rows} WHERE {self._flag('initial')}"
            return dict(self.fetch(f"SELECT s, count(*) FROM ({marked}) GROUP BY s"))
        if "episode" in self.column:
            return dict(self.fetch(f"SELECT s, count(*) FROM ({self._first_rows()}) GROUP BY s"))
        return None

    def first_rows(self) -> list[tuple[str, float, Any]]:
        """(episode, time, state) of the first row of each episode, for logs whose episodes cross files."""
        return self.fetch(self._first_rows())

    def _first_rows(self) -> str:
        rows, time = self.rows, "row"
        if "step" in self.column:
            time = self._time(self.column["step"])
        else:
            rows = f"(SELECT row_number() OVER () AS row, * FROM {self.rows})"
        episode = f"CAST({_quote(self.column['episode'])} AS VARCHAR)"
        first = f"min({time}) AS time, arg_min({self.label('state')}, {time}) AS s"
        return f"SELECT {episode} AS episode, {first} FROM {rows} GROUP BY episode"

    def label(self, role: str) -> str:
        """SQL for a label: BIGINT, or VARCHAR where state and next_state are not both numbers; NULL if it is none."""
        if self.horizon is not None and role != "action":
            step = _T if role == "state" else f"({_T} + 1)"
            return f"(CAST({self._label(role)} AS VARCHAR) || '{MARK}' || {step})"
        return self._label(role)

    def _over(self) -> str:
        """SQL for whether nothing follows a row."""
        if self.horizon is None:
            return self._flag("terminal")
        end = self._flag("terminal") if "terminal" in self.column else _LAST
        return f"({end} OR {_T} = {self.horizon - 1})"

    def _label(self, role: str) -> str:
        together = ("state", "next_state") if role != "action" else (role,)
        name = _quote(self.column[role])
        if any(self.types[self.column[r]] not in NUMBERS for r in together):
            return f"CAST({name} AS VARCHAR)"
        if self.types[self.column[role]] in INTEGERS:
            return f"TRY_CAST({name} AS BIGINT)"
        return f"CASE WHEN {name} = floor({name}) THEN TRY_CAST({name} AS BIGINT) END"

    def _number(self, column: str) -> str:
        """SQL for a number; in text, true and false are 1 and 0, as they are in a column of flags."""
        if self.types[column] == "VARCHAR":
            name = _quote(column)
            flags = "WHEN 'true' THEN 1.0::DOUBLE WHEN 'false' THEN 0.0::DOUBLE"
            return f"CASE lower({name}) {flags} ELSE TRY_CAST({name} AS DOUBLE) END"
        return f"TRY_CAST({_quote(column)} AS DOUBLE)"

    def _time(self, column: str) -> str:
        """SQL for a time as a number: a number as it is, a date or timestamp in seconds."""
        name, kind = _quote(column), self.types[column]
        if kind.startswith(("TIMESTAMP", "DATE")):
            return f"CAST(epoch(CAST({name} AS TIMESTAMP)) AS DOUBLE)"
        if kind in TEXTS:
            return f"coalesce(TRY_CAST({name} AS DOUBLE), CAST(epoch(TRY_CAST({name} AS TIMESTAMP)) AS DOUBLE))"
        return self._number(column)

    def _flag(self, role: str) -> str:
        """SQL for a truth value, NULL where it is neither true nor false."""
        if role not in self.column:
            return "false"
        name, kind = _quote(self.column[role]), self.types[self.column[role]]
        if kind == "BOOLEAN":
            return name
        if kind in NUMBERS:
            return f"CASE CAST({name} AS DOUBLE) WHEN 1 THEN true WHEN 0 THEN false END"
        return f"CASE WHEN lower({name}) IN ('true', '1') THEN true WHEN lower({name}) IN ('false', '0') THEN false END"

    def _checks(self) -> Iterator[_Check]:
        """What every row must be. Counting sound rows is far cheaper in DuckDB than counting faults."""
        for role in ("terminal", "initial"):
            if role in self.column:
                fault = (
                    f"({self._flag(role)}) IS NULL",
                    "{!r} is neither true nor false; write true or false, or 1 or 0",
                )
                yield _Check(f"count({self._flag(role)})", self.column[role], (fault,))
        for role in LABELS:
            column, name = self.column[role], _quote(self.column[role])
            label = name if self.types[column] in INTEGERS else self.label(role)
            if role == "next_state" and ("terminal" in self.column or self.horizon is not None):
                label = f"CASE WHEN {self._over()} THEN {self.label('state')} ELSE {self.label(role)} END"
            missing = (f"({label}) IS NULL AND {name} IS NULL", "missing")
            wrong = (f"({label}) IS NULL", "{} is not a label; those are integers or text")
            yield _Check(f"count({label})", column, (missing, wrong))
        if "episode" in self.column:
            name = _quote(self.column["episode"])
            yield _Check(f"count({name})", self.column["episode"], ((f"{name} IS NULL", "missing"),))
        for column in (*self.signals, *([self.column["step"]] if "step" in self.column else [])):
            name = _quote(column)
            value = self._time(column) if column == self.column.get("step") else self._number(column)
            sound = f"isfinite({value})"
            # Not `isnan`: from a Parquet file's statistics DuckDB concludes that there is none, and is wrong.
            faults = [
                (f"{name} IS NULL OR NOT isfinite({value})", "missing, NaN or infinite"),
                (f"{name} IS NOT NULL AND {value} IS NULL", "{!r} is text, not a number"),
            ]
            if column in self.costs:
                sound += f" AND {value} >= 0"
                faults.append((f"{value} < 0", "{} is negative; a cost is at least 0"))
            yield _Check(f"count(*) FILTER ({sound})", column, tuple(faults))

    def hidden(self) -> list[Hidden]:
        """What cells hide of the signals and of the next state."""
        if self.cells is None:
            return []
        return hidden(self.fetch, self.rows, self.cells, self.column["action"], self.signals)

    def fetch(self, asked: str) -> list[tuple[Any, ...]]:
        with self._errors():
            return list(self.connection.execute(asked).fetchall())

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        return _one_line(self.name)


@contextlib.contextmanager
def open_log(
    files: Sequence[str],
    costs: Sequence[str] | None,
    columns: Mapping[str, str] | None,
    memory: str,
    threads: int | None,
    spec: CellSpec | None = None,
) -> Iterator[LogFile]:
    """Files as one log, within a memory limit beyond which DuckDB spills to a temporary folder."""
    import duckdb

    name = files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    with tempfile.TemporaryDirectory(prefix="pdocrl-") as spill, duckdb.connect() as connection:
        try:
            connection.execute("SET memory_limit = $1", [memory])
            connection.execute("SET temp_directory = $1", [spill])
            if threads is not None:
                connection.execute("SET threads = $1", [threads])
        except duckdb.Error as error:
            raise PdocrlError(f"memory {memory!r} or threads {threads}: {str(error).splitlines()[0]}") from None
        rows = reader(files)
        with _one_line(name):
            check_names(connection, files)
            types = _types(connection, rows)
        learned = None
        if spec is not None:
            with _one_line(name):
                rows, learned = _with_cells(connection, rows, spec, types, columns or {}, name)
                types = _types(connection, rows)
        roles, chosen = _roles(name, types, costs, columns or {})
        yield LogFile(name, connection, rows, types, roles, chosen, cells=learned)


def _types(connection: Any, rows: str) -> dict[str, str]:
    described = connection.execute(f"DESCRIBE SELECT * FROM {rows}").fetchall()
    return {column: kind.split("(")[0] for column, kind, *_ in described}


def _with_cells(
    connection: Any, rows: str, spec: CellSpec, types: dict[str, str], columns: Mapping[str, str], name: str
) -> tuple[str, dict[str, Any]]:
    """Rows with the columns `state` and `next_state` made of cells. The next state is the next row's, if not given."""

    def fetch(asked: str) -> list[tuple[Any, ...]]:
        return list(connection.execute(asked).fetchall())

    learned = learn(fetch, rows, spec, types, name)
    missing = [column for column in learned["columns"] if f"next_{column}" not in types]
    if missing:
        episode, step = columns.get("episode", "episode"), columns.get("step", "step")
        if episode not in types:
            raise DataError(f"{name}: no column `next_{missing[0]}`, and no `episode` to take it from the next row.")
        numbered = f"(SELECT row_number() OVER () AS {_ROW}, * FROM {rows})"
        time = _quote(step) if step in types else _ROW
        if step in types and types[step] in TEXTS:
            time = f"coalesce(TRY_CAST({time} AS DOUBLE), epoch(TRY_CAST({time} AS TIMESTAMP)))"
        window = f"OVER (PARTITION BY {_quote(episode)} ORDER BY {time}, {_ROW})"
        leads = ", ".join(f"lead({_quote(c)}) {window} AS {_quote('next_' + c)}" for c in missing)
        rows = f"(SELECT *, {leads} FROM {numbered})"
    dropped = [c for c in ("state", "next_state") if c in types]
    star = f"* EXCLUDE ({', '.join(dropped)})" if dropped else "*"
    if "centres" in learned:
        rows = _nearest_centres(connection, rows, star, learned)
    else:
        rows = f"(SELECT {star}, {sql(learned)} AS state, {sql(learned, 'next_')} AS next_state FROM {rows})"
    if missing:  # the last row of an episode has no next; unless it is the end, nothing is known of it
        terminal = columns.get("terminal", "terminal")
        end = f"lower(CAST({_quote(terminal)} AS VARCHAR)) IN ('true', '1', '1.0')" if terminal in types else "false"
        rows = f"(SELECT * FROM {rows} WHERE next_state IS NOT NULL OR {end})"
    return rows, learned


def _nearest_centres(connection: Any, rows: str, star: str, cells: Mapping[str, Any]) -> str:
    """A temporary table of the rows with `state` and `next_state`, the nearest centres, found in NumPy.

    A distance expression per centre in SQL would be evaluated anew by every query.
    """
    import duckdb
    import pyarrow

    columns, mean, scale = cells["columns"], np.asarray(cells["mean"]), np.asarray(cells["scale"])
    centres = np.asarray(cells["centres"])

    def place(points: Any) -> Any:
        wide = points.combine_chunks() if isinstance(points, pyarrow.ChunkedArray) else points
        table = wide.flatten().to_numpy(zero_copy_only=False).reshape(-1, len(columns))
        return pyarrow.array(nearest((table - mean) / scale, centres))

    kinds = [duckdb.sqltype("DOUBLE[]")], duckdb.sqltype("BIGINT")
    connection.create_function(_CELL, place, *kinds, type="arrow")
    parts = []
    for prefix in ("", "next_"):
        numbers = [number(prefix + column) for column in columns]
        known = " AND ".join(f"{x} IS NOT NULL" for x in numbers)
        safe = ", ".join(f"coalesce({x}, 0)" for x in numbers)
        parts.append(f"CASE WHEN {known} THEN CAST({_CELL}([{safe}]) AS VARCHAR) END AS {prefix}state")
    connection.execute(f'CREATE TEMP TABLE "{_CELL}" AS SELECT {star}, {", ".join(parts)} FROM {rows}')
    return f'"{_CELL}"'


def _roles(
    name: str, types: dict[str, str], costs: Sequence[str] | None, columns: Mapping[str, str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Which column plays which role, and which are the costs."""
    for role in columns:
        if role not in REQUIRED + OPTIONAL:
            raise DataError(f"no role `{role}` for a column.{did_you_mean(role, REQUIRED + OPTIONAL)}")
    wanted = {role: columns.get(role, role) for role in REQUIRED + OPTIONAL}
    column = {role: c for role, c in wanted.items() if c in types or role in REQUIRED or role in columns}
    named_so = [c for c in types if c == "cost" or c.startswith("cost_")]
    chosen = tuple(named_so if costs is None else dict.fromkeys(costs))
    for needed in (*column.values(), *chosen):
        if needed not in types:
            raise DataError(f"{name}: no column `{needed}`.{did_you_mean(needed, types)} It has {', '.join(types)}.")
    kinds = {column[role]: NUMBERS | TEXTS for role in LABELS}
    kinds |= {c: NUMBERS | TEXTS - {"ENUM"} for c in (column["reward"], *chosen)}
    for needed, allowed in kinds.items():
        if types[needed] not in allowed:
            raise DataError(
                f"{name}: column `{needed}` holds {types[needed]}, which is neither numbers nor text; cast it."
            )
    return column, chosen


@contextlib.contextmanager
def _one_line(name: str) -> Iterator[None]:
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        raise DataError(f"{name} cannot be read: {str(error).splitlines()[0].rstrip('.')}.") from None


def _quote(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'

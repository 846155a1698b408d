"""Which files a log is: one, several, a pattern, or a folder of parts; and whether its columns have distinct names."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pdocrl.errors import DataError

Paths = str | Path | Sequence[str | Path]
PEEKED = 10_000_000  # bytes looked at for what is no text
PARQUET = (".parquet", ".pq")
TEXT = tuple(f"{kind}{packed}" for kind in (".csv", ".tsv") for packed in ("", ".gz", ".zst"))


def is_pattern(path: str) -> bool:
    """Whether a path stands for several: it has *, ? or [ab] in it, and is not itself a file's name."""
    return any(sign in path for sign in "*?[") and not Path(path).exists()


def find_files(path: Paths) -> list[str]:
    """The files meant by a path, several, a pattern, or a folder (with all parts below it)."""
    given = [path] if isinstance(path, str | Path) else list(path)
    files: list[str] = []
    for one in map(str, given):
        if Path(one).is_dir():
            parts = sorted(
                str(p) for p in Path(one).rglob("*") if p.is_file() and _kind(p.name) and p.name[0] not in "._"
            )
            if not parts:
                raise DataError(f"{one}: no .parquet or .csv files in this folder.")
            files += parts
        elif is_pattern(one):
            files += sorted(glob.glob(one, recursive=True))
        else:
            files.append(one)
    for file in files or [str(p) for p in given] or ["(no path)"]:
        if not Path(file).is_file():
            raise DataError(f"{file}: no such file.")
    return files


def reader(files: Sequence[str]) -> str:
    """SQL for all rows. CSV as text: DuckDB would guess a column's type from its first rows only."""
    kinds = {_kind(file) for file in files}
    for file in files:
        if not _kind(file):
            endings = ".parquet, .csv, .tsv, or one of the last two with .gz or .zst"
            raise DataError(f"{file}: a log is a Parquet or CSV file, by its name ending in {endings}.")
    if len(kinds) > 1:
        raise DataError("a log is all Parquet or all CSV; these files are of both kinds.")
    listed = "[" + ", ".join(_text(file) for file in files) + "]"
    return f"read_parquet({listed})" if kinds == {"parquet"} else f"read_csv({listed}, all_varchar = true)"


def check_names(connection: Any, files: Sequence[str]) -> None:
    """Refuse two columns of one name: DuckDB would give the second another, and nobody would notice."""
    if _kind(files[0]) == "parquet":
        asked = f"SELECT name FROM parquet_schema({_text(files[0])}) WHERE num_children IS NULL"
        names = [row[0] for row in connection.execute(asked).fetchall()]
    else:
        asked = f"SELECT * FROM read_csv({_text(files[0])}, all_varchar = true, header = false) LIMIT 1"
        names = list(connection.execute(asked).fetchone() or ())
    twice = [name for name in names if name is not None and names.count(name) > 1]
    if twice:
        raise DataError(f"{files[0]}: two columns are called `{twice[0]}`; rename or drop one.")


def _kind(file: str) -> str:
    return "parquet" if file.lower().endswith(PARQUET) else "text" if file.lower().endswith(TEXT) else ""


def _text(file: str) -> str:
    return "'" + file.replace("'", "''") + "'"


def unreadable(files: Sequence[str], error: Exception) -> DataError:
    """What DuckDB could not read, in one line: the file that is no UTF-8 text, else what it said itself."""
    name = files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
    for file in files if _kind(files[0]) == "text" else ():
        if not file.lower().endswith((".gz", ".zst")):
            with open(file, "rb") as opened:
                start = opened.read(PEEKED)
            if start.startswith((b"PK", b"\xd0\xcf")):
                return DataError(f"{file} is a spreadsheet or an archive, not CSV; save it as CSV (UTF-8).")
            try:
                start[:-4].decode("utf-8")
            except UnicodeDecodeError as bad:
                line = start[: bad.start].count(b"\n") + 1
                return DataError(f"{file}, line {line}: not UTF-8 text; save the file with the encoding UTF-8.")
    return DataError(f"{name} cannot be read: {str(error).splitlines()[0].rstrip('.')}.")


def check_columns(file: str, names: Sequence[str]) -> None:
    """Refuse a CSV file that is empty, or whose lines differ in their number of fields: it then has one column."""
    if _kind(file) == "text" and len(names) == 1:
        if Path(file).stat().st_size == 0:
            raise DataError(f"{file} is empty.")
        if any(sign in names[0] for sign in ",;\t|"):
            raise DataError(
                f"{file}: its lines have different numbers of fields, so its columns cannot be told apart; mend the "
                "lines (often the last one, or a comma without quotes)."
            )

"""From named columns to a matrix: one-hot categories, standardised numbers, a flag for what is missing.

    x_j = (value − mean)/deviation of a numeric column, 0 where missing;
    x_j = 1{category = j};  x_j = 0/1 of a boolean;  x_j = 1{missing} for each column that misses any value.

Fitted on one log, applied to any: an unknown category or a column that is not there is refused in one line.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from pdocrl.data.named_columns import Column, Floats, Kind
from pdocrl.errors import DataError


@dataclasses.dataclass(frozen=True)
class ColumnCode:
    """How one column becomes columns of the matrix."""

    name: str
    kind: Kind
    mean: float
    scale: float
    categories: tuple[str, ...]
    flagged: bool  # whether it has a column for missing values

    @property
    def names(self) -> list[str]:
        values = [f"{self.name}={c}" for c in self.categories] if self.kind == "categorical" else [self.name]
        return [*values, *([f"{self.name} missing"] if self.flagged else [])]

    def matrix(self, column: Column, where: str, strict: bool = True) -> Floats:
        """[N, D_j]; not `strict`, an unknown category or missing value is 0."""
        if strict and column.missing.any() and not self.flagged:
            row = int(np.argmax(column.missing)) + 1
            raise DataError(
                f"{where}: column `{self.name}`, row {row}: a missing value, and none was missing where the encoding "
                "was fitted; fill it in."
            )
        present = ~column.missing
        if self.kind == "categorical":
            place = {c: i for i, c in enumerate(self.categories)}
            known = np.array([place.get(c, -1) for c in column.categories] or [-1])
            codes = known[column.values.astype(np.int64)]
            if strict and (codes[present] < 0).any():
                row = int(np.argmax(present & (codes < 0)))
                word = column.categories[int(column.values[row])]
                raise DataError(
                    f"{where}: column `{self.name}`, row {row + 1}: unknown category {word!r}; known are "
                    f"{', '.join(self.categories[:8])}."
                )
            values = (codes[:, None] == np.arange(len(self.categories))) & present[:, None]
        else:
            values = np.where(present, (column.values - self.mean) / self.scale, 0.0)[:, None]
        parts = [values.astype(np.float64), *([column.missing[:, None].astype(np.float64)] if self.flagged else [])]
        return np.concatenate(parts, axis=1)


@dataclasses.dataclass(frozen=True)
class Encoding:
    """The codes of all feature columns of a log."""

    codes: tuple[ColumnCode, ...]

    @classmethod
    def fit(cls, columns: Sequence[Column]) -> Encoding:
        return cls(tuple(_code(column) for column in columns))

    @property
    def names(self) -> list[str]:
        """The D columns of the matrix: `age`, `ward=north`, `age missing`."""
        return [name for code in self.codes for name in code.names]

    def __call__(self, columns: Sequence[Column], where: str = "the log", strict: bool = True) -> Floats:
        """[N, D]"""
        found = {column.name: column for column in columns}
        for code in self.codes:
            if code.name not in found:
                raise DataError(f"{where}: no column `{code.name}`, which the encoding was fitted with.")
            if found[code.name].kind != code.kind:
                raise DataError(
                    f"{where}: column `{code.name}` is {found[code.name].kind}, and was {code.kind} where the "
                    "encoding was fitted."
                )
        rows = len(columns[0].values) if columns else 0
        parts = [code.matrix(found[code.name], where, strict) for code in self.codes]
        return np.concatenate([np.zeros((rows, 0)), *parts], axis=1)


def _code(column: Column) -> ColumnCode:
    seen = column.values[~column.missing]
    numeric = column.kind == "numeric" and seen.size > 0
    mean = float(seen.mean()) if numeric else 0.0
    deviation = float(seen.std()) if numeric else 1.0
    scale = deviation if deviation > 1e-12 * max(abs(mean), 1.0) else 1.0
    return ColumnCode(column.name, column.kind, mean, scale, column.categories, bool(column.missing.any()))

"""Limits as people write them: `cost<=0.1`, `served>=0.95`."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from pdocrl.errors import PdocrlError, UnknownNameError

_WRITTEN = re.compile(r"\s*(?P<name>.+?)\s*(?P<sense><=|>=|≤|≥)\s*(?P<value>[^<>=≤≥]+?)\s*$")


@dataclasses.dataclass(frozen=True)
class Limit:
    """(1−γ)J of the column `name`, the average per step, is held at most (or at least) at `value`."""

    name: str
    value: float
    sense: Literal["<=", ">="] = "<="

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise PdocrlError(f"limit {self}: {self.value} is not a finite number.")

    @classmethod
    def parse(cls, text: str) -> Limit:
        """'cost<=0.1' or 'served>=0.95'."""
        found = _WRITTEN.match(text)
        if found is None:
            raise PdocrlError(f"limit {text!r} is not understood; write it as 'cost<=0.1' or 'served>=0.95'.")
        try:
            value = float(found["value"])
        except ValueError:
            raise PdocrlError(f"limit {text!r}: {found['value']!r} is not a number.") from None
        return cls(found["name"], value, "<=" if found["sense"] in {"<=", "≤"} else ">=")

    @property
    def sign(self) -> float:
        """g = sign · column and τ = sign · value make it the paper's (1−γ)J_i ≥ τ_i."""
        return -1.0 if self.sense == "<=" else 1.0

    def index(self, names: Sequence[str]) -> int:
        """Which of the cost columns it is on."""
        if self.name not in names:
            raise UnknownNameError("cost column", self.name, names, f"The log has {', '.join(names) or 'none'}.")
        return list(names).index(self.name)

    def __str__(self) -> str:
        return f"{self.name}{self.sense}{self.value:g}"


def per_step(limits: Iterable[Limit], window: float) -> tuple[Limit, ...]:
    """Limits per so many steps, as limits on the average per step."""
    if not window > 0:
        raise PdocrlError(f"the window is {window} steps; it must be positive.")
    return tuple(dataclasses.replace(limit, value=limit.value / window) for limit in limits)


Limits = Iterable[Limit | str] | Mapping[str, float]


def as_limits(limits: Limits) -> tuple[Limit, ...]:
    """Limits from text, objects or {"cost": 0.1}; refuses two that contradict or repeat each other."""
    given: Iterable[Limit | str] = limits
    if isinstance(limits, Mapping):
        given = [Limit(name, float(value)) for name, value in limits.items()]
    chosen = tuple(Limit.parse(limit) if isinstance(limit, str) else limit for limit in given)
    for i, first in enumerate(chosen):
        for second in chosen[i + 1 :]:
            if first.name != second.name:
                continue
            if first.sense == second.sense:
                raise PdocrlError(f"limits {first} and {second} are on the same column; keep the one that is meant.")
            least, most = (first, second) if first.sense == ">=" else (second, first)
            if least.value > most.value:
                raise PdocrlError(f"limits {least} and {most} contradict each other: nothing can keep both.")
    return chosen

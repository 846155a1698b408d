"""The language of limits: on the mean cost of episodes, and on the tail of its distribution.

    cost<=20            E[C] ≤ 20, or at least, `served>=0.95`
    P(cost>20)<=0.05    the probability that an episode costs more than 20
    CVaR90(cost)<=40    the mean of the costliest 10 % of episodes: min_t t + E[(C − t)₊]/(1 − 0.9)
    max(cost)<=1        the cost of every single step

A quantile needs no word of its own: q95(C) ≤ 20 is P(cost>20)<=0.05. Means are in the unit of whoever is given the
limit (`solve`: per step unless it is told otherwise; `evaluate`, `certify`: per episode). Tails are always those of the
undiscounted cost C of a whole episode.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from pdocrl.errors import PdocrlError, UnknownNameError

Measure = Literal["mean", "exceedance", "cvar", "max"]

_WRITTEN = re.compile(r"\s*(?P<left>.+?)\s*(?P<sense><=|>=|≤|≥)\s*(?P<value>[^<>=≤≥]+?)\s*$")
_EXCEEDANCE = re.compile(r"P\s*\(\s*(?P<name>.+?)\s*>\s*(?P<threshold>[^<>=≤≥]+?)\s*\)$")
_CVAR = re.compile(r"CVaR_?(?P<level>[0-9.]+)%?\s*\(\s*(?P<name>.+?)\s*\)$", re.IGNORECASE)
_MAX = re.compile(r"max\s*\(\s*(?P<name>.+?)\s*\)$", re.IGNORECASE)
_LOOKS_LIKE_A_TAIL = re.compile(r"(P|Pr|CVaR[^(]*|VaR[^(]*|max|q[0-9.]+)\s*\(", re.IGNORECASE)
EXAMPLES = "'cost<=20', 'P(cost>20)<=0.05', 'CVaR90(cost)<=40' or 'max(cost)<=1'"


class Limit(msgspec.Struct, frozen=True):
    """A measure of the column `name` is held at most (a mean also: at least) at `value`."""

    name: str
    value: float
    sense: Literal["<=", ">="] = "<="
    measure: Measure = "mean"
    threshold: float | None = None  # of an exceedance: what the episode's cost is compared with
    level: float | None = None  # of a CVaR: 0.9 is the mean of the costliest tenth

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise PdocrlError(f"limit {self}: {self.value} is not a finite number.")
        if self.tail and self.sense == ">=":
            raise PdocrlError(f"limit {self}: only means are limited from below; write <=.")
        if (self.threshold is None) != (self.measure != "exceedance"):
            raise PdocrlError(f"limit on {self.name}: a threshold belongs to P({self.name}>threshold), nothing else.")
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise PdocrlError(f"limit on {self.name}: the threshold {self.threshold} is not a finite number.")
        if self.measure == "exceedance" and not 0 <= self.value < 1:
            raise PdocrlError(f"limit {self}: a probability is limited at a number from 0 to below 1, such as 0.05.")
        if (self.level is None) != (self.measure != "cvar"):
            raise PdocrlError(f"limit on {self.name}: a level belongs to CVaR90({self.name}), nothing else.")
        if self.level is not None and not 0 < self.level < 1:
            raise PdocrlError(f"limit on {self.name}: the level of a CVaR lies between 0 and 100, as in CVaR90.")

    @classmethod
    def parse(cls, text: str) -> Limit:
        """The limit that `str` writes: 'cost<=20', 'P(cost>20)<=0.05', 'CVaR90(cost)<=40', 'max(cost)<=1'."""
        found = _WRITTEN.match(text)
        if found is None:
            raise PdocrlError(f"limit {text!r} is not understood; write it as {EXAMPLES}.")
        left, value = found["left"], _number(text, found["value"])
        sense: Literal["<=", ">="] = "<=" if found["sense"] in {"<=", "≤"} else ">="
        if tail := _EXCEEDANCE.match(left):
            return cls(tail["name"], value, sense, "exceedance", threshold=_number(text, tail["threshold"]))
        if tail := _CVAR.match(left):
            level = _number(text, tail["level"])
            return cls(tail["name"], value, sense, "cvar", level=round(level / 100, 12) if level >= 1 else level)
        if tail := _MAX.match(left):
            return cls(tail["name"], value, sense, "max")
        if _LOOKS_LIKE_A_TAIL.match(left):
            raise PdocrlError(f"limit {text!r}: {left!r} is not understood; write it as {EXAMPLES}.")
        return cls(left, value, sense)

    @property
    def tail(self) -> bool:
        """Whether it is on more than the mean."""
        return self.measure != "mean"

    @property
    def sign(self) -> float:
        """g = sign · column and τ = sign · value make it the paper's (1−γ)J_i ≥ τ_i."""
        return -1.0 if self.sense == "<=" else 1.0

    @property
    def left(self) -> str:
        """What is limited: "CVaR90(cost)"."""
        if self.threshold is not None:
            return f"P({self.name}>{_shortest(self.threshold)})"
        if self.level is not None:
            return f"CVaR{100 * self.level if self.level >= 0.01 else self.level:.12g}({self.name})"
        return f"max({self.name})" if self.measure == "max" else self.name

    def index(self, names: Sequence[str]) -> int:
        """Which of the cost columns it is on."""
        if self.name not in names:
            raise UnknownNameError("cost column", self.name, names, f"The log has {', '.join(names) or 'none'}.")
        return list(names).index(self.name)

    def of(self, costs: ArrayLike, weights: ArrayLike | None = None) -> float:
        """The measure of a sample.

        Args:
            costs: [n] undiscounted costs of episodes; for `max` the largest step cost of each.
            weights: [n] ≥ 0, by default equal; importance weights give the measure under another policy.
        """
        x = np.asarray(costs, np.float64)
        w = np.ones_like(x) if weights is None else np.asarray(weights, np.float64)
        if x.ndim != 1 or not len(x) or w.shape != x.shape or not w.sum() > 0:
            raise PdocrlError(f"limit {self}: costs of shape {x.shape}, weights {w.shape}; give [n] of each, n ≥ 1.")
        total = w.sum()  # divided by at the end, so that 3 of 60 episodes are 0.05 and not a rounding more
        if self.threshold is not None:
            return float(w @ (x > self.threshold) / total)
        if self.level is not None:
            order = np.argsort(x)
            at = int(np.searchsorted(np.cumsum(w[order]), self.level * total))
            t = x[order][min(at, len(x) - 1)]
            return float(t + w @ np.maximum(x - t, 0) / (total * (1 - self.level)))
        return float(x[w > 0].max() if self.measure == "max" else w @ x / total)

    def satisfied(self, costs: ArrayLike, weights: ArrayLike | None = None) -> bool:
        """Whether the sample's measure is within the limit; a statement about the sample alone."""
        found = self.of(costs, weights)
        return found <= self.value if self.sense == "<=" else found >= self.value

    def __str__(self) -> str:
        return f"{self.left}{self.sense}{_shortest(self.value)}"


Limits = float | str | Limit | Iterable[Limit | str | float] | Mapping[str, float]


def as_limits(limits: Limits) -> tuple[Limit, ...]:
    """Limits from text, objects, {"cost": 20} or 20, the mean of `cost`; refuses contradiction and repetition."""
    if isinstance(limits, Mapping):
        given: Iterable[Limit | str | float] = [Limit(name, float(value)) for name, value in limits.items()]
    else:
        given = [limits] if isinstance(limits, str | int | float | Limit) else limits
    chosen = tuple(_one(limit) for limit in given)
    for i, first in enumerate(chosen):
        for second in chosen[i + 1 :]:
            if first.left != second.left:
                continue
            if first.sense == second.sense:
                raise PdocrlError(f"limits {first} and {second} are on the same column; keep the one that is meant.")
            least, most = (first, second) if first.sense == ">=" else (second, first)
            if least.value > most.value:
                raise PdocrlError(f"limits {least} and {most} contradict each other: nothing can satisfy both.")
    return chosen


def per_step(limits: Iterable[Limit], window: float) -> tuple[Limit, ...]:
    """Limits on the mean per so many steps, as limits on the average per step; tails stay per episode."""
    if not window > 0:
        raise PdocrlError(f"the window is {window} steps; it must be positive.")
    return tuple(x if x.tail else msgspec.structs.replace(x, value=x.value / window) for x in limits)


def in_words(limits: object) -> bool:
    """Whether limits are given as text or objects, and not as numbers."""
    given = limits if isinstance(limits, list | tuple) else [limits]
    return any(isinstance(x, str | Limit) for x in given)


def amounts(limits: Sequence[Limit], names: Sequence[str], horizon: float) -> tuple[float, ...]:
    """[K] one amount of cost per column that episodes are compared with.

    The limit on a column's mean; where it has none the threshold of its exceedance, else the limit on its CVaR, else
    what an episode of `horizon` steps at the limit on a step costs.
    """
    of_column: dict[int, list[tuple[int, float]]] = {}
    for limit in limits:
        if limit.sense == ">=":
            raise PdocrlError(f"limit {limit}: costs are limited from above; write <=.")
        rank = ("mean", "exceedance", "cvar", "max").index(limit.measure)
        amount = limit.threshold if limit.threshold is not None else limit.value
        amount = amount * horizon if limit.measure == "max" else amount
        of_column.setdefault(limit.index(names), []).append((rank, float(amount)))
    free = [name for k, name in enumerate(names) if k not in of_column]
    if free:
        shown = ", ".join(str(limit) for limit in limits)
        raise PdocrlError(f"limits {shown}: {free[0]} is not limited; give a limit on every cost.")
    return tuple(min(of_column[k])[1] for k in range(len(names)))


def _one(limit: Limit | str | float) -> Limit:
    if isinstance(limit, Limit):
        return limit
    return Limit.parse(limit) if isinstance(limit, str) else Limit("cost", float(limit))


def _number(text: str, word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise PdocrlError(f"limit {text!r}: {word!r} is not a number.") from None


def _shortest(value: float) -> str:
    """The shortest text that reads back as the same number."""
    return f"{value:g}" if float(f"{value:g}") == value else repr(float(value))


def limit_names(limits: Sequence[Limit]) -> list[str]:
    """One name per limit: its column, or the whole limit where a column has two."""
    columns = [limit.name for limit in limits]
    return [limit.name if columns.count(limit.name) == 1 else str(limit) for limit in limits]

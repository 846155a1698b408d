"""The paper's baselines as they are measured: parameters by each method's theory, a grid around them, what is claimed.

The theory's parameter often asks for what nobody knows (C*, λ*, V_max); here it is told. The grid holds parameters a
practitioner might try; the best of it in hindsight is what no rule for choosing can beat.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from pdocrl.limits import Limits, as_limits
from pdocrl.tabular.baselines import BASELINES, Baseline, Parameters
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.solvers.few_rows import frequent_only
from pdocrl.tabular.solvers.lagrangian import Floats, Lagrangian, behaviour_mass
from pdocrl.tabular.solvers.saddle import Setup, best_policy

DELTA = 0.1  # the probability with which a theory's bound may fail


@dataclasses.dataclass(frozen=True, eq=False)
class Knowledge:
    """What a theory asks for."""

    n: int  # rows of the log
    S: int
    A: int
    seen: int  # pairs tried
    V_max: float  # the range of values
    gamma: float
    C: float  # C*, the concentrability of the optimum, against μ̂_D of this mass
    mass: float  # of μ̂_D as methods see it: 1, or less where episodes end (`behaviour_mass`)
    stretch: float  # how much larger the range of values would be if the largest reward came at every step
    B: float  # on the multipliers
    best: Floats  # [S, A] an optimal policy, for the method that asks for a reference

    @property
    def ball(self) -> float:
        """ε with ‖Q^π − r̂ − γP̂Q^π‖²_μ̂ ≤ ε for a given policy with probability 1 − δ: a sum of `seen` squares."""
        log = math.log(1 / DELTA)
        return self.mass * self.V_max**2 / (4 * self.n) * (self.seen + 2 * math.sqrt(self.seen * log) + 2 * log)

    @property
    def flow(self) -> float:
        """ζ: the ℓ₁ deviation of the flow of a ratio up to C."""
        return self.C * self.mass * math.sqrt(2 * (self.S * math.log(2) + math.log(1 / DELTA)) / self.n)


@dataclasses.dataclass(frozen=True)
class Claim:
    """A method's line in the paper's comparisons, Tables 1 and 4."""

    coverage: str = ""
    efficient: str = ""
    needs: str = ""
    rate: int = 0  # n of order ε^(−rate); 0 where the tables say nothing


@dataclasses.dataclass(frozen=True)
class MeasuredBaseline:
    """One method."""

    method: Baseline
    theory: Callable[[Knowledge], Parameters]
    grid: Callable[[Knowledge], list[Parameters]]
    free: bool = True  # whether it is measured on problems without limits; on those with them if it knows any
    claim: Claim = Claim()


def _pdocrl(counts: Counts, gamma: float, limits: Limits = (), C: float = 10.0, min_count: int = 1) -> Floats:
    """The paper's saddle point, exactly; `min_count` leaves out pairs tried less often, as `pdocrl solve` does."""
    L = Lagrangian.empirical(frequent_only(counts, min_count), gamma, as_limits(limits))
    return best_policy(L, Setup(C))


def _each(name: str, values: tuple[float, ...]) -> Callable[[Knowledge], list[Parameters]]:
    return lambda _: [{name: value} for value in values]


def _times(
    multiples: tuple[float, ...], **theory: Callable[[Knowledge], float]
) -> Callable[[Knowledge], list[Parameters]]:
    """The theory's parameters, all multiplied by each of these."""
    return lambda f: [{name: k * value(f) for name, value in theory.items()} for k in multiples]


def _at_once(**theory: Callable[[Knowledge], float]) -> Callable[[Knowledge], Parameters]:
    return lambda f: {name: value(f) for name, value in theory.items()}


def _C(f: Knowledge) -> float:
    return f.C


def _covers(f: Knowledge) -> list[float]:
    """C around C*; where the optimum is badly covered, also far below, which is all that a log may bear."""
    return [1.5 * f.C, 3 * f.C, 10 * f.C, *(C for C in (5.0, 20.0) if f.C > 2 * C)]


def _none(_: Knowledge) -> Parameters:
    return {}


def _price(f: Knowledge) -> float:
    """PSPI's multiplier of ‖δ‖² that goes with the ball, for a policy covered within C."""
    return math.sqrt(f.C / max(f.ball, 1e-300)) / (2 * (1 - f.gamma))


def _atac_price(f: Knowledge) -> float:
    """β = (n/d)^(2/3)/V_max with d = SA: theirs, for values scaled to 1."""
    return float((f.n / (f.S * f.A)) ** (2 / 3) / f.V_max)


def _bootstrap_count(f: Knowledge) -> float:
    """SPIBB's N∧ for a loss of at most a tenth of V_max, by 4V_max/(1−γ) √(2/N∧ log(2SA·2^S/δ))."""
    return math.ceil(32 / (0.1**2 * (1 - f.gamma) ** 2) * math.log(2 * f.S * f.A * 2 ** min(f.S, 1000) / DELTA))


STEPS = (10.0, 100.0, 1000.0)
MULTIPLES = (0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6)

MEASURED: dict[str, MeasuredBaseline] = {
    "pdocrl": MeasuredBaseline(
        Baseline("PDOCRL", _pdocrl),
        _at_once(C=_C),
        lambda f: [{"C": C} for C in _covers(f)],
        claim=Claim("any π_c", "yes", "no", 2),
    ),
    "pdocrl_often": MeasuredBaseline(
        Baseline("PDOCRL, pairs tried ≥ 10", _pdocrl),
        lambda f: {"C": f.C, "min_count": 10},
        lambda f: [{"C": C, "min_count": 10} for C in _covers(f)],
    ),
    "pdca": MeasuredBaseline(
        BASELINES["pdca"],
        lambda f: {"B": f.B, "step": f.stretch},
        lambda f: [{"B": f.B, "step": step} for step in STEPS],
        claim=Claim("full", "no", "no"),
        free=False,
    ),
    "wsac": MeasuredBaseline(
        BASELINES["wsac"],
        lambda f: {"C": f.C, "step": f.stretch},
        lambda f: [
            {"C": f.C, "lam": lam, "step": step, "reference": reference}
            for lam in (1.0, 5.0)
            for step in (10.0, 100.0)
            for reference in (None, f.best)
        ],
        claim=Claim("π_ref", "no", "π_ref"),
        free=False,
    ),
    "mbcl": MeasuredBaseline(
        BASELINES["mbcl"],
        _at_once(B=lambda f: f.B),
        _times((1.0, 3.0, 10.0), B=lambda f: f.B),
        claim=Claim("full", "yes", "no"),
        free=False,
    ),
    "pocc": MeasuredBaseline(
        BASELINES["pocc"],
        _at_once(C=_C, zeta=lambda f: f.flow, kappa=lambda f: f.flow / math.sqrt(f.S)),
        lambda f: [
            {"C": c * f.C, "zeta": k * f.flow, "kappa": k * f.flow / math.sqrt(f.S)}
            for c in (1.0, 3.0)
            for k in (0.1, 0.01, 0.0)
        ],
        claim=Claim("π*", "yes", "μ_D"),
        free=False,
    ),
    "coral": MeasuredBaseline(
        BASELINES["coral"], _at_once(C=_C), lambda f: [{"C": C} for C in _covers(f)], claim=Claim("π*", "no", "μ_D", 2)
    ),
    "pro_rl": MeasuredBaseline(
        BASELINES["pro_rl"],
        lambda f: {"C": f.C, "alpha": f.n ** (-1 / 6)},
        lambda f: [{"C": 3 * f.C, "alpha": alpha} for alpha in (0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4, 1e-5)],
        claim=Claim("π*", "no", "μ_D", 6),
    ),
    "pessimistic": MeasuredBaseline(
        BASELINES["pessimistic"],
        _at_once(epsilon=lambda f: f.ball),
        _times(MULTIPLES, epsilon=lambda f: f.ball),
        claim=Claim("any π_c", "no", "no", 5),
    ),
    "pspi": MeasuredBaseline(
        BASELINES["pspi"],
        lambda f: {"beta": _price(f), "step": f.stretch},
        lambda f: [{"beta": k * _price(f), "step": step} for k in (1, 10, 100) for step in (30.0, 300.0)],
        claim=Claim("any π_c", "no", "no", 5),
    ),
    "atac": MeasuredBaseline(
        BASELINES["atac"],
        lambda f: {"beta": _atac_price(f), "step": f.stretch},
        lambda f: [{"beta": k * _atac_price(f), "step": step} for k in (1, 10, 100) for step in (30.0, 300.0)],
        claim=Claim("any π_c", "no", "no", 3),
    ),
    "a_crab": MeasuredBaseline(
        BASELINES["a_crab"],
        lambda f: {"C": f.C, "step": f.stretch},
        lambda f: [{"C": k * f.C, "step": step} for k in (0.5, 1, 3) for step in (30.0, 300.0)],
        claim=Claim("any π_c", "no", "no", 2),
    ),
    "dpdl": MeasuredBaseline(
        BASELINES["dpdl"],
        lambda f: {"bonus": 1 / f.stretch, "C": f.C},
        _each("bonus", (0.3, 0.1, 0.03, 0.01, 0.003, 1e-3, 3e-4, 1e-4, 3e-5)),
    ),
    "mo_spibb": MeasuredBaseline(
        BASELINES["mo_spibb"],
        lambda f: {"epsilon": 1.0},
        lambda f: [{"epsilon": e} for e in (0.3, 3.0)] + [{"min_count": k} for k in (5, 10, 30, 100)],
        free=False,
    ),
    "spibb": MeasuredBaseline(
        BASELINES["spibb"],
        lambda f: {"min_count": int(_bootstrap_count(f))},
        lambda f: [{"min_count": k} for k in (3, 5, 10, 30, 100)],
    ),
    "soft_spibb": MeasuredBaseline(
        BASELINES["soft_spibb"], lambda f: {"epsilon": 1.0}, _each("epsilon", (0.1, 0.3, 1.0, 3.0))
    ),
    "coptidice": MeasuredBaseline(
        BASELINES["coptidice"],
        lambda f: {"alpha": 0.01},
        _each("alpha", (1.0, 0.3, 0.1, 0.03, 1e-3, 1e-4)),
        claim=Claim("", "", "μ_D"),
        free=False,
    ),
    "plug_in": MeasuredBaseline(
        BASELINES["plug_in"], _none, _each("min_count", (3, 10, 30, 100)), claim=Claim("full", "yes", "no", 2)
    ),
    "fqi": MeasuredBaseline(BASELINES["fqi"], _none, lambda _: [], claim=Claim("full", "yes", "no", 2)),
    "behaviour_cloning": MeasuredBaseline(BASELINES["behaviour_cloning"], _none, lambda _: []),
}


def facts_of(counts: Counts, gamma: float, C: float, B: float, best: Floats, V_max: float | None = None) -> Knowledge:
    """The facts of a log, and what is known beside it; C is against the pairs' shares of the log.

    V_max is by default what the largest reward at every step would earn.
    """
    low, high = min(0.0, float(counts.r.min())), max(0.0, float(counts.r.max()))
    span = max(high - low, np.finfo(float).tiny) / (1 - gamma)
    mass, values = behaviour_mass(counts, gamma), span if V_max is None else V_max
    seen = int((counts.n > 0).sum())
    return Knowledge(counts.size, *counts.shape, seen, values, gamma, C / mass, mass, span / values, B, best)

"""The methods the paper's two comparison tables name, and what practitioners use: from counts to a policy, by name.

problem.py  what all of them start from: the log's own model, and programs over its occupancies
critics.py  PDCA, PSPI, ATAC, A-Crab and WSAC: Hedge against a critic
density.py  POCC, CORAL, PRO-RL, Xie's pessimism and DPDL: occupancies, extracted by the log's own policy
spibb.py    SPIBB, Soft-SPIBB and MO-SPIBB: stay with the log's policy where it tried little
plain.py    behaviour cloning, plug-in, fitted Q iteration, MBCL and COptiDICE

A result of one of them is the report of `solve`, for a policy that something else found:

    ξ = the largest value of any policy of the log's own model within the limits
        − the value of this one there, less B times the largest limit it misses

The upper end is the optimum of the log's own CMDP with its proof, so ξ says how far the policy is from the best the log
could be made to promise. That is not always worth having: a careful method stays behind on purpose.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from pdocrl.errors import PdocrlError, UnknownNameError
from pdocrl.limits import Limits, as_limits
from pdocrl.tabular.baselines import plain
from pdocrl.tabular.baselines.critics import a_crab, atac, pdca, pspi, wsac
from pdocrl.tabular.baselines.density import coral, dpdl, pessimistic, pocc, pro_rl
from pdocrl.tabular.baselines.spibb import mo_spibb, soft_spibb, spibb
from pdocrl.tabular.cmdp import extract, occupancy
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.inference.bootstrap import intervals
from pdocrl.tabular.inference.bounds import PolicyEstimate
from pdocrl.tabular.result.result import Result, make_result
from pdocrl.tabular.solvers.algorithms import Mixture
from pdocrl.tabular.solvers.lagrangian import Floats, Lagrangian, pessimistic_model
from pdocrl.tabular.solvers.saddle import Setup, solve_saddle, with_policy

Answer = Floats | Mixture  # one policy [S, A], or a mixture of them
Parameters = dict[str, Any]


class Baseline(NamedTuple):
    """One method."""

    label: str
    run: Callable[..., Answer]  # (counts, gamma, limits, **parameters)
    limits: bool = True  # whether it knows any


def _coptidice(counts: Counts, gamma: float, limits: Limits = (), alpha: float = 0.01) -> Floats:
    return plain.coptidice(counts, gamma, limits, alpha).pi


BASELINES: dict[str, Baseline] = {
    "pdca": Baseline("PDCA", pdca),
    "wsac": Baseline("WSAC", wsac),
    "mbcl": Baseline("MBCL", plain.mbcl),
    "pocc": Baseline("POCC", pocc),
    "coral": Baseline("CORAL", coral),
    "pro_rl": Baseline("PRO-RL", pro_rl),
    "pessimistic": Baseline("Xie, as a cone program", pessimistic),
    "pspi": Baseline("PSPI", pspi, limits=False),
    "atac": Baseline("ATAC", atac, limits=False),
    "a_crab": Baseline("A-Crab", a_crab, limits=False),
    "dpdl": Baseline("DPDL", dpdl),
    "mo_spibb": Baseline("MO-SPIBB", mo_spibb),
    "spibb": Baseline("SPIBB", spibb, limits=False),
    "soft_spibb": Baseline("Soft-SPIBB", soft_spibb, limits=False),
    "coptidice": Baseline("COptiDICE", _coptidice),
    "plug_in": Baseline("plug-in", plain.plug_in),
    "fqi": Baseline("FQI", lambda counts, gamma, *_: plain.fqi(counts, gamma), limits=False),
    "behaviour_cloning": Baseline("behaviour cloning", lambda counts, *_: plain.behaviour_cloning(counts)),
}


def solve_with(
    method: str,
    counts: Counts,
    gamma: float,
    limits: Limits = (),
    parameters: Mapping[str, float | str] | None = None,
    resamples: int = 200,
    level: float = 0.95,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> Result:
    """The result of a method of `BASELINES`; its parameters, such as {"beta": 3}, may be text.

    What is not given is as the method's own function has it.
    """
    if method not in BASELINES:
        raise UnknownNameError("method", method, sorted(BASELINES))
    baseline, given = BASELINES[method], read_parameters(method, parameters or {})
    progress(f"learning by {baseline.label}")
    found = baseline.run(counts, gamma, limits, **given)
    return assess(counts, found, gamma, limits, method, None, resamples > 0, level, progress)


def parameters_of(method: str) -> dict[str, type]:
    """The numbers a method takes, by name."""
    taken = list(inspect.signature(BASELINES[method].run).parameters.values())[3:]
    return {one.name: int if "int" in str(one.annotation) else float for one in taken if one.name != "reference"}


def read_parameters(method: str, given: Mapping[str, float | str]) -> Parameters:
    """Each parameter as the number it is."""
    kinds, read = parameters_of(method), {}
    for name, value in given.items():
        if name not in kinds:
            takes = f"{method} takes {', '.join(kinds) or 'none'}."
            raise UnknownNameError(f"parameter of {method}", name, kinds, takes)
        try:
            read[name] = kinds[name](float(value)) if kinds[name] is float else int(value)
        except ValueError:
            what = "a whole number" if kinds[name] is int else "a number"
            raise PdocrlError(f"{method}: {name}={value} is not understood; it must be {what}.") from None
    return read


def assess(
    counts: Counts,
    found: Floats | Mixture,
    gamma: float,
    limits: Limits = (),
    method: str = "given",
    B: float | None = None,
    with_intervals: bool = True,
    level: float = 0.95,
    progress: Callable[[str], None] = lambda _: None,
) -> Result:
    """The result for a policy [S, A], or a mixture as one policy; intervals carry no optimism, since nothing is
    learned again."""
    chosen = as_limits(limits)
    L = Lagrangian.empirical(counts, gamma, chosen)
    mixture = found if isinstance(found, Mixture) else None
    policy = found if not isinstance(found, Mixture) else one_policy(L, found)
    progress("planning in the log's own model")
    best = solve_saddle(L, Setup(np.inf, B))
    assert best.planned is not None, "without a bound on w the problem is planned"
    solution = with_policy(best, policy, mixture)
    spread = None
    if with_intervals:
        spread = intervals(PolicyEstimate(counts, gamma, policy), np.zeros(1 + len(chosen)), chosen, level)
    return make_result(counts, chosen, solution, method, spread, (), 1, L)


def one_policy(L: Lagrangian, mixture: Mixture) -> Floats:
    """[S, A] the stationary policy whose occupancy in the log's own model is the mixture's.

    In a state that no policy of the mixture reaches there, their average stands.
    """
    model = pessimistic_model(L)
    mu = np.mean([occupancy(model, pi) for pi in mixture.policies], axis=0)
    reached = mu.sum(axis=1, keepdims=True) > 1e-12
    return np.asarray(np.where(reached, extract(mu), mixture.policies.mean(axis=0)))

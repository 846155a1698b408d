"""A-Crab and WSAC: critics chosen against the policy, by linear program, each time the policy has moved.

    f = argmin_f ⟨f(s, π) − f(s, a)⟩_μ̂ + β E(f),   E(f) = max_{w ∈ [0, C]} |⟨w, δ⟩_μ̂| = C max(Σμ̂δ₊, Σμ̂δ₋)

with δ = f − r̂ − γP̂f(·, π) the Bellman residual and f between the least and the largest value. β = 2 is what their
theory asks for: ⟨f(s, π) − f(s, a)⟩ is off by at most ⟨w^π, δ⟩ + ⟨1, δ⟩.

Substituting f = Q^π + (I − γP̂Π)⁻¹δ makes the objective linear in δ, with coefficients ρμ̂. So f = Q^π is a minimiser
if and only if [max ρ]₊ + [−min ρ]₊ ≤ βC: as long as the policy is covered, nothing is adversarial, and no program need
be solved. (When the log is a policy's own, ρ = w^π − 1.)

Differences from the papers: W is all ratios up to C, and F all tables within the values' range, so that the inner
maximum is exact; pairs never tried keep their value in the log's model; WSAC takes several costs as a sum, and its
multiplier, a constant there, is a parameter here.
"""

from __future__ import annotations

import importlib.util
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from pdocrl.errors import PdocrlError
from pdocrl.tabular.algorithms import Mixture
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.highs import maximise
from pdocrl.tabular.lagrangian import Floats
from pdocrl.tabular.limits import Limits
from pdocrl.theory.rivals.actors import improve
from pdocrl.theory.rivals.cone import minimise_linear
from pdocrl.theory.rivals.problem import SIMPLEX_UP_TO, LogModel


def a_crab(
    counts: Counts,
    gamma: float,
    limits: Limits = (),
    C: float = 10.0,
    beta: float = 2.0,
    iterations: int = 100,
    step: float = 10.0,
) -> Mixture:
    """A-Crab (Zhu, Rashidinejad and Jiao, 2023): Hedge against the adversarial critic; for problems without limits."""
    problem = LogModel.free(counts, gamma, limits, "a_crab", "wsac")

    def critic(pi: Floats) -> Floats:
        return adversarial_critic(problem, pi, problem.model.r, problem.box, beta * C)

    return improve(critic, problem.L.r.shape, problem.span, iterations, step)


def wsac(
    counts: Counts,
    gamma: float,
    limits: Limits = (),
    C: float = 10.0,
    beta: float = 2.0,
    lam: float = 5.0,
    reference: Floats | None = None,
    iterations: int = 100,
    step: float = 10.0,
) -> Mixture:
    """WSAC (Wei et al., 2024): Hedge on f_r − λ Σ_i [f_i(s, a) − f_i(s, π_ref)]₊, critics as above with costs' turned.

    It promises to cost no more than the reference policy, by default the log's own. The limits only say which columns
    are costs: their values play no part, so that they are kept if the reference keeps them.
    """
    problem = LogModel.of(counts, gamma, limits)
    model, pi_ref = problem.model, problem.L.behaviour if reference is None else reference

    def critic(pi: Floats) -> Floats:
        f = adversarial_critic(problem, pi, model.r, problem.box, beta * C)
        for i, g in enumerate(model.g):
            # A constraint reward is a negative cost: pessimism makes it small, as it makes the reward.
            box = problem.L.g_range[i] / (1 - gamma)
            q = adversarial_critic(problem, pi, g, (float(box[0]), float(box[1])), beta * C / max(lam, 1e-12))
            f = f - lam * np.maximum((pi_ref * q).sum(axis=1, keepdims=True) - q, 0)
        return f

    span = problem.span + lam * problem.cost_span * model.n_constraints
    return improve(critic, model.r.shape, span, iterations, step)


def adversarial_critic(
    problem: LogModel,
    pi: Floats,
    reward: Floats,
    box: tuple[float, float],
    weight: float,
    method: Literal["auto", "program"] = "auto",
) -> Floats:
    """argmin_f ⟨f(s, π) − f(s, a)⟩_μ̂ + weight·max(Σμ̂δ₊, Σμ̂δ₋) over f [S, A] within the box; weight = βC.

    Pairs never tried stay at their value in the log's own model. "program" solves the linear program even where Q^π is
    known to be its solution.
    """
    L, pairs = problem.L, problem.pairs
    mu_D = L.mu_D.ravel()[pairs]
    played = pi * L.mu_D.sum(axis=1, keepdims=True)
    if method == "auto":
        rho = problem.adjoint(pi, played - L.mu_D).ravel()[pairs] / mu_D
        if max(rho.max(), 0.0) + max(-rho.min(), 0.0) <= weight:
            return problem.Q(pi, reward)
    (S, A), m = L.r.shape, len(pairs)
    unseen = np.where(L.seen, 0.0, reward)  # the model gives a pair never tried its reward, and nothing after it
    # Columns: f [m], V [S] = f(·, π), δ₊ [m], δ₋ [m], e. Rows: V's definition, δ's, and the two sums e bounds.
    choose = sp.csr_array((pi.ravel()[pairs], (pairs // A, np.arange(m))), shape=(S, m))
    identity = sp.eye_array(m)
    sums = sp.csr_array(mu_D[None])
    matrix = sp.block_array(
        [
            [-choose, sp.eye_array(S), None, None, None],
            [identity, -L.gamma * L.P[pairs], -identity, identity, None],
            [None, None, sums, None, np.array([[-1.0]])],
            [None, None, None, sums, np.array([[-1.0]])],
        ],
        format="csc",
    )
    known = np.r_[(pi * unseen).sum(axis=1), reward.ravel()[pairs]]
    slope = (played - L.mu_D).ravel()[pairs]
    program: dict[str, Any] = {
        "objective": np.r_[slope, np.zeros(S + 2 * m), weight],
        "matrix": matrix,
        "row_lower": np.r_[known, -np.inf, -np.inf],
        "row_upper": np.r_[known, 0.0, 0.0],
        "column_lower": np.r_[np.full(m, box[0]), np.full(S, -np.inf), np.zeros(2 * m + 1)],
        "column_upper": np.r_[np.full(m, box[1]), np.full(S, np.inf), np.full(2 * m + 1, np.inf)],
    }
    x = minimise_linear(**program) if m > SIMPLEX_UP_TO and importlib.util.find_spec("clarabel") else None
    if x is None:
        program["objective"] = -program["objective"]
        found = maximise(**program, method="simplex" if m <= SIMPLEX_UP_TO else "ipm")
        if not found.optimal:
            raise PdocrlError("HiGHS found no critic; are the signals of sensible size?")
        x = found.x
    f = unseen.copy()
    f.ravel()[pairs] = x[:m]
    return np.asarray(f)

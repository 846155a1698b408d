"""PSPI and ATAC: critics that pay for Bellman residuals by their square, which for tables has a closed form.

With δ = f − r̂ − γP̂f(·, π), and any linear objective ⟨x, f⟩ to be made small,

    argmin_f ⟨x, f⟩ + β Σ μ̂δ²   is   Q^π of the reward r̂ − y/(2βμ̂),   y = (I − γP̂Π)⁻ᵀx

PSPI (Xie et al., 2021) takes ⟨x, f⟩ = f(s₀, π), so that y = μ^π/(1−γ): its critic is pessimistic about the policy.
ATAC (Cheng et al., 2022) takes f(s, π) − f(s, a) averaged over the log: it is pessimistic about the improvement.
Both are for problems without limits.

Differences from the papers: their Bellman error is a minimax, ‖f − r − γf(s′, π)‖² less the least over g of the same
with g for f. In complete tables that least is the noise alone, and what remains is Σ μ̂δ². PSPI's constrained form is in
`pessimistic.py`, solved exactly. Their f lie within the range of values; the closed form may leave it.
"""

from __future__ import annotations

from collections.abc import Callable

from pdocrl.errors import PdocrlError
from pdocrl.limits import Limits
from pdocrl.tabular.baselines.actors import improve
from pdocrl.tabular.baselines.problem import LogModel
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.solvers.algorithms import Mixture
from pdocrl.tabular.solvers.lagrangian import Floats


def pspi(
    counts: Counts,
    gamma: float,
    limits: Limits = (),
    beta: float = 10.0,
    iterations: int = 500,
    step: float = 10.0,
) -> Mixture:
    """Hedge against argmin_f f(s₀, π) + β Σ μ̂δ² (their λ is our β)."""
    problem = LogModel.free(counts, gamma, limits, "pspi", "pessimistic")
    d0 = problem.L.d0[:, None]
    return _learn(problem, lambda pi: d0 * pi, beta, iterations, step)


def atac(
    counts: Counts,
    gamma: float,
    limits: Limits = (),
    beta: float = 10.0,
    iterations: int = 500,
    step: float = 10.0,
) -> Mixture:
    """Hedge against argmin_f ⟨f(s, π) − f(s, a)⟩_μ̂ + β Σ μ̂δ²."""
    problem = LogModel.free(counts, gamma, limits, "atac", "wsac")
    mu = problem.L.mu_D
    return _learn(problem, lambda pi: pi * mu.sum(axis=1, keepdims=True) - mu, beta, iterations, step)


def quadratic_critic(problem: LogModel, pi: Floats, x: Floats, beta: float) -> Floats:
    """argmin_f ⟨x, f⟩ + β Σ μ̂δ² [S, A]; pairs never tried stay at the value the log's own model gives them."""
    under = problem.under(pi)
    y = under.adjoint(x)
    reward = problem.model.r.copy()
    seen = problem.L.seen
    reward[seen] -= y[seen] / (2 * beta * problem.L.mu_D[seen])
    return under.Q(reward)


def _learn(problem: LogModel, x: Callable[[Floats], Floats], beta: float, iterations: int, step: float) -> Mixture:
    if not beta > 0:
        raise PdocrlError(f"beta is {beta}; the price of Bellman residuals must be positive.")

    def critic(pi: Floats) -> Floats:
        return quadratic_critic(problem, pi, x(pi), beta)

    return improve(critic, problem.L.r.shape, problem.span, iterations, step)

"""PDCA, PSPI, ATAC, A-Crab and WSAC: actors π_{t+1} ∝ π_t exp(η f_t) against a critic f_t, and the mixture of all.

With δ = f − r̂ − γP̂f(·, π), the Bellman residual in the log's model, the critics are

    PDCA            argmin_f max_{w ∈ [0, C]} |⟨w, δ⟩_μ̂|, which is Q^π, of reward and costs; λ greedy
    PSPI            argmin_f f(s₀, π) + β Σ μ̂δ²                        pessimistic about the policy
    ATAC            argmin_f ⟨f(s, π) − f(s, a)⟩_μ̂ + β Σ μ̂δ²           pessimistic about the improvement
    A-Crab, WSAC    argmin_f ⟨f(s, π) − f(s, a)⟩_μ̂ + β max_{w ∈ [0, C]} |⟨w, δ⟩_μ̂|

For tables the inner maximum is C·max(Σμ̂δ₊, Σμ̂δ₋), and the critic with a squared penalty has a closed form: with any
linear objective ⟨x, f⟩ it is Q^π of the reward r̂ − y/(2βμ̂), y = (I − γP̂Π)⁻ᵀx.

In the last line f = Q^π + (I − γP̂Π)⁻¹δ makes the objective linear in δ, with coefficients ρμ̂. So Q^π is a minimiser if
and only if [max ρ]₊ + [−min ρ]₊ ≤ βC: as long as the policy is covered, nothing is adversarial, and no program need be
solved. β = 2 is what the theory asks for: ⟨f(s, π) − f(s, a)⟩ is off by at most ⟨w^π, δ⟩ + ⟨1, δ⟩.

Differences from the papers: W is all ratios up to C and F all tables, within the values' range for A-Crab and WSAC, so
that inner problems are exact; pairs never tried keep their value in the log's model, which is the worst. PDCA's actor
is any without regret, here Hedge, and its greedy λ that of the published version. PSPI and ATAC have a minimax for the
Bellman error, which in complete tables is Σ μ̂δ²; PSPI's constrained form is `density.pessimistic`. WSAC takes several
costs as a sum, and its multiplier, a constant there, is a parameter here.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from pdocrl.errors import PdocrlError
from pdocrl.limits import Limits
from pdocrl.tabular.baselines.problem import LogModel, minimise_linear
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.solvers.algorithms import Hedge, Mixture
from pdocrl.tabular.solvers.highs import Start, maximise
from pdocrl.tabular.solvers.lagrangian import Floats, expected
from pdocrl.tabular.solvers.lp import SIMPLEX_UP_TO

Critic = Callable[[Floats], Floats]  # π [S, A] → f [S, A]


def improve(critic: Critic, shape: tuple[int, ...], span: float, iterations: int, step: float) -> Mixture:
    """Uniform(π_1 … π_T) of Hedge against a critic whose values span `span`.

    η = step·√(8 log A / T)/span: at step 1 the rate whose regret the papers use. Larger steps come close to policy
    iteration, which is better when the critic does not fight back.
    """
    eta = step * float(np.sqrt(8 * np.log(max(shape[1], 2)) / iterations)) / span
    hedge = Hedge(shape, lambda _: eta)
    policies = np.empty((iterations, *shape))
    for t in range(iterations):
        policies[t] = hedge.play
        hedge.respond(critic(hedge.play))
    return Mixture(policies)


def pdca(
    counts: Counts, gamma: float, limits: Limits = (), B: float = 10.0, iterations: int = 1000, step: float = 10.0
) -> Mixture:
    """The mixture of the game's policies; B bounds the multipliers."""
    problem = LogModel.of(counts, gamma, limits)
    model, d0 = problem.model, problem.L.d0

    def critic(pi: Floats) -> Floats:
        under = problem.under(pi)
        f = under.Q(model.r)
        if not model.n_constraints:
            return f
        g = [under.Q(signal) for signal in model.g]
        slack = np.array([(1 - gamma) * d0 @ expected(q, pi) for q in g]) - model.tau
        worst = int(slack.argmin())
        return f + B * g[worst] if slack[worst] < 0 else f

    return improve(critic, model.r.shape, problem.span + B * problem.cost_span, iterations, step)


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
    start = Start()

    def critic(pi: Floats) -> Floats:
        return Adversary(problem, pi).critic(problem.model.r, problem.box, beta * C, start)

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
    are costs: their values play no part, so that they are satisfied if the reference satisfies them.
    """
    problem = LogModel.of(counts, gamma, limits)
    model, pi_ref = problem.model, problem.L.behaviour if reference is None else reference
    starts = [Start() for _ in range(1 + model.n_constraints)]

    def critic(pi: Floats) -> Floats:
        adversary = Adversary(problem, pi)
        f = adversary.critic(model.r, problem.box, beta * C, starts[0])
        for i, g in enumerate(model.g):
            # A constraint reward is a negative cost: pessimism makes it small, as it makes the reward.
            box = problem.L.g_range[i] / (1 - gamma)
            weight = beta * C / max(lam, 1e-12)
            q = adversary.critic(g, (float(box[0]), float(box[1])), weight, starts[1 + i])
            f = f - lam * np.maximum((pi_ref * q).sum(axis=1, keepdims=True) - q, 0)
        return f

    span = problem.span + lam * problem.cost_span * model.n_constraints
    return improve(critic, model.r.shape, span, iterations, step)


class Adversary:
    """The critics of one policy."""

    def __init__(self, problem: LogModel, pi: Floats) -> None:
        self.problem, self.pi = problem, pi
        self.under = problem.under(pi)
        mu_D = problem.L.mu_D
        self.slope = pi * mu_D.sum(axis=1, keepdims=True) - mu_D  # ⟨slope, f⟩ = ⟨f(s, π) − f(s, a)⟩_μ̂

    @cached_property
    def harmless(self) -> float:
        """[max ρ]₊ + [−min ρ]₊: from this weight on, Q^π is a minimiser."""
        seen = self.problem.L.seen
        rho = self.under.adjoint(self.slope)[seen] / self.problem.L.mu_D[seen]
        return float(max(rho.max(), 0.0) + max(-rho.min(), 0.0))

    def critic(self, reward: Floats, box: tuple[float, float], weight: float, start: Start | None = None) -> Floats:
        """argmin_f ⟨f(s, π) − f(s, a)⟩_μ̂ + weight·max(Σμ̂δ₊, Σμ̂δ₋) over f [S, A] within the box; weight = βC.

        Pairs never tried stay at their value in the log's own model.
        """
        return self.under.Q(reward) if self.harmless <= weight else self.program(reward, box, weight, start)

    def program(self, reward: Floats, box: tuple[float, float], weight: float, start: Start | None = None) -> Floats:
        """The same by its linear program, also where Q^π is known to be the solution."""
        L, pairs = self.problem.L, self.problem.pairs
        S, m = len(L.d0), len(pairs)
        unseen = np.where(L.seen, 0.0, reward)  # the model gives a pair never tried its reward, and nothing after it
        # Columns: f [m], V [S] = f(·, π), δ₊ [m], δ₋ [m], e. The policy is the first entry of each column of f.
        matrix = self.problem.critic_rows.copy()
        matrix.data[matrix.indptr[:m]] = -self.pi.ravel()[pairs]
        known = np.r_[(self.pi * unseen).sum(axis=1), reward.ravel()[pairs]]
        program: dict[str, Any] = {
            "objective": np.r_[self.slope.ravel()[pairs], np.zeros(S + 2 * m), weight],
            "matrix": matrix,
            "row_lower": np.r_[known, -np.inf, -np.inf],
            "row_upper": np.r_[known, 0.0, 0.0],
            "column_lower": np.r_[np.full(m, box[0]), np.full(S, -np.inf), np.zeros(2 * m + 1)],
            "column_upper": np.r_[np.full(m, box[1]), np.full(S, np.inf), np.full(2 * m + 1, np.inf)],
        }
        x = minimise_linear(**program) if m > SIMPLEX_UP_TO and importlib.util.find_spec("clarabel") else None
        if x is None:
            program["objective"] = -program["objective"]
            found = maximise(**program, method="simplex" if m <= SIMPLEX_UP_TO else "ipm", start=start)
            if not found.optimal:
                raise PdocrlError("HiGHS found no critic; are the signals of sensible size?")
            x = found.x
        f = unseen.copy()
        f.ravel()[pairs] = x[:m]
        return np.asarray(f)

"""PDCA: a primal-dual game whose players see critics, without pessimism (Hong, Li and Tewari, AISTATS 2024).

    f_i = argmin_f max_{w ∈ [0, C]} |⟨w, f − r_i − γP̂f(·, π)⟩_μ̂|       i = 0 … I
    λ   = argmin_{λ ∈ BΔ} Σ λ_i ((1−γ) f_i(s₀, π) − τ_i)                greedy
    π   ∝ π exp(η (f_0 + Σ λ_i f_i))                                    and the mixture of all π

For tables the inner maximum is C·max(Σμ̂δ₊, Σμ̂δ₋) of the Bellman residual δ, which is 0 at f = Q^π of the empirical
model and only there: the critic is exact evaluation, whatever C. Its theory needs every policy covered.

Differences from the paper: its policy oracle is any without regret, here Hedge; what the log never tried, which its
coverage excludes, counts as the worst. The greedy λ is that of the published version; its first preprint had a λ
without regret.
"""

from __future__ import annotations

import numpy as np

from pdocrl.limits import Limits
from pdocrl.tabular.baselines.actors import improve
from pdocrl.tabular.baselines.problem import LogModel
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.solvers.algorithms import Mixture
from pdocrl.tabular.solvers.lagrangian import Floats, expected


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

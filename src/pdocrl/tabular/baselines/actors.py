"""The actor of PDCA, WSAC, A-Crab, PSPI and ATAC: π_{t+1} ∝ π_t exp(η f_t), and the mixture of all π_t."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pdocrl.tabular.solvers.algorithms import Mixture
from pdocrl.tabular.solvers.lagrangian import Floats
from pdocrl.tabular.solvers.oracles import Hedge

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

"""What to do in states that the log knows and the plan never comes to: a policy may get there all the same.

A start the log has not seen, a gust it has not felt, lead where the plan has no mass and so no opinion. What the log
did there is no answer: it may have cost what the limits forbid. So the plan is made once more, from everywhere:

    V(s) = max_{a tried in s} r(s, a) + price · Σ_i g_i(s, a) + γ P̂V

at the price above which keeping limits comes before reward (B, see `lp.choose_B`). A state without any rows is taken to
lead back to somewhere in the log: at the worst for ever, as the plan itself takes it, all ways there would be alike.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from pdocrl.tabular.cmdp import CMDP, as_matrix, plan
from pdocrl.tabular.solvers.lagrangian import Floats, Lagrangian

ACCURACY = 1e-8  # of the plan, relative to the values


def complete_policy(scaled: Lagrangian, mass: Floats, planned: Floats, price: float) -> Floats:
    """The policy planned [S, A] where it has mass [S]; elsewhere the plan from there, or `behaviour` without rows."""
    known = np.asarray(scaled.seen.any(axis=1))
    open_ended = np.asarray(known & (mass <= 1e-12))
    policy = np.where((mass > 1e-12)[:, None], planned, scaled.behaviour)
    if open_ended.any():
        policy[open_ended] = plan_off_support(scaled, price)[open_ended]
    return policy


def plan_off_support(scaled: Lagrangian, price: float) -> Floats:
    """[S, A] the best tried action of each state by r + price · Σ g, in units in which signals lie within ±1."""
    S, A = scaled.r.shape
    known = np.asarray(scaled.seen.any(axis=1))
    reward = scaled.r + price * scaled.g.sum(axis=0)
    never = -4 * (1 + np.abs(reward).max()) / (1 - scaled.gamma)
    reward = np.where(scaled.seen, reward, np.where(known[:, None], never, 0.0))
    # One more state, S, is anywhere in the log; states without rows lead to it.
    lost = np.flatnonzero(np.repeat(~known, A))
    lead = sp.csr_array((np.ones(len(lost)), (lost, np.zeros(len(lost), int))), shape=(S * A, 1))
    back = sp.csr_array(np.append(scaled.mu_D.sum(axis=1) / scaled.mu_D.sum(), 0.0)[None])
    P = sp.vstack([sp.hstack([scaled.P, lead]), *[back] * A]).tocsr()
    model = CMDP(
        sp.csr_array(P),
        np.vstack([reward, np.zeros(A)]),
        np.zeros((0, S + 1, A)),
        np.zeros(0),
        np.append(scaled.d0, 0.0),
        scaled.gamma,
    )
    return as_matrix(plan(model, model.r, accuracy=ACCURACY).actions, A)[:S]

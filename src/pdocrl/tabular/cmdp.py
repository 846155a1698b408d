"""Finite constrained Markov decision processes: the model, what a policy does in it, and generators of test problems.

    max_π (1−γ) J_0(π)   subject to   (1−γ) J_i(π) ≥ τ_i,  i = 1 … I

Everything here is in (1−γ)J units: the value of a policy is ⟨μ^π, r_0⟩ with μ^π its discounted occupancy measure.
A row of P may sum to less than one; the missing mass is the probability that the episode ends there, with no future.
A policy is a row-stochastic matrix [S, A], or for deterministic ones a vector [S] of actions.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from numpy.typing import ArrayLike, NDArray

from pdocrl.errors import PdocrlError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_DENSE_STATES = 100  # below this a dense factorisation beats every sparse method, and BLAS starts no threads
_FACTORISED_STATES = 3000  # up to this a sparse factorisation takes seconds at worst
_RESIDUAL = 1e-14  # backward error at which a linear system counts as solved


class ModelError(PdocrlError):
    """A CMDP whose arrays do not fit together or are not probabilities."""


@dataclasses.dataclass(frozen=True, eq=False)
class CMDP:
    """M = (S, A, P, r_0, {r_i}, τ, γ, d_0). P may be given dense as [S, A, S]; it is kept as one sparse matrix."""

    P: sp.csr_array  # [S·A, S]; row s·A + a is P(·|s, a)
    r: Floats  # [S, A] the reward r_0
    g: Floats  # [I, S, A] the constraint rewards r_i
    tau: Floats  # [I] limits: (1−γ) J_i ≥ τ_i
    d0: Floats  # [S] where episodes start
    gamma: float

    def __post_init__(self) -> None:
        r = np.asarray(self.r, dtype=np.float64)
        if r.ndim != 2 or r.size == 0:
            raise ModelError(f"CMDP: r has shape {r.shape}, expected [states, actions].")
        S, A = r.shape
        P = self.P if sp.issparse(self.P) else np.asarray(self.P, dtype=np.float64).reshape(S * A, -1)
        tau = np.asarray(self.tau, dtype=np.float64).reshape(-1)
        g = np.asarray(self.g, dtype=np.float64) if len(tau) or np.size(self.g) else np.zeros((0, S, A))
        fields: dict[str, tuple[Any, tuple[int, ...]]] = {
            "P": (sp.csr_array(P, dtype=np.float64), (S * A, S)),
            "r": (r, (S, A)),
            "g": (g, (len(tau), S, A)),
            "tau": (tau, tau.shape),
            "d0": (np.asarray(self.d0, dtype=np.float64), (S,)),
        }
        for name, (array, shape) in fields.items():
            if array.shape != shape:
                raise ModelError(f"CMDP: {name} has shape {array.shape}, expected {shape}: {S} states, {A} actions.")
            if not np.isfinite(array.data if name == "P" else array).all():
                raise ModelError(f"CMDP: {name} has an entry that is not a finite number.")
            object.__setattr__(self, name, array)
        object.__setattr__(self, "gamma", float(self.gamma))
        self._check_probabilities()

    def _check_probabilities(self) -> None:
        if not 0 <= self.gamma < 1:
            raise ModelError(f"CMDP: gamma is {self.gamma}, expected 0 ≤ gamma < 1.")
        if self.P.data.size and self.P.data.min() < 0:
            raise ModelError("CMDP: P has a negative entry.")
        mass = self.P.sum(axis=1)
        worst = int(np.argmax(mass))
        if mass[worst] > 1 + 1e-9:
            s, a = divmod(worst, self.n_actions)
            raise ModelError(f"CMDP: probabilities of (state {s}, action {a}) sum to {mass[worst]:.9g}, more than 1.")
        if self.d0.min() < 0 or abs(self.d0.sum() - 1) > 1e-9:
            raise ModelError(
                f"CMDP: d0 sums to {self.d0.sum():.9g} with least entry {self.d0.min():.3g}, expected 1 and ≥ 0."
            )

    @classmethod
    def from_costs(cls, P: Any, r: ArrayLike, costs: ArrayLike, limits: ArrayLike, d0: ArrayLike, gamma: float) -> CMDP:
        """Constraints as costs [K, S, A] that stay within limits [K]: (1−γ)J_c ≤ limit is r_i = −c, τ_i = −limit."""
        return cls(
            P, np.asarray(r), -np.asarray(costs, dtype=float), -np.asarray(limits, dtype=float), np.asarray(d0), gamma
        )

    @property
    def n_states(self) -> int:
        return int(self.r.shape[0])

    @property
    def n_actions(self) -> int:
        return int(self.r.shape[1])

    @property
    def n_constraints(self) -> int:
        return len(self.tau)

    def replace(self, **changes: Any) -> CMDP:
        """The same problem with some fields changed: `cmdp.replace(tau=…)`."""
        return dataclasses.replace(self, **changes)


class Evaluation(NamedTuple):
    """The values of a policy: (1−γ)J_0 and (1−γ)J_i."""

    value: float
    constraints: Floats  # [I]

    def error(self, cmdp: CMDP, optimum: float) -> float:
        """err = max(suboptimality, largest violation, 0)."""
        violation = float((cmdp.tau - self.constraints).max(initial=0.0))
        return max(optimum - self.value, violation, 0.0)


def occupancy(cmdp: CMDP, pi: NDArray[Any]) -> Floats:
    """μ^π [S, A]: solves E^⊤μ = (1−γ)d_0 + γP^⊤μ with μ(s, a) = π(a|s) μ(s). Sums to one unless episodes end."""
    d = solve_linear(transition_matrix(cmdp, pi).T.tocsr(), (1 - cmdp.gamma) * cmdp.d0, cmdp.gamma)
    return as_matrix(pi, cmdp.n_actions) * np.maximum(d, 0)[:, None]


def evaluate(cmdp: CMDP, pi: NDArray[Any]) -> Evaluation:
    """(1−γ)J_0(π) and (1−γ)J_i(π)."""
    return evaluate_occupancy(cmdp, occupancy(cmdp, pi))


def evaluate_occupancy(cmdp: CMDP, mu: Floats) -> Evaluation:
    """⟨μ, r_0⟩ and ⟨μ, r_i⟩."""
    return Evaluation(float(np.vdot(mu, cmdp.r)), np.tensordot(cmdp.g, mu, axes=2))


def values(cmdp: CMDP, pi: NDArray[Any], reward: Floats) -> tuple[Floats, Floats]:
    """V^π [S] and Q^π [S, A] of any reward [S, A]: V = r_π + γP_πV, Q = r + γPV (not scaled by 1−γ)."""
    r_pi = (as_matrix(pi, cmdp.n_actions) * reward).sum(axis=1)
    V = solve_linear(transition_matrix(cmdp, pi), r_pi, cmdp.gamma)
    return V, backup(cmdp, reward, V)


def backup(cmdp: CMDP, reward: Floats, V: Floats) -> Floats:
    """r + γPV [S, A]."""
    Q: Floats = reward + cmdp.gamma * (cmdp.P @ V).reshape(reward.shape)
    return Q


def extract(mu: Floats, unvisited: Literal["uniform"] | int = "uniform") -> Floats:
    """π(a|s) = μ(s, a) / Σ μ(s, ·). Where μ(s) = 0, the uniform policy, eq. (3), or one given action."""
    mass = mu.sum(axis=1, keepdims=True)
    if unvisited == "uniform":
        default = np.full(mu.shape, 1 / mu.shape[1])
    else:
        default = as_matrix(np.full(len(mu), unvisited), mu.shape[1])
    # A subnormal mass cannot be divided by accurately, and no policy visits such a state in any run.
    visited = mass > np.finfo(np.float64).tiny
    pi = np.where(visited, mu / np.where(visited, mass, 1), default)
    normalised: Floats = pi / pi.sum(axis=1, keepdims=True)
    return normalised


def as_matrix(pi: NDArray[Any], n_actions: int) -> Floats:
    """A policy as [S, A]; a vector of actions becomes one-hot rows."""
    if pi.ndim == 2:
        return pi
    matrix = np.zeros((len(pi), n_actions))
    matrix[np.arange(len(pi)), pi] = 1
    return matrix


def transition_matrix(cmdp: CMDP, pi: NDArray[Any]) -> sp.csr_array:
    """P_π [S, S]: from state to state under the policy."""
    S, A = cmdp.r.shape
    if pi.ndim == 1:
        return cmdp.P[np.arange(S) * A + pi]
    mix = sp.csr_array((pi.ravel(), np.arange(S * A), np.arange(0, S * A + 1, A)), shape=(S, S * A))
    return mix @ cmdp.P


def solve_linear(
    M: sp.csr_array, b: Floats, gamma: float, start: Floats | None = None, reduction: float | None = None
) -> Floats:
    """x = (I − γM)⁻¹ b for a (sub)stochastic M or its transpose.

    Small systems are factorised densely. Where states mix well, as in random problems, BiCGSTAB needs a few dozen
    products, and a sparse factorisation would fill in almost completely; where they mix badly, as in grids and queues,
    it is the other way round. So BiCGSTAB gets a few tries, then problems of moderate size are factorised. Restarting
    on the residual regains the digits that BiCGSTAB alone loses. With `reduction` the residual of `start` is only made
    smaller by that factor.
    """
    n = len(b)
    if gamma == 0 or not b.any():
        return b.copy()
    if n <= _DENSE_STATES:
        x: Floats = np.linalg.solve(np.eye(n) - gamma * M.toarray(), b)
        return x
    A = spla.LinearOperator((n, n), matvec=lambda v: v - gamma * (M @ v), dtype=np.float64)
    x = np.zeros(n) if start is None else start.copy()
    small = n <= _FACTORISED_STATES
    for _ in range(3 if small else 6):
        residual = b - (x - gamma * (M @ x))
        size = np.linalg.norm(residual)
        # Backward error: what rounding alone leaves behind grows with |x|, not with |b|.
        target = _RESIDUAL * (np.linalg.norm(b) + 2 * np.linalg.norm(x))
        if size <= target:
            return x
        # A unit right-hand side, because SciPy's breakdown test compares with an absolute number.
        rtol = reduction or max(target / size / 2, 1e-10)
        step, unfinished = spla.bicgstab(A, residual / size, rtol=rtol, atol=0, maxiter=40 if small else 1000)
        x = x + size * step
        if reduction and not (small and unfinished):
            return x
        if small and unfinished:
            break
    direct: Floats = spla.splu((sp.eye_array(n) - gamma * M).tocsc()).solve(b)
    return direct


class DynamicPlan(NamedTuple):
    """A policy for one reward, with proof: no policy's value exceeds (1−γ)d_0·V + excess."""

    actions: Ints  # [S]
    V: Floats  # [S] its value function, up to `accuracy`
    excess: float  # ≥ 0; the largest Bellman residual max_a(r + γPV) − V


def plan(cmdp: CMDP, reward: Floats, start: Floats | None = None, accuracy: float = 1e-12) -> DynamicPlan:
    """The best policy for one reward [S, A], without constraints, by inexact policy iteration.

    A few backups carry news over several steps, then the greedy policy is evaluated by a Krylov method, roughly at
    first and ever more exactly. Stops when the Bellman residual is below `accuracy`, relative to the size of the
    values. `start` [S] is a guess of V, such as the solution for a nearby reward. With δ the largest residual,
    V + δ/(1−γ) is a super-solution of the optimality equation, so every policy's value is at most (1−γ)d_0·V + δ.
    """
    everywhere = np.arange(cmdp.n_states)
    V = np.zeros(cmdp.n_states) if start is None else start
    actions = backup(cmdp, reward, V).argmax(axis=1)
    for k in itertools.count():
        Q = backup(cmdp, reward, V)
        best = _row_max(Q)
        # After hundreds of rounds all that is left is rounding (γ very near one); `excess` tells what was reached.
        tolerance = accuracy * (1 + np.abs(V).max()) * 1.1 ** max(k - 300, 0)
        # Changing an action only for a real gain keeps ties from cycling.
        better = best > Q[everywhere, actions] + tolerance
        if better.any():
            for _ in range(5):
                V = best
                Q = backup(cmdp, reward, V)
                best = _row_max(Q)
            # A gain that the backups have used up is still one: the policy must change, or it would come back.
            better |= best > Q[everywhere, actions] + tolerance
            actions = np.where(better, Q.argmax(axis=1), actions)
        residual = best - V
        if np.abs(residual).max() <= tolerance:
            return DynamicPlan(actions, V, max(float(residual.max()), 0.0))
        P_pi, r_pi = transition_matrix(cmdp, actions), reward[everywhere, actions]
        V = solve_linear(P_pi, r_pi, cmdp.gamma, start=V, reduction=max(0.01 * 0.97**k, 1e-9))
    raise AssertionError("unreachable: the tolerance grows without end")


def _row_max(Q: Floats) -> Floats:
    """max_a Q [S]; column by column, since NumPy is slow at reducing many short rows."""
    best = Q[:, 0].copy()
    for column in Q.T[1:]:
        np.maximum(best, column, out=best)
    return best


def random_cmdp(
    n_states: int = 10,
    n_actions: int = 3,
    n_constraints: int = 1,
    gamma: float = 0.9,
    tightness: float = 0.5,
    seed: int = 0,
) -> CMDP:
    """Every state can follow every other; rewards and start distribution random; limits that bind (see `bind`)."""
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(n_states, 0.3), size=n_states * n_actions)
    return random_rewards(sp.csr_array(P), n_states, n_actions, n_constraints, gamma, tightness, rng)


def random_rewards(
    P: sp.csr_array, S: int, A: int, n_constraints: int, gamma: float, tightness: float, rng: np.random.Generator
) -> CMDP:
    """Rewards and start distribution drawn for the transitions P [S·A, S], with limits that bind."""
    r, *g = rng.uniform(size=(1 + n_constraints, S, A))
    d0 = rng.dirichlet(np.ones(S))
    return bind(CMDP(P, r, np.array(g).reshape(-1, S, A), np.zeros(n_constraints), d0, gamma), tightness)


def bind(cmdp: CMDP, tightness: float) -> CMDP:
    """The same CMDP with limits that the best unconstrained policy violates and another policy satisfies with a margin.

    τ_i lies `tightness` ∈ (0, 1) of the way from what the reward's best policy has of r_i to what the best policy for
    Σ_i r_i has; a signal of which the latter has less gets a limit it satisfies by a small margin.
    """
    if not cmdp.n_constraints:
        return cmdp
    # A trace of the other reward settles ties, so that rounding does not choose the limits.
    r, g = cmdp.r, cmdp.g.sum(axis=0)
    greedy = evaluate(cmdp, plan(cmdp, r + 1e-6 * g).actions).constraints
    safe = evaluate(cmdp, plan(cmdp, g + 1e-6 * r).actions).constraints
    between = greedy + tightness * (safe - greedy)
    return cmdp.replace(tau=np.where(safe > greedy, between, safe - 0.05 * np.abs(safe)))

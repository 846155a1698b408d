"""The example log `sepsis`, made on the spot: patients in intensive care, from the tables of the `icu-sepsis` package.

    state     one of 713 clusters of patients
    action    one of 25 treatments: five doses of fluids times five of vasopressors
    reward    1 if the patient leaves alive
    fluids    the dose of fluids, from 0 to 1

Clinicians act as in the tables; a row ends where the patient leaves. The model is known, so what is learned can be held
against the truth. Only the package's files are read: pip install --no-deps icu-sepsis is enough.

    python -m pdocrl.tabular.examples.sepsis sepsis.parquet 2000        (a third argument is the seed, 0 unless told)
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pdocrl.errors import MissingExtraError
from pdocrl.files import atomic_path
from pdocrl.tabular.cmdp import CMDP

Floats = NDArray[np.float64]
ENDS = 3  # the last states of the tables: death, survival, and the end
LONGEST = 100  # steps after which a stay is cut


def tables(file: Path | None = None) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """P, reward and fluids [S, A, S + 3], the clinicians' policy [S, A], and where stays begin [S].

    `file` is the package's dynamics.npz, found where it is installed unless told.
    """
    if file is None:
        where = importlib.util.find_spec("icu_sepsis")
        if where is None or where.origin is None:
            raise MissingExtraError("the sepsis example", "icu")
        file = Path(where.origin).parent / "envs" / "assets" / "dynamics.npz"
    data = np.load(file)
    S = len(data["tx_mat"]) - ENDS
    P = np.asarray(data["tx_mat"][:S], np.float64)
    P = P / P.sum(axis=2, keepdims=True)
    clinicians, d0 = np.asarray(data["expert_policy"][:S], np.float64), np.asarray(data["d_0"][:S], np.float64)
    fluids = np.broadcast_to((np.arange(P.shape[1]) // 5 / 4)[None, :, None], P.shape)
    reward = np.asarray(data["r_mat"][:S], np.float64)
    return P, reward, np.asarray(fluids), clinicians / clinicians.sum(axis=1, keepdims=True), d0 / d0.sum()


def model(gamma: float, fluids: float) -> CMDP:
    """The truth, with a limit on (1−γ)J of the dose."""
    P, reward, dose, _, d0 = tables()
    S = len(P)
    return CMDP.from_costs(P[:, :, :S], (P * reward).sum(axis=2), [(P * dose).sum(axis=2)], [fluids], d0, gamma)


def simulate(patients: int = 2000, seed: int = 0) -> dict[str, list[float]]:
    """Columns of a log: episode, step, state, action, next_state, reward, fluids, terminal."""
    P, reward, dose, clinicians, d0 = tables()
    (S, A), rng = clinicians.shape, np.random.default_rng(seed)
    choose, go = clinicians.cumsum(axis=1), P.cumsum(axis=2)
    state, alive, rows = rng.choice(S, size=patients, p=d0), np.arange(patients), []
    for step in range(LONGEST):
        action = np.minimum((rng.random((len(alive), 1)) > choose[state]).sum(axis=1), A - 1)
        to = np.minimum((rng.random((len(alive), 1)) > go[state, action]).sum(axis=1), S + ENDS - 1)
        over, at = to >= S, (state, action, to)
        then = np.where(over, state, to)
        rows.append((alive, np.full(len(alive), step), state, action, then, reward[at], dose[at], over))
        alive, state = alive[~over], to[~over]
        if not len(alive):
            break
    names = ("episode", "step", "state", "action", "next_state", "reward", "fluids", "terminal")
    return {name: np.concatenate(part).tolist() for name, part in zip(names, zip(*rows, strict=True), strict=True)}


if __name__ == "__main__":
    import pyarrow
    import pyarrow.parquet

    with atomic_path(Path(sys.argv[1])) as path:
        pyarrow.parquet.write_table(pyarrow.table(simulate(*map(int, sys.argv[2:4]))), path)

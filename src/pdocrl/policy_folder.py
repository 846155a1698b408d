"""`load_policy`: the policy of a folder or file, whatever kind it is."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pdocrl.errors import PdocrlError


def load_policy(
    place: str | os.PathLike[str],
    *,
    cost_limit: float | Sequence[float] | None = None,
    seed: int | None = None,
) -> Any:
    """The policy of a training's folder, of an export, or of what `solve` wrote; every kind has `act`.

    Args:
        place: a folder of `train` or `export`, a policy.npz, or a folder (or policy.json) of `solve`.
        cost_limit: of a training which run's, or what a cost-conditioned policy is told.
        seed: of a training which run's; of a policy of `solve` the seed of its draws.
    """
    path = Path(place)
    if not path.exists():
        raise PdocrlError(f"{path}: no such file or folder.")
    if (path / "run.json").exists():
        from pdocrl.training.folder import load_trained

        return load_trained(path).policy(cost_limit, seed)
    if path.suffix == ".npz" or (path / "policy.npz").exists():
        return _exported(path if path.suffix == ".npz" else path / "policy.npz", cost_limit)
    if (path / "models.npz").exists():
        from pdocrl.policies.row_policy import load as load_rows

        return load_rows(path, seed)
    if path.name == "policy.json" or (path / "policy.json").exists():
        from pdocrl.tabular.workflow import load_policy as load_table

        return load_table(path, seed)
    raise PdocrlError(f"{path}: no policy here: neither run.json, policy.npz nor policy.json.")


def _exported(path: Path, cost_limit: float | Sequence[float] | None) -> Any:
    from pdocrl.policies.policy import load_all

    try:
        policy: Any = load_all(path)[0][0]
    except (ValueError, KeyError, OSError, zipfile.BadZipFile) as error:
        raise PdocrlError(f"{path}: cannot be read ({error}).") from error
    if cost_limit is None:
        return policy
    if not hasattr(policy, "with_limit"):
        raise PdocrlError(f"{path}: this policy serves one cost limit; leave out cost_limit.")
    return policy.with_limit(
        tuple(float(x) for x in (cost_limit if isinstance(cost_limit, Sequence) else (cost_limit,)))
    )

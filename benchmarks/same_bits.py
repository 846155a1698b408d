"""Whether two versions of the source train every agent, and solve the shipped log, to the same bits.

    python benchmarks/same_bits.py OLD/src NEW/src        # for example of `git worktree add OLD 573fd29`

Each source trains each agent on the embedded BallRun data: small networks, two limits, one seed. The arrays of the
policies it returns are compared as sets of (shape, digest), since fields may have other names. `solve inventory` is
compared by its policy, multipliers, reward and costs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import subprocess
import sys
from collections import Counter
from typing import Any

import numpy as np

AGENTS = (
    *("bc", "bcq_lag", "bear_lag", "bcrl", "b2r", "caps_iql", "caps_sac", "carl", "cdt", "coptidice", "cpq", "dial"),
    *("fisor", "o3srl", "pdocrl", "pdocrl_anchored", "pdocrl_extraction"),
)
METHODS = ("lp", "pdocrl", "regret_matching", "optimistic", "dpdl", "plug_in", "mo_spibb")  # of `solve`
ITERATE = ("pdocrl", "regret_matching", "optimistic")
SOLVED = ("status", "value", "costs", "multipliers", "C", "B", "certificate", "bounds", "intervals")
IN_EPISODES = ("b2r", "caps_iql", "caps_sac", "cdt", "dial")  # policies with memory or a limit to be told
STEPS = 20
LIMITS = [10.0, 20.0]
SMALL: dict[str, Any] = {"hidden": (16, 16), "batch_size": 32}
MORE: dict[str, dict[str, Any]] = {
    "b2r": {"embedding": 16, "heads": 2, "layers": 1},
    "bcq_lag": {"vae_hidden": (16, 16)},
    "bear_lag": {"vae_hidden": (16, 16)},
    "cdt": {"embedding": 16, "heads": 2, "layers": 1},
    "cpq": {"vae_hidden": (16, 16)},
    "dial": {"model_hidden": (16, 16)},
}


def arrays_of(value: Any, found: list[np.ndarray]) -> list[np.ndarray]:
    """Every array inside a policy, whatever holds it."""
    if isinstance(value, np.ndarray) or hasattr(value, "__array__"):
        array = np.asarray(value)
        if array.size > 1:
            found.append(array)
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            arrays_of(value[key], found)
    elif isinstance(value, list | tuple):
        for each in value:
            arrays_of(each, found)
    elif dataclasses.is_dataclass(value) or hasattr(value, "__struct_fields__"):
        names = getattr(value, "__struct_fields__", None) or [field.name for field in dataclasses.fields(value)]
        for name in names:
            arrays_of(getattr(value, name), found)
    return found


def digest(array: Any) -> str:
    array = np.ascontiguousarray(array)
    return f"{array.shape} {hashlib.sha256(array.tobytes()).hexdigest()[:16]}"


def trained_bits(agent: str) -> dict[str, Any]:
    import pdocrl

    settings = SMALL | MORE.get(agent, {})
    out = pdocrl.train("BallRun", agent, cost_limit=LIMITS, seed=[0], steps=STEPS, settings=settings, log_every=STEPS)
    obs = np.asarray(pdocrl.load("BallRun").obs[:64])
    return {
        "arrays": sorted(digest(array) for policy in out.policies for array in arrays_of(policy, [])),
        "actions": [digest(policy(obs)) if agent not in IN_EPISODES else "" for policy in out.policies],
    }


def solved_bits(method: str) -> dict[str, Any]:
    """What `pdocrl solve inventory` returns, of an iterative method after 200 iterations at C = 2."""
    try:
        from pdocrl.cli.main import main
    except ImportError:  # version 0.2
        from pdocrl.cli import main  # type: ignore[attr-defined,no-redef]

    asked = ["solve", "inventory", "--gamma", "0.97", "--limit", "stockout<=0.02", "delivery<=0.3", "--json"]
    asked += [] if method == "lp" or method in ITERATE else ["--method", method]
    if method in ITERATE:
        asked += ["--method", method, "--iterations", "200", "--C", "2", "--resamples", "0"]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        main(asked)
    result = json.loads(printed.getvalue())
    return {key: json.dumps(result[key]) for key in SOLVED if key in result}


def bits(source: str, what: str) -> dict[str, Any]:
    env = {
        **os.environ,
        "PYTHONPATH": source,
        "JAX_PLATFORMS": "cpu",
        "PDOCRL_HALVES": "0",
        "PDOCRL_PRECISION": "float32",
    }
    ran = subprocess.run([sys.executable, __file__, "--of", what], env=env, capture_output=True, text=True, timeout=600)
    if ran.returncode:
        return {"error": (ran.stderr.strip().splitlines() or ["?"])[-1]}
    return dict(json.loads(ran.stdout.splitlines()[-1]))


def compare(old: dict[str, Any], new: dict[str, Any]) -> str:
    if "error" in old or "error" in new:
        return f"old: {old.get('error', 'ran')}; new: {new.get('error', 'ran')}"
    if old == new:
        return "the same bits"
    parts = []
    for name in sorted(old.keys() | new.keys()):
        one, other = old.get(name), new.get(name)
        if isinstance(one, list) and isinstance(other, list):
            same = sum((Counter(one) & Counter(other)).values())
            parts.append(f"{name}: {same} of {len(one)} are among {len(other)}")
        else:
            parts.append(f"{name}: {'same' if one == other else f'{one} → {other}'}")
    return "; ".join(parts)


if __name__ == "__main__":
    if sys.argv[1] == "--of":
        what, _, method = sys.argv[2].partition(" ")
        print(json.dumps(solved_bits(method) if what == "solve" else trained_bits(what)))
    else:
        for what in sys.argv[3:] or (*AGENTS, *(f"solve {method}" for method in METHODS)):
            print(f"{what:18} {compare(bits(sys.argv[1], what), bits(sys.argv[2], what))}", flush=True)

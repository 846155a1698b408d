"""Importance sampling, doubly robust, direct and marginalised estimates are those of obp and SCOPE-RL on the same rows.

`benchmarks/independent_estimators.py` asked them; ours are computed anew.
"""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def script() -> Any:
    spec = importlib.util.spec_from_file_location("independent", BENCHMARKS / "independent_estimators.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["bandit", "episodes of 5", "episodes of 20, γ = 0.9"])
def test_estimates_are_those_of_independent_implementations(name: str) -> None:
    module = script()
    [(_, *rest)] = [one for one in module.PROBLEMS if one[0] == name]
    own = module.ours(module.problem(*rest))
    with module.ROWS.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["problem"] == name]
    assert {row["estimator"] for row in rows} >= own.keys() - {"double reinforcement learning (given ratio)"}
    for row in rows:
        # SCOPE-RL divides weights by their mean + 1e-10.
        slack = 1e-9 if row["by"].startswith("SCOPE") and row["estimator"].startswith("weighted") else 1e-12
        assert own[row["estimator"]] == pytest.approx(float(row["theirs"]), rel=slack), row["estimator"]

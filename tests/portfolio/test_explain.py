"""What is said of a policy: the tree that imitates it, and the columns that matter."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from sklearn.tree import DecisionTreeClassifier

from pdocrl.portfolio import tables
from pdocrl.portfolio.explain import _lines


def lines_of(x: np.ndarray, chosen: np.ndarray) -> list[str]:
    columns = [
        {"name": name, "kind": "numeric", "mean": 0.0, "scale": 1.0, "flagged": False} for name in ("age", "crp")
    ]
    candidate = SimpleNamespace(policy=SimpleNamespace(columns=columns, actions=["low", "high"]))
    tree = DecisionTreeClassifier(max_leaf_nodes=8, min_samples_leaf=20, random_state=0).fit(x, chosen)
    return _lines(tree.tree_, tree.classes_, cast(Any, candidate), cast(Any, SimpleNamespace(timed=False)))


def test_branches_of_one_action_are_one_line() -> None:
    rng = np.random.default_rng(0)
    x = rng.random((2_000, 2))
    rarely_low = (rng.random(2_000) > 0.02 + 0.1 * (x[:, 0] > 0.5)).astype(int)
    assert lines_of(x, rarely_low) == ["always: high (100 % of rows)"]


def test_branches_of_two_actions_stay_apart() -> None:
    x = np.random.default_rng(1).random((2_000, 2))
    found = lines_of(x, (x[:, 1] > 0.5).astype(int))
    assert [line.split(":")[1].split()[0] for line in found] == ["low", "high"]


def test_a_policy_that_looks_at_no_column_says_so() -> None:
    assert "none" in tables.policy(cast(Any, SimpleNamespace(importance=[]))).html()

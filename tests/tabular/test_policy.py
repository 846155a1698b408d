"""A policy that travels: the same probabilities, in a process that has NumPy alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pdocrl.errors import PdocrlError
from pdocrl.ope.certify.training import certify_solved
from pdocrl.tabular import Result, solve
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.result.policy import InputError, TabularPolicy, UnseenStateError, load
from pdocrl.tabular.result.record import read_solved
from pdocrl.tabular.result.report import save


def solved(horizon: int | None = None) -> Result:
    rng = np.random.default_rng(0)
    n = 2000
    s, a = rng.integers(3, size=n), rng.integers(2, size=n)
    names = np.array(["früh", "späť", "nacht 1"])
    counts = Counts.from_arrays(
        names[s], a, names[(s + a) % 3], s * 1.0, (a + s) % 2 * 1.0, episode=np.arange(n) // 4, horizon=horizon
    )
    return solve(counts, 0.9, ["cost<=1" if horizon else "cost<=0.3"], C=5, resamples=0)


def test_probabilities_are_those_of_the_result_and_actions_are_drawn_from_them(tmp_path: Path) -> None:
    result = solved()
    save(result, tmp_path)
    policy = load(tmp_path, seed=0)
    for s, state in enumerate(result.states):
        chances = [policy.probabilities(state).get(action, 0.0) for action in result.actions]
        np.testing.assert_allclose(chances, result.policy[s])
    mixed = max(range(3), key=lambda s: result.policy[s].min())
    drawn = [policy.act({"state": result.states[mixed]}) for _ in range(4000)]
    assert np.mean(np.array(drawn) == result.actions[1]) == pytest.approx(result.policy[mixed, 1], abs=0.03)


def test_a_policy_of_episodes_depends_on_the_step(tmp_path: Path) -> None:
    result = solved(horizon=4)
    save(result, tmp_path)
    policy = load(tmp_path)
    at = result.states.index("früh @ 2")
    chances = [policy.probabilities("früh", step=2).get(action, 0.0) for action in result.actions]
    np.testing.assert_allclose(chances, result.policy[at])


def test_states_never_seen_follow_the_rule_chosen_at_export(tmp_path: Path) -> None:
    result = solved()
    for rule, expected in (("uniform", [0.5, 0.5]), ("1", [0.0, 1.0]), ("behaviour", None)):
        save(result, tmp_path, unseen=rule)
        chances = load(tmp_path).chances("never")
        assert chances.sum() == pytest.approx(1)
        if expected:
            assert chances.tolist() == expected
    save(result, tmp_path, unseen="refuse")
    with pytest.raises(UnseenStateError, match="never was in state 'never'"):
        load(tmp_path).act("never")
    with pytest.raises(PdocrlError, match="unknown rule"):
        save(result, tmp_path, unseen="unifrm")


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right that users of Windows lack")
def test_it_acts_where_there_is_nothing_but_numpy(tmp_path: Path) -> None:
    save(solved(), tmp_path / "policy")
    alone = tmp_path / "alone"
    alone.mkdir()
    for name in ("numpy", "numpy.libs"):
        source = Path(np.__file__).parents[1] / name
        if source.exists():
            os.symlink(source, alone / name)
    code = (
        "import sys, act\n"
        "p = act.load(sys.argv[1], seed=0)\n"
        "print(p.act('früh') in p.actions, sorted(m for m in sys.modules if m.split('.')[0] in "
        "('pdocrl', 'scipy', 'duckdb', 'highspy', 'jax')))"
    )
    environment = {"PYTHONPATH": f"{alone}{os.pathsep}{tmp_path / 'policy'}", "PYTHONUTF8": "1"}
    found = subprocess.run(
        [sys.executable, "-S", "-c", code, str(tmp_path / "policy")],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert found.stdout.strip() == "True []", found.stderr


def binned() -> TabularPolicy:
    """Glucose in two bins, kind by its values."""
    cells = {"columns": ["cgm", "kind"], "edges": [[100.0], None], "categories": {"kind": ["a", "b"]}}
    rows = [{"state": f"cgm={k} kind={c}", "action": "give", "probability": 1.0} for k in (0, 1) for c in "ab"]
    unseen = {"rule": "refuse"}
    return TabularPolicy({"actions": ["give", "wait"], "rows": rows, "unseen": unseen, "cells": cells})


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"cgm": float("nan"), "kind": "a"}, "column `cgm` is nan"),
        ({"cgm": None, "kind": "a"}, "column `cgm` is None, not a number"),
        ({"cgm": "high", "kind": "a"}, "column `cgm` is 'high', not a number"),
        ({"cgm": 90, "kind": "c"}, "column `kind` is 'c', which the log never had; it has a, b"),
        ({"cgm": 90, "kind": float("nan")}, "column `kind` is nan"),
        ({"cgm": 90}, "column `kind` is missing; the policy needs cgm, kind"),
        ({"cgm": 90, "kind": "a", "age": 3}, "column `age` is not one the policy knows"),
        ([90, "a"], "give the columns by name"),
    ],
)
def test_what_cannot_be_a_row_of_the_log_is_refused_by_name(row: Any, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)) as refused:
        binned().act(row)
    assert "\n" not in str(refused.value)


def test_a_sound_row_is_acted_on() -> None:
    assert binned().act({"cgm": 143, "kind": "b"}) == "give"


@pytest.mark.parametrize("state", [float("nan"), None, {"room": float("nan")}, {"room": 1, "age": 2}, {"ward": 1}])
def test_a_state_that_is_not_known_is_refused(state: Any) -> None:
    policy = TabularPolicy({"actions": [0], "rows": [], "unseen": {"chances": [1.0]}, "columns": {"state": "room"}})
    with pytest.raises(InputError, match="column `"):
        policy.state(state)


def test_a_folder_of_0_2_is_read_and_its_claim_is_not_repeated() -> None:
    """That version called limits shown by testing other policies than the one it returned."""
    folder = Path(__file__).parent / "solved_0_2"
    found = read_solved(folder)
    assert (found.status, found.limits) == ("shown", {"cost": 0.15})
    assert {choice.limits for choice in found.choices} == {"satisfied"}
    assert load(folder).probabilities(0)["fast"] == pytest.approx(0.401625)
    certificate, _ = certify_solved(folder)
    assert certificate.statements[0].verdict == "cannot be shown"
    assert "version 0.2" in certificate.statements[0].sentence


def test_a_frontier_of_0_2_is_read() -> None:
    """There `kept` was the name of `satisfied`, and a choice of C with it."""
    found = read_solved(Path(__file__).parent / "frontier_0_2")
    assert found.frontier is not None
    assert [point.satisfied for point in found.frontier.points] == [True] * 4
    assert [point.cost <= point.limit + 1e-7 for point in found.frontier.points] == [True] * 4
    assert [point.low_count_share for point in found.frontier.points] == [0.25, 0.0, 0.0, 0.0]


def test_a_bare_list_of_states_is_a_batch(tmp_path: Path) -> None:
    result = solved()
    save(result, tmp_path)
    states = [*result.states, result.states[0]]
    one, many = load(tmp_path, seed=3), load(tmp_path, seed=3)
    assert many.act(states) == [one.act(state) for state in states]
    actions = many.sample(states, rng=1)
    assert len(actions) == len(states)
    assert many.log_prob(states, actions).tolist() == [
        one.log_prob(*pair) for pair in zip(states, actions, strict=True)
    ]
    with pytest.raises(InputError, match="numbers without names"):
        many.act([0.5, 1.5])

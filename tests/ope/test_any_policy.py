"""`pdocrl ope` and `certify --log` on files: every form of a policy is the same policy, every mistake is one line."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdocrl
from pdocrl.errors import PdocrlError
from pdocrl.limits import Limit
from pdocrl.ope.any_policy import as_table
from pdocrl.ope.certify.log import bounds
from pdocrl.ope.judge import judge
from tests.ope.estimators.worlds import World

Cli = Callable[..., tuple[int, str, str]]
WORLD = World.random(0)
LOG = WORLD.log(500, seed=1)
STATE = LOG.columns[0].values.astype(int)
TARGET = WORLD.target_rows(LOG)


def write_csv(path: Path, columns: dict[str, Any]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([list(columns), *zip(*columns.values(), strict=True)])
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The log with its rows shuffled, and one policy in several files; the working directory."""
    order = np.random.default_rng(0).permutation(len(LOG))
    columns = {"episode": LOG.episode, "t": LOG.step, "s": LOG.columns[0].raw(), "p": LOG.propensity, "rule": STATE % 2}
    columns |= {"action": np.array(LOG.actions)[LOG.action], "reward": LOG.reward, "cost": LOG.costs["cost"]}
    columns["rule"] = np.array(["a0", "a1"])[columns["rule"]]
    write_csv(tmp_path / "log.csv", {name: np.asarray(x)[order] for name, x in columns.items()})
    names = [f"s{i}" for i in range(4)]
    write_csv(tmp_path / "states.csv", {"s": names, "a0": WORLD.target[:, 0], "p_a1": WORLD.target[:, 1]})
    pairs = [(s, a) for s in range(4) for a in range(2)]
    chances = [WORLD.target[s, a] for s, a in pairs]
    long = {"s": [names[s] for s, _ in pairs], "action": [f"a{a}" for _, a in pairs], "probability": chances}
    write_csv(tmp_path / "long.csv", long)
    write_csv(tmp_path / "rows.csv", {"a0": TARGET[order, 0], "a1": TARGET[order, 1]})
    (tmp_path / "mine.py").write_text(
        f"import numpy as np\nT = np.array({WORLD.target.tolist()})\n"
        "def policy(columns):\n    return T[[int(s[1:]) for s in columns['s']]]\n"
    )
    solved = [{"state": names[s], "action": f"a{a}", "probability": WORLD.target[s, a]} for s, a in pairs]
    (tmp_path / "solved").mkdir()
    content = {"actions": ["a1", "a0"], "rows": solved, "unseen": {"rule": "refuse"}, "cells": None}
    (tmp_path / "solved" / "policy.json").write_text(json.dumps(content))
    monkeypatch.chdir(tmp_path)
    return tmp_path


OPTIONS = ("--data", "log.csv", "--step", "t", "--propensity", "p", "--limit", "cost<=4", "P(cost>8)<=0.5")


def test_a_policy_in_files_functions_and_tables_is_one_policy(folder: Path, run_cli: Cli) -> None:
    forms = ("states.csv", "long.csv", "rows.csv", "mine:policy")
    status, out, err = run_cli("ope", *forms, "rule", *OPTIONS, "--out", "r.json", "--json")
    told = json.loads(out)
    assert (status, err) == (0, "wrote r.json\n")
    assert {"format": 1, **told} == json.loads((folder / "r.json").read_text())
    first = judge(TARGET, LOG).policies[0].of("per-decision importance sampling")
    for form, policy in zip(forms, told["policies"], strict=False):
        assert (policy["name"], policy["verdict"]) == (form, "within")
        found = next(e for e in policy["estimates"] if e["estimator"] == "per-decision importance sampling")
        assert policy["estimates"] == told["policies"][0]["estimates"]
        assert found["reward"] == pytest.approx(first.reward)
        assert found["cost"] == pytest.approx(first.cost)
        assert found["ess"] == pytest.approx(first.ess)
    assert told["policies"][4]["estimates"] != told["policies"][0]["estimates"]
    assert run_cli("ope", "states.csv", *OPTIONS)[1].count("cost<=4: within") == 1


def test_a_folder_of_solve_is_judged_by_its_states(folder: Path) -> None:
    """Its policy names the state column `state`."""
    columns = {"state": LOG.columns[0].raw(), "action": np.array(LOG.actions)[LOG.action], "reward": LOG.reward}
    report = pdocrl.ope("solved", columns | {"p": LOG.propensity, "episode": LOG.episode}, propensity="p")
    same = judge(TARGET, LOG).policies[0].of("doubly robust").reward
    assert report.policies[0].of("doubly robust").reward == pytest.approx(same)
    with pytest.raises(PdocrlError, match="needs the column `state`"):
        pdocrl.ope("solved", LOG)


def test_an_onnx_file_is_asked_for_its_probabilities(folder: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["one"]),
        helper.make_node("Sub", ["unit", "one"], ["zero"]),
        helper.make_node("Concat", ["zero", "one"], ["y"], axis=1),
    ]
    shape = helper.make_tensor_value_info
    unit = helper.make_tensor("unit", kind, [1], [1.0])
    graph = helper.make_graph(nodes, "g", [shape("x", kind, [None, 1])], [shape("y", kind, [None, 2])], [unit])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    x = np.linspace(-2, 2, 80)
    log = {"x": x, "action": np.arange(80) % 2, "reward": x}
    chance = 1 / (1 + np.exp(-x))
    beside = pdocrl.ope(np.stack([1 - chance, chance], 1), log, episode=None).policies[0]
    told = pdocrl.ope("m.onnx", log, episode=None).policies[0]
    assert told.of("doubly robust").reward == pytest.approx(beside.of("doubly robust").reward, abs=1e-5)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("s,a0,a1\ns0,.5,.5\ns1,.5,.5\ns2,.5,.5\n", "no row for the state s3"),
        ("s,a0,a1\ns0,.5,.6\ns1,.5,.5\ns2,.5,.5\ns3,.5,.5\n", "probabilities of state s0 sum to 1.1"),
        ("s,a0,a1\ns0,.5,.5\ns0,.5,.5\n", "the state s0 stands twice"),
        ("u,a0,a1\ns0,.5,.5\n", "column `u` is neither an action nor a column"),
        ("a0,a1\n.5,.5\n", "has 1 rows"),
        ("s,x\ns0,.5\n", "no column is named like an action"),
        ("s,action,probability\ns0,a7,1\n", "action 'a7' was never logged"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_in_one_line(folder: Path, run_cli: Cli, change: str, says: str) -> None:
    (folder / "bad.csv").write_text(change)
    status, out, err = run_cli("ope", "bad.csv", *OPTIONS, "--out", "r.json")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert says in err
    assert not (folder / "r.json").exists()


def test_certificates_from_a_log_choose_on_one_half_and_judge_on_the_other(folder: Path, run_cli: Cli) -> None:
    limits = ("--limits", "cost<=15", "P(cost>8)<=0.5", "--largest-cost", "40")
    given = ("--log", "log.csv", "--step", "t", "--propensity", "p", *limits)
    told = json.loads(run_cli("certify", "states.csv", "rule", *given, "--json")[1])
    assert told["verdict"] == "within"
    assert all("any number of independent episodes" in one["assumption"] for one in told["statements"])
    assert all("knew no more than the columns" in one["assumption"] for one in told["statements"])
    assert {one["episodes"] for one in told["statements"]} == {250}
    assert "chosen on 250 episodes" in " ".join(told["notes"])
    log = pdocrl.ope.entry.read_log("log.csv", "rule", step="t", propensity="p")
    learned = pdocrl.certify(None, log, "P(cost>8)<=0.5", learn=lambda part: "states.csv", out=folder / "kept")
    assert learned.statements[0].policy == "states.csv"
    assert (folder / "kept" / "certificate.json").is_file()
    one = pdocrl.certify("states.csv", log, "cost<=15")
    assert one.statements[0].episodes == 500
    assert "simulated" in one.statements[0].assumption  # no largest cost: asymptotic
    with pytest.raises(PdocrlError, match="give limits"):
        pdocrl.certify("states.csv", log)


def test_bounds_at_any_number_of_episodes_hold() -> None:
    """Weights up to 3 and a share of .2: looked at four times, wrong in at most 5 % of 60 logs."""
    rng = np.random.default_rng(0)
    limit = Limit.parse("P(cost>0.5)<=0.2")
    below = above = 0
    for _ in range(60):
        taken = rng.random(800) < 0.25  # the target takes it with .75, so that w is 3 or 1/3
        weights = np.where(taken, 3.0, 1 / 3)
        costs = (rng.random(800) < np.where(taken, 0.1, 0.5)).astype(float)  # .75 · .1 + .25 · .5 = .2
        looks = [bounds(weights[:n], costs[:n], limit) for n in range(200, 801, 200)]
        below += any(upper is not None and upper < 0.2 for _, upper in looks)
        above += any(lower is not None and lower > 0.2 for lower, _ in looks)
    assert max(below, above) / 60 <= 0.05
    low, high = bounds(weights, costs, limit)
    assert low is not None
    assert high is not None
    assert 0.05 < low < 0.2 < high < 0.4


def test_a_function_that_returns_one_label_is_told_what_it_is_called_with() -> None:
    with pytest.raises(
        PdocrlError, match=r"array of shape \(\), expected \[\d+\] labels .* called with \{column: \[N\]\}"
    ):
        as_table("a0", LOG, "rules:mine")

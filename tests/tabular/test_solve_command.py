"""`pdocrl solve`: one JSON object, readable tables, whole files, and one line for every kind of bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest

from pdocrl.tabular.cmdp import evaluate
from pdocrl.tabular.examples import EXAMPLES, inventory
from pdocrl.tabular.io.logs import count_log
from pdocrl.tabular.solvers.exact import solve as solve_exactly

Run = Callable[..., tuple[int, str, str]]
QUICK = ("--gamma", "0.9", "--C", "3", "--resamples", "20", "--refits", "2")


def columns(n: int = 400) -> dict[str, list[object]]:
    """Two states and two actions; the second action costs, and pays."""
    rng = np.random.default_rng(0)
    s, a = rng.integers(2, size=n), rng.integers(2, size=n)
    then = np.append(s[1:], s[0])
    return {
        "state": s.tolist(),
        "action": a.tolist(),
        "next_state": then.tolist(),
        "reward": (a + 0.1 * s).tolist(),
        "cost": (0.5 * a).tolist(),
    }


def flat(text: str) -> str:
    """Without the line breaks of a narrow terminal."""
    return " ".join(text.split())


@pytest.fixture
def log(tmp_path: Path) -> Callable[..., str]:
    """Write the columns above, with changes, and give the path."""

    def write(suffix: str = ".parquet", **changes: object) -> str:
        path = tmp_path / f"log{suffix}"
        table = pyarrow.table({k: v for k, v in {**columns(), **changes}.items() if v is not None})
        if suffix == ".parquet":
            pyarrow.parquet.write_table(table, path)
        else:
            pyarrow.csv.write_csv(table, path)
        return str(path)

    return write


def test_json_is_one_object_with_everything(run_cli: Run, log: Callable[..., str]) -> None:
    status, out, err = run_cli("solve", log(), *QUICK, "--limit", "cost<=0.2", "--json")
    assert status == 0, err
    found = json.loads(out)
    expected = {"value", "costs", "limits", "multipliers", "certificate", "status", "coverage", "intervals", "policy"}
    assert expected <= set(found)
    assert found["status"] == "optimal"
    assert found["costs"]["cost"] == pytest.approx(0.2, abs=1e-9)
    assert found["limits"] == {"cost": 0.2}
    assert found["certificate"] <= 1e-8
    assert found["multipliers"]["cost"] == pytest.approx(2, abs=0.1)  # reward per unit of cost, as the log is made
    assert {"pairs", "states", "concentrability"} <= set(found["coverage"])
    assert (found["coverage"]["pairs"], found["coverage"]["states"]) == (4, 2)
    low, high = found["intervals"]["value"]
    assert low <= found["value"] <= high
    assert found["intervals"]["costs"]["cost"][0] <= 0.2 <= found["intervals"]["costs"]["cost"][1]
    chance = {s: sum(row["probability"] for row in found["policy"] if row["state"] == s) for s in (0, 1)}
    assert chance == pytest.approx({0: 1.0, 1: 1.0})


def test_the_table_shows_limit_and_multiplier_and_the_choice_of_c(run_cli: Run, log: Callable[..., str]) -> None:
    status, out, _ = run_cli(
        "solve", log(), "--gamma", "0.9", "--limit", "cost<=0.2", "--resamples", "20", "--refits", "2"
    )
    assert status == 0
    for words in ("<= 0.2", "multiplier", "optimal", "certificate ξ", "What other C would have given", "chosen"):
        assert words in out


def test_limits_may_be_given_together_or_one_by_one(run_cli: Run, log: Callable[..., str]) -> None:
    path = log(other=[0.1] * 400)
    together = run_cli("solve", path, *QUICK, "--limit", "cost<=0.2", "other<=0.3", "--json")
    apart = run_cli("solve", path, *QUICK, "--limit", "cost<=0.2", "--limit", "other<=0.3", "--json")
    assert together[0] == apart[0] == 0
    assert together[1] == apart[1]
    assert json.loads(apart[1])["limits"] == {"cost": 0.2, "other": 0.3}


def test_limits_per_window_are_those_per_step_times_its_length(run_cli: Run, log: Callable[..., str]) -> None:
    path = log()
    per_step = json.loads(run_cli("solve", path, *QUICK, "--limit", "cost<=0.2", "--json")[1])
    limit = ("--limit", "cost<=20", "--limit-horizon", "100")
    per_episode = json.loads(run_cli("solve", path, *QUICK, *limit, "--json")[1])
    assert per_episode["limits"]["cost"] == pytest.approx(0.2)
    assert per_episode["value"] == pytest.approx(per_step["value"])
    assert per_episode["per_limit_horizon"]["cost"] == pytest.approx(20)
    assert "per 100 steps" in run_cli("solve", path, *QUICK, *limit)[1]


@pytest.mark.parametrize("method", ["pdocrl", "regret_matching", "optimistic"])
def test_every_method_has_a_certificate(run_cli: Run, log: Callable[..., str], method: str) -> None:
    options = ("--method", method, "--iterations", "500", "--limit", "cost<=0.2", "--json")
    status, out, _ = run_cli("solve", log(".csv"), *QUICK, *options)
    assert status == 0
    assert 0 < json.loads(out)["certificate"] < 5


def test_an_unconstrained_log_needs_no_limit(run_cli: Run, log: Callable[..., str]) -> None:
    status, out, _ = run_cli("solve", log(cost=None), *QUICK, "--json")
    assert status == 0
    found = json.loads(out)
    assert found["costs"] == {}
    assert all(row["action"] == 1 for row in found["policy"])


def test_files_are_written_to_a_folder(run_cli: Run, log: Callable[..., str], tmp_path: Path) -> None:
    folder = tmp_path / "a" / "policy"
    status, out, err = run_cli("solve", log(), *QUICK, "--limit", "cost<=0.2", "--out", str(folder), "--json")
    assert status == 0
    files = {"policy.parquet", "policy.json", "act.py", "result.json", "map.json", "solve.png"}
    assert {f.name for f in folder.iterdir()} == files
    assert json.loads((folder / "result.json").read_text()) == {"format": 2, **json.loads(out)}
    rows = json.loads((folder / "policy.json").read_text())["rows"]
    assert pyarrow.parquet.read_table(folder / "policy.parquet").to_pylist() == rows
    assert (folder / "solve.png").read_bytes().startswith(b"\x89PNG")
    assert "wrote" in err


def test_infeasible_limits_are_a_result_and_an_error(run_cli: Run, log: Callable[..., str]) -> None:
    """Half of the rows are free of cost, so C = 1.2 can avoid the costly action only in part."""
    path = log()
    status, out, err = run_cli("solve", path, *QUICK, "--limit", "cost>=0.6", "--json")
    assert (status, json.loads(out)["status"]) == (2, "infeasible")
    assert (
        "cannot be met by any policy of the log's own model; within C = 3, one limit is missed by at least 0.1"
        in flat(err)
    )
    status, out, err = run_cli("solve", path, *QUICK, "--C", "1.2", "--limit", "cost<=0.01", "--json")
    assert (status, json.loads(out)["status"]) == (2, "infeasible_covered")
    assert "cannot be met by any policy the log covers; within C = 1.2, one limit is missed" in flat(err)


BAD = {
    "unknown column": ({"reward": None, "rewards": [1.0] * 400}, ("cost<=0.2",), (), "no column `reward`"),
    "text in numbers": ({"reward": ["x"] * 400}, ("cost<=0.2",), (), "column `reward`, row 1 (and in 399 more): 'x'"),
    "negative cost": ({"cost": [-0.5] * 400}, ("cost<=0.2",), (), "negative"),
    "nan cost": ({"cost": [float("nan")] * 400}, ("cost<=0.2",), (), "missing, NaN or infinite"),
    "gamma 1": ({}, ("cost<=0.2",), ("--gamma", "1"), "strictly between 0 and 1"),
    "gamma negative": ({}, ("cost<=0.2",), ("--gamma", "-0.1"), "strictly between 0 and 1"),
    "limit on nothing": ({}, ("cots<=0.2",), (), "no column `cots`. Did you mean `cost`?"),
    "contradictory limits": ({}, ("cost<=0.2", "cost>=0.3"), (), "contradict each other"),
    "limit as prose": ({}, ("cost below 0.2",), (), "is not understood"),
    "empty log": ({k: [] for k in columns()}, ("cost<=0.2",), (), "is empty"),
    "a state never entered": ({"state": [7, *columns()["state"][1:]]}, ("cost<=0.2",), (), "state 7 never appears"),
    "start unknown": ({}, ("cost<=0.2",), ("--start", "9"), "no state '9' to start from"),
    "bad column map": ({}, ("cost<=0.2",), ("--columns", "state"), "write it as state=room"),
    "bad horizon": ({}, ("cost<=0.2",), ("--limit-horizon", "0"), "must be positive"),
    "horizon without episodes": ({}, ("cost<=0.2",), ("--horizon", "5"), "needs a column `episode`"),
    "horizon and window": ({}, ("cost<=0.2",), ("--horizon", "5", "--limit-horizon", "5"), "give one of them"),
    "bad method": ({}, ("cost<=0.2",), ("--method", "simplex"), "simplex"),
    "bad memory": ({}, ("cost<=0.2",), ("--memory", "lots"), "memory 'lots'"),
    "bad threads": ({}, ("cost<=0.2",), ("--threads", "0"), "threads 0"),
    "bad C": ({}, ("cost<=0.2",), ("--C", "0"), "C is 0.0"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_status_2_and_nothing_is_written(
    run_cli: Run, log: Callable[..., str], tmp_path: Path, case: str
) -> None:
    changes, limits, options, message = BAD[case]
    folder = tmp_path / "out"
    status, out, err = run_cli("solve", log(**changes), *QUICK, "--limit", *limits, *options, "--out", str(folder))
    assert status == 2
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert not folder.exists()


def test_a_file_that_is_not_there_or_a_folder_that_is_a_file(run_cli: Run, log: Callable[..., str]) -> None:
    assert "Give --gamma, such as 0.97, or --horizon" in run_cli("solve", log())[2]
    status, _, err = run_cli("solve", "inventry", *QUICK)
    assert status == 2
    assert "Did you mean `inventory`?" in err
    path = log()
    status, _, err = run_cli("solve", path, *QUICK, "--out", path)
    assert status == 2
    assert "is a file; name a folder" in err


def test_the_example_ships_small_and_is_what_its_script_makes() -> None:
    assert EXAMPLES["inventory"].stat().st_size < 1_000_000
    shipped = pyarrow.parquet.read_table(EXAMPLES["inventory"])
    assert shipped.num_rows == 200 * 365
    assert shipped.slice(0, 15 * 365).to_pydict() == inventory.simulate(shops=15)


def test_the_example_log_is_a_sample_of_its_model() -> None:
    counts = count_log(EXAMPLES["inventory"], costs=inventory.COSTS)
    truth = inventory.model(0.97, 0.02, 0.3)
    assert counts.states == inventory.STATES
    assert counts.actions == inventory.ORDERS
    often = counts.n >= 400
    np.testing.assert_allclose(counts.r[often], truth.r[often], atol=0.06)
    np.testing.assert_allclose(counts.costs[0][often], -truth.g[0][often], atol=0.08)
    np.testing.assert_array_equal(counts.d0, truth.d0)


def test_from_the_example_a_policy_is_learned_that_is_better_in_every_way(run_cli: Run) -> None:
    """Held against the truth: more profit, fewer stockouts, fewer deliveries than the shops, near the best possible."""
    limits = ("--limit", "stockout<=0.02", "--limit", "delivery<=0.3")
    quick = ("--C", "10", "--resamples", "50", "--refits", "5")
    status, out, _ = run_cli("solve", "inventory", "--gamma", "0.97", *limits, *quick, "--json")
    assert status == 0
    found = json.loads(out)
    truth = inventory.model(0.97, 0.02, 0.3)
    policy = np.zeros(truth.r.shape)
    for row in found["policy"]:
        policy[inventory.STATES.index(row["state"]), inventory.ORDERS.index(row["action"])] = row["probability"]
    earned = evaluate(truth, policy)
    assert earned.error(truth, solve_exactly(truth).value) <= 0.004
    assert earned.value > found["log"]["value"] + 0.008
    assert -earned.constraints[0] < found["log"]["costs"]["stockout"] / 2
    low, high = found["intervals"]["value"]
    assert low <= earned.value <= high

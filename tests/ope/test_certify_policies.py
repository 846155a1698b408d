"""`pdocrl certify` of trained and solved policies: from a log, in a simulator, from a result of `solve`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs
from test_ensemble import SMALL
from test_ope_command import Cli, constant, drifting, trained, write

from pdocrl.data import save
from pdocrl.ope.certify.training import certify_log
from pdocrl.records import write_record
from pdocrl.tabular.inference.bootstrap import Intervals
from pdocrl.tabular.inference.confidence import SafetyTest
from pdocrl.tabular.result.record import read_solved


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A policy of −0.3, far from the border, and one of +0.6, beyond it half of the time, both limited to 2."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("pdocrl.ope.ensemble.prepare.EnsembleConfig", lambda: SMALL)
    dataset = drifting(episodes=160)
    save(dataset, tmp_path / "first.npz")
    save(drifting(episodes=160, seed=1), tmp_path / "second.npz")
    made = trained(dataset, [(2.0,), (2.0,)], [constant(-0.3), constant(0.6)], str(tmp_path / "first.npz"))
    return write(tmp_path / "run", made)


def test_only_a_log_that_did_not_choose_the_policy_shows_anything(folder: Path, tmp_path: Path, run_cli: Cli) -> None:
    status, out, _ = run_cli("certify", folder, "--json")
    own = json.loads(out)
    assert status == 0
    assert {one["verdict"] for one in own["statements"]} == {"cannot be shown"}
    assert own["confidence"] is None
    assert own["statements"][0]["sentence"].startswith("Probably satisfies its limit")
    assert own["statements"][0]["episodes_needed"] > 0
    fresh = json.loads(run_cli("certify", folder, "--held-out", tmp_path / "second.npz", "--json")[1])
    safe, unsafe = fresh["statements"]
    assert (safe["verdict"], safe["confidence"], safe["basis"]) == ("within", 0.95, "held-out log")
    assert safe["mean_cost_upper"] <= 2
    assert unsafe["verdict"] != "within"
    assert "calibrated on" in safe["assumption"]
    assert {"format": 1, **fresh} == json.loads((folder / "certificate.json").read_text())
    assert (folder / "certificate.png").read_bytes().startswith(b"\x89PNG")


def test_what_no_logged_step_can_add_up_to_needs_no_audit_and_what_never_occurred_does(folder: Path) -> None:
    """Ten steps of at most 1 stay below 20. Of a cost that never occurred nothing is known, not even that."""
    dataset, free = drifting(episodes=160), drifting(episodes=160, seed=1)
    made = trained(dataset, [(20.0,)], [constant(-0.3)])
    free = dataclasses.replace(free, cost=0 * free.cost)
    unknown = certify_log(made, free, config=SMALL)[0].statements[0]
    assert unknown.verdict == "cannot be shown"
    assert "never occurred" in unknown.sentence
    assert unknown.episodes_needed is None  # nobody knows what an episode can cost at most
    own = certify_log(made, dataset, config=SMALL)[0].statements[0]
    assert own.episodes_needed == 0
    assert "no episode costs more than 10" in own.sentence


def test_a_log_that_shares_episodes_with_the_training_is_not_held_out(folder: Path) -> None:
    mixed = drifting(episodes=160).episodes(np.arange(40))
    told, _ = certify_log(folder, mixed, config=SMALL)
    assert "40 episodes" in told.notes[0]
    assert told.confidence is None


def test_a_trainings_policies_are_certified_by_episodes_they_played(folder: Path, tmp_path: Path, run_cli: Cli) -> None:
    """Ten steps of at most 1, as the data says, bound an episode's cost: nobody need state it."""
    file = tmp_path / "episodes.csv"
    file.write_text("run,cost\n" + "0,0\n" * 59 + "1,5\n" * 40)
    status, out, err = run_cli("certify", folder, "--audit", file, "--json")
    told = json.loads(out)
    assert (status, told["verdict"]) == (0, "over")
    safe, unsafe = told["statements"]
    assert (safe["verdict"], safe["episodes"], safe["largest_cost"]) == ("within", 59, 10)
    assert safe["share_over_upper"] == pytest.approx(1 - 0.05 ** (1 / 59))
    assert (unsafe["verdict"], unsafe["episodes"]) == ("over", 40)
    assert "limit 2, seed 0" in safe["policy"]
    assert "certificate.json" in err
    one = json.loads(run_cli("certify", folder, "--audit", file, "--run", 0, "--json")[1])
    assert one["verdict"] == "within"
    assert "1 of 2 policies have no episodes" in one["notes"][0]
    file.write_text("cost\n" + "11\n" * 5)  # more than the data thought possible
    dear = json.loads(run_cli("certify", folder, "--audit", file, "--run", 1, "--json")[1])
    assert "nobody stated" in dear["statements"][0]["assumption"]


def test_a_policy_asked_for_a_tail_is_not_judged_by_its_mean(folder: Path, tmp_path: Path, run_cli: Cli) -> None:
    """A tenth of the episodes cost 9: a mean of .9 is within 2, a share of a tenth above 2 is not within .05."""
    plan = json.loads((folder / "run.json").read_text())
    plan["runs"][0] |= {"limits": ["P(cost>2)<=0.05"]}
    (folder / "run.json").write_text(json.dumps(plan))
    (tmp_path / "played.csv").write_text("run,cost\n" + ("0,9\n" + "0,0\n" * 9) * 40)
    told = json.loads(
        run_cli("certify", folder, "--audit", tmp_path / "played.csv", "--largest-cost", "9", "--json")[1]
    )
    (statement,) = told["statements"]
    assert (statement["verdict"], statement["limit"]["value"]) == ("over", pytest.approx(0.1))
    assert "P(cost>2)<=0.05" in statement["policy"]
    status, _, err = run_cli("certify", folder, "--held-out", tmp_path / "second.npz")
    assert (status, err.count("\n"), "run 0 was asked for P(cost>2)<=0.05" in err) == (2, 1, True)
    estimated, other = json.loads(run_cli("ope", folder, "--json")[1])["runs"]
    assert (estimated["verdict"], estimated["within_limit"]) == ("not shown", None)
    assert "a tail is not judged here" in estimated["warnings"][-1]
    assert other["warnings"] == [] or "tail" not in other["warnings"][-1]


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ("cost\n1\n", (), "which of the 2 policies"),
        ("cost\n1\n", ("--run", "2"), "0 … 1"),
        ("run,cost\n0,1\n7,1\n", (), "`run` of episode 2 is 7"),
        ("run,cost\n0,1\n", ("--run", "1"), "no episode of run 1"),
        ("cost_a,cost_b\n1,1\n", ("--run", "0"), "no column for the cost"),
        ("cost\n1\n", ("--run", "0", "--cost-limit", "3"), "the limit it was trained for"),
    ],
)
def test_an_audit_that_fits_no_policy_is_refused_in_one_line(
    folder: Path, tmp_path: Path, run_cli: Cli, text: str, options: tuple[str, ...], says: str
) -> None:
    (tmp_path / "e.csv").write_text(text)
    status, out, err = run_cli("certify", folder, "--audit", tmp_path / "e.csv", *options)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert says in err
    assert not (folder / "certificate.json").exists()


def test_solved_policies_are_certified_by_their_bounds(tmp_path: Path, run_cli: Cli) -> None:
    rows = [f"s,{i % 2},{i % 2},{i % 2},{1 - i % 2},s" for i in range(200)]
    (tmp_path / "log.csv").write_text("\n".join(["state,action,reward,cost,served,next_state", *rows]))
    place = tmp_path / "policy"
    limits = ("--limit", "cost<=0.2", "served>=0.9")
    run_cli("solve", tmp_path / "log.csv", "--gamma", "0.9", "--resamples", "0", "--C", "3", *limits, "--out", place)
    spread = Intervals(level=0.95, value=(0.0, 1.0), costs={"cost": (0.05, 0.15), "served": (0.9, 1.0)}, optimism=0.0)
    found = structs.replace(read_solved(place), costs={"cost": 0.1, "served": 0.95}, intervals=spread)
    write_record(place / "result.json", found)
    told = json.loads(run_cli("certify", place, "--json")[1])
    assert told["verdict"] == "cannot be shown"
    assert "--confidence" in told["statements"][0]["sentence"]
    shown = SafetyTest(asked=0.9, reached=True, by="held-out rows", bounds={"cost": 0.18, "served": 0.91}, estimates={})
    found = structs.replace(found, status="shown", confidence=shown)
    write_record(place / "result.json", found)
    told = json.loads(run_cli("certify", place, "--json")[1])
    assert (told["verdict"], told["confidence"]) == ("within", 0.9)
    assert "tested on held-out rows" in told["statements"][0]["assumption"]
    assert "no hidden confounder" in told["statements"][0]["assumption"]
    shown = structs.replace(shown, bounds={"cost": 0.18, "served": 0.89})
    write_record(place / "result.json", structs.replace(found, confidence=shown))
    assert json.loads(run_cli("certify", place, "--json")[1])["verdict"] == "cannot be shown"
    (place / "result.json").write_text("{}")
    status, _, err = run_cli("certify", place)
    assert (status, err.count("\n")) == (2, 1)


def test_a_simulator_is_asked_no_longer_than_it_takes(tmp_path: Path, run_cli: Cli) -> None:
    pytest.importorskip("bullet_safety_gym")
    from pdocrl.data import load
    from pdocrl.policies.policy import MLPPolicy

    dataset = load("BallRun")
    still = MLPPolicy((np.zeros((dataset.obs_dim, 2), np.float32),), (np.zeros(2, np.float32),))
    made = trained(dataset, [(10.0,)], [still])
    folder = write(tmp_path / "run", made)
    options = ("--task", "BallRun", "--workers", "0", "--largest-cost", "100")
    status, out, _ = run_cli("certify", folder, "--episodes", "200", *options, "--json")
    told = json.loads(out)["statements"][0]
    assert status == 0
    assert (told["verdict"], told["basis"], told["mean_cost"]) == ("within", "simulator", 0)
    assert told["episodes"] < 100
    fixed = json.loads(run_cli("certify", folder, "--episodes", "59", "--fixed", *options, "--json")[1])
    assert fixed["statements"][0]["episodes"] == 59
    assert fixed["share_over_upper"] == pytest.approx(1 - 0.05 ** (1 / 59))
    status, _, err = run_cli("certify", folder, "--episodes", "5")
    assert (status, err.count("\n")) == (2, 1)
    assert "--task" in err

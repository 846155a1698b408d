"""A suite from start to end with the real simulator: what is done is not redone, what fails does not stop the rest."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pdocrl.bench import group as groups
from pdocrl.bench import local, run
from pdocrl.bench.rates import Rates
from pdocrl.bench.results import read_rows, read_status, read_suite
from pdocrl.bench.run import Done, Selection
from pdocrl.bench.suite import Group, Method, Suite, TaskEntry
from pdocrl.data.load import EMBEDDED
from pdocrl.data.tasks import Task, find_task, register
from pdocrl.errors import PdocrlInterrupted
from pdocrl.training.folder import load_trained

pytest.importorskip("pybullet", reason="the simulator is not installed: pdocrl install bullet")

TINY = {"hidden": (8, 8), "batch_size": 16}
BALL = TaskEntry(find_task("BallRun"), EMBEDDED / "ballrun.hdf5")
SUITE = Suite(
    "test", "", (BALL,), (Method("bc", "", TINY), Method("pdocrl", "", TINY)), ((20.0,), (40.0,)), (0,), 20, 2
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SUITE, done once for the tests below; they work on copies."""
    out = tmp_path_factory.mktemp("bench") / "out"
    done = bench(SUITE, out)
    assert not done.incomplete
    return out


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    shutil.copytree(finished, tmp_path / "out")
    return tmp_path / "out"


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of groups that are trained from now on."""
    return _spy(monkeypatch, "train_group")


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of groups that are played from now on."""
    return _spy(monkeypatch, "_evaluate")


def _spy(monkeypatch: pytest.MonkeyPatch, name: str) -> list[str]:
    seen: list[str] = []
    real = getattr(local, name)

    def spy(group: Group, *arguments: Any) -> Any:
        seen.append(group.name)
        return real(group, *arguments)

    monkeypatch.setattr(local, name, spy)
    return seen


def bench(suite: Suite, out: Path, **selection: Any) -> Done:
    rates = Rates(out.parent / "rates.json")
    return run.bench(run.make_plan(suite, Selection(out, **selection), rates))


def test_a_finished_suite_has_a_row_per_episode(finished: Path) -> None:
    rows = read_rows(finished)
    assert len(rows) == 2 * 2 * 2  # methods × limits × episodes
    assert {(row.method, row.cost_limit, row.seed, row.episode) for row in rows} == {
        (method, (limit,), 0, episode) for method in ("bc", "pdocrl") for limit in (20.0, 40.0) for episode in (0, 1)
    }
    assert len({row.config_digest for row in rows}) == 2
    assert {row.recollected for row in rows} == {True}
    assert {row.step for row in rows} == {20}
    assert all(row.train_seconds and row.train_seconds > 0 for row in rows)
    scores = json.loads((finished / "groups" / "bc-BallRun" / "scores.json").read_text())
    assert [row.reward for row in rows if row.agent == "bc"] == [
        episode["reward"] for run in scores["runs"] for episode in run["episodes"]
    ]
    assert [status.status for status in read_status(finished)] == ["done", "done"]
    assert read_suite(finished).agents[0].settings["hidden"] == [8, 8]


def test_finished_work_is_not_redone(copy: Path, trained: list[str], played: list[str]) -> None:
    before = read_rows(copy)
    for name in ("results.parquet", "results.csv", "status.json"):
        (copy / name).unlink()
    bench(SUITE, copy)
    assert trained == played == []
    assert read_rows(copy) == before


def test_a_longer_evaluation_replays_and_a_shorter_one_takes_the_first_episodes(copy: Path, trained: list[str]) -> None:
    before = read_rows(copy)
    bench(dataclasses.replace(SUITE, episodes=3), copy, agents=("bc",))
    longer = [row for row in read_rows(copy) if row.agent == "bc"]
    assert trained == []
    assert len(longer) == 2 * 3
    bench(SUITE, copy)
    assert read_rows(copy) == before


def test_the_result_is_told_as_a_table(copy: Path) -> None:
    done = bench(SUITE, copy)
    rows = [row for row in done.rows if row.agent == "bc"]
    own = [row.reward for row in rows if row.cost_limit == rows[0].cost_limit and row.task == rows[0].task]
    line = next(line for line in done.summary().splitlines() if line.startswith(f"| {rows[0].task} | bc |"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[3:5] == [f"{len(own)}", f"{np.mean(own):.4g}"]
    assert "<table" in done._repr_html_()
    assert repr(done).startswith(f"Done({SUITE.name}: ")
    assert f"pdocrl.report({str(copy)!r})" in done.summary()


def test_a_group_trained_elsewhere_needs_no_data_here(copy: Path, trained: list[str], played: list[str]) -> None:
    (copy / "groups" / "bc-BallRun" / "scores.json").unlink()
    (copy / "groups" / "bc-BallRun" / "checkpoint.safetensors").unlink()
    before = read_rows(copy)
    elsewhere = dataclasses.replace(SUITE, entries=(TaskEntry(find_task("BallRun")),))
    done = bench(elsewhere, copy, data=copy, train=False)
    assert not done.incomplete
    assert (trained, played) == ([], ["bc-BallRun"])
    assert read_rows(copy) == before


def test_a_training_that_was_cut_goes_on(copy: Path, trained: list[str]) -> None:
    """Only the plan is left of it, as after a kill before the first checkpoint; the end is the same."""
    before = read_rows(copy)
    for path in (copy / "groups" / "bc-BallRun").iterdir():
        if path.name != "run.json":
            path.unlink()
    bench(SUITE, copy)
    assert trained == ["bc-BallRun"]
    without_times = [dataclasses.replace(row, train_seconds=None) for row in before]
    assert [dataclasses.replace(row, train_seconds=None) for row in read_rows(copy)] == without_times


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"steps": 30}, "steps is 20, the suite asks for 30"),
        ({"methods": (Method("bc", "", TINY, steps=30),)}, "steps is 20, the suite asks for 30"),
        ({"limits": ((20.0,), (50.0,))}, "cost_limit is [40.0], the suite asks for [50.0]"),
        ({"seeds": (1,)}, "holds seed 0 where the suite asks for 1"),
        ({"seeds": (0, 1)}, "holds 2 runs, the suite asks for 4"),
        ({"methods": (Method("bc", "", TINY | {"actor_rate": 0.5}),)}, "actor_rate is 0.0001, the suite asks for 0.5"),
    ],
)
def test_a_folder_that_holds_another_training_is_told_and_left_alone(
    copy: Path, trained: list[str], change: dict[str, Any], told: str
) -> None:
    before = (copy / "groups" / "bc-BallRun" / "policies.npz").read_bytes()
    done = bench(dataclasses.replace(SUITE, **change), copy, agents=("bc",))
    (status,) = done.incomplete
    assert status.status == "failed"
    assert told in status.reason
    assert trained == []
    assert (copy / "groups" / "bc-BallRun" / "policies.npz").read_bytes() == before
    assert not any(row.agent == "bc" for row in done.rows)


def test_spelling_out_a_default_is_no_difference(copy: Path, trained: list[str]) -> None:
    spelt = dataclasses.replace(SUITE, methods=(Method("bc", "", TINY | {"episodes": "all", "gamma": 0.99}),))
    assert not bench(spelt, copy).incomplete
    assert trained == []


def test_scores_of_other_starts_or_policies_do_not_count(copy: Path) -> None:
    group = SUITE.groups()[0]
    path = copy / "groups" / group.name / "scores.json"
    scores = json.loads(path.read_text())
    assert groups.look(group, copy, None).status == "done"
    other = json.loads(path.read_text())
    other["runs"][0]["episodes"][0]["seed"] += 1
    spoilt = [scores | {"step": 10}, scores | {"runs": scores["runs"][:1]}, scores | {"task": "CarRun"}, other, []]
    for text in [*(json.dumps(value) for value in spoilt), '{"cut']:
        path.write_text(text)
        assert groups.look(group, copy, None).status == "trained"


def test_one_failure_stops_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(group: Group, *arguments: Any) -> Any:
        if group.method.agent == "bc":
            raise RuntimeError("no luck")
        return groups.train_group(group, *arguments)

    monkeypatch.setattr(local, "train_group", fail)
    done = bench(SUITE, tmp_path / "out")
    (status,) = done.incomplete
    assert (status.name, status.status, status.reason) == ("bc-BallRun", "failed", "RuntimeError: no luck")
    assert {row.agent for row in done.rows} == {"pdocrl"}
    assert read_status(tmp_path / "out")[0] == status


def test_an_interrupt_leaves_whole_files_and_says_how_to_go_on(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: Any) -> Any:
        raise PdocrlInterrupted("interrupted at step 3.")

    (copy / "groups" / "pdocrl-BallRun" / "policies.npz").unlink()
    (copy / "results.parquet").unlink()
    monkeypatch.setattr(local, "train_group", interrupt)
    with pytest.raises(PdocrlInterrupted, match="The same command goes on"):
        bench(SUITE, copy)
    assert {row.agent for row in read_rows(copy)} == {"bc"}
    assert [status.status for status in read_status(copy)] == ["done", "waiting"]


def test_tasks_without_data_are_listed_with_the_remedy(tmp_path: Path) -> None:
    suite = dataclasses.replace(SUITE, entries=(TaskEntry(find_task("CarRun")),))
    done = bench(suite, tmp_path / "out", data=tmp_path)
    assert [status.status for status in done.incomplete] == ["missing", "missing"]
    assert "pdocrl data fetch CarRun" in done.incomplete[0].reason
    assert done.rows == []


def test_a_task_without_a_simulator_is_trained_and_complete(tmp_path: Path) -> None:
    task = register(Task("Log", horizon=100))
    suite = dataclasses.replace(SUITE, entries=(TaskEntry(task, BALL.data),), methods=SUITE.methods[:1])
    done = bench(suite, tmp_path / "out")
    assert [status.status for status in done.statuses] == ["trained"]
    assert "no simulator" in done.statuses[0].reason
    assert not done.incomplete


def test_the_command_prints_one_object_and_status_1_when_incomplete(
    copy: Path,
    run_cli: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = f"""
    name = "test"
    steps = 20
    episodes = 2
    cost_limits = [20, 40]
    seeds = [0]
    tasks = [{{ name = "BallRun", data = "{BALL.data}" }}, "CarRun"]
    agents = [{{ name = "bc", settings = {{ hidden = [8, 8], batch_size = 16 }} }}]
    """
    (tmp_path / "test.toml").write_text(text)
    words = ("bench", str(tmp_path / "test.toml"), "--out", str(copy), "--data", str(tmp_path), "--json")
    status, out, _ = run_cli(*words, "--plan")
    assert status == 0
    assert [group["status"] for group in json.loads(out)["groups"]] == ["done", "missing"]
    with pytest.raises(SystemExit) as stop:
        run_cli(*words)
    assert stop.value.code == 1
    captured = capsys.readouterr()
    made = json.loads(captured.out)
    assert made["suite"]["name"] == "test"
    assert (copy / "tables" / "results.tex").exists()
    assert made["page"] == str(copy / "report.html")
    assert [(cell["task"], cell["method"], cell["runs"]) for cell in made["table"]] == [("BallRun", "bc", 2)]
    assert "bc-CarRun: missing" in captured.err
    status, out, _ = run_cli(*words, "--tasks", "BallRun")
    assert status == 0
    assert json.loads(out)["groups"][1]["status"] == "missing"


def test_a_longer_training_goes_on_where_the_same_shorter_one_ended(finished: Path, tmp_path: Path) -> None:
    """To the same bits as one that began anew, though it trained the last steps alone."""
    lengths = dataclasses.replace(SUITE, methods=tuple(Method("pdocrl", f"{n}", TINY, steps=n) for n in (8, 20)))
    work = local.Work(lengths.groups(), tmp_path, None, evaluate=False)
    short, long = lengths.groups()
    local.run(dataclasses.replace(work, groups=[short]), lambda status: None, Rates(tmp_path / "rates.json"))
    assert groups.take_up_shorter(long, tmp_path)
    assert load_trained(tmp_path / "groups" / short.name).step == 8
    local.run(work, lambda status: None, Rates(tmp_path / "rates.json"))
    other, own = load_trained(finished / "groups" / "pdocrl-BallRun"), load_trained(tmp_path / "groups" / long.name)
    assert (own.step, own.config.steps, len(own.metrics)) == (20, 20, len(other.metrics))
    obs = np.ones((3, 7), np.float32)
    for mine, same in zip(own.policies, other.policies, strict=True):
        np.testing.assert_array_equal(mine(obs), same(obs))

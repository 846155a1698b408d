"""The task table and tasks of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdocrl.data import Task, find_task, load, register
from pdocrl.data.io import dsrl
from pdocrl.data.tasks import BUILT_IN, BULLET, SAFETY_GYMNASIUM, read_tasks, register_file
from pdocrl.errors import PdocrlError, UnknownNameError
from pdocrl.training.config import task_of


def test_the_eight_tasks_have_their_published_numbers() -> None:
    """Episode lengths, dimensions and cost maxima as DSRL documents them; file names follow from two of them."""
    table = {
        "BallRun": (100, 7, 2, 80),
        "CarRun": (200, 7, 2, 40),
        "DroneRun": (200, 17, 4, 140),
        "AntRun": (200, 33, 8, 150),
        "BallCircle": (200, 8, 2, 80),
        "CarCircle": (300, 8, 2, 100),
        "DroneCircle": (300, 18, 4, 100),
        "AntCircle": (500, 34, 8, 200),
    }
    found = {task.name: (task.horizon, task.obs_dim, task.action_dim, task.cost_max) for task in BULLET}
    assert found == table
    for task in BULLET:
        assert task.files[0].startswith(f"{task.env_id}-{task.cost_max:.0f}-")


def test_safety_gymnasium_s_tasks_are_named_as_the_public_files_are() -> None:
    """Sixteen of navigation and five of velocity; what a file's name says of its cost is the table's, rounded up."""
    assert len(SAFETY_GYMNASIUM) == 16 + 5
    for task in SAFETY_GYMNASIUM:
        stem, cost, _ = task.files[0].rsplit("-", 2)
        assert stem == task.env_id == f"Safety{task.name}Gymnasium-v{'Velocity' in task.name:d}"
        assert 0 <= int(cost) - task.cost_max <= 2
        assert task.horizon == (500 if "Circle" in task.name else 1000)
        assert find_task(task.env_id) == find_task(task.name.lower()) == task
    point = {task.name[5:]: task.obs_dim for task in SAFETY_GYMNASIUM if task.name.startswith("Point")}
    car = {task.name[3:]: task.obs_dim for task in SAFETY_GYMNASIUM if task.name.startswith("Car")}
    assert car == {name: size + 12 for name, size in point.items()}  # two wheels and a ball more to sense


def test_shared_files_fit_their_tasks(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pdocrl.data import load

    monkeypatch.setenv("PDOCRL_DATA", str(shared_data))
    for name in ("BallRun", "CarRun", "BallCircle", "CarCircle", "DroneRun"):
        dataset, task = load(name), find_task(name)
        assert dataset.episode_length.max() == task.horizon
        assert dataset.cost_return.max() <= task.cost_max


def test_every_dsrl_file_is_known_by_its_name_and_by_safety_gymnasium_s() -> None:
    files = [(task, file) for task in BUILT_IN for file in task.files]
    assert len(files) == 38
    for task, file in files:
        assert task_of(f"somewhere/{file}", None) == task
        assert task_of(f"somewhere/{file.replace('Gymnasium', '')}", None) == task
        assert find_task(task.env_id or task.name) == task
    assert find_task("SafetyPointGoal1-v0") == find_task("PointGoal1") == find_task("SafetyPointGoal1Gymnasium-v0")


def test_unknown_names_get_a_suggestion() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown task 'antcirle'\. Did you mean `AntCircle`\?"):
        find_task("antcirle")


def test_a_toml_file_describes_tasks_completely(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(
        '[A]\nhorizon = 5\n[B]\nhorizon = 7\nenv_id = "pkg:B-v0"\nobs_dim = 2\naction_dim = 1\n'
        'reward_min = -1\nreward_max = 2.5\ncost_max = 3\nfiles = ["b.hdf5"]\n'
    )
    assert read_tasks(tmp_path / "t.toml") == (
        Task("A", 5),
        Task("B", 7, "pkg:B-v0", 2, 1, -1, 2.5, 3, ("b.hdf5",)),
    )
    register_file(tmp_path / "t.toml")
    assert find_task("b").horizon == 7
    assert find_task("PKG:b-V0").name == "B"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[A\n", "not valid TOML: "),
        ("horizon = 3\n", "`horizon` stands outside a task"),
        ("[A]\nobs_dim = 3\n", "task A has no `horizon`"),
        ("[A]\nhorizon = 0\n", "`horizon` is 0, must be at least 1"),
        ("[A]\nhorizon = 3.5\n", "`horizon` is 3.5, expected int"),
        ("[A]\nhorizon = true\n", "`horizon` is True, expected int"),
        ("[A]\nhorizont = 3\n", "unknown key `horizont`. Did you mean `horizon`?"),
        ("[A]\nhorizon = 3\nreward_min = 2\nreward_max = 1\n", "`reward_min` 2 must be below `reward_max` 1"),
        ("[A]\nhorizon = 3\nfiles = [1]\n", "`files` must be a list of file names"),
        ("[BallRun]\nhorizon = 3\n", "task BallRun is built in"),
    ],
)
def test_bad_toml_is_one_clear_line(tmp_path: Path, run_cli, text: str, message: str) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "t.toml").write_text(text)
    status, out, err = run_cli("tasks", "--tasks-file", tmp_path / "t.toml")
    assert (status, out) == (2, "")
    assert err.startswith(f"error: {tmp_path}/t.toml: ")
    assert message in err
    assert err.count("\n") == 1


def test_a_task_file_that_is_not_there_is_named_wherever_tasks_are_needed(
    tmp_path: Path, run_cli, monkeypatch: pytest.MonkeyPatch
) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("PDOCRL_TASKS", str(tmp_path / "gone.toml"))
    for arguments in (["tasks"], ["data", "info", "BallRun"]):
        status, _, err = run_cli(*arguments)
        assert status == 2
        assert "gone.toml: cannot read the task file (No such file or directory)." in err


def test_built_in_tasks_cannot_be_replaced() -> None:
    with pytest.raises(PdocrlError, match="built in"):
        register(Task("ballrun", 3))
    register(Task("Mine", 3))
    register(Task("Mine", 4))
    assert find_task("mine").horizon == 4


def test_a_file_that_says_whose_data_it_is_is_not_taken_for_anothers(tmp_path: Path) -> None:
    """Same dimensions, other world: only the file itself knows."""
    data = load("BallRun")
    dsrl.write(data, tmp_path / "mine.hdf5", {"task": "BallRun"})
    with pytest.raises(PdocrlError, match=r"mine\.hdf5 is data of task BallRun, not of CarRun"):
        load(tmp_path / "mine.hdf5", "CarRun")
    again = register(Task("Strict", 100, env_id="SafetyBallRun-v0"))
    assert load(tmp_path / "mine.hdf5", again).digest == data.digest

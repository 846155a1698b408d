"""Suites by name and from a file; every mistake in a file is told in one line that names it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pdocrl.agents.registry import BUILT_IN as BUILT_IN_AGENTS
from pdocrl.bench.suite import named_suites
from pdocrl.bench.suite_file import find_suite
from pdocrl.data.load import EMBEDDED
from pdocrl.data.tasks import BULLET, find_task
from pdocrl.errors import DataError, PdocrlError
from pdocrl.records import as_plain

GOOD = """
steps = 20
cost_limits = [10, 20]
seeds = [0, 1]
episodes = 3
tasks = ["BallRun"]
agents = ["bc", { name = "pdocrl", variant = "wide", settings = { hidden = [16, 16], gamma = 0.9 } }]
"""


@pytest.fixture
def toml(tmp_path: Path) -> Callable[[str], Path]:
    """`toml(text)` → the path of a suite with that text."""

    def write(text: str) -> Path:
        path = tmp_path / "mine.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_the_paper_suite_is_the_papers_grid_at_both_protocols_limits() -> None:
    suite = find_suite("paper")
    assert suite.protocol == "dsrl+paper"
    assert suite.limits == ((10.0,), (20.0,), (40.0,), (80.0,))
    assert [entry.task for entry in suite.entries] == list(BULLET)
    groups = suite.groups()
    assert len(groups) == 8 * len(suite.methods)
    assert {group.runs for group in groups} == {12}
    assert {"pdocrl", "pdocrl-published", "pdocrl_extraction", "cdt-by-cost"} <= {m.name for m in suite.methods}
    assert (suite.steps, suite.episodes) == (100_000, 20)
    assert {method.name for method in find_suite("ablation").methods} == {"pdocrl", "pdocrl_extraction"}


@pytest.mark.parametrize(("name", "tasks"), [("eight", 8), ("five", 5)])
def test_the_broad_suites_have_every_agent_and_the_control(name: str, tasks: int) -> None:
    suite = find_suite(name)
    assert suite.protocol == "dsrl"
    assert len(suite.entries) == tasks
    assert {method.agent for method in suite.methods} == set(BUILT_IN_AGENTS)
    assert "pdocrl_anchored-control" in {method.name for method in suite.methods}


def test_lengths_are_trained_by_the_same_settings() -> None:
    groups = find_suite("lengths").groups(tasks=["CarRun"])
    assert {(g.method.name, g.steps) for g in groups} >= {("pdocrl-20k", 20_000), ("pdocrl-published-50k", 50_000)}
    assert {g.method.settings.get("published", False) for g in groups if g.method.name.startswith("pdocrl-p")} == {True}


def test_every_setting_of_a_named_suite_is_one_of_its_agent() -> None:
    from pdocrl.agents.base import make_config
    from pdocrl.agents.registry import find_agent

    for suite in named_suites().values():
        for method in suite.methods:
            make_config(find_agent(method.agent), **method.settings)
        json.dumps(as_plain(suite.record))


def test_a_file_is_read_as_it_is_meant(toml: Callable[[str], Path]) -> None:
    suite = find_suite(toml(GOOD))
    assert (suite.name, suite.protocol, suite.steps, suite.episodes) == ("mine", "custom", 20, 3)
    assert suite.limits == ((10.0,), (20.0,))
    assert [group.name for group in suite.groups()] == ["bc-BallRun", "pdocrl-wide-BallRun"]
    assert suite.methods[1].settings == {"hidden": (16, 16), "gamma": 0.9}
    assert [group.name for group in suite.groups(["pdocrl"])] == ["pdocrl-wide-BallRun"]
    assert find_suite(toml('tasks = ["CarRun"]\nagents = ["bc"]')).protocol == "dsrl"


def test_an_agent_may_have_steps_of_its_own(toml: Callable[[str], Path]) -> None:
    suite = find_suite(toml(GOOD.replace('"bc",', '{ name = "bc", steps = 7 },')))
    assert [group.steps for group in suite.groups()] == [7, 20]
    json.dumps(as_plain(suite.record))


def test_an_agent_may_have_tasks_and_seeds_of_its_own(toml: Callable[[str], Path]) -> None:
    text = GOOD.replace('tasks = ["BallRun"]', 'tasks = ["BallRun", "CarRun"]')
    suite = find_suite(toml(text.replace('"bc",', '{ name = "bc", tasks = ["carrun"], seeds = [7, 8, 9] },')))
    assert [(group.name, group.seeds) for group in suite.groups()] == [
        ("pdocrl-wide-BallRun", (0, 1)),
        ("bc-CarRun", (7, 8, 9)),
        ("pdocrl-wide-CarRun", (0, 1)),
    ]
    assert suite.record.agents[0].seeds == {"CarRun": [7, 8, 9]}
    suite = find_suite(toml(text.replace('"bc",', '{ name = "bc", seeds = { CarRun = [7] } },')))
    assert [group.seeds for group in suite.groups(["bc"])] == [(0, 1), (7,)]
    for wrong in ('tasks = ["AntRun"]', "seeds = { AntRun = [1] }"):
        with pytest.raises(PdocrlError, match="agent bc` names 'AntRun'; the suite has BallRun, CarRun"):
            find_suite(toml(text.replace('"bc",', f'{{ name = "bc", {wrong} }},')))


def test_a_task_of_ones_own_is_described_in_the_suite(toml: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "robot.csv").write_text("")
    text = 'agents = ["bc"]\n[[tasks]]\nname = "Robot"\ndata = "robot.csv"\nhorizon = 7\ncost_limits = [[1, 2]]'
    (group,) = find_suite(toml(text)).groups()
    assert group.limits == ((1.0, 2.0),)
    assert group.find_data(None) == (tmp_path / "robot.csv").resolve()
    assert find_task("robot").horizon == 7


def test_data_is_looked_for_where_one_says_and_never_in_the_package(tmp_path: Path) -> None:
    group = find_suite("paper").groups(["bc"], ["BallRun"])[0]
    with pytest.raises(DataError, match="pdocrl data fetch BallRun"):
        group.find_data(tmp_path)
    (tmp_path / "SafetyBallRun-v0-80-1.hdf5").write_bytes(b"")
    assert group.find_data(tmp_path).name == "SafetyBallRun-v0-80-1.hdf5"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (GOOD.replace("steps", "stepz"), "unknown key `stepz`. Did you mean `steps`?"),
        (GOOD.replace("steps = 20", "steps = 2.5"), "`steps` is 2.5, expected a whole number"),
        (GOOD.replace("steps = 20", "steps = true"), "`steps` is True"),
        (GOOD.replace('"bc",', '{ name = "bc", steps = 0 },'), "`steps` is 0, expected a whole number of at least 1"),
        (GOOD.replace("episodes = 3", "episodes = 0"), "`episodes` is 0"),
        (GOOD.replace("seeds = [0, 1]", "seeds = [0, 0]"), "`seeds` is [0, 0], expected a list of different"),
        (GOOD.replace("seeds = [0, 1]", "seeds = [-1]"), "`seeds`"),
        (GOOD.replace("[10, 20]", '["10"]'), "cost_limits: limit '10' is not understood"),
        (GOOD.replace("[10, 20]", '["P(cost>20)<=0.1"]'), "serves limits on the mean cost alone, not P(cost>20)<=0.1"),
        (GOOD.replace("[10, 20]", "[10, [20, 5]]"), "equally many"),
        (GOOD.replace("[10, 20]", "[-1]"), "at least 0"),
        (GOOD.replace("[10, 20]", "[nan]"), "numbers of at least 0"),
        (GOOD.replace('"BallRun"', '"BalRun"'), "Did you mean `BallRun`?"),
        (GOOD.replace('"bc"', '"bcc"'), "unknown agent 'bcc'. Did you mean `bc`?"),
        (
            GOOD.replace("gamma = 0.9", "gama = 0.9"),
            "agent pdocrl: unknown setting of pdocrl 'gama'. Did you mean `gamma`",
        ),
        (GOOD.replace("gamma = 0.9", 'gamma = "high"'), "agent pdocrl: setting gamma"),
        (GOOD.replace("gamma = 0.9", "horizon = 9"), "`horizon` is not a setting"),
        (GOOD.replace('"bc",', '"bc", "bc",'), "`agents` holds bc twice. Tell them apart with `variant`."),
        (GOOD.replace('variant = "wide"', 'varian = "wide"'), "unknown key `varian` of agent pdocrl. Did you mean"),
        (GOOD.replace('variant = "wide"', 'variant = "../up"'), "`variant` is '../up'; use letters"),
        (GOOD.replace('["BallRun"]', '[{ name = "BallRun", data = "no.hdf5" }]'), "data of task BallRun: no such file"),
        (GOOD.replace('["BallRun"]', '[{ name = "BallRun", horizon = 3 }]'), "built in; leave out its `horizon`"),
        (GOOD.replace('["BallRun"]', '[{ name = "Robot", horizon = "x" }]'), "`horizon` is 'x', expected int"),
        (GOOD.replace('["BallRun"]', '[{ name = "Robot", reward_max = 2 }]'), "has no `horizon`"),
        (GOOD.replace('["BallRun"]', '[{ data = "x" }]'), "has no `name`"),
        (GOOD.replace('["BallRun"]', "[3]"), "`tasks` holds 3"),
        (GOOD.replace('["BallRun"]', "[]"), "`tasks` is []"),
        (GOOD.replace("tasks", "#"), "has no `tasks`"),
        (GOOD + 'protocol = "dsrll"', "Did you mean `dsrl`?"),
        (GOOD + "name = 3", "`name` is 3, expected a text"),
        ("steps = ", "not valid TOML"),
    ],
)
def test_a_mistake_in_a_file_is_one_line_with_status_2(
    toml: Callable[[str], Path], run_cli: Callable[..., tuple[int, str, str]], tmp_path: Path, text: str, told: str
) -> None:
    path = toml(text)
    status, out, error = run_cli("bench", str(path), "--plan", "--out", str(tmp_path / "out"))
    assert status == 2
    assert out == ""
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert "mine.toml" in error
    assert told in error
    assert not (tmp_path / "out").exists()


def test_a_plan_says_why_the_time_of_short_work_is_not_known(
    toml: Callable[[str], Path],
    run_cli: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pdocrl.bench.rates.cache_folder", lambda: tmp_path)
    data = str(EMBEDDED / "ballrun.hdf5")
    path = toml(GOOD.replace('["BallRun"]', f'[{{ name = "BallRun", data = "{data}" }}]'))
    status, out, _ = run_cli("bench", str(path), "--plan", "--out", str(tmp_path / "out"))
    assert status == 0
    assert "Short work is not measured beforehand" in out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["papr"], "Did you mean `paper`?"),
        (["no.toml"], "no.toml: cannot read the suite"),
        (["smoke", "--agents", "pdocrll"], "Did you mean `pdocrl`?"),
        (["smoke", "--tasks", "CarRun"], "unknown task of suite smoke 'CarRun'"),
        (["smoke", "--no-play", "--no-train"], "leave nothing to do"),
        (["smoke", "--ray-address", "auto"], "--engine ray"),
        (["paper", "--data", "nowhere"], "nowhere: no such folder"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line_with_status_2(
    run_cli: Callable[..., tuple[int, str, str]], words: list[str], told: str
) -> None:
    status, _, error = run_cli("bench", *words)
    assert status == 2
    assert told in error
    assert error.count("\n") == 1

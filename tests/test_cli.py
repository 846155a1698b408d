"""The contract every command keeps: help with an example, one line on error, status 2."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pdocrl.cli import main as cli
from pdocrl.errors import PdocrlError

Run = Callable[..., tuple[int, str, str]]


def built_commands() -> list[str]:
    """The commands whose module is there (others may be built in parallel)."""
    found = []
    for name, (module, function, _) in cli.COMMANDS.items():
        spec = importlib.util.find_spec(f"pdocrl.cli.{module}")
        if spec and hasattr(importlib.import_module(f"pdocrl.cli.{module}"), function):
            found.append(name)
    return found


def test_the_overview_names_every_command(run_cli: Run) -> None:
    for arguments in ([], ["--help"]):
        status, out, _ = run_cli(*arguments)
        assert status == 0
        assert all(f"pdocrl {name}" in out for name in cli.COMMANDS)


def test_a_family_shows_its_own_commands_only(run_cli: Run) -> None:
    status, out, _ = run_cli("data")
    assert status == 0
    assert "pdocrl data info" in out
    assert "pdocrl tasks" not in out


@pytest.mark.parametrize("name", built_commands())
def test_about_a_dozen_options_stand_in_plain_sight(name: str) -> None:
    module, function, _ = cli.COMMANDS[name]
    taken = inspect.signature(getattr(importlib.import_module(f"pdocrl.cli.{module}"), function)).parameters.values()
    options = [one for one in taken if one.kind is not one.POSITIONAL_ONLY]
    plain = [one.name for one in options if not dataclasses.is_dataclass(one.default)]
    assert len(plain) <= 12, plain


@pytest.mark.parametrize("name", built_commands())
def test_a_switch_has_one_form(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`--json` or `--no-play`; never `--no-no-train`, `--no-json`, nor a name that ends in "-only"."""
    with pytest.raises(SystemExit):
        cli.main([*name.split(), "--help"])
    switches = set(re.findall(r"(?<![`\w-])--[a-z-]+", capsys.readouterr().out))
    assert "--json" in switches
    assert not [one for one in switches if one.startswith("--no-no-") or one.endswith("-only")]
    assert not [one for one in switches if one.replace("--no-", "--") in switches - {one}]


def test_the_negation_of_a_switch_that_is_off_changes_nothing(run_cli: Run) -> None:
    assert run_cli("agents", "--no-json") == run_cli("agents")
    assert run_cli("ope", "nowhere", "--no-compare") == run_cli("ope", "nowhere")


@pytest.mark.parametrize("name", built_commands())
def test_help_explains_every_option_and_gives_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main([*name.split(), "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert f"pdocrl {name}" in text.split("Example", 1)[1]
    module, function, _ = cli.COMMANDS[name]
    command = getattr(importlib.import_module(f"pdocrl.cli.{module}"), function)
    described = (inspect.getdoc(command) or "").split("Args:", 1)[-1]
    for parameter, found in inspect.signature(command).parameters.items():
        if dataclasses.is_dataclass(found.default):  # a group of options: each is described under its field
            group = inspect.getsource(type(found.default))
            for field in dataclasses.fields(found.default):
                says = re.search(rf'    {field.name}: .*\n    """\w', group)
                assert says, f"`{field.name}` of `{name}` is not described"
                assert f"--{field.name.replace('_', '-')}" in text
        else:
            assert f"{parameter}:" in described, f"`{parameter}` of `{name}` is not described"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["taskss"], "unknown command `taskss`. Did you mean `tasks`? `pdocrl --help` lists all."),
        (["data", "inof"], "unknown command `data inof`. Did you mean `data info`? `pdocrl data --help` lists all."),
        (["data", "filter", "BallRun", "--out", "x.npz", "--seed", "one"], "See `pdocrl data filter --help`."),
        (["data", "info"], "See `pdocrl data info --help`."),
        (["tasks", "--jsn"], "See `pdocrl tasks --help`."),
    ],
)
def test_a_wrong_command_line_is_one_line_and_status_2(run_cli: Run, arguments: list[str], message: str) -> None:
    status, out, err = run_cli(*arguments)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("error: ")
    assert message in err


def test_an_interrupt_ends_with_130(run_cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_parse_and_run", interrupted)
    assert run_cli("tasks")[0] == 130


def test_an_error_of_several_lines_is_printed_as_one(run_cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise PdocrlError("first\nsecond")

    monkeypatch.setattr(cli, "_parse_and_run", fails)
    assert run_cli("tasks") == (2, "", "error: first second\n")


def test_help_and_misspellings_load_no_heavy_library() -> None:
    code = (
        "import sys; from pdocrl.cli import main as cli; cli.main([]); cli.main(['tsks']); "
        "heavy = {'jax', 'matplotlib', 'pyarrow', 'duckdb', 'h5py', 'scipy'} & set(sys.modules); sys.exit(bool(heavy))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_a_closed_pipe_is_not_an_error() -> None:
    command = f"{sys.executable} -m pdocrl.cli.main tasks --json | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    from importlib.metadata import version

    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"pdocrl {version('pdocrl')}\n"


def test_tasks_prints_the_tasks_of_both_simulators_as_one_json_object(run_cli: Run) -> None:
    status, out, err = run_cli("tasks", "--json")
    tasks = {task["name"]: task for task in json.loads(out)["tasks"]}
    assert (status, err) == (0, "")
    assert len(tasks) == 8 + 21 + 9  # Bullet, Safety-Gymnasium, MetaDrive
    assert tasks["AntCircle"] == {
        "name": "AntCircle",
        "horizon": 500,
        "env_id": "SafetyAntCircle-v0",
        "obs_dim": 34,
        "action_dim": 8,
        "reward_min": 0.0177031010389328,
        "reward_max": 460.7091979980469,
        "cost_max": 200.0,
        "files": ["SafetyAntCircle-v0-200-5728.hdf5"],
        "costs": [],
        "cost_function": None,
        "render_mode": None,
    }


def test_tasks_prints_a_table_with_a_row_for_each(run_cli: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[MyRobot]\nhorizon = 400\nreward_max = 250.0\n")
    _, out, _ = run_cli("tasks", "--tasks-file", str(tmp_path / "mine.toml"))
    for name in ("BallRun", "CarCircle", "MyRobot"):
        assert name in out
    for heading in ("horizon", "obs", "act", "reward min", "reward max", "cost max", "environment", "files"):
        assert heading in out

"""`pdocrl install`: what it would run, which engine each platform gets, and what it says where it cannot."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest
from packaging.markers import Marker

from pdocrl.envs import install
from pdocrl.errors import PdocrlError


def engines(python: str, system: str, machine: str) -> list[str]:
    """The engines that bullet.txt asks for there."""
    text = install._requirements("bullet").read_text().replace("\\\n", " ")
    lines = [line.split("--hash")[0] for line in text.splitlines() if line.startswith("pybullet")]
    where = {"python_version": python, "sys_platform": system, "platform_machine": machine}
    return [line.split(";")[0].strip() for line in lines if Marker(line.split(";")[1].strip()).evaluate(where)]


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize(
    ("system", "machine"), [("linux", "x86_64"), ("darwin", "arm64"), ("darwin", "x86_64"), ("win32", "AMD64")]
)
def test_every_platform_gets_one_engine_and_pybullet_itself_where_it_has_a_wheel(
    python: str, system: str, machine: str
) -> None:
    own = (python, system) == ("3.11", "linux")
    assert engines(python, system, machine) == ["pybullet==3.2.7" if own else "pybullet-arm64==3.2.8"]


@pytest.mark.parametrize("simulator", install.SIMULATORS)
def test_third_party_pins_are_left_out_and_every_file_is_hash_checked(simulator: str, tmp_path: Path) -> None:
    *before, last = install.commands(simulator, tmp_path)
    assert {"--no-deps", "--require-hashes", "--no-index"} <= set(last)
    assert len(before) == (simulator == "safety-gymnasium")
    for line in install._requirements(simulator).read_text().replace("\\\n", " ").splitlines():
        assert line.startswith("#") or "--hash=sha256:" in line


def test_a_dry_run_prints_the_command_and_runs_nothing(run_cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install.subprocess, "run", lambda *_, **__: pytest.fail("something was run"))
    status, out, _ = run_cli("install", "bullet", "--dry-run")
    assert status == 0
    assert "-m pip install --no-deps" in out
    assert out.strip().endswith("bullet.txt")


def test_an_empty_folder_of_wheels_is_one_line_with_the_remedy(
    run_cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "_refuse_two_engines", lambda: None)
    # Into a folder of its own, so that what is installed here does not count.
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "target"))
    status, _, err = run_cli("install", "bullet", "--wheels", str(tmp_path))
    assert status == 2
    assert "No matching distribution" in err.splitlines()[-1]
    assert "Linux x86-64, macOS and Windows" in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "said"), [(["bulet"], "Did you mean `bullet`"), (["bullet", "--wheels", "nowhere"], "no folder")]
)
def test_bad_input_is_one_line(run_cli, arguments: list[str], said: str) -> None:
    status, _, err = run_cli("install", *arguments)
    assert status == 2
    assert said in err
    assert len(err.splitlines()) == 1


def test_the_other_build_of_the_engine_has_to_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        name = "pybullet_arm64"

    monkeypatch.setattr(importlib.metadata, "distributions", lambda: [Other()])
    monkeypatch.setattr(install.sysconfig, "get_platform", lambda: "linux-x86_64")
    monkeypatch.setattr(install.sys, "version_info", (3, 11, 0))
    with pytest.raises(PdocrlError, match="pip uninstall pybullet-arm64"):
        install._refuse_two_engines()


def test_a_seeded_episode_has_the_same_digest_twice() -> None:
    pytest.importorskip("pybullet", reason="the simulator is not installed: pdocrl install bullet")
    first, second = install.play_seeded("BallRun"), install.play_seeded("BallRun")
    assert first == second
    assert first.steps == 100
    assert install.play_seeded("BallRun", seed=1).digest != first.digest

"""`pdocrl install`: what it would run, which engine each platform gets, and what it says where it cannot."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import numpy as np
import pytest
from packaging.markers import Marker

from pdocrl.data.tasks import find_task
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
    assert f"pip download --dest {tmp_path} --no-deps --only-binary :all: -r " in err.splitlines()[-1]


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


def test_agreement_tells_rounding_from_another_episode() -> None:
    known = install.references()["AntCircle"]
    rows = np.array(known.first)
    assert install.agreement(known, known.digest + "00", rows) == "bits"
    assert install.agreement(known, "ff", rows + 1e-12) == "rounding"
    assert install.agreement(known, "ff", rows + 1e-6) == "different"
    assert install.agreement(known, "ff", rows[:-1]) == "different"


def played(agreement: install.Agreement | None) -> install.Played:
    return install.Played(task="CarRun", steps=200, reward=1.0, cost=0.0, digest="ff", agreement=agreement)


def test_what_the_agreement_means_is_said_and_another_episode_is_an_error() -> None:
    assert install.explain([played("bits"), played(None)]) == ""
    assert "OPENBLAS_CORETYPE" in install.explain([played("bits"), played("rounding")])
    with pytest.raises(PdocrlError, match="other episodes than the reference in CarRun"):
        install.explain([played("rounding"), played("different")])


def test_every_task_has_a_reference_of_its_first_steps() -> None:
    known = install.references()
    assert set(known) == set(install.SIMULATORS["bullet"])
    for task, reference in known.items():
        assert np.array(reference.first).shape == (install.FIRST_STEPS + 1, (find_task(task).obs_dim or 0) + 2)


def test_every_task_is_played_in_a_new_process_and_agrees_with_its_reference() -> None:
    pytest.importorskip("pybullet", reason="the simulator is not installed: pdocrl install bullet")
    found = install.verify("bullet")
    assert [episode.task for episode in found] == list(install.SIMULATORS["bullet"])
    assert {episode.agreement for episode in found} <= {"bits", "rounding"}


def test_an_episode_that_cannot_be_played_is_one_line() -> None:
    with pytest.raises(PdocrlError, match="nothing is installed, but its first episode fails: 'nothing'"):
        install.verify("nothing")


def test_a_seeded_episode_repeats_and_agrees_with_the_reference_on_any_cpu() -> None:
    pytest.importorskip("pybullet", reason="the simulator is not installed: pdocrl install bullet")
    first, second = install.play_seeded("BallCircle"), install.play_seeded("BallCircle")
    assert first == second
    assert first.steps == 200
    assert first.agreement in {"bits", "rounding"}
    other = install.play_seeded("BallCircle", seed=1)
    assert other.digest != first.digest
    assert other.agreement is None

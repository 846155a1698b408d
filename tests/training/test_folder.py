"""A training's folder: one process at a time, nothing lost to signals or a full disk, nothing silently ignored."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pdocrl import files
from pdocrl.cli.main import main
from pdocrl.data import load, save
from pdocrl.errors import PdocrlError
from pdocrl.training import folder as folders
from pdocrl.training.config import TrainingConfig
from pdocrl.training.folder import load_trained, locked
from pdocrl.training.train import resume, train
from probes import bandit

SETTINGS = {"hidden": (8,), "batch_size": 16}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "bandit.npz"
    save(bandit(n=200).dataset, path)
    return path


def begin(data: Path, out: Path, steps: int = 40, **options: object) -> None:
    train(data, "bc", cost_limit=2.0, steps=steps, settings=SETTINGS, out=out, checkpoint_every=20, **options)


def test_a_second_process_on_one_folder_is_refused_and_the_first_is_left_alone(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with locked(out):
        line = [
            sys.executable,
            "-m",
            "pdocrl.cli.main",
            "train",
            str(data),
            "--agent",
            "bc",
            "--steps",
            "1",
            "--out",
            str(out),
        ]
        ended = subprocess.run(line, capture_output=True, text=True)
        assert ended.returncode == 2
        assert ended.stderr == (
            f"error: {out}: another process is training here. Wait for it, or choose another folder (--out).\n"
        )
    assert not out.exists()  # what did not begin leaves nothing behind
    begin(data, out)


def test_resume_extends_to_the_bits_of_one_long_training(data: Path, tmp_path: Path) -> None:
    begin(data, tmp_path / "long", 60)
    begin(data, tmp_path / "short", 40)
    assert main(["train", "--resume", str(tmp_path / "short"), "--steps", "60"]) == 0
    obs = np.linspace(-1, 1, 7)[:, None]
    acted = [load_trained(tmp_path / name).policies[0](obs) for name in ("long", "short")]
    np.testing.assert_array_equal(*acted)
    assert TrainingConfig.read(tmp_path / "short").steps == 60
    with pytest.raises(PdocrlError, match="is at step 60 already, beyond the 50 asked for"):
        resume(tmp_path / "short", steps=50)


@pytest.mark.parametrize(
    "option", [["--agent", "pdocrl"], ["--cost-limit", "10"], ["--set", "gamma=0.9"], ["--out", "x"]]
)
def test_resume_refuses_other_options(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: list[str]
) -> None:
    """Also those that repeat a default, which could not be told from options that were not given."""
    assert main(["train", "--resume", str(tmp_path), *option]) == 2
    assert f"{option[0]} cannot be changed: --resume goes on as" in capsys.readouterr().err


def test_data_is_found_again_from_another_folder(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data.parent)
    begin(Path(data.name), tmp_path / "run", 20)
    monkeypatch.chdir(tmp_path)
    assert resume(tmp_path / "run", steps=40).step == 40
    assert TrainingConfig.read(tmp_path / "run").data == str(data)


def test_data_that_no_path_leads_to_is_asked_for(data: Path, tmp_path: Path) -> None:
    part = load(data).episodes([0, 1, 2])
    train(part, "bc", cost_limit=2.0, steps=2, settings=SETTINGS, out=tmp_path / "run")
    with pytest.raises(PdocrlError, match=r"bandit.npz, was in memory, or a part of a file; give it: pdocrl.resume"):
        resume(tmp_path / "run", steps=4)
    assert resume(tmp_path / "run", part, steps=4).step == 4
    with pytest.raises(PdocrlError, match=r"holds a training already. Go on with `pdocrl.resume\("):
        train(part, "bc", cost_limit=2.0, steps=2, settings=SETTINGS, out=tmp_path / "run")
    with pytest.raises(PdocrlError) as refused:
        train(part, "cpq", steps=2)
    assert "give cost_limit=…" in str(refused.value)
    assert "--" not in str(refused.value)


def test_terminate_saves_like_an_interrupt(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    line = [sys.executable, "-m", "pdocrl.cli.main", "train", str(data), "--agent", "bc", "--steps", "100000000"]
    line += ["--cost-limit", "2", "--set", "hidden=8,8", "--checkpoint-every", "100000000", "--out", str(out)]
    process = subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    while not (out / "metrics.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert f"pdocrl train --resume {out}" in errors
    assert load_trained(out).step > 0


def test_a_full_disk_at_a_checkpoint_is_one_line_and_loses_nothing(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    begin(data, out, 20)
    before = {name: (out / name).read_bytes() for name in (folders.CHECKPOINT, folders.POLICIES)}

    def full(self: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(PdocrlError, match=r"step 40: cannot write .*No space left.*pdocrl\.resume"):
        resume(out, steps=40)
    monkeypatch.undo()
    assert (out / folders.CHECKPOINT).read_bytes() == before[folders.CHECKPOINT]
    assert [path.name for path in out.iterdir() if "partial" in path.name] == []
    assert resume(out).step == 40


def test_a_foreign_run_file_is_named_with_its_field(data: Path, tmp_path: Path) -> None:
    begin(data, tmp_path / "run", 20)
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    files.write_json(tmp_path / "run" / "run.json", {**told, "steps": "many"})
    with pytest.raises(PdocrlError, match=r"run\.json: field `steps`: expected `int`, got `str`"):
        TrainingConfig.read(tmp_path / "run")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"log_every": 0}, "log_every is 0, must be at least 1"),
        ({"checkpoint_every": 0}, "checkpoint_every is 0"),
        ({"seed": [0, 1, 0]}, "seed 0 is given twice"),
        ({"seed": -1}, "seed -1 must be between"),
        ({"cost_limit": [2, 2.0]}, "cost limit 2.0 is given twice"),
        ({"cost_limit": float("nan")}, "cost limits must be numbers"),
        ({"steps": 0}, "steps is 0"),
        ({"horizon": 0}, "horizon is 0"),
        ({"settings": {"gamma": 2.0}}, "gamma of bc is 2.0, must be at least 0 and below 1"),
        ({"settings": {"actor_rate": -1.0}}, "actor_rate of bc is -1.0, must be at least 0"),
        ({"settings": {"hidden": (-3,)}}, r"hidden of bc is \(-3,\), must be at least 1"),
        ({"settings": {"batch_size": 0}}, "batch_size of bc is 0, must be at least 1"),
        ({"settings": {"actor_rate": float("inf")}}, "actor_rate of bc is inf, must be finite"),
        ({"task": "BallRun"}, "obs_dim is 1, task BallRun has 7|`obs"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    data: Path, tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(PdocrlError, match=message):
        train(data, "bc", **{"cost_limit": 2.0, "steps": 2, "out": tmp_path / "run", **options})  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_a_task_that_is_not_the_datas_is_refused() -> None:
    with pytest.raises(PdocrlError, match="BallRun is data of task BallRun, not of CarRun"):
        train("BallRun", "bc", task="CarRun", steps=1)


def test_bare_numbers_are_taken_for_limits_and_seeds(data: Path) -> None:
    found = train(data, "bc", cost_limit=2, seed=3, steps=2, settings=SETTINGS)
    assert found.config.runs == [{"cost_limit": [2.0], "seed": 3}]
    assert repr(found) == "Trained(bc on bandit.npz: 1 policies at step 2)"

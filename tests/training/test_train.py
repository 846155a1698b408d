"""`train` and `resume`: killed or interrupted, the final policy is the same to the last bit."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pdocrl.cli.main import main
from pdocrl.data import load, save
from pdocrl.errors import PdocrlError
from pdocrl.policies import policy as policies
from pdocrl.training.folder import load_trained
from pdocrl.training.train import resume, train
from probes import bandit

SETTINGS = {"hidden": (8, 8), "model_hidden": (8, 8), "batch_size": 16}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "bandit.npz"
    save(bandit(n=400).dataset, path)
    return path


def command(data: Path, out: Path, steps: int = 4000) -> list[str]:
    return [
        sys.executable,
        "-m",
        "pdocrl.cli.main",
        "train",
        str(data),
        "--cost-limit",
        "2",
        "3",
        "--seed",
        "0",
        "--steps",
        str(steps),
        "--log-every",
        "200",
        "--checkpoint-every",
        "200",
        "--set",
        "hidden=8,8",
        "model_hidden=8,8",
        "batch_size=16",
        "--out",
        str(out),
    ]


def actions(folder: Path) -> np.ndarray:
    obs = np.linspace(-2, 2, 9, dtype=np.float32)[:, None]
    return np.stack([policy(obs) for policy in load_trained(folder).policies])


@pytest.fixture(scope="module")
def uninterrupted(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert main(command(data, folder)[3:]) == 0
    return folder


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    for _ in range(3000):
        if path.exists():
            return
        assert process.poll() is None, "ended before its first checkpoint"
        time.sleep(0.02)
    raise AssertionError("no checkpoint within a minute")


def test_killed_training_resumes_to_the_same_bits(data: Path, uninterrupted: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = subprocess.Popen(command(data, folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(folder / "checkpoint.safetensors", process)
    process.kill()
    process.wait()
    assert not (folder / "policies.npz").exists()  # a dial's are made at the end
    assert main(["train", "--resume", str(folder)]) == 0
    np.testing.assert_array_equal(actions(folder), actions(uninterrupted))
    # no line of metrics is lost or doubled
    steps = [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert steps == [s for s in range(200, 4001, 200) for _ in range(2)]


def test_interrupt_saves_and_says_how_to_go_on(data: Path, uninterrupted: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = subprocess.Popen(command(data, folder), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wait_for(folder / "checkpoint.safetensors", process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"pdocrl train --resume {folder}" in errors.decode()
    assert main(["train", "--resume", str(folder)]) == 0
    np.testing.assert_array_equal(actions(folder), actions(uninterrupted))


def test_another_dataset_is_refused(data: Path, uninterrupted: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.npz"
    save(bandit(n=400, seed=1).dataset, other)
    with pytest.raises(PdocrlError, match="give the file it was trained on"):
        resume(uninterrupted, other)


def test_another_agent_or_version_is_refused(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(data, cost_limit=[2.0], steps=2, settings=SETTINGS, out=folder)
    plan = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**plan, "agent": "pdocrl_extraction"}))
    with pytest.raises(PdocrlError, match="agent is not that of"):
        resume(folder)
    (folder / "run.json").write_text(json.dumps(plan))
    raw = (folder / "checkpoint.safetensors").read_bytes()
    (folder / "checkpoint.safetensors").write_bytes(raw.replace(b'\\"pdocrl\\": \\"0.', b'\\"pdocrl\\": \\"9.'))
    with pytest.raises(PdocrlError, match=r"made by pdocrl 9\."):
        resume(folder)


def test_a_folder_with_a_training_is_not_overwritten(uninterrupted: Path, data: Path) -> None:
    with pytest.raises(PdocrlError, match="holds a training already"):
        train(data, cost_limit=[2.0], steps=2, settings=SETTINGS, out=uninterrupted)


def test_grid_of_limits_seeds_and_variants(data: Path) -> None:
    found = train(data, cost_limit=[2.0, 3.0], seed=[0, 1], vary={"gamma": [0.9, 0.95]}, steps=2, settings=SETTINGS)
    assert len(found.policies) == 8
    assert {(r["cost_limit"][0], r["seed"], r["gamma"]) for r in found.config.runs} == {
        (c, s, g) for c in (2.0, 3.0) for s in (0, 1) for g in (0.9, 0.95)
    }


def test_policies_file_is_read_back_exactly(uninterrupted: Path) -> None:
    found, metadata = policies.load_all(uninterrupted / "policies.npz")
    assert metadata["step"] == 4000
    assert len(found) == 2
    assert found[0].network.weights[0].shape == (1 + 2 + 8, 8)  # a dial sees more than the state


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "which data?"),
        (["train", "BallRnu"], "Did you mean `BallRun`"),
        (["train", "BallRun", "--agent", "pdocl"], "Did you mean `pdocrl`"),
        (["train", "BallRun", "--set", "gama=1"], "Did you mean `gamma`"),
        (["train", "BallRun", "--set", "gamma"], "is not of the form name=value"),
        (["train", "BallRun", "--set", "hidden=8"], "Write several with commas, and one as 8,"),
        (["train", "BallRun", "--cost-limit", "ten"], "is not a number"),
        (["train", "--resume", "nowhere"], "no run.json here"),
        (["evaluate", "nowhere"], "no run.json here"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_limit_on_costs_that_are_not_there_is_refused_and_a_short_horizon_is_asked_about(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = load(data)
    free = dataclasses.replace(whole, cost=whole.cost[:, :0], cost_names=())
    with pytest.raises(PdocrlError, match=r"1 cost limit\(s\) given, .* has 0 cost"):
        train(free, "bc", cost_limit=2.0, steps=1, settings={"hidden": (8,)})
    train(free, "bc", steps=1, settings={"hidden": (8,)})
    assert "horizon" not in capsys.readouterr().err
    train(
        dataclasses.replace(whole, timeout=whole.timeout & False, terminal=whole.terminal & False),
        "bc",
        horizon=5,
        steps=1,
        settings={"hidden": (8,)},
    )
    assert "longer than the horizon of 5 steps (longest: 400)" in capsys.readouterr().err


def test_a_limit_that_is_not_predicted_to_be_satisfied_is_said(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two limits one is below every predicted bound; without a simulator, `ope` is what comes next."""
    target = np.asarray([[0.0], [5.0]], np.float32)
    dial = policies.DialPolicy(
        (),
        (),
        20.0,
        np.asarray([10.0], np.float32),
        (1.0,),
        np.ones(2, np.float32),
        target,
        target + 1e6,
        np.asarray([1.0, 2.0], np.float32),
        np.asarray([[2.5], [6.0]], np.float32),
        np.asarray([[1.5], [4.0]], np.float32),
    )
    made = train(data, "bc", cost_limit=[1.0, 7.0], steps=1, settings={"hidden": (8,)}, out=tmp_path / "run")
    told = dataclasses.replace(made, policies=[dial, dial.with_limit((7.0,))])
    monkeypatch.setattr("pdocrl.training.train.train", lambda *_, **__: told)
    assert main(["train", str(data)]) == 0
    said = capsys.readouterr().out
    assert "run 0: cost limit 1 is not predicted to be satisfied; the setting that exceeds it least acts" in said
    assert "run 1: cost limit 7 is predicted to be satisfied: predicted cost 4 (bound 6)." in said
    assert "judge them from the data with: pdocrl ope" in said
    assert main(["train", str(data), "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert runs[1]["predicted_cost"] == [4.0]
    assert [run["predicted_within"] for run in runs] == [False, True]


def test_sinks_write_what_the_metrics_say(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    train(
        data, cost_limit=[2.0], steps=20, log_every=10, settings=SETTINGS, out=tmp_path / "run", loggers=["tensorboard"]
    )
    assert list((tmp_path / "run" / "tensorboard").rglob("events*"))
    with pytest.raises(PdocrlError, match="Did you mean `tensorboard`"):
        train(data, cost_limit=[2.0], steps=2, settings=SETTINGS, out=tmp_path / "b", loggers=["tensorbord"])


def test_no_signal_handler_is_left_behind(data: Path) -> None:
    """After a training, Ctrl-C must reach Python again."""
    before = signal.getsignal(signal.SIGINT)
    train(data, cost_limit=[2.0], steps=2, settings=SETTINGS)
    assert signal.getsignal(signal.SIGINT) is before

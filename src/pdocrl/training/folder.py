"""Where a training lies: its folder, written so that a kill, a full disk or a second process loses nothing.

out/run.json                what was asked: agent, settings, runs, data and its digest, versions
out/checkpoint.safetensors  the whole state, the last one written
out/policies.npz            the policies of that moment, all that evaluation and export need
out/metrics.jsonl           one line per run and stop: step, metrics
out/evaluations.jsonl       one line per run and evaluation in the simulator, when asked for
out/lock                    held by the process that trains; two at once would overwrite each other
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import zipfile
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pdocrl.agents.base import Agent
from pdocrl.data.dataset import Dataset
from pdocrl.errors import PdocrlError, by_door
from pdocrl.files import atomic_path, lock_file, naming, write_text
from pdocrl.policies import policy as policies
from pdocrl.policies.onnx import to_onnx
from pdocrl.policies.standalone import joined_source
from pdocrl.records import write_record
from pdocrl.training import checkpoint
from pdocrl.training.config import FILE, TrainingConfig
from pdocrl.training.trained import CHECKPOINT as CHECKPOINT
from pdocrl.training.trained import Trained as Trained
from pdocrl.training.trainer import Trainer

POLICIES = "policies.npz"
METRICS = "metrics.jsonl"
EVALUATIONS = "evaluations.jsonl"


@contextlib.contextmanager
def locked(folder: Path | None) -> Iterator[None]:
    """Hold a training's folder, made where it is missing; refused while another process holds it.

    What could not begin leaves nothing behind.
    """
    if folder is None:
        yield
        return
    fresh = not folder.exists()
    lock = folder / "lock"
    with naming(lock):
        folder.mkdir(parents=True, exist_ok=True)
        file = lock.open("a")
    with file:
        try:
            lock_file(file)
        except OSError:
            raise PdocrlError(
                f"{folder}: another process is training here. Wait for it, or choose another folder "
                f"({by_door('out=…', '--out')})."
            ) from None
        try:
            yield
        finally:
            if not (folder / FILE).exists():
                lock.unlink(missing_ok=True)
                if fresh and not any(folder.iterdir()):
                    folder.rmdir()


def begin(config: TrainingConfig, folder: Path | None, step: int) -> list[dict[str, Any]]:
    """Write run.json, and forget lines a killed training wrote after its last checkpoint: they will come again.

    Returns the lines of metrics that stay.
    """
    if folder is None:
        return []
    write_record(folder / FILE, config)
    kept: list[dict[str, Any]] = []
    for name in (EVALUATIONS, METRICS):
        path = folder / name
        kept = [line for line in read_lines(path) if line["step"] <= step]
        if path.exists():
            write_text(path, "".join(json.dumps(line) + "\n" for line in kept))
    return kept


def add_lines(folder: Path, name: str, lines: Sequence[dict[str, Any]]) -> None:
    """Append to a file of lines."""
    with naming(folder / name), (folder / name).open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def save(
    config: TrainingConfig,
    trainer: Trainer,
    folder: Path,
    last: bool,
    callbacks: Sequence[dict[str, Any]] = (),
) -> None:
    """The whole state, and the policies if they are quickly made or this is the last time.

    Where there is no room, what lay there before stays as it was. The state goes first: whoever asked to stop may not
    wait for slow policies.
    """
    metadata = {
        "agent": config.agent,
        "data_digest": config.data_digest,
        "runs": config.runs,
        "step": trainer.step,
        "failures": trainer.failures,
        "problem": dataclasses.asdict(trainer.problem),
        "versions": config.versions,
        "callbacks": list(callbacks),
    }
    try:
        checkpoint.save(folder / CHECKPOINT, trainer.state, metadata)
        if last or trainer.agent.quick_policy:
            with atomic_path(folder / POLICIES) as path:
                policies.save(path, trainer.policies(), {"step": trainer.step, "failures": trainer.failures})
    except PdocrlError as error:
        raise PdocrlError(
            f"step {trainer.step}: {str(error).split(' Nothing was written')[0]} The last checkpoint is whole: make "
            f"room, then go on with {how_to_resume(folder)}."
        ) from error


def how_to_resume(folder: Path) -> str:
    """The line that goes on with a training."""
    return by_door(f"`pdocrl.resume({str(folder)!r})`", f"`pdocrl train --resume {folder}`")


def read_callbacks(folder: Path) -> list[dict[str, Any]]:
    """What the callbacks of a training remembered at its last checkpoint."""
    path = folder / CHECKPOINT
    return list(checkpoint.read_metadata(path).get("callbacks", [])) if path.exists() else []


def restore(folder: Path, config: TrainingConfig, dataset: Dataset, agent: Agent[Any, Any] | None = None) -> Trainer:
    """The trainer as its checkpoint left it, or a fresh one before the first; refused when the data, the agent or the
    version is another."""
    if dataset.digest != config.data_digest:
        raise PdocrlError(
            f"{folder}: trained on data of digest {config.data_digest[:12]}…, {dataset.name} has "
            f"{dataset.digest[:12]}…; give the file it was trained on."
        )
    metadata = checkpoint.read_metadata(folder / CHECKPOINT) if (folder / CHECKPOINT).exists() else None
    if metadata is not None:
        for what, here in {"agent": config.agent, "data_digest": config.data_digest, "runs": config.runs}.items():
            if metadata[what] != here:
                raise PdocrlError(
                    f"{folder}: the checkpoint's {what} is not that of run.json; they are of two trainings."
                )
        made_by, this = metadata["versions"]["pdocrl"], version("pdocrl")
        if made_by != this:
            raise PdocrlError(f"{folder}: made by pdocrl {made_by}, this is {this}. Go on with that version.")
    agent = agent or config.find_agent()
    trainer = Trainer(agent, dataset, config.make_runs(agent))
    if metadata is not None:
        trainer.state, _ = checkpoint.load(folder / CHECKPOINT, trainer.state)
        trainer.step = metadata["step"]
        trainer.failures = {int(run): why for run, why in metadata["failures"].items()}
    return trainer


def load_trained(folder: str | os.PathLike[str]) -> Trained:
    """The policies a training has reached. Needs neither the dataset nor the optimisers' state."""
    folder = Path(folder)
    config = TrainingConfig.read(folder)
    try:
        found, metadata = policies.load_all(folder / POLICIES)
    except FileNotFoundError:
        raise PdocrlError(f"{folder}: no policies yet. Go on with {how_to_resume(folder)}.") from None
    except (ValueError, OSError, KeyError, zipfile.BadZipFile) as error:
        raise PdocrlError(f"{folder / POLICIES}: cannot be read ({error}).") from error
    failures = {int(run): why for run, why in metadata["failures"].items()}
    return Trained(config, metadata["step"], found, failures, read_lines(folder / METRICS), folder)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file; a last line cut by a kill is dropped."""
    found: list[dict[str, Any]] = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
    return found


def train_seconds(metrics: list[dict[str, Any]]) -> float | None:
    """Time in the training loop, from the rates it logged; None where it logged none."""
    seconds, before = 0.0, 0
    for line in metrics:
        if line["step"] > before:
            seconds += (line["step"] - before) / line["steps_per_second"]
            before = line["step"]
    return seconds if before else None


def export(folder: str | os.PathLike[str], out: str | os.PathLike[str], run: int = 0, onnx: bool = True) -> list[Path]:
    """Write out/policy.npz, out/policy.py (its reader, NumPy alone) and out/policy.onnx; returns their paths."""
    found = load_trained(folder)
    if not 0 <= run < len(found.policies):
        raise PdocrlError(f"{folder}: run {run} does not exist; there are runs 0 to {len(found.policies) - 1}.")
    policy, out = found.policies[run], Path(out)
    model = to_onnx(policy) if onnx else None  # before anything is written: its package may be missing
    with atomic_path(out / "policy.npz") as path:
        policies.save(path, [policy], {"agent": found.config.agent, "step": found.step, **found.config.runs[run]})
    write_text(out / "policy.py", joined_source())
    written = [out / "policy.npz", out / "policy.py"]
    if model is not None:
        with atomic_path(out / "policy.onnx") as path:
            path.write_bytes(model.SerializeToString())
        written.append(out / "policy.onnx")
    return written

"""The engine of one machine: one group after the other, each with all cores or the GPU, roll-outs in a pool.

On an accelerator one method's groups on several tasks are trained as one program, where the agent can."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from pdocrl.agents.base import Agent
from pdocrl.agents.registry import find_agent
from pdocrl.bench.group import folder_of, know_task, look, read_data, take_up_shorter, told, train_group, train_groups
from pdocrl.bench.player import EVALUATION_SEED
from pdocrl.bench.rates import Rates, timed
from pdocrl.bench.results import GroupStatus
from pdocrl.bench.suite import Group
from pdocrl.console import log
from pdocrl.data.dataset import Dataset
from pdocrl.errors import PdocrlError, PdocrlInterrupted


@dataclasses.dataclass(frozen=True)
class Work:
    """What an engine is asked to do."""

    groups: Sequence[Group]  # that need training or scoring
    out: Path
    data: Path | None  # folder with dataset files
    train: bool = True
    evaluate: bool = True


def run(work: Work, report: Callable[[GroupStatus], None], rates: Rates) -> None:
    """Do it; every group that ends is reported, also one that failed, which does not stop the others."""
    for batched in multi_task_batches(work.groups, work.out, work.data) if work.train else []:
        _train_groups(batched, work, rates)
    loaded: tuple[Path, Dataset] | None = None  # groups of one task come one after the other
    for number, group in enumerate(work.groups, start=1):
        folder = folder_of(group, work.out)
        where = f"[{number}/{len(work.groups)}] {group.name}"
        try:
            know_task(group)
            status = look(group, work.out, work.data)
            if status.status == "waiting" and work.train:
                path = group.find_data(work.data)
                if loaded is None or loaded[0] != path:
                    loaded = path, read_data(group, work.data)
                log(f"{where}: training {group.runs} runs, {group.steps:,} steps")
                fresh = not take_up_shorter(group, work.out) and not (folder / "run.json").exists()
                with timed() as clock:
                    trained = train_group(group, folder, loaded[1])
                rates.learn_training(group, trained, clock.seconds if fresh else None)
                status = look(group, work.out, work.data)
            if status.status == "trained" and work.evaluate and group.task.env_id is not None:
                status = _evaluate(group, folder, where, work, rates)
        except (KeyboardInterrupt, PdocrlInterrupted):
            raise
        except Exception as error:  # whatever broke this group, the others can still be had
            status = told(group, "failed", reason_of(error))
        if status.status == "failed":
            log(f"{where}: failed: {status.reason}")
        report(status)


def multi_task_batches(groups: Sequence[Group], out: Path, data: Path | None) -> list[list[Group]]:
    """Groups that one program can train: of one method, none of them begun, on an accelerator."""
    import jax

    found: dict[tuple[object, ...], list[Group]] = {}  # by what the groups of one program must share
    for group in groups if jax.default_backend() != "cpu" else []:
        joins = type(find_agent(group.method.agent)).zero_padded is not Agent.zero_padded
        fresh = look(group, out, data).status == "waiting" and not (folder_of(group, out) / "run.json").exists()
        if joins and fresh:
            found.setdefault((group.method.name, group.seeds), []).append(group)
    return [batched for batched in found.values() if len(batched) > 1]


def _train_groups(batched: Sequence[Group], work: Work, rates: Rates) -> None:
    """Train them together; where that fails, each has its own turn later and tells why."""
    name, first = batched[0].method.name, batched[0]
    log(
        f"{name} on {len(batched)} tasks as one program: training {sum(g.runs for g in batched)} runs, "
        f"{first.steps:,} steps"
    )
    taken_up = [take_up_shorter(group, work.out) for group in batched]
    try:
        with timed() as clock:
            trained = train_groups(batched, [folder_of(group, work.out) for group in batched], work.data)
        for group, part in zip(batched, trained, strict=True):
            rates.learn_training(group, part, None if any(taken_up) else clock.seconds, len(batched))
    except (KeyboardInterrupt, PdocrlInterrupted):
        raise
    except Exception as error:
        log(f"{name}: not as one program: {reason_of(error)}")


def _evaluate(group: Group, folder: Path, where: str, work: Work, rates: Rates) -> GroupStatus:
    from pdocrl.evaluation.evaluate import evaluate

    log(f"{where}: playing {group.runs} × {group.suite.episodes} episodes")
    with timed() as clock:
        evaluate(folder, group.suite.episodes, seed=EVALUATION_SEED)
    rates.learn_playing(group, clock.seconds)
    return look(group, work.out, work.data)


def reason_of(error: BaseException) -> str:
    """One line; the kind of error where it is not one of ours."""
    text = " ".join(str(error).split())
    return text if isinstance(error, PdocrlError) else f"{type(error).__name__}: {text}".rstrip(": ")

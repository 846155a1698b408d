"""Policies of every kind judged from data alone on the Bullet tasks, against what they cost in the simulator.

    python benchmarks/ope_bullet.py AntRun clones bc dial --data DATA --out ROWS.csv [--fits FITS]
    python benchmarks/ope_bullet.py AntRun runs/bench/groups/dial-AntRun --data DATA --out ROWS.csv
    python benchmarks/ope_bullet.py --show ROWS.csv …     every file's rows into results/ope_bullet.csv, and the tables

One process of one core per call, since every job plays, fits the ensemble of the data, and judges. Kinds of policies:
`clones` copy random parts of the data, most of them bent (`ope_clones.py`); `bc` copies the episodes within four
quantiles of the logged costs for 1,000, 4,000 and 16,000 steps; `dial` is trained for 3,000 steps, and asked for four
limits and four quantiles; a FOLDER is a training with scores. Each is judged at the limits 10, 20 and 40.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from ope_clones import clones
from ope_trained import AT_ONCE, CLONE, Row, judged, read, summary, table

import pdocrl
from pdocrl.console import log
from pdocrl.data.dataset import Dataset
from pdocrl.envs.rollout import Rollouts
from pdocrl.evaluation.evaluate import read_scores
from pdocrl.files import write_csv
from pdocrl.ope import Prepared
from pdocrl.training.folder import load_trained

RESULTS = Path(__file__).parent / "results" / "ope_bullet.csv"
TASKS = ("AntRun", "DroneCircle", "BallRun", "CarRun", "DroneRun", "BallCircle", "CarCircle")
QUANTILES = (0.15, 0.35, 0.6, 0.85)  # of the logged episodes' costs
LIMITS = (5.0, 10.0, 20.0, 40.0)
BC_STEPS, DIAL_STEPS = (1_000, 4_000, 16_000), 3_000
BC: dict[str, Any] = {"hidden": (128, 128), "batch_size": 128, "actor_rate": 1e-3, "episodes": "safe"}
DIAL: dict[str, Any] = {"hidden": (128, 128), "model_hidden": (64, 64), "batch_size": 128, "model_batch": 32}
Made = tuple[Row, Any]  # what a policy is, and the policy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", nargs="?", choices=TASKS)
    parser.add_argument("kinds", nargs="*", help="clones, bc, dial, or the folder of a training with scores")
    parser.add_argument("--data", type=Path, help="folder with one HDF5 file per task, named by it")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--fits", type=Path, help="folder where the fit of the data is kept; otherwise it is not")
    parser.add_argument("--seed", type=int, default=0, help="of what is trained, and of the choice of clones")
    parser.add_argument("--clones", type=int, default=24)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--shorter", type=int, default=1, help="divide the steps of all trainings by it")
    parser.add_argument("--show", type=Path, nargs="+")
    asked = parser.parse_args()
    if asked.show:
        return show(asked.show)
    began = time.monotonic()
    (file,) = [path for path in asked.data.glob("*.hdf5") if asked.task.lower() in path.name.lower()]
    data = pdocrl.load(file, asked.task)
    found: list[Made] = []
    for kind in asked.kinds:
        if kind in {"clones", "bc", "dial"}:
            found += played(asked.task, made(kind, asked.task, data, asked), asked.episodes)
        else:
            found += of_folder(Path(kind), asked.task)
        log(f"{asked.task}: {len(found)} policies played, {time.monotonic() - began:.0f} s")
    ready = Prepared.of(data, cache=asked.fits / f"{asked.task}.safetensors" if asked.fits else False)
    log(f"{asked.task}: fit of {len(ready.calibration.truth)} groups, {time.monotonic() - began:.0f} s")
    rows: list[Row] = []
    for first in range(0, len(found), AT_ONCE):
        rows += judged(asked.task, ready, found[first : first + AT_ONCE])
        write_csv(asked.out, rows)
        log(f"{asked.task}: {len(rows)} policies judged, {time.monotonic() - began:.0f} s")


def made(kind: str, task: str, data: Dataset, asked: Any) -> list[Made]:
    """Policies of one kind."""
    told = {"task": task, "seed": asked.seed}
    amounts = np.maximum(np.quantile(data.cost_return[:, 0], QUANTILES), 1.0).round(2).tolist()
    if kind == "clones":
        policies, bends = clones(data, asked.clones, 7 + asked.seed)
        rest = {"agent": CLONE, "limit": LIMITS[0], "steps": 1500}
        return [
            (told | rest | {"name": f"{CLONE}-{asked.seed}-{i}", "settings": {"bend": bend}}, policy)
            for i, (policy, bend) in enumerate(zip(policies, bends, strict=True))
        ]
    if kind == "bc":
        found = []
        for steps in (max(1, steps // asked.shorter) for steps in BC_STEPS):
            trained = pdocrl.train(data, "bc", task=task, cost_limit=amounts, seed=asked.seed, steps=steps, **BC)
            name = {"agent": "bc", "name": f"bc-{asked.seed}-{steps}", "steps": steps, "settings": {"episodes": "safe"}}
            found += [(told | name | {"limit": x}, p) for x, p in zip(amounts, trained.policies, strict=True)]
        return found
    steps = max(1, DIAL_STEPS // asked.shorter)
    trained = pdocrl.train(data, "dial", task=task, cost_limit=[amounts[0]], seed=asked.seed, steps=steps, **DIAL)
    name = {"agent": "dial", "name": f"dial-{asked.seed}-{steps}", "steps": steps, "settings": {"networks": "small"}}
    each = sorted({*LIMITS, *amounts})
    return [(told | name | {"limit": x}, trained.policies[0].with_limit((x,))) for x in each]


def played(task: str, policies: list[Made], episodes: int) -> list[Made]:
    """With returns and costs of episodes in the simulator."""
    with Rollouts(task, 0) as pool:
        found = []
        for i, (told, policy) in enumerate(policies):
            own = pool.run(policy, episodes, 0)
            found.append((told | {"reward": own.reward.tolist(), "cost": own.cost[:, 0].tolist()}, policy))
            if i % 6 == 5:
                log(f"{task}: {i + 1} of {len(policies)} {told['agent']} played")
    return found


def of_folder(folder: Path, task: str) -> list[Made]:
    """The runs of a training at `LIMITS`, with the episodes of its scores."""
    trained, scores = load_trained(folder), read_scores(folder)
    if scores.task != task:
        raise SystemExit(f"{folder}: scores of {scores.task}, not of {task}")
    told = {"task": task, "agent": trained.config.agent, "name": folder.name, "steps": trained.step, "settings": {}}
    found = []
    for run, policy in zip(scores.runs, trained.policies, strict=True):
        if run.cost_limit[0] in LIMITS:
            totals = {"reward": [e.reward for e in run.episodes], "cost": [e.cost[0] for e in run.episodes]}
            found.append((told | totals | {"limit": run.cost_limit[0], "seed": run.seed}, policy))
    return found


def show(files: list[Path]) -> None:
    """Tables by task and by agent; rows of other files into the committed one."""
    rows = [row for path in files for row in read(path)]
    if files != [RESULTS]:
        write_csv(RESULTS, rows)
    tasks = [(task, [row for row in rows if row["task"] == task]) for task in TASKS]
    agents = [(agent, [row for row in rows if row["agent"] == agent]) for agent in sorted({r["agent"] for r in rows})]
    print(*table("task", tasks), "", *table("agent", agents), sep="\n")
    for task, own in tasks:
        for agent in sorted({row["agent"] for row in own}):
            print(task, agent, *summary([row for row in own if row["agent"] == agent]), sep=" | ")


if __name__ == "__main__":
    main()

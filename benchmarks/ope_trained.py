"""Trained policies judged from data alone, against what they cost in the simulator: what is cleared, shown, covered.

    python benchmarks/ope_trained.py judge --data DATA --fits FITS --out ROWS.csv PLAYED.jsonl=POLICIES …
    python benchmarks/ope_trained.py judge … --tasks AntRun   one task a process; a missing fit is made first
    python benchmarks/ope_trained.py show ROWS.csv …          results/ope_trained.csv, notes/ope_dynamics.md, picture

PLAYED.jsonl has a line a played policy: task, agent, name, settings, limit, seed, steps, and the reward and cost of
every episode. POLICIES is the folder with NAME.npz, the trained networks; one that takes any limit counts once for
every limit it was played at. DATA holds a dataset a task, .hdf5 or .npz. Needs no simulator and no h5py with .npz.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from pdocrl.console import log
from pdocrl.data import make_dataset
from pdocrl.data.dataset import Dataset
from pdocrl.data.tasks import find_task
from pdocrl.files import write_csv
from pdocrl.ope import Prepared
from pdocrl.ope.ensemble.calibrate import Calibrated
from pdocrl.ope.ensemble.of_training import judge_training
from pdocrl.ope.ensemble.support import MOST_OUTSIDE
from pdocrl.policies.policy import Policy, load_all
from pdocrl.training.config import TrainingConfig
from pdocrl.training.folder import Trained

HERE = Path(__file__).parent
RESULTS, PAGE, PICTURE = HERE / "results" / "ope_trained.csv", HERE / "notes" / "ope_dynamics.md", "ope.png"
BEGIN, END = "<!-- measured: python benchmarks/ope_trained.py show -->", "<!-- end -->"
LIMITS = (10.0, 20.0, 40.0)
DESIGNED_ON = ("BallRun", "BallCircle", "DroneRun")
TASKS = ("CarRun", "CarCircle", "AntRun", "DroneCircle", *DESIGNED_ON)
CLONE = "clone"  # the agent of policies that copy a part of the data, see ope_clones.py
AT_ONCE = 20  # policies that are simulated side by side
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    judging = commands.add_parser("judge")
    judging.add_argument("played", nargs="*", help="PLAYED.jsonl=POLICIES")
    judging.add_argument("--data", type=Path, required=True)
    judging.add_argument("--fits", type=Path, required=True, help="folder with, or for, TASK.safetensors")
    judging.add_argument("--out", type=Path, required=True)
    judging.add_argument("--tasks", nargs="+", default=list(TASKS))
    showing = commands.add_parser("show")
    showing.add_argument("rows", type=Path, nargs="*", help="what `judge` wrote; none: the committed results")
    asked = parser.parse_args()
    if asked.command == "show":
        return show(asked.rows)
    sources = [tuple(map(Path, pair.split("="))) for pair in asked.played]
    rows: list[Row] = []
    for task in asked.tasks:
        began = time.monotonic()
        ready = Prepared.of(dataset(asked.data, task), cache=asked.fits / f"{task}.safetensors")
        log(f"{task}: fit of {len(ready.calibration.truth)} groups, {time.monotonic() - began:.0f} s")
        for played, folder in sources:
            for some in batches(task, played, folder):
                rows += judged(task, ready, some)
                write_csv(asked.out, rows)
                log(f"{task}: {len(rows)} policies judged, {time.monotonic() - began:.0f} s")


def dataset(folder: Path, task: str) -> Dataset:
    """A task's data. A file with the key `last` holds the states after each episode's last step instead of s′."""
    packed = folder / f"{task}.npz"
    if not packed.is_file():
        from pdocrl.data import load

        return load(next(path for path in folder.glob("*.hdf5") if task.lower() in path.name.lower()), task)
    with np.load(packed) as z:
        end = z["terminal"] | z["timeout"]
        after = np.concatenate([z["obs"][1:], z["obs"][:1]])
        after[end] = z["last"]
        return make_dataset(
            z["obs"], z["action"], z["reward"], z["cost"].reshape(len(end), -1), after, z["terminal"], z["timeout"]
        )


def batches(task: str, played: Path, folder: Path) -> list[list[tuple[Row, Policy]]]:
    """Lines of one task with their policies, some at a time."""
    with played.open(encoding="utf-8") as file:
        lines = [line for line in map(json.loads, file) if line["task"] == task]
    found: list[tuple[Row, Policy]] = []
    for name in dict.fromkeys(line["name"] for line in lines):
        if not (folder / f"{name}.npz").is_file():
            log(f"{task}: {name}: played, but its networks are not in {folder}")
            continue
        policies, story = load_all(folder / f"{name}.npz")
        if story.get("costs", ["cost"]) != ["cost"]:
            continue  # trained for other costs than the data has
        runs = [(float(limit), seed) for limit, seed in story["runs"]]
        for line in lines:
            if line["name"] != name or line["steps"] != story["steps"]:
                continue
            if story["mode"] in {"dial", "dials"}:  # one training for all limits
                own: Any = policies[[seed for _, seed in runs].index(line["seed"])]
                found.append((line, own.with_limit((line["limit"],))))
            elif (run := (float(line["limit"]), line["seed"])) in runs:
                found.append((line, policies[runs.index(run)]))
    return [found[i : i + AT_ONCE] for i in range(0, len(found), AT_ONCE)]


def judged(task: str, ready: Prepared, some: list[tuple[Row, Policy]]) -> list[Row]:
    """A row a policy: what it was in roll-outs, and what the ensemble says of it."""
    data = ready.dataset
    plan = TrainingConfig(
        data=data.name,
        data_digest=data.digest,
        task=task,
        horizon=find_task(task).horizon,
        cost_names=list(data.cost_names),
        agent="bc",
        settings={},
        steps=1,
        log_every=1,
        checkpoint_every=1,
        runs=[{"cost_limit": [line["limit"]], "seed": 0} for line, _ in some],
        evaluate_every=0,
        evaluate_episodes=1,
        versions={},
    )
    told = judge_training(Trained(plan, 1, [policy for _, policy in some], {}, []), ready, seed=0)
    return [row(line, one.outside, one.told, one.carried) for (line, _), one in zip(some, told, strict=True)]


def row(line: Row, outside: float, told: Calibrated, carried: bool) -> Row:
    found: Row = {key: line[key] for key in ("task", "agent", "name", "limit", "seed", "steps")}
    found["settings"] = json.dumps(line["settings"])
    for what in ("reward", "cost"):
        sums = np.asarray(line[what], np.float64)
        found |= {f"rollout_{what}": sums.mean(), f"rollout_{what}_error": sums.std(ddof=1) / len(sums) ** 0.5}
    found |= {"episodes": len(line["cost"]), "outside": outside, "carried": int(carried)}
    for k, what in enumerate(("reward", "cost")):
        found |= {f"ensemble_{what}": told.value[k]}
        found |= {f"ensemble_{what}_{end}": told.interval[k][i] for i, end in enumerate(("low", "high"))}
    found |= {"ensemble_cost_above": told.above[0], "ensemble_cost_below": told.below[0]}
    return {key: round(float(x), 4) if isinstance(x, float) else x for key, x in found.items()}


def read(path: Path) -> list[Row]:
    words = {"task", "agent", "name", "settings"}
    with path.open(newline="", encoding="utf-8") as file:
        return [{key: x if key in words else float(x) for key, x in line.items()} for line in csv.DictReader(file)]


def is_trusted(r: Row) -> bool:
    """Whether the estimate carries a verdict: its steps are in the data, or behaviours speak without any."""
    return bool(r["outside"] <= MOST_OUTSIDE or r.get("carried"))


def said(r: Row, limit: float) -> str:
    """The verdict at a limit."""
    if not is_trusted(r):
        return ""
    return "within" if r["ensemble_cost_above"] <= limit else "over" if r["ensemble_cost_below"] > limit else ""


def show(files: list[Path]) -> None:
    """Tables into notes/ope_dynamics.md, a picture beside it, every policy into results/ope_trained.csv."""
    rows = [r for path in files or [RESULTS] for r in read(path)]
    if files:
        write_csv(RESULTS, rows)
    tasks = [task for task in TASKS if any(r["task"] == task for r in rows)]
    trained, clones = ([r for r in rows if (r["agent"] == CLONE) == kind] for kind in (False, True))
    agents = sorted({r["agent"] for r in trained})
    lines = [
        f"{len(trained)} policies of {count_trainings(trained)} trainings "
        f"({', '.join(f'`{a}`' for a in agents)}), each at the limits 10, 20 and 40:",
        "",
        *table("task", [(named(task), [r for r in trained if r["task"] == task]) for task in tasks]),
        "",
        "The same by agent:",
        "",
        *table("agent", [(f"`{a}`", [r for r in trained if r["agent"] == a]) for a in agents]),
        "",
        f"![Estimates against roll-outs of trained policies, reward above and cost below](../../docs/img/{PICTURE})",
    ]
    if clones:
        lines += [
            "",
            "Clones of random parts of the data, more than half of them bent (gain, noise or bias added to the "
            "actions), 10 or 20 roll-outs each:",
            "",
            *table("task", [(named(task), [r for r in clones if r["task"] == task]) for task in tasks]),
        ]
    text = PAGE.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n\n{wrapped(lines)}\n\n{END}{rest.split(END, 1)[1]}", encoding="utf-8")
    print("\n".join(lines))
    print(f"every policy: {RESULTS}; page: {PAGE}; picture: {draw(trained, tasks)}")


def named(task: str) -> str:
    return f"*designed on:* {task}" if task in DESIGNED_ON else task


def wrapped(lines: list[str]) -> str:
    """Prose in lines of at most 100 characters; tables and pictures as they are."""
    import textwrap

    return "\n".join(line if line.startswith(("|", "!")) else "\n".join(textwrap.wrap(line, 100)) for line in lines)


def count_trainings(rows: list[Row]) -> int:
    """A network that was played at several limits is one training."""
    anew = {"dial", "caps_iql", "caps_sac", "bcrl"}  # take any limit
    return len({(r["name"], r["settings"], r["seed"], r["steps"], r["agent"] in anew or r["limit"]) for r in rows})


def table(what: str, parts: list[tuple[str, list[Row]]]) -> list[str]:
    head = [
        what,
        "trainings, policies, trusted",
        "interval holds reward / cost",
        "median error / width of cost",
        "cleared, of those over",
        "of those at 1–2 × the limit",
        "shown, of those below .7 × the limit",
        "of those at .5–1 ×",
        "wrong, of “over”",
        "cleared at its own limit, of those over",
    ]
    parts = [(label, rows) for label, rows in parts if rows]
    body = [[label, *summary(rows)] for label, rows in [*parts, ("all", [r for _, own in parts for r in own])]]
    return ["| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *body]]


def summary(rows: list[Row]) -> list[str]:
    def held(what: str) -> str:
        low, high, true = (
            np.array([r[key] for r in rows])
            for key in (f"ensemble_{what}_low", f"ensemble_{what}_high", f"rollout_{what}")
        )
        return f"{((low <= true) & (true <= high)).mean():.2f}".lstrip("0")

    pairs = [(said(r, limit), r["rollout_cost"] / limit) for r in rows for limit in LIMITS]

    def counted(word: str, low: float, high: float) -> str:
        own = [said for said, cost in pairs if low < cost <= high]
        return f"{own.count(word)} of {len(own)}"

    error = np.median([abs(r["ensemble_cost"] - r["rollout_cost"]) for r in rows])
    width = np.median([r["ensemble_cost_high"] - r["ensemble_cost_low"] for r in rows])
    overs = [cost <= 1 for said, cost in pairs if said == "over"]
    own = [said(r, r["limit"]) == "within" for r in rows if r["rollout_cost"] > r["limit"]]
    trusted = sum(map(is_trusted, rows))
    return [
        f"{count_trainings(rows)}, {len(rows)}, {trusted}",
        f"{held('reward')} / {held('cost')}",
        f"{error:.1f} / {width:.1f}",
        counted("within", 1, np.inf),
        counted("within", 1, 2),
        counted("within", -1, 0.7),
        counted("within", 0.5, 1),
        f"{sum(overs)} of {len(overs)}",
        f"{sum(own)} of {len(own)}",
    ]


def draw(rows: list[Row], tasks: list[str]) -> Path:
    """Estimate against roll-out, a column per task: reward above, cost below; hollow where not trusted."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, len(tasks), figsize=(3.1 * len(tasks), 6), squeeze=False, layout="constrained")
    for column, task in enumerate(tasks):
        for line, what in enumerate(("reward", "cost")):
            axis = axes[line, column]
            for trusted in (False, True):
                own = [r for r in rows if r["task"] == task and is_trusted(r) == trusted]
                x, y = ([r[f"{source}_{what}"] for r in own] for source in ("rollout", "ensemble"))
                low, high = ([r[f"ensemble_{what}_{end}"] for r in own] for end in ("low", "high"))
                colour = "tab:blue" if trusted else "0.6"
                axis.vlines(x, low, high, color=colour, linewidth=0.8, alpha=0.6)
                axis.scatter(x, y, s=14, facecolor=colour if trusted else "none", edgecolor=colour, zorder=3)
            own = [r[f"rollout_{what}"] for r in rows if r["task"] == task]
            axis.axline((min(own), min(own)), slope=1, color="0.3", linewidth=0.8, linestyle="--")
            axis.set_title(f"{task}: {what} of an episode", fontsize=10)
            axis.set_xlabel("roll-outs in the simulator")
            if column == 0:
                axis.set_ylabel("estimate from data, with 95 % interval")
    figure.suptitle("Blue: trusted. Grey, hollow: flagged, more than half of the steps outside the data.", fontsize=10)
    target = HERE.parent / "docs" / "img" / PICTURE
    figure.savefig(target, dpi=110)
    return target


if __name__ == "__main__":
    main()

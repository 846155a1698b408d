"""Coverage of the intervals and errors of the verdicts of `pdocrl.ope` on simulated logs with known values.

    PYTHONPATH=benchmarks python benchmarks/judge.py run [--logs 200] [--worlds clinic stock] [--out part.csv]
    PYTHONPATH=benchmarks python benchmarks/judge.py merge part.csv other.csv
    PYTHONPATH=benchmarks python benchmarks/judge.py show

Worlds: `benchmarks/ope_worlds.py`, some of which the rules were chosen on, with other logs: seeds here begin at 3,000.
True values from 100,000 episodes of the target (4,000 of the simulators). `run` adds the rows of a world, a size and a
kind of propensities to benchmarks/results/judge.csv (or another file: one for each process) as it goes, and passes over
those that are there; `merge` makes that table of the rows of such files alone; `show` writes the tables to
benchmarks/notes/judge.md and docs/ope.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from ope_worlds import design, report, simulators

HERE = Path(__file__).parent
ROWS, NOTE = HERE / "results" / "judge.csv", HERE / "notes" / "judge.md"
PAGE, BEGIN, END = HERE.parent / "docs" / "ope.md", "<!-- judged -->", "<!-- end of judged -->"
SIZES = (200, 800)
SCALES = (0.5, 0.8, 0.999, 1.001, 1.25, 2.0)  # limits, in true values
TAIL = (0.5, 0.999, 1.001, 2.0)
FIRST = 3_000  # seed of the first log
KINDS = ("logged", "estimated")  # propensities
CELL = ["world", "episodes", "propensities"]  # what is measured at once
ROLES: dict[str, Callable[[], list[Any]]] = {"report": report, "simulator": simulators, "design": design}
SHORT = ("tabular, 5 steps", "menu", "clinic")  # of the worlds only reported on: up to eight decisions
MENDED = ("field: Kim",)  # of the simulators: a rule was mended after it
MEASURES = ("mean", "share", "CVaR90")
TIMED = 2  # logs of which each estimator is timed by itself


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "merge", "show"))
    parser.add_argument("files", nargs="*", type=Path, help="of `run --out`, to merge")
    parser.add_argument("--logs", type=int, default=200)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS, help="of propensities")
    parser.add_argument("--worlds", nargs="*", default=[])
    parser.add_argument("--out", type=Path, default=ROWS)
    options = parser.parse_args()
    if options.what == "run":
        every = [(role, w) for role, worlds in ROLES.items() for w in worlds()]
        unknown = {*options.worlds} - {w.name for _, w in every}
        if unknown:
            parser.error(f"no world {', '.join(sorted(unknown))}; there are {'; '.join(w.name for _, w in every)}")
        for role, world in every:
            if not options.worlds or world.name in options.worlds:
                run(world, role, options.logs, options.sizes, options.kinds, options.out)
    elif options.what == "merge":
        merge(options.files).to_csv(ROWS, index=False, float_format="%.4g")
    else:
        table = pd.read_csv(ROWS)
        for path, made in ((NOTE, note(table)), (PAGE, summary(table))):
            text = path.read_text(encoding="utf-8")
            head, rest = text.split(BEGIN, 1)
            path.write_text(f"{head}{BEGIN}\n\n{made}\n{END}{rest.split(END, 1)[1]}", encoding="utf-8")


def run(world: Any, role: str, logs: int, sizes: Any = SIZES, kinds: Any = KINDS, out: Path = ROWS) -> None:
    there = pd.read_csv(out) if out.is_file() else pd.DataFrame(columns=CELL)
    known = set(map(tuple, there[CELL].to_numpy().tolist()))
    try:
        truth = world.totals(100_000, 10**6)
    except (ImportError, AssertionError):
        print(f"{world.name}: its package is not installed (see any_log/third_party.py); left out")
        return
    for n in sizes:
        for kind in kinds:
            if (world.name, n, kind) in known:
                continue
            print(world.name, n, kind, flush=True)
            rows = pd.DataFrame(measure(world, n, kind, logs, truth)).assign(role=role, **_versions())
            old = pd.read_csv(out) if out.is_file() else None
            pd.concat([old, rows], ignore_index=True).to_csv(out, index=False, float_format="%.4g")


def merge(files: list[Path]) -> pd.DataFrame:
    """The rows of all files, worlds in the order of `ope_worlds`; none may be measured twice."""
    table = pd.concat([pd.read_csv(path) for path in files], ignore_index=True)
    twice = table[table.duplicated([*CELL, "estimator", "scale"])]
    if len(twice):
        raise SystemExit(f"measured twice: {', '.join(map(str, twice[CELL].iloc[0]))}; give one file with it")
    places = [(role, world.name) for role, worlds in ROLES.items() for world in worlds()]
    order = {key: i for i, key in enumerate(places)}
    table["place"] = [order[key] for key in zip(table["role"], table["world"], strict=True)]
    table["kind"] = [KINDS.index(kind) for kind in table["propensities"]]
    return table.sort_values(["place", "episodes", "kind"], kind="stable").drop(columns=["place", "kind"])


def measure(world: Any, n: int, kind: str, logs: int, totals: Any) -> list[dict[str, Any]]:
    from pdocrl.data.event_log import EventLog
    from pdocrl.limits import Limit
    from pdocrl.ope import verdicts
    from pdocrl.ope.estimators import propensity
    from pdocrl.ope.estimators.linear import basis
    from pdocrl.ope.estimators.problem import Problem
    from pdocrl.ope.judge import every_estimate

    mean, share = float(totals.mean()), float((totals > world.threshold).mean())
    worst = Limit("cost", 0.0, "<=", "cvar", level=0.9).of(totals)
    found: dict[str, list[dict[str, float]]] = {}
    told: dict[tuple[str, float], list[str]] = {}
    decided_by: dict[str, int] = {}
    seconds: dict[str, list[float]] = {}
    for seed in range(FIRST, FIRST + logs):
        frame = world.play(np.random.default_rng(seed), n, world.behaviour)
        names = [c for c in frame if c.startswith("π")]
        who = "decider" if "decider" in frame else None
        log = EventLog.read(frame, step="t", propensity="p", decider=who, keep=names)
        target = np.stack([log.extras[name] for name in names], axis=1)[:, [int(a) for a in log.actions]]
        features = basis(log, time=True)
        chances = log.propensity
        if kind == "estimated":
            chances = propensity.estimate(log, features)[np.arange(len(log)), log.action]
        assert chances is not None
        problem = Problem(log, target / target.sum(1, keepdims=True), chances, kind == "estimated", features)
        estimates = every_estimate(problem)
        if seed < FIRST + TIMED:
            for estimator, taken in timed(problem).items():
                seconds.setdefault(estimator, []).append(taken)
        for scale in SCALES:
            one = verdicts.verdict(problem, Limit("cost", scale * mean), estimates)
            told.setdefault(("mean", scale), []).append(one.verdict)
        decided_by[str(one.estimator)] = decided_by.get(str(one.estimator), 0) + 1
        for scale in TAIL:
            if worst < totals.max():  # of bandits with one cost nothing can be above
                cvar = Limit("cost", scale * worst, "<=", "cvar", level=0.9)
                told.setdefault(("CVaR90", scale), []).append(verdicts.verdict(problem, cvar, estimates).verdict)
            if scale * share < 1:
                limit = Limit("cost", scale * share, "<=", "exceedance", threshold=world.threshold)
                told.setdefault(("share", scale), []).append(verdicts.verdict(problem, limit, estimates).verdict)
        for (estimator, signal), e in estimates.items():
            if signal == "cost" and e.value is not None:
                low, high = e.interval or (np.nan, np.nan)
                entry = {"error": e.value - mean, "width": high - low, "covered": float(low <= mean <= high)}
                entry["decides"] = float(estimator == one.estimator)
                found.setdefault(estimator, []).append(entry | {"ess": e.effective_sample_size or np.nan})
    base = {"world": world.name, "episodes": n, "propensities": kind, "logs": logs, "truth": mean, "share": share}
    base |= {"cvar90": worst}
    rows = []
    for estimator, entries in found.items():
        table = pd.DataFrame(entries)
        row = {
            "estimator": estimator,
            "bias": table["error"].mean(),
            "rmse": float((table["error"] ** 2).mean() ** 0.5),
            "seconds": float(np.median(seconds.get(estimator, [np.nan]))),
        }
        if table["width"].notna().any():
            row |= {"coverage": table["covered"].mean(), "width": table["width"].mean()}
        if table["decides"].any():
            row["coverage where it decides"] = table.loc[table["decides"] > 0, "covered"].mean()
        rows.append(base | row | {"ess": table["ess"].mean(), "given": len(table) / logs})
    for (measure, scale), words in told.items():
        shares = {word: words.count(word) / len(words) for word in ("within", "over", "not shown")}
        by = ", ".join(f"{name} {count}" for name, count in decided_by.items()) if measure == "mean" else ""
        rows.append(base | {"estimator": f"verdict on the {measure}", "scale": scale, "decides": by} | shares)
    return rows


def timed(problem: Any) -> dict[str, float]:
    """{estimator: seconds of one core, with all it needs but the propensities}"""
    from pdocrl.ope.estimators import dynamics, importance
    from pdocrl.ope.estimators.double_reinforcement import double
    from pdocrl.ope.estimators.doubly_robust import doubly_robust
    from pdocrl.ope.estimators.forward import forward_ratios
    from pdocrl.ope.estimators.fqe import direct, q_values
    from pdocrl.ope.estimators.marginalised import marginalised, ratios

    calls: list[Callable[[Any], Any]] = [
        *(lambda p, k=kind: importance.trajectory(p, "cost", k) for kind in importance.KINDS),
        *(lambda p, k=kind: importance.per_decision(p, "cost", k) for kind in importance.KINDS),
        *(lambda p, w=w: doubly_robust(p, "cost", q_values(p, "cost"), w) for w in (False, True)),
        lambda p: direct(p, "cost", q_values(p, "cost")),
        lambda p: marginalised(p, "cost"),
        lambda p: double(p, "cost", q_values(p, "cost"), ratios(p), "linear"),
    ]
    state = dynamics.states(problem.log, problem.discount)
    if state is not None:
        calls.append(lambda p: dynamics.dynamics(p, "cost", state))
    else:
        calls.append(lambda p: double(p, "cost", q_values(p, "cost"), forward_ratios(p), "forward"))
    found = {}
    for call in calls:
        fresh = dataclasses.replace(problem, fitted={})
        began = time.process_time()
        name = call(fresh).estimator
        found[name] = time.process_time() - began
    return found


def _versions() -> dict[str, str]:
    from pdocrl.provenance import commit

    return {"commit": commit(), "python": sys.version.split()[0], "numpy": np.__version__}


def note(table: pd.DataFrame) -> str:
    """Markdown."""
    verdict = table[table["estimator"].str.startswith("verdict")]
    keys = ["role", "world", "episodes", "propensities"]
    lines = []
    for measure in MEASURES:
        part = verdict[verdict["estimator"].str.endswith(measure)]
        for key, rows in part.groupby(keys, sort=False):
            at = rows.set_index("scale")
            cell = {"false clearance at .999": at["within"].get(0.999), "false alarm at 1.001": at["over"].get(1.001)}
            if measure == "mean":
                cell |= {
                    "over at .8, .5": _two(at["over"], 0.8, 0.5),
                    "within at 1.25, 2": _two(at["within"], 1.25, 2.0),
                }
            else:
                cell |= {"over at .5": at["over"].get(0.5), "within at 2": at["within"].get(2.0)}
            lines.append(dict(zip(keys, key, strict=True)) | {"limit on": measure} | cell)
    frame = pd.DataFrame(lines)
    rest = table[~table["estimator"].str.startswith("verdict")]
    columns = [*keys, "estimator", "truth", "bias", "rmse", "coverage", "coverage where it decides", "width"]
    columns += ["ess", "given", "seconds"]
    return (
        "Made by `python benchmarks/judge.py run`, nominal coverage .95. Expected "
        "cost of an episode of the target policy. Limits are multiples of the true value: `within` below 1 is a false "
        "clearance, `over` above 1 a false alarm, the worst case being a limit at the truth itself.\n\n## Verdicts\n\n"
        + _table(frame[frame["limit on"] == "mean"].dropna(axis=1, how="all"))
        + "\n"
        + _table(frame[frame["limit on"] == "share"].dropna(axis=1, how="all"))
        + "\n"
        + _table(frame[frame["limit on"] == "CVaR90"].dropna(axis=1, how="all"))
        + "\n## Estimators\n\nError, coverage and width of the expected cost; `given`: share of logs with an estimate; "
        "seconds of one core for one log and one signal, all that the estimator needs included but propensities.\n\n"
        + _table(rest[columns])
    )


def summary(table: pd.DataFrame) -> str:
    """The table of docs/ope.md: worlds in rows, pooled over the logs of all sizes and kinds of propensities."""
    lines = [
        "|world|logs|at the truth, wrongly within: mean/share/CVaR90|wrongly over|decided at .8/1.25|at .5/2"
        "|coverage: WDR/dynamics/DRL forward|",
        "|---|---|---|---|---|---|---|",
    ]
    designed = (table["role"] == "design") | table["world"].isin(MENDED)
    for of_design, name in ((False, "**only reported on**"), (True, "***designed on***")):
        own = table[designed == of_design]
        if len(own):
            lines.append(_line(name, own))
            lines += [
                _line(f"*{world}*" if of_design else world, part) for world, part in own.groupby("world", sort=False)
            ]
    return "\n".join(lines) + f"\n\n{estimators(table[~designed])}"


def estimators(table: pd.DataFrame) -> str:
    """Error (median over cells, in true values), coverage (of all logs) and seconds of estimators, but clipped ones."""
    rows = table[~table["estimator"].str.startswith("verdict")]
    short = rows["world"].isin(SHORT)
    lines = ["|estimator|error: short/long|coverage: short/long|seconds|", "|---|---|---|---|"]
    for name in (one for one in rows["estimator"].unique() if not one.startswith("clipped")):
        parts = [rows[(rows["estimator"] == name) & chosen] for chosen in (short, ~short)]
        errors = [(part["rmse"] / part["truth"]).median() for part in parts]
        error = "/".join("–" if x != x else f"{x:.2f}" if x < 10 else ">10" for x in errors)
        seconds = rows.loc[(rows["estimator"] == name) & (rows["episodes"] == 800), "seconds"].median()
        covered = "/".join(_covered(part, name) for part in parts)
        lines.append(f"|{name}|{error}|{covered}|{seconds:.2g}|")
    return "\n".join(lines) + "\n"


def _line(name: str, table: pd.DataFrame) -> str:
    """One row of the summary."""
    rates = {measure: _pooled(table, f"verdict on the {measure}") for measure in MEASURES}
    mean = rates["mean"]
    estimators = ("weighted doubly robust", "dynamics model (counts)", "double reinforcement learning (forward)")
    cells = [
        name,
        str(int(table.groupby(CELL)["logs"].first().sum())),
        "/".join(_share(rates[measure]["within"], 0.999) for measure in MEASURES),
        "/".join(_share(rates[measure]["over"], 1.001) for measure in MEASURES),
        f"{_share(mean['over'], 0.8)}/{_share(mean['within'], 1.25)}",
        f"{_share(mean['over'], 0.5)}/{_share(mean['within'], 2.0)}",
        "/".join(_covered(table, estimator) for estimator in estimators),
    ]
    return f"|{'|'.join(cells)}|"


def _pooled(table: pd.DataFrame, verdict: str) -> pd.DataFrame:
    """Shares of logs that were called within and over, by the scale of the limit."""
    rows = table[table["estimator"] == verdict]
    words = rows[["within", "over"]].mul(rows["logs"], axis=0).assign(scale=rows["scale"], logs=rows["logs"])
    total = words.groupby("scale").sum()
    return total[["within", "over"]].div(total["logs"], axis=0)


def _share(column: Any, scale: float) -> str:
    """A dash where there was no such limit: a share cannot be above 1."""
    value = column.get(scale, np.nan)
    return "–" if value != value else f"{value:.3f}".removeprefix("0")


def _covered(own: pd.DataFrame, name: str) -> str:
    """Coverage pooled over sizes and kinds; a dash where fewer than ten logs had the estimate."""
    part = own[(own["estimator"] == name) & own["coverage"].notna()]
    weight = part["given"] * part["logs"]
    return "–" if weight.sum() < 10 else f"{(part['coverage'] * weight).sum() / weight.sum():.2f}"


def _two(column: Any, first: float, second: float) -> str:
    return ", ".join(f"{column.get(x, np.nan):.3g}" for x in (first, second))


def _table(frame: pd.DataFrame) -> str:
    def cell(v: Any) -> str:
        return ("" if v != v else f"{v:.3g}") if isinstance(v, float) else str(v)

    head = "| " + " | ".join(frame.columns) + " |\n|" + "---|" * len(frame.columns) + "\n"
    return head + "".join("| " + " | ".join(cell(v) for v in row) + " |\n" for row in frame.to_numpy().tolist())


if __name__ == "__main__":
    main()

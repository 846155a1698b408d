"""`pdocrl train`, `evaluate`, `agents`, `export`."""

from __future__ import annotations

from typing import Annotated, Any

import tyro

from pdocrl.console import print_json, print_table
from pdocrl.errors import PdocrlError

Words = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE …")]


def train(
    dataset: tyro.conf.Positional[str | None] = None,
    /,
    *,
    agent: str = "pdocrl",
    task: str | None = None,
    horizon: int | None = None,
    cost_limit: Annotated[tuple[str, ...], tyro.conf.arg(metavar="LIMIT …")] = ("10", "20", "40"),
    seed: tuple[int, ...] = (0,),
    steps: int = 100_000,
    set: Words = (),
    vary: Words = (),
    out: str | None = None,
    resume: str | None = None,
    log_every: int = 1000,
    checkpoint_every: int = 10_000,
    evaluate_every: int = 0,
    evaluate_episodes: int = 5,
    window: int = 0,
    refresh_every: int = 0,
    sink: tuple[str, ...] = (),
    json: bool = False,
) -> None:
    """Train one policy per cost limit × seed, side by side, from logged data alone.

    Example:
        pdocrl train BallRun --agent pdocrl --cost-limit 10 20 40 --seed 0 5 10 --out runs/ballrun
        pdocrl train my.hdf5 --task CarRun --set gamma=0.98 --vary learning_rate=1e-4,3e-4 --out runs/mine
        pdocrl train --resume runs/ballrun

    Args:
        dataset: a task's name or a file (HDF5, npz, Parquet, CSV, Minari).
        agent: which method; `pdocrl agents` lists them.
        task: gives horizon, reference scores and simulator when the dataset is a file.
        horizon: steps of a full episode, when there is no task; default: the longest episode.
        cost_limit: undiscounted cost allowed per episode; with several costs write 10,5 for each limit.
        seed: one run per seed and limit.
        steps: gradient steps.
        set: settings of the agent, the same in all runs.
        vary: settings to vary, values separated by commas; every combination becomes a run.
        out: folder for checkpoints, policies and metrics.
        resume: go on with the training in this folder.
        log_every: steps between lines of metrics.
        checkpoint_every: steps between checkpoints.
        evaluate_every: steps between evaluations in the simulator; 0 for none.
        evaluate_episodes: episodes of each such evaluation.
        window: hold only so many transitions of the file at a time, for files larger than memory; 0 for all.
        refresh_every: steps after which the window is drawn anew; default: when each was used about once.
        sink: also send metrics to tensorboard or wandb.
        json: print one JSON object.
    """
    from pdocrl.training import train as training

    if resume is not None:
        trained = training.resume(resume, dataset, sinks=sink)
    elif dataset is None:
        raise PdocrlError("which data? Give a task's name or a file, or --resume FOLDER.")
    else:
        trained = training.train(
            dataset, agent, task=task, horizon=horizon, cost_limit=[_limit(word) for word in cost_limit], seed=seed,
            steps=steps, settings=_settings(set), vary={k: _many(v) for k, v in _pairs(vary).items()}, out=out,
            log_every=log_every, checkpoint_every=checkpoint_every, evaluate_every=evaluate_every,
            evaluate_episodes=evaluate_episodes, sinks=sink, window=window, refresh_every=refresh_every,
        )  # fmt: skip
    last = {line["run"]: line for line in trained.metrics}
    rows = [
        {
            "run": i,
            **run,
            "step": trained.step,
            "failure": trained.failures.get(i),
            "metrics": last.get(i, {}).get("metrics"),
        }
        for i, run in enumerate(trained.plan.runs)
    ]
    if json:
        print_json({"agent": trained.plan.agent, "task": trained.plan.task, "data": trained.plan.data,
                    "digest": trained.plan.data_digest, "out": str(trained.folder) if trained.folder else None,
                    "runs": rows})  # fmt: skip
        return
    shown = [name for name in (rows[0]["metrics"] or {})][:8]
    print_table(
        ["run", "cost limit", "seed", *shown, "stopped"],
        [[r["run"], _shown(r["cost_limit"]), r["seed"], *[(r["metrics"] or {}).get(n, "") for n in shown],
          r["failure"] or ""] for r in rows],
        title=f"{trained.plan.agent} on {trained.plan.data}, {trained.step} steps",
    )  # fmt: skip
    if trained.folder is not None:
        print(f"policies in {trained.folder}; play them with: pdocrl evaluate {trained.folder}")


def evaluate(
    folder: tyro.conf.Positional[str],
    /,
    *,
    episodes: int = 20,
    task: str | None = None,
    seed: int = 0,
    workers: int | None = None,
    json: bool = False,
) -> None:
    """Play trained policies in the simulator and score them; every episode counts.

    Example:
        pdocrl evaluate runs/ballrun --episodes 20 --json

    Args:
        folder: what `pdocrl train --out` wrote.
        episodes: per policy.
        task: the task to play, when the training did not name one.
        seed: decides the starts of all episodes.
        workers: processes; default: one per core.
        json: print one JSON object.
    """
    from pdocrl.scoring import evaluate as run

    result = run(folder, episodes, task=task, seed=seed, workers=workers)
    if json:
        print_json(result.as_dict())
        return
    print_table(
        ["cost limit", "seed", "reward", "cost", "normalised reward", "normalised cost", "safe"],
        [[_shown(r["cost_limit"]), r["seed"], r["reward"], _shown(r["cost"]), r["normalized_reward"],
          r["normalized_cost"], "yes" if r["safe"] else "NO"] for r in result.runs],
        title=f"{result.task}, protocol {result.protocol}, data {result.data['name']}, {episodes} episodes each",
    )  # fmt: skip
    for summary in result.summary.get("variants", [result.summary]):
        low, high = summary["reward_interval"]
        print(f"mean over limits: reward {summary['reward']:.3f} [{low:.3f}, {high:.3f}], cost {summary['cost']:.3f}, "
              f"safe at {summary['safe_limits']} of {len(summary['by_limit'])} limits"
              + (f"  {summary['settings']}" if summary["settings"] else ""))  # fmt: skip


def agents(name: tyro.conf.Positional[str | None] = None, /, *, json: bool = False) -> None:
    """List the agents, or one agent's settings.

    Example:
        pdocrl agents
        pdocrl agents pdocrl

    Args:
        name: show this agent's settings, their defaults and what they do.
        json: print one JSON object.
    """
    from pdocrl.agents.agent import agent_names, describe_config, find_agent

    if name is not None:
        agent = find_agent(name)
        fields = describe_config(agent.Config)
        if json:
            print_json({"agent": name, "summary": agent.summary, "paper": agent.paper, "settings": fields})
            return
        print(f"{name}: {agent.summary}\n{agent.paper}")
        print_table(["setting", "default", "meaning"], [[f["name"], str(f["default"]), f["meaning"]] for f in fields])
        return
    found = [find_agent(n) for n in agent_names()]
    if json:
        print_json(
            {"agents": [{"name": a.name, "summary": a.summary, "paper": a.paper, "needs": a.needs} for a in found]}
        )
        return
    print_table(["agent", "what it does", "paper", "needs"], [[a.name, a.summary, a.paper, a.needs] for a in found])


def export(
    folder: tyro.conf.Positional[str], /, *, out: str, run: int = 0, onnx: bool = True, json: bool = False
) -> None:
    """Write one trained policy for use elsewhere: ONNX, and plain NumPy with a loader that needs nothing else.

    Example:
        pdocrl export runs/ballrun --run 0 --out robot/

    Args:
        folder: what `pdocrl train --out` wrote.
        out: folder for policy.onnx, policy.npz and policy.py.
        run: which run of the training.
        onnx: write policy.onnx (needs the extra `onnx`).
        json: print one JSON object.
    """
    from pdocrl.export import export as write

    written = write(folder, out, run, onnx)
    if json:
        print_json({"run": run, "files": [str(path) for path in written]})
        return
    for path in written:
        print(path)


def _limit(word: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in word.split(","))
    except ValueError:
        raise PdocrlError(
            f"cost limit {word!r} is not a number (or numbers with commas between, one per cost)."
        ) from None


def _pairs(words: tuple[str, ...]) -> dict[str, str]:
    for word in words:
        if "=" not in word:
            raise PdocrlError(f"{word!r} is not of the form name=value.")
    return dict(word.split("=", 1) for word in words)


def _settings(words: tuple[str, ...]) -> dict[str, Any]:
    return {name: _value(text) for name, text in _pairs(words).items()}


def _value(text: str) -> Any:
    """A setting's value as written: a number, true/false, a tuple with commas, else a word."""
    if "," in text:
        return tuple(_value(part) for part in text.split(",") if part)
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _many(text: str) -> list[Any]:
    value = _value(text)
    return list(value) if isinstance(value, tuple) else [value]


def _shown(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return value[0] if len(value) == 1 else ", ".join(f"{v:g}" for v in value)
    return value

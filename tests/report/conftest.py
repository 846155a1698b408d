"""A benchmark folder as `pdocrl bench` leaves it, with invented numbers and without training."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from pdocrl.bench.results import GroupStatus, Row, method_name, write_rows, write_status, write_suite
from pdocrl.bench.suite import Method, Suite, TaskEntry
from pdocrl.data import Task, register, save
from pdocrl.data.tasks import find_task
from pdocrl.evaluation.evaluate import DataName, Scores
from pdocrl.evaluation.score import EpisodeScore, RunScore, summarise
from pdocrl.ope.result import write_ope
from pdocrl.policies import policy as policies
from pdocrl.policies.policy import MLPPolicy
from pdocrl.records import write_record
from pdocrl.training.config import TrainingConfig, versions
from rows import told, told_run

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
TASKS = ("BallRun", "CarCircle")
METHODS = (("bc", "safe"), ("cpq", ""), ("pdocrl", ""))
LIMITS, SEEDS, STEPS = (10.0, 20.0, 40.0), (0, 5, 10), 1000
TOY_LIMITS, TOY_SEEDS, TOY_STEPS = (1.0, 3.0), (0, 5), (100, 200, 300)
VERSIONS = {"pdocrl": "0.1.0", "jax": "0.7", "equinox": "0.13", "optax": "0.2", "numpy": "2.0"}


def make_suite(
    folder: Path,
    tasks: Sequence[str] = TASKS,
    methods: Sequence[tuple[str, str]] = METHODS,
    *,
    episodes: int = 4,
    points: int = 10,
    failed: tuple[str, str] | None = ("cpq", "CarCircle"),
    extras: bool = True,
    shift: Callable[[str, str], float] = lambda method, task: 0.0,
) -> Path:
    """Rows and training folders of every method on every task.

    Args:
        points: logged moments of a training.
        failed: the method and task whose training failed, and has no rows.
        extras: evaluations on the way and off-policy estimates are there.
        shift: added to a method's normalised costs on a task.
    """
    rng = np.random.default_rng(0)
    rows: list[Row] = []
    status: list[GroupStatus] = []
    for task in tasks:
        for agent, variant in methods:
            method = method_name(agent, variant)
            broken = (method, task) == failed
            name = f"{method}-{task}"
            reason = "step 300: critic_loss is not finite" if broken else ""
            runs = [{"cost_limit": [limit], "seed": seed} for limit in LIMITS for seed in SEEDS]
            kind = "failed" if broken else "done"
            status.append(GroupStatus(name, task, agent, variant, len(runs), kind, reason))
            if broken:
                continue
            level = rng.uniform(0.2, 0.9), rng.uniform(0.1, 1.2) + shift(method, task)
            own = [row for run in runs for row in _episodes(rng, task, agent, variant, run, episodes, level)]
            rows += own
            _write_training(folder / "groups" / name, rng, task, agent, runs, points, extras, own)
    write_rows(folder, rows)
    write_status(folder, status)
    suite = Suite(
        "toy",
        "invented numbers",
        tuple(TaskEntry(find_task(task)) for task in tasks),
        tuple(Method(*method) for method in methods),
        tuple((limit,) for limit in LIMITS),
        SEEDS,
        STEPS,
        episodes,
    )
    write_suite(folder, suite.record)
    return folder


def _episodes(rng, task, agent, variant, run, episodes, level) -> list[Row]:
    spec, limit = find_task(task), run["cost_limit"][0]
    reward, cost = level[0] + 0.05 * rng.normal(), max(0.0, level[1] + 0.2 * rng.normal())
    found = []
    for episode in range(episodes):
        gained, spent = reward + 0.02 * rng.normal(), rng.poisson(cost * limit) / limit
        found.append(
            Row(
                suite="toy",
                protocol="dsrl",
                task=task,
                agent=agent,
                variant=variant,
                cost_limit=(limit,),
                seed=run["seed"],
                training=LIMITS.index(limit) * len(SEEDS) + SEEDS.index(run["seed"]),
                trained_limit=(limit,),
                step=STEPS,
                episode=episode,
                reward=spec.reward_min + gained * (spec.reward_max - spec.reward_min),
                cost=(spent * limit,),
                length=spec.horizon,
                normalized_reward=gained,
                normalized_cost=spent,
                failure=None,
                config_digest="c" * 64,
                data_digest=f"{len(task):x}" * 64,
                data=f"Safety{task}-v0.hdf5",
                recollected=True,
                train_seconds=61.5,
                pdocrl="0.1.0",
                jax="0.7",
                numpy="2.0",
                commit="unknown",
                packages="",
                machine="",
                played="",
            )
        )
    return found


def _write_training(folder, rng, task, agent, runs, points, extras, rows) -> None:
    plan = TrainingConfig(
        data=rows[0].data,
        data_digest=rows[0].data_digest,
        task=task,
        horizon=find_task(task).horizon,
        cost_names=["cost"],
        agent=agent,
        settings={},
        runs=runs,
        steps=STEPS,
        log_every=STEPS // points,
        checkpoint_every=STEPS,
        evaluate_every=STEPS // points if extras else 0,
        evaluate_episodes=5,
        versions=VERSIONS,
    )
    folder.mkdir(parents=True)
    write_record(folder / "run.json", plan)
    logged = {"bc": ("actor_loss",), "cpq": ("actor_loss", "q")}.get(agent, ("lambda", "w", "w_at_clip"))
    steps = np.linspace(STEPS / points, STEPS, points).astype(int).tolist()
    metrics = [
        {
            "step": t,
            "run": i,
            **run,
            "steps_per_second": 50.0,
            "metrics": {name: float(1 + np.log1p(t) / 8 + 0.1 * rng.normal()) for name in logged},
        }
        for t in steps
        for i, run in enumerate(runs)
    ]
    _write_lines(folder / "metrics.jsonl", metrics)
    if not extras:
        return
    spec = find_task(task)
    evaluations = [
        {
            "step": t,
            "run": i,
            **run,
            "reward": spec.reward_max * (t / STEPS * 0.7 + 0.05 * rng.normal()),
            "cost": [run["cost_limit"][0] * abs(0.8 + 0.3 * rng.normal())],
        }
        for t in steps
        for i, run in enumerate(runs)
    ]
    _write_lines(folder / "evaluations.jsonl", evaluations)
    said = []
    for run in runs:
        own = [row for row in rows if (list(row.cost_limit), row.seed) == (run["cost_limit"], run["seed"])]
        reward = float(np.mean([row.normalized_reward for row in own]))
        cost = float(np.mean([row.normalized_cost for row in own]))
        verdict = {"within_limit": {0: True, 10: False}.get(run["seed"]), "trusted": run["seed"] != 5}
        said.append(told_run(agent, run["cost_limit"][0], run["seed"], reward + 0.02, cost + 0.05, **verdict))
    write_ope(folder, told(task, agent, said))


def _write_lines(path: Path, lines: list[dict]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    """One browser for all tests here."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install 'pdocrl[dev]'")
    if CHROMIUM is None:
        pytest.skip("no Chromium: apt-get install chromium")
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


@pytest.fixture
def suite_folder(tmp_path: Path) -> Callable[..., Path]:
    """`suite_folder(...)` makes one; its arguments are those of `make_suite`."""

    def make(**arguments) -> Path:
        return make_suite(tmp_path / "toy suite", **arguments)

    return make


@pytest.fixture
def make_run(tmp_path: Path, make_random_dataset: Callable) -> Callable[..., Path]:
    """A training folder as `train` and `evaluate` leave it, with known numbers, without training."""

    def make(costs: dict[float, list[float]] | None = None, n_costs: int = 1, w: float = 9.9) -> Path:
        register(Task("Toy", horizon=9, reward_min=-10.0, reward_max=10.0))
        dataset = make_random_dataset(n_costs=n_costs, episodes=40)
        save(dataset, tmp_path / "toy.npz")
        runs = [{"cost_limit": [limit] * n_costs, "seed": s} for limit in TOY_LIMITS for s in TOY_SEEDS]
        plan = TrainingConfig(
            data=str(tmp_path / "toy.npz"),
            data_digest=dataset.digest,
            task="Toy",
            horizon=9,
            cost_names=list(dataset.cost_names),
            agent="pdocrl",
            settings={"hidden": [8, 8], "gamma": 0.9},
            runs=runs,
            steps=300,
            log_every=100,
            checkpoint_every=300,
            evaluate_every=100,
            evaluate_episodes=5,
            versions=versions(),
        )
        folder = tmp_path / "toy run"
        folder.mkdir()
        write_record(folder / "run.json", plan)
        policy = MLPPolicy((np.zeros((3, 2), np.float32),), (np.zeros(2, np.float32),))
        policies.save(folder / "policies.npz", [policy] * len(runs), {"step": 300, "failures": {}})
        lam = {"lambda": 2.0} if n_costs == 1 else {f"lambda_{k}": 2.0 for k in range(n_costs)}
        metrics = [
            {
                "step": t,
                "run": i,
                **run,
                "steps_per_second": 50.0,
                "metrics": {"w": w, "w_at_clip": 0.5, "q": 1.0, **lam},
            }
            for t in TOY_STEPS
            for i, run in enumerate(runs)
        ]
        evaluations = [
            {"step": t, "run": i, **run, "reward": float(t + i), "cost": [i / 2] * n_costs}
            for t in TOY_STEPS
            for i, run in enumerate(runs)
        ]
        for name, lines in {"metrics": metrics, "evaluations": evaluations}.items():
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        costs = costs or {1.0: [0.0, 1.0], 3.0: [2.0, 4.0]}
        scored = []
        for i, run in enumerate(runs):
            limit = run["cost_limit"]
            own = costs[limit[0]]
            episodes = [
                EpisodeScore(
                    seed=7 + e,
                    reward=2.0 * e,
                    cost=[c] * n_costs,
                    length=9,
                    normalized_reward=(2.0 * e + 10) / 20,
                    normalized_cost=c / limit[0],
                )
                for e, c in enumerate(own)
            ]
            mean = float(np.mean(own))
            scored.append(
                RunScore(
                    task="Toy",
                    agent="pdocrl",
                    run=i,
                    training=i,
                    seed=run["seed"],
                    settings={},
                    cost_limit=limit,
                    trained_limit=limit,
                    reward=float(np.mean([e.reward for e in episodes])),
                    cost=[mean] * n_costs,
                    normalized_reward=0.5,
                    normalized_cost=mean / limit[0],
                    safe=mean <= limit[0],
                    failure=None,
                    episodes=episodes,
                )
            )
        data = DataName(name="toy.npz", digest=dataset.digest)
        scores = Scores(task="Toy", protocol="custom", data=data, step=300, runs=scored, summary=summarise(scored))
        write_record(folder / "scores.json", scores)
        return folder

    return make


@pytest.fixture(scope="session")
def solved_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `pdocrl solve --out` writes for a small log, which lies beside it."""
    from pdocrl.cli import main as cli

    folder = tmp_path_factory.mktemp("solved")
    rows = ["state,action,reward,cost,next_state"]
    for i in range(400):
        state, action = i % 2, i // 2 % 2
        rows.append(f"s{state},a{action},{action},{action * state},s{(state + i // 4) % 2}")
    (folder / "log.csv").write_text("\n".join(rows) + "\n")
    out = folder / "policy"
    assert (
        cli.main(["solve", str(folder / "log.csv"), "--limit", "cost<=0.2", "--gamma", "0.9", "--out", str(out)]) == 0
    )
    return out


@pytest.fixture(scope="session")
def answered_folder(solved_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with everything else one can ask: along a limit, in a state, against another policy."""
    from pdocrl.cli import main as cli

    out = tmp_path_factory.mktemp("answered") / "policy"
    asked = ["solve", str(solved_folder.parent / "log.csv"), "--gamma", "0.9", "--limit", "cost<=0.1"]
    more = ["--C", "5", "--resamples", "5", "--frontier", "cost=0.05:0.3:3", "--explain", "s1", "--out", str(out)]
    assert cli.main([*asked, *more]) == 0
    compared = ["--compare", str(out), str(solved_folder), "--resamples", "5", "--out", str(out)]
    assert cli.main([*asked, *compared]) == 0
    return out

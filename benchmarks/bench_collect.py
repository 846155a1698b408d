"""Environment steps per second of a whole expert training, where its time goes, and Stable-Baselines3's PPO beside it.

    python benchmarks/bench_collect.py --sb3-python VENV/bin/python --tasks BallRun CarRun
    python benchmarks/bench_collect.py --tasks CarRun CarCircle AntRun AntCircle

Both train PPO with the same settings: a tanh network of 64 × 64, batches of 4,000 steps, minibatches of 500, ten epochs
without an early stop, on as many processes as there are cores. Ours also learns one cost value function and stores
every episode. Stable-Baselines3 plays in our simulator (`--sb3-env own`) or in the published one (`published`), with
all environments in one process (`dummy`) or one process per core (`subproc`). Rounds alternate; figures are medians
over rounds, the first two batches of each left out (compilation, start of the workers).

The share spent in the simulator is that of the workers' playing time × the share of `env.step` and `env.reset` in it,
the latter measured in one process. Stable-Baselines3 needs an environment of its own with torch 2.13.0,
stable-baselines3, and pdocrl's dependencies for `own`. Writes benchmarks/results/collect_speed.csv.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
BATCHES, WARM = 7, 2

SB3 = """
import sys, time
import gymnasium, numpy as np, torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

task, source, vector, batches, warm, cores = *sys.argv[1:4], *map(int, sys.argv[4:7])

def make():
    if source == "own":
        from pdocrl.envs.registry import make
        return make(task)
    import bullet_safety_gym
    return gymnasium.make(f"Safety{task}-v0")

class Clock(BaseCallback):
    times = []
    def _on_step(self): return True
    def _on_rollout_start(self): self.times.append(time.perf_counter())

if __name__ == "__main__":
    torch.set_num_threads(1)  # two threads on layers this small wait for each other
    envs = 10 if vector == "dummy" else cores
    kind = DummyVecEnv if vector == "dummy" else SubprocVecEnv
    net = dict(net_arch=dict(pi=[64, 64], vf=[64, 64]), activation_fn=torch.nn.Tanh, log_std_init=-0.5)
    model = PPO("MlpPolicy", kind([make] * envs), n_steps=4000 // envs, batch_size=500, n_epochs=10,
                learning_rate=1e-3, policy_kwargs=net, device="cpu", seed=0)
    clock = Clock()
    model.learn(4000 * batches, callback=clock)
    clock.times.append(time.perf_counter())
    print("steps/s", 4000 * (batches - warm) / (clock.times[-1] - clock.times[warm]))
"""


def ours(task: str) -> dict[str, float]:
    """One short training of ours: steps/s and the shares of playing, learning and storing."""
    from pdocrl.collect.episode_log import Store
    from pdocrl.collect.ppo import PPOConfig
    from pdocrl.collect.problem import look_at
    from pdocrl.collect.recipes import FALLING, Recipe
    from pdocrl.collect.sampling import CollectProgress, train_experts
    from pdocrl.collect.settings import settings_for

    problem = look_at(task)
    config = PPOConfig(largest_kl=1e9)
    settings = settings_for(problem, task, Recipe(1, schedules=(FALLING,), config=config), steps=4000 * BATCHES - 3999)
    seen: list[tuple[float, CollectProgress]] = []
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "raw", settings) as store:
        train_experts(problem, store, watch=lambda progress: seen.append((time.perf_counter(), progress)))
    (begun, before), (ended, after) = seen[WARM - 1], seen[-1]
    wall = ended - begun
    parts = {what: getattr(after, what) - getattr(before, what) for what in ("simulate_s", "learn_s", "store_s")}
    return {"steps_s": (after.steps - before.steps) / wall, **{key: value / wall for key, value in parts.items()}}


def step_share(task: str, seconds: float = 3.0) -> float:
    """The share of `env.step` and `env.reset` in playing an episode with the expert's policy."""
    import jax

    from pdocrl.collect import ppo
    from pdocrl.collect.problem import look_at
    from pdocrl.envs.episode import Player

    problem = look_at(task)
    env, inside = problem.make(), 0.0

    def timed(function):
        def call(*args, **kwargs):
            nonlocal inside
            begun = time.perf_counter()
            answer = function(*args, **kwargs)
            inside += time.perf_counter() - begun
            return answer

        return call

    player = Player(env, problem.info_keys)
    env.step, env.reset = timed(env.step), timed(env.reset)
    actor = ppo.actor_of(ppo.init(jax.random.PRNGKey(0), problem.obs_dim, problem.action_dim, 1, ppo.PPOConfig()))
    total, seed = 0.0, 0
    while total < seconds:
        begun = time.perf_counter()
        player.play(actor, seed, record=True)
        total, seed = total + time.perf_counter() - begun, seed + 1
    return inside / total


def sb3(python: str, task: str, source: str, vector: str) -> float:
    arguments = [task, source, vector, str(BATCHES), str(WARM), str(len(os.sched_getaffinity(0)))]
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "sb3_ppo.py"  # a file, since its worker processes import it again
        script.write_text(SB3)
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
        done = subprocess.run(
            [python, str(script), *arguments], env=environment, capture_output=True, text=True, check=False
        )
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    return float(done.stdout.split("steps/s")[1].split()[0])


def one_of_ours(task: str) -> dict[str, float]:
    """In a process of its own, as the other side has."""
    code = f"import json, bench_collect; print('answer', json.dumps(bench_collect.ours({task!r})))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
    )
    import json

    answer: dict[str, float] = json.loads(done.stdout.split("answer")[1])
    return answer


@dataclasses.dataclass
class Row:
    task: str
    who: str
    steps_s: float
    slowest: float
    fastest: float
    ours_over_it: float
    playing: float | str = ""
    learning: float | str = ""
    storing: float | str = ""
    simulator: float | str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["BallRun", "CarRun"])
    parser.add_argument("--sb3-python", help="the Python of an environment with stable-baselines3; none: ours alone")
    parser.add_argument("--sb3-env", nargs="+", default=["own"], choices=["own", "published"])
    parser.add_argument("--vector", nargs="+", default=["dummy", "subproc"], choices=["dummy", "subproc"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/collect_speed.csv")
    options = parser.parse_args()
    rows = []
    for task in options.tasks:
        baselines = [(s, v) for s in options.sb3_env for v in options.vector] if options.sb3_python else []
        mine: list[dict[str, float]] = []
        theirs: dict[tuple[str, str], list[float]] = {baseline: [] for baseline in baselines}
        for _ in range(options.rounds):
            mine.append(one_of_ours(task))
            for baseline in baselines:
                theirs[baseline].append(sb3(options.sb3_python, task, *baseline))
        speeds = [run["steps_s"] for run in mine]
        playing, learning, storing = (median(r[key] for r in mine) for key in ("simulate_s", "learn_s", "store_s"))
        inside = playing * step_share(task)
        rows.append(
            Row(task, "pdocrl", median(speeds), min(speeds), max(speeds), 1.0, playing, learning, storing, inside)
        )
        for (source, vector), found in theirs.items():
            ratio = median(a / b for a, b in zip(speeds, found, strict=True))
            rows.append(Row(task, f"sb3 {vector}, {source} env", median(found), min(found), max(found), ratio))
        for row in rows[-1 - len(baselines) :]:
            parts = {k: getattr(row, k) for k in ("playing", "learning", "storing", "simulator")}
            shares = "".join(f"  {key} {share:.0%}" for key, share in parts.items() if share != "")
            print(
                f"{task:12} {row.who:22} {row.steps_s:8.0f} steps/s ({row.slowest:.0f}–{row.fastest:.0f})"
                f"  ours over it {row.ours_over_it:.2f}{shares}",
                flush=True,
            )
    options.out.parent.mkdir(exist_ok=True)
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in dataclasses.fields(Row)])
        writer.writeheader()
        for row in rows:
            cells = dataclasses.asdict(row)
            writer.writerow({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in cells.items()})


if __name__ == "__main__":
    main()

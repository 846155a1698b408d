"""d3rlpy's discrete CQL and BCQ on the logs of `measure.py`, with a Lagrangian that its own FQE steers.

    python -m venv DIR;  DIR/bin/pip install torch d3rlpy .[trees]
    DIR/bin/python benchmarks/any_log/d3rlpy_lagrangian.py PROBLEM --episodes 300 --seeds 0 1 2

d3rlpy has no limits. As its user would: learn on r − λ·c, evaluate reward and costs of what was learned by its fitted Q
evaluation (undiscounted, the step being a column), raise λ where a cost is over its limit and lower it where it is not,
in shrinking steps; keep the best of these trainings by its own evaluation: within every limit with the largest reward,
else nearest to them. Networks are d3rlpy's defaults. Its optimiser settings are for millions of frames (batches of 32,
a learning rate of 6e-5, a target network every 8,000 steps); here batches have 64 rows, the rate is 5e-4 and targets
are renewed every 100 steps, the default of its FQE. Rows as those of `measure.py`.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import d3rlpy
import numpy as np
import torch
from any_log import worlds
from any_log.measure import PLAYED, RESULTS, WORLDS, Encoded, Writer, totals
from d3rlpy.logging import NoopAdapterFactory

from pdocrl.data.event_log import EventLog

TRIALS = 4
STEPS, EVALUATION_STEPS = 3000, 1500
COMMON = {"batch_size": 64, "learning_rate": 5e-4, "target_update_interval": 100}
ALGORITHMS = {"CQL": d3rlpy.algos.DiscreteCQLConfig, "BCQ": d3rlpy.algos.DiscreteBCQConfig}
QUIET: dict[str, Any] = {"logger_adapter": NoopAdapterFactory(), "show_progress": False}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problem", choices=sorted(WORLDS))
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--algorithms", nargs="+", choices=list(ALGORITHMS), default=list(ALGORITHMS))
    parser.add_argument("--played", type=int, default=PLAYED)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for seed in given.seeds:
        one_log(WORLDS[given.problem], seed, given)


def one_log(world: worlds.World, seed: int, given: Any) -> None:
    table = worlds.make_log(world, given.episodes, seed)
    log = EventLog.read(table, costs=list(world.limits), step="step", terminal="terminal", decider="decider")
    encoded = Encoded(log)
    place = np.array([world.actions.index(str(a)) for a in log.actions])
    write = Writer(given.out, world, seed, given.episodes)
    for name in given.algorithms:
        d3rlpy.seed(seed)
        began = time.monotonic()
        algorithm, claimed = learn(world, log, encoded, name)
        seconds = time.monotonic() - began

        def decide(frame: Any, t: int, rng: Any, algorithm: Any = algorithm) -> Any:
            return place[algorithm.predict(inputs(encoded(frame), t, world))]

        true = totals(world, worlds.play(world, decide, given.played, 99), given.played)
        said = dict(zip(("reward", *world.limits), claimed.tolist(), strict=True))
        write(f"d3rlpy {name}, Lagrangian", "", said, true, seconds)
    write.close()


def learn(world: worlds.World, log: EventLog, encoded: Encoded, name: str) -> Any:
    """The best training by its own evaluation, and that: [1 + K] totals."""
    x = inputs(encoded.x, log.step, world)
    signals = np.stack([log.reward, *log.costs.values()])
    last = np.r_[log.episode[1:] != log.episode[:-1], True]
    ended = log.terminal | (log.step == world.horizon - 1)
    scale = np.array([np.bincount(log.episode, s).std() for s in signals]) + 1e-9
    limits = np.array(list(world.limits.values()))

    def data(reward: Any) -> Any:
        return d3rlpy.dataset.MDPDataset(
            x,
            log.action.astype(np.int32)[:, None],
            reward.astype(np.float32)[:, None],
            (last & ended).astype(np.float32),
            (last & ~ended).astype(np.float32),
            action_space=d3rlpy.ActionSpace.DISCRETE,
            action_size=len(log.actions),
        )

    price, size, best = np.zeros(len(limits)), 1.0, None
    for _ in range(TRIALS):
        penalised = signals[0] / scale[0] - price @ (signals[1:] / scale[1:, None])
        algorithm = ALGORITHMS[name](**COMMON).create()
        algorithm.fit(data(penalised / max(penalised.std(), 1e-9)), n_steps=STEPS, n_steps_per_epoch=STEPS, **QUIET)
        value = np.array([c * evaluated(algorithm, data(s / c), x[log.step == 0]) for s, c in zip(signals, scale)])  # noqa: B905
        over = (value[1:] - limits) / scale[1:]
        within = bool((over <= 0).all())
        rank = (within, value[0] if within else -over.max())
        if best is None or rank > best[0]:
            best = (rank, algorithm, value)
        price = np.maximum(price + size * np.sign(over), 0.0)
        size *= 0.6
    assert best is not None
    return best[1:]


def evaluated(algorithm: Any, data: Any, starts: Any) -> float:
    """Mean total by d3rlpy's fitted Q evaluation."""
    config = d3rlpy.ope.FQEConfig(batch_size=64, learning_rate=5e-4, gamma=1.0)
    fqe = d3rlpy.ope.DiscreteFQE(algo=algorithm, config=config)
    fqe.fit(data, n_steps=EVALUATION_STEPS, n_steps_per_epoch=EVALUATION_STEPS, **QUIET)
    return float(fqe.predict_value(starts, algorithm.predict(starts)).mean())


def inputs(x: Any, step: Any, world: worlds.World) -> Any:
    """[N, D + 1] columns, and the step as a share of the horizon."""
    return np.c_[x, np.broadcast_to(step, len(x)) / world.horizon].astype(np.float32)


if __name__ == "__main__":
    main()

"""`dial` on the logs of `measure.py`: columns encoded as there, discrete actions, the step told by itself.

    python benchmarks/any_log/dial.py PROBLEM --episodes 300 --seeds 0 1 2 --steps 5000

Rows as those of `measure.py`; what it claims is its predicted reward and cost at the limits.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from any_log import worlds
from any_log.measure import PLAYED, RESULTS, WORLDS, Encoded, Writer, totals

import pdocrl
from pdocrl.data.event_log import EventLog


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problem", choices=sorted(WORLDS))
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--played", type=int, default=PLAYED)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    for seed in given.seeds:
        one_log(WORLDS[given.problem], seed, given)


def one_log(world: worlds.World, seed: int, given: Any) -> None:
    log = EventLog.read(
        worlds.make_log(world, given.episodes, seed),
        costs=list(world.limits),
        step="step",
        terminal="terminal",
        decider="decider",
    )
    encoded, limits = Encoded(log), np.array(list(world.limits.values()), np.float32)
    began = time.monotonic()
    last = np.r_[log.episode[1:] != log.episode[:-1], True]
    x = encoded.x
    data = pdocrl.make_dataset(
        x,
        log.action,
        log.reward,
        np.stack(list(log.costs.values()), 1),
        np.where(last[:, None], x, np.roll(x, -1, 0)),
        log.terminal,
        last & ~log.terminal,
        cost_names=tuple(world.limits),
        discrete_actions=len(log.actions),
    )
    trained = pdocrl.train(data, "dial", cost_limit=[tuple(limits)], seed=seed, steps=given.steps)
    policy = trained.policies[0]
    said = policy.network.predicted(limits)
    claimed = dict(zip(("reward", *world.limits), (said.reward, *np.ravel(said.cost)), strict=True))
    seconds = time.monotonic() - began
    place = np.array([world.actions.index(str(a)) for a in log.actions])

    def decide(frame: Any, t: int, rng: Any) -> Any:
        obs = policy.normaliser.normalise_obs(encoded(frame).astype(np.float32))
        time_spent = np.full((len(obs), 1), t, np.float32)
        return place[policy.network.act(obs, np.tile(limits, (len(obs), 1)), frame["_paid"], time_spent).argmax(1)]

    true = totals(world, worlds.play(world, decide, given.played, 99), given.played)
    write = Writer(given.out, world, seed, given.episodes)
    write("dial", "predicted within" if said.within else "not predicted within", claimed, true, seconds)
    write.close()


if __name__ == "__main__":
    main()

"""Episodes in the environment a function makes: one environment, or many side by side (`VectorEnv`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from pdocrl.envs.episode import Episodes
from pdocrl.envs.rollout import EnvLike, Rollouts, episode_seeds
from pdocrl.errors import PdocrlError


def play_episodes(
    env: EnvLike | Callable[[], gymnasium.vector.VectorEnv],
    policies: Sequence[Any],
    episodes: int,
    seed: int = 0,
    workers: int = 0,
    costs: tuple[str, ...] | None = None,
) -> Episodes:
    """Play `episodes` episodes of each policy, in this process or in workers; see `Rollouts` for the arguments.

    Where the function makes a `VectorEnv`, its environments play side by side in this process.
    """
    if isinstance(env, str) or workers:
        with Rollouts(env, workers, costs) as pool:
            return pool.run(list(policies), episodes, seed)
    made = env()
    try:
        if isinstance(made, gymnasium.vector.VectorEnv):
            return play_vector(made, policies, episodes, seed, costs or ())
        with Rollouts(lambda: made, 0, costs) as pool:
            return pool.run(list(policies), episodes, seed)
    finally:
        made.close()


def play_vector(
    env: gymnasium.vector.VectorEnv,
    policies: Sequence[Any],
    episodes: int,
    seed: int = 0,
    costs: tuple[str, ...] = ("cost",),
) -> Episodes:
    """Play `episodes` episodes of each policy in the environments of a `VectorEnv`, as many at a time as there are.

    Episodes of one batch begin together; an environment whose episode is over waits for the others. Costs are the keys
    `costs` of `info`; one that no environment has is `cost`, of one constraint.
    """
    seeds = episode_seeds(seed, episodes)
    rows: list[tuple[int, int, int, float, NDArray[np.float64], int, bool, NDArray[np.float64]]] = []
    for number, policy in enumerate(policies):
        for first in range(0, episodes, env.num_envs):
            batch = seeds[first : first + env.num_envs]
            played = _play_batch(env, policy, batch, costs)
            rows += [(number, first + i, batch[i], *row) for i, row in enumerate(played)]
    columns = list(zip(*rows, strict=True))
    return Episodes(
        policy=np.array(columns[0]),
        episode=np.array(columns[1]),
        seed=np.array(columns[2]),
        reward=np.array(columns[3]),
        cost=np.array(columns[4]).reshape(len(rows), len(costs)),
        length=np.array(columns[5]),
        terminated=np.array(columns[6]),
        cost_names=costs,
        max_step_cost=np.array(columns[7]).reshape(len(rows), len(costs)),
    )


def _play_batch(
    env: gymnasium.vector.VectorEnv, policy: Any, seeds: Sequence[int], costs: tuple[str, ...]
) -> list[tuple[float, NDArray[np.float64], int, bool, NDArray[np.float64]]]:
    n, space = env.num_envs, env.single_action_space
    padded = [*seeds, *([seeds[-1]] * (n - len(seeds)))]
    obs, _ = env.reset(seed=padded)
    steps = [policy.begin(s) for s in padded] if hasattr(policy, "begin") else None
    alone = bool(getattr(policy, "has_memory", steps is not None))  # else one call acts for all environments
    reward, cost = np.zeros(n), np.zeros((n, len(costs)))
    total, total_cost, most = np.zeros(n), np.zeros((n, len(costs))), np.zeros((n, len(costs)))
    length, not_done, ended = np.zeros(n, int), np.ones(n, bool), np.zeros(n, bool)
    not_done[len(seeds) :] = False
    while not_done.any():
        seen = np.asarray(obs, np.float32).reshape(n, -1)
        if alone and steps is not None:
            action = np.stack([steps[i](seen[i], reward[i], cost[i]) for i in range(n)])
        else:
            action = np.asarray(policy(seen))
        if isinstance(space, gymnasium.spaces.Box):
            action = np.clip(action, space.low, space.high).astype(space.dtype)
        obs, raw, terminated, truncated, info = env.step(action)
        reward, cost = np.asarray(raw, np.float64), _costs(info, costs, n)
        if not (np.isfinite(reward[not_done]).all() and (cost[not_done] >= 0).all()):
            raise PdocrlError("the environment gave a reward that is not finite, or a cost below 0.")
        total += np.where(not_done, reward, 0)
        total_cost += np.where(not_done[:, None], cost, 0)
        most = np.where(not_done[:, None], np.maximum(most, cost), most)
        length += not_done
        ended |= not_done & np.asarray(terminated)
        not_done &= ~(np.asarray(terminated) | np.asarray(truncated))
    return [(float(total[i]), total_cost[i], int(length[i]), bool(ended[i]), most[i]) for i in range(len(seeds))]


def _costs(info: dict[str, Any], names: tuple[str, ...], n: int) -> NDArray[np.float64]:
    """[n, K] costs of a step; those of an episode's last step are in `final_info` where environments reset at once."""
    found = np.zeros((n, len(names)))
    last = info.get("final_info")
    for k, name in enumerate(names):
        key = name if name in info or len(names) > 1 else "cost"
        values = info.get(key)
        if values is not None:
            found[:, k] = np.asarray(values, np.float64)
        if isinstance(last, dict):  # Gymnasium 1: arrays, with a mask beside
            if key in last:
                told = np.asarray(info.get("_final_info", np.ones(n, bool)))
                found[:, k] = np.where(told, np.asarray(last[key], np.float64), found[:, k])
        elif last is not None:  # before: a dict, or None, of each environment
            for i, own in enumerate(last):
                if own is not None and key in own:
                    found[i, k] = float(own[key])
    return found

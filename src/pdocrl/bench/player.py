"""Roll-outs on a node of a cluster. It knows neither agents nor JAX, so that a player starts at once."""

from __future__ import annotations

from pdocrl.data.tasks import BUILT_IN, Task, register
from pdocrl.envs.episode import Episodes
from pdocrl.envs.rollout import Rollouts
from pdocrl.policies.policy import Policy

EVALUATION_SEED = 0  # decides the starts of all episodes, the same for every policy of every group

_pool: tuple[tuple[str, tuple[str, ...]], Rollouts] | None = None  # of this worker, kept from task to task


def play_remotely(task: Task, costs: tuple[str, ...], policy: Policy, first: int, count: int) -> Episodes:
    """On a node: play episodes first … first + count − 1, in a process with one thread as the local pool does."""
    global _pool
    if task.name not in {known.name for known in BUILT_IN}:
        register(task)
    if _pool is None or _pool[0] != (task.name, costs):
        if _pool is not None:
            _pool[1].close()
        _pool = (task.name, costs), Rollouts(task.name, 1, costs)
    return _pool[1].run(policy, count, EVALUATION_SEED, first=first)

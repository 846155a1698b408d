"""One episode: a policy, an environment, a seed. Everything a roll-out does, without the processes around it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from pdocrl.data.dataset import Dataset, make_dataset
from pdocrl.errors import PdocrlError
from pdocrl.policies.policy import NormalisedPolicy

Step = Callable[[NDArray[np.float32], float, NDArray[np.float64]], Any]
LONGEST = 1_000_000  # steps after which an episode is taken to have no end


@dataclasses.dataclass(frozen=True)
class Trajectory:
    """Every step of one episode, as the policy saw it and as it was carried out."""

    obs: NDArray[np.float32]  # [T + 1, S] the last one is where the episode ended
    action: NDArray[Any]  # [T, A] after clipping, in the environment's units; [T] where it is discrete
    reward: NDArray[np.float64]  # [T]
    cost: NDArray[np.float64]  # [T, K]
    bounds: tuple[NDArray[Any], NDArray[Any]] | None = None  # [A] each, of the environment's actions; None: discrete
    discrete_actions: tuple[int, ...] = ()  # a discrete environment's


@dataclasses.dataclass(frozen=True, eq=False)
class Episodes:
    """E episodes, all of the first policy before all of the second."""

    policy: NDArray[np.int64]  # [E] index into the policies given
    episode: NDArray[np.int64]  # [E] index within its policy: 0, 1, …
    seed: NDArray[np.int64]  # [E] given to the environment's reset and the policy's begin
    reward: NDArray[np.float64]  # [E] undiscounted
    cost: NDArray[np.float64]  # [E, K] undiscounted
    length: NDArray[np.int64]  # [E]
    terminated: NDArray[np.bool_]  # [E] the world stopped; otherwise the clock did
    cost_names: tuple[str, ...]  # K
    trajectories: tuple[Trajectory, ...] | None = None  # E, when recorded
    max_step_cost: NDArray[np.float64] | None = None  # [E, K] of each episode's costliest step; None: not known

    def __len__(self) -> int:
        return len(self.policy)

    def of_policy(self, index: int) -> Episodes:
        """The episodes of one policy."""
        rows = np.flatnonzero(self.policy == index)
        arrays = ("policy", "episode", "seed", "reward", "cost", "length", "terminated")
        kept = None if self.trajectories is None else tuple(self.trajectories[row] for row in rows)
        steps = None if self.max_step_cost is None else self.max_step_cost[rows]
        own = {name: getattr(self, name)[rows] for name in arrays}
        return dataclasses.replace(self, trajectories=kept, max_step_cost=steps, **own)

    def records(self) -> list[dict[str, Any]]:
        """One JSON-able row per episode."""
        names = ("policy", "episode", "seed", "reward", "cost", "length", "terminated")
        columns = [getattr(self, name).tolist() for name in names]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def dataset(self, name: str = "roll-outs") -> Dataset:
        """The recorded transitions, episode after episode."""
        if self.trajectories is None:
            raise PdocrlError("these episodes were not recorded; roll out with record=True.")
        bounds, given = self.trajectories[0].bounds, dict[str, Any]()
        if bounds is not None and np.isfinite(bounds).all():
            given = {"action_low": bounds[0], "action_high": bounds[1]}
        last = np.cumsum(self.length) - 1
        terminal, timeout = np.zeros((2, last[-1] + 1), dtype=bool)
        terminal[last], timeout[last] = self.terminated, ~self.terminated
        return make_dataset(
            obs=np.concatenate([t.obs[:-1] for t in self.trajectories]),
            action=np.concatenate([t.action for t in self.trajectories]),
            reward=np.concatenate([t.reward for t in self.trajectories]),
            cost=np.concatenate([t.cost for t in self.trajectories]),
            next_obs=np.concatenate([t.obs[1:] for t in self.trajectories]),
            terminal=terminal,
            timeout=timeout,
            name=name,
            cost_names=self.cost_names,
            discrete_actions=self.trajectories[0].discrete_actions,
            **given,
        )


def join_episodes(parts: Mapping[tuple[int, int], Episodes]) -> Episodes:
    """Parts by (policy, first episode) as one: all episodes of the first policy before all of the second."""
    order = sorted(parts)
    first = parts[order[0]]
    arrays = ("seed", "reward", "cost", "length", "terminated", "max_step_cost")
    joined = {
        name: np.concatenate([getattr(parts[key], name) for key in order])
        for name in arrays
        if all(getattr(part, name) is not None for part in parts.values())
    }
    recorded = [part.trajectories for part in parts.values() if part.trajectories is not None]
    return Episodes(
        policy=np.concatenate([np.full(len(parts[key]), key[0]) for key in order]),
        episode=np.concatenate([parts[key].episode + key[1] for key in order]),
        cost_names=first.cost_names,
        trajectories=tuple(one for key in order for one in parts[key].trajectories or ()) if recorded else None,
        **joined,
    )


def _seen(raw: Any, steps: int) -> NDArray[np.float32]:
    """An observation, flat; refuses one that is not finite."""
    obs: NDArray[np.float32] = np.asarray(raw, np.float32).reshape(-1)
    if not math.isfinite(obs.dot(obs)):  # the cheapest way to notice one NaN or infinity
        bad = np.flatnonzero(~np.isfinite(obs)).tolist()
        if bad:
            raise PdocrlError(
                f"the observation after {steps} steps is not finite (component {bad[0]} is {obs[bad[0]]}). Does the "
                "environment end before its state explodes?"
            )
    return obs


class Player:
    """An environment that plays one episode after another.

    Args:
        env: any Gymnasium environment with array observations, which are flattened, and box or discrete actions.
        costs: the keys of `info` that hold the costs; where it lacks them, the names of the K numbers in `cost`. None:
            `cost` where the environment has it (a number, or one per constraint), else no cost at all.
        exact: whether `costs` are keys and nothing else.
    """

    def __init__(self, env: gymnasium.Env, costs: tuple[str, ...] | None = None, exact: bool = False) -> None:
        self.env = env
        seen = type(env.observation_space).__name__
        if seen in {"Dict", "Tuple"}:
            raise PdocrlError(
                f"environment has a {seen} observation space; array observations are known. Wrap it in gymnasium's "
                "FlattenObservation."
            )
        space = env.action_space
        self._discrete_actions: tuple[int, ...] = ()
        if isinstance(space, gymnasium.spaces.Discrete):
            self._discrete_actions = tuple(range(int(space.start), int(space.start + space.n)))
        elif isinstance(space, gymnasium.spaces.Box):
            self._low, self._high = space.low, space.high
        else:
            raise PdocrlError(
                f"environment has a {type(space).__name__} action space; box and discrete ones are known."
            )
        self._keys, self.cost_names = self._find_costs(costs, exact)

    def play(
        self, policy: Any, seed: int, record: bool = False, look: Callable[[gymnasium.Env], None] | None = None
    ) -> Episodes:
        """Play the episode of this seed. Actions are clipped to the environment's bounds before they are carried out.

        A policy with `begin` is asked for the episode's own `step(obs [S], last_reward, last_cost [K])`; any other is
        called with one observation as a batch, [1, S] → [1, A], so that its rounding does not depend on how many
        episodes are played side by side. `look` is called after the reset and after every step.
        """
        if isinstance(policy, NormalisedPolicy):
            self._refuse_other_actions(policy)
        step: Step = policy.begin(seed) if hasattr(policy, "begin") else lambda obs, *_: policy(obs[None])[0]
        raw, _ = self.env.reset(seed=seed)
        if isinstance(policy, NormalisedPolicy) and np.size(raw) != (known := len(policy.normaliser.obs_mean)):
            raise PdocrlError(
                f"the environment's observations have {np.size(raw)} numbers, those of the policy's data {known}. Is "
                "it the environment of the data?"
            )
        reward, cost = 0.0, np.zeros(len(self.cost_names))
        total, total_cost, max_cost, length = 0.0, cost, cost, 0
        seen, done, rewards, costs = [], [], [], []
        obs = _seen(raw, 0)
        while True:
            if look is not None:
                look(self.env)
            action = self._executable(step(obs, reward, cost), length)
            raw, reward, terminated, truncated, info = self.env.step(action)
            after, cost = _seen(raw, length + 1), self._costs_in(info)
            if not (np.isfinite(reward) and ((cost >= 0) & (cost < np.inf)).all()):
                raise PdocrlError(
                    f"step {length} earned {reward} and cost {', '.join(map(str, cost.tolist()))}; rewards are finite "
                    "numbers, and costs are finite and at least 0: what a limit is held against only grows."
                )
            total, total_cost, length = total + reward, total_cost + cost, length + 1
            max_cost = np.maximum(max_cost, cost)
            if record:
                seen.append(obs)
                done.append(action)
                rewards.append(reward)
                costs.append(cost)
            obs = after
            if terminated or truncated:
                break
            if length >= LONGEST:
                raise PdocrlError(f"no end after {LONGEST} steps; wrap the environment in gymnasium's TimeLimit.")
        if look is not None:
            look(self.env)
        trajectory = None
        if record:
            trajectory = Trajectory(
                np.stack([*seen, obs]),
                np.array(done),
                np.array(rewards),
                np.stack(costs),
                None if self._discrete_actions else (self._low, self._high),
                self._discrete_actions,
            )
        return Episodes(
            policy=np.zeros(1, np.int64),
            episode=np.zeros(1, np.int64),
            seed=np.array([seed]),
            reward=np.array([float(total)]),
            cost=total_cost[None],
            length=np.array([length]),
            terminated=np.array([bool(terminated)]),
            cost_names=self.cost_names,
            trajectories=None if trajectory is None else (trajectory,),
            max_step_cost=max_cost[None],
        )

    def _refuse_other_actions(self, policy: NormalisedPolicy) -> None:
        """A trained policy speaks the units of its data; where the environment's are others it must not act."""
        known = tuple(policy.normaliser.discrete_actions.tolist())
        if known != self._discrete_actions:
            own = f"discrete, {known[0]} … {known[-1]}" if known else "continuous"
            raise PdocrlError(
                f"the environment's actions are {self.env.action_space}, the policy's are {own}. Is it the environment "
                "of the data? A file is told its discrete actions by `pdocrl data convert "
                "--discrete-actions N`, or load(file, discrete_actions=N)."
            )
        if known:
            return
        low, high = policy.normaliser.action_low, policy.normaliser.action_high
        if low.shape != self._low.shape:
            return  # named by the action's own shape
        if not (np.allclose(low, self._low, rtol=1e-5) and np.allclose(high, self._high, rtol=1e-5)):
            raise PdocrlError(
                f"the environment takes actions in {_box(self._low, self._high)}, the policy was trained for "
                f"{_box(low, high)}. Is it the environment of the data? A file is told its bounds by `pdocrl data "
                "convert --rescale-actions LOW HIGH`, or load(file, action_low=…, action_high=…)."
            )

    def _executable(self, output: Any, step: int) -> Any:
        """The policy's output as the environment takes it: the space's type, within its bounds, never NaN.

        Clipped here, once for all: some simulators clip what moves the body but charge for the action as given.
        """
        if self._discrete_actions:
            return self._choice(output, step)
        action = np.asarray(output, dtype=self._low.dtype)
        if action.shape != self._low.shape:
            raise PdocrlError(
                f"the policy's action at step {step} has shape {action.shape}, the environment takes {self._low.shape}."
            )
        if not np.isfinite(action).all():
            raise PdocrlError(f"the policy's action at step {step} is not finite: {action.tolist()}.")
        return np.minimum(np.maximum(action, self._low), self._high)

    def _choice(self, output: Any, step: int) -> int:
        """One of the environment's discrete actions: a half is not rounded to one, and nothing beyond them is tried."""
        given = np.asarray(output)
        if given.size != 1 or given.reshape(()) not in self._discrete_actions:
            raise PdocrlError(
                f"the policy's action at step {step} is {given.tolist()}, the environment takes one of "
                f"{self._discrete_actions[0]} … {self._discrete_actions[-1]}."
            )
        return int(given.reshape(()))

    def _find_costs(self, asked: tuple[str, ...] | None, exact: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(keys in `info`, names of the K costs). Played out, since no environment declares what its `info` holds."""
        self.env.reset(seed=0)
        self.env.action_space.seed(0)
        info = self.env.step(self.env.action_space.sample())[4]
        keys = asked if asked is not None else tuple(key for key in ("cost",) if key in info)
        missing = [key for key in keys if key not in info]
        if missing and not exact and "cost" in info and np.size(info["cost"]) == len(keys):
            return ("cost",), keys  # the same costs under names of the data's own
        if missing:
            there = ", ".join(sorted(map(str, info))) or "nothing"
            raise PdocrlError(f"the environment's info has no `{missing[0]}`; it holds {there}.")
        if len(keys) == 1 and np.ndim(info[keys[0]]) == 1 and (k := len(info[keys[0]])) != 1:
            return keys, tuple(f"{keys[0]}_{i}" for i in range(k))
        return keys, keys

    def _costs_in(self, info: dict[str, Any]) -> NDArray[np.float64]:
        if len(self._keys) == 1:
            return np.asarray(info[self._keys[0]], dtype=np.float64).reshape(len(self.cost_names))
        return np.array([float(info[key]) for key in self._keys])


def _box(low: NDArray[Any], high: NDArray[Any]) -> str:
    """[0, 5], or [-1, 1] × [0, 5] where dimensions differ."""
    sides = [f"[{a:g}, {b:g}]" for a, b in zip(low.reshape(-1), high.reshape(-1), strict=True)]
    return sides[0] if len(set(sides)) == 1 else " × ".join(sides)

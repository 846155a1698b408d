"""A conformance kit for agents: `check_agent(MyAgent)` runs one through everything the rest of the library relies on.

    from pdocrl.testing import check_agent

    report = check_agent(MyAgent, hidden=(32, 32), batch_size=64)     # raises with every failed check
    print(report)

It needs no simulator and no data: the worlds are made here, small, and their answers are known (`bandit`).
"""

from __future__ import annotations

import dataclasses
import html
import inspect
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from pdocrl.agents.base import Agent, Learned, describe_config, make_config
from pdocrl.agents.registry import as_agent
from pdocrl.data.dataset import Dataset, make_dataset
from pdocrl.errors import MissingExtraError, PdocrlError
from pdocrl.policies.cost_conditioned import CostConditionedPolicy
from pdocrl.policies.onnx import to_onnx
from pdocrl.policies.policy import PolicyInputError, ProposingPolicy, TransformerPolicy, load_all, save
from pdocrl.training.final_state import FinalState
from pdocrl.training.train import resume, train
from pdocrl.training.trainer import Run, Trainer

HORIZON = 10
LIMITS, SEEDS = (1.0, 4.0), (0, 1)  # of the runs trained side by side; the limit bites at neither seed's start


class ConformanceError(PdocrlError):
    """An agent that fails some checks; the message names each."""


@dataclasses.dataclass(frozen=True)
class Check:
    """One check: what it asks for, and what was wrong; "" where it passed, "skipped: …" where it does not apply."""

    name: str
    failure: str = ""

    @property
    def passed(self) -> bool:
        return not self.failure or self.failure.startswith("skipped")


@dataclasses.dataclass(frozen=True)
class Conformance:
    """What became of every check of an agent."""

    agent: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    def __repr__(self) -> str:
        lines = [
            f"{'ok  ' if c.passed else 'FAIL'}  {c.name}{': ' + c.failure if c.failure else ''}" for c in self.checks
        ]
        return "\n".join([f"{self.agent}: {'passed' if self.passed else 'failed'}", *lines])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


def bandit(
    rows: int = 400, costs: int = 1, actions: int = 0, seed: int = 0, scale: float = 1.0, bound: float = 1.0
) -> Dataset:
    """A world of one decision a step, whose answer is known: reward a, cost a² (and |a| for a second one, …).

    Episodes have `HORIZON` steps, observations [N, 2] are noise, actions are uniform in [−bound, bound]. At most κ cost
    a step, the best action is √κ, for a second cost min(√κ₁, κ₂). With `actions` they are discrete, 0 … n − 1, and a
    runs from −1 to 1. Observations are multiplied by `scale`.
    """
    rng = np.random.default_rng(seed)
    obs = rng.standard_normal((rows + 1, 2)) * scale
    if actions:
        taken: NDArray[Any] = rng.integers(actions, size=rows)
        a = 2 * taken / (actions - 1) - 1
    else:
        a = rng.uniform(-1, 1, rows)
        taken = a[:, None] * bound
    cost = np.stack([np.abs(a) ** (2 if k == 0 else 1) for k in range(costs)], -1) if costs else None
    timeout = np.arange(rows) % HORIZON == HORIZON - 1
    return make_dataset(
        obs[:-1],
        taken,
        a,
        cost,
        obs[1:],
        np.zeros(rows),
        timeout,
        name="bandit",
        action_low=None if actions else -bound,
        action_high=None if actions else bound,
        discrete_actions=actions or (),
    )


def solve_bandit(
    agent: str | type[Agent[Any, Any]] | Agent[Any, Any], kappa: float = 0.25, steps: int = 3000, **settings: Any
) -> tuple[float, float, float]:
    """Train on the bandit with at most κ cost a step: the reward and cost a step of what was learned, and the optimum.

    The optimum is √κ. What distance from it is acceptable depends on the method and on the number of steps.
    """
    data = bandit(4000)
    trained = train(data, agent, cost_limit=kappa * HORIZON, steps=steps, log_every=steps, settings=settings)
    policy: Any = trained.policies[0]
    a = np.asarray(policy(data.obs[:500])).reshape(-1)
    return float(a.mean()), float((a**2).mean()), float(np.sqrt(kappa))


def check_agent(
    agent: str | type[Agent[Any, Any]] | Agent[Any, Any],
    *,
    costs: Sequence[int] = (0, 1, 2),
    discrete: bool = True,
    steps: int = 12,
    data: Dataset | None = None,
    raises: bool = True,
    **settings: Any,
) -> Conformance:
    """Run an agent through the kit.

    Args:
        agent: a name, a class or an instance.
        costs: numbers of constraints to try, as far as the agent takes them.
        discrete: whether to try discrete actions, where the agent takes them.
        steps: gradient steps of each training.
        data: a dataset of one cost to use in place of the kit's own, [N, S] and [N, A] of any size.
        raises: whether to raise a `ConformanceError` where a check fails; else the report says so.
        settings: the agent's, to make it small and quick.
    """
    chosen = as_agent(agent)
    kit = _Kit(chosen, settings, steps)
    most = chosen.most_costs if chosen.most_costs is not None else max(costs)
    tried = [k for k in costs if chosen.fewest_costs <= k <= most]
    kit.check("every setting is explained by a comment", kit.settings_are_explained)
    for k in tried:
        own = data if data is not None and k == data.n_costs else bandit(costs=k)
        words = f"with {k} cost(s): " if len(tried) > 1 else ""
        kit.check(f"{words}runs side by side have finite metrics and their own policies", lambda d=own: kit.runs(d))  # type: ignore[misc]
    if tried:
        k = tried[-1]
        own = data if data is not None and k == data.n_costs else bandit(costs=k)
        for name, function in (
            ("a run has the same bits whatever runs beside it", kit.company_is_no_matter),
            ("training that is said to ignore the limit ignores it", kit.ignoring_is_ignoring),
            ("a stopped training resumes to the same bits", kit.resumes),
            ("a policy's file holds the whole policy", kit.file_is_whole),
            ("the ONNX model computes the same", kit.onnx_is_equal),
            ("policies refuse what is not finite", kit.nan_is_refused),
            ("samples are actions, and densities sum to one", kit.densities),
            ("learned functions have their shapes and are finite", kit.learned_functions),
            ("units of observations and actions do not matter", kit.units),
        ):
            kit.check(name, lambda f=function: f(own))  # type: ignore[misc]
    if discrete:
        kit.check("discrete actions", kit.discrete)
    report = Conformance(chosen.name, tuple(kit.checks))
    if raises and not report.passed:
        failed = "; ".join(f"{check.name}: {check.failure}" for check in report.checks if not check.passed)
        raise ConformanceError(f"agent {chosen.name} fails {failed}.")
    return report


class _Wrong(Exception):
    """A check that failed, in words."""


class _Skipped(Exception):
    """A check that does not apply."""


def _demand(fact: Any, words: str) -> None:
    if not fact:
        raise _Wrong(words)


class _Kit:
    def __init__(self, agent: Agent[Any, Any], settings: dict[str, Any], steps: int) -> None:
        self.agent, self.settings, self.steps = agent, settings, steps
        self.checks: list[Check] = []
        self._trained: dict[int, Trainer] = {}

    def check(self, name: str, function: Callable[[], None]) -> None:
        """Call it; what it raises becomes the check's failure."""
        try:
            function()
        except _Skipped as reason:
            self.checks.append(Check(name, f"skipped: {reason}"))
        except _Wrong as wrong:
            self.checks.append(Check(name, str(wrong)))
        except Exception as error:  # an agent may fail in any way
            self.checks.append(Check(name, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"))
        else:
            self.checks.append(Check(name))

    def make_runs(self, data: Dataset, limits: Sequence[float] = LIMITS, seeds: Sequence[int] = SEEDS) -> list[Run]:
        return [
            Run(
                make_config(
                    self.agent, **self.settings, cost_limit=(limit,) * data.n_costs, horizon=float(data.longest_episode)
                ),
                seed,
            )
            for limit in (limits if data.n_costs else limits[:1])
            for seed in seeds
        ]

    def trainer(self, data: Dataset) -> Trainer:
        """Runs of both limits and seeds after `steps` steps; the same for every check of a dataset."""
        if id(data) not in self._trained:
            trainer = Trainer(self.agent, data, self.make_runs(data))
            trainer.advance(self.steps)
            self._trained[id(data)] = trainer
        return self._trained[id(data)]

    def settings_are_explained(self) -> None:
        try:
            inspect.getsource(self.agent.Config)
        except (OSError, TypeError):
            raise _Skipped("the source of its config is not at hand") from None
        bare = [field["name"] for field in describe_config(self.agent.Config) if not field["meaning"]]
        _demand(not bare, f"no comment beside {', '.join(bare)}")

    def runs(self, data: Dataset) -> None:
        trainer = Trainer(self.agent, data, self.make_runs(data))
        metrics = trainer.advance(self.steps)
        self._trained[id(data)] = trainer
        _demand(metrics, "`update` gives no metrics")
        _demand(not trainer.failures, f"a run stopped at {next(iter(trainer.failures.values()), '')}")
        for name, values in metrics.items():
            _demand(values.shape == (len(trainer.runs),), f"metric {name} is no scalar")
            _demand(np.isfinite(values).all(), f"metric {name} is not finite")
        acted = [np.asarray(policy(data.obs[:5])) for policy in trainer.policies()]
        for action in acted:
            _demand(action.shape == (5, data.action_dim), f"actions have shape {action.shape}, not [B, A]")
            low, high = np.asarray(data.action_bounds)
            _demand((action >= low).all() and (action <= high).all(), "actions leave their bounds")
        _demand(acted[0].tobytes() != acted[1].tobytes(), "two seeds act alike")

    def company_is_no_matter(self, data: Dataset) -> None:
        mine, others = self.trainer(data), Trainer(self.agent, data, self.make_runs(data, LIMITS[::-1], (5, *SEEDS)))
        others.advance(self.steps)
        run = next(
            i for i, r in enumerate(others.runs) if (r.config, r.seed) == (mine.runs[0].config, mine.runs[0].seed)
        )
        _demand(_bits(mine, 0) == _bits(others, run), "its state depends on the runs beside it")

    def ignoring_is_ignoring(self, data: Dataset) -> None:
        runs = self.make_runs(data)
        if "ignores_limit" not in vars(type(self.agent)) or not self.agent.ignores_limit(runs[0].config):
            raise _Skipped("it trains with the limit")
        states = []
        for limit in LIMITS:
            alone = Trainer(self.agent, data, self.make_runs(data, (limit,), SEEDS[:1]))
            alone.advance(self.steps)
            states.append(_bits(alone, 0))
        _demand(states[0] == states[1], "`ignores_limit` is true, and the state depends on the limit")

    def resumes(self, data: Dataset) -> None:
        limits = [[limit] * data.n_costs for limit in LIMITS] if data.n_costs else None
        arguments: dict[str, Any] = {"cost_limit": limits, "seed": SEEDS, "settings": self.settings}
        with tempfile.TemporaryDirectory() as place:
            folder, early = Path(place) / "run", max(1, self.steps // 2 - 1)
            train(data, self.agent, steps=early, horizon=data.longest_episode, out=folder, **arguments)
            resumed = resume(folder, data, steps=self.steps, agent=self.agent)
            whole = self.trainer(data)
            for run in range(len(whole.runs)):
                mine = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(resumed.state_of(run))]
                _demand(mine == _bits(whole, run), f"run {run} has another state than one that was not stopped")

    def file_is_whole(self, data: Dataset) -> None:
        policy: Any = self.trainer(data).policies()[-1]
        with tempfile.TemporaryDirectory() as place:
            save(Path(place) / "policy.npz", [policy])
            restored: Any = load_all(Path(place) / "policy.npz")[0][0]
        feeds = policy_inputs(policy)
        _demand((restored.act(**feeds) == policy.act(**feeds)).all(), "a policy read from its file acts otherwise")

    def onnx_is_equal(self, data: Dataset) -> None:
        policy: Any = self.trainer(data).policies()[-1]
        try:
            import onnxruntime

            model = to_onnx(policy)
        except (ImportError, MissingExtraError) as error:
            raise _Skipped(f"ONNX is not installed ({error})") from None
        except PdocrlError as error:
            raise _Skipped(str(error)) from None
        session = onnxruntime.InferenceSession(model.SerializeToString())
        feeds = policy_inputs(policy)
        names = {entry.name for entry in session.get_inputs()}
        _demand(names == feeds.keys(), f"the model's inputs are {sorted(names)}, the policy's {sorted(feeds)}")
        difference = np.abs(session.run(None, feeds)[0] - policy.act(**feeds)).max()
        _demand(difference <= 1e-5, f"actions differ by {difference:.1e}")
        broken = {**feeds, "obs": np.full_like(feeds["obs"], np.nan)}
        answer = session.run(None, broken)[0]
        _demand(np.isnan(answer).all(), "the model answers an observation of NaN with an action")

    def nan_is_refused(self, data: Dataset) -> None:
        policy: Any = self.trainer(data).policies()[0]
        for bad in (np.nan, np.inf):
            obs = data.obs[:1].copy()
            obs[0, -1] = bad
            for call in (policy, policy.act, lambda row: policy.begin(0)(row[0], 0.0, np.zeros(data.n_costs))):
                try:
                    call(obs)
                except PolicyInputError:
                    continue
                raise _Wrong(f"an observation of {bad} is answered with an action")

    def densities(self, data: Dataset) -> None:
        policy: Any = self.trainer(data).policies()[0]
        obs = np.repeat(data.obs[:1], 64, 0)
        drawn = policy.sample(obs, 0)
        low, high = np.asarray(data.action_bounds)
        _demand(drawn.shape == (64, data.action_dim), f"samples have shape {drawn.shape}, not [B, A]")
        _demand((drawn >= low).all() and (drawn <= high).all(), "samples leave the bounds of actions")
        _demand((policy.sample(obs, 0) == drawn).all(), "samples of one seed differ")
        if not getattr(policy.network, "density", "") or data.action_dim > 1:
            raise _Skipped("it has no density, or more than one action to integrate over")
        inside = np.linspace(float(low[0]), float(high[0]), 20_001)[1:-1, None]
        rows = np.repeat(data.obs[:1], len(inside), 0)
        mass = np.exp(policy.log_prob(rows, inside)).sum() * (inside[1, 0] - inside[0, 0])
        if policy.network.has_mass(np.ones((1, 1)))[0, 0]:
            ends = np.asarray([low, high], np.float32)
            mass += np.exp(policy.log_prob(rows[:2], ends)).sum()
        _demand(abs(mass - 1) < 0.02, f"the density sums to {mass:.3f}")

    def learned_functions(self, data: Dataset) -> None:
        trainer = self.trainer(data)
        final = FinalState.of(trainer)
        own = self.agent.learned(trainer.runs[0].config, jax.tree.map(np.asarray, final.state_of(0)))
        names = [field.name for field in dataclasses.fields(Learned) if getattr(own, field.name) is not None]
        if not names:
            raise _Skipped("it learns nothing beside its policy")
        low, high = np.asarray(data.action_bounds)
        action = low + (data.action[:7] + 1) / 2 * (high - low)
        for name in names:
            if name == "multipliers":
                _demand(final.multipliers(0).shape == (data.n_costs,), "multipliers are not [K]")
                continue
            found = final.call(name, 0, data.obs[:7], None if name.startswith("v") else action)
            wanted = (7, data.n_costs) if name.endswith("cost") else (7,)
            _demand(found.shape == wanted, f"{name} has shape {found.shape}, expected {wanted}")
            _demand(np.isfinite(found).all(), f"{name} is not finite")

    def units(self, data: Dataset) -> None:
        """Powers of two, so that standardised numbers are the same to the last bits."""
        low, high = (4 * np.asarray(side) for side in data.action_bounds)
        scaled = dataclasses.replace(
            data,
            obs=data.obs * np.float32(8),
            next_obs=data.next_obs * np.float32(8),
            action_low=tuple(low.tolist()),
            action_high=tuple(high.tolist()),
            path="",
        )
        other = Trainer(self.agent, scaled, self.make_runs(scaled))
        other.advance(self.steps)
        for mine, theirs in zip(self.trainer(data).policies(), other.policies(), strict=True):
            here, there = np.asarray(mine(data.obs[:20])), np.asarray(theirs(scaled.obs[:20]))
            difference = np.abs(4 * here - there).max()
            _demand(difference < 1e-3, f"actions differ by {difference:.1e} where only units do")

    def discrete(self) -> None:
        data = bandit(costs=max(1, self.agent.fewest_costs), actions=3)
        if not self.agent.discrete_actions:
            raise _Skipped("it is for continuous actions")
        trainer = Trainer(self.agent, data, self.make_runs(data))
        trainer.advance(self.steps)
        for policy in trainer.policies():
            action = np.asarray(policy(data.obs[:5]))
            _demand(action.shape == (5,), f"discrete actions have shape {action.shape}, not [B]")
            _demand(np.isin(action, data.discrete_actions).all(), "an action is none of the data's")


def policy_inputs(policy: Any, rows: int = 6, seed: int = 0) -> dict[str, Any]:
    """Random inputs of every kind that a policy's pure function, and its ONNX model, takes, by name."""
    rng = np.random.default_rng(seed)
    network, obs_dim = policy.network, len(policy.normaliser.obs_mean)
    low, high = policy.normaliser.action_low, policy.normaliser.action_high
    if isinstance(network, TransformerPolicy):
        length, costs = network.context, len(network.target_cost)
        feeds: dict[str, Any] = {
            "returns": rng.normal(size=(rows, length)),
            "costs": rng.normal(size=(rows, length, costs)),
            "obs": rng.normal(size=(rows, length, obs_dim)),
            "mask": np.arange(length)
            >= length - 1 - np.arange(rows)[:, None].clip(0, length - 1),  # padded on the left
        }
        feeds = {name: array.astype(np.float32) for name, array in feeds.items()}
        if len(policy.normaliser.discrete_actions):
            feeds["actions"] = rng.choice(policy.normaliser.discrete_actions, size=(rows, length))
        else:
            feeds["actions"] = rng.uniform(low, high, (rows, length, len(low))).astype(np.float32)
        return feeds | {"time": rng.integers(0, HORIZON, (rows, length))}
    feeds = {"obs": rng.normal(size=(rows, obs_dim)).astype(np.float32)}
    if isinstance(network, ProposingPolicy):
        feeds["latent"] = rng.normal(size=(rows, network.candidates, network.latent_dim)).astype(np.float32)
    if isinstance(network, CostConditionedPolicy):
        costs = len(network.limit)
        feeds["limit"] = np.repeat(np.linspace(0, 9, rows)[:, None], costs, 1).astype(np.float32)
        feeds["spent"] = rng.uniform(0, 3, (rows, costs)).astype(np.float32)
        feeds["time"] = np.arange(rows, dtype=np.float32)[:, None]
    return feeds


def _bits(trainer: Trainer, run: int) -> list[bytes]:
    training = trainer.training[run]
    return [np.asarray(leaf[training]).tobytes() for leaf in jax.tree.leaves(trainer.state)]

"""The estimators of `pdocrl.ope` against independent implementations: Open Bandit Pipeline (obp) and SCOPE-RL.

    python benchmarks/independent_estimators.py theirs /tmp/theirs.npz    # where obp 0.4.1 and scope-rl 0.2.1 are
    python benchmarks/independent_estimators.py ours /tmp/theirs.npz      # where pdocrl is: writes the rows

Both need old packages, so they stand in an environment of their own: `pip install --no-deps obp scope-rl`, then numpy,
scipy, scikit-learn, pandas, pyyaml, tqdm, mypy_extensions and matplotlib; packages that their estimators import and do
not use (torch, d3rlpy, gym, …) are replaced by empty modules. Everybody gets the same rows, propensities, policy, Q
function and density ratios: bandits from obp's own generator, bandits and episodes from `problem`. SCOPE-RL adds 1e-10
to the mean of weights. Rows: benchmarks/results/independent_estimators.csv; a test recomputes ours.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

ROWS = Path(__file__).parent / "results" / "independent_estimators.csv"
PROBLEMS = (("bandit", 1, 1.0, 0), ("episodes of 5", 5, 1.0, 1), ("episodes of 20, γ = 0.9", 20, 0.9, 2))
ACTIONS, EPISODES = 4, 60
UNUSED = ("torch", "seaborn", "d3rlpy", "gym", "gymnasium", "hydra", "omegaconf", "pytorch_revgrad", "pyieoe")
Problem = dict[str, Any]


def problem(steps: int, gamma: float, seed: int) -> Problem:
    """Rows of episodes of equal length, a policy, and any Q function and density ratios: estimates need not be good."""
    rng = np.random.default_rng(seed)
    n = EPISODES * steps
    behaviour, target = rng.dirichlet(np.full(ACTIONS, 2.0), n), rng.dirichlet(np.full(ACTIONS, 2.0), n)
    action = (rng.random(n)[:, None] > np.cumsum(behaviour, axis=1)[:, :-1]).sum(1)
    return {
        "steps": steps,
        "gamma": gamma,
        "action": action,
        "reward": rng.normal(size=n) + action,
        "propensity": behaviour[np.arange(n), action],
        "target": target,
        "q": rng.normal(size=(n, ACTIONS)) + 1,
        "ratio": rng.gamma(2.0, 0.5, n),
    }


def ours(given: Problem) -> dict[str, float]:
    """{estimator: value}"""
    from pdocrl.data.event_log import EventLog
    from pdocrl.ope.estimators import problem as problems
    from pdocrl.ope.estimators.double_reinforcement import double
    from pdocrl.ope.estimators.doubly_robust import doubly_robust
    from pdocrl.ope.estimators.fqe import direct
    from pdocrl.ope.estimators.importance import per_decision, trajectory

    steps, n = given["steps"], len(given["action"])
    columns = {name: given[name] for name in ("action", "reward", "propensity")}
    where = {"episode": np.arange(n) // steps, "t": np.arange(n) % steps, "x": np.zeros(n)}
    log = EventLog.read(columns | where, step="t", propensity="propensity")
    it = problems.Problem(log, given["target"], given["propensity"], False, np.ones((n, 1)), given["gamma"])
    q = given["q"]
    estimates = [trajectory(it, "reward", kind) for kind in ("plain", "weighted")]
    estimates += [per_decision(it, "reward", kind) for kind in ("plain", "weighted")]
    estimates += [doubly_robust(it, "reward", q, weighted) for weighted in (False, True)]
    ratio = given["ratio"] * given["gamma"] ** log.step
    estimates += [direct(it, "reward", q, "given Q"), double(it, "reward", q, ratio, "given ratio")]
    return {e.estimator: float(e.value or 0.0) for e in estimates}


def theirs(given: Problem) -> dict[str, tuple[float, str]]:
    """{estimator: (value, whose)}"""
    from scope_rl.ope.discrete import basic_estimators as basic
    from scope_rl.ope.discrete import marginal_estimators as marginal

    steps = given["steps"]
    shared = {
        "step_per_trajectory": steps,
        "action": given["action"],
        "reward": given["reward"],
        "evaluation_policy_action_dist": given["target"],
        "gamma": given["gamma"],
    }
    weights = {"pscore": given["propensity"]}
    q = {"state_action_value_prediction": given["q"]}
    ratio = {"state_action_marginal_importance_weight": given["ratio"]}
    named = {
        "trajectory importance sampling": (basic.TrajectoryWiseImportanceSampling, weights),
        "weighted trajectory importance sampling": (basic.SelfNormalizedTIS, weights),
        "per-decision importance sampling": (basic.PerDecisionImportanceSampling, weights),
        "weighted per-decision importance sampling": (basic.SelfNormalizedPDIS, weights),
        "doubly robust": (basic.DoublyRobust, weights | q),
        "weighted doubly robust": (basic.SelfNormalizedDR, weights | q),
        "fitted Q evaluation (given Q)": (basic.DirectMethod, q),
    }
    if given["gamma"] == 1:  # its double reinforcement learning knows no γ
        named["double reinforcement learning (given ratio)"] = (marginal.DoubleReinforcementLearning, ratio | q)
    return {
        name: (float(kind().estimate_policy_value(**shared, **more)), "SCOPE-RL 0.2.1")
        for name, (kind, more) in named.items()
    }


def of_bandits(given: Problem) -> dict[str, tuple[float, str]]:
    """obp's estimators, for one step."""
    from obp.ope import estimators as obp

    shared = {
        "reward": given["reward"],
        "action": given["action"],
        "action_dist": given["target"][:, :, None],
        "pscore": given["propensity"],
    }
    q = {"estimated_rewards_by_reg_model": given["q"][:, :, None]}
    named = {
        "trajectory importance sampling": (obp.InverseProbabilityWeighting(), {}),
        "weighted trajectory importance sampling": (obp.SelfNormalizedInverseProbabilityWeighting(), {}),
        "doubly robust": (obp.DoublyRobust(), q),
        "weighted doubly robust": (obp.SelfNormalizedDoublyRobust(), q),
        "fitted Q evaluation (given Q)": (obp.DirectMethod(), q),
    }
    return {
        name: (float(one.estimate_policy_value(**shared, **more)), "obp 0.4.1") for name, (one, more) in named.items()
    }


def synthetic() -> Problem:
    """A bandit log of obp's own generator; the policy is its linear one, Q its true expected rewards."""
    from obp.dataset import SyntheticBanditDataset, linear_behavior_policy, logistic_reward_function

    made = SyntheticBanditDataset(
        n_actions=6, dim_context=4, reward_function=logistic_reward_function, random_state=7
    ).obtain_batch_bandit_feedback(n_rounds=2_000)
    chance = linear_behavior_policy(made["context"], made["action_context"], random_state=8)
    chance = np.exp(chance - chance.max(1, keepdims=True)) if not np.allclose(chance.sum(1), 1) else chance
    return {
        "steps": 1,
        "gamma": 1.0,
        "action": made["action"],
        "reward": made["reward"].astype(float),
        "propensity": made["pscore"],
        "target": chance / chance.sum(1, keepdims=True),
        "q": made["expected_reward"],
        "ratio": np.ones(2_000),
    }


class _Anything(type):
    """Of classes whose every attribute is another one."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (), {})

    def __getitem__(cls, key: Any) -> Any:
        return cls


class _Empty(types.ModuleType):
    """A package whose every name is an empty class."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (), {})


class _Unused(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        known = name.split(".")[0] in UNUSED
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if known else None

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Empty(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def main() -> None:
    what, path = sys.argv[1], Path(sys.argv[2])
    given = {name: problem(*rest) for name, *rest in PROBLEMS}
    if what == "theirs":
        sys.meta_path.append(_Unused())
        given["bandit of obp"] = synthetic()
        lines = []
        for name, one in given.items():
            told = [theirs(one)] + ([of_bandits(one)] if one["steps"] == 1 else [])
            lines += [(name, estimator, whose, value) for each in told for estimator, (value, whose) in each.items()]
        np.savez(
            path,
            lines=np.array([tuple(map(str, line[:3])) for line in lines]),
            values=[x[3] for x in lines],
            **{key: given["bandit of obp"][key] for key in given["bandit of obp"]},
        )
        return
    with np.load(path) as kept:
        lines, values = kept["lines"].tolist(), kept["values"].tolist()
        given["bandit of obp"] = {key: kept[key] for key in given["bandit"]}
        given["bandit of obp"] |= {"steps": 1, "gamma": 1.0}
    own = {name: ours(one) for name, one in given.items()}
    rows = ["problem,estimator,by,theirs,ours,difference"]
    for (name, estimator, whose), value in zip(lines, values, strict=True):
        mine = own[name][estimator]
        rows.append(f'"{name}",{estimator},{whose},{value:.15g},{mine:.15g},{mine - value:.2g}')
    ROWS.write_text("\n".join(rows) + "\n", encoding="utf-8")
    print("\n".join(rows))


if __name__ == "__main__":
    main()

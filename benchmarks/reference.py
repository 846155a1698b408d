"""What the published code computes, as numbers: a few steps of the authors' PDOCRL and of OSRL's CPQ and CDT.

    git clone https://github.com/komin0407/PDOCRL        (38d04e6: PDOCRL, and OSRL's CPQ and CDT, byte for byte)
    python benchmarks/reference.py PDOCRL --out tests/agents/reference.npz

Runs in an environment of its own, with torch and NumPy and not with pdocrl. Small networks, made-up batches, doubles,
every random number written down: weights before, losses, Adam's moments after one step, weights after one and ten. The
code is imported as it is; only what it logs to and shows is replaced. `tests/agents/test_reference.py` takes the same
weights, batches and random numbers through our update and compares. `--full` makes them as large as published, to look
at once and not to be committed. For CDT also: the code's data preparation on a made-up log, and an acted episode.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.machinery
import json
import random
import sys
import types
from typing import Any

import numpy as np
import torch

STEPS = 10
Arrays = dict[str, Any]


class Silent:
    """Stands for the loggers of FSRL."""

    def store(self, **_: Any) -> None:
        pass


class Pareto:
    """Stands for OApackage: the pairs none is at least as good as in both numbers, in the order they came."""

    def __init__(self) -> None:
        self.kept: list[tuple[tuple[float, float], int]] = []

    def addvalue(self, pair: tuple[float, float], index: int) -> None:
        def beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
            return one[0] >= other[0] and one[1] >= other[1] and one != other

        if not any(beats(there, pair) for there, _ in self.kept):
            self.kept = [(there, i) for there, i in self.kept if not beats(pair, there)] + [(pair, index)]

    def show(self, verbose: int) -> None:
        pass

    def allindices(self) -> list[int]:
        return [i for _, i in self.kept]


def import_reference(folder: str) -> dict[str, Any]:
    """Their modules, with stand-ins for what they only log to, show with or subclass."""
    stand_ins: dict[str, dict[str, Any]] = {
        "fsrl": {},
        "fsrl.utils": {"DummyLogger": Silent, "WandbLogger": Silent},
        "gymnasium": {"Env": object},
        "tqdm": {},
        "tqdm.auto": {"trange": lambda n, **_: range(n)},
        "scipy": {},
        "scipy.optimize": {"minimize": None},
        "oapackage": {"ParetoDoubleLong": Pareto, "doubleVector": tuple},
    }
    for name, attributes in stand_ins.items():
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(attributes, __spec__=importlib.machinery.ModuleSpec(name, None))
    for package in ("osrl", "osrl.algorithms", "osrl.common"):  # not their __init__, which import all else too
        sys.modules[package] = types.ModuleType(package)
        sys.modules[package].__path__ = [f"{folder}/{package.replace('.', '/')}"]
    names = {"pdocrl": "algorithms", "cpq": "algorithms", "cdt": "algorithms", "dataset": "common"}
    return {name: importlib.import_module(f"osrl.{where}.{name}") for name, where in names.items()}


class Noise:
    """Standard normal numbers in place of torch's, each written down in the order it was asked for."""

    def __init__(self, seed: int) -> None:
        self.rng, self.drawn = np.random.default_rng(seed), []

    def __call__(self, shape: Any, *_: Any, **__: Any) -> torch.Tensor:
        self.drawn.append(self.rng.standard_normal(tuple(shape)))
        return torch.as_tensor(self.drawn[-1])

    def __enter__(self) -> Noise:
        self.normal, self.like, self.standard = (
            torch.normal,
            torch.randn_like,
            torch.distributions.normal._standard_normal,
        )
        torch.normal = lambda mean, std: mean + std * self(mean.shape)
        torch.randn_like = lambda x: self(x.shape)
        torch.distributions.normal._standard_normal = self
        return self

    def __exit__(self, *_: Any) -> None:
        torch.normal, torch.randn_like = self.normal, self.like
        torch.distributions.normal._standard_normal = self.standard


def weights(module: torch.nn.Module) -> Arrays:
    return {name: value.detach().numpy().copy() for name, value in module.state_dict().items() if "mask" not in name}


def moments(module: torch.nn.Module, optimiser: torch.optim.Optimizer) -> Arrays:
    """Adam's first: after one step a tenth of the gradient, as it was cut."""
    state, named = optimiser.state, module.named_parameters()
    return {name: state[weight]["exp_avg"].numpy().copy() for name, weight in named if weight in state}


def transitions(size: int, states: int, actions: int) -> Arrays:
    """B made-up transitions; a third cost, a fifth end an episode, of these some by time; rewards large at times."""
    rng = np.random.default_rng(1)
    ends = rng.random(size) < 0.2
    return {
        "obs": rng.normal(size=(size, states)),
        "next_obs": rng.normal(size=(size, states)),
        "action": rng.uniform(-1, 1, (size, actions)),
        "reward": 20 * rng.normal(size=size),
        "cost": (rng.random(size) < 0.35).astype(float),
        "terminal": ends & (rng.random(size) < 0.5),
        "end": ends,
    }


def step_many(train: Any, noise: Noise, batch: Arrays) -> list[Arrays]:
    """Ten steps with the same batch; what `train` says of each, and the random numbers of each."""
    found = []
    given = [torch.as_tensor(batch[name]) for name in ("obs", "next_obs", "action")]
    given += [
        torch.as_tensor(0.1 * batch["reward"]),
        torch.as_tensor(batch["cost"]),
        torch.as_tensor(batch["end"].astype(float)),
    ]
    for t in range(1, STEPS + 1):
        noise.drawn = []
        said = train(*given)
        found.append({**{f"noise_{i}": array for i, array in enumerate(noise.drawn)}, **said, "t": t})
    return found


def pdocrl(modules: Any, full: bool) -> Arrays:
    states, actions, hidden, size = (8, 2, [256, 256], 512) if full else (3, 2, [8, 8], 16)
    torch.manual_seed(0)
    model = modules["pdocrl"].PDOCRL(
        states, actions, 1.0, hidden, hidden, hidden, slater_phi=1.0, cost_limit=10, episode_len=100, init_lambda=1.9
    )
    with torch.no_grad():
        model.w_net[-2].bias += 10.0  # so that some ratios lie above their clip and others do not
    model.setup_optimizers(3e-4, 3e-4, 3e-4, 0.1)
    parts = {"w_net": "w_optim", "q_net": "q_optim", "actor": "actor_optim"}
    before = {**weights(model)}

    def train(obs: Any, next_obs: Any, action: Any, reward: Any, cost: Any, done: Any) -> Arrays:
        losses = {"w": model.w_loss(obs, action, next_obs, reward, cost, done)[0].item()}
        losses["q"] = model.q_loss(obs, action, next_obs, reward, cost, done)[0].item()
        losses["actor"] = model.actor_loss(obs, next_obs, action)[0].item()
        model.dual_update(cost)
        model.sync_weight()
        after = {f"after/{name}": value for name, value in weights(model).items()}
        for part, optimiser in parts.items():
            after |= {
                f"moments/{part}.{n}": v for n, v in moments(getattr(model, part), getattr(model, optimiser)).items()
            }
        return {**{f"loss/{n}": v for n, v in losses.items()}, "lambda": model._lam().item(), **after}

    batch = transitions(size, states, actions)
    with Noise(2) as noise:
        return collect(before, batch, step_many(train, noise, batch))


def cpq(modules: Any, full: bool) -> Arrays:
    states, actions, hidden, wide, size = (8, 2, [256, 256], 400, 512) if full else (3, 2, [8, 8], 8, 16)
    torch.manual_seed(0)
    model = modules["cpq"].CPQ(
        states, actions, 1.0, hidden, hidden, wide, 10, beta=0.5, num_q=2, num_qc=2, cost_limit=0.1, episode_len=100
    )
    with torch.no_grad():  # costs to either side of the limit, .063
        for critic in (model.cost_critic, model.cost_critic_old):
            for q in critic.q_nets:
                q[0].weight *= 4
                q[-2].bias += 0.3
    model.setup_optimizers(1e-4, 1e-3, 1e-4, 1e-3)
    parts = {"vae": "vae_optim", "critic": "critic_optim", "cost_critic": "cost_critic_optim", "actor": "actor_optim"}
    before = {**weights(model)}

    def train(obs: Any, next_obs: Any, action: Any, reward: Any, cost: Any, done: Any) -> Arrays:
        losses = {"vae": model.vae_loss(obs, action)[0].item()}
        losses["critic"] = model.critic_loss(obs, next_obs, action, reward, done)[0].item()
        losses["cost_critic"] = model.cost_critic_loss(obs, next_obs, action, cost, done)[0].item()
        losses["actor"] = model.actor_loss(obs)[0].item()
        model.sync_weight()
        after = {f"after/{name}": value for name, value in weights(model).items()}
        for part, optimiser in parts.items():
            after |= {
                f"moments/{part}.{n}": v for n, v in moments(getattr(model, part), getattr(model, optimiser)).items()
            }
        return {**{f"loss/{n}": v for n, v in losses.items()}, "alpha": model.log_alpha.exp().item(), **after}

    batch = transitions(size, states, actions)
    with Noise(2) as noise:
        found = collect(before, batch, step_many(train, noise, batch))
    del found["noise_5"]  # of reconstructions nobody looks at
    return found


def collect(before: Arrays, batch: Arrays, steps: list[Arrays]) -> Arrays:
    """Names to arrays; of the states after a step those after the first and the last, of losses all."""
    found = {f"before/{name}": value for name, value in before.items()} | {f"batch/{n}": v for n, v in batch.items()}
    first, last = steps[0], steps[-1]
    for name in first:
        if name.startswith("after/"):
            found[f"1/{name}"], found[f"{STEPS}/{name}"] = first[name], last[name]
        elif name.startswith("moments/"):
            found[name] = first[name]
        elif name != "t":
            found[name] = np.stack([step[name] for step in steps])
    return found


class Recorder:
    """Stands for FSRL's logger: keeps the last numbers it was told."""

    def __init__(self) -> None:
        self.told: Arrays = {}

    def store(self, tab: str = "", **numbers: float) -> None:
        self.told |= numbers


class World:
    """An episode whose observations, rewards and costs are fixed beforehand; actions are written down."""

    def __init__(self, obs: Any, reward: Any, cost: Any) -> None:
        self.obs, self.reward, self.cost = obs, reward, cost
        self.actions: list[Any] = []

    def reset(self) -> tuple[Any, dict[str, Any]]:
        return self.obs[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.actions.append(np.array(action))
        t = len(self.actions)
        return self.obs[t], self.reward[t - 1], False, t == len(self.reward), {"cost": self.cost[t - 1]}


def windows(rng: np.random.Generator, size: int, length: int, states: int, actions: int, times: int) -> Arrays:
    """B made-up windows; a quarter run out of steps, padded with zeros as theirs are."""
    kept = np.where(rng.random(size) < 0.25, rng.integers(1, length, size), length)
    mask = (np.arange(length) < kept[:, None]).astype(float)
    first = rng.integers(0, times - length, size)
    batch = {
        "states": rng.normal(size=(size, length, states)),
        "actions": rng.uniform(-1, 1, (size, length, actions)),
        "returns": rng.uniform(0, 60, (size, length)),
        "costs_return": 1.0 * rng.integers(0, 60, (size, length)),
        "costs": (rng.random((size, length)) < 0.3).astype(float),
    }
    batch = {name: array * (mask if array.ndim == 2 else mask[..., None]) for name, array in batch.items()}
    return {**batch, "time_steps": first[:, None] + np.arange(length), "mask": mask, "episode_cost": np.zeros(size)}


def cdt(modules: Any, full: bool) -> Arrays:
    states, actions, width, layers, heads, length, times, size = (
        (8, 2, 128, 3, 8, 10, 300, 256) if full else (3, 2, 8, 2, 2, 4, 14, 12)
    )
    torch.manual_seed(0)
    model = modules["cdt"].CDT(
        states,
        actions,
        1.0,
        length,
        times,
        width,
        layers,
        heads,
        time_emb=True,
        use_rew=True,
        use_cost=True,
        cost_transform=True,
        stochastic=True,
        init_temperature=0.1,
        target_entropy=-actions,
    )
    with torch.no_grad():
        for parameter in model.parameters():  # far enough from where all is zero that every part has a say
            parameter += 0.1 * torch.randn_like(parameter)
    logger = Recorder()
    numbers = {"learning_rate": 1e-3, "weight_decay": 1.0, "lr_warmup_steps": 4, "loss_cost_weight": 0.02}
    trainer = modules["cdt"].CDTTrainer(model, None, logger, **numbers)
    rng = np.random.default_rng(3)
    batch = windows(rng, size, length, states, actions, times)
    given = [torch.as_tensor(batch[n]) for n in ("states", "actions", "returns", "costs_return", "time_steps", "mask")]
    found = {f"before/{n}": v for n, v in weights(model).items()} | {f"batch/{n}": v for n, v in batch.items()}
    with torch.no_grad():
        action, cost, _ = model(
            *given[:5], padding_mask=~given[5].bool(), episode_cost=torch.as_tensor(batch["episode_cost"])
        )
    found |= {"forward/mean": action.mean.numpy(), "forward/std": action.stddev.numpy(), "forward/cost": cost.numpy()}
    losses = []
    for t in range(1, STEPS + 1):
        trainer.train_one_step(*given, torch.as_tensor(batch["episode_cost"]), torch.as_tensor(batch["costs"]))
        losses.append({**logger.told, "log_temperature": model.log_temperature.item()})
        if t in (1, STEPS):
            found |= {f"{t}/after/{n}": v for n, v in weights(model).items()}
        if t == 1:
            found |= {f"moments/{n}": v for n, v in moments(model, trainer.optim).items()}
    found |= {f"loss/{name}": np.array([step[name] for step in losses]) for name in losses[0]}
    episode = {"obs": rng.normal(size=(13, states)), "reward": rng.normal(size=12), "cost": rng.integers(0, 2, 12)}
    world = World(episode["obs"], 0.1 * episode["reward"], episode["cost"])  # their environment scales rewards
    trainer.rollout(model.float().eval(), world, 0.1 * 30.0, 9.0)
    found |= {f"acting/{n}": v for n, v in episode.items()} | {"acting/actions": np.stack(world.actions)}
    return found | {f"data/{n}": v for n, v in prepared(modules["dataset"]).items()}


def prepared(module: Any) -> Arrays:
    """Their data preparation on a made-up log: wishes, who answers them, chances, and some windows."""
    rng = np.random.default_rng(4)
    lengths = rng.integers(3, 9, 150)
    total = rng.integers(0, 6, 150)  # cost of each episode: up to 15 of its steps' price
    level = rng.integers(0, 5, 150) + 0.8 * total + 0.01 * rng.random(150)  # at most ten in a cell of the grid
    ends = np.cumsum(lengths)
    reward, cost, end = np.zeros(ends[-1]), np.zeros(ends[-1]), np.zeros(ends[-1], bool)
    for e, last in enumerate(ends):
        reward[last - lengths[e] : last], cost[last - 1], end[last - 1] = level[e] / lengths[e], 15 * total[e], True
    log = {
        "observations": rng.normal(size=(ends[-1], 2)),
        "actions": rng.uniform(-1, 1, (ends[-1], 1)),
        "rewards": reward,
        "costs": cost,
    }
    log = {name: array.astype(np.float32) for name, array in log.items()}
    np.random.seed(0)  # noqa: NPY002 (theirs draws from it)
    random.seed(0)
    dataset = module.SequenceDataset(
        {**log, "terminals": np.zeros(len(end), bool), "timeouts": end},
        seq_len=4,
        reward_scale=0.1,
        deg=2,
        max_rew_decrease=2.0,
        beta=1.0,
        augment_percent=0.2,
        max_reward=9.0,
        min_reward=1.0,
        cost_sample=True,
        cost_transform=lambda x: 70 - x,
    )
    wishes = np.array([(t["returns"][0], t["cost_returns"][0]) for t in dataset.aug_data])
    answers = np.asarray(dataset.indices)[np.asarray(dataset.idx)]
    drawn = rng.integers(0, len(dataset.dataset), 12)
    begins = [(int(i), int(rng.integers(len(dataset.dataset[i]["rewards"])))) for i in drawn]
    made = [dataset._SequenceDataset__prepare_sample(i, t) for i, t in begins]
    names = ("states", "actions", "returns", "costs_return", "time_steps", "mask", "episode_cost", "costs")
    return {
        **log,
        "ends": end,
        "kept": np.sort(dataset.indices),
        "answers": answers,
        "wishes": wishes,
        "chances": dataset.sample_prob,
        "begins": np.array(begins),
        **{f"window/{name}": np.stack([sample[i] for sample in made]) for i, name in enumerate(names)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", help="a clone of komin0407/PDOCRL")
    parser.add_argument("--out", required=True)
    parser.add_argument("--full", action="store_true", help="networks and batches of the published size")
    arguments = parser.parse_args()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    modules = import_reference(arguments.repository)
    found: Arrays = {}
    for method in (pdocrl, cpq, cdt):
        found |= {f"{method.__name__}/{name}": value for name, value in method(modules, arguments.full).items()}
    write(arguments.out, found)


def write(path: str, found: Arrays) -> None:
    """One vector of all numbers, and the names and shapes in it: hundreds of small arrays would be mostly headings."""
    arrays = {name: np.asarray(value, np.float64) for name, value in found.items()}
    layout = json.dumps({name: array.shape for name, array in arrays.items()})
    numbers = np.concatenate([array.reshape(-1) for array in arrays.values()])
    np.savez_compressed(path, layout=np.frombuffer(layout.encode(), np.uint8), numbers=numbers)


if __name__ == "__main__":
    main()

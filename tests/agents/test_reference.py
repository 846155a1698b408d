"""Our updates beside the published code's: the same weights, batches and random numbers, in doubles.

`reference.npz` holds what the authors' PDOCRL and OSRL's CPQ and CDT computed; benchmarks/reference.py made it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from pdocrl.agents.base import DeviceTable, Problem, Transitions, make_config
from pdocrl.agents.cdt_published import augment_as_published, without_outliers
from pdocrl.agents.common.sequences import SequenceState
from pdocrl.agents.registry import find_agent
from pdocrl.data import Dataset, make_dataset
from pdocrl.errors import PdocrlError
from pdocrl.nn.distributions import TanhGaussian
from pdocrl.nn.mlp import MLP, CostCritic, Critic
from pdocrl.nn.multipliers import LogMultiplier
from pdocrl.nn.transformer import CausalTransformer, Windows
from pdocrl.policies.policy import TransformerPolicy

Golden = dict[str, np.ndarray[Any, Any]]
FILE = Path(__file__).with_name("reference.npz")


def read(method: str) -> Golden:
    with np.load(FILE) as file:
        layout, numbers = json.loads(file["layout"].tobytes()), file["numbers"]
    found, start = {}, 0
    for name, shape in layout.items():
        size = int(np.prod(shape))
        found[name] = numbers[start : start + size].reshape(shape)
        start += size
    return {name.split("/", 1)[1]: array for name, array in found.items() if name.startswith(f"{method}/")}


def part(golden: Golden, prefix: str) -> Golden:
    """The arrays under a prefix, without it."""
    return {name.removeprefix(prefix): array for name, array in golden.items() if name.startswith(prefix)}


@contextlib.contextmanager
def doubles() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def layers(own: Golden, *names: str) -> MLP:
    """torch's Linear layers, [out, in], as a network."""
    weights = tuple(jnp.asarray(own[f"{name}.weight"].T) for name in names)
    return MLP(weights, tuple(jnp.asarray(own[f"{name}.bias"]) for name in names))


def twins(own: Golden, name: str) -> MLP:
    """Two networks as one with members; torch's biases [out] have a row of their own."""
    pair = [layers(own, *(f"{name}.q_nets.{i}.{j}" for j in (0, 2, 4))) for i in range(2)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *pair)
    return MLP(stacked.weights, tuple(bias[:, None] for bias in stacked.biases))


def beside(left: MLP, right: MLP) -> MLP:
    """Two last layers as the halves of one."""
    joined = jax.tree.map(lambda a, b: jnp.concatenate([a, b], -1), left, right)
    return MLP((*left.weights[:-1], joined.weights[-1]), (*left.biases[:-1], joined.biases[-1]))


def actor_of(own: Golden) -> TanhGaussian:
    trunk = ("actor.net.0", "actor.net.2")
    return TanhGaussian(beside(layers(own, *trunk, "actor.mu_layer"), layers(own, *trunk, "actor.log_std_layer")))


def transitions(golden: Golden, ends: str) -> Transitions:
    own = part(golden, "batch/")
    arrays = {name: jnp.asarray(own[name]) for name in ("obs", "action", "reward", "next_obs")}
    cost, not_done = jnp.asarray(own["cost"][:, None]), jnp.asarray(1 - own[ends])
    return Transitions(**arrays, cost=cost, not_done=not_done, initial_obs=arrays["obs"])


def agree(ours: Any, theirs: Any, tolerance: float = 1e-7) -> None:
    """Every array, to within a share of the largest number in it."""
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        largest = float(np.abs(other).max()) + 1e-300
        assert float(np.abs(np.asarray(mine) - np.asarray(other)).max()) <= tolerance * largest


def start(agent: Any, config: Any, golden: Golden, players: dict[str, Any], **others: Any) -> Any:
    """The agent's state with their weights, and Adam's memory empty and in doubles."""
    sizes = golden["batch/obs"].shape[1], golden["batch/action"].shape[1]
    fresh = jax.jit(lambda key: agent.init(config, Problem(*sizes, 1), key))(jax.random.key(0))
    zeros = {name: jax.tree.map(jnp.zeros_like, player) for name, player in players.items()}
    opts = {f"{name.removesuffix('_critic')}_opt": optax.scale_by_adam().init(own) for name, own in zeros.items()}
    return dataclasses.replace(fresh, **players, **opts, **others)


def pdocrl_players(own: Golden) -> dict[str, Any]:
    return {
        "weight": layers(own, "w_net.0", "w_net.2", "w_net.4"),
        "critic": Critic(twins(own, "q_net")),
        "actor": actor_of(own),
    }


def test_pdocrl_as_published_is_the_authors_code_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses of ten steps, gradients of the first, all players after one and ten."""
    golden, agent = read("pdocrl"), find_agent("pdocrl")
    with doubles():
        numbers = {"multiplier_rate": 0.1, "multiplier_init": 1.9, "slater_margin": 1.0, "hidden": (2, 2)}
        config = make_config(agent, published=True, cost_limit=(10.0,), horizon=100.0, **numbers)
        players = pdocrl_players(part(golden, "before/"))
        lam = LogMultiplier(jnp.log(jnp.asarray([1.9])))
        state = start(agent, config, golden, players, target=players["critic"], multiplier=lam)
        batch, above = transitions(golden, "end"), []

        @jax.jit
        def update(state: Any, noise: list[Any]) -> Any:
            drawn = iter(noise)
            monkeypatch.setattr(jax.random, "normal", lambda key, shape: next(drawn))
            return agent.update(config, state, batch, jax.random.key(0))

        for t in range(10):
            state, metrics = update(state, [jnp.asarray(golden[f"noise_{i}"][t]) for i in range(4)])
            agree(metrics["critic_loss"], golden["loss/q"][t])
            agree(metrics["actor_loss"], golden["loss/actor"][t])
            agree(state.multiplier.lam[0], golden["lambda"][t])
            above.append(float(metrics["w_at_clip"]))
            if t == 0:
                for name, first in pdocrl_players(part(golden, "moments/")).items():
                    agree(getattr(state, f"{name}_opt").mu, first)
            if t in (0, 9):
                after = part(golden, f"{t + 1}/after/")
                for name, player in pdocrl_players(after).items():
                    agree(getattr(state, name), player)
                agree(state.target, Critic(twins(after, "q_net_old")))
    assert 0 < np.mean(above) < 1, "or the clip of w is not seen"
    assert golden["lambda"][-1] == pytest.approx(2.0), "or λ does not reach its bound"


def cpq_players(own: Golden) -> dict[str, Any]:
    return {
        "critic": Critic(twins(own, "critic")),
        "cost_critic": CostCritic(twins(own, "cost_critic")),
        "actor": actor_of(own),
    }


def test_cpq_as_published_is_the_reference_code_without_what_has_no_gradient_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Theirs trains a VAE and an α; ours has neither, and critics and policy are the same after ten steps."""
    golden, agent = read("cpq"), find_agent("cpq")
    with doubles():
        config = make_config(agent, published=True, cost_limit=(0.1,), horizon=100.0, hidden=(2, 2), vae_hidden=(2, 2))
        players = cpq_players(part(golden, "before/"))
        state = start(agent, config, golden, players, target=players["critic"], cost_target=players["cost_critic"])
        batch, safe = transitions(golden, "end"), []

        @jax.jit
        def update(state: Any, noise: list[Any]) -> Any:
            monkeypatch.setattr("pdocrl.agents.cpq.normals", lambda key, *shapes: noise)
            return agent.update(config, state, batch, jax.random.key(0))

        for t in range(10):
            state, metrics = update(state, [jnp.asarray(golden[f"noise_{i}"][t]) for i in (1, 2, 6)])
            agree(metrics["critic_loss"], golden["loss/critic"][t])
            agree(metrics["actor_loss"], golden["loss/actor"][t])
            safe.append(float(metrics["safe"]))
            if t == 0:
                for name, first in cpq_players(part(golden, "moments/")).items():
                    agree(getattr(state, f"{name.removesuffix('_critic')}_opt").mu, first)
            if t in (0, 9):
                after = part(golden, f"{t + 1}/after/")
                for name, player in cpq_players(after).items():
                    agree(getattr(state, name), player)
                agree(state.target, Critic(twins(after, "critic_old")))
                agree(state.cost_target, CostCritic(twins(after, "cost_critic_old")))
    assert 0 < np.mean(safe) < 1, "or the limit decides nothing"


TRANSFORMER = {
    "time": "timestep_emb",
    "returns": "return_emb",
    "costs": "cost_emb",
    "obs": "state_emb",
    "action": "action_emb",
    "embedding_norm": "emb_norm",
    "last_norm": "out_norm",
    "cost_head": "cost_pred_head",
    "norm_1": "norm1",
    "norm_2": "norm2",
    "out": "attention.out_proj",
    "up": "mlp.0",
    "down": "mlp.2",
}


def transformer_of(own: Golden) -> dict[str, Any]:
    """Their parameters by our names; torch's matrices are [out, in]."""
    arrays = {"time": own["timestep_emb.weight"]}
    layers = 1 + max(int(name.split(".")[1]) for name in own if name.startswith("blocks."))
    places = {name: TRANSFORMER[name] for name in ("returns", "costs", "obs", "action", "cost_head")}
    norms = {name: TRANSFORMER[name] for name in ("embedding_norm", "last_norm")}
    for i in range(layers):
        places |= {f"block_{i}/{name}": f"blocks.{i}.{TRANSFORMER[name]}" for name in ("out", "up", "down")}
        norms |= {f"block_{i}/{name}": f"blocks.{i}.{TRANSFORMER[name]}" for name in ("norm_1", "norm_2")}
        arrays[f"block_{i}/qkv/weight"] = own[f"blocks.{i}.attention.in_proj_weight"].T
        arrays[f"block_{i}/qkv/bias"] = own[f"blocks.{i}.attention.in_proj_bias"]
    for ours, theirs in places.items():
        arrays |= {f"{ours}/weight": own[f"{theirs}.weight"].T, f"{ours}/bias": own[f"{theirs}.bias"]}
    for ours, theirs in norms.items():
        arrays |= {f"{ours}/scale": own[f"{theirs}.weight"], f"{ours}/bias": own[f"{theirs}.bias"]}
    heads = [f"action_head.{half}" for half in ("mu", "log_std")]
    arrays["action_head/weight"] = np.concatenate([own[f"{head}.weight"].T for head in heads], 1)
    arrays["action_head/bias"] = np.concatenate([own[f"{head}.bias"] for head in heads])
    return {name: jnp.asarray(array) for name, array in arrays.items()}


def by_name(found: dict[str, Any], like: dict[str, Any]) -> list[Any]:
    return [found[name] for name in like]


def exact_gelu(x: Any, approximate: bool = True) -> Any:
    """As torch has it; ours is the usual approximation with tanh."""
    return x * (1 + jax.scipy.special.erf(x / 2**0.5)) / 2


def test_cdt_as_published_is_the_reference_code_but_for_the_form_of_gelu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Network, losses, gradients and their cut, AdamW, warm-up and ζ. Our form of GELU is looked at below."""
    golden, agent = read("cdt"), find_agent("cdt")
    batch = part(golden, "batch/")
    with doubles():
        arrays = transformer_of(part(golden, "before/"))
        given = {ours: jnp.asarray(batch[theirs]) for ours, theirs in {"obs": "states", "action": "actions"}.items()}
        windows = Windows(
            **given,
            returns=jnp.asarray(batch["returns"]),
            costs=50 - jnp.asarray(batch["costs_return"])[..., None],
            time=jnp.asarray(batch["time_steps"], jnp.int32),
            mask=jnp.asarray(batch["mask"]),
        )
        model = CausalTransformer(arrays, layers=2, heads=2, published=True)
        monkeypatch.setattr(jax.nn, "gelu", exact_gelu)
        monkeypatch.setattr(jax, "default_backend", lambda: "gpu")  # the whole batch at once, which compiles sooner
        numbers = {"learning_rate": 1e-3, "weight_decay": 1.0, "warmup": 4.0, "dropout": 0.0}
        config = make_config(agent, published=True, cost_limit=(9.0,), **numbers)
        zeta, adam, steps = jnp.log(jnp.asarray(0.1)), optax.scale_by_adam(), jnp.zeros((), jnp.int32)
        state = SequenceState(model, zeta, jnp.zeros((1, 2)), steps, adam.init(model), adam.init(zeta))
        update = jax.jit(lambda state: agent.update(config, state, (windows, costs), jax.random.key(0)))
        costs = jnp.asarray(batch["costs"])[..., None]
        for t in range(10):
            state, metrics = update(state)
            agree(metrics["actor_loss"], golden["loss/all_loss"][t])
            agree(-metrics["log_likelihood"], golden["loss/nll"][t])
            agree(metrics["entropy"], golden["loss/ent"][t])
            agree(state.log_temperature, golden["loss/log_temperature"][t])
            assert metrics["gradient_norm"] > config.clip, "or nothing is cut"
            if t == 0:
                first = transformer_of(part(golden, "moments/"))
                agree(by_name(state.model_opt.mu.arrays, arrays), by_name(first, arrays))
            if t in (0, 9):
                after = transformer_of(part(golden, f"{t + 1}/after/"))
                agree(by_name(state.model.arrays, arrays), by_name(after, arrays))


def test_cdt_acts_as_the_reference_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve steps with a window of four: what is seen, what is still asked for, the cut at ±1."""
    golden = read("cdt")
    arrays = {n: np.asarray(a, np.float32) for n, a in transformer_of(part(golden, "10/after/")).items()}
    policy = TransformerPolicy(
        arrays, layers=2, heads=2, context=4, target_return=30.0, target_cost=(9.0,), reward_scale=0.1, cost_shift=50.0
    )

    def play() -> Any:
        step, world = policy.begin(0), part(golden, "acting/")
        before = [(0.0, 0.0), *zip(world["reward"], world["cost"], strict=True)]
        return np.stack([step(world["obs"][t].astype(np.float32), *before[t]) for t in range(12)])

    assert 1e-7 < np.abs(play() - golden["acting/actions"]).max() < 1e-3
    affine, norm = TransformerPolicy._affine, TransformerPolicy._norm
    monkeypatch.setattr(
        TransformerPolicy,
        "_hidden",
        lambda self, b, x: np.asarray(exact_gelu(affine(self, f"{b}/up", norm(self, f"{b}/norm_2", x)))),
    )
    np.testing.assert_allclose(play(), golden["acting/actions"], atol=2e-6)


def their_log(golden: Golden) -> Dataset:
    own = part(golden, "data/")
    arrays = {
        ours: own[theirs] for ours, theirs in {"obs": "observations", "action": "actions", "reward": "rewards"}.items()
    }
    ends = own["ends"].astype(bool)
    return make_dataset(
        **arrays, cost=own["costs"][:, None], next_obs=arrays["obs"], terminal=~ends & ends, timeout=ends
    )


SETTINGS = {"frontier_degree": 2, "wish_return": 9.0, "wish_slack": 2.0, "context": 4}


def test_cdt_as_published_makes_the_reference_s_wishes_and_finds_its_answers() -> None:
    """With NumPy's old generator, whose stream theirs draws from, every wish and every answer is theirs."""
    golden = read("cdt")
    dataset, own = their_log(golden), part(golden, "data/")
    assert len(own["kept"]) < dataset.n_episodes, "or nothing is an outlier"
    np.testing.assert_array_equal(
        np.sort(without_outliers(np.column_stack([dataset.cost_return[:, 0], dataset.reward_return]), None)),
        own["kept"],
    )
    answers, more_return, more_cost = augment_as_published(dataset, 0.2, 2, 9.0, 2.0, np.random.RandomState(0))
    np.testing.assert_array_equal(answers, own["answers"])
    np.testing.assert_allclose(dataset.reward_return[answers] + more_return, own["wishes"][:, 0], rtol=1e-5)
    np.testing.assert_allclose(
        dataset.cost_return[answers, 0] + more_cost[:, 0], own["wishes"][:, 1], rtol=1e-5, atol=1e-5
    )


def test_cdt_as_published_draws_the_reference_s_windows_with_its_chances(monkeypatch: pytest.MonkeyPatch) -> None:
    golden, agent = read("cdt"), find_agent("cdt")
    dataset, own = their_log(golden), part(golden, "data/")
    monkeypatch.setattr(np.random, "default_rng", np.random.RandomState)
    config = make_config(agent, published=True, **SETTINGS)
    columns = agent.columns(config, dataset)
    chance, first, _ = columns["lottery"]
    np.testing.assert_allclose(np.diff(chance, prepend=0), own["chances"], atol=1e-6)
    rows = jnp.asarray([first[int(i)] + t for i, t in own["begins"]], jnp.int32)
    monkeypatch.setattr("pdocrl.agents.cdt.draw_rows", lambda *_: rows)
    windows, costly = agent.batch(config, DeviceTable.of(columns), rows, jax.random.key(0))
    theirs, mask = part(own, "window/"), own["window/mask"]
    np.testing.assert_array_equal(windows.mask, mask)
    seen = mask > 0
    for ours, name in {"obs": "states", "action": "actions", "returns": "returns", "time": "time_steps"}.items():
        np.testing.assert_allclose(
            np.asarray(getattr(windows, ours))[seen], theirs[name][seen], rtol=1e-5, err_msg=name
        )
    np.testing.assert_allclose(
        50 - np.asarray(windows.costs)[seen][:, 0], theirs["costs_return"][seen], rtol=1e-5, atol=1e-4
    )
    np.testing.assert_array_equal(np.asarray(costly)[seen][:, 0], theirs["costs"][seen] > 0)
    assert not seen.all(), "or no window runs out of steps"


def test_cdt_as_published_is_for_one_cost_and_enough_episodes(make_random_dataset: Callable[..., Dataset]) -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(PdocrlError, match="published=true is for one cost, the data has 2"):
        augment_as_published(make_random_dataset(n_costs=2), 0.2, 2, 9.0, 2.0, rng)
    with pytest.raises(PdocrlError, match="nowhere so many are; drop it, or set augmentation=0"):
        augment_as_published(make_random_dataset(episodes=4), 0.2, 2, 9.0, 2.0, rng)

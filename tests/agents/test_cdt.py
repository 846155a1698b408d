"""CDT: its windows, its augmentation, and what it asks for when acting."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdocrl.agents.base import DeviceTable, Problem, make_config
from pdocrl.agents.cdt import augment, draw_rows
from pdocrl.agents.common.sequences import best_return
from pdocrl.agents.registry import find_agent
from pdocrl.data.dataset import Dataset
from pdocrl.errors import PdocrlError
from pdocrl.nn.transformer import CausalTransformer, Windows, _drop
from pdocrl.policies.policy import TransformerPolicy
from pdocrl.training.trainer import Run, Trainer
from probes import HORIZON, bandit, play_bandit

SMALL = {"embedding": 8, "heads": 2, "layers": 1, "context": 4, "times": 12, "reward_scale": 1.0, "cost_shift": 0.0}


def test_windows_hold_what_was_still_to_come_and_never_another_episode(small_dataset: Dataset) -> None:
    cdt = find_agent("cdt")
    config = make_config(cdt, augmentation=0.0, **SMALL)
    table = DeviceTable.of(cdt.columns(config, small_dataset))
    rows = jnp.arange(len(small_dataset))
    windows, costly = cdt.batch(config, table, rows, jax.random.key(0))
    for row in range(len(small_dataset)):
        episode = np.searchsorted(small_dataset.episode_start, row, "right") - 1
        first = small_dataset.episode_start[episode]
        end = first + small_dataset.episode_length[episode]
        for place in range(4):
            source = row - 3 + place
            assert windows.mask[row, place] == (source >= first)
            if source >= first:
                np.testing.assert_array_equal(windows.obs[row, place], small_dataset.obs[source])
                np.testing.assert_allclose(
                    windows.returns[row, place], small_dataset.reward[source:end].sum(), atol=1e-5
                )
                np.testing.assert_allclose(-windows.costs[row, place], small_dataset.cost[source:end].sum(0), atol=1e-5)
                assert windows.time[row, place] == source - first
                assert (costly[row, place] == (small_dataset.cost[source] > 0)).all()


def test_the_published_sampling_draws_cheap_episodes_more_often_and_begins_windows_anywhere(
    make_random_dataset: Callable[..., Dataset],
) -> None:
    """p_e ∝ max(ceiling − C_e, 0), then every step of e alike; what lies behind an episode's end is masked."""
    dataset, cdt = make_random_dataset(episodes=12), find_agent("cdt")
    cost = dataset.cost_return[:, 0]
    ceiling = float(np.sort(cost)[-3])  # three episodes are never drawn
    config = make_config(cdt, augmentation=0.0, sampling="published", sampling_cost=ceiling, **SMALL)
    columns = cdt.columns(config, dataset)
    rows = np.asarray(draw_rows(jnp.asarray(columns["lottery"]), jax.random.key(0), 60_000))
    episode = np.searchsorted(dataset.episode_start, rows, "right") - 1
    chance = np.maximum(ceiling - cost, 0)
    expected = np.repeat(chance / chance.sum() / dataset.episode_length, dataset.episode_length)
    np.testing.assert_allclose(np.bincount(rows, minlength=len(dataset)) / len(rows), expected, atol=0.004)
    assert set(episode.tolist()) == set(np.flatnonzero(chance).tolist())

    windows, costly = cdt.batch(config, DeviceTable.of(columns), jnp.zeros(200, jnp.int32), jax.random.key(1))
    rows = np.asarray(draw_rows(jnp.asarray(columns["lottery"]), jax.random.key(1), 200))
    for b, row in enumerate(rows):
        episode = np.searchsorted(dataset.episode_start, row, "right") - 1
        end = dataset.episode_start[episode] + dataset.episode_length[episode]
        for place in range(4):
            assert windows.mask[b, place] == (row + place < end)
            if row + place < end:
                np.testing.assert_array_equal(windows.obs[b, place], dataset.obs[row + place])
                assert windows.time[b, place] == row + place - dataset.episode_start[episode]
                assert (costly[b, place] == (dataset.cost[row + place] > 0)).all()


def test_a_lottery_without_prizes_is_refused_in_one_line(small_dataset: Dataset) -> None:
    cdt = find_agent("cdt")
    with pytest.raises(PdocrlError, match="every episode costs -1 or more, so sampling=published draws none; raise"):
        cdt.columns(make_config(cdt, sampling="published", sampling_cost=-1.0, **SMALL), small_dataset)


@pytest.mark.parametrize("n_costs", [1, 2])
def test_augmented_wishes_lie_beyond_the_data_and_are_answered_within_budget(
    make_random_dataset: Callable[..., Dataset], n_costs: int
) -> None:
    dataset = make_random_dataset(episodes=60, n_costs=n_costs)
    answer, more_return, more_cost = augment(dataset, 0.5)
    assert 0 < len(answer) <= 30
    assert (more_return >= 0).all()  # the wish is at least what the answer earns …
    assert (more_cost >= 0).all()  # … and the answer keeps the budget
    for episode, spare in zip(answer, more_cost, strict=True):
        within = (dataset.cost_return <= dataset.cost_return[episode] + spare).all(1)
        assert dataset.reward_return[episode] == dataset.reward_return[within].max()


def test_it_asks_for_the_best_logged_return_within_the_limit(make_random_dataset: Callable[..., Dataset]) -> None:
    dataset = make_random_dataset(episodes=60)
    frontier = np.asarray(find_agent("cdt").problem(dataset).frontier, np.float32)
    for limit in (0.0, 1.0, 3.0, 100.0):
        within = dataset.cost_return[:, 0] <= limit
        expected = dataset.reward_return[within].max()
        assert best_return(frontier, np.array([limit], np.float32)) == pytest.approx(expected, rel=1e-6)
    cheapest = dataset.reward_return[dataset.cost_return[:, 0] == dataset.cost_return.min()].max()
    assert best_return(frontier, np.array([-1.0], np.float32)) == pytest.approx(cheapest, rel=1e-6)


def test_acting_in_an_episode_is_the_same_as_looking_back_on_it() -> None:
    """The action at step t equals that of the pure function on the whole recent history, with what is left to reach."""
    cdt, rng = find_agent("cdt"), np.random.default_rng(0)
    config = make_config(cdt, cost_limit=(3.0,), horizon=9.0, **SMALL)
    problem = Problem(2, 1, 1, frontier=((5.0, 2.0),))
    state = jax.jit(lambda key: cdt.init(config, problem, key))(jax.random.key(0))
    policy = cdt.policy(config, state)
    assert cdt.policy(eqx.tree_at(lambda c: c.target_return, config, 7.0), state).target_return == 7.0, (
        "a wish of one's own"
    )
    obs, reward, cost = rng.normal(size=(7, 2)).astype(np.float32), rng.normal(size=7), rng.random((7, 1))
    step, actions = policy.begin(0), []
    for t in range(7):
        actions.append(step(obs[t], reward[t - 1] if t else 0.0, cost[t - 1] if t else np.zeros(1)))
        past = np.arange(t - 3, t + 1)
        seen, mask = np.maximum(past, 0), (past >= 0).astype(np.float32)
        taken = np.stack([actions[i] if 0 <= i < t else np.zeros(1, np.float32) for i in past])
        left = np.array([5.0 - reward[:i].sum() for i in seen]), np.array([3.0 - cost[:i].sum(0) for i in seen])
        expected = policy.act(left[0][None], left[1][None], obs[seen][None], taken[None], seen[None], mask[None])[0]
        np.testing.assert_allclose(actions[t], expected, atol=1e-6)
    assert len(np.unique(actions)) == 7


def test_a_width_the_heads_do_not_divide_is_refused(small_dataset: Dataset) -> None:
    cdt = find_agent("cdt")
    with pytest.raises(PdocrlError, match="embedding 10 must be a multiple of heads 4"):
        cdt.columns(make_config(cdt, embedding=10, heads=4), small_dataset)


def random_windows(rng: np.random.Generator, mask: jax.Array) -> Windows:
    """Of two numbers of state, one of action, one cost."""
    shapes = {"returns": (), "costs": (1,), "obs": (2,), "action": (1,)}
    arrays = {n: jnp.asarray(rng.uniform(-1, 1, (*mask.shape, *own)), jnp.float32) for n, own in shapes.items()}
    return Windows(**arrays, time=jnp.zeros(mask.shape, jnp.int32), mask=mask)


def test_dropout_leaves_out_the_share_it_is_told_at_places_that_have_nothing_in_common() -> None:
    keys, ones = jax.random.split(jax.random.key(0), 4), jnp.ones((8, 40, 128))
    dropped = np.asarray([_drop(ones, rate, keys, place) for place, rate in enumerate((0.1, 0.1, 0.5))])
    assert set(np.unique(dropped[:2]).tolist()) == {0.0, float(np.float32(1 / 0.9))}
    kept = (dropped > 0).reshape(3, 4, -1).astype(float)
    few = 5 / np.sqrt(kept[0].size)  # five standard errors of a share, or of a correlation
    np.testing.assert_allclose(kept.mean((1, 2)), [0.9, 0.9, 0.5], atol=few)
    apart = kept - kept.mean((1, 2), keepdims=True)
    apart /= apart.std((1, 2), keepdims=True)
    for steps in (1, 2, 8, 128, 40 * 128):  # neighbours, columns, tokens, windows
        assert np.abs((apart[..., steps:] * apart[..., :-steps]).mean((1, 2))).max() < few
    assert np.abs((apart[:, 1:] * apart[:, :-1]).mean((1, 2))).max() < few  # keys
    assert np.abs((apart[1:] * apart[:-1]).mean((1, 2))).max() < few  # places in the network


@pytest.mark.parametrize("published", [False, True])
def test_embeddings_and_outputs_are_dropped_and_as_published_attention_too(
    published: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each place has random numbers of its own: one for embeddings, two a block, and one more as published."""
    places: list[int] = []
    monkeypatch.setattr("pdocrl.nn.transformer._drop", lambda x, rate, keys, place: places.append(place) or x)
    create = partial(CausalTransformer.create, published=published)
    windows = random_windows(np.random.default_rng(0), jnp.ones((3, 4)))
    jax.eval_shape(lambda key: create(key, 2, 1, 1, 8, 2, 2, 12)(windows, 0.1, key), jax.random.key(0))
    assert sorted(places) == list(range(5 + 2 * published))


@pytest.mark.parametrize("size", [24, 5])  # 8 parts and 1
def test_a_batch_in_parts_is_the_batch_as_a_whole(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same random numbers for dropout and the same gradient: a CPU goes through parts, a GPU does not."""
    cdt, rng = find_agent("cdt"), np.random.default_rng(size)
    config = make_config(cdt, cost_limit=(3.0,), horizon=9.0, **SMALL, dropout=0.5, clip=1e9)
    state = jax.jit(lambda key: cdt.init(config, Problem(2, 1, 1, frontier=((5.0, 2.0),)), key))(jax.random.key(0))
    mask = jnp.asarray(np.arange(4) >= rng.integers(0, 4, (size, 1)), jnp.float32)
    batch = random_windows(rng, mask), jnp.asarray(rng.random((size, 4, 1)))
    found = {}
    for backend in ("cpu", "gpu"):
        monkeypatch.setattr(jax, "default_backend", lambda backend=backend: backend)
        after, metrics = jax.jit(lambda state: cdt.update(config, state, batch, jax.random.key(1)))(state)
        found[backend] = after.model_opt.mu.arrays | metrics
    for name, whole in found["gpu"].items():
        np.testing.assert_allclose(found["cpu"][name], whole, rtol=1e-4, atol=1e-7, err_msg=name)


def test_on_the_bandit_it_reaches_the_best_logged_return_and_keeps_the_limit() -> None:
    """It cannot ask the data for more than it holds: the target is below the optimum √κ · T, and is what it earns."""
    cdt, probe = find_agent("cdt"), bandit()
    settings = {"embedding": 16, "heads": 2, "layers": 1, "context": 2, "times": 10, "batch_size": 64, "dropout": 0.0}
    numbers = {"reward_scale": 1.0, "cost_shift": 2.5, "learning_rate": 3e-3, "warmup": 100.0}
    config = make_config(cdt, cost_limit=probe.cost_limit, horizon=float(HORIZON), **settings, **numbers)
    trainer = Trainer(cdt, probe.dataset, [Run(config, 0)])
    trainer.advance(1500)
    policy = trainer.policies()[0].network
    assert isinstance(policy, TransformerPolicy)
    earned, spent = play_bandit(policy)
    assert policy.target_return < probe.reward * HORIZON
    assert earned == pytest.approx(policy.target_return, rel=0.1)
    assert spent <= probe.cost_limit[0]

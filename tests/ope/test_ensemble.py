"""The calibrated ensemble: it finds closed forms, its verdicts hold, and its pieces do what they say."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_linear_gaussian import GAIN, HORIZON, START, act, exact, logged
from test_ope_command import SMALL, Cli, Sequential, constant, drifting, trained, write

from pdocrl.data import make_dataset, save
from pdocrl.dynamics.normaliser import Normaliser
from pdocrl.dynamics.regression import Regression, features, memory_of
from pdocrl.ope import EnsembleConfig, Prepared, estimate
from pdocrl.ope.ensemble.calibrate import Calibrated, Calibration, _quantile, _wide, choose
from pdocrl.ope.ensemble.learn import _sequences, _targets, _went, rows_of, with_noise
from pdocrl.ope.ensemble.models import SELECTION, mixed, untrained
from pdocrl.ope.ensemble.prepare import deal, group_episodes
from pdocrl.ope.ensemble.rollouts import begin_many, play, remembers
from pdocrl.ope.ensemble.support import Recorded
from pdocrl.policies.policy import DialPolicy, MLPPolicy, TransformerPolicy

LONGER = dataclasses.replace(SMALL, steps=2500)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def ready() -> Prepared:
    """An ensemble of the linear system with Gaussian noise, whose episodes have a closed form."""
    prepared = Prepared.of(logged(300, np.random.default_rng(1)), config=LONGER, cache=False)
    assert prepared.learned
    return prepared


@pytest.fixture(scope="module")
def still() -> Prepared:
    """An ensemble of a point that moves by its action and by nothing else."""
    return Prepared.of(drifting(episodes=160), config=SMALL, cache=False)


def test_the_ensemble_finds_the_closed_form_noise_and_border_included(ready: Prepared) -> None:
    """The noise feeds s² and carries s′ beyond the border: without it, reward and first cost would be 61 % of this."""
    starts = np.full((2, 120, 1), START) * np.where(np.arange(120) % 2, 1, -1)[:, None]
    found = play(ready.ensemble, [lambda count: lambda obs, *_: act(obs)], starts, HORIZON, 0)[0]
    told = Calibrated.of(found, ready.calibration, np.array([25.0, 25.0]))
    truth = exact()
    np.testing.assert_allclose(told.value, truth, rtol=0.3)
    assert (told.interval[:, 0] <= truth).all()
    assert (truth <= told.interval[:, 1]).all()
    assert told.above[1] >= truth[2] >= told.below[1]


def test_intervals_made_from_other_groups_hold_the_truth_of_groups_left_out(ready: Prepared) -> None:
    """By construction of the order of 95 %; three standard errors of a share over the groups allowed."""
    groups = len(ready.calibration.truth)
    coverage = ready.calibration.coverage(0.95)
    assert groups >= 20
    assert (coverage >= 0.95 - 3 * (0.95 * 0.05 / groups) ** 0.5).all()


def test_few_rows_are_learned_in_fewer_steps() -> None:
    config = EnsembleConfig(steps=8000, batch_size=256)
    assert [config.steps_for(rows) for rows in (100, 5_120, 100_000)] == [1000, 2000, 8000]
    assert dataclasses.replace(config, steps=20).steps_for(100_000) == 20


def test_folds_are_about_equally_large() -> None:
    fold = deal(31, 3, np.random.default_rng(0))
    assert sorted(np.bincount(fold)) == [10, 10, 11]


def test_members_learn_what_leads_back_from_where_they_came_to() -> None:
    """Two steps of a world that moves by its action: at the second, the target makes up for the first one's error."""
    data = drifting(episodes=40)
    normaliser = Normaliser.in_any_unit(data)
    world = rows_of(data, normaliser)
    width = features(normaliser, world["obs"], world["action"], world["memory"]).shape[1]
    base = Regression(jnp.zeros((1, width, 2)), jnp.ones((1, 2)))
    config = EnsembleConfig(folds=1, each=1)
    still = untrained(jax.random.key(0), normaliser, 1, config, base)
    still = dataclasses.replace(still, mean=jax.tree.map(jnp.zeros_like, still.mean))
    first = data.episode_start[None]
    inputs, target = _went(still, normaliser, *_sequences(world, first, 2))
    unit = float(normaliser.change[0])
    np.testing.assert_allclose(
        target[1][..., 0], (data.next_obs[first + 1] - data.obs[first])[..., 0] / unit, atol=1e-4
    )
    np.testing.assert_allclose(inputs[1][..., 0], normaliser.standardised(data.obs[first])[..., 0], atol=1e-4)
    recorded = _targets(normaliser, world)[first]
    np.testing.assert_allclose(target[0], recorded, atol=1e-4)
    np.testing.assert_allclose(target[1][..., 1], _targets(normaliser, world)[first + 1][..., 1], atol=1e-4)  # reward


def test_noisy_rows_end_where_they_did_and_came_to_where_they_begin() -> None:
    """What moves a row's state moves the step before it by as much; the first step of an episode had none before it."""
    data = drifting(episodes=40)
    normaliser = Normaliser.in_any_unit(data)
    rows = rows_of(data, normaliser)
    moved = with_noise(rows, normaliser, np.full(1, 0.1), np.random.default_rng(0))
    assert np.array_equal(moved["next_obs"], rows["next_obs"])
    assert np.array_equal(moved["action"], rows["action"])
    off = (moved["obs"] - rows["obs"]) / np.asarray(normaliser.change)
    assert 0.08 < float(off.std()) < 0.12
    later = np.setdiff1d(np.arange(len(data)), data.episode_start)
    np.testing.assert_allclose((moved["memory"] - rows["memory"])[later, :1], off[later], atol=1e-4)
    assert np.array_equal(moved["memory"][data.episode_start], rows["memory"][data.episode_start])


def test_a_way_is_chosen_for_a_fold_by_the_other_folds_alone() -> None:
    """Way 0 errs on fold 0 alone, way 1 a little everywhere: only the ensemble tested on fold 0 keeps way 0."""
    fold = np.array([0, 0, 1, 1, 2, 2])
    errors = np.array([[-9.0, 9, 0, 0, 0, 0], [-1.0, 1, 1, 1, 1, 1]])[..., None]
    assert choose(errors, fold, 3).tolist() == [0, 1, 1]
    assert choose(errors * [1.0, 100.0], fold, 3).tolist() == [0, 1, 1]  # the size of a cost does not count


def test_ensembles_learned_in_different_ways_step_as_they_did_alone(ready: Prepared) -> None:
    first = ready.ensemble
    mean = jax.tree.map(lambda x: 0.9 * x, first.models.mean)
    second = dataclasses.replace(first, models=dataclasses.replace(first.models, mean=mean))
    rng = np.random.default_rng(0)
    obs, action = (jnp.asarray(rng.standard_normal((2, 6, 1)), jnp.float32) for _ in range(2))
    now = jax.random.key(0), first.blank((2, 6)), obs, action
    both, alone = (
        mixed([first, second], [1, 0]),
        [dataclasses.replace(one, noise=jnp.ones(())) for one in (first, second)],
    )
    after = [one.step(*now)[1] for one in (both, *alone)]
    np.testing.assert_allclose(after[0][0], after[2][0], atol=1e-5)
    np.testing.assert_allclose(after[0][1], after[1][1], atol=1e-5)
    assert not np.allclose(after[0][0], after[1][0])


def test_model_selection_keeps_ensembles_that_predict_what_they_did_not_see() -> None:
    """A point that moves by its action: learned in two ways, held-out sums are found as by either alone."""
    thorough = Prepared.of(drifting(episodes=160), config=SMALL, cache=False, model_selection=True)
    assert thorough.config.ways == SELECTION
    truth = thorough.calibration.truth
    assert np.abs(thorough.calibration.error).mean() < 0.1 * truth.std(axis=0).mean()


def test_noise_is_drawn_where_the_world_has_some_and_not_where_it_has_none(ready: Prepared, still: Prepared) -> None:
    """κ is chosen by held-out groups; beyond a border only noise carries episodes that would stay within it."""
    assert float(ready.ensemble.noise) == 1
    assert float(still.ensemble.noise) < 1


def test_groups_are_episodes_alike() -> None:
    """Three behaviours that do not overlap: no group mixes them."""
    parts = [drifting(episodes=20, seed=seed) for seed in range(3)]
    kind = np.repeat(np.arange(3), 20)
    names = ("obs", "action", "reward", "cost", "next_obs")
    apart = {name: np.concatenate([getattr(p, name) + 50.0 * i for i, p in enumerate(parts)]) for name in names}
    ends = np.concatenate([p.timeout for p in parts])
    dataset = make_dataset(**apart, terminal=np.zeros(len(ends)), timeout=ends)
    groups = group_episodes(dataset, np.random.default_rng(0))
    assert all(len(set(kind[groups == g])) == 1 for g in range(groups.max() + 1))


def exact_model(groups: int = 40) -> Calibration:
    """A model that was never wrong."""
    return Calibration(np.ones((groups, 2)), np.ones((groups, 2)), np.zeros(groups), np.zeros(groups, int))


def test_a_rare_disaster_is_cleared_in_at_most_5_percent_even_with_a_perfect_model() -> None:
    """A cost of 120 in 10 % of episodes: mean 12, limit 10. Trimmed means cleared it in 20 % of cases."""
    rng = np.random.default_rng(0)
    for episodes in (40, 144, 576):
        cleared = 0
        for _ in range(200):
            sums = np.zeros((1, episodes, 2))
            sums[..., 1] = 120.0 * (rng.random(episodes) < 0.1)
            told = Calibrated.judge(sums, np.zeros(1), exact_model(), np.array([200.0]))
            cleared += told.within([10.0]) is True
        assert cleared / 200 <= 0.05


def test_a_policy_well_within_its_limit_is_cleared_by_a_perfect_model() -> None:
    rng = np.random.default_rng(1)
    sums = np.column_stack([np.zeros(576), rng.poisson(5, 576)]).astype(float)
    told = Calibrated.judge(sums[None], np.zeros(1), exact_model(), np.array([200.0]))
    assert told.within([10.0]) is True
    assert told.within([2.0]) is False
    assert told.within([5.0]) is None


def test_what_was_harder_to_predict_has_the_wider_interval() -> None:
    rng = np.random.default_rng(2)
    spread = rng.uniform(0, 4, 60)
    error = spread * rng.standard_normal(60)
    found = Calibration(np.tile(error[:, None], 2), np.zeros((60, 2)), spread, np.zeros(60, int))
    easy, hard = (found.scale(x) for x in (0.5, 3.0))
    assert (hard > 3 * easy).all()
    assert (found.coverage(0.95) >= 0.88).all()


def test_nine_of_ten_logs_have_groups_whose_interval_covers_what_it_says() -> None:
    """Scores are uniform, so that a factor covers a share as large as itself; more groups make it less wide."""
    rng = np.random.default_rng(4)
    for groups, enough in ((60, 0.93), (200, 0.9)):
        scores = rng.random((400, groups, 1))
        shares = [_wide(own, 0.95)[0] for own in scores]
        plain = [_quantile(own, 0.95)[0] for own in scores]
        assert np.mean(np.greater(shares, 0.95)) >= enough - 0.03
        assert np.mean(np.greater(plain, 0.95)) < 0.85
    assert np.mean(shares) < 0.98


def test_an_estimate_the_data_cannot_carry_has_no_narrower_interval_than_what_is_possible(
    still: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trained(still.dataset, [(3.0,)], [constant(-0.3)])
    inside = estimate(made, still).runs[0]
    monkeypatch.setattr("pdocrl.ope.ensemble.support.MOST_OUTSIDE", -1.0)  # every policy is called outside the data
    outside = estimate(made, still).runs[0]
    assert (inside.trusted, outside.trusted) == (True, False)
    assert outside.cost_interval == [(0.0, made.config.horizon * float(still.dataset.cost.max()))]
    assert outside.reward_interval[1] >= made.config.horizon * float(still.dataset.reward.max())
    assert outside.reward_interval[1] > inside.reward_interval[1]
    assert outside.reward == inside.reward


def test_ensembles_that_disagree_leave_an_interval_that_holds_them_all() -> None:
    """Errors of 1 at most on held-out groups, but of this policy one ensemble says 10 and the other 30."""
    rng = np.random.default_rng(3)
    truth = np.tile(rng.uniform(-1, 1, 40)[:, None], 2)
    found = Calibration(truth, np.zeros((40, 2)), np.zeros(40), np.arange(40) % 2)
    sums = np.zeros((2, 50, 2))
    sums[..., 1] = np.array([10.0, 30.0])[:, None]
    told = Calibrated.judge(sums, np.zeros(2), found, np.array([200.0]))
    assert told.interval[1, 0] < 10.5
    assert told.interval[1, 1] > 29.5
    assert told.within([15.0]) is None
    alike = Calibrated.judge(np.where(sums > 0, 20.0, 0.0), np.zeros(2), found, np.array([200.0]))
    assert np.abs(alike.interval[1] - 20).max() < 1.5
    assert alike.within([15.0]) is False


def test_an_ensemble_of_large_disagreement_is_excluded() -> None:
    """Three ensembles say 10, one says 90 and its members disagree ten times as much."""
    truth = np.tile(np.random.default_rng(3).uniform(-1, 1, 80)[:, None], 2)
    found = Calibration(truth, np.zeros((80, 2)), np.zeros(80), np.arange(80) % 4)
    sums = np.zeros((4, 50, 2))
    sums[..., 1] = np.array([10.0, 10.0, 90.0, 10.0])[:, None]
    sure, unsure = (Calibrated.judge(sums, np.array([1, 1, x, 1.0]), found, np.array([200.0])) for x in (1.0, 10.0))
    assert sure.interval[1, 1] > 89
    assert unsure.value[1] == 10
    assert unsure.interval[1, 1] < 12
    assert len(unsure.simulated) == 150


def test_a_column_of_rounding_stays_still_in_rollouts() -> None:
    """Policies may standardise it: 1e-7 beside 1e-14 would be ten million standard deviations to them."""
    data = drifting(episodes=40)
    noise = 1e-14 * np.random.default_rng(0).standard_normal((len(data), 1))
    wide = dataclasses.replace(
        data,
        obs=np.hstack([data.obs, noise]).astype(np.float32),
        next_obs=np.hstack([data.next_obs, noise]).astype(np.float32),
    )
    normaliser = Normaliser.in_any_unit(wide)
    assert float(normaliser.low[-1]) == float(normaliser.high[-1]) == pytest.approx(0, abs=1e-14)
    assert float(normaliser.low[0]) < float(normaliser.high[0])


def test_observations_rewards_and_costs_in_other_units_change_nothing_but_their_units() -> None:
    """Powers of two; a column in millionths is no rounding, and one that stands at a million is no signal."""
    data = drifting(episodes=40)
    still = np.full((len(data), 1), 3e6, np.float32)
    data = dataclasses.replace(
        data, obs=np.hstack([data.obs, still]), next_obs=np.hstack([data.next_obs, still + np.float32(0.25)])
    )
    unit = np.array([2.0**-30] * (data.obs_dim - 1) + [1], np.float32)
    other = dataclasses.replace(
        data,
        obs=data.obs * unit,
        next_obs=data.next_obs * unit,
        reward=data.reward * np.float32(2**-30),
        cost=data.cost * np.float32(2**-30),
    )
    rows = slice(0, 50)
    seen = []
    for own in (data, other):
        normaliser = Normaliser.in_any_unit(own)
        given = jnp.asarray(own.obs[rows]), jnp.asarray(own.action[rows])
        memory = memory_of(normaliser, *given, jnp.asarray(own.next_obs[rows]))
        group = group_episodes(own, np.random.default_rng(0))
        recorded = Recorded.of(own, np.random.default_rng(0))
        reward = own.reward[rows] / normaliser.reward
        known = normaliser.known(jnp.asarray(own.cost[rows]))
        told = features(normaliser, *given, memory), reward, known, group, recorded.radius
        seen.append([np.asarray(x) for x in told])
    for first, second in zip(*seen, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-6)


def test_one_odd_episode_is_no_group() -> None:
    data = drifting(episodes=160)
    reward = data.reward.copy()
    reward[: data.episode_length[0]] += 1000.0
    groups = group_episodes(dataclasses.replace(data, reward=reward), np.random.default_rng(0))
    assert np.bincount(groups).min() >= 2
    assert (groups == groups[0]).sum() >= 2


def test_company_changes_nothing(ready: Prepared) -> None:
    starts = np.full((2, 5, 1), START)
    policies: list[Any] = [lambda count: lambda obs, *_: act(obs), lambda count: lambda obs, *_: 0 * obs]
    alone = play(ready.ensemble, policies[:1], starts, HORIZON, 0)[0]
    beside = play(ready.ensemble, policies[::-1], starts, HORIZON, 0)[1]
    np.testing.assert_allclose(alone.sums, beside.sums, rtol=1e-3, atol=1e-3)
    assert GAIN > 0


def test_verdicts_of_the_command_and_the_fit_that_is_kept(tmp_path: Path, run_cli: Cli, monkeypatch: Any) -> None:
    """Ten steps of −0.3 never come near the border at 0.5; steps of +0.6 are beyond it from the fifth on."""
    import json

    monkeypatch.setattr("pdocrl.ope.ensemble.prepare.EnsembleConfig", lambda: SMALL)
    dataset = drifting(episodes=160)
    save(dataset, tmp_path / "drifting.npz")
    made = trained(dataset, [(3.0,), (1.0,)], [constant(-0.3), constant(0.6)], str(tmp_path / "drifting.npz"))
    folder = write(tmp_path / "run", made)
    status, out, _ = run_cli("ope", folder, "--json")
    told = json.loads(out)
    assert status == 0
    assert {"format": 2, **told} == json.loads((folder / "ope.json").read_text())
    safe, unsafe = told["runs"]
    assert safe["reward"] == pytest.approx(-3, abs=0.3)
    assert (safe["verdict"], safe["trusted"]) == ("within limit at 95 %", True)
    assert unsafe["within_limit"] is not True
    assert told["calibration"]["groups"] >= 20
    assert set(told["calibration"]["coverage_left_out"]) == {"reward", "cost"}
    assert len(list((tmp_path / "cache" / "pdocrl" / "ope").iterdir())) == 1
    monkeypatch.setattr("pdocrl.ope.ensemble.prepare._fitted", None)  # the second call finds the fit
    assert json.loads(run_cli("ope", folder, "--json")[1]) == told


def test_policies_with_memory_are_estimated_too(still: Prepared) -> None:
    plain = constant(-0.3)
    memory = Sequential(plain.weights, plain.biases)
    assert remembers(memory)
    assert not remembers(plain)
    made = trained(still.dataset, [(3.0,), (3.0,)], [plain, memory])
    first, second = estimate(made, still).runs
    assert second.reward == pytest.approx(first.reward, abs=0.2)
    assert second.within_limit is True


@pytest.mark.parametrize("rotary", [False, True])
def test_a_window_of_many_episodes_acts_as_the_transformer_does_in_each(rotary: bool) -> None:
    rng = np.random.default_rng(0)
    width, size = 8, {"obs": 2, "action": 1, "returns": 1, "costs": 1}
    weights = {f"{n}/weight": rng.normal(size=(k, width)) for n, k in size.items()}
    weights |= {f"{n}/bias": np.zeros(width) for n in size}
    weights |= {"time": rng.normal(size=(6, width)), "action_head/weight": rng.normal(size=(width, 2))}
    weights |= {"action_head/bias": np.zeros(2)}
    for norm in ("embedding_norm", "last_norm", "block_0/norm_1", "block_0/norm_2"):
        weights |= {f"{norm}/scale": np.ones(width), f"{norm}/bias": np.zeros(width)}
    for name, n_in, n_out in (("qkv", width, 3 * width), ("out", width, width), ("up", width, 16), ("down", 16, width)):
        weights |= {
            f"block_0/{name}/weight": rng.normal(size=(n_in, n_out)) / 3,
            f"block_0/{name}/bias": np.zeros(n_out),
        }
    policy = TransformerPolicy(
        {name: array.astype(np.float32) for name, array in weights.items()},
        layers=1,
        heads=2,
        context=3,
        target_return=5.0,
        target_cost=(2.0,),
        reward_scale=0.1,
        cost_shift=3.0,
        spends_at_most=rotary,
    )
    if rotary:
        policy.weights["rotation"] = rng.normal(size=(2, 12, width)).astype(np.float32)
        del policy.weights["time"]
    together, alone = begin_many(policy, 4, 0), [policy.begin(0) for _ in range(4)]
    reward, cost = np.zeros(4), np.zeros((4, 1))
    for _ in range(6):
        obs = rng.normal(size=(4, 2)).astype(np.float32)
        single = np.stack([step(obs[i], reward[i], cost[i]) for i, step in enumerate(alone)])
        np.testing.assert_allclose(together(obs, reward, cost), single, atol=1e-5)
        reward, cost = rng.normal(size=4), rng.random((4, 1))


def test_budgets_of_many_episodes_are_spent_as_the_dial_spends_them_in_each() -> None:
    rng = np.random.default_rng(0)
    sizes = (2 + 2 + 8, 16, 1)
    layers = [rng.normal(size=pair).astype(np.float32) for pair in itertools.pairwise(sizes)]
    policy = DialPolicy(
        tuple(layers),
        tuple(np.zeros(n, np.float32) for n in sizes[1:]),
        horizon=6.0,
        max_episode_cost=np.array([4.0], np.float32),
        limit=(2.0,),
        relative_return=np.ones(2, np.float32),
        target_cost=np.array([[1.0], [2.0]], np.float32),
        cost_cap=np.array([[1.0], [9.0]], np.float32),
        reward=np.array([1.0, 2.0], np.float32),
        bound=np.array([[1.0], [2.0]], np.float32),
        mean_cost=np.array([[1.0], [2.0]], np.float32),
    )
    together, alone = begin_many(policy, 4, 0), [policy.begin(0) for _ in range(4)]
    reward, cost = np.zeros(4), np.zeros((4, 1))
    for _ in range(7):
        obs = rng.normal(size=(4, 2)).astype(np.float32)
        single = np.stack([step(obs[i], reward[i], cost[i]) for i, step in enumerate(alone)])
        np.testing.assert_allclose(together(obs, reward, cost), single, atol=1e-6)
        cost = rng.integers(0, 2, (4, 1)).astype(float)


def test_a_policy_that_standardises_is_given_raw_observations() -> None:
    """Its actions stay in [−1, 1], as the data holds them."""

    class Scales:
        def normalise_obs(self, obs: Any) -> Any:
            return obs / 10

    class World:
        network = MLPPolicy((np.ones((1, 1), np.float32),), (np.zeros(1, np.float32),))
        normaliser = Scales()

    step = begin_many(World(), 2, 0)  # type: ignore[arg-type]
    acted = step(np.array([[1.0], [2.0]]), np.zeros(2), np.zeros((2, 1)))
    np.testing.assert_allclose(acted, np.tanh([[0.1], [0.2]]), rtol=1e-6)

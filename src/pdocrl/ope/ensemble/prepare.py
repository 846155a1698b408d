"""What does not depend on any policy: fitted once per dataset, kept in the cache, shared by every policy judged on it.

dataset ─▶ groups ─▶ folds ─▶ ensemble ─▶ calibration ─▶ <cache>/ope/<digest of the data>-<settings>.safetensors
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pdocrl.console import log, progress
from pdocrl.data.dataset import Dataset
from pdocrl.data.load import cache_folder
from pdocrl.errors import PdocrlError
from pdocrl.ope.ensemble.calibrate import Calibration, calibrate
from pdocrl.ope.ensemble.fqe import System
from pdocrl.ope.ensemble.groups import deal, feedback, group_episodes
from pdocrl.ope.ensemble.learn import fit
from pdocrl.ope.ensemble.networks import SELECTION, Ensemble, EnsembleConfig, by_fold, networks
from pdocrl.ope.ensemble.support import Recorded
from pdocrl.ope.ensemble.targets import Base, Scales, with_one
from pdocrl.training import checkpoint

KIND = "crossed ensembles"  # of ensemble: files of another kind are left alone
REACTION_SHARE = 8  # a clone of a group takes one step where a member of the ensemble takes eight


@dataclasses.dataclass(frozen=True, eq=False)
class Prepared:
    """A dataset, the models that learned it, and how far they were off where truth was known."""

    dataset: Dataset
    config: EnsembleConfig
    seed: int
    cache: bool | Path  # whether the fit is kept; a path is the file to keep it in

    @staticmethod
    def of(
        dataset: Dataset,
        seed: int = 0,
        config: EnsembleConfig | None = None,
        cache: bool | Path = True,
        model_selection: bool = False,
    ) -> Prepared:
        """Nothing is fitted before it is asked for. `model_selection`: several ways to learn, the best kept."""
        if seed < 0:
            raise PdocrlError(f"seed is {seed}, must be at least 0.")
        config = dataclasses.replace(config or EnsembleConfig(), seed=seed)
        config = dataclasses.replace(config, ways=SELECTION) if model_selection else config
        return Prepared(dataset, config, seed, cache)

    @functools.cached_property
    def learned(self) -> tuple[Ensemble, Calibration]:
        """The ensemble and how far it is off: fitted, or from the cache when the same data was fitted before."""
        path = self.cache if isinstance(self.cache, Path) else _place(self.dataset, self.config) if self.cache else None
        found = _kept(path, self.dataset, self.config) if path is not None else None
        if found is None:
            found = _fitted(self.dataset, self.config)
            if path is not None:
                _keep(path, *found)
        return found

    @property
    def ensemble(self) -> Ensemble:
        return self.learned[0]

    @property
    def calibration(self) -> Calibration:
        return self.learned[1]

    @functools.cached_property
    def recorded(self) -> Recorded:
        return Recorded.of(self.dataset, np.random.default_rng([self.seed, 8]))

    @functools.cached_property
    def system(self) -> System:
        """Of fitted Q evaluation."""
        return System.drawn(self.dataset, np.random.default_rng([self.seed, 1]))


def _fitted(dataset: Dataset, config: EnsembleConfig) -> tuple[Ensemble, Calibration]:
    rng = np.random.default_rng([config.seed, 9])
    groups = group_episodes(dataset, rng)
    count = int(groups.max()) + 1
    if count < 2:
        raise PdocrlError(f"{dataset.name}: too few episodes to hold some out; an estimate needs at least 8.")
    fold = deal(count, config.folds, rng)
    bag = np.repeat(np.arange(config.folds), config.each)[:, None] != fold  # [M, G] which member sees which group
    steps = config.steps_for(len(dataset))
    with progress() as bar:
        row = bar.add_task("ensemble of the data, once per dataset", total=steps * len(config.ways))
        ensembles = [fit(dataset, groups, bag, config, way, lambda done: bar.advance(row, done)) for way in config.ways]
    clones = feedback(dataset, groups, ensembles[0].scales, max(1, steps // REACTION_SHARE), config.seed)
    return calibrate(dataset, ensembles, groups, fold, clones, config.seed)


def _place(dataset: Dataset, config: EnsembleConfig) -> Path:
    settings = json.dumps(dataclasses.asdict(config) | {"version": version("pdocrl"), "kind": KIND}, sort_keys=True)
    name = f"{dataset.digest[:16]}-{hashlib.sha256(settings.encode()).hexdigest()[:12]}.safetensors"
    return cache_folder() / "ope" / name


def _tree(ensemble: Ensemble, calibration: Calibration) -> dict[str, Any]:
    return {
        "ensemble": ensemble,
        "calibration": {field.name: getattr(calibration, field.name) for field in dataclasses.fields(calibration)},
    }


def _keep(path: Path, ensemble: Ensemble, calibration: Calibration) -> None:
    try:
        checkpoint.save(path, _tree(ensemble, calibration), {"groups": len(calibration.truth)})
    except PdocrlError as error:
        log(f"note: the fit is not kept for the next call: {error}")


def _kept(path: Path, dataset: Dataset, config: EnsembleConfig) -> tuple[Ensemble, Calibration] | None:
    """The fit of an earlier call; None where there is none, or none that can be read."""
    if not path.is_file():
        return None
    try:
        groups = checkpoint.read_metadata(path)["groups"]
        found, _ = checkpoint.load(path, _shapes(dataset, config, groups))
    except (PdocrlError, KeyError) as error:
        log(f"note: {path} cannot be used and is made again ({error})")
        return None
    return jax.tree.map(jnp.asarray, found["ensemble"]), Calibration(**found["calibration"])


def _shapes(dataset: Dataset, config: EnsembleConfig, groups: int) -> dict[str, Any]:
    """What the file must hold."""
    scales = Scales.of(dataset)

    def blank() -> Ensemble:
        change, outcome = networks(jax.random.key(0), scales, config)
        obs, action = jnp.zeros((1, dataset.obs_dim)), jnp.zeros((1, dataset.action_dim))
        memory = jnp.zeros((1, dataset.obs_dim + dataset.action_dim + 1))
        d = scales.features(memory, obs, action)[0].shape[-1]
        e = with_one(scales.outcome_inputs(obs, action, obs)).shape[-1]
        m = config.members
        base = Base(jnp.zeros((m, d, dataset.obs_dim)), jnp.zeros(dataset.obs_dim), jnp.zeros((m, e, 1)), jnp.zeros(()))
        return by_fold(change, outcome, base, scales, config.folds)

    signals = 1 + dataset.n_costs
    sums, ones = np.zeros((groups, signals)), np.zeros(groups)
    blanks = Calibration(truth=sums, predicted=sums, disagreement=ones, fold=ones.astype(np.int64))
    return _tree(jax.eval_shape(blank), blanks)

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
from pdocrl.dynamics.normaliser import Normaliser
from pdocrl.dynamics.regression import Regression, features
from pdocrl.errors import PdocrlError
from pdocrl.ope.ensemble.behaviours import PROBES, Behaviours
from pdocrl.ope.ensemble.calibrate import Calibration, calibrate
from pdocrl.ope.ensemble.fqe import System
from pdocrl.ope.ensemble.groups import deal, feedback, group_episodes
from pdocrl.ope.ensemble.learn import fit
from pdocrl.ope.ensemble.models import SELECTION, EnsembleConfig, Ensembles, by_fold, untrained
from pdocrl.ope.ensemble.support import Recorded
from pdocrl.training import checkpoint

KIND = "mixtures"  # of ensemble: files of another kind are left alone
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
    def learned(self) -> tuple[Ensembles, Calibration, Behaviours]:
        """The models, how far they are off, the behaviours: fitted, or from the cache."""
        path = self.cache if isinstance(self.cache, Path) else _place(self.dataset, self.config) if self.cache else None
        found = _kept(path, self.dataset, self.config) if path is not None else None
        if found is None:
            found = _fitted(self.dataset, self.config)
            if path is not None:
                _keep(path, *found)
        return found

    @property
    def ensemble(self) -> Ensembles:
        return self.learned[0]

    @property
    def calibration(self) -> Calibration:
        return self.learned[1]

    @property
    def behaviours(self) -> Behaviours:
        return self.learned[2]

    @functools.cached_property
    def recorded(self) -> Recorded:
        return Recorded.of(self.dataset, np.random.default_rng([self.seed, 8]))

    @functools.cached_property
    def system(self) -> System:
        """Of fitted Q evaluation."""
        return System.drawn(self.dataset, np.random.default_rng([self.seed, 1]))


def _fitted(dataset: Dataset, config: EnsembleConfig) -> tuple[Ensembles, Calibration, Behaviours]:
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
    clones = feedback(dataset, groups, ensembles[0].normaliser, max(1, steps // REACTION_SHARE), config.seed)
    behaviours = Behaviours.of(dataset, config.folds, np.random.default_rng([config.seed, 14]))
    return *calibrate(dataset, ensembles, groups, fold, clones, config.seed), behaviours


def _place(dataset: Dataset, config: EnsembleConfig) -> Path:
    settings = json.dumps(dataclasses.asdict(config) | {"version": version("pdocrl"), "kind": KIND}, sort_keys=True)
    name = f"{dataset.digest[:16]}-{hashlib.sha256(settings.encode()).hexdigest()[:12]}.safetensors"
    return cache_folder() / "ope" / name


def _tree(ensemble: Ensembles, calibration: Calibration, behaviours: Behaviours) -> dict[str, Any]:
    def named(told: Any) -> dict[str, Any]:
        return {field.name: getattr(told, field.name) for field in dataclasses.fields(told)}

    return {"ensemble": ensemble, "calibration": named(calibration), "behaviours": named(behaviours)}


def _keep(path: Path, ensemble: Ensembles, calibration: Calibration, behaviours: Behaviours) -> None:
    counts = {"groups": len(calibration.truth), "behaviours": len(behaviours.truth)}
    try:
        checkpoint.save(path, _tree(ensemble, calibration, behaviours), counts)
    except PdocrlError as error:
        log(f"note: the fit is not kept for the next call: {error}")


def _kept(path: Path, dataset: Dataset, config: EnsembleConfig) -> tuple[Ensembles, Calibration, Behaviours] | None:
    """The fit of an earlier call; None where there is none, or none that can be read."""
    if not path.is_file():
        return None
    try:
        counts = checkpoint.read_metadata(path)
        found, _ = checkpoint.load(path, _shapes(dataset, config, counts["groups"], counts["behaviours"]))
    except (PdocrlError, KeyError) as error:
        log(f"note: {path} cannot be used and is made again ({error})")
        return None
    models = jax.tree.map(jnp.asarray, found["ensemble"])
    return models, Calibration(**found["calibration"]), Behaviours(**found["behaviours"])


def _shapes(dataset: Dataset, config: EnsembleConfig, groups: int, behaviours: int) -> dict[str, Any]:
    """What the file must hold."""
    normaliser = Normaliser.in_any_unit(dataset)

    def blank() -> Ensembles:
        inputs = (
            jnp.zeros((1, n)) for n in (dataset.obs_dim, dataset.action_dim, dataset.obs_dim + dataset.action_dim + 1)
        )
        m, d, y = config.members, features(normaliser, *inputs).shape[-1], dataset.obs_dim + 1
        base = Regression(jnp.zeros((m, d, y)), jnp.zeros((m, y)))
        models = untrained(jax.random.key(0), normaliser, dataset.action_dim, config, base)
        return by_fold(models, normaliser, config.folds)

    signals = 1 + dataset.n_costs
    sums, ones = np.zeros((groups, signals)), np.zeros(groups)
    blanks = Calibration(truth=sums, predicted=sums, disagreement=ones, fold=ones.astype(np.int64))
    probes = np.zeros((behaviours, PROBES), np.int64)
    acted = np.zeros((*probes.shape, dataset.action_dim), np.float32)
    square, told = np.zeros((behaviours,) * 2), np.zeros((behaviours, signals))
    known = Behaviours(probes, acted, square, square, told, probes[:, 0])
    return _tree(jax.eval_shape(blank), blanks, known)

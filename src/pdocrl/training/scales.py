"""Observations as networks see them: each column with mean 0 and standard deviation 1 over the data.

    s ↦ (s − mean) / std;   a column that never changes tells nothing and is ignored (↦ 0)

Done once, between the dataset and the device, for every agent: none of them knows the world's units, and the policies
they return are put into these units by the loop. Statistics are of the whole data, also where only windows are held.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from pdocrl.data.dataset import Dataset
from pdocrl.policies.policy import WorldScales
from pdocrl.training.window import Window

CONSTANT = 1e-6  # a spread below this share of a column's size is rounding …
NOTHING = 1e-12  # … and so is one below this share of the widest column's: noise around 0, of a column that is 0


def scales_of(dataset: Dataset) -> WorldScales:
    """Between the world's numbers and a network's."""
    mean, std = dataset.obs_moments
    changes = (std > CONSTANT * np.hypot(mean, std)) & (std > NOTHING * std.max())
    scale = np.divide(1.0, std, out=np.zeros_like(std), where=changes)
    low, high = np.asarray(dataset.action_bounds, np.float32)
    choices = np.asarray(dataset.choices, np.int64)
    return WorldScales(mean.astype(np.float32), scale.astype(np.float32), low, high, choices)


def standardised(dataset: Dataset, scales: WorldScales) -> Dataset:
    """The same data with observations as networks see them."""
    seen = {"obs": scales.standardised(dataset.obs), "next_obs": scales.standardised(dataset.next_obs)}
    if isinstance(dataset, Window):
        seen["starts"] = scales.standardised(dataset.starts)
    return dataclasses.replace(dataset, **seen)  # type: ignore[arg-type]

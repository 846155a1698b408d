"""Names of version 0.2 that are still accepted in 0.3, each with a one-line deprecation: old → new.

Every renamed or removed setting, environment variable, command-line option, attribute of the Python API and field of a
result file is listed here and nowhere else; in the next version the tables are emptied.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from typing import Any

from pdocrl.errors import PdocrlError

ENVIRONMENT = {"PDOCRL_HALVES": ("PDOCRL_PRECISION", {"0": "float32", "1": "mixed"})}  # variable, and its values
SETTINGS: dict[str, dict[str, str]] = {
    "solve": {"relearned": "refits"},
    "dial": {"qualities": "relative_returns", "early_stops": "cost_caps"},
    "pdocrl_anchored": {"imagined": "rollouts"},
}  # agent → {field of its config}; `*` stands for every agent
OPTIONS: dict[str, dict[str, str]] = {  # command → {option}, without dashes
    "solve": {"relearned": "refits", "dead-ends": "absorbing", "window": "limit-horizon"},
    "ope": {"thorough": "model-selection", "no-thorough": "no-model-selection"},
    "certify": {"thorough": "model-selection", "no-thorough": "no-model-selection"},
    "train": {"sink": "logger", "window": "buffer-size"},
    "bench": {"train-only": "no-play"},
    "collect": {"write-only": "no-play"},
}
REMOVED: dict[str, dict[str, str]] = {  # command → {option: what replaces it}; refused in one line
    "ope": {
        "method": "the ensemble decides, and --compare shows fitted Q evaluation and logged behaviours beside it",
        "resamples": "intervals are calibrated on episodes that the ensemble had not seen; leave it out",
    },
}
ATTRIBUTES: dict[str, dict[str, str]] = {  # class of the Python API → {attribute}
    "Trained": {"plan": "config"},
    "Policy": {"at_limit": "with_limit"},
}
FIELDS: dict[str, dict[str, str]] = {  # result file → {key}
    "ope.json": {"doubts": "warnings"},
    "run.json": {"window": "buffer_size", "choices": "discrete_actions"},
    "result.json": {
        "thin": "low_count_share",
        "margin": "slater_margin",
        "window": "limit_horizon",
        "per_window": "per_limit_horizon",
        "kept": "satisfied",
    },
}

_said: set[str] = set()


def environment(name: str) -> str | None:
    """The value of an environment variable, also where it is set under its old name."""
    for old, (new, values) in ENVIRONMENT.items():
        if new == name and new not in os.environ and old in os.environ:
            deprecated(old, new)
            return values.get(os.environ[old])
    return os.environ.get(name)


def settings(agent: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of an agent under their new names."""
    return _renamed(SETTINGS.get("*", {}) | SETTINGS.get(agent, {}), given, f"setting of {agent}: ")


def fields(file: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of a result file under their new names; without a word, since nobody is to rewrite the file."""
    names = FIELDS.get(file, {})
    return {names.get(key, key): value for key, value in given.items()}


def arguments(command: str, given: list[str]) -> list[str]:
    """Words of a command line with options under their new names."""
    renamed = []
    for word in given:
        option, separator, value = word.partition("=")
        if option.startswith("--") and (gone := REMOVED.get(command, {}).get(option.removeprefix("--"))):
            raise PdocrlError(f"{option} is no longer an option of `pdocrl {command}`: {gone}.")
        new = OPTIONS.get(command, {}).get(option.removeprefix("--")) if option.startswith("--") else None
        if new is not None:
            deprecated(option, f"--{new}")
        renamed.append(word if new is None else f"--{new}{separator}{value}")
    return renamed


def attribute(owner: str, old: str, of: Any) -> Any:
    """An attribute of the Python API under its old name, with a `DeprecationWarning` where it is asked for."""
    new = ATTRIBUTES[owner][old]
    warnings.warn(f"{owner}.{old} is now {new}; the old name is accepted until 0.4.", DeprecationWarning, stacklevel=3)
    return getattr(of, new)


def _renamed(names: Mapping[str, str], given: Mapping[str, Any], where: str) -> dict[str, Any]:
    for old in names.keys() & given.keys():
        deprecated(old, names[old], where)
    return {names.get(key, key): value for key, value in given.items()}


def deprecated(old: str, new: str, where: str = "") -> None:
    """Say once, on standard error, that a name has changed."""
    line = f"deprecated: {where}{old} is now {new}; the old name is accepted until 0.4."
    if line not in _said:
        _said.add(line)
        print(line, file=sys.stderr)

"""Any method by name on a user's log: the same report as `solve`'s own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

from pdocrl.errors import PdocrlError, UnknownNameError
from pdocrl.limits import Limits
from pdocrl.tabular.analysis.assess import assess
from pdocrl.tabular.api import Result
from pdocrl.tabular.baselines.registry import Parameters, find_baseline
from pdocrl.tabular.counts import Counts


def solve_with(
    method: str,
    counts: Counts,
    gamma: float,
    limits: Limits = (),
    parameters: Mapping[str, float | str] | None = None,
    resamples: int = 200,
    level: float = 0.95,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> Result:
    """The result of a method of `registry.BASELINES`; its parameters, such as {"beta": 3}, may be text.

    What is not given is as the method's own function has it.
    """
    rival = find_baseline(method)
    given = read_parameters(method, parameters or {})
    progress(f"learning by {rival.label}")
    found = rival.run(counts, gamma, limits, **given)
    return assess(counts, found, gamma, limits, method, None, resamples > 0, level, progress)


def parameters_of(method: str) -> dict[str, type]:
    """The numbers a method takes, by name."""
    taken = list(inspect.signature(find_baseline(method).run).parameters.values())[3:]
    return {one.name: int if "int" in str(one.annotation) else float for one in taken if one.name != "reference"}


def read_parameters(method: str, given: Mapping[str, float | str]) -> Parameters:
    """Each parameter as the number it is."""
    kinds, read = parameters_of(method), {}
    for name, value in given.items():
        if name not in kinds:
            takes = f"{method} takes {', '.join(kinds) or 'none'}."
            raise UnknownNameError(f"parameter of {method}", name, kinds, takes)
        try:
            read[name] = kinds[name](float(value)) if kinds[name] is float else int(value)
        except ValueError:
            what = "a whole number" if kinds[name] is int else "a number"
            raise PdocrlError(f"{method}: {name}={value} is not understood; it must be {what}.") from None
    return read

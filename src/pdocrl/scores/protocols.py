"""How a number in a table came about: limits, seeds and episodes under a name."""

from __future__ import annotations

import dataclasses

from pdocrl.errors import UnknownNameError


@dataclasses.dataclass(frozen=True)
class Protocol:
    """How a number in a table came about. Numbers of different protocols do not compare."""

    name: str
    limits: tuple[float, ...]  # cost limits, each trained and evaluated for itself
    episodes: int  # per policy
    seeds: tuple[int, ...]  # of the training runs
    about: str


PROTOCOLS = {
    p.name: p
    for p in (
        Protocol("dsrl", (10.0, 20.0, 40.0), 20, (0, 5, 10), "the benchmark's tables for the Bullet tasks"),
        Protocol("paper", (20.0, 40.0, 80.0), 20, (0, 5, 10), "what the paper's appendix states"),
        Protocol("tight", (5.0,), 20, (0, 5, 10), "the strict setting of newer work"),
    )
}


def find_protocol(name: str) -> Protocol:
    """The protocol of that name."""
    if name not in PROTOCOLS:
        raise UnknownNameError("protocol", name, PROTOCOLS, f"Known: {', '.join(PROTOCOLS)}.")
    return PROTOCOLS[name]

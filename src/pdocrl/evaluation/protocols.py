"""How a number in a table came about: limits, seeds and episodes under a name."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

from pdocrl.errors import UnknownNameError

CUSTOM = "custom"


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


def protocol_of(limits: Iterable[Sequence[float] | Sequence[str]], seeds: Iterable[int], episodes: int) -> str:
    """The name of the protocol whose limits, seeds and episodes these are, in any order, else "custom".

    Limits that are those of two protocols together give both names: "dsrl+paper". A protocol's seeds are the least it
    asks for: more of them are the same measurement, told better.
    """
    asked, run = {tuple(limit) for limit in limits}, set(seeds)
    for several in (1, 2):
        for protocols in itertools.combinations(PROTOCOLS.values(), several):
            known = {(limit,) for protocol in protocols for limit in protocol.limits}
            if asked == known and all(run >= set(p.seeds) and episodes == p.episodes for p in protocols):
                return "+".join(protocol.name for protocol in protocols)
    return CUSTOM


def protocols_in(name: str) -> list[Protocol]:
    """Those that a name stands for, one or several; none for "custom" and others that are not known."""
    parts = name.split("+")
    return [PROTOCOLS[part] for part in parts] if set(parts) <= set(PROTOCOLS) else []

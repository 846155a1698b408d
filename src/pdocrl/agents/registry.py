"""Agents by name: the built-in ones, and those that other packages offer under the entry point `pdocrl.agents`.

Nothing here imports JAX until an agent is looked up.
"""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from pdocrl.errors import PdocrlError, UnknownNameError

if TYPE_CHECKING:
    from pdocrl.agents.base import Agent

BUILT_IN = {
    "dial": "pdocrl.agents.dial:Dial",
    "pdocrl": "pdocrl.agents.pdocrl:PDOCRL",
    "pdocrl_anchored": "pdocrl.agents.pdocrl_anchored:PDOCRLAnchored",
    "pdocrl_extraction": "pdocrl.agents.pdocrl_extraction:PDOCRLExtraction",
    "bc": "pdocrl.agents.bc:BC",
    "cdt": "pdocrl.agents.cdt:CDT",
    "bcq_lag": "pdocrl.agents.bcq_lag:BCQLag",
    "bear_lag": "pdocrl.agents.bear_lag:BEARLag",
    "cpq": "pdocrl.agents.cpq:CPQ",
    "coptidice": "pdocrl.agents.coptidice:COptiDICE",
    "caps_iql": "pdocrl.agents.caps_iql:CAPSIQL",
    "caps_sac": "pdocrl.agents.caps_sac:CAPSSAC",
    "bcrl": "pdocrl.agents.bcrl:BCRL",
    "fisor": "pdocrl.agents.fisor:FISOR",
    "carl": "pdocrl.agents.carl:CARL",
    "o3srl": "pdocrl.agents.o3srl:O3SRL",
    "b2r": "pdocrl.agents.b2r:B2R",
}


def agent_names() -> list[str]:
    """All agents known here: built in, then those other packages offer under the entry point `pdocrl.agents`."""
    return [*BUILT_IN, *(e.name for e in entry_points(group="pdocrl.agents") if e.name not in BUILT_IN)]


def agents_for_discrete_actions() -> list[str]:
    """The built-in agents that learn from discrete actions."""
    return [name for name in BUILT_IN if find_agent(name).discrete_actions]


def find_agent(name: str) -> Agent[Any, Any]:
    """The agent of that name; an unknown one raises with a suggestion."""
    if name in BUILT_IN:
        module, attribute = BUILT_IN[name].split(":")
        agent: Agent[Any, Any] = getattr(importlib.import_module(module), attribute)()
        return agent
    for entry in entry_points(group="pdocrl.agents"):
        if entry.name == name:
            try:
                plugin: Agent[Any, Any] = entry.load()()
            except Exception as error:
                raise PdocrlError(f"agent {name!r} ({entry.value}) could not be loaded: {error}") from error
            return plugin
    raise UnknownNameError("agent", name, agent_names(), "`pdocrl agents` lists all.")

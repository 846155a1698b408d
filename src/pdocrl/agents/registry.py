"""Agents by name: the built-in ones, and those that other packages offer under the entry point `pdocrl.agents`.

Nothing here imports JAX until an agent is looked up.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pdocrl.console import log
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


_DESCRIBED = ("name", "summary", "paper", "needs", "discrete_actions")
_of_session: dict[str, Agent[Any, Any]] = {}  # agents given as classes or instances in this process


def as_agent(given: str | type[Agent[Any, Any]] | Agent[Any, Any]) -> Agent[Any, Any]:
    """The agent of a name, a class or an instance. One that is given itself is known by its name from then on."""
    from pdocrl.agents.base import Agent

    if isinstance(given, str):
        return find_agent(given)
    if isinstance(given, type) and issubclass(given, Agent):
        given = given()
    if not isinstance(given, Agent):
        raise PdocrlError(f"agent is {given!r}; give a name, a class derived from pdocrl.Agent, or an instance of one.")
    kind = type(given)
    if not hasattr(kind, "name"):
        kind.name = kind.__name__.lower()
    if not hasattr(kind, "Config"):
        raise PdocrlError(f"agent {kind.__name__} has no `Config`; name its config class, such as AgentConfig.")
    built_in = BUILT_IN.get(kind.name)
    if built_in is not None and built_in != class_path(given):
        raise PdocrlError(f"agent {kind.__name__} is named {kind.name!r}, as a built-in one. Give it another `name`.")
    if built_in is not None and vars(given) == vars(_built_in(kind.name)):
        return _built_in(kind.name)
    known = _of_session.get(kind.name)
    if known is not None and type(known) is kind and vars(known) == vars(given):
        return known  # its programs are compiled already
    if built_in is None:
        _of_session[kind.name] = given
    return given


def class_path(agent: Agent[Any, Any]) -> str:
    """module:Class."""
    return f"{type(agent).__module__}:{type(agent).__qualname__}"


def is_packaged(agent: Agent[Any, Any]) -> bool:
    """Whether its code belongs to an installed package, so that its version names it; a notebook's does not."""
    from importlib.metadata import packages_distributions

    return type(agent).__module__.partition(".")[0] in packages_distributions()


def import_agent(name: str, path: str) -> Agent[Any, Any]:
    """The agent of a record: by name, or where only its class is known, by `module:Class`."""
    try:
        return find_agent(name)
    except UnknownNameError:
        module, _, attribute = path.partition(":")
        try:
            found: Any = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, ValueError):
            where = f" ({path})" if path else ""
            raise PdocrlError(
                f"agent {name!r}{where} is not known here. Run the code that defines it, and give the class: agent=…"
            ) from None
        return as_agent(found)


def agent_names() -> list[str]:
    """All agents known here: built in, then those other packages offer under the entry point `pdocrl.agents`."""
    return [*BUILT_IN, *(e.name for e in entry_points(group="pdocrl.agents") if e.name not in BUILT_IN)]


def describe_agents() -> list[dict[str, Any]]:
    """What every agent says of itself; one that cannot be loaded is named in a warning and left out."""
    found = []
    for name in agent_names():
        try:
            found.append(describe_agent(name))
        except PdocrlError as error:
            log(f"warning: {error}")
    return found


def agents_for_discrete_actions() -> list[str]:
    """The built-in agents that learn from discrete actions."""
    return [name for name in BUILT_IN if describe_agent(name)["discrete_actions"]]


def describe_agent(name: str) -> dict[str, Any]:
    """What the class says of itself: name, summary, paper, needs, discrete_actions.

    A built-in agent's are read from its source, since importing it would load JAX, which takes seconds.
    """
    if name not in BUILT_IN or name in _of_session:
        agent = find_agent(name)
        return {key: getattr(agent, key) for key in _DESCRIBED}
    found = _constants("pdocrl.agents.base:Agent") | _constants(BUILT_IN[name])
    return {key: found[key] for key in _DESCRIBED}


def _constants(path: str) -> dict[str, Any]:
    """The literals that the class `module:Class` assigns to the names in `_DESCRIBED`, without importing the module."""
    module, _, attribute = path.partition(":")
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    body = ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body
    (found,) = (node for node in body if isinstance(node, ast.ClassDef) and node.name == attribute)
    constants = {}
    for node in found.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name) and target.id in _DESCRIBED:
                    constants[target.id] = ast.literal_eval(node.value)
    return constants


@functools.cache
def _built_in(name: str) -> Agent[Any, Any]:
    """One instance of each: its programs are compiled once in a process."""
    module, attribute = BUILT_IN[name].split(":")
    agent: Agent[Any, Any] = getattr(importlib.import_module(module), attribute)()
    return agent


def find_agent(name: str) -> Agent[Any, Any]:
    """The agent of that name; an unknown one raises with a suggestion."""
    if name in _of_session:
        return _of_session[name]
    if name in BUILT_IN:
        return _built_in(name)
    for entry in entry_points(group="pdocrl.agents"):
        if entry.name == name:
            try:
                plugin: Agent[Any, Any] = entry.load()()
            except Exception as error:
                told = " ".join(str(error).split())
                raise PdocrlError(f"agent {name!r} ({entry.value}) could not be loaded: {told}") from error
            return plugin
    raise UnknownNameError("agent", name, agent_names(), "`pdocrl agents` lists all.")

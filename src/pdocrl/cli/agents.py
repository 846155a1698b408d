"""`pdocrl agents`."""

from __future__ import annotations

import tyro

from pdocrl.console import print_json, print_table


def agents(name: tyro.conf.Positional[str | None] = None, /, *, json: bool = False) -> None:
    """List the agents, or one agent's settings.

    Example:
        pdocrl agents
        pdocrl agents pdocrl

    Args:
        name: show this agent's settings, their defaults and what they do.
        json: print one JSON object.
    """
    from pdocrl.agents.registry import describe_agents, find_agent

    if name is not None:
        from pdocrl.agents.base import describe_config  # loads JAX

        agent = find_agent(name)
        fields = describe_config(agent.Config)
        if json:
            print_json({"agent": name, "summary": agent.summary, "paper": agent.paper, "settings": fields})
            return
        print(f"{name}: {agent.summary}\n{agent.paper}")
        print_table(["setting", "default", "meaning"], [[f["name"], str(f["default"]), f["meaning"]] for f in fields])
        return
    found = describe_agents()
    if json:
        print_json({"agents": found})
        return
    rows = [[a["name"], a["summary"], a["paper"], a["needs"], "yes" if a["discrete_actions"] else "no"] for a in found]
    print_table(["agent", "what it does", "paper", "needs", "discrete actions"], rows)

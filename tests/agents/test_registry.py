"""Agents of other packages: an entry point is all it takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pdocrl.agents.base import AgentConfig, describe_config
from pdocrl.agents.registry import BUILT_IN, agent_names, describe_agent, find_agent
from pdocrl.cli.main import main
from pdocrl.errors import PdocrlError

PLUGIN = """
from pdocrl.agents.bc import BC

class Mine(BC):
    name = "mine"
    summary = "A stranger's agent."
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package that offers one working agent and one broken."""
    (tmp_path / "my_agent.py").write_text(PLUGIN)
    info = tmp_path / "my_agent-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-agent\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[pdocrl.agents]\nmine = my_agent:Mine\nbroken = my_agent:Missing\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("plugin")
def test_a_plug_in_is_found_by_name() -> None:
    assert "mine" in agent_names()
    assert find_agent("mine").summary == "A stranger's agent."


@pytest.mark.usefixtures("plugin")
def test_a_plug_in_that_cannot_be_loaded_is_named() -> None:
    with pytest.raises(PdocrlError, match=r"agent 'broken' \(my_agent:Missing\) could not be loaded"):
        find_agent("broken")


@pytest.mark.usefixtures("plugin")
def test_a_broken_plug_in_costs_the_others_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agents", "--json"]) == 0
    told = capsys.readouterr()
    assert [one["name"] for one in json.loads(told.out)["agents"]] == [*BUILT_IN, "mine"]
    (line,) = told.err.splitlines()
    assert line.startswith("warning: agent 'broken' (my_agent:Missing) could not be loaded: ")


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_is_read_from_the_source_is_what_the_class_says(name: str) -> None:
    agent = find_agent(name)
    told = describe_agent(name)
    assert list(told) == ["name", "summary", "paper", "needs", "discrete_actions"]
    assert told == {key: getattr(agent, key) for key in told}


@pytest.mark.usefixtures("plugin")
def test_a_plug_in_is_described_by_its_class() -> None:
    told = describe_agent("mine")
    assert (told["name"], told["summary"], told["needs"]) == ("mine", "A stranger's agent.", "any number of costs")


def test_every_setting_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """`pdocrl agents NAME` shows the comment beside each field, so each field has one."""
    for name in agent_names():
        for field in describe_config(find_agent(name).Config):
            assert field["meaning"], f"{name}: {field['name']} has no comment"
    assert main(["agents", "pdocrl"]) == 0
    assert "learning_rate" in capsys.readouterr().out


class Awkward(AgentConfig):
    """Fields as a formatter or a person may lay them out."""

    plain: float = 1.0  # how much
    colour: str = "#fff"  # of the # sign
    wide: tuple[int, ...] = (  # first half,
        1,
        2,  # second half
    )
    bare: int = 3


def test_the_meaning_of_a_field_is_found_however_it_is_laid_out() -> None:
    found = {field["name"]: field["meaning"] for field in describe_config(Awkward)}
    assert found["plain"] == "how much"
    assert found["colour"] == "of the # sign"
    assert found["wide"] == "first half, second half"
    assert found["bare"] == ""
    assert found["gamma"] == "discount factor γ"

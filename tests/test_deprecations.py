"""Names of version 0.2 are accepted, with one line that says the new one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import pdocrl
from pdocrl import deprecations
from pdocrl.agents.base import make_config
from pdocrl.agents.registry import agent_names, find_agent
from pdocrl.cli.main import main


@pytest.fixture(autouse=True)
def nothing_said() -> Iterator[None]:
    said = set(deprecations._said)
    deprecations._said.clear()
    yield
    deprecations._said.update(said)


def test_every_new_name_exists_and_no_old_one_does(capsys: pytest.CaptureFixture[str]) -> None:
    for agent, names in deprecations.SETTINGS.items():
        if agent in agent_names():
            fields = set(vars(make_config(find_agent(agent))))
            assert set(names.values()) <= fields
            assert not set(names) & fields
    for command, names in deprecations.OPTIONS.items():
        with pytest.raises(SystemExit):
            main([command, "--help"])
        shown = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
        assert {f"--{new}" for old, new in names.items() if not old.startswith("no-")} <= shown
        assert not {f"--{old}" for old in names} & shown


def test_options_are_renamed_and_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["log.csv", "--relearned", "3", "--window=30", "--limit", "cost<=1"]
    for _ in range(2):
        renamed = deprecations.arguments("solve", line)
        assert renamed == ["log.csv", "--refits", "3", "--limit-horizon=30", "--limit", "cost<=1"]
    assert capsys.readouterr().err.splitlines() == [
        "deprecated: --relearned is now --refits; the old name is accepted until 0.4.",
        "deprecated: --window is now --limit-horizon; the old name is accepted until 0.4.",
    ]


@pytest.mark.parametrize("option", sorted(deprecations.REMOVED["ope"]))
def test_a_removed_option_is_refused_with_what_replaces_it(run_cli, option: str) -> None:  # type: ignore[no-untyped-def]
    for words in ((f"--{option}", "1"), (f"--{option}=1",)):
        status, _, said = run_cli("ope", "runs/mine", *words)
        told = deprecations.REMOVED["ope"][option]
        assert (status, said) == (2, f"error: --{option} is no longer an option of `pdocrl ope`: {told}.\n")


def test_attributes_of_the_python_api_are_found_under_their_old_names() -> None:
    folder = Path(__file__).parent / "training" / "trained_0_2" / "caps_iql"
    trained = pdocrl.load_trained(folder)
    with pytest.warns(DeprecationWarning, match=r"Trained\.plan is now config; .* until 0\.4"):
        assert trained.plan is trained.config
    policy = trained.policies[0]
    with pytest.warns(DeprecationWarning, match=r"Policy\.at_limit is now with_limit"):
        moved = policy.at_limit(7)
    obs = np.linspace(-1, 1, 2 * policy.normaliser.obs_mean.shape[-1]).reshape(2, -1)
    assert (moved(obs) == policy.with_limit(7)(obs)).all()
    without = pdocrl.load_trained(folder.with_name("bc")).policies[0]
    assert not hasattr(without, "at_limit")
    names = {"Trained": type(trained), "Policy": type(policy)}
    for owner, renamed in deprecations.ATTRIBUTES.items():
        for old, new in renamed.items():
            assert hasattr(names[owner], old)
            assert new in {*dir(names[owner]), *names[owner].__annotations__}


def test_settings_are_renamed(capsys: pytest.CaptureFixture[str]) -> None:
    assert deprecations.settings("dial", {"qualities": (1.0,), "margin": 1.0}) == {
        "relative_returns": (1.0,),
        "margin": 1.0,
    }
    assert "setting of dial: qualities is now relative_returns" in capsys.readouterr().err
    assert deprecations.settings("bc", {"qualities": 1}) == {"qualities": 1}


@pytest.mark.parametrize(("old", "new"), [("0", "float32"), ("1", "mixed")])
def test_the_environment_variable_is_read_under_its_old_name(
    monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    monkeypatch.delenv("PDOCRL_PRECISION", raising=False)
    monkeypatch.setenv("PDOCRL_HALVES", old)
    assert deprecations.environment("PDOCRL_PRECISION") == new
    monkeypatch.setenv("PDOCRL_PRECISION", "float32")
    assert deprecations.environment("PDOCRL_PRECISION") == "float32"


def test_an_old_option_of_solve_works(run_cli) -> None:  # type: ignore[no-untyped-def]
    line = ("solve", "inventory", "--gamma", "0.97", "--limit", "delivery<=0.3", "--C", "2", "--resamples", "0")
    status, old, said = run_cli(*line, "--relearned", "1", "--json")
    assert status == 0
    assert "--relearned is now --refits" in said
    assert old == run_cli(*line, "--refits", "1", "--json")[1]

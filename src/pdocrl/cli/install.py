"""`pdocrl install`."""

from __future__ import annotations

import shlex
from pathlib import Path

from tyro.conf import Positional

from pdocrl.console import log, print_json, print_table
from pdocrl.records import as_plain


def install(
    simulator: Positional[str],
    *,
    wheels: Path | None = None,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Install a simulator into this Python by pip, hash-checked, and try it by seeded episodes.

    `bullet` has the Bullet-Safety-Gym tasks, `safety-gymnasium` those of Safety-Gymnasium. Their packages pin versions
    that Python 3.12 and 3.13 do not have, so they are installed without their pins; the versions installed instead
    are tested. The commands are printed before they run.

    Example: pdocrl install bullet

    Args:
        simulator: bullet or safety-gymnasium.
        wheels: Take every file from this folder, without a network.
        dry_run: Print the commands and stop.
        json: Print one JSON object instead of a table.
    """
    from pdocrl.envs.install import commands, explain, verify
    from pdocrl.envs.install import install as run

    typed = [shlex.join(command) for command in commands(simulator, wheels)]
    if dry_run:
        if json:
            print_json({"simulator": simulator, "commands": typed})
        else:
            print("\n".join(typed))
        return
    for line in typed:
        log(line)
    run(simulator, wheels)
    log("playing a seeded episode of each …")
    episodes = verify(simulator)
    if json:
        print_json({"simulator": simulator, "commands": typed, "episodes": [as_plain(e) for e in episodes]})
    else:
        rows = [[e.task, e.steps, e.reward, e.cost, e.agreement or "–"] for e in episodes]
        print_table(
            ["task", "steps", "return", "cost", "agrees with the reference"], rows, title=f"{simulator} is installed"
        )
    note = explain(episodes)
    if note:
        log(note)

"""One evaluated episode to look at: an animation and six stills, kept beside the run and made once."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from pdocrl.errors import PdocrlError
from pdocrl.files import write_json
from pdocrl.report.record import Record

ANIMATION, STILLS, STORY = "episode.gif", "episode.png", "episode.json"


@dataclasses.dataclass(frozen=True)
class Film:
    """Which episode it is, and its pictures."""

    group: str  # the limit (and variant) whose policy plays
    seed: int  # of the episode
    reward: float
    cost: list[float]
    length: int
    step: int  # of the training, when the policy was taken
    animation: bytes = b""
    stills: bytes = b""


def find_film(record: Record) -> Film | None:
    """The film in the run's folder, if it shows the policies as they are now."""
    try:
        story = json.loads((record.folder / STORY).read_text(encoding="utf-8"))
        film = Film(
            **story,
            animation=(record.folder / ANIMATION).read_bytes(),
            stills=(record.folder / STILLS).read_bytes(),
        )
    except (OSError, ValueError, TypeError):
        return None
    return film if film.step == record.trained.step else None


def make_film(record: Record) -> Film | None:
    """Play one of the scored episodes again and film it: of the policy that earns most among the safe ones.

    None where there is nothing scored or no simulator.
    """
    from pdocrl.envs.video import film, write_film

    if record.scores is None:
        return None
    runs = record.scores["runs"]
    best = max(range(len(runs)), key=lambda i: (runs[i]["safe"], runs[i]["normalized_reward"]))
    seed = runs[best]["episodes"][0]["seed"]
    try:
        frames, outcome = film(record.scores["task"], record.trained.policies[best], seed, every=3)
        write_film(record.folder / ANIMATION, frames, fps=12, width=400)
        write_film(record.folder / STILLS, frames, width=240)
    except PdocrlError:
        return None
    group = next(group.label for group in record.groups if best in group.runs)
    story: dict[str, Any] = {
        "group": group,
        "seed": seed,
        "reward": outcome.reward,
        "cost": list(outcome.cost),
        "length": outcome.length,
        "step": record.trained.step,
    }
    write_json(record.folder / STORY, story)
    return find_film(record)

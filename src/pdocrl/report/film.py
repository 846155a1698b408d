"""Evaluated episodes to look at: an animation and six stills each, kept beside the run and made once."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from pdocrl.console import log
from pdocrl.errors import PdocrlError
from pdocrl.evaluation.ask import with_limit
from pdocrl.evaluation.score import RunScore, limit_name
from pdocrl.records import Record, read_record, write_record
from pdocrl.report.record import Results

NAME = "episode"  # .gif, .png and .json


class FilmedEpisode(Record, frozen=True, kw_only=True):
    """Which episode it is."""

    policy: str  # the limit (and variant) it plays for
    seed: int  # of the episode
    reward: float
    cost: list[float]
    length: int
    step: int  # of the training, when the policy was taken


@dataclasses.dataclass(frozen=True)
class Film:
    """Which episode it is, and its pictures."""

    episode: FilmedEpisode
    animation: bytes
    stills: bytes


def find_film(record: Results, name: str = NAME) -> Film | None:
    """The film in the run's folder, if it shows the policies as they are now."""
    animation, stills, place = _files(record, name)
    if record.trained is None or not place.exists():
        return None
    try:
        episode = read_record(place, FilmedEpisode)
        film = Film(episode, animation.read_bytes(), stills.read_bytes())
    except (OSError, PdocrlError):
        return None
    return film if episode.step == record.trained.step else None


def make_film(
    record: Results, run: RunScore | None = None, name: str = NAME, every: int = 3, width: int = 400
) -> Film | None:
    """Play the first scored episode of a run again and film it; by default of the safe run of highest reward.

    None where there is nothing scored, no simulator, or one that cannot show itself.
    """
    from pdocrl.envs.video import film, write_film

    if record.scores is None or record.trained is None:
        return None
    shown = run or max(record.scores.runs, key=lambda run: (run.safe, run.normalized_reward))
    seed = shown.episodes[0].seed
    if seed is None:
        return None
    own = record.trained.policies[shown.run]
    words = shown.settings.get("limits")
    policy = with_limit(own, words if isinstance(words, list) and words else tuple(shown.cost_limit)) or own
    animation, stills, place = _files(record, name)
    try:
        frames, played = film(record.scores.task, policy, seed, every=every)
        write_film(animation, frames, fps=36 / every, width=width)
        write_film(stills, frames, width=240)
    except PdocrlError:
        return None
    except Exception as error:  # whatever a simulator does that was never asked to draw, the page can do without
        cannot = "the environment draws nothing" if isinstance(error, NotImplementedError) else type(error).__name__
        log(f"no film: {' '.join(str(error).split()) or cannot}")
        return None
    episode = FilmedEpisode(
        policy=_name(shown),
        seed=seed,
        reward=float(played.reward[0]),
        cost=played.cost[0].tolist(),
        length=int(played.length[0]),
        step=record.trained.step,
    )
    write_record(place, episode)
    return find_film(record, name)


def _files(record: Results, name: str) -> tuple[Path, Path, Path]:
    """Animation, stills and episode."""
    return record.folder / f"{name}.gif", record.folder / f"{name}.png", record.folder / f"{name}.json"


def _name(run: RunScore) -> str:
    limits = [f"limit {limit_name(run.cost_limit)}"] if run.cost_limit else []
    return "; ".join(limits + [f"{name} {value}" for name, value in run.settings.items()]) or "no limit"

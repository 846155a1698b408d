"""One evaluated episode to look at: an animation and six stills, kept beside the run and made once."""

from __future__ import annotations

import dataclasses

from pdocrl.console import log
from pdocrl.errors import PdocrlError
from pdocrl.records import Record, read_record, write_record
from pdocrl.report.record import Results, limit_name
from pdocrl.scores.evaluate import RunScore, with_limit

ANIMATION, STILLS, STORY = "episode.gif", "episode.png", "episode.json"


class FilmStory(Record, frozen=True, kw_only=True):
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

    story: FilmStory
    animation: bytes
    stills: bytes


def find_film(record: Results) -> Film | None:
    """The film in the run's folder, if it shows the policies as they are now."""
    if record.trained is None or not (record.folder / STORY).exists():
        return None
    try:
        story = read_record(record.folder / STORY, FilmStory)
        film = Film(story, (record.folder / ANIMATION).read_bytes(), (record.folder / STILLS).read_bytes())
    except (OSError, PdocrlError):
        return None
    return film if story.step == record.trained.step else None


def make_film(record: Results) -> Film | None:
    """Play one of the scored episodes again and film it: of the policy that earns most among the safe ones.

    None where there is nothing scored, no simulator, or one that cannot show itself.
    """
    from pdocrl.envs.video import film, write_film

    if record.scores is None or record.trained is None:
        return None
    best = max(record.scores.runs, key=lambda run: (run.safe, run.normalized_reward))
    seed = best.episodes[0].seed
    own = record.trained.policies[best.run]
    policy = with_limit(own, tuple(best.cost_limit)) or own
    try:
        frames, outcome = film(record.scores.task, policy, seed, every=3)
        write_film(record.folder / ANIMATION, frames, fps=12, width=400)
        write_film(record.folder / STILLS, frames, width=240)
    except PdocrlError:
        return None
    except Exception as error:  # whatever a simulator does that was never asked to draw, the page can do without
        log(f"no film: {' '.join(str(error).split()) or type(error).__name__}")
        return None
    story = FilmStory(
        policy=_name(best),
        seed=seed,
        reward=float(outcome.reward),
        cost=[float(x) for x in outcome.cost],
        length=int(outcome.length),
        step=record.trained.step,
    )
    write_record(record.folder / STORY, story)
    return find_film(record)


def _name(run: RunScore) -> str:
    limits = [f"limit {limit_name(run.cost_limit)}"] if run.cost_limit else []
    return "; ".join(limits + [f"{name} {value}" for name, value in run.settings.items()]) or "no limit"

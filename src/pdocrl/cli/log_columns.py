"""Options that name the columns of a log of decisions."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import tyro

Names = Annotated[tuple[str, ...], tyro.conf.arg(metavar="COLUMN …")]


@dataclasses.dataclass(frozen=True)
class LogColumns:
    """The log's names for its columns."""

    action: str = "action"
    """Of actions."""
    reward: str = "reward"
    """Of rewards."""
    costs: Names = ()
    """Of costs; default: `cost`, all that begin with `cost_`, and those that limits name."""
    episode: str = "episode"
    """That names the episode; `none` where each row is an episode (bandits)."""
    step: str | None = None
    """Of time within the episode; default: the order of rows."""
    terminal: str | None = None
    """True where the process ended; default: every episode is complete."""
    decider: str | None = None
    """That names who decided."""
    propensity: str | None = None
    """With the probability of the logged action, or `none` to have it estimated; default: `propensity`, where there is
    one in (0, 1]."""

    def read_as(self, state_columns: tuple[str, ...]) -> dict[str, Any]:
        """As `EventLog.read` takes them."""
        given = {name: one for name, one in dataclasses.asdict(self).items() if one not in (None, ())}
        given |= {"columns": list(state_columns)} if state_columns else {}
        given |= {"costs": list(self.costs)} if self.costs else {}
        none = {name: None for name in ("propensity", "episode") if given.get(name) == "none"}
        return given | none

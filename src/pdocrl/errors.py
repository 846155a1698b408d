"""How pdocrl reports what a user can act on: one line that says what, where, and what to do.

Commands print `error: <message>` and end with status 2. Anything that is not a `PdocrlError` is a bug of ours and
keeps its traceback.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator
from contextvars import ContextVar

_at_command_line: ContextVar[bool] = ContextVar("at_command_line", default=False)


class PdocrlError(Exception):
    """Bad input or an environment that cannot do what was asked. The message is one line for a person."""


class PdocrlInterrupted(PdocrlError):
    """Ctrl-C during work that keeps its state; the message says how to go on. Commands end with status 130."""


class DataError(PdocrlError):
    """A dataset or log that cannot be used as it is; the message names the file, the key and the place."""


class UnknownNameError(PdocrlError):
    """A task, agent, column or file name that does not exist."""

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        super().__init__(f"unknown {kind} {name!r}.{did_you_mean(name, known)}{' ' + hint if hint else ''}")


class MissingExtraError(PdocrlError):
    """An optional dependency that is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs the extra `{extra}`: pip install 'pdocrl[{extra}]'")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """' Did you mean `x`?' for the nearest known name, or '' when none is near."""
    by_lower = {k.lower(): k for k in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f" Did you mean `{by_lower[close[0]]}`?" if close else ""


def by_door(python: str, command: str) -> str:
    """Words for whoever called: those of Python, or those of the command line inside `command_line`."""
    return command if _at_command_line.get() else python


@contextlib.contextmanager
def command_line() -> Iterator[None]:
    """Messages are in the words of the command line."""
    token = _at_command_line.set(True)
    try:
        yield
    finally:
        _at_command_line.reset(token)

"""A suite by its name, or one's own: a TOML file.

    steps = 20_000                      # all keys but tasks and agents have defaults
    protocol = "dsrl"                   # gives cost_limits, seeds and episodes; each can be given itself
    cost_limits = [10, 20]              # with two costs: [[10, 5], [20, 5]]; of `dial` also "P(cost>20)<=0.1"
    seeds = [0, 1, 2]
    episodes = 10
    tasks = ["BallRun", { name = "CarRun", data = "mine.hdf5" }]

    [[agents]]
    name = "pdocrl"
    variant = "wide"
    settings = { hidden = [512, 512] }
    steps = 10_000                      # of this one; tables say so

A task the package does not know is described where it is named, with the keys of a task file (`pdocrl tasks --help`):

    [[tasks]]
    name = "MyRobot"
    data = "robot.parquet"              # paths are relative to the TOML file
    horizon = 400
    env_id = "my_package:MyRobot-v0"    # without one it is trained, not scored
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pdocrl.bench.suite import Limit, Method, Suite, TaskEntry, named_suites
from pdocrl.data.load import FORMATS
from pdocrl.data.tasks import BUILT_IN, Task, find_task, register, task_from
from pdocrl.errors import PdocrlError, did_you_mean
from pdocrl.evaluation.protocols import find_protocol
from pdocrl.files import read_toml
from pdocrl.limits import as_limits, in_words

SUITE_KEYS = ("name", "about", "protocol", "tasks", "agents", "cost_limits", "seeds", "steps", "episodes")
METHOD_KEYS = ("name", "variant", "settings", "steps", "seeds", "tasks")
TASK_FIELDS = tuple(field.name for field in dataclasses.fields(Task))
ENTRY_KEYS = (*TASK_FIELDS, "data", "cost_limits")


def find_suite(name_or_path: str | os.PathLike[str]) -> Suite:
    """A suite of the package by name, or the one a TOML file describes."""
    text = os.fspath(name_or_path)
    known = named_suites()
    if text in known:
        return known[text]
    if text.endswith(".toml"):
        return read_suite_file(Path(text))
    if os.path.exists(text) or Path(text).suffix in FORMATS:
        raise PdocrlError(f"{text}: a suite is a TOML file (see docs/bench.md), or one of {', '.join(known)}.")
    if text == "tabular":
        raise PdocrlError("the suite tabular is research, no part of the package: `python -m research` in a checkout.")
    hint = did_you_mean(text, [*known])
    raise PdocrlError(f"unknown suite {text!r}.{hint} Known: {', '.join(known)}, or a TOML file.")


def read_suite_file(path: Path) -> Suite:
    """The suite a file describes; anything wrong with it raises with the file, the key and the remedy."""
    table = read_toml(path, "suite")
    reader = _Reader(path)
    reader.refuse_unknown(table, SUITE_KEYS, "")
    for key in ("tasks", "agents"):
        if key not in table:
            raise PdocrlError(f"{path}: has no `{key}`. A suite names at least one of its {key}.")
    protocol = reader.naming("protocol", lambda: find_protocol(reader.text(table, "protocol", "dsrl")))
    steps = reader.whole(table, "steps", 100_000, least=1)
    episodes = reader.whole(table, "episodes", protocol.episodes, least=1)
    seeds = reader.seeds(table.get("seeds", list(protocol.seeds)))
    limits = reader.limits(table.get("cost_limits", list(protocol.limits)), "cost_limits")
    entries = tuple(reader.entry(entry) for entry in reader.many(table, "tasks"))
    names = tuple(entry.task.name for entry in entries)
    methods = tuple(reader.method(entry, names) for entry in reader.many(table, "agents"))
    reader.refuse_tails(methods, entries, limits)
    reader.refuse_twice("agents", (method.name for method in methods), "Tell them apart with `variant`.")
    reader.refuse_twice("tasks", (entry.task.name for entry in entries), "Remove one.")
    name, about = reader.text(table, "name", path.stem), reader.text(table, "about", "")
    return Suite(reader.word(name, "name"), about, entries, methods, limits, seeds, steps, episodes)


class _Reader:
    """Values of one file, checked; every complaint names the file and the key."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def entry(self, value: Any) -> TaskEntry:
        table = self._table(value, "tasks")
        name = self._name(table, "tasks")
        self.refuse_unknown(table, ENTRY_KEYS, f" of task {name}")
        own = {key: value for key, value in table.items() if key in TASK_FIELDS[1:]}
        if any(task.name.lower() == name.lower() for task in BUILT_IN) and own:
            raise PdocrlError(f"{self._path}: task {name} is built in; leave out its `{next(iter(own))}`.")
        task = register(task_from(self._path, name, own)) if own else self.naming("tasks", lambda: find_task(name))
        limits = self.limits(table["cost_limits"], f"cost_limits` of task `{name}") if "cost_limits" in table else ()
        return TaskEntry(task, self._file(table, name), limits)

    def method(self, value: Any, tasks: Sequence[str]) -> Method:
        from pdocrl.agents.base import make_config
        from pdocrl.agents.registry import find_agent

        table = self._table(value, "agents")
        name = self._name(table, "agents")
        self.refuse_unknown(table, METHOD_KEYS, f" of agent {name}")
        settings = table.get("settings", {})
        if not isinstance(settings, dict):
            raise PdocrlError(f"{self._path}: `settings` of agent {name} is {settings!r}, expected a table.")
        settings = {key: tuple(v) if isinstance(v, list) else v for key, v in settings.items()}
        filled_in = {"cost_limit", "horizon"} & settings.keys()
        if filled_in:
            key = filled_in.pop()
            raise PdocrlError(f"{self._path}: agent {name}: `{key}` is not a setting; it comes from the suite's tasks.")
        self.naming(f"agent {name}", lambda: make_config(find_agent(name), **settings))
        variant = self.text(table, "variant", "")
        steps = self.whole(table, "steps", 0, least=1) if "steps" in table else None
        own = tuple(self.member(task, tasks, f"tasks of agent {name}") for task in table.get("tasks", []))
        seeds = table.get("seeds", {})
        by_task = seeds if isinstance(seeds, dict) else dict.fromkeys(own or tasks, seeds)
        by_task = {self.member(key, tasks, f"seeds of agent {name}"): self.seeds(many) for key, many in by_task.items()}
        return Method(name, self.word(variant, "variant") if variant else "", settings, steps, by_task, own)

    def member(self, value: Any, tasks: Sequence[str], key: str) -> str:
        """A task of the suite, under its own name."""
        found = [task for task in tasks if isinstance(value, str) and task.lower() == value.lower()]
        if not found:
            raise PdocrlError(f"{self._path}: `{key}` names {value!r}; the suite has {', '.join(tasks)}.")
        return found[0]

    def limits(self, value: Any, key: str) -> tuple[Limit, ...]:
        """[10, 20], [[10, 5], [20, 5]] or ["P(cost>20)<=0.1"] as tuples."""
        many = value if isinstance(value, list) else []
        made = [tuple(x if isinstance(x, list) else [x]) for x in many]
        for words in (limit for limit in made if any(isinstance(x, str) for x in limit)):
            self.naming(key, lambda words=words: as_limits(words))  # type: ignore[misc]
        numbers = [limit for limit in made if not any(isinstance(x, str) for x in limit)]
        if not made or not all(_is_number(x) and x >= 0 for limit in numbers for x in limit):
            raise PdocrlError(
                f"{self._path}: `{key}` is {value!r}, expected a list of numbers of at least 0, or of limits in words."
            )
        if len({len(limit) for limit in numbers}) > 1 or len(set(made)) < len(made):
            raise PdocrlError(f"{self._path}: `{key}` is {value!r}; limits must differ and have equally many numbers.")
        return tuple(tuple(float(x) for x in limit) if limit in numbers else limit for limit in made)

    def refuse_tails(self, methods: Sequence[Method], entries: Sequence[TaskEntry], limits: tuple[Limit, ...]) -> None:
        """Refuse limits on tails of agents that serve none."""
        from pdocrl.agents.registry import find_agent

        for method in (one for one in methods if not find_agent(one.agent).tail_limits):
            for entry in (one for one in entries if not method.tasks or one.task.name in method.tasks):
                every = (as_limits(own) for own in entry.limits or limits if in_words(own))
                tail = next((one for own in every for one in own if one.tail), None)
                if tail is not None:
                    raise PdocrlError(
                        f"{self._path}: agent {method.name} serves limits on the mean cost alone, not {tail} of task "
                        f"{entry.task.name}; `dial` serves limits on tails. Leave one out, or name its `tasks`."
                    )

    def seeds(self, value: Any) -> tuple[int, ...]:
        many = value if isinstance(value, list) else []
        if not many or not all(_is_whole(x) and 0 <= x < 2**32 for x in many) or len(set(many)) < len(many):
            raise PdocrlError(
                f"{self._path}: `seeds` is {value!r}, expected a list of different whole numbers, 0 or more."
            )
        return tuple(many)

    def whole(self, table: dict[str, Any], key: str, default: int, least: int) -> int:
        value = table.get(key, default)
        if not _is_whole(value) or value < least:
            raise PdocrlError(f"{self._path}: `{key}` is {value!r}, expected a whole number of at least {least}.")
        return int(value)

    def text(self, table: dict[str, Any], key: str, default: str) -> str:
        value = table.get(key, default)
        if not isinstance(value, str):
            raise PdocrlError(f"{self._path}: `{key}` is {value!r}, expected a text in quotes.")
        return value

    def word(self, value: str, key: str) -> str:
        """A name that can be a folder's."""
        if not re.fullmatch(r"[\w.][\w.-]{0,63}", value):
            raise PdocrlError(f"{self._path}: `{key}` is {value!r}; use letters, digits, `_`, `.` and `-`, at most 64.")
        return value

    def many(self, table: dict[str, Any], key: str) -> list[Any]:
        value = table[key]
        if not isinstance(value, list) or not value:
            raise PdocrlError(f"{self._path}: `{key}` is {value!r}, expected a list of names or [[{key}]] tables.")
        return value

    def refuse_unknown(self, table: dict[str, Any], known: Iterable[str], of: str) -> None:
        known = list(known)
        for key in table:
            if key not in known:
                hint = did_you_mean(key, known) or f" Known: {', '.join(known)}."
                raise PdocrlError(f"{self._path}: unknown key `{key}`{of}.{hint}")

    def refuse_twice(self, key: str, names: Iterable[str], remedy: str) -> None:
        seen: set[str] = set()
        for name in names:
            if name.lower() in seen:
                raise PdocrlError(f"{self._path}: `{key}` holds {name} twice. {remedy}")
            seen.add(name.lower())

    def naming(self, key: str, make: Callable[[], Any]) -> Any:
        """The value, or its error with the file's name in front."""
        try:
            return make()
        except PdocrlError as error:
            raise PdocrlError(f"{self._path}: {key}: {error}") from error

    def _table(self, value: Any, key: str) -> dict[str, Any]:
        """A name alone stands for a table with that name."""
        if isinstance(value, str):
            return {"name": value}
        if not isinstance(value, dict):
            raise PdocrlError(f"{self._path}: `{key}` holds {value!r}, expected a name or a table with one.")
        return value

    def _name(self, table: dict[str, Any], key: str) -> str:
        if "name" not in table:
            raise PdocrlError(f"{self._path}: an entry of `{key}` has no `name`.")
        return self.word(self.text(table, "name", ""), f"{key}.name")

    def _file(self, table: dict[str, Any], name: str) -> Path | None:
        if "data" not in table:
            return None
        path = self._path.parent / self.text(table, "data", "")
        if not path.exists():
            near = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
            raise PdocrlError(
                f"{self._path}: data of task {name}: no such file: {path}.{did_you_mean(path.name, near)}"
            )
        return path.resolve()


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")

"""From a Parquet or CSV log to `Counts`: on one machine, or with one Ray task per file, with the same bits.

A log has the columns state, action, next_state, reward and any number of costs, and optionally

    terminal         true where the world stopped; next_state is then ignored and may be missing
    initial          true in the first row of an episode, or instead of it
    episode, step    the episode's name and the time within it (without `step`, rows are in time order)
    decider          who acted, for the test of the Markov property

Labels of states and actions are integers or strings. Two scans: the first checks every value and finds each signal's
magnitude, the second groups. Sums are integers, so files, threads and machines may split the rows in any way.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.data.io.log_paths import Paths, find_files, is_pattern
from pdocrl.errors import DataError, MissingExtraError, did_you_mean
from pdocrl.tabular.counts import Counts
from pdocrl.tabular.examples import EXAMPLES
from pdocrl.tabular.io.cells import Cells, CellSpec
from pdocrl.tabular.io.episodes import MOST, MOST_ROWS, Groups, Trajectories
from pdocrl.tabular.io.logfile import LogFile, Tally, open_log
from pdocrl.tabular.io.rows import LIMB, MARK, Floats, Ints, Label, encode, moments, sorted_labels

FEWEST = 32  # groups of episodes; fewer tell too little of how they differ
ENTRIES = 2_000_000  # group × transition, so that counting them takes seconds


def find_log(name: str) -> str:
    """A file as it is, or an example by its name."""
    if name in EXAMPLES and not Path(name).exists():
        return str(EXAMPLES[name])
    if not Path(name).exists() and not is_pattern(name):
        raise DataError(f"{name}: no such file, and no example of that name.{did_you_mean(name, EXAMPLES)}")
    return name


def count_log(
    path: Paths,
    costs: Sequence[str] | None = None,
    start: Label | None = None,
    columns: Mapping[str, str] | None = None,
    memory: str = "1GB",
    threads: int | None = None,
    horizon: int | None = None,
    cells: CellSpec | None = None,
) -> Counts:
    """Count the rows of one or many files.

    Args:
        path: a Parquet or CSV file, several, a folder of them, or a pattern with `*`, `?` or `[ab]`.
        costs: the cost columns; by default `cost` and all that begin with `cost_`.
        start: the one state where episodes begin; by default the log says it (`initial` or `episode`), or else
            episodes are taken to begin wherever the log has been.
        columns: this log's name for a column, where it differs: {"state": "room"}.
        memory: DuckDB's limit; beyond it, it spills to a temporary folder.
        threads: DuckDB's threads; all cores by default.
        horizon: tell states apart by their step in the episode, for limits per episode (see `Counts.stationary`).
        cells: make states of other columns (see `cells`).
    """
    with open_log(find_files(path), costs, columns, memory, threads, cells) as opened:
        log = opened if horizon is None else opened.by_step(horizon)
        exponent = _exponents(log.survey())
        counts = _counts([log.tally(exponent)], log.starts(), start, exponent, log)
        made = None if opened.cells is None else Cells(opened.cells, tuple(opened.hidden()))
        groups = _groups(log, counts, d0_known=start is not None)
        paths = _trajectories(log, counts)
        return dataclasses.replace(
            counts, groups=groups, trajectories=paths, cells=made, columns=log.column, horizon=horizon
        )


def counts_with_ray(
    path: Paths,
    costs: Sequence[str] | None = None,
    start: Label | None = None,
    columns: Mapping[str, str] | None = None,
    memory: str = "1GB",
) -> Counts:
    """`count_log` with one Ray task per file, on as many machines as Ray has; every bit of the result is the same.

    Files must be readable under their path on every machine. `memory` is per task. Groups of episodes are left out,
    which `count_log` keeps besides.
    """
    try:
        import ray
    except ImportError:
        raise MissingExtraError("counting with Ray", "ray") from None

    def part(file: str, exponent: Ints | None) -> Any:
        try:
            with open_log([file], costs, columns, memory, threads=1) as log:
                if exponent is None:
                    return log.survey()
                whole = "episode" not in log.column or "initial" in log.column
                return log.tally(exponent), log.starts() if whole else log.first_rows()
        except DataError as error:
            return str(error)  # as a value: Ray would wrap an exception into its own of many lines

    task = ray.remote(num_cpus=1)(part)

    def parts(exponent: Ints | None) -> list[Any]:
        answers = ray.get([task.remote(file, exponent) for file in files])
        for answer in answers:
            if isinstance(answer, str):
                raise DataError(answer)
        return list(answers)

    files = [str(Path(file).resolve()) for file in find_files(path)]
    exponent = _exponents(np.max(parts(None), axis=0))
    tallies, starts = zip(*parts(exponent), strict=True)
    with open_log(files, costs, columns, memory, threads=None) as log:
        return _counts(list(tallies), _merge_starts(list(starts), by_step="step" in log.column), start, exponent, log)


def _merge_starts(parts: list[Any], by_step: bool) -> dict[Any, int] | None:
    """A log's starts from its files': counts are added; an episode that crosses files has one first row."""
    if parts[0] is None:
        return None
    begun: dict[Any, int] = {}
    if isinstance(parts[0], dict):
        for part in parts:
            for state, episodes in part.items():
                begun[state] = begun.get(state, 0) + episodes
        return begun
    first: dict[str, tuple[float, int, Any]] = {}
    for index, part in enumerate(parts):
        for episode, time, state in part:
            # Without steps, rows and files are in time order, so that the earlier file has the first row.
            row = (time if by_step else 0, index, state)
            first[episode] = min(first.get(episode, row), row, key=lambda r: r[:2])
    for _, _, state in first.values():
        begun[state] = begun.get(state, 0) + 1
    return begun


def _counts(
    tallies: list[Tally], begun: dict[Any, int] | None, start: Label | None, exponent: Ints, log: LogFile
) -> Counts:
    """Group the groups: labels become codes, and sums of the same transition are added."""
    over = np.concatenate([t.over for t in tallies])
    froms, acts, tos = (np.concatenate([getattr(t, f) for t in tallies]) for f in ("state", "action", "next_state"))
    read, read_action = _reader(np.concatenate([froms, tos])), _reader(acts)
    states = sorted_labels("state", {*read(froms), *read(tos[~over])})
    actions = sorted_labels("action", {*read_action(acts)})
    s = encode("state", read(froms), states)
    to = np.full(len(over), len(states), np.int64)
    to[~over] = encode("next_state", read(tos[~over]), states)
    pair = s * len(actions) + encode("action", read_action(acts), actions)

    rows = np.concatenate([t.count for t in tallies])
    key, cell = np.unique(pair * (len(states) + 1) + to, return_inverse=True)
    count, high, low = (
        _add_up(np.concatenate([getattr(t, f) for t in tallies], axis=-1), cell, len(key))
        for f in ("count", "high", "low")
    )
    mean, variance = moments(count, high + (low >> LIMB), low & ((1 << LIMB) - 1), exponent)

    starts = np.zeros(len(states))
    if start is not None:
        start = start if log.horizon is None else f"{start}{MARK}0"
        known = {str(label): index for index, label in enumerate(states)}
        if str(start) not in known:
            raise DataError(f"{log.name}: no state {start!r} to start from.{did_you_mean(str(start), known)}")
        starts[known[str(start)]] = 1
    elif begun is not None:
        starts[encode("initial", read(np.array(list(begun), froms.dtype)), states)] = list(begun.values())
    if starts.any() or not over.all():  # if every row ends, as in a bandit's log, every row is also a start
        _check_entered(log, states, s, to, starts)
    if start is None and begun is None:
        np.add.at(starts, s, rows)
    pair, to = np.divmod(key, len(states) + 1)
    return Counts(pair, to, count, mean, variance, starts, states, actions, log.costs)


def _groups(log: LogFile, counts: Counts, d0_known: bool) -> Groups | None:
    """The transitions by groups of episodes, where the log names episodes and there is room for at least `FEWEST`."""
    size = min(MOST, ENTRIES // len(counts.count))
    if "episode" not in log.column or size < FEWEST:
        return None
    table = log.by_group(size)
    over, group, n = np.asarray(table["over"], bool), table["g"].astype(np.int64), table["n"].astype(np.int64)
    states = _reader(np.concatenate([np.unique(table["s"]), np.unique(table["z"])]))
    to = np.full(len(over), counts.n_states, np.int64)
    to[~over] = _codes("next_state", table["z"][~over], states, counts.states)
    action = _codes("action", table["a"], _reader(np.unique(table["a"])), counts.actions)
    pair = _codes("state", table["s"], states, counts.states) * counts.n_actions + action
    key = counts.pair * (counts.n_states + 1) + counts.to
    cell = np.searchsorted(key, pair * (counts.n_states + 1) + to)
    mean = np.stack([np.asarray(table[f"x{i}"], np.float64) for i in range(len(counts.mean))])
    used, group = np.unique(group, return_inverse=True)  # a hash leaves some numbers out
    starts = np.zeros((len(used), counts.n_states))
    for state, g, episodes in [] if d0_known else log.starts_by_group(size):
        at = encode("initial", states(np.array([state], table["s"].dtype)), counts.states)
        starts[np.searchsorted(used, g), at] += episodes
    return Groups(np.asarray(group, np.int64), cell.astype(np.int64), n, mean, starts)


def _trajectories(log: LogFile, counts: Counts) -> Trajectories | None:
    """A sample of the log's episodes in their order, where it names them."""
    if "episode" not in log.column:
        return None
    table, columns, outcomes = log.episodes(-(-counts.size // MOST_ROWS))
    if not len(table["over"]):
        return None
    states = _reader(np.concatenate([np.unique(table["s"]), np.unique(table["z"])]))
    over = np.asarray(table["over"], bool)
    to = np.full(len(over), counts.n_states, np.int64)
    to[~over] = _codes("next_state", table["z"][~over], states, counts.states)
    action = _codes("action", table["a"], _reader(np.unique(table["a"])), counts.actions)
    pair = _codes("state", table["s"], states, counts.states) * counts.n_actions + action

    def numbers(prefix: str, names: Sequence[str]) -> Floats | None:
        found = [np.ma.filled(np.ma.asarray(table[f"{prefix}{i}"], np.float64), np.nan) for i in range(len(names))]
        return np.stack(found) if found else None

    signals = numbers("x", log.signals)
    assert signals is not None, "a log has a reward"
    episode = np.unique(np.asarray(table["episode"]).astype(str), return_inverse=True)[1].astype(np.int64)
    who = np.ma.filled(np.ma.asarray(table["decider"]), "").astype(str) if "decider" in table else None
    values, outcome_values = numbers("c", columns), numbers("o", outcomes)
    return Trajectories(episode, pair, to, signals, columns, values, outcomes, outcome_values, who)


def _codes(name: str, labels: NDArray[Any], read: Callable[[NDArray[Any]], list[Any]], known: Sequence[Label]) -> Ints:
    """[n] labels as positions in `known`; each distinct one is looked up once."""
    distinct, place = np.unique(labels, return_inverse=True)
    return encode(name, read(distinct), known)[place]


def _check_entered(log: LogFile, states: Sequence[Label], s: Ints, to: Ints, starts: Floats) -> None:
    """A state acted in but never entered is a mistake in the log: labels spelt in two ways, a shifted column."""
    entered = np.append(starts > 0, False)
    entered[to] = True
    lost = np.setdiff1d(s, np.flatnonzero(entered))
    if len(lost):
        more = f", nor do {len(lost) - 1} others" if len(lost) > 1 else ""
        said = starts.any()
        hint = "are `state` and `next_state` spelt alike?" if said else "name the start, or add a column `initial`."
        raise DataError(f"{log.name}: state {states[lost[0]]!r} never appears as a start or a next state{more}; {hint}")


def _reader(values: NDArray[Any]) -> Callable[[NDArray[Any]], list[Any]]:
    """How to read labels: text that is integers throughout, as a CSV has it, becomes integers."""
    if values.dtype.kind in "iu":
        return lambda labels: [int(x) for x in labels.tolist()]
    try:
        if all(str(int(x)) == x for x in set(values.tolist())):
            return lambda labels: [int(x) for x in labels.tolist()]
    except ValueError:
        pass
    return lambda labels: list(labels.tolist())


def _add_up(values: Ints, cell: Ints, cells: int) -> Ints:
    """Sums over the last axis by cell."""
    sums = np.zeros((*values.shape[:-1], cells), np.int64)
    for index in np.ndindex(*values.shape[:-1]):
        np.add.at(sums[index], cell, values[index])
    return sums


def _exponents(largest: Floats) -> Ints:
    return np.array([math.frexp(x)[1] for x in largest], np.int64)

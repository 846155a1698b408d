"""`pdocrl data info | check | plot | convert | filter | split`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import OmitArgPrefixes, Positional, arg

from pdocrl import console
from pdocrl.errors import DataError

if TYPE_CHECKING:
    from pdocrl.data.dataset import Dataset


Columns = Annotated[tuple[str, ...], arg(metavar="FIELD=COLUMN,… …")]


def info(dataset: Positional[str], task: str | None = None, tasks_file: Path | None = None, json: bool = False) -> None:
    """What a dataset holds: episodes, transitions, dimensions, returns, costs, ends, digest.

    Example: pdocrl data info BallRun --json

    Args:
        dataset: A task's name, or a file (.hdf5, .npz, .parquet, .csv, a Minari folder or id).
        task: Check the file against this task's dimensions.
        tasks_file: A TOML file with tasks of your own.
        json: Print one JSON object instead of a table.
    """
    from pdocrl.data.load import load

    _register(tasks_file)
    data = load(dataset, task)
    summary = data.summary()
    if json:
        console.print_json(summary)
        return
    returns = {"reward": summary.pop("reward_return")}
    costs = summary.pop("cost_return")
    returns |= dict(zip(data.cost_names, costs if isinstance(costs, list) else [costs], strict=True))
    rows = [[key.replace("_", " "), value] for key, value in summary.items()]
    rows += [[f"{name} of an episode", _range(values)] for name, values in returns.items()]
    rows += [["note", note] for note in data.notes]
    console.print_table(["", data.name], [[key, str(value)] for key, value in rows])


def check(
    dataset: Positional[str],
    columns: Columns = (),
    task: str | None = None,
    tasks_file: Path | None = None,
    json: bool = False,
) -> None:
    """Look for everything wrong with a dataset, not only the first thing, and for what is odd about it.

    Ends with status 2 if the dataset cannot be used as it is.

    Example: pdocrl data check my.hdf5 --task CarRun

    Args:
        dataset: A task's name, or a file (.hdf5, .npz, .parquet, .csv, a Minari folder or id).
        columns: Of a table: which columns hold what, where they are not named as ours.
        task: Check the file against this task: dimensions, horizon, reference scores, costs present.
        tasks_file: A TOML file with tasks of your own.
        json: Print one JSON object instead of a table.
    """
    from pdocrl.data.check import check as check_dataset

    _register(tasks_file)
    findings = check_dataset(dataset, task, _mapping(columns))
    if json:
        console.print_json({"ok": not findings.errors, "errors": findings.errors, "notes": findings.notes})
    elif findings.errors or findings.notes:
        rows = [["error", line] for line in findings.errors] + [["note", line] for line in findings.notes]
        console.print_table(["", "finding"], rows)
    else:
        print("nothing wrong")
    if findings.errors:
        more = f" ({len(findings.errors)} errors in all)" if len(findings.errors) > 1 else ""
        raise DataError(findings.errors[0] + more)


def plot(
    dataset: Positional[str],
    out: Path,
    limits: tuple[float, ...] = (10, 20, 40),
    task: str | None = None,
    tasks_file: Path | None = None,
    json: bool = False,
) -> None:
    """The cost–reward scatter of a dataset: one dot per episode, limits drawn in, and the safe frontier.

    Example: pdocrl data plot BallRun --out ballrun.png --limits 10 20 40

    Args:
        dataset: A task's name, or a file (.hdf5, .npz, .parquet, .csv, a Minari folder or id).
        out: The picture to write, .png, .svg or .pdf.
        limits: Costs per episode at which to draw a line.
        task: Check the file against this task's dimensions.
        tasks_file: A TOML file with tasks of your own.
        json: Print one JSON object: what `data info` says, and `out`.
    """
    from pdocrl.data import plot as pictures
    from pdocrl.data.load import load

    _register(tasks_file)
    pictures.refuse_unknown_suffix(out)
    data = load(dataset, task)
    pictures.save(pictures.scatter(data, limits), out)
    _report(data, str(out), json)


def convert(
    dataset: Positional[str],
    out: str,
    columns: Columns = (),
    rescale_actions: tuple[float, ...] = (),
    discrete_actions: tuple[int, ...] = (),
    task: str | None = None,
    tasks_file: Path | None = None,
    json: bool = False,
) -> None:
    """Write a dataset in another format. The suffix chooses it; the digest stays the same.

    Actions are kept in [-1, 1], with what that stands for beside them; logs in other units are brought there. Choices
    are kept as discrete actions once it is said that they are.

    Example: pdocrl data convert BallRun --out ballrun.parquet

    Example: pdocrl data convert pendulum.csv --out pendulum.hdf5 --rescale-actions -2 2

    Example: pdocrl data convert cart.csv --out cart.hdf5 --discrete-actions 2

    Example: pdocrl data convert log.csv --out log.hdf5 --columns obs=x,y,speed action=force reward=r cost=c

    Args:
        dataset: A task's name, or a file (.hdf5, .npz, .parquet, .csv, a Minari folder or id).
        out: The file to write: .hdf5, .h5, .npz, .parquet, .csv; without suffix, or as minari:ID, a Minari dataset.
        columns: Of a table: which columns hold what, where they are not named as ours.
        rescale_actions: The lowest and the highest action of the environment; or all lowest, then all highest.
        discrete_actions: Actions are discrete: how many, counted from 0; or each of them, such as 1 2 3.
        task: Check the file against this task's dimensions.
        tasks_file: A TOML file with tasks of your own.
        json: Print one JSON object: what `data info` says, and `out`.
    """
    from pdocrl.data.load import load, save

    _register(tasks_file)
    if len(rescale_actions) % 2:
        raise DataError("--rescale-actions takes the lowest and the highest action, or all lowest, then all highest.")
    middle = len(rescale_actions) // 2
    low, high = rescale_actions[:middle], rescale_actions[middle:]
    data = load(
        dataset,
        task,
        action_low=low,
        action_high=high,
        discrete_actions=discrete_actions,
        columns=_mapping(columns),
    )
    save(data, out)
    _report(data, out, json)


@dataclasses.dataclass(frozen=True)
class Spoiling:
    """Changes of what episodes hold, for studies of what a method needs from its data."""

    outliers: float | None = None
    """Make this share of the episodes lie: costly, rewarding ones come to look safe and still better."""
    outlier_limit: float = 10
    """Outliers show a cost below this."""
    noise: float | None = None
    """Add Gaussian noise to observations, this many times each dimension's standard deviation."""


@dataclasses.dataclass(frozen=True)
class Checking:
    """The task a file is checked against."""

    task: str | None = None
    """Its name; dimensions must agree."""
    tasks_file: Path | None = None
    """A TOML file with tasks of your own."""


_SPOILING, _CHECKING = Spoiling(), Checking()


def filter_(
    dataset: Positional[str],
    out: str,
    safe: tuple[float, ...] = (),
    frontier: float | None = None,
    density: int | None = None,
    bins: tuple[int, int] = (60, 50),
    fraction: float | None = None,
    seed: int = 0,
    json: bool = False,
    spoiling: Annotated[Spoiling, OmitArgPrefixes] = _SPOILING,
    checking: Annotated[Checking, OmitArgPrefixes] = _CHECKING,
) -> None:
    """Keep a part of a dataset, or spoil it for a study. Several filters apply in the order listed below.

    Example: pdocrl data filter CarRun --out safe.hdf5 --safe 20 --fraction 0.5 --seed 1

    Args:
        dataset: A task's name, or a file (.hdf5, .npz, .parquet, .csv, a Minari folder or id).
        out: The file to write, in the format of its suffix.
        safe: Keep the episodes whose cost is at most this; one number, or one per cost.
        frontier: Keep the episodes within this share of the range of returns below the best at no more cost.
        density: Keep about evenly spread episodes, this many: DSRL's random grid filter.
        bins: Cells of that grid: in cost, in reward.
        fraction: Keep this share of the episodes, at random.
        seed: Decides every random choice.
        json: Print one JSON object: what `data info` says of the result, and `out`.
    """
    from pdocrl.data import filters
    from pdocrl.data.load import load, save

    _register(checking.tasks_file)
    data = filters.apply(
        load(dataset, checking.task),
        safe_limit=None if not safe else safe if len(safe) > 1 else safe[0],
        slack=frontier,
        target=density,
        bins=bins,
        share=fraction,
        lying_share=spoiling.outliers,
        outlier_limit=spoiling.outlier_limit,
        noise_scale=spoiling.noise,
        seed=seed,
    )
    save(data, out)
    _report(data, out, json)


def split(
    dataset: Positional[str],
    out: tuple[str, str],
    share: float = 0.5,
    seed: int = 0,
    task: str | None = None,
    tasks_file: Path | None = None,
    json: bool = False,
) -> None:
    """Split a dataset by episodes: what chooses a policy must not be what judges it.

    Train on the first file, certify with the second: pdocrl certify RUN --held-out SECOND.

    Example: pdocrl data split BallRun --out one.hdf5 other.hdf5

    Args:
        dataset: A task's name, or a file (.hdf5, .npz, .parquet, .csv, a Minari folder or id).
        out: The two files to write, each in the format of its suffix.
        share: Of the episodes that go into the first file; copies of an episode stay together.
        seed: Decides which.
        task: Check the file against this task's dimensions.
        tasks_file: A TOML file with tasks of your own.
        json: Print one JSON object: what `data info` says of the two parts.
    """
    from pdocrl.data import filters
    from pdocrl.data.load import load, save

    _register(tasks_file)
    if Path(out[0]).resolve() == Path(out[1]).resolve():
        raise DataError(f"--out names {out[0]} twice; give two files.")
    parts = filters.split(load(dataset, task), share, seed)
    for part, path in zip(parts, out, strict=True):
        save(part, path)
    if json:
        told = [{"out": path} | part.summary() for part, path in zip(parts, out, strict=True)]
        console.print_json({"parts": told})
        return
    for part, path in zip(parts, out, strict=True):
        _report(part, path, json=False)


def _report(data: Dataset, out: str, json: bool) -> None:
    """What was written."""
    if json:
        console.print_json({"out": out} | data.summary())
    else:
        for note in data.notes:  # the file that is written does not know what was changed or assumed
            console.log(f"{data.name}: {note}")
        console.log(f"wrote {out}: {data.n_episodes:,} episodes, {len(data):,} transitions")


def _mapping(words: tuple[str, ...]) -> dict[str, list[str]]:
    """reward=r cost=c1,c2 → {"reward": ["r"], "cost": ["c1", "c2"]}."""
    from pdocrl.cli.words import pairs

    return {field: names.split(",") for field, names in pairs(words).items()}


def _register(tasks_file: Path | None) -> None:
    if tasks_file is not None:
        from pdocrl.data.tasks import register_file

        register_file(tasks_file)


def _range(values: dict[str, float]) -> str:
    return f"{values['min']:.4g} … {values['median']:.4g} … {values['max']:.4g}  (min, median, max)"

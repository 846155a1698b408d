"""Every kind of bad input ends with status 2 and one line that says what, where, and what to do."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from pdocrl import machine
from pdocrl.data import Dataset, load, save
from pdocrl.data.io import hdf5
from pdocrl.errors import DataError

Run = Callable[..., tuple[int, str, str]]
Edit = Callable[[h5py.File], Any]


@pytest.fixture
def good_file(small_dataset: Dataset, tmp_path: Path) -> Path:
    save(small_dataset, tmp_path / "good.hdf5")
    return tmp_path / "good.hdf5"


def refusal(run_cli: Run, *arguments: object) -> str:
    """The one line of a refused command, without `error: `."""
    status, out, err = run_cli(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    return err.removeprefix("error: ").rstrip("\n")


def edited(path: Path, edit: Edit) -> Path:
    with h5py.File(path, "r+") as file:
        edit(file)
    return path


def replace(key: str, change: Callable[[np.ndarray], Any]) -> Edit:
    def edit(file: h5py.File) -> None:
        values = file[key][()]
        del file[key]
        file[key] = change(values)

    return edit


def put(key: str, place: Any, value: float) -> Edit:
    def edit(file: h5py.File) -> None:
        file[key][place] = value

    return edit


def test_a_good_file_is_accepted(run_cli: Run, good_file: Path) -> None:
    """Without this the tests below could pass for the wrong reason."""
    assert run_cli("data", "info", good_file)[0] == 0


def test_missing_file(run_cli: Run, good_file: Path) -> None:
    wanted = good_file.with_name("godo.hdf5")
    assert refusal(run_cli, "data", "info", wanted) == f"{wanted}: no such file. Did you mean `good.hdf5`?"


def test_not_hdf5(run_cli: Run, tmp_path: Path) -> None:
    path = tmp_path / "page.hdf5"
    path.write_text("<html>502 Bad Gateway</html>")
    message = refusal(run_cli, "data", "info", path)
    assert message.startswith("page.hdf5: damaged, or not what its suffix says (")
    assert message.endswith(" Copy or download it again.")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.99])
def test_truncated_hdf5(run_cli: Run, good_file: Path, share: float) -> None:
    content = good_file.read_bytes()
    good_file.write_bytes(content[: int(share * len(content))])
    assert refusal(run_cli, "data", "info", good_file).startswith("good.hdf5: damaged, or not what its suffix says (")


@pytest.mark.parametrize("key", ["observations", "actions", "rewards", "terminals", "timeouts"])
def test_missing_key(run_cli: Run, good_file: Path, key: str) -> None:
    def remove(file: h5py.File) -> None:
        del file[key]

    message = refusal(run_cli, "data", "info", edited(good_file, remove))
    assert message.startswith(f"good.hdf5: key `{key}` is missing.")


def test_missing_timeouts_name_the_ways_out(run_cli: Run, good_file: Path, small_dataset: Dataset) -> None:
    path = edited(good_file, lambda file: file.move("timeouts", "cut_short"))
    message = refusal(run_cli, "data", "info", path)
    assert "name the key that has it, `pdocrl data convert --columns timeout=KEY`" in message
    assert "timeouts = numpy.arange(N) % H == H - 1" in message
    with pytest.raises(DataError, match=r"columns=\{'timeout': KEY\}"):
        load(path)
    assert (load(path, columns={"timeout": "cut_short"}).timeout == small_dataset.timeout).all()
    assert run_cli("data", "convert", path, "--out", path.with_suffix(".npz"), "--columns", "timeout=cut_short")[0] == 0


def test_a_misspelt_key_is_suggested(run_cli: Run, good_file: Path) -> None:
    path = edited(good_file, lambda file: file.move("rewards", "reward_"))
    assert refusal(run_cli, "data", "info", path) == "good.hdf5: key `rewards` is missing. Did you mean `reward_`?"


def test_missing_costs_are_refused_for_a_task_that_has_them(
    run_cli: Run, make_random_dataset: Any, tmp_path: Path
) -> None:
    def remove(file: h5py.File) -> None:
        del file["costs"]

    save(make_random_dataset(obs_dim=7), tmp_path / "x.hdf5")
    edited(tmp_path / "x.hdf5", remove)
    assert run_cli("data", "info", tmp_path / "x.hdf5")[0] == 0
    message = refusal(run_cli, "data", "info", tmp_path / "x.hdf5", "--task", "BallRun")
    assert message.startswith("x.hdf5: key `costs` is missing.")


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("key", ["observations", "actions", "rewards", "costs", "next_observations"])
def test_not_finite(run_cli: Run, good_file: Path, key: str, value: str) -> None:
    wide = {"observations": 1, "actions": 1, "next_observations": 1}
    place = (5, wide[key]) if key in wide else 5
    where = "row 5, column 1" if key in wide else "row 5"
    path = edited(good_file, put(key, place, float(value)))
    expected = f"good.hdf5: `{key}` is {value} at {where}. Remove that episode, or repair the value."
    assert refusal(run_cli, "data", "info", path) == expected


def test_the_first_bad_row_is_named_far_into_a_file(run_cli: Run, tmp_path: Path) -> None:
    """Values are checked in blocks; the row counts from the file's start, not from the block's."""
    n = 200_000
    with h5py.File(tmp_path / "long.hdf5", "w") as file:
        file["observations"] = file["next_observations"] = np.zeros((n, 1), np.float32)
        file["actions"] = np.zeros((n, 1), np.float32)
        rewards = np.zeros(n, np.float32)
        rewards[[150_001, 199_999]] = np.nan
        file["rewards"], file["costs"] = rewards, np.zeros(n)
        file["terminals"], file["timeouts"] = np.zeros(n, bool), np.arange(n) % 100 == 99
    assert "`rewards` is nan at row 150001." in refusal(run_cli, "data", "info", tmp_path / "long.hdf5")


def test_float64_beyond_float32_is_named_not_warned_about(run_cli: Run, small_dataset: Dataset, tmp_path: Path) -> None:
    arrays = {
        name: np.asarray(getattr(small_dataset, name)) for name in ("obs", "action", "next_obs", "terminal", "timeout")
    }
    reward = small_dataset.reward.astype(np.float64)
    reward[2] = 1e300
    np.savez(tmp_path / "x.npz", reward=reward, cost=small_dataset.cost, **arrays)
    assert "`reward` is inf at row 2." in refusal(run_cli, "data", "info", tmp_path / "x.npz")


@pytest.mark.parametrize("value", [1.01, -7])
def test_actions_outside_bounds(run_cli: Run, good_file: Path, value: float) -> None:
    path = edited(good_file, put("actions", (3, 0), value))
    expected = (
        f"good.hdf5: `actions` is {value:g} at row 3, column 0. Actions must lie in [-1, 1]: "
        "`pdocrl data convert --rescale-actions LOW HIGH` makes them so."
    )
    assert refusal(run_cli, "data", "info", path) == expected


@pytest.mark.parametrize("key", ["actions", "rewards", "costs", "next_observations", "terminals", "timeouts"])
def test_lengths_that_differ(run_cli: Run, good_file: Path, key: str) -> None:
    path = edited(good_file, replace(key, lambda values: values[:-5]))
    with h5py.File(path) as file:
        n = len(file["observations"])
    message = refusal(run_cli, "data", "info", path)
    assert message == f"good.hdf5: `{key}` has {n - 5} rows, `observations` has {n}. Was the file cut while copying?"


def test_lengths_that_differ_suggest_a_download_for_a_known_task(
    run_cli: Run, make_random_dataset: Any, tmp_path: Path
) -> None:
    save(make_random_dataset(obs_dim=7), tmp_path / "x.hdf5")
    edited(tmp_path / "x.hdf5", replace("rewards", lambda values: values[:-5]))
    message = refusal(run_cli, "data", "info", tmp_path / "x.hdf5", "--task", "CarRun")
    assert message.endswith("Was the file cut while copying? Try `pdocrl data fetch CarRun`.")


def test_no_episode_end(run_cli: Run, good_file: Path) -> None:
    def never(file: h5py.File) -> None:
        file["terminals"][:] = file["timeouts"][:] = False

    expected = (
        "good.hdf5: no episode end: neither `terminals` nor `timeouts` is ever set. Mark each episode's last row."
    )
    assert refusal(run_cli, "data", "info", edited(good_file, never)) == expected


def test_flags_that_are_neither_true_nor_false(run_cli: Run, good_file: Path) -> None:
    path = edited(good_file, replace("terminals", lambda values: values * 2.0))
    assert "Flags are true or false, 0 or 1." in refusal(run_cli, "data", "info", path)


def test_negative_cost(run_cli: Run, good_file: Path) -> None:
    path = edited(good_file, put("costs", 4, -0.5))
    expected = "good.hdf5: `costs` is -0.5 at row 4. Costs must be ≥ 0: is this a reward?"
    assert refusal(run_cli, "data", "info", path) == expected


def test_observations_unlike_the_task_s(run_cli: Run, good_file: Path) -> None:
    expected = (
        "good.hdf5: `observations` has 3 columns, task BallRun has 7. "
        "Is it the data of another task? `pdocrl tasks` lists all."
    )
    assert refusal(run_cli, "data", "info", good_file, "--task", "BallRun") == expected


def test_next_observations_of_another_width(run_cli: Run, good_file: Path) -> None:
    path = edited(good_file, replace("next_observations", lambda values: values[:, :2]))
    expected = "good.hdf5: `next_observations` has 2 columns, `observations` has 3. They must agree."
    assert refusal(run_cli, "data", "info", path) == expected


def test_no_transitions(run_cli: Run, good_file: Path) -> None:
    def empty(file: h5py.File) -> None:
        for key in list(file):
            replace(key, lambda values: values[:0])(file)

    expected = "good.hdf5: no transitions: `observations` has 0 rows."
    assert refusal(run_cli, "data", "info", edited(good_file, empty)) == expected


@pytest.mark.parametrize(
    ("key", "values", "message"),
    [
        ("rewards", np.array([b"a"] * 7), "`rewards` holds |S1, not numbers."),
        ("rewards", np.zeros((7, 2)), "`rewards` has shape (7, 2), expected [N]."),
        ("observations", np.zeros((7, 2, 2)), "`observations` has shape (7, 2, 2), expected [N, dim]."),
        ("observations", np.float64(3), "`observations` has shape (), expected [N, dim]."),
        ("actions", np.zeros((7, 0)), "`actions` has no columns (shape (7, 0))."),
    ],
)
def test_arrays_of_the_wrong_kind(run_cli: Run, good_file: Path, key: str, values: Any, message: str) -> None:
    path = edited(good_file, replace(key, lambda _: values))
    assert message in refusal(run_cli, "data", "info", path)


def test_a_group_where_an_array_belongs(run_cli: Run, good_file: Path) -> None:
    def nest(file: h5py.File) -> None:
        del file["rewards"]
        file.create_group("rewards")

    assert "`rewards` is a group, not an array." in refusal(run_cli, "data", "info", edited(good_file, nest))


def test_data_kept_in_another_file_is_refused(run_cli: Run, good_file: Path) -> None:
    """An external link could point anywhere, and the file would not survive being copied."""

    def link(file: h5py.File) -> None:
        del file["rewards"]
        file["rewards"] = h5py.ExternalLink("/etc/hostname", "/rewards")

    assert "`rewards` is a link." in refusal(run_cli, "data", "info", edited(good_file, link))


def test_a_header_that_promises_more_than_the_file_holds(run_cli: Run, good_file: Path) -> None:
    """A terabyte of never-written fill values fits into a small file; reading it would exhaust the memory."""

    def bomb(file: h5py.File) -> None:
        for key in list(file):
            width = file[key].shape[1:]
            del file[key]
            file.create_dataset(key, (1 << 36, *width), np.float32, chunks=(1 << 16, *width))

    message = refusal(run_cli, "data", "info", edited(good_file, bomb))
    assert "good.hdf5: promises " in message
    assert message.endswith("It is damaged.")


unix = pytest.mark.skipif(os.name != "posix", reason="users, pipes, mounts and limits of Unix")


@contextlib.contextmanager
def ordinary_user() -> Iterator[None]:
    """Without root's right to read everything."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@unix
def test_no_permission_to_read(run_cli: Run, good_file: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are private to root
        Path(folder).chmod(0o755)
        path = Path(shutil.copy(good_file, folder))
        path.chmod(0o644)
        with ordinary_user():
            assert run_cli("data", "info", path)[0] == 0
        path.chmod(0o000)
        with ordinary_user():
            message = refusal(run_cli, "data", "info", path)
    assert message == f"{path}: no permission to read it. Try `chmod u+r`, or copy it to a place of yours."


@unix
def test_a_pipe_is_refused_instead_of_waited_on(run_cli: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.hdf5")
    assert refusal(run_cli, "data", "info", tmp_path / "pipe.hdf5").endswith("not a regular file.")


def test_unknown_task(run_cli: Run, good_file: Path) -> None:
    expected = "unknown task or file 'BalRun'. Did you mean `BallRun`? `pdocrl tasks` lists all."
    assert refusal(run_cli, "data", "info", "BalRun") == expected
    expected = "unknown task 'CarCircel'. Did you mean `CarCircle`? `pdocrl tasks` lists all."
    assert refusal(run_cli, "data", "info", good_file, "--task", "CarCircel") == expected


def test_a_task_without_data_names_the_command_that_gets_it(
    run_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PDOCRL_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    expected = "no data for task AntRun. Run `pdocrl data fetch AntRun`, or set PDOCRL_DATA to a folder."
    assert refusal(run_cli, "data", "info", "AntRun") == expected


def test_unknown_format(run_cli: Run, good_file: Path, tmp_path: Path) -> None:
    known = "Known: .hdf5, .h5, .npz, .parquet, .csv, or a Minari folder."
    target = tmp_path / "x.json"
    expected = f"{target}: unknown format '.json'. {known}"
    assert refusal(run_cli, "data", "convert", good_file, "--out", target) == expected
    other = good_file.rename(tmp_path / "data.hdf")
    expected = f"{other}: unknown format '.hdf'. Did you mean `.hdf5`? {known}"
    assert refusal(run_cli, "data", "info", other) == expected


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Any:
    """A folder on a file system of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", folder], check=True)


@unix
@pytest.mark.parametrize("name", ["x.hdf5", "x.npz", "x.parquet", "x.csv", "x"])
def test_full_disk(run_cli: Run, make_random_dataset: Any, tmp_path: Path, tiny_disk: Path, name: str) -> None:
    """A real ENOSPC, in every format; an older file of that name survives."""
    save(make_random_dataset(episodes=800), tmp_path / "large.hdf5")
    target = tiny_disk / name
    if name != "x":
        target.write_text("older")
    message = refusal(run_cli, "data", "convert", tmp_path / "large.hdf5", "--out", target)
    expected = f"cannot write {target}: No space left on device. Nothing was written; choose another place."
    assert message == expected
    assert [path.read_text() for path in tiny_disk.iterdir()] == ([] if name == "x" else ["older"])


@unix
def test_file_too_large_for_the_user(make_random_dataset: Any, tmp_path: Path) -> None:
    """The same without root: a limit on the size of files (`ulimit -f`) fails the write inside each library."""
    save(make_random_dataset(episodes=800), tmp_path / "large.hdf5")
    (tmp_path / "out").mkdir()
    code = (
        "import resource, sys; from pdocrl.cli import main as cli; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536)); "
        "print([cli.main(['data', 'convert', sys.argv[1], '--out', target]) for target in sys.argv[2:]])"
    )
    targets = [str(tmp_path / "out" / name) for name in ("x.hdf5", "x.npz", "x.parquet", "x.csv", "x")]
    command = [sys.executable, "-c", code, str(tmp_path / "large.hdf5"), *targets]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[2, 2, 2, 2, 2]\n")
    lines = [
        f"error: cannot write {target}: File too large. Nothing was written; choose another place."
        for target in targets
    ]
    assert done.stderr.splitlines() == lines
    assert list((tmp_path / "out").iterdir()) == []


def test_a_failed_write_keeps_no_view_of_the_file_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that outlives its buffer ends Python 3.12 with a segmentation fault at the next garbage collection."""
    image = io.BytesIO()
    monkeypatch.setattr(hdf5, "io", types.SimpleNamespace(BytesIO=lambda: image))
    with pytest.raises(FileNotFoundError) as error, hdf5.new_file(tmp_path / "nowhere" / "x.hdf5"):
        pass
    assert error.value.__traceback__ is not None  # its frames are alive
    image.truncate(0)  # a BufferError while there are views


def test_check_lists_every_error_and_the_first_one_on_standard_error(run_cli: Run, good_file: Path) -> None:
    edited(good_file, put("rewards", 3, np.nan))
    edited(good_file, put("actions", (2, 0), 5))
    edited(good_file, put("costs", 1, -1))
    status, out, err = run_cli("data", "check", good_file)
    assert status == 2
    for key in ("`actions` is 5", "`rewards` is nan", "`costs` is -1"):
        assert key in out
    assert err.count("\n") == 1
    assert err.startswith("error: good.hdf5: `actions` is 5 at row 2")
    assert err.endswith("(3 errors in all)\n")


def test_without_sysconf_as_on_windows_memory_is_not_judged(good_file, monkeypatch) -> None:
    monkeypatch.setattr("pdocrl.data.validate.memory", lambda: 10)
    with pytest.raises(DataError, match=r"needs 0\.0 GB"):
        load(good_file)
    monkeypatch.undo()
    monkeypatch.delattr(os, "sysconf")
    assert machine.memory() is None
    assert load(good_file).n_episodes > 0

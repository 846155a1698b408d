"""`pdocrl data fetch`."""

from __future__ import annotations

from pathlib import Path

from tyro.conf import Positional

from pdocrl import console


def fetch(
    task: Positional[str],
    url: str | None = None,
    folder: Path | None = None,
    offline: bool = False,
    json: bool = False,
) -> None:
    """Download a task's public DSRL file, or check the one that is here. An interrupted download is resumed.

    The file goes to PDOCRL_DATA, or to the user's cache folder, where every command finds it by the task's name. Its
    sha256 is remembered the first time and verified from then on.

    Example: pdocrl data fetch CarRun

    Args:
        task: A task's name; `pdocrl tasks` lists all.
        url: A mirror of your own: the address of a folder or of the file itself.
        folder: Where to keep the file.
        offline: Download nothing; check what is here.
        json: Print one JSON object instead of a table.
    """
    from pdocrl.data.fetch import fetch as fetch_file

    with console.progress() as bar:
        row = bar.add_task(f"{task} (MB)", total=None)

        def show(done: int, total: int | None) -> None:
            bar.update(row, completed=done // 1_000_000, total=None if total is None else total // 1_000_000)

        try:
            fetched = fetch_file(task, url, offline, folder, progress=show)
        except KeyboardInterrupt:
            console.log("What has arrived is kept; the same command goes on from there.")
            raise
    answer = {
        "task": fetched.task,
        "path": str(fetched.path),
        "bytes": fetched.bytes,
        "sha256": fetched.sha256,
        "source": fetched.source,
        "downloaded": fetched.source is not None,
    }
    if json:
        console.print_json(answer)
    else:
        console.print_table(["", fetched.task], [[key, str(value)] for key, value in answer.items() if key != "task"])

"""Before the site is built, the code of its tutorials is run, page by page, each in a folder of its own.

    ```python                         is run; all of a page share their names
    ```console                        lines after `$ ` are run by bash, the others are what it printed
    ```python title="my_world.py"     is written to that file, and not run

    python docs/hooks/run_tutorials.py [PAGE …]      # without building the site

A block that fails stops the build and names the page and the line. `PDOCRL_DOCS_RUN=0` builds the site without.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

DOCS = Path(__file__).resolve().parents[1]
FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced piece of a page."""

    line: int
    language: str
    title: str | None
    text: str


def pages() -> list[Path]:
    return [DOCS / "getting-started.md", *sorted((DOCS / "tutorials").glob("*.md"))]


def blocks(page: Path) -> list[Block]:
    source = page.read_text(encoding="utf-8")
    return [Block(source.count("\n", 0, m.start()) + 2, m[1], m[2], m[3]) for m in FENCE.finditer(source)]


def program(page: Path) -> str:
    """The page as one Python program. Lines of Python keep their numbers, so a traceback points into the page."""
    name = page.relative_to(DOCS).as_posix()
    parts = ["import pathlib, subprocess, sys", "names = {'__name__': '__main__'}", "sys.path.insert(0, '.')"]
    for block in blocks(page):
        where = f"{name}:{block.line}"
        parts.append(f"print({where!r}, file=sys.stderr, flush=True)")
        if block.title:
            parts.append(f"pathlib.Path({block.title!r}).write_text({block.text!r}, encoding='utf-8')")
        elif block.language == "python":
            moved = "\n" * (block.line - 1) + block.text
            parts.append(f"exec(compile({moved!r}, {name!r}, 'exec'), names)")
        elif block.language == "console":
            script = "\n".join(commands(block.text))
            parts.append(f"subprocess.run(['bash', '-euo', 'pipefail', '-c', {script!r}], check=True)")
    return "\n".join(parts)


def commands(text: str) -> Iterator[str]:
    """Lines after `$ `, with those they are continued by."""
    goes_on = False
    for line in text.splitlines():
        if line.startswith("$ ") or goes_on:
            yield line.removeprefix("$ ")
            goes_on = line.endswith("\\")


def run(page: Path, caches: Path) -> None:
    """Run a page; a failure is a RuntimeError with the page, the line and what was said."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "JAX_COMPILATION_CACHE_DIR": str(caches),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "COLUMNS": "100",
    }
    environment.pop("PDOCRL_TASKS", None)
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", program(page)], cwd=folder, env=environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"the code of {page.name} failed:\n{done.stdout[-3000:]}")


def run_all(chosen: list[Path]) -> None:
    with tempfile.TemporaryDirectory() as caches:
        for page in chosen:
            begun = time.monotonic()
            run(page, Path(caches))
            print(f"ran {page.relative_to(DOCS)}: {time.monotonic() - begun:.0f} s", file=sys.stderr)


def on_pre_build(config: Any) -> None:
    """Called by MkDocs."""
    if os.environ.get("PDOCRL_DOCS_RUN") == "0":
        return
    from mkdocs.exceptions import PluginError

    try:
        run_all(pages())
    except RuntimeError as error:
        raise PluginError(str(error)) from None


if __name__ == "__main__":
    run_all([Path(name).resolve() for name in sys.argv[1:]] or pages())

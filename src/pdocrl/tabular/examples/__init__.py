"""Logs that ship with the package, by name. Each was made by the script of the same name beside it."""

from __future__ import annotations

from pathlib import Path

EXAMPLES = {path.stem: path for path in sorted(Path(__file__).parent.glob("*.parquet"))}

"""What a page says of committed rows stands between two marks and is made of them."""

from __future__ import annotations

from pathlib import Path

from pdocrl.files import write_text

END = "<!-- end -->"


def replace_block(page: Path, made: str) -> None:
    """Put `made` in the place of the page's block that begins with the same mark, its first line; both end with END."""
    mark = made.partition("\n")[0]
    before, found, rest = page.read_text(encoding="utf-8").partition(mark)
    if not found or END not in rest:
        raise SystemExit(f"error: {page}: has no block from {mark} to {END}.")
    write_text(page, f"{before}{made}{rest.partition(END)[2]}")

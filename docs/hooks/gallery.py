"""The notebooks of examples/ as pages of the site, with their output; nothing is run.

    examples/NAME.ipynb ─▶ examples/NAME.md        examples/README.md ─▶ examples/index.md
"""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WIDTH, TABLE = 80, set("│┃━─")  # characters a text block of the site has room for, and those tables are drawn with


def on_files(files: Any, config: Any) -> Any:
    """Called by MkDocs."""
    from mkdocs.structure.files import File

    pages = {"index": (EXAMPLES / "README.md").read_text(encoding="utf-8").replace(".ipynb)", ".md)")}
    pages |= {path.stem: page(path) for path in sorted(EXAMPLES.glob("*.ipynb"))}
    for name, text in pages.items():
        files.append(File.generated(config, f"examples/{name}.md", content=text))
    return files


def page(path: Path) -> str:
    """A notebook as Markdown; on disk its texts are lists of lines, or one text."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [shown for output in cell["outputs"] if (shown := _shown(output))]
    return "\n\n".join(parts) + "\n"


def _shown(output: Any) -> str:
    """Text, or a picture."""
    data = output.get("data", {})
    if "image/png" in data:
        picture = "".join(data["image/png"]).strip()
        return f"![](data:image/png;base64,{picture})"
    text = "".join(output.get("text") or data.get("text/plain", ""))
    text = re.sub(r"\x1b\[[\d;]*m", "", text).strip("\n")
    # A sentence is one long line of a cell's output, which the page would cut off; a table keeps its lines.
    text = "\n".join(line if TABLE & set(line) else textwrap.fill(line, WIDTH) for line in text.split("\n"))
    return f"```text\n{text}\n```" if text.strip() else ""

"""The committed notebooks are those of their sources, and their table is of the committed file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.run_examples import EXAMPLES, _read, cells, readme, skipped

SOURCES = sorted(EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("source", SOURCES, ids=[source.stem for source in SOURCES])
def test_a_notebook_has_the_cells_of_its_source_and_their_output(source: Path) -> None:
    found = json.loads(source.with_suffix(".ipynb").read_text(encoding="utf-8"))["cells"]
    assert [(cell["cell_type"], "".join(cell["source"])) for cell in found] == cells(source)
    code = [cell for cell in found if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in code)
    assert any(cell["outputs"] for cell in code)
    outputs = json.dumps([cell["outputs"] for cell in code])
    assert len(outputs) < 100_000
    assert str(EXAMPLES.parent) not in outputs
    assert "/tmp/" not in outputs


def test_the_gallerys_table_is_of_the_committed_numbers() -> None:
    assert (EXAMPLES / "README.md").read_text(encoding="utf-8") == readme(_read())
    assert {row["example"] for row in _read()} == {source.stem for source in SOURCES}


def test_a_missing_package_is_named_with_how_to_install_it() -> None:
    assert skipped("No module named 'pyRDDLGym'") == "No module named 'pyRDDLGym': pip install 'pdocrl[rddl]'"
    assert skipped("the sepsis example needs the extra `icu`") == "the sepsis example needs the extra `icu`"


@pytest.mark.parametrize("source", SOURCES, ids=[source.stem for source in SOURCES])
def test_on_the_site_no_sentence_of_the_output_is_cut_off(source: Path) -> None:
    from docs.hooks.gallery import TABLE, WIDTH, page

    blocks = re.findall(r"^```text\n(.*?)\n```$", page(source.with_suffix(".ipynb")), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.split("\n") if not TABLE & set(line)]
    assert lines
    assert max(map(len, lines)) <= WIDTH

"""The public API: every name it promises is there, and importing it costs nothing."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import pdocrl
from pdocrl.errors import PdocrlError

SOURCE = Path(pdocrl.__file__).parent
MODULES = ("callbacks", "loggers", "testing")


@pytest.mark.parametrize("name", pdocrl.__all__)
def test_every_name_is_there(name: str) -> None:
    assert callable(getattr(pdocrl, name)) or name in {"__version__", *MODULES}


def test_version_is_that_of_the_package() -> None:
    assert pdocrl.__version__ == version("pdocrl")


def test_packages_named_like_a_function_are_called_like_it() -> None:
    """Also once their modules have been imported, which put the package where the function would be."""
    import pdocrl.ope.ensemble.judge
    import pdocrl.report.page

    with pytest.raises(PdocrlError, match="no run"):
        pdocrl.report("nowhere")
    with pytest.raises(PdocrlError, match="no run"):
        pdocrl.ope("nowhere")


def test_no_module_hides_a_function() -> None:
    """A submodule of the same name would take the function's place as soon as anyone imports it."""
    code = (
        "import pdocrl, pdocrl.demo, pdocrl.cli.main, pdocrl.report.page; "
        "print([n for n in pdocrl.__all__ if n[0] != '_' and not callable(getattr(pdocrl, n))])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == str([*MODULES])


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        _ = pdocrl.trian


def test_import_loads_neither_jax_nor_the_simulator() -> None:
    heavy = "{'jax', 'pybullet', 'h5py', 'duckdb', 'matplotlib', 'pyarrow'}"
    code = f"import sys, pdocrl, pdocrl.cli.main; print({heavy} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "set()"


@pytest.mark.parametrize("command", ["--help", "agents", "tasks"])
def test_listing_commands_load_no_jax(command: str) -> None:
    code = (
        "import sys; from pdocrl.cli.main import main\n"
        f"try: main([{command!r}])\nexcept SystemExit: pass\n"
        "sys.exit('jax' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)


def test_messages_outside_the_command_line_name_what_python_calls_an_option() -> None:
    """A text that names an option does so in `by_door`, in a whole command line, or beside the word for Python."""
    wrong = []
    for path in SOURCE.rglob("*.py"):
        if path.parent.name == "cli" or path.name in {"deprecations.py", "install.py"}:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        passed = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "by_door":
                passed |= {id(part) for part in ast.walk(node)}
            if isinstance(node, ast.JoinedStr):
                passed |= {id(part) for part in ast.walk(node) if isinstance(part, ast.Constant)}
            if isinstance(node, ast.JoinedStr) and id(node) not in passed:
                text = "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in passed:
                text = node.value
            else:
                continue
            option = re.search(r"(?<![\w-])--[a-z][a-z-]+", text)
            beside = re.search(r"pdocrl|python -m|ray start|Python|\w=|a confidence \(", text)
            if option and not beside and " " in text.strip():
                wrong.append(f"{path.relative_to(SOURCE)}: {text.strip()}")
    assert wrong == []

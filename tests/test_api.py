"""The public API: every name it promises is there, and importing it costs nothing."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

import pdocrl
from pdocrl.errors import PdocrlError

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

"""`pdocrl.report(folder)` and `pdocrl.report.figures`: a package that may be called like its chief function.

A function of a subpackage's name would be hidden by it as soon as anyone imports it; so the package itself is callable.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


def make_callable(package: str, function: str) -> None:
    """Have calls of the package go to its function of that name."""

    class CallablePackage(ModuleType):
        def __call__(self, *arguments: Any, **options: Any) -> Any:
            return getattr(self, function)(*arguments, **options)

    sys.modules[package].__class__ = CallablePackage

"""Suites of tasks and agents: planned, trained, played, in tables. `pdocrl.bench("eight")` runs one."""

from typing import Any

from pdocrl.callable_package import make_callable


def __getattr__(name: str) -> Any:
    """`run_suite` is imported when it is asked for: JAX takes its time."""
    if name == "run_suite":
        from pdocrl.bench.run import run_suite

        return run_suite
    raise AttributeError(f"module 'pdocrl.bench' has no attribute {name!r}")


make_callable(__name__, "run_suite")

"""The layers hold: no package imports one of a later layer, none imports another in a circle, no two modules import
each other. Imports inside functions count; between modules those for type checkers alone do not."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "pdocrl"

# Each may import what stands in its own line or above.
LAYERS = (
    (
        "errors",
        "files",
        "limits",
        "table",
        "console",
        "records",
        "callable_package",
        "machine",
        "provenance",
        "deprecations",
    ),
    ("data", "nn", "tabular"),
    ("dynamics", "envs", "agents", "policies", "approximate"),
    ("training", "evaluation"),
    ("ope", "collect"),
    ("portfolio",),
    ("bench",),
    ("report",),
    ("demo", "testing", "policy_folder", "callbacks", "loggers", "cli", "__init__"),
)
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}


def imports(types: bool = True) -> set[tuple[str, str]]:
    """(module, module) of every import of one of our files by another, wherever in the file it stands.

    `types`: also those under `if TYPE_CHECKING`.
    """
    modules = {module_of(path): path for path in SOURCE.rglob("*.py")}
    found = set()
    for name, path in modules.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if not types:
            tree.body = [node for node in tree.body if not _for_types_alone(node)]
        for node in ast.walk(tree):
            targets = []
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                assert node.level == 0, f"{path}: imports are absolute here"
                targets = [f"{node.module}.{alias.name}" for alias in node.names]
            for target in targets:
                while target and target not in modules:
                    target = target.rpartition(".")[0]
                if target and target != name:
                    found.add((name, target))
    return found


def _for_types_alone(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def between_packages() -> dict[tuple[str, str], list[str]]:
    """{(importer, imported): the modules that do it}."""
    found = defaultdict(list)
    for one, other in imports():
        pair = (package_of(one), package_of(other))
        if pair[0] != pair[1] and pair[1] != "__init__":
            found[pair].append(f"{one} → {other}")
    return found


def test_every_package_has_its_layer() -> None:
    there = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert there == set(LAYER)


def test_no_package_imports_one_of_a_later_layer() -> None:
    wrong = {pair: who for pair, who in between_packages().items() if LAYER[pair[1]] > LAYER[pair[0]]}
    assert wrong == {}


def test_no_package_imports_another_in_a_circle() -> None:
    edges = defaultdict(set)
    for one, other in set(between_packages()):
        edges[one].add(other)
    assert _circle(edges) == []


def test_no_two_modules_import_each_other() -> None:
    found = imports(types=False)
    assert found
    assert sorted(pair for pair in found if pair[::-1] in found) == []


def _circle(edges: dict[str, set[str]]) -> list[str]:
    """The names along one circle, or none: depth first, a name that is still open closes a circle."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return path[path.index(name) :]
        if name in done:
            return []
        for other in sorted(edges.get(name, ())):
            if found := visit(other, [*path, name]):
                return found
        done.add(name)
        return []

    return next((found for name in sorted(edges) if (found := visit(name, []))), [])

"""A policy's code as one file: the modules that act with NumPy alone, joined for a robot that has no pdocrl."""

from __future__ import annotations

import ast
import inspect

from pdocrl.policies import candidates, cost_conditioned, dial, mlp, policy, transformer

MODULES = (mlp, cost_conditioned, candidates, transformer, dial, policy)  # each uses only what stands before it


def joined_source() -> str:
    """The docstring of `policy`, what the modules import of others, then their code in order."""
    imported: set[tuple[str, str]] = set()  # (the words before a name, the name)
    code = []
    for module in MODULES:
        names, rest = _imports_and_code(inspect.getsource(module))
        imported |= names
        code.append(rest)
    opening = [f"{words}{', '.join(sorted(n for w, n in imported if w == words))}" for words, _ in sorted(imported)]
    head = [f'"""{policy.__doc__}"""', "", "from __future__ import annotations", "", *dict.fromkeys(opening)]
    return "\n\n\n".join(["\n".join(head), *code]) + "\n"


def _imports_and_code(source: str) -> tuple[set[tuple[str, str]], str]:
    """What a module imports of other packages, and its code after all of its imports."""
    own = {"__future__", *(module.__name__ for module in MODULES)}
    imported, last = set(), 0
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            last = node.end_lineno or 0
            for alias in node.names:
                if isinstance(node, ast.Import):
                    imported.add((f"import {alias.name}", f" as {alias.asname}" if alias.asname else ""))
                elif node.module not in own:
                    imported.add((f"from {node.module} import ", alias.name))
    return imported, "\n".join(source.splitlines()[last:]).strip()

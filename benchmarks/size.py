"""How large the source is: modules, lines, code, tokens; what is new since version 0.2 counted apart.

    python benchmarks/size.py [SOURCE]        # a folder `src/pdocrl`; default: this checkout's

Code leaves out docstrings, comments and blank lines; tokens do not depend on the formatter. New are modules whose whole
purpose is new (`NEW`); what old modules learned besides cannot be taken out.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path

NEW = (
    *("approximate/", "portfolio/", "tabular/tails/", "ope/estimators/", "tabular/inference/markov.py"),
    *(f"ope/{name}.py" for name in ("any_policy", "assumptions", "by_weights", "choice", "diagnostics", "drift")),
    *(f"ope/{name}.py" for name in ("entry", "judge", "parts", "sensitivity", "verdicts")),
    *("ope/certify/log.py", "evaluation/tails.py", "policies/row_policy.py", "limits.py", "policy_folder.py"),
    *(f"data/{name}.py" for name in ("event_log", "named_columns", "encoding", "action_grid", "episodes")),
    *(f"training/{name}.py" for name in ("callbacks", "loggers", "final_state")),
    *("callbacks.py", "loggers.py", "testing.py", "provenance.py", "deprecations.py", "callable_package.py"),
    *("envs/install.py", "envs/vector.py", "bench/sources.py"),
    *(f"report/{name}.py" for name in ("limit_slider", "ope_page", "policy_page", "solved_columns", "solved_tails")),
    *("report/vector.py", "cli/install.py", "cli/log_columns.py", "cli/solve_columns.py", "cli/solve_tails.py"),
)
SKIPPED = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)


def sizes(path: Path) -> tuple[int, int, int]:
    """Lines, lines of code, tokens of a file."""
    text = path.read_text(encoding="utf-8")
    docstrings: set[int] = set()  # their lines
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    found = [
        token
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in SKIPPED and token.string and token.start[0] not in docstrings
    ]
    code = {line for token in found for line in range(token.start[0], token.end[0] + 1)}
    return len(text.splitlines()), len(code), len(found)


def main() -> None:
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1] / "src" / "pdocrl"
    files = {path.relative_to(source).as_posix(): sizes(path) for path in sorted(source.rglob("*.py"))}
    new = {name for name in files if name.startswith(NEW)}
    for title, names in (("all", files.keys()), ("new since 0.2", new), ("features of 0.2", files.keys() - new)):
        lines, code, tokens = (sum(files[name][i] for name in names) for i in range(3))
        print(f"{title}: {len(names)} modules, {lines:,} lines, {code:,} of code, {tokens:,} tokens")


if __name__ == "__main__":
    main()

"""The command line: finds the command, parses its options, runs it, and turns errors into one line.

Commands live in `pdocrl.cli`, one file per command. They are imported only when called, so `pdocrl --help` and
misspellings answer at once. Exit status: 0 done, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from pdocrl import deprecations
from pdocrl.errors import PdocrlError, PdocrlInterrupted, command_line, did_you_mean

# command → (module in pdocrl.cli, function, one line for the overview)
COMMANDS: dict[str, tuple[str, str, str]] = {
    "install": ("install", "install", "a simulator into this Python: bullet or safety-gymnasium"),
    "tasks": ("tasks", "tasks", "list the tasks: horizon, dimensions, reference scores, files"),
    "data info": ("data", "info", "what a dataset holds: episodes, returns, costs, digest"),
    "data check": ("data", "check", "look for everything wrong with a dataset"),
    "data plot": ("data", "plot", "the cost–reward scatter with limits and the safe frontier"),
    "data convert": ("data", "convert", "from one format to another"),
    "data filter": ("data", "filter_", "keep a part: safe, frontier, density, noise, outliers, fraction"),
    "data split": ("data", "split", "into episodes that choose a policy and episodes that judge it"),
    "data fetch": ("fetch", "fetch", "download a public DSRL file, with resume and check"),
    "agents": ("agents", "agents", "list the agents, or one agent's settings"),
    "train": ("train", "train", "from a dataset to policies, many runs side by side"),
    "evaluate": ("evaluate", "evaluate", "play trained policies in the simulator and score them"),
    "ope": ("ope", "ope", "estimate trained policies from the data alone, without a simulator"),
    "certify": ("certify", "certify", "whether policies satisfy their limits, how sure that is, and what it assumes"),
    "export": ("export", "export", "one policy as ONNX and plain NumPy"),
    "demo": ("demo", "demo", "embedded data to policies, real simulator, a page: the whole way in a minute or two"),
    "report": ("report", "report", "a training, a benchmark or a solved log as one HTML page with its pictures"),
    "bench": (
        "bench",
        "bench",
        "a suite of tasks and agents: train, play, tables beside the published numbers, a page",
    ),
    "collect": ("collect", "collect", "train safe experts and keep their episodes: a dataset of one's own"),
    "solve": ("solve", "solve", "a log of decisions, of states or of columns, to a policy within the limits"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; returns its exit status."""
    args = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a Windows code page has neither → nor ≤: "?" instead of an error
            stream.reconfigure(errors="replace")
    try:
        name, rest = _find_command(args)
        if name is None:
            print(_overview(prefix=args[0] if args and not args[0].startswith("-") else ""))
            return 0
        module, function, _ = COMMANDS[name]
        command = getattr(importlib.import_module(f"pdocrl.cli.{module}"), function)
        with command_line():
            _parse_and_run(command, name, deprecations.arguments(name, rest))
        return 0
    except PdocrlInterrupted as stop:
        print(stop, file=sys.stderr)
        return 130
    except PdocrlError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `pdocrl … | head` is not an error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _find_command(args: list[str]) -> tuple[str | None, list[str]]:
    """Split the arguments into a command's name (one or two words) and its options; None asks for the overview."""
    if not args or args[0] in {"-h", "--help"}:
        return None, []
    if args[0] == "--version":
        from importlib.metadata import version

        print(f"pdocrl {version('pdocrl')}")
        raise SystemExit(0)
    for words in (2, 1):
        name = " ".join(args[:words])
        if name in COMMANDS:
            return name, args[words:]
    family = [c for c in COMMANDS if c.split()[0] == args[0]]
    if family:
        if len(args) == 1 or args[1] in {"-h", "--help"}:
            return None, []
        tried = " ".join(args[:2])
        raise PdocrlError(
            f"unknown command `{tried}`.{did_you_mean(tried, family)} `pdocrl {args[0]} --help` lists all."
        )
    firsts = {c.split()[0] for c in COMMANDS}
    raise PdocrlError(f"unknown command `{args[0]}`.{did_you_mean(args[0], firsts)} `pdocrl --help` lists all.")


def _parse_and_run(command: Callable[..., Any], name: str, args: list[str]) -> None:
    import tyro

    # Parsing and running are apart, so that only tyro's own complaints are rewritten, never a command's output.
    def parsed(*positional: Any, **options: Any) -> Callable[[], Any]:
        return lambda: command(*positional, **options)

    signature = inspect.signature(command, eval_str=True)
    parsed.__signature__ = signature  # type: ignore[attr-defined]
    parsed.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    parsed.__doc__ = command.__doc__
    args = [word for word in args if word not in _said_anyway(signature)]
    # Given whole, because tyro drops a section called "Example:" from the docstring.
    description = (inspect.getdoc(command) or "").split("\nArgs:")[0].strip()
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            config = (tyro.conf.OmitSubcommandPrefixes, tyro.conf.FlagCreatePairsOff)
            run = tyro.cli(parsed, prog=f"pdocrl {name}", description=description, args=args, config=config)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise PdocrlError(f"{_one_line(complaint.getvalue())} See `pdocrl {name} --help`.") from None
    run()


def _said_anyway(signature: inspect.Signature) -> set[str]:
    """`--no-json` of every switch that is off by default: version 0.2 offered it, and scripts may have it."""
    groups = [one.default for one in signature.parameters.values() if dataclasses.is_dataclass(one.default)]
    defaults = {one.name: one.default for one in signature.parameters.values()}
    defaults |= {field.name: field.default for group in groups for field in dataclasses.fields(group)}
    return {f"--no-{name.replace('_', '-')}" for name, value in defaults.items() if value is False}


def _one_line(box: str) -> str:
    """tyro's framed complaint as one sentence."""
    lines = [re.sub(r"^[│\s]+|[│\s]+$", "", line) for line in box.splitlines()]
    lines = [line for line in lines if line and not set(line) <= set("─╭╮╰╯ ") and not line.startswith("╭")]
    keep = [line for line in lines if not line.lower().startswith(("for full helptext", "in pdocrl", "pdocrl "))]
    return " ".join(keep).rstrip(".") + "."


def _overview(prefix: str = "") -> str:
    shown = {c: v for c, v in COMMANDS.items() if not prefix or c.split()[0] == prefix}
    width = max(len(c) for c in shown)
    lines = [f"  pdocrl {c:<{width}}  {line}" for c, (_, _, line) in shown.items()]
    return "\n".join(
        [
            "pdocrl: offline safe reinforcement learning, policies from logged data under cost limits.",
            "",
            *lines,
            "",
            "`pdocrl COMMAND --help` explains one, with an example.",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())

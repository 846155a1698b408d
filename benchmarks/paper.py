"""The paper's own method: its tables and how its players move, from what `pdocrl bench benchmarks/paper.toml` wrote.

    python benchmarks/paper.py runs/paper      # reads the folder, writes results/paper.parquet and paper_course.csv
    python benchmarks/paper.py                 # makes the tables again from the committed rows

Writes the table of benchmarks/README.md, and results/paper.md: every table at the limits of the benchmark (10, 20, 40)
and at those of the paper's appendix (20, 40, 80). paper_course.csv holds medians over the runs of one task and method,
every 5,000 steps: of the density ratio w and its share at the bound, of λ, of |Q| or |V|, and of the Bellman residual.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from generated import END, replace_block
from table import cells_of, pair, short

from pdocrl.bench.results import GROUPS, PARQUET, Row, read_rows
from pdocrl.data.tasks import BULLET
from pdocrl.evaluation.protocols import find_protocol
from pdocrl.files import write_csv, write_text
from pdocrl.report.published import PUBLISHED
from pdocrl.report.statistics import Summary
from pdocrl.report.tables import make_tables
from pdocrl.table import DASH
from pdocrl.training.config import TrainingConfig
from pdocrl.training.folder import METRICS, read_lines

RESULTS = Path(__file__).resolve().parent / "results"
PAGE = RESULTS.parent / "README.md"
BEGIN = "<!-- made by benchmarks/paper.py from results/paper.parquet -->"
EVERY = 5_000  # steps
PLAYERS = ("w", "w_at_clip", "lambda", "q", "v", "residual")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="of `pdocrl bench`")
    arguments = parser.parse_args()
    if arguments.folder is not None:
        shutil.copy(arguments.folder / PARQUET, RESULTS / "paper.parquet")
        write_csv(RESULTS / "paper_course.csv", list(courses(arguments.folder)))
    rows = committed_rows()
    write_text(RESULTS / "paper.md", text(rows))
    replace_block(PAGE, at_a_glance(rows))


def committed_rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:  # read as a benchmark folder holds them
        shutil.copy(RESULTS / "paper.parquet", Path(folder) / PARQUET)
        return read_rows(folder)


def text(rows: Sequence[Row]) -> str:
    """Every table under both protocols."""
    parts = []
    for name, words in (("dsrl", "the benchmark"), ("paper", "the paper's appendix")):
        limits = find_protocol(name).limits
        own = [dataclasses.replace(row, protocol=name) for row in rows if row.cost_limit[0] in limits]
        said = ", ".join(f"{limit:g}" for limit in limits)
        parts += [f"# Limits of {words}: {said}", *(table.markdown() for table in make_tables(own))]
    return "\n\n".join(parts) + "\n"


def at_a_glance(rows: Sequence[Row]) -> str:
    """Reward / cost over limit by method and task at the benchmark's limits, the means, and what the paper prints."""
    tasks = [task.name for task in BULLET if task.name in {row.task for row in rows}]
    appendix = find_protocol("paper").limits
    cells, others = (
        cells_of([row for row in rows if row.cost_limit[0] in find_protocol(name).limits]) for name in ("dsrl", "paper")
    )
    heads = ["method", *tasks, "mean", "satisfied", f"at {', '.join(f'{limit:g}' for limit in appendix)}"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for method in dict.fromkeys(row.method for row in rows):
        found = [cells.get((task, method)) for task in tasks]
        scores = [one for one in found if one is not None]
        shown = [DASH if one is None else short(one) for one in found]
        mean = DASH if len(scores) < len(tasks) else pair(np.mean([[one.reward, one.cost] for one in scores], axis=0))
        counts = [counted([own[task, method] for task in tasks if (task, method) in own]) for own in (cells, others)]
        lines.append(f"| {' | '.join([f'`{method}`', *shown, mean, *counts])} |")
    for agent in ("pdocrl", "pdocrl_extraction"):
        printed = [PUBLISHED[agent].get(task) for task in tasks]
        shown = [DASH if one is None else pair((one.reward, one.cost)) for one in printed]
        lines.append(f"| `{agent}`, as printed | {' | '.join(shown)} | | | |")
    return "\n".join([BEGIN, "", *lines, "", END])


def counted(scores: Sequence[Summary]) -> str:
    """At how many pairs of task and limit the mean cost is within."""
    return f"{sum(one.safe_limits for one in scores)} of {sum(one.limits for one in scores)}"


def courses(folder: Path) -> Iterator[dict[str, str]]:
    """A row per task, method and 5,000 steps."""
    for group in sorted((folder / GROUPS).iterdir()):
        found: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for line in read_lines(group / METRICS):
            if line["step"] % EVERY == 0:
                for name in PLAYERS:
                    if name in line["metrics"]:
                        found[line["step"]][name].append(abs(line["metrics"][name]))
        method, task = group.name.rsplit("-", 1)
        runs = len(TrainingConfig.read(group).runs)
        for step, values in sorted(found.items()):
            medians = {name: f"{np.median(values[name]):.4g}" if name in values else "" for name in PLAYERS}
            yield {"task": task, "method": method, "runs": str(runs), "step": str(step), **medians}


if __name__ == "__main__":
    main()

"""The page of the suite `tabular`: the theory's figures, each with its picture and its table."""

from __future__ import annotations

from pathlib import Path

from pdocrl.bench.results import SuiteFile
from pdocrl.report.document import Commands, Figure, Listed, Section, Tables, as_image, render_page


def render_theory(folder: Path, suite: SuiteFile) -> str:
    """The whole page as text, from the CSV files; what is not measured yet is named."""
    from pdocrl.bench.theory import PICTURES, read_csv
    from pdocrl.theory.experiments import EXPERIMENTS

    sections, waiting = [], []
    for name, experiment in EXPERIMENTS.items():
        path = folder / f"{name}.csv"
        if not path.exists():
            waiting.append(name)
            continue
        shown = []
        for file, about, _ in experiment.drawings(name):
            picture = folder / PICTURES / f"{file}.png"
            if picture.exists():
                shown.append(Figure(as_image(picture), f"{about}; the table below has the numbers.", about))
        sections.append(
            Section(name.replace("_", " ").capitalize(), [*shown, Tables([experiment.table(read_csv(path)).html()])])
        )
    missing = [f"Not measured yet: {', '.join(waiting)}. The same command goes on."] if waiting else []
    again = f"pdocrl bench {suite.name} --out {folder.name}\npdocrl report {folder.name}"
    sections.append(Section("Do it again", [*([Listed(missing)] if missing else []), Commands(again)]))
    count = f"{len(sections) - 1} of {len(EXPERIMENTS)}"
    lead = f"{count} figures of the theory, measured on finite problems with known optima."
    return render_page(f"Benchmark: {suite.name}", lead, sections)

"""The page of the theory's figures, each with its picture and its table."""

from __future__ import annotations

from pathlib import Path

from pdocrl.files import read_csv
from pdocrl.report.document import Commands, Figure, Listed, Section, Tables, as_image, render_page
from research.experiments import EXPERIMENTS

PICTURES = "pictures"


def render(folder: Path) -> str:
    """The whole page as text, from the CSV files; what is not measured yet is named."""
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
    again = f"python -m research all --out {folder.name}"
    sections.append(Section("Do it again", [*([Listed(missing)] if missing else []), Commands(again)]))
    count = f"{len(sections) - 1} of {len(EXPERIMENTS)}"
    lead = f"{count} figures of the theory, measured on problems with known optima."
    return render_page("The theory, measured", lead, sections)

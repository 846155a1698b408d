"""Every committed picture, table and page has a script that makes it, and the script says so."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# file → who makes it, in benchmarks/ unless it says otherwise
MAKERS = {
    "docs/five.html": "five.toml",
    "docs/img/anchored.png": "anchored.py",
    "docs/img/certificate.png": "pictures.py",
    "docs/img/collected.png": "collected.py",
    "docs/img/five.png": "pictures.py",
    "docs/img/frontier.png": "pictures.py",
    "docs/img/limits.png": "limits.py",
    "docs/img/lucky2.png": "tabular_lucky.py",
    "docs/img/ope.png": "ope_trained.py",
    "docs/img/rivals.png": "tabular_rivals.py",
    "docs/img/rivals_free.png": "tabular_rivals.py",
    "docs/img/rivals_free_settings.png": "tabular_rivals.py",
    "docs/img/rivals_free_slopes.png": "tabular_rivals.py",
    "docs/img/rivals_settings.png": "tabular_rivals.py",
    "docs/img/rivals_slopes.png": "tabular_rivals.py",
    "docs/img/solve.png": "pictures.py",
    "benchmarks/results/audit_coverage.csv": "audit_coverage.py",
    "benchmarks/results/agents_cpu.csv": "bench_agents_cpu.py",
    "benchmarks/results/agents_device.csv": "bench_agents_device.py",
    "benchmarks/results/agents_roof.csv": "bench_agents_cpu.py",
    "benchmarks/results/anchored.csv": "anchored.py",
    "benchmarks/results/anchored_ablation.csv": "anchored.py",
    "benchmarks/results/anchored_calibration.csv": "anchored.py",
    "benchmarks/results/anchored_known_answers.csv": "anchored_known_answers.py",
    "benchmarks/results/anchored_two_limits.csv": "anchored_two_limits.py",
    "benchmarks/results/cdt_steps.csv": "../docs/agents/cdt.md",  # the page gives the one command
    "benchmarks/results/collect_speed.csv": "bench_collect.py",
    "benchmarks/results/collected.csv": "collected.py",
    "benchmarks/results/dial.csv": "dial.py",
    "benchmarks/results/dial_luck.csv": "dial_luck.py",
    "benchmarks/results/device_kernels.csv": "bench_agents_device.py",
    "benchmarks/results/grid.csv": "bench_grid.py",
    "benchmarks/results/elsewhere.csv": "elsewhere.py",
    "benchmarks/results/evaluate.csv": "bench_evaluate.py",
    "benchmarks/results/five.md": "five.toml",
    "benchmarks/results/five.parquet": "five.toml",
    "benchmarks/results/foreign.csv": "solve_foreign_logs.py",
    "benchmarks/results/foreign_rivals.csv": "solve_foreign_logs.py",
    "benchmarks/results/fuzz_readers.csv": "fuzz_readers.py",
    "benchmarks/results/halves.csv": "halves.py",
    "benchmarks/results/halves_small.csv": "halves.py",
    "benchmarks/results/kill_and_resume.csv": "kill_and_resume.py",
    "benchmarks/results/kernels.csv": "bench_kernels.py",
    "benchmarks/results/kernels_agents.csv": "bench_kernels.py",
    "benchmarks/results/larger_than_memory.csv": "bench_larger_than_memory.py",
    "benchmarks/results/limits.csv": "limits.py",
    "benchmarks/results/ope.csv": "ope_clones.py",
    "benchmarks/results/ope_trained.csv": "ope_trained.py",
    "benchmarks/results/plan.csv": "bench_plan.py",
    "benchmarks/results/played.csv": "played.py",
    "benchmarks/results/ray.csv": "bench_ray.py",
    "benchmarks/results/read.csv": "bench_read.py",
    "benchmarks/results/reproduce_pdocrl.csv": "reproduce_paper.py",
    "benchmarks/results/reproduce_pdocrl_dataset.csv": "reproduce_paper.py",
    "benchmarks/results/rollout.csv": "bench_rollout.py",
    "benchmarks/results/small.csv": "small.py",
    "benchmarks/results/solve_large.csv": "solve_large.py",
    "benchmarks/results/tabular_bounds.csv": "tabular_bounds.py",
    "benchmarks/results/tabular_counterexamples.csv": "tabular_counterexamples.py",
    "benchmarks/results/tabular_counts.csv": "tabular_counts.py",
    "benchmarks/results/tabular_exact.csv": "tabular_exact.py",
    "benchmarks/results/tabular_icu.csv": "tabular_rivals.py",
    "benchmarks/results/tabular_lucky.csv": "tabular_lucky.py",
    "benchmarks/results/tabular_rate.csv": "tabular_rate.py",
    "benchmarks/results/tabular_rivals.csv": "tabular_rivals.py",
    "benchmarks/results/tabular_saddle.csv": "tabular_saddle.py",
    "benchmarks/results/tabular_trust.csv": "tabular_trust.py",
    "benchmarks/results/train_cpu.csv": "bench_train_cpu.py",
    "benchmarks/results/train_window.csv": "bench_train_window.py",
}


@pytest.mark.parametrize("file", MAKERS)
def test_the_maker_of_a_committed_file_names_it(file: str) -> None:
    maker = ROOT / "benchmarks" / MAKERS[file]
    assert (ROOT / file).is_file()
    assert Path(file).name in maker.read_text(encoding="utf-8")


def test_no_committed_picture_or_result_is_without_a_maker() -> None:
    folders = ("docs/img", "benchmarks/results", "docs/*.html")
    listed = subprocess.run(["git", "ls-files", "--", *folders], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    assert set(listed.stdout.split()) == set(MAKERS)


def test_every_picture_is_shown_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "benchmarks" / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    pictures = [Path(file).name for file in MAKERS if file.endswith(".png")]
    assert [name for name in pictures if f"img/{name}" not in shown] == []


def texts(*endings: str) -> dict[str, str]:
    """Our own committed text files of these endings, by path."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    kept = [path for path in listed if path.endswith(endings) and (ROOT / path).exists()]
    return {path: (ROOT / path).read_text(encoding="utf-8") for path in kept}


def test_the_paper_is_quoted_by_its_names_and_not_by_lines_of_its_source() -> None:
    """Lines move with every edit of the paper; sections, equations and statements keep their numbers far longer."""
    quoted = {path: re.findall(r"\bL[0-9]{3,4}\b", text) for path, text in texts(".md", ".py", ".toml").items()}
    assert {path: lines for path, lines in quoted.items() if lines} == {}


def test_prose_stands_in_lines_of_at_most_100_characters() -> None:
    """Tables, code, pictures and terminal output are as wide as they are."""
    pages = {path: text for path, text in texts(".md").items() if path.startswith("docs/") or path == "README.md"}
    assert len(pages) > 20
    wide = []
    for path, text in pages.items():
        prose = re.sub(r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), text, flags=re.M | re.S)
        for number, line in enumerate(prose.splitlines(), 1):
            if len(line) > 100 and not line.startswith(("|", "    ", "![")):
                wide.append(f"{path}:{number}")
    assert wide == []

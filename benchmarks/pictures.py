"""The pictures and pages of the documentation that show a command's own output, made by those commands.

    python benchmarks/pictures.py           # all
    python benchmarks/pictures.py dial      # docs/dial-ballrun.html alone: one training, four limits, their films

Writes docs/dial-ballrun.html (needs Bullet), docs/img/solve.png and docs/img/frontier.png (the log `inventory`),
docs/img/certificate.png (59 audited episodes, drawn at random with a fixed seed, against a limit of 10; none can cost
more than 50) and, where a Chromium is installed, docs/img/bullet.png: the picture of all runs on docs/bullet.html.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

from pdocrl.cli.main import main as pdocrl
from pdocrl.files import write_csv

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "img"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
INVENTORY = ("solve", "inventory", "--gamma", "0.97", "--limit", "stockout<=0.02", "delivery<=0.3")
# As in examples/robot.py: small networks and few steps.
DIAL = "train BallRun --agent dial --cost-limit 10 20 40 70 --seed 0 --steps 4000 --set hidden=128,128"
DIAL += " model_hidden=64,64 batch_size=256 --out ballrun"


def main(names: list[str]) -> None:
    dial()
    if names == ["dial"]:
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _run(*INVENTORY, "--frontier", "stockout=0.01:0.1:10", "--out", str(folder))
        shutil.copy(folder / "solve.png", IMAGES / "solve.png")
        shutil.copy(folder / "frontier.png", IMAGES / "frontier.png")

        costs = np.random.default_rng(0).poisson(4.5, 59)
        write_csv(folder / "episodes.csv", [{"cost": int(cost)} for cost in costs])
        audit = ("certify", "--audit", str(folder / "episodes.csv"), "--cost-limit", "10", "--largest-cost", "50")
        _run(*audit, "--out", str(folder / "certificate"))
        shutil.copy(folder / "certificate" / "certificate.png", IMAGES / "certificate.png")
    if CHROMIUM is None:
        print("no Chromium: docs/img/bullet.png stays as it is")
    else:
        _photograph(ROOT / "docs" / "bullet.html", "Every run in the plane of reward and cost", IMAGES / "bullet.png")


def dial() -> None:
    """The page of a training; its commands name folders as they were typed, so they run in a folder of its own."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        _run(*DIAL.split())
        _run("evaluate", "ballrun", "--episodes", "5")
        _run("report", "ballrun", "--out", str(ROOT / "docs" / "dial-ballrun.html"))


def _run(*arguments: str) -> None:
    if pdocrl(arguments):
        raise SystemExit(f"pdocrl {' '.join(arguments)} failed")


def _photograph(page: Path, heading: str, target: Path) -> None:
    """The section of a page that has this heading."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        view = browser.new_page(viewport={"width": 1280, "height": 9000}, device_scale_factor=1.5)  # no scrolling
        view.goto(page.as_uri())
        view.locator("section", has=view.get_by_role("heading", name=heading)).last.screenshot(path=target)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])

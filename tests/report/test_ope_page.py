"""The page of judged policies says what its record says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import pdocrl
from pdocrl.ope.result import OpeReport
from pdocrl.report.ope_page import write_ope_page
from pdocrl.report.vector import save_figures
from tests.ope.estimators.worlds import World


@pytest.fixture(scope="module")
def judged() -> OpeReport:
    world = World.random(0)
    log = world.log(300, seed=1)
    target = world.target_rows(log)
    policies = {"target": target, "uniform": np.full(target.shape, 0.5), "worse": 1 - target}
    return pdocrl.ope(policies, log, {"cost": 6})


def test_the_page_has_every_estimate_the_verdicts_and_the_choice(judged: OpeReport, tmp_path: Path) -> None:
    page = write_ope_page(judged, tmp_path / "page.html").read_text()
    for policy in judged.policies:
        for e in policy.estimates:
            if e.reward is not None:
                assert f"<title>{e.estimator}: {e.reward:.4g}" in page
        assert page.count(policy.limits[0].verdict) >= 1
    chosen = judged.choice
    assert chosen is not None
    assert f"Best: {chosen.best}" in page
    for policy in judged.policies:  # both tables of each say whose they are
        assert page.count(f"<h3>{policy.name}</h3>") == 2
    for one in chosen.top:
        assert f"<title>first {one.k}: {one.regret_upper:.4g}</title>" in page
    assert [t.split("-t")[0] for t in re.findall(r'aria-labelledby="([^"]+)"', page) if "weights" in t] == ["weights"]
    assert not re.search(r'(src|href)="https?:', page)
    made = save_figures(tmp_path / "page.html", tmp_path / "figures")
    assert {path.suffix for path in made} == {".svg", ".pdf"}


def test_a_large_mark_decides_and_hollow_ones_may_not(judged: OpeReport, tmp_path: Path) -> None:
    page = write_ope_page(judged, tmp_path / "page.html").read_text()
    drawing = page[page.index('aria-labelledby="estimates-0-0-t"') :].split("</svg>")[0]
    policy = judged.policies[0]
    for mark in drawing.split("<use")[1:]:
        name = re.search(r"<title>([^:]+):", mark)[1]  # type: ignore[index]
        assert ("large" in mark) == (name == policy.decides)
        assert ("hollow" in mark) == (not policy.of(name).usable)


def test_one_policy_alone_has_a_page(judged: OpeReport, tmp_path: Path) -> None:
    import msgspec

    alone = msgspec.structs.replace(judged, policies=judged.policies[:1], choice=None)
    page = write_ope_page(alone, tmp_path / "page.html").read_text()
    assert "Rank by each estimator" not in page
    assert "Importance weights" in page

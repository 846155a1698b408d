"""Figures of a page as files: what is on the page is in them, in its colours and places."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest

from pdocrl.report import chart, report
from pdocrl.report.chart import SHAPES
from pdocrl.report.vector import SVG, draw, parse_path, pieces, save_figures, standalone


@pytest.fixture
def drawing() -> ET.Element:
    x, y = chart.Axis(0, 10, 40, 320), chart.Axis(0, 1, 180, 20)
    body = chart.axes(x, y, "cost <limit>", "reward") + chart.dots("over", np.array([50.0]), np.array([60.0]))
    body += chart.curve(1, np.array([40.0, 90.0]), np.array([100.0, 30.0]), ends=False)
    body += chart.mark(2, 100, 50, "over it", filled=False, large=True)
    body += chart.moving("limit", chart.upright(0, 20, 180), (70, 0)) + chart.moving("gone", chart.ring(0), None)
    text = str(chart.drawing("one", 200, "A title", "What it shows", body))
    return ET.fromstring(text.replace('class="chart"', f'class="chart" xmlns="{SVG}"', 1))


def test_looks_are_those_of_the_pages_light_theme(drawing):
    by_data = {piece.data: piece for piece in pieces(drawing)}
    line = by_data["M40 100L90 30"]
    assert (line.look["stroke"], line.look["fill"], line.look["stroke-dasharray"]) == ("#905800", "none", "6 2.5")
    mark = by_data[SHAPES[2]]
    assert (mark.x, mark.y, mark.scale) == (100, 50, 1.7)
    assert (mark.look["stroke"], mark.look["fill"], mark.look["fill-opacity"]) == ("#084c73", "#ffffff", ".6")
    assert by_data["reward"].look["fill"] == "#1f2933"
    assert by_data["M0 20V180"].x == 70
    assert not any("9 0a9" in data for data in by_data)  # what is hidden on the page is not in its file


def test_an_svg_file_stands_alone(drawing):
    text = standalone(drawing)
    found = ET.fromstring(text)
    assert found.find(f"{{{SVG}}}title").text == "A title"
    assert [one.text for one in found.iter(f"{{{SVG}}}text")].count("cost <limit>") == 1
    assert not any(mark in text for mark in ("class=", "var(", "<use", "currentColor"))


def test_a_pdf_has_every_piece(drawing):
    (axes,) = draw(drawing).axes
    shown = list(pieces(drawing))
    assert len(axes.patches) == sum(piece.kind == "path" for piece in shown)
    assert [text.get_text() for text in axes.texts] == [piece.data for piece in shown if piece.kind == "text"]


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_are_read_to_their_size(shape):
    ends = parse_path(shape).get_extents()
    assert 3 < -ends.x0 < 5.5
    assert ends.x1 == pytest.approx(-ends.x0, abs=1e-6)
    assert 3 < ends.height / 2 < 5.6


def test_every_drawing_of_a_page_is_saved_twice(make_run, tmp_path):
    page = report(make_run(), film=False)
    made = save_figures(page, tmp_path / "figures")
    assert len(made) == 2 * page.read_text().count('<svg class="chart"')
    assert (tmp_path / "figures" / "data-0.pdf").read_bytes().startswith(b"%PDF")

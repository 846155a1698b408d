"""Marks and colours of many methods."""

from __future__ import annotations

from pdocrl.report.chart import COLOURS, SHAPES, shape_of


def test_no_two_of_twenty_methods_have_both_colour_and_shape_in_common() -> None:
    looks = {(series % COLOURS, shape_of(series)) for series in range(20)}
    assert len(looks) == 20
    assert {shape for _, shape in looks} <= set(range(len(SHAPES)))

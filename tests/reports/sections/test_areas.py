"""Stacked areas: polygons that fill the whole, and their key."""

from __future__ import annotations

import re

import numpy as np

from sorites.reports.sections.confusion import HEIGHT, WIDTH, Band, stacked


def test_bands_lie_on_each_other_and_fill_the_whole() -> None:
    bands = [Band("dog", "#111", (0.75, 0.5, 0.0)), Band("<cat>", "#222", (0.25, 0.5, 1.0))]
    drawn = stacked([0.0, 1.0, 4.0], bands, "what dogs are taken for")
    shapes = [
        np.array([pair.split(",") for pair in points.split()], float)
        for points in re.findall(r'points="([^"]*)"', drawn)
    ]
    areas = [
        abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1))) / 2 for x, y in (shape.T for shape in shapes)
    ]
    assert np.isclose(sum(areas), WIDTH * HEIGHT)
    assert np.isclose(areas[0], WIDTH * HEIGHT * ((0.75 + 0.5) / 2 * 1 + (0.5 + 0) / 2 * 3) / 4)
    assert "75 → 0 %" in drawn
    assert "<cat>" not in drawn

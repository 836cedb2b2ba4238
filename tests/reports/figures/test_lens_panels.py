from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from sorites.lenses import store as lenses
from sorites.reports.figures.lenses import COLOURS, HEIGHT, REACH, curve, panels, right_edge, ticks


@pytest.mark.parametrize(
    ("pitch_um", "end"),
    [(20.0, 50.0), (5.0, 200.0), (1.5625, 500.0), (0.5, 1100.0)],
)
def test_curves_are_shown_to_twice_the_nyquist_frequency_or_as_far_as_they_reach(
    pitch_um: float, end: float
) -> None:
    assert right_edge(500 / pitch_um) == pytest.approx(end)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 50, [0, 10, 20, 30, 40, 50]),
        (0, 159.6, [0, 20, 40, 60, 80, 100, 120, 140]),
        (-0.34, 0.34, np.arange(-3, 4) / 10),
    ],
)
def test_ticks_are_round_numbers_inside_the_axis(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


def test_a_curve_is_cut_where_the_chart_ends() -> None:
    stored = np.linspace(1, 0, 257).astype(np.float32)
    x, y = curve(stored, 49.0)
    assert x[-1] == 49
    np.testing.assert_allclose(y, 1 - x / REACH, atol=1e-6)
    assert curve(stored, 700.0)[0][-1] == REACH


def test_every_field_has_a_line_of_its_colour_that_falls_with_the_contrast() -> None:
    entry = lenses.load(lenses.builtin(), "CookeTriplet")
    step = np.repeat(np.linspace(0.9, 0.1, 5, dtype=np.float32)[:, None, None], 257, axis=2)
    flat = dataclasses.replace(entry, arrays={**entry.arrays, "mtf": np.repeat(step, 3, axis=1)})
    page = np.asarray(panels(flat, 920), np.int32)
    assert page.shape == (HEIGHT, 920, 3)
    rows = [int(abs(page[60:, 150] - colour).sum(-1).argmin()) for colour in COLOURS]
    top, bottom = rows[0], rows[-1]
    np.testing.assert_allclose(rows, np.linspace(top, bottom, 5), atol=1)
    assert bottom - top == pytest.approx(0.8 * (HEIGHT - 44 - 68), abs=1.5)

from __future__ import annotations

import re

import pytest

from sorites.reports.components.lenses import HIGH, LOW, MIDDLE, Sector, colour, edges, rings

FIELDS = (0.0, 0.3, 0.5, 0.7, 0.9)


def test_rings_reach_half_way_to_their_neighbours() -> None:
    assert edges(FIELDS) == [
        pytest.approx(pair) for pair in ((0, 0.15), (0.15, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 1.0))
    ]
    assert edges((0.7,)) == [pytest.approx((0.6, 0.8))]


def test_the_scale_rises_in_lightness() -> None:
    assert (colour(0, 0, 1), colour(0.5, 0, 1), colour(1, 0, 1)) == (LOW, MIDDLE, HIGH)
    assert colour(3, 3, 3) == MIDDLE
    light = [0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (colour(i / 20, 0, 1) for i in range(21))]
    assert light == sorted(light)


def test_three_sectors_of_a_ring_close_the_circle() -> None:
    """Every sector ends where the next begins."""
    row = {"value": 0.5, "n": 3, "low": None, "high": None}
    three = [
        Sector(name, start, start + 60, {0.5: row}) for name, start in (("a", -30), ("b", 90), ("c", 210))
    ]
    made = rings("a map", three, dict.fromkeys("abc", (0.0, 1.0)))
    ends = [
        re.match(r"M(\S+ \S+?)A\S+ \S+ 0 0 0 (\S+ \S+?)L", path) for path in re.findall(r' d="([^"]+)"', made)
    ]
    begin, end = ([one[i] for one in ends if one] for i in (1, 2))
    assert [begin[1], begin[2], begin[0]] == end
    assert "0.500" in three[0].whole(0.5, "lenses")
    assert three[0].whole(0.7, "lenses") == "–"

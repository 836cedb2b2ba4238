"""Levels against NumPy's bins, and invalid edges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sorites.core.errors import SoritesError
from sorites.measures.neighbours import level_of, uniform


def test_uniform_edges_are_equal_steps_between_the_percentiles() -> None:
    edges = uniform(np.arange(101.0), 7)
    np.testing.assert_allclose(edges, [15, 29, 43, 57, 71, 85])


def test_outliers_do_not_stretch_the_levels() -> None:
    plain = np.linspace(0, 1, 1000)
    np.testing.assert_allclose(uniform(np.append(plain, 50.0)), uniform(plain), atol=5e-3)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=50))
def test_levels_are_numpys_bins(degrees: list[float]) -> None:
    edges = np.array([-2.0, 0.0, 0.5, 3.0])
    expected = np.digitize(degrees, [-np.inf, *edges, np.inf])
    assert level_of(np.array(degrees), edges.tolist()).to_list() == expected.tolist()


def test_missing_degrees_have_no_level_and_do_not_move_the_edges() -> None:
    assert level_of(np.array([np.nan, 0.1, np.inf, 0.9]), [0.5]).to_list() == [None, 1, None, 2]
    held = np.linspace(0, 1, 50)
    assert uniform(np.append(held, np.nan)) == uniform(held)


@pytest.mark.parametrize("edges", [[], [0.2, 0.1], [0.1, 0.1], [0.1, float("nan")]])
def test_edges_must_ascend(edges: list[float]) -> None:
    with pytest.raises(SoritesError, match="ascending edges"):
        level_of(np.zeros(3), edges)


@pytest.mark.parametrize(
    ("degrees", "levels", "says"),
    [
        (np.zeros(50), 8, "all 0"),
        (np.arange(3.0), 8, "got 3"),
        (np.full(20, np.nan), 8, "got 0"),
        (np.arange(9.0), 1, "at least 2"),
    ],
)
def test_levels_need_enough_distinct_values(degrees: np.ndarray, levels: int, says: str) -> None:
    with pytest.raises(SoritesError, match=says):
        uniform(degrees, levels)

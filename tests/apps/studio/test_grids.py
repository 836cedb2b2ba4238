"""Grids by name and from files, and their place in the dataset."""

from __future__ import annotations

from pathlib import Path

import pytest

from sorites.apps.studio.references import grid, part_of
from sorites.apps.studio.sheets import layout
from sorites.core import camera_grid
from sorites.core.errors import SoritesError


def test_published_grids_have_their_settings_in_the_papers_order() -> None:
    assert len(grid("val").manual) == 64
    assert grid("test").manual[0] == {"iso": 250, "shutter": 0.25, "aperture": 5.0}
    assert [dict(params) for params, _ in grid("test").under("on")[:27]] == [
        dict(p) for p in camera_grid.manual("test", "on")
    ]
    assert len(list(grid("test").places())) == 64
    assert (part_of("val"), part_of("small")) == ("val", "test")
    assert (len(grid("small").manual), grid("small").shots) == (9, 1)


def test_a_csv_in_the_released_form(tmp_path: Path) -> None:
    file = tmp_path / "grid.csv"
    file.write_text(
        'idx,iso,ss,aperture\n1,200,0""4,f5.0\n2,800,1/20,f8.0\n'.replace('""', '"'), encoding="utf-8"
    )
    assert grid(str(file), shots=0).manual == (
        {"iso": 200, "shutter": 0.4, "aperture": 5.0},
        {"iso": 800, "shutter": 0.05, "aperture": 8.0},
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "0 rows"),
        ("a,b\n1,2\n", "columns idx,iso"),
        ("iso,ss,aperture\n1,never,f5\n", "row 1: expected shutter such as 1/60, got 'never'"),
    ],
)
def test_a_file_that_is_no_grid(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "grid.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SoritesError, match=why):
        grid(str(file))


def test_a_grid_of_automatic_shots_only_has_sheets() -> None:
    """For cameras whose exposure cannot be set, such as video streams."""
    only = grid("auto", shots=2)
    assert [params["mode"] for params, _ in only.places()] == ["auto"] * 4
    assert len(layout(only).tiles) == 4
    with pytest.raises(SoritesError, match="automatic shots only"):
        grid("auto", shots=0)


def test_unknown_name() -> None:
    with pytest.raises(SoritesError, match="no grid named 'tset'"):
        grid("tset")


@pytest.mark.parametrize(
    "text", ["[]", '{"manual": [{"iso": -1, "shutter": 1, "aperture": 1}], "auto": 1, "lights": []}', "{"]
)
def test_a_damaged_settings_file_is_an_error_in_words(tmp_path: Path, text: str) -> None:
    (tmp_path / camera_grid.GRID_FILE).write_text(text, encoding="utf-8")
    with pytest.raises(SoritesError, match=r"settings\.json"):
        camera_grid.captured_grid(tmp_path, "test")

"""How cameras spell settings."""

from __future__ import annotations

import pytest

from sorites.apps.studio.cameras import check_value, differences, format_setting, nearest, number, seconds
from sorites.apps.studio.virtual.camera import APERTURES, ISOS, TIMES
from sorites.core.errors import SoritesError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('0"4', 0.4),
        ('30"', 30.0),
        ('3"2', 3.2),
        ("1/125", 0.008),
        ("0.0125s", 0.0125),
        ("1/0", None),
        ("bulb", None),
        ("", None),
    ],
)
def test_shutter_times(text: str, value: float | None) -> None:
    assert seconds(text) == (None if value is None else pytest.approx(value))


def test_numbers() -> None:
    assert (number("f5.6"), number("f/9"), number("16000"), number("auto"), number("-3")) == (
        5.6,
        9.0,
        16000.0,
        None,
        None,
    )


def test_the_published_grids_are_found_among_a_cameras_values() -> None:
    assert nearest("shutter", 0.4, TIMES) == '0"4'
    assert nearest("shutter", 1 / 1250, TIMES) == "1/1250"
    assert nearest("aperture", 13.0, APERTURES) == "f13"
    assert nearest("iso", 12800, ISOS) == "12800"
    assert nearest("aperture", 4.0, APERTURES) is None
    assert nearest("iso", 100, ("auto",)) is None


def test_a_third_of_a_stop_is_another_setting() -> None:
    asked = {"mode": "manual", "iso": 250, "shutter": 1 / 60, "aperture": 5.0}
    assert differences(asked, {"iso": 250, "shutter": 1 / 62, "aperture": 5.0}) == []
    assert len(differences(asked, {"iso": 320, "shutter": 1 / 60, "aperture": 5.6})) == 2
    assert len(differences(asked, {})) == 3
    assert differences({"mode": "auto", "shot": 1}, {}) == []


def test_words() -> None:
    assert (
        format_setting({"mode": "manual", "iso": 250, "shutter": 1 / 60, "aperture": 5.0})
        == "ISO 250, 1/60 s, f/5"
    )
    with pytest.raises(SoritesError, match="got 'soon'"):
        check_value("shutter", "soon", "grid.csv, row 1")

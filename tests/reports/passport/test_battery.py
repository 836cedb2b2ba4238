"""Batteries as data: the built-in ones can run, and invalid ones are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from sorites.analysis.passport.battery import NAMES, load_battery
from sorites.core import SHIFTS
from sorites.core.errors import SoritesError
from sorites.reports.components.severities import in_words, title
from sorites.reports.passport.numbers import between_words

KINDS = {"optics", "lens", "camera", "noise", "weather", "digital", "context", "ood"}
OF_BOXES = {"optics", "camera", "noise", "weather", "digital", "geometry"}


@pytest.mark.parametrize("name", NAMES)
def test_parts_name_existing_suites_and_no_shift_twice(name: str) -> None:
    battery = load_battery(name)
    assert {part.name for part in battery.parts} >= (OF_BOXES if battery.detectors else KINDS)
    dials = [
        dial.name for part in battery.parts for dial in battery.recipe(part, "lite0", None, None, None).shifts
    ]
    assert len(dials) == len(set(dials))
    assert set(dials) <= set(SHIFTS.names())


def test_batteries_are_pinned() -> None:
    """If the digest changes, raise the version of the battery and record it in the changelog."""
    assert {name: (load_battery(name).version, load_battery(name).digest()) for name in NAMES} == PINNED


PINNED = {
    "short": (1, "592055c83fac6875"),
    "standard": (1, "88098ad08475c25e"),
    "full": (1, "1cc7af281a210559"),
    "boxes": (1, "e7a1be81fefea10e"),
}


def test_a_limit_only_makes_parts_smaller() -> None:
    battery = load_battery("short")
    part = battery.parts[0]
    assert battery.recipe(part, "lite0", None, None, None).limit == 128
    assert battery.recipe(part, "lite0", None, None, 8).limit == 8
    assert battery.recipe(part, "lite0", None, None, 9999).limit == 128
    assert battery.recipe(battery.parts[-1], "lite0", None, None, None).limit == 1000
    assert battery.recipe(part, "lite0", "folder:x", None, None).source == "folder:x"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "version = 0\nminutes = 1\nlimit = 3\n[[parts]]\nname = 'a'\nsuite = 'demo'",
            "version: expected a number above 0, got 0",
        ),
        (
            "version = 1\nminutes = 1\nlimit = 3\n[[parts]]\nname = 'a'\nsuite = 'dmo'",
            "no suite named 'dmo'. Did you mean demo",
        ),
        ("version = 1\nminutes = 1\nlimit = 3\nparts = []", "parts"),
        ("version = 1\nminutes = 1\nlimit = 3\n[[parts]]\nname = '../a'\nsuite = 'demo'", "parts.0.name"),
        (
            (
                "version = 1\nminutes = 1\nlimit = 3\n[[parts]]\nname = 'a'\nsuite = 'demo'\n[[parts]]\nname"
                " = 'a'\nsuite = 'demo'"
            ),
            "two parts have the same name",
        ),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "b.toml"
    path.write_text(text)
    with pytest.raises(SoritesError, match=message):
        load_battery(str(path))


def test_an_unknown_battery_is_refused() -> None:
    with pytest.raises(SoritesError, match="Did you mean short"):
        load_battery("shor")


@pytest.mark.parametrize(
    ("shift", "severity", "words"),
    [
        ("exposure_stops", 1.6, "1.6 stops over-exposed"),
        ("decentre", 29.0, "29 µm of decentre"),
        ("iso_noise", 6.0, "ISO 6400"),
        ("rain", 0.1, "light rain, 2 mm/h"),
        ("rain", 1.0, "heavy rain, 20 mm/h"),
        ("jpeg", 75.0, "JPEG quality 25"),
        ("shot_noise", 0.5, "4 photons at white"),
        ("haze", 0.6931471805599453, "fog, 50 % of light left"),
        ("aperture", 2.0, "f/11, out of focus"),
        ("coma", 3.0, "level 3 of 5"),
        ("unheard_of", 0.25, "severity 0.25"),
    ],
)
def test_severities_in_words(shift: str, severity: float, words: str) -> None:
    assert in_words(shift, severity) == words


def test_intervals_in_words() -> None:
    assert between_words("exposure_stops", 1.0, 2.0) == "1 to 2"
    assert between_words("iso_noise", 5.0, None) == "3200 to beyond"
    assert between_words("jpeg", None, None) == "beyond the dial"
    assert title("exposure_stops_down") == "under-exposure"

"""Severities in words: every registered shift, units of plug-ins, singular and plural."""

from __future__ import annotations

import re

import pytest

from sorites.core import SHIFTS
from sorites.reports.components.severities import in_words, reading, reading_in, severity_text
from sorites.reports.view import RunView, merge


@pytest.mark.parametrize(
    ("shift", "severity", "words"),
    [
        ("jpeg", 82.0, "JPEG quality 18"),
        ("contrast", 0.6, "40 % of the contrast"),
        ("shot_noise", 0.2, "25 photons at white"),
        ("defocus_disk", 3.0, "3 px out of focus"),
        ("defocus_disk", 5.986, "6.0 px out of focus"),
        ("rain", 1.5, "heavy rain, 30 mm/h"),
        ("iso_noise", 6.0, "ISO 6400"),
        ("coma", 2.8, "level 2.8 of 5"),
        ("exposure_stops", 1.0, "1 stop over-exposed"),
        ("rotation", 1.0, "1 degree"),
        ("rotation", 10.0, "10 degrees"),
        ("crop", 0.05, "5 % of the side"),
        ("translation", 0.125, "12.5 % of the side"),
        ("decentre", 40.0, "40 µm of decentre"),
        ("sharpen", 0.5, "gain 0.5"),
        ("a captured one", 2.0, "severity 2"),
    ],
)
def test_a_severity_reads_as_words(shift: str, severity: float, words: str) -> None:
    assert in_words(shift, severity) == words


@pytest.mark.parametrize(
    ("unit", "severity", "words"),
    [
        ("", 2.5, "severity 2.5"),
        ("px", 2.5, "2.5 px"),
        ("um", 3.0, "3 µm"),
        ("100 - quality", 82.0, "quality 18"),
        ("1 - c", 0.6, "c 0.4"),
        ("20 mm/h", 2.0, "40 mm/h"),
        ("fraction lost", 0.25, "25 % lost"),
        ("share", 0.5, "50 %"),
        ("stops", 1.0, "1 stop"),
        ("sigma", 0.38, "sigma 0.38"),
        ("level", 3.0, "level 3"),
    ],
)
def test_a_unit_of_a_plug_in_reads_as_words(unit: str, severity: float, words: str) -> None:
    assert reading_in(unit).text(severity) == words


def test_no_registered_shift_shows_a_formula_or_repeats_itself() -> None:
    for name in SHIFTS.names():
        for severity in SHIFTS.get(name).levels:
            words = in_words(name, severity)
            assert not re.search(r"\d - |1 - |{|}", words), words
            assert not re.search(r"\b(\w{3,}) \1\b", words), words
        assert "{" not in reading(name).axis


def test_a_page_writes_severities_of_its_own_dials_too(run: RunView) -> None:
    view = merge([run])
    assert severity_text(view, "jpeg", 75.0) == "JPEG quality 25"
    assert severity_text(view, "a captured one", 2.0) == "severity 2"
    assert severity_text(view, "jpeg", None) == "–"

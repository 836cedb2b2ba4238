"""The gallery of a comparison: which flipped images are shown, and in which order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import polars as pl

from sorites.reports.comparison import first_flips


def compared(flips: list[tuple[str, str, float, bool]]) -> Any:
    """Return a comparison with flipped images (sample, shift, severity, lost)."""
    rows = [
        {"source": "s", "sample_id": sample, "shift": shift, "severity": severity, "lost": lost}
        for sample, shift, severity, lost in flips
    ]
    settings = [
        {"shift": shift, "severity": severity}
        for shift, severities in (("blur", (1.0, 2.0, 3.0)), ("noise", (10.0, 20.0, 30.0)))
        for severity in severities
    ]
    return SimpleNamespace(changed=pl.DataFrame(rows), settings=pl.DataFrame(settings))


def test_both_directions_are_shown_in_turn_although_one_is_rare() -> None:
    many = [(f"gained{i}", "blur", 1.0, False) for i in range(100)]
    few = [(f"lost{i}", "noise", 30.0, True) for i in range(5)]
    shown = first_flips(compared(many + few), 8)
    assert [row["lost"] for row in shown] == [True, False] * 4
    assert sum(row["lost"] for row in first_flips(compared(many + few), 20)) == 5
    assert len(first_flips(compared(many + few), 20)) == 20


def test_the_lowest_severity_in_settings_of_its_shift_comes_first() -> None:
    flips = [
        ("a", "blur", 3.0, True),
        ("b", "noise", 10.0, True),
        ("c", "noise", 20.0, True),
        ("d", "blur", 1.0, True),
        ("a", "noise", 20.0, True),
    ]
    shown = first_flips(compared(flips), 12)
    assert [row["sample_id"] for row in shown[:2]] in (["b", "d"], ["d", "b"])
    assert {row["sample_id"] for row in shown[2:4]} == {"a", "c"}
    assert all(row["severity"] == 20.0 for row in shown[2:4]), "each sample is shown at its first flip"
    assert [(row["sample_id"], row["shift"]) for row in shown[4:]] == [("a", "blur")], "then other shifts"
    assert first_flips(compared(flips[::-1]), 12) == shown, "the order of rows does not matter"

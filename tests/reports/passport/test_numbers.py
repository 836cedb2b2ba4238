"""Each headline of a passport is recomputed from the table, as its sentence defines it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.metrics.conftest import frame, row

from sorites.analysis.passport.document import Number, Passport
from sorites.core.table import read
from sorites.reports.passport.numbers import _extremes, _mean_drop, _settings
from sorites.reports.passport.page import DEFINITIONS
from sorites.reports.passport.passport import passport

BATTERY = """
version = 1
minutes = 1
limit = 12
scorers = ["msp"]
[[parts]]
name = "noise"
suite = "noisy.toml"
[[parts]]
name = "light"
suite = "light.toml"
limit = 9
[[parts]]
name = "again"
suite = "noisy.toml"
shifts = ["jpeg"]
"""


@pytest.fixture
def found(home: Path) -> tuple[Passport, Mapping[str, list[dict[str, Any]]]]:
    (home / "three.toml").write_text(BATTERY)
    made = passport("python:guessing:logits", battery="three.toml", out="p")
    parts = ("noise", "light", "again")
    return made, {part: read(home / "p/runs" / part).collect().to_dicts() for part in parts}


def labels(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    return (one for one in rows if one["output"] == "label" and one["correct"] is not None)


@pytest.mark.slow
def test_headlines_are_their_sentences(found: tuple[Passport, Any]) -> None:
    made, parts = found
    clean: dict[str, list[bool]] = defaultdict(list)
    by_shift: dict[tuple[str, str], dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for part, rows in parts.items():
        for one in labels(rows):
            if one["shift"] == "clean":
                clean[one["sample_id"]].append(one["correct"])
            else:
                by_shift[part, one["shift"]][one["sample_id"]].append(one["correct"])
    listed = {(dial.part, dial.shift) for dial in made.dials} | {(g.part, g.shift) for g in made.grids}
    assert set(by_shift) == listed, "every shift that was run is listed"
    assert made.clean.value == pytest.approx(fmean(map(fmean, clean.values())))
    assert made.clean.n == len(clean) == 12
    means = [fmean(map(fmean, samples.values())) for samples in by_shift.values()]
    assert made.shifted.value == pytest.approx(fmean(means))
    assert made.shifted.n == 12
    assert made.knows is not None
    assert {kept.n for kept in made.knows.risk} == {12}
    everything = next(kept for kept in made.knows.risk if kept.coverage == 1)
    wrong = [not one["correct"] for rows in parts.values() for one in labels(rows) if one["shift"] != "clean"]
    assert everything.value == pytest.approx(fmean(wrong)), "no clean image is counted"


@pytest.mark.slow
def test_weakest_are_those_with_the_greatest_area(found: tuple[Passport, Any]) -> None:
    made, parts = found
    for dial in made.dials:
        curve: dict[float, list[bool]] = defaultdict(list)
        for one in labels(parts[dial.part]):
            if one["shift"] in ("clean", dial.shift):
                curve[0.0 if one["shift"] == "clean" else one["severity"]].append(one["correct"])
        points = sorted((severity, fmean(right)) for severity, right in curve.items())
        area = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(points))
        assert dial.drop.value == pytest.approx(points[0][1] - area / points[-1][0])
        chance = dial.half.chance
        assert chance == pytest.approx(1 / 4)
        assert not dial.half.assumed
    order = sorted((d for d in made.dials if (d.drop.value or 0) > 0), key=lambda d: -(d.drop.value or 0))
    assert list(made.weakest) == [dial.shift for dial in order[:3]]


def test_more_levels_do_not_make_a_dial_weaker() -> None:
    def drop(severities: list[float]) -> Number:
        rows = [row(f"p{i}", "clean", 0.0, True) for i in range(40)]
        rows += [row(f"p{i}", "blur", s, i >= 40 * s / 4) for s in severities for i in range(40)]
        return _mean_drop(frame(rows).lazy(), "blur")

    few, many = drop([2.0, 4.0]), drop([1.0, 2.0, 2.5, 3.0, 3.5, 4.0])
    assert few.value == pytest.approx(0.5)
    assert many.value == pytest.approx(0.5)
    assert few.n == 40
    assert few.low is not None
    assert few.low < 0.5


def test_a_shift_that_changes_nothing_has_an_interval() -> None:
    shifts = (("clean", 0.0), ("blur", 1.0), ("blur", 2.0))
    found = _mean_drop(frame(row(f"p{i}", *at, i > 3) for i in range(40) for at in shifts).lazy(), "blur")
    assert found.value == pytest.approx(0)
    assert found.low is not None
    assert found.high is not None
    assert -0.1 < found.low < 0 < found.high < 0.1


def test_the_best_of_many_equal_settings_is_not_called_better() -> None:
    """Plain intervals of the best and the worst setting leave out the accuracy of all in 91 % of draws."""
    rng, held = np.random.default_rng(2), []
    rows = frame(row(f"p{i}", "camera", None, True, params=f"{k}") for i in range(30) for k in range(27))
    for _ in range(25):
        drawn = rows.with_columns(correct=pl.Series(rng.random(len(rows)) < 0.7))
        worst, best = _extremes(_settings(drawn.lazy()))
        held.append(worst["low"] <= 0.7 <= worst["high"] and best["low"] <= 0.7 <= best["high"])
        assert worst["n"] == best["n"] == 30
    assert np.mean(held) >= 0.8


def test_the_document_says_the_same_as_the_page() -> None:
    text = " ".join((Path(__file__).parents[3] / "docs/passport.md").read_text().split()).replace("**", "")
    for sentence in DEFINITIONS[:2]:
        assert sentence.rstrip(".") in text

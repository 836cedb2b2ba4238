"""The sections on attributes, lines and filters: their content, and their absence."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import polars as pl
import pytest

from sorites.core import table
from sorites.reports.section import Section, sections
from sorites.reports.sections.attributes import MAX_CLASSES_UNFOLDED, partitions, settings_map
from sorites.reports.sections.comparison import on_line
from sorites.reports.sections.generated import filtering
from sorites.reports.view import RunView, View, merge

MODELS = ("a", "b", "c", "d")


def attrs(category: str, night: bool, snow: bool) -> list[dict[str, Any]]:
    told = (
        ("class", category, None),
        ("time", "night" if night else "day", not night),
        ("location", "snow" if snow else "grass", not snow),
    )
    return [dict(zip(("key", "value", "common"), one, strict=True)) for one in told]


def view(classes: int = 3, drop: str = "", ahead: float = 0.02) -> View:
    """Each object by day and night, in grass and snow; uncommon images are misclassified more often."""
    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    for m, model in enumerate(MODELS):
        for i, night, snow in itertools.product(range(30), (False, True), (False, True)):
            level = night + snow
            where: dict[str, Any] = {"shift": "context" if level else "clean", "severity": float(level)}
            where["params"] = json.dumps({"night": night, "snow": snow})
            who = {
                "run_id": "r",
                "source": "s",
                "sample_id": f"p{i}",
                "image_id": f"{i}{night}{snow}",
                "model": model,
                "seed": 0,
            }
            said = {"output": "label", "label": 0, "pred": 1, "conf": 0.5, "probe": False}
            right = bool(rng.random() < 0.9 - 0.2 * level + ahead * m)
            rows.append(
                {**who, **where, **said, "attrs": attrs(f"k{i % classes}", night, snow), "correct": right}
            )
    frame = table.rows(rows)
    if drop:
        frame = frame.with_columns(pl.lit(None, frame.schema[drop]).alias(drop))

    def image(sample_id: str, shift: str, setting: Any) -> np.ndarray:
        return np.full((20, 20, 3), 90, np.uint8)

    return merge([RunView(frame.lazy(), "context", None, None, image)])


def body(section: Section | None) -> str:
    assert section is not None
    return str(section.body)


def test_partitions_show_curves_gaps_and_images() -> None:
    text = body(partitions(view()))
    assert all(words in text for words in ("P0", "location + time", "points", "P2: night, snow"))
    assert text.count("<img") == 6 * 3


def test_a_map_marks_what_is_uncommon_and_gives_the_gap() -> None:
    text = body(settings_map(view()))
    assert all(words in text for words in ("#e69f00", "#0072b2", "gap"))
    assert "<details" not in text
    assert "26 classes by location" in body(settings_map(view(classes=MAX_CLASSES_UNFOLDED + 1)))


def test_lines_need_four_models() -> None:
    assert "slope" in body(on_line(view(ahead=-0.15)))
    assert on_line(view()) is None, "models that differ by chance have no line"
    assert on_line(merge([RunView(view(ahead=-0.15).table.filter(pl.col("model") != "d"), "x")])) is None


def test_a_filter_shows_what_it_took_out() -> None:
    shown = view()
    judged = shown.table.with_columns(valid=(pl.col("severity") < 2) | (pl.col("sample_id") < "p2"))
    text = body(filtering(merge([RunView(judged, "x")])))
    assert "Images that the filter kept" in text
    assert '"dash":"dot"' in text.replace(" ", "")
    assert filtering(shown) is None
    assert filtering(merge([RunView(shown.table.with_columns(valid=pl.lit(True)), "x")])) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["partitions", "settings_map", "filtering"])
def test_sections_stay_away_without_settings(name: str) -> None:
    assert name not in sections(view(drop="attrs"))


@pytest.mark.slow
def test_several_images_at_one_stop_are_no_strip() -> None:
    assert "strips" not in sections(view())

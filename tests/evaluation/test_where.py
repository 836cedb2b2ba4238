"""Conditions as they are typed, against the same rows chosen by hand."""

from __future__ import annotations

import polars as pl
import pytest

from sorites.analysis.where import where
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.table import rows


def attrs(weather: str) -> list[dict[str, object]]:
    return [
        {"key": "time", "value": "day", "common": True},
        {"key": "weather", "value": weather, "common": False},
    ]


TABLE = rows(
    [
        {
            "image_id": "a",
            "shift": "clean",
            "severity": 0.0,
            "model": "lite0",
            "correct": True,
            "attrs": attrs("rain"),
        },
        {
            "image_id": "b",
            "shift": "coma",
            "severity": 1.0,
            "level": 1,
            "model": "lite0",
            "correct": True,
            "attrs": attrs("sun"),
        },
        {
            "image_id": "c",
            "shift": "coma",
            "severity": 3.0,
            "level": 3,
            "model": "onnx:a b.onnx",
            "correct": False,
        },
        {
            "image_id": "d",
            "shift": "camera",
            "params": '{"iso": 800, "light": "on"}',
            "model": "lite0",
            "correct": None,
        },
        {
            "image_id": "e",
            "shift": "camera",
            "params": '{"iso": 100, "light": "off"}',
            "model": "lite0",
            "correct": True,
        },
    ]
)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("shift = coma", "bc"),
        ("shift = coma and level >= 3", "c"),
        ("shift == coma AND NOT level >= 3", "b"),
        ("shift != coma", "ade"),
        ("shift in (coma, clean) and severity < 3", "ab"),
        ("shift = clean or shift = coma and level = 1", "ab"),
        ("(shift = clean or shift = coma) and severity > .5", "bc"),
        ("model = 'onnx:a b.onnx'", "c"),
        ('model="onnx:a b.onnx"', "c"),
        ("correct = true", "abe"),
        ("correct = false", "c"),
        ("correct is null", "d"),
        ("level is not null", "bc"),
        ("params.iso >= 400", "d"),
        ("params.light = off", "e"),
        ("params.iso in (100, 200)", "e"),
        ("attrs.weather = rain", "a"),
        ("attrs.weather = rain or attrs.time = day", "ab"),
        ("severity = 1e0", "b"),
        ("level != 3", "abde"),
        ("not level = 3", "abde"),
        ("not level >= 3", "abde"),
        ("attrs.weather != rain", "bcde"),
    ],
)
def test_conditions_choose_rows(text: str, ids: str) -> None:
    assert "".join(where(TABLE, text).select(pl.col("image_id").sort()).collect()["image_id"]) == ids


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a column .*'the end'"),
        ("shift", "expected one of .*'the end'"),
        ("shift coma", "in, is .*'coma'"),
        ("shift = coma level", "expected and, or.*'level'"),
        ("shift = ", "expected a value .*'the end'"),
        ("(shift = coma", r"expected \) .*'the end'"),
        ("shift = coma and", "expected a column .*'the end'"),
        ("= 3", "expected a column .*'='"),
        ("level >= high", "level is numeric, got 'high'"),
        ("shift > coma", "shift is text"),
        ("correct = 1", "correct is boolean"),
        ("level ! 3", "cannot parse"),
        ("shift in coma", r"expected \( .*'coma'"),
        ("level is 3", "expected null .*'3'"),
        ("shift = 'coma", "cannot parse"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, said: str) -> None:
    with pytest.raises(SoritesError, match=said):
        where(TABLE, text)


def test_names_that_are_not_there_are_answered_with_those_that_are() -> None:
    with pytest.raises(UnknownName, match="column named 'levl'. Did you"):
        where(TABLE, "levl = 3")
    with pytest.raises(UnknownName, match="'comma'.*coma.*camera, clean"):
        where(TABLE, "shift = comma")
    with pytest.raises(UnknownName, match="no column named 'attrs'"):
        where(TABLE, "attrs = 3")


def test_no_text_is_ever_run(tmp_path: object) -> None:
    with pytest.raises(SoritesError):
        where(TABLE, "__import__('os').system('true') = 1")

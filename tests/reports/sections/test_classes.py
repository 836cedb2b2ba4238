"""The section on classes: its numbers, order, length, and absence."""

from __future__ import annotations

import csv
import io
import re
from urllib.parse import unquote

import polars as pl
import pytest

from sorites.core import table
from sorites.reports.components.lenses import SHOWN_ROWS
from sorites.reports.sections.classes import class_rows, classes
from sorites.reports.view import RunView, merge


def test_every_class_has_what_its_rows_say_the_greatest_loss_first(run: RunView, rows: pl.DataFrame) -> None:
    found = class_rows(merge([run])).filter(model="lite0")
    assert found["drop"].is_sorted(descending=True)
    own = rows.filter(pl.col("model") == "lite0", pl.col("error").is_null(), ~pl.col("probe"))
    for row in found.to_dicts():
        clean = own.filter(pl.col("label") == row["label"], pl.col("shift") == "clean")
        assert (row["clean"], row["n"]) == (pytest.approx(clean["correct"].mean()), 12)
        assert row["clean_low"] < row["clean"] < row["clean_high"] or row["clean"] in (0, 1)


def test_names_and_numbers_are_in_the_table_and_the_csv(run: RunView) -> None:
    section = classes(merge([run]))
    assert section is not None
    assert "<b>tank" not in section.body
    link = re.search(r'href="data:text/csv;charset=utf-8,([^"]+)"', section.body)
    assert link is not None
    told = list(csv.DictReader(io.StringIO(unquote(link[1]))))
    assert {row["class"] for row in told} == {"tabby", "tulip", "teapot", "trombone", "<b>tank & tower</b>"}
    assert len(told) == 5 * 3
    assert float(told[0]["drop"]) == pytest.approx(
        float(told[0]["clean"]) - float(told[0]["shifted"]), abs=0.05
    )


def many(n: int) -> RunView:
    shared = {
        "run_id": "r",
        "source": "s",
        "model": "m",
        "output": "label",
        "probe": False,
        "seed": 0,
        "known": True,
    }
    made = [
        {
            **shared,
            "sample_id": f"{i}",
            "image_id": f"{i}{shift}",
            "shift": shift,
            "severity": float(shift != "clean"),
            "label": i,
            "pred": 0,
            "correct": i % 2 == 0 and shift == "clean",
        }
        for i in range(n)
        for shift in ("clean", "jpeg")
    ]
    return RunView(table.rows(made).lazy(), "many")


@pytest.mark.slow
def test_a_thousand_classes_make_no_longer_page_than_forty() -> None:
    section = classes(merge([many(3000)]))
    assert section is not None
    assert f"The first {SHOWN_ROWS} of 3\u202f000 classes are shown" in section.body
    assert "<details" in section.body
    assert len(section.body) < 700_000


def test_classes_of_one_image_are_folded(run: RunView) -> None:
    lone, whole = classes(merge([many(6)])), classes(merge([run]))
    assert lone is not None
    assert whole is not None
    assert "<details" in lone.body
    assert "No class has more than 1 image" in lone.lead
    assert "<details" not in whole.body
    assert "No class" not in whole.lead


def test_one_class_has_no_breakdown() -> None:
    assert classes(merge([many(1)])) is None

"""The section on what was evaluated: labels, reasons for missing ones, and assumed preprocessing."""

from __future__ import annotations

import dataclasses
from typing import Any

import polars as pl

from sorites.reports.page import render, sentences
from sorites.reports.sections.data import assumed_note, data
from sorites.reports.view import RunView, merge

INPUT = {
    "size": [224, 224],
    "mean": [0.5] * 3,
    "std": [0.5] * 3,
    "crop_pct": 0.9,
    "filter": "bicubic",
    "mode": "center",
}


def having(run: RunView, inputs: dict[str, dict[str, Any]], **suite: Any) -> RunView:
    """The run with these inputs of its models, and with changes of its suite."""
    assert run.record is not None
    changed = run.record.suite.model_copy(update=suite)
    return dataclasses.replace(run, record=run.record.model_copy(update={"inputs": inputs, "suite": changed}))


def body(run: RunView) -> str:
    section = data(merge([run]))
    assert section is not None
    return section.body


def test_every_image_with_a_label_needs_no_reason(run: RunView) -> None:
    assert "no label" not in body(run)


def test_images_outside_class_folders_have_their_reason(run: RunView) -> None:
    first = pl.col("sample_id") == run.table.collect()["sample_id"].min()
    table = run.table.with_columns(
        label=pl.when(first).then(None).otherwise("label"),
        source=pl.lit("folder"),
        sample_id=pl.when(first).then(pl.lit("holiday.png")).otherwise("sample_id"),
    )
    text = body(dataclasses.replace(having(run, {}, source="folder:photos"), table=table))
    assert "1 sample of folder has no label" in text
    assert "in no class folder" in text


def test_a_model_without_a_class_is_named(run: RunView) -> None:
    table = run.table.with_columns(known=pl.col("model") != "lite1")
    text = body(dataclasses.replace(run, table=table))
    assert "class that lite1 does not have" in text
    assert "class that lite0 does not have" not in text


def test_assumed_preprocessing_is_marked_in_the_section_and_at_the_top(run: RunView) -> None:
    assumed = having(run, {"lite0": INPUT, "lite1": {**INPUT, "assumed": ["mean", "std"]}})
    view = merge([assumed])
    assert "lite1 (mean, std)" in assumed_note(view)
    assert "lite0" not in assumed_note(view)
    page = render(view)
    assert page.index("lite1 (mean, std)") < page.index("<main")
    assert body(assumed).count('class="assumed"') == 1
    assert assumed_note(merge([having(run, {"lite0": INPUT})])) == ""


def test_the_licence_of_photographs_is_on_the_page(run: RunView) -> None:
    table = run.table.with_columns(source=pl.lit("foolbox"))
    assert "MIT" in body(dataclasses.replace(having(run, {}, source="foolbox"), table=table))


def test_a_page_without_labels_says_that_nothing_can_be_judged(run: RunView) -> None:
    bare = run.table.with_columns(label=pl.lit(None, pl.Int32), correct=pl.lit(None, pl.Boolean))
    answer, *_ = sentences(merge([dataclasses.replace(run, table=bare)]))
    assert "no prediction can be judged" in answer

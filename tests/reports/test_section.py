from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl
import pytest

from sorites.core.errors import SoritesError
from sorites.reports.components.markup import Html
from sorites.reports.section import SECTIONS, Section, View, add_section, sections
from sorites.reports.view import RunView, merge

ALL = [
    "headline",
    "curves",
    "failure",
    "ranks",
    "classes",
    "confusions",
    "strips",
    "calibration",
    "abstain",
    "corruption",
    "data",
    "numbers",
    "mistakes",
]


def names(run: RunView) -> list[str]:
    plain = None if run.image is None else lambda *_: np.zeros((4, 4, 3), np.uint8)
    return list(sections(merge([dataclasses.replace(run, image=plain)])))


def test_a_full_run_has_all_sections_in_order(run: RunView) -> None:
    assert names(run) == ALL


@pytest.mark.slow
def test_sections_without_rows_do_not_appear(run: RunView) -> None:
    alone = dataclasses.replace(run, table=run.table.filter(model="lite0"))
    assert "ranks" not in names(alone)
    assert "strips" not in names(dataclasses.replace(run, image=None))
    assert "mistakes" not in names(
        dataclasses.replace(run, table=run.table.filter(pl.col("error").is_null()))
    )
    unsure = dataclasses.replace(run, table=run.table.with_columns(conf=pl.lit(None, pl.Float32)))
    assert not {"calibration", "abstain"} & set(names(unsure))
    bare = dataclasses.replace(run, record=None)
    assert "corruption" not in names(bare)


@pytest.mark.slow
def test_clean_images_alone_have_no_curves(run: RunView) -> None:
    assert names(dataclasses.replace(run, table=run.table.filter(shift="clean"))) == [
        "headline",
        "classes",
        "calibration",
        "abstain",
        "data",
        "numbers",
    ]


@pytest.mark.slow
def test_a_grid_without_a_line_is_still_counted(run: RunView) -> None:
    grid = run.table.filter(shift="clean").with_columns(
        shift=pl.lit("iso"), severity=pl.lit(None, pl.Float64)
    )
    assert names(dataclasses.replace(run, table=grid)) == [
        "headline",
        "classes",
        "calibration",
        "abstain",
        "data",
        "numbers",
    ]


@pytest.mark.slow
def test_an_empty_table_has_no_sections(run: RunView) -> None:
    assert names(dataclasses.replace(run, table=run.table.head(0))) == []


@pytest.mark.slow
def test_a_section_is_added_by_a_function(run: RunView) -> None:
    def heat(view: View) -> Section | None:
        return Section("Heat", Html("<p>warm</p>"), "Heat")

    add_section(order=15)(heat)
    try:
        assert names(run)[:3] == ["headline", "heat", "curves"]
        with pytest.raises(SoritesError, match="taken"):
            add_section(order=15)(heat)
    finally:
        del SECTIONS._objects["heat"]

"""Calibration: few images are pooled into few bins, and too few give no curve."""

from __future__ import annotations

import dataclasses

import polars as pl

from sorites.reports.sections.confidence import IMAGES_PER_BIN, binned, calibration
from sorites.reports.view import UNTOUCHED, RunView, merge


def test_bins_are_as_many_as_the_images_fill(run: RunView) -> None:
    many, few = (merge([dataclasses.replace(run, table=rows)]) for rows in (run.table, of_first(run, 12)))
    assert binned(few, UNTOUCHED)["bin"].n_unique() < binned(many, ~UNTOUCHED)["bin"].n_unique()
    assert float(binned(few, UNTOUCHED)["n"].median() or 0) >= IMAGES_PER_BIN  # type: ignore[arg-type]


def test_a_single_point_is_not_drawn(run: RunView) -> None:
    section = calibration(merge([dataclasses.replace(run, table=of_first(run, 6))]))
    assert section is not None
    assert "Clean images" not in section.body
    assert "Shifted images" in section.body


def of_first(run: RunView, samples: int) -> pl.LazyFrame:
    return run.table.filter(pl.col("sample_id").is_in([f"object-{i:02d}.png" for i in range(samples)]))

from __future__ import annotations

import dataclasses
import re

import polars as pl
import pytest

from sorites.reports.sections.ood.scores import BINS, TALL, WIDE, histograms
from sorites.reports.view import RunView, merge


def test_a_card_a_model_and_scorer_with_two_drawings(ood_run: RunView) -> None:
    section = histograms(merge([ood_run]))
    assert section is not None
    assert section.body.count("<svg") == 2 * 3 * 2
    assert section.body.count("<article") == 6
    assert re.findall(r"data-pick=\"(.*?)\"", section.body) == ["msp", "energy", "&lt;b&gt;knn&lt;/b&gt;"]
    assert "clean (90 images)" in section.body
    assert "shifted (270 images)" in section.body


def test_every_pool_has_the_same_area(ood_run: RunView) -> None:
    section = histograms(merge([ood_run]))
    assert section is not None
    first = section.body.split("</svg>")[0]
    areas = []
    for path in re.findall(r'd="M0,\d+ (.*?) L\d+,\d+Z"', first):
        heights = [TALL - float(y) for _, y in re.findall(r"L([\d.]+),([\d.]+)", path)][::2]
        assert len(heights) == BINS
        areas.append(sum(heights) * WIDE / BINS)
    assert len(areas) == 3
    assert areas == pytest.approx([areas[0]] * 3, rel=0.02)


def test_a_single_pool_is_not_drawn(ood_run: RunView, run: RunView) -> None:
    assert histograms(merge([run])) is None
    unknown = dataclasses.replace(ood_run, table=ood_run.table.filter(~pl.col("known")))
    assert histograms(merge([unknown])) is None

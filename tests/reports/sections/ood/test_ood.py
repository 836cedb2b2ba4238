from __future__ import annotations

import dataclasses
import re

import polars as pl
import pytest
from tests.reports.texts import share

from sorites import metrics
from sorites.reports.sections.ood.detection import ood
from sorites.reports.view import RunView, merge


def captions(run: RunView) -> list[str]:
    section = ood(merge([run]))
    return [] if section is None else re.findall(r"<caption>(.*?)</caption>", section.body)


def test_each_framework_has_its_table(ood_run: RunView) -> None:
    found = captions(ood_run)
    assert [text.split(" ")[0] + " " + text.split(" ")[1] for text in found] == [
        "By label:",
        "AUROC and",
        "By correctness:",
        "AUROC against",
        "Correlation of",
    ]


def test_numbers_are_the_metrics_with_interval_and_n(ood_run: RunView) -> None:
    section = ood(merge([ood_run]))
    assert section is not None
    row = metrics.auroc(ood_run.table).filter(model="lite1", scorer="energy").row(0, named=True)
    assert share(row) in section.body
    line = re.search(r"<tr><th[^>]*>lite1</th><td[^>]*>energy</td>.*?</tr>", section.body)
    assert line is not None
    tail = re.findall(r'<td class="num">([\d\u202f]+)</td>', line.group())
    assert tail == [str(row["id"]), str(row["ood"]), str(row["missing"])]


def test_near_comes_before_far_and_shifted_last(ood_run: RunView) -> None:
    section = ood(merge([ood_run]))
    assert section is not None
    places = [section.body.index(f">{name}</th>") for name in ("near S-OOD", "far S-OOD", "C-OOD")]
    assert places == sorted(places)


@pytest.mark.slow
def test_missing_inputs_leave_the_section_out(ood_run: RunView, run: RunView) -> None:
    assert captions(run) == []
    known = dataclasses.replace(ood_run, table=ood_run.table.filter(pl.col("known")))
    assert [text[:10] for text in captions(known)] == ["By correct", "Correlatio"]
    clean = dataclasses.replace(ood_run, table=ood_run.table.filter(pl.col("shift") == "clean"))
    assert [text[:8] for text in captions(clean)] == ["By label", "AUROC an", "By corre"]


def test_near_and_far_stand_together_averaged_over_sets_and_pooled(ood_run: RunView) -> None:
    section = ood(merge([ood_run]))
    assert section is not None
    table = next(part for part in section.body.split("<table") if "each weighted equally" in part)
    heads = re.findall(r"(near|far) (AUROC|FPR95)", table)
    assert heads == [(group, name) for group in ("near", "far") for name in ("AUROC", "FPR95")]
    for average in ("sets", "images"):
        found = metrics.near_far(ood_run.table, average=average)
        one = found.filter(model="lite1", scorer="energy", group="far", metric="auroc").row(0, named=True)
        assert f"{100 * one['value']:.1f}" in table

"""Figure 8 of ImageNet-ES, second half: FPR of each OOD set, per scorer, in both conventions."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import polars as pl
import pytest
from tests.reports import worlds

from sorites.reports.sections.ood.detection import ood_sets
from sorites.reports.view import RunView, merge


def cards(run: RunView) -> dict[str, str]:
    return dict(re.findall(r"<h3>(.*?)</h3>(.*?)</article>", ood_sets(merge([run]))))


def test_near_sets_come_before_far_ones_with_pooled_groups_last(es_run: RunView) -> None:
    found = cards(es_run)
    assert list(found)[:2] == ["lite0 · FPR95, OOD positive", "lite0 · FPR95, in-distribution positive"]
    heads = re.findall(r'<th scope="col">(.*?)(?:<|</th>)', found["lite0 · FPR95, OOD positive"])
    assert heads == ["scorer", "ninco", "ssb_hard", "all near", "inaturalist", "textures", "all far"]
    assert "n = 40" in found["lite0 · FPR95, OOD positive"]


def test_numbers_are_those_of_clean_and_right_images_against_each_set(es_run: RunView) -> None:
    rows = es_run.table.filter(
        pl.col("output") == "ood", pl.col("model") == "lite0", pl.col("shift") == "clean"
    ).collect()
    text = cards(es_run)["lite0 · FPR95, OOD positive"]
    for scorer in worlds.SCORERS:
        mine = rows.filter(scorer=scorer)
        in_distribution = mine.filter("correct")["score"].to_numpy()
        line = re.search(rf'<th scope="row">{scorer}</th>(.*?)</tr>', text)
        assert line is not None
        shown = re.findall(r">(\d+)(?:<small>(\d+)–(\d+)</small>)?</td>", line.group())
        assert len(shown) == 6
        for place, name in ((0, "ninco"), (1, "ssb_hard"), (3, "inaturalist"), (4, "textures")):
            ood = mine.filter(source=name)["score"].to_numpy()
            flag = max(t for t in ood if np.mean(ood >= t) >= 0.95)
            assert shown[place][0] == f"{100 * np.mean(in_distribution >= flag):.0f}"
            assert shown[place][1:] == ("", ""), "forty images do not bracket the threshold"
        for pooled in (shown[2], shown[5]):
            assert int(pooled[1]) <= int(pooled[0]) <= int(pooled[2])
    assert "too few images for an interval" in text
    assert "A number without an interval has too few images" in text


def test_without_a_verdict_clean_images_of_known_classes_are_in_distribution(graded_run: RunView) -> None:
    found = cards(graded_run)
    heads = re.findall(r'<th scope="col">(.*?)(?:<|</th>)', found["lite0 · FPR95, in-distribution positive"])
    assert heads == ["scorer", "imagenet21k", "syn_is"]
    assert "300 clean images of known classes" in found["lite0 · FPR95, in-distribution positive"]


def test_one_set_with_two_groups_has_a_column_for_each(ood_run: RunView) -> None:
    heads = re.findall(r'<th scope="col">(.*?)(?:<|</th>)', cards(ood_run)["lite0 · FPR95, OOD positive"])
    assert heads == ["scorer", "all near", "all far"]


def test_one_set_of_one_group_is_not_repeated(es_run: RunView, run: RunView) -> None:
    alone = es_run.table.filter(pl.col("source").is_in(["imagenet_es", "textures"]))
    assert ood_sets(merge([dataclasses.replace(es_run, table=alone)])) == ""
    assert ood_sets(merge([run])) == ""


def test_other_runs_compare_with_all_clean_images_of_known_classes(es_run: RunView) -> None:
    moved = pl.col("source").replace({"imagenet_es": "mine"})
    text = cards(dataclasses.replace(es_run, table=es_run.table.with_columns(moved)))[
        "lite0 · FPR95, OOD positive"
    ]
    rows = es_run.table.filter(
        pl.col("output") == "ood", pl.col("model") == "lite0", pl.col("shift") == "clean"
    ).collect()
    for scorer in worlds.SCORERS:
        mine = rows.filter(scorer=scorer)
        known = mine.filter(source="imagenet_es")["score"].to_numpy()
        ood = mine.filter(source="textures")["score"].to_numpy()
        flag = max(t for t in ood if np.mean(ood >= t) >= 0.95)
        line = re.search(rf'<th scope="row">{scorer}</th>(.*?)</tr>', text)
        assert line is not None
        shown = re.findall(r">(\d+)(?:<small>(\d+)–(\d+)</small>)?</td>", line.group())
        assert int(shown[4][0]) == pytest.approx(100 * np.mean(known >= flag), abs=0.501)

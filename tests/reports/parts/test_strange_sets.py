"""Figure 8 of ImageNet-ES, second half: FPR of each strange set, per scorer, in both conventions."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import polars as pl
from tests.reports import worlds

from sorites.reports.sections.ood import strange_sets
from sorites.reports.view import RunView, merge


def cards(run: RunView) -> dict[str, str]:
    return dict(re.findall(r"<h3>(.*?)</h3>(.*?)</article>", strange_sets(merge([run]))))


def test_near_sets_stand_before_far_ones_and_each_group_is_pooled_after_its_sets(es_run: RunView) -> None:
    found = cards(es_run)
    assert list(found)[:2] == ["lite0 · FPR95, strange positive", "lite0 · FPR95, familiar positive"]
    heads = re.findall(r'<th scope="col">(.*?)(?:<|</th>)', found["lite0 · FPR95, strange positive"])
    assert heads == ["scorer", "ninco", "ssb_hard", "all near", "inaturalist", "textures", "all far"]
    assert "n = 40" in found["lite0 · FPR95, strange positive"]


def test_numbers_are_those_of_clean_and_right_pictures_against_each_set(es_run: RunView) -> None:
    rows = es_run.table.filter(
        pl.col("output") == "ood", pl.col("model") == "lite0", pl.col("shift") == "clean"
    ).collect()
    text = cards(es_run)["lite0 · FPR95, strange positive"]
    for scorer in worlds.SCORERS:
        mine = rows.filter(scorer=scorer)
        familiar = mine.filter("correct")["score"].to_numpy()
        line = re.search(rf'<th scope="row">{scorer}</th>(.*?)</tr>', text)
        assert line is not None
        shown = re.findall(r">(\d+)<small>(\d+)–(\d+)</small></td>", line.group())
        for place, name in ((0, "ninco"), (1, "ssb_hard"), (3, "inaturalist"), (4, "textures")):
            strange = mine.filter(source=name)["score"].to_numpy()
            flag = max(t for t in strange if np.mean(strange >= t) >= 0.95)
            assert shown[place][0] == f"{100 * np.mean(familiar >= flag):.0f}"
            assert int(shown[place][1]) <= int(shown[place][0]) <= int(shown[place][2])


def test_without_a_verdict_clean_pictures_of_known_classes_are_familiar(graded_run: RunView) -> None:
    found = cards(graded_run)
    heads = re.findall(r'<th scope="col">(.*?)(?:<|</th>)', found["lite0 · FPR95, familiar positive"])
    assert heads == ["scorer", "imagenet21k", "syn_is"]
    assert "300 clean pictures of known classes" in found["lite0 · FPR95, familiar positive"]


def test_one_set_with_two_groups_has_a_column_for_each(strange_run: RunView) -> None:
    heads = re.findall(
        r'<th scope="col">(.*?)(?:<|</th>)', cards(strange_run)["lite0 · FPR95, strange positive"]
    )
    assert heads == ["scorer", "all near", "all far"]


def test_one_set_of_one_group_is_not_repeated(es_run: RunView, run: RunView) -> None:
    alone = es_run.table.filter(pl.col("source").is_in(["imagenet_es", "textures"]))
    assert strange_sets(merge([dataclasses.replace(es_run, table=alone)])) == ""
    assert strange_sets(merge([run])) == ""

"""FOCUS's own numbers, from rows made of its published counts and accuracies."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from sorites import core
from sorites.errors import SoritesError
from sorites.metrics import attribute_accuracy, attribute_gap, partition_accuracy
from sorites.metrics._resampling import interval

Row = dict[str, Any]
CLASSES = ("truck", "car", "plane", "ship", "cat", "dog", "horse", "deer", "frog", "bird")

# Table 1, with horse by day as its row sums say (1989, printed 2989); a line an attribute, a column a class.
COUNTS = {
    "time": """
        day 1036 2232 1498 1573 1809 2415 1989 1622 931 2298
        night 50 241 128 159 72 56 60 51 180 45
    """,
    "weather": """
        cloudy 139 301 259 324 50 151 186 95 17 171
        foggy 27 103 56 109 7 46 105 78 1 43
        partly_cloudy 145 310 305 309 111 170 284 175 44 151
        raining 10 92 19 7 11 7 14 2 3 17
        snowing 9 39 4 3 23 39 36 44 0 32
        sunny 538 956 694 687 639 1083 957 742 423 1184
    """,
    "location": """
        forest 172 378 178 79 123 247 586 916 142 400
        grass 326 651 391 105 517 804 1142 1255 274 541
        indoors 31 259 125 5 1344 790 93 10 39 40
        rocks 43 115 55 71 137 109 92 95 239 183
        sand 295 526 239 187 143 414 662 214 152 296
        street 708 1635 389 103 405 372 417 103 29 130
        snow 88 255 110 140 127 298 206 290 7 176
        water 46 211 296 1606 93 403 296 122 355 581
    """,
}

# Figures 12 to 14: accuracy by class (ten lines, then all) and attribute (in the order above), the last column the gap.
FIGURES = {
    ("CLIP", "time"): """
        .60 .74 -.14
        .41 .53 -.12
        .52 .61 -.09
        .63 .73 -.10
        .60 .58 .02
        .87 .84 .03
        .00 .00 .00
        .44 .53 -.09
        .82 .91 .84
        .88 .58 .31
        .57 .64 -.00
    """,
    ("CLIP", "weather"): """
        .71 .48 .62 .30 .33 .62 .22
        .38 .24 .45 .43 .08 .42 .13
        .49 .46 .50 .68 .75 .55 -.00
        .67 .57 .61 .86 1 .67 .06
        .42 .14 .49 .55 .52 .61 .11
        .83 .72 .84 .71 .74 .90 .16
        .00 .00 .00 .00 .00 .00 .00
        .44 .19 .42 .50 .11 .50 .31
        .71 .00 .73 1 .00 .81 .05
        .88 .79 .87 .88 .94 .88 .02
        .54 .36 .50 .51 .38 .59 .17
    """,
    ("CLIP", "location"): """
        .56 .63 .55 .42 .42 .66 .26 .39 .23
        .34 .43 .53 .43 .47 .42 .17 .58 -.00
        .34 .43 .66 .42 .41 .55 .36 .27 .11
        .58 .51 .20 .45 .39 .68 .66 .64 .10
        .37 .60 .60 .42 .44 .55 .50 .51 .15
        .75 .90 .87 .79 .89 .79 .73 .91 .13
        .00 .00 .00 .00 .00 .00 .00 .00 .00
        .36 .49 .30 .34 .46 .45 .17 .46 .09
        .73 .81 .72 .83 .84 .79 .57 .81 .08
        .84 .87 .75 .80 .81 .83 .92 .89 -.01
        .41 .51 .66 .56 .46 .49 .41 .63 .15
    """,
    ("ViT-B/16", "time"): """
        .65 .70 -.05
        .48 .48 .00
        .59 .61 -.01
        .57 .61 -.04
        .79 .65 .14
        .85 .73 .12
        .50 .23 .27
        .58 .71 -.13
        .86 .92 .87
        .92 .71 .21
        .68 .63 .11
    """,
    ("ViT-B/16", "weather"): """
        .71 .37 .65 .40 .56 .69 .27
        .46 .37 .50 .52 .26 .49 .07
        .60 .59 .62 .63 .50 .62 .02
        .61 .53 .53 .71 .33 .60 .05
        .64 .43 .73 .55 .52 .79 .26
        .82 .57 .79 .14 .72 .87 .26
        .44 .45 .44 .21 .53 .54 .06
        .51 .41 .56 1 .14 .65 .30
        .76 1 .82 .67 .00 .85 .10
        .85 .74 .89 .94 1 .92 .04
        .61 .49 .60 .54 .50 .70 .17
    """,
    ("ViT-B/16", "location"): """
        .60 .70 .45 .60 .52 .70 .34 .43 .22
        .47 .50 .59 .44 .48 .48 .29 .31 .07
        .40 .56 .67 .47 .49 .66 .47 .28 .18
        .42 .36 .40 .41 .25 .51 .56 .58 .17
        .63 .79 .77 .71 .63 .70 .61 .49 .14
        .67 .88 .88 .74 .80 .79 .73 .80 .13
        .53 .57 .58 .36 .41 .25 .37 .30 .19
        .52 .63 .40 .38 .54 .49 .24 .47 .18
        .72 .85 .69 .87 .82 .66 .57 .88 .18
        .91 .92 .75 .86 .82 .82 .93 .84 .01
        .58 .68 .76 .65 .56 .57 .50 .60 .19
    """,
    ("ResNeXt-50", "time"): """
        .62 .70 -.08
        .47 .50 -.03
        .62 .69 -.07
        .53 .64 -.11
        .79 .71 .08
        .89 .84 .05
        .39 .17 .23
        .49 .49 .00
        .90 .96 .91
        .95 .73 .22
        .67 .66 .08
    """,
    ("ResNeXt-50", "weather"): """
        .71 .41 .63 .40 .33 .64 .26
        .45 .35 .47 .38 .15 .49 .15
        .63 .61 .62 .74 .50 .64 .00
        .55 .60 .48 .86 1 .56 -.08
        .66 .29 .74 .64 .48 .81 .30
        .87 .57 .83 .71 .85 .90 .19
        .33 .30 .32 .14 .53 .44 .07
        .35 .37 .46 1 .18 .55 .20
        .94 1 .91 1 .00 .89 -.11
        .89 .72 .93 .94 .97 .96 .10
        .59 .46 .57 .52 .51 .69 .18
    """,
    ("ResNeXt-50", "location"): """
        .59 .67 .45 .49 .45 .68 .35 .41 .21
        .42 .48 .53 .49 .52 .44 .33 .44 .02
        .36 .53 .67 .53 .53 .69 .49 .33 .16
        .46 .29 .40 .32 .24 .43 .51 .54 .18
        .61 .80 .78 .67 .71 .70 .61 .53 .13
        .74 .88 .93 .80 .84 .83 .79 .88 .11
        .38 .42 .43 .29 .29 .16 .33 .26 .12
        .43 .53 .20 .29 .39 .29 .25 .48 .16
        .83 .87 .62 .88 .84 .69 .57 .92 .24
        .92 .95 .75 .90 .92 .85 .94 .91 .03
        .53 .63 .77 .65 .54 .54 .51 .62 .18
    """,
}


def cells(kind: str) -> list[tuple[str, list[int]]]:
    lines = [line.split() for line in COUNTS[kind].strip().splitlines()]
    return [(word.replace("_", " "), [int(count) for count in counts]) for word, *counts in lines]


def uncommon(word: str, kind: str, category: str) -> bool:
    """What the source says, asked through its own door."""
    return UNCOMMON[category, kind, word]


@pytest.fixture(scope="module", autouse=True)
def _read_uncommon(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("focus") / "words.csv"
    words = {kind: [word for word, _ in cells(kind)] for kind in COUNTS}
    lines = ["file_name,category,time,weather,locations"]
    lines += [
        f"{c}-{i},{c},{words['time'][i % 2]},{words['weather'][i % 6]},{words['location'][i]}" for c in CLASSES for i in range(8)
    ]
    file.write_text("\n".join(lines) + "\n")
    for sample in core.source(f"focus:{file}"):
        for attr in sample.attrs[1:]:
            UNCOMMON[sample.attrs[0].value, attr.key, attr.value] = attr.common is False


UNCOMMON: dict[tuple[str, str, str], bool] = {}


def told(category: str, *settings: tuple[str, str, bool | None]) -> list[Row]:
    return [{"key": k, "value": v, "common": c} for k, v, c in (("class", category, None), *settings)]


def published(kind: str, table: str, row: Callable[..., Row], frame: Callable[..., pl.DataFrame]) -> pl.DataFrame:
    """As many rows a cell as table 1 counts, as many of them right as the figure says."""
    accuracies = [[float(x) for x in line.split()] for line in table.strip().splitlines()][:10]
    rows, times = [], []
    for j, (word, counts) in enumerate(cells(kind)):
        for i, (category, count) in enumerate(zip(CLASSES, counts, strict=True)):
            attrs = told(category, (kind, word, not uncommon(word, kind, category)))
            right = round(accuracies[i][j] * count)
            rows += [row(f"{category}-{word}", "clean", 0.0, verdict, attrs=attrs) for verdict in (True, False)]
            times += [right, count - right]
    return frame(rows)[np.repeat(np.arange(len(rows)), times)]


@pytest.mark.parametrize(("model", "kind"), list(FIGURES))
def test_the_class_by_attribute_tables_give_all_their_printed_gaps(model: str, kind: str, row: Any, frame: Any) -> None:
    """Accuracies are printed to two digits: a gap follows from them to a little more than one unit of the last."""
    printed = dict(
        zip([*CLASSES, None], (float(line.split()[-1]) for line in FIGURES[model, kind].strip().splitlines()), strict=True)
    )
    table = published(kind, FIGURES[model, kind], row, frame)
    gaps = attribute_gap(table, pool="cells", resamples=0).filter(pl.col("kind") == kind)
    found = dict(zip(gaps["class"], gaps["value"], strict=True))
    if kind == "time":
        assert found.pop("frog") is None, "night is common for frogs: nothing is uncommon"
        printed.pop("frog")
    assert set(found) == set(printed)
    for category, value in found.items():
        assert value == pytest.approx(printed[category], abs=0.0161), category
    assert np.mean([abs(found[c] - printed[c]) for c in printed]) < 0.006


@pytest.mark.parametrize(("model", "kind"), list(FIGURES))
def test_the_last_line_of_a_table_is_its_cells_pooled(model: str, kind: str, row: Any, frame: Any) -> None:
    table = published(kind, FIGURES[model, kind], row, frame)
    last = [float(x) for x in FIGURES[model, kind].strip().splitlines()[-1].split()][:-1]
    pooled = attribute_accuracy(table).filter(pl.col("class").is_null(), pl.col("kind") == kind)
    found = dict(zip(pooled["attribute"], pooled["value"], strict=True))
    for (word, _), value in zip(cells(kind), last, strict=True):
        assert found[word] == pytest.approx(value, abs=0.011), word


PARTITIONS = {
    (): 14144, ("time",): 641, ("weather",): 448, ("location",): 4885, ("time", "weather"): 43, ("location", "weather"): 474,
    ("location", "time"): 157, ("location", "time", "weather"): 21,
}  # fmt: skip


def test_annotations_built_to_the_published_counts_come_back_as_table_3(tmp_path: Path, row: Any, frame: Any) -> None:
    """The sizes sum to 20,813: the printed total is 23902; P3 has the 21 of the table, not the 35 of the footnote."""
    words = {"time": ("day", "night"), "weather": ("sunny", "raining"), "location": ("grass", "grass, rocks")}
    lines = ["file_name,category,time,weather,locations"]
    for kinds, size in PARTITIONS.items():
        time, weather, places = (words[kind][kind in kinds] for kind in words)
        lines += [f'{"-".join(kinds)}/{i}.jpg,cat,{time},{weather},"{places}"' for i in range(size)]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    attrs = [[vars(a) for a in sample.attrs] for sample in core.source(f"focus:{tmp_path / 'a.csv'}")]
    table = frame(row(str(i), "clean", 0.0, True, attrs=own) for i, own in enumerate(attrs))
    found = partition_accuracy(table)
    whole = found.filter(pl.col("kinds").is_null())
    assert dict(zip(whole["uncommon"], whole["n"], strict=True)) == {0: 14144, 1: 5974, 2: 674, 3: 21}
    assert whole["n"].sum() == 20813
    apart = found.filter(pl.col("kinds").is_not_null())
    assert dict(zip(apart["kinds"], apart["n"], strict=True)) == {"+".join(k): n for k, n in PARTITIONS.items() if k}


def test_an_image_counts_once_a_kind_and_once_a_cell(row: Any, frame: Any) -> None:
    """By hand: one image in two common places and one uncommon, wrong; one in a common place, right."""
    mixed = told("cat", ("location", "grass", True), ("location", "street", True), ("location", "snow", False))
    plain = told("cat", ("location", "grass", True))
    unknown = told("cat", ("location", "none", None))
    table = frame([
        row("a", "clean", 0.0, False, attrs=mixed), row("b", "clean", 0.0, True, attrs=plain),
        row("c", "clean", 0.0, True, attrs=unknown),
    ])  # fmt: skip
    images, of_cells = (
        attribute_gap(table, pool=pool).filter(pl.col("class").is_null(), pl.col("kind") == "location").row(0, named=True)
        for pool in ("images", "cells")
    )
    assert (images["value"], images["n_common"], images["n_uncommon"]) == (1.0, 1, 1)
    assert (of_cells["value"], of_cells["n_common"], of_cells["n_uncommon"]) == (pytest.approx(1 / 3), 3, 1)
    found = partition_accuracy(table)
    assert found.select("uncommon", "kinds", "value", "n").rows() == [
        (0, None, 1.0, 2),
        (1, None, 0.0, 1),
        (1, "location", 0.0, 1),
    ]
    any_ = attribute_gap(table).filter(pl.col("class").is_null(), pl.col("kind") == "any").row(0, named=True)
    assert (any_["value"], any_["n_common"], any_["n_uncommon"], any_["n"]) == (1.0, 2, 1, 3)


def test_top_five_by_set_membership(row: Any, frame: Any) -> None:
    attrs = told("cat", ("time", "day", True))
    rows = [
        row("a", "clean", 0.0, False, attrs=attrs, accept=[281, 282], top5=[1, 2, 3, 4, 282]),
        row("b", "clean", 0.0, False, attrs=attrs, accept=[281, 282], top5=[1, 2, 3, 4, 5]),
        row("c", "clean", 0.0, True, attrs=attrs, accept=[281, 282], top5=[281, 2, 3, 4, 5]),
    ]
    assert partition_accuracy(frame(rows))["value"].to_list() == [pytest.approx(1 / 3)]
    assert partition_accuracy(frame(rows), top=5)["value"].to_list() == [pytest.approx(2 / 3)]
    assert attribute_accuracy(frame(rows), top=5)["value"].to_list() == [pytest.approx(2 / 3)] * 2
    with pytest.raises(SoritesError, match="top is 1 or 5"):
        partition_accuracy(frame(rows), top=3)
    with pytest.raises(SoritesError, match="pool is images or cells, got 'rows'"):
        attribute_gap(frame(rows), pool="rows")


def test_the_interval_is_scipys_bootstrap() -> None:
    rng = np.random.default_rng(3)
    rare, right = rng.random(400) < 0.3, rng.random(400) < 0.6
    images = np.stack([~rare, ~rare & right, rare, rare & right], axis=1).astype(float)
    ordered = images[np.lexsort(images.T)]

    def gap(*columns: Any, axis: int) -> Any:
        a, b, c, d = (np.sum(column, axis=axis) for column in columns)
        return b / a - d / c

    peer = stats.bootstrap(
        tuple(ordered.T), gap, n_resamples=500, paired=True, vectorized=True, method="percentile", rng=np.random.default_rng(0)
    )
    low, high = interval(images, 500) or (None, None)
    assert (low, high) == pytest.approx(tuple(peer.confidence_interval), abs=1e-8)
    assert interval(images[::-1], 500) == (low, high)


def test_gaps_carry_an_interval_and_the_class_is_the_label_where_nobody_says(row: Any, frame: Any) -> None:
    def time(night: bool) -> list[Row]:
        return [{"key": "time", "value": "x", "common": not night}]

    rows = [
        row(f"{night}{i}", "clean", 0.0, i % (2 if night else 5) > 0, label=7, attrs=time(night))
        for night, i in itertools.product((True, False), range(200))
    ]
    found = attribute_gap(frame(rows)).filter(pl.col("kind") == "time")
    assert found["class"].to_list() == [None, "7"]
    first = found.row(0, named=True)
    assert first["value"] == pytest.approx(0.8 - 0.5)
    spread = 1.96 * np.sqrt(0.8 * 0.2 / 200 + 0.5 * 0.5 / 200)
    assert first["low"] == pytest.approx(first["value"] - spread, abs=0.02)
    assert first["high"] == pytest.approx(first["value"] + spread, abs=0.02)


def test_rows_without_settings_do_not_count(row: Any, frame: Any) -> None:
    table = frame([row("a", "clean", 0.0, True), row("b", "clean", 0.0, True, attrs=[{"key": "partition", "value": "S1"}])])
    assert partition_accuracy(table).height == attribute_gap(table).height == attribute_accuracy(table).height == 0

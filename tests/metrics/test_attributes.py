"""Published numbers of FOCUS, from rows built from its counts and accuracies."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats
from tests.metrics.conftest import frame as table_of
from tests.metrics.conftest import row as judged
from tests.metrics.focus_figures import CLASSES, COUNTS, FIGURES

from sorites import core
from sorites.core.errors import SoritesError
from sorites.metrics import (
    accuracy,
    attribute_accuracy,
    attribute_gap,
    failure_severity,
    partition_accuracy,
)
from sorites.metrics.intervals import cluster_bootstrap, clustered_difference_bounds

Row = dict[str, Any]


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
        f"{c}-{i},{c},{words['time'][i % 2]},{words['weather'][i % 6]},{words['location'][i]}"
        for c in CLASSES
        for i in range(8)
    ]
    file.write_text("\n".join(lines) + "\n")
    for sample in core.source(f"focus:{file}"):
        for attr in sample.attrs[1:]:
            UNCOMMON[sample.attrs[0].value, attr.key, attr.value] = attr.common is False


UNCOMMON: dict[tuple[str, str, str], bool] = {}


def told(category: str, *settings: tuple[str, str, bool | None]) -> list[Row]:
    return [{"key": k, "value": v, "common": c} for k, v, c in (("class", category, None), *settings)]


def published(
    kind: str, table: str, row: Callable[..., Row], frame: Callable[..., pl.DataFrame]
) -> pl.DataFrame:
    """As many rows a cell as table 1 counts, as many of them right as the figure says."""
    accuracies = [[float(x) for x in line.split()] for line in table.strip().splitlines()][:10]
    rows, times = [], []
    for j, (word, counts) in enumerate(cells(kind)):
        for i, (category, count) in enumerate(zip(CLASSES, counts, strict=True)):
            attrs = told(category, (kind, word, not uncommon(word, kind, category)))
            right = round(accuracies[i][j] * count)
            rows += [
                row(f"{category}-{word}", "clean", 0.0, verdict, attrs=attrs) for verdict in (True, False)
            ]
            times += [right, count - right]
    return frame(rows)[np.repeat(np.arange(len(rows)), times)]


@pytest.mark.parametrize(("model", "kind"), list(FIGURES))
def test_the_class_by_attribute_tables_give_all_their_printed_gaps(
    model: str, kind: str, row: Any, frame: Any
) -> None:
    """Accuracies are printed to two digits: a gap follows from them to a little more than one unit
    of the last.
    """
    printed = dict(
        zip(
            [*CLASSES, None],
            (float(line.split()[-1]) for line in FIGURES[model, kind].strip().splitlines()),
            strict=True,
        )
    )
    table = published(kind, FIGURES[model, kind], row, frame)
    gaps = attribute_gap(table, pool="cells").filter(pl.col("kind") == kind)
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
    (): 14144,
    ("time",): 641,
    ("weather",): 448,
    ("location",): 4885,
    ("time", "weather"): 43,
    ("location", "weather"): 474,
    ("location", "time"): 157,
    ("location", "time", "weather"): 21,
}


@pytest.mark.slow
def test_annotations_built_to_the_published_counts_come_back_as_table_3(
    tmp_path: Path, row: Any, frame: Any
) -> None:
    """The sizes sum to 20,813: the printed total is 23902; P3 has the 21 of the table, not the 35
    of the footnote.
    """
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
    assert dict(zip(apart["kinds"], apart["n"], strict=True)) == {
        "+".join(k): n for k, n in PARTITIONS.items() if k
    }


def test_an_image_counts_once_a_kind_and_once_a_cell(row: Any, frame: Any) -> None:
    """By hand: one image in two common places and one uncommon, wrong; one in a common place, right."""
    mixed = told(
        "cat", ("location", "grass", True), ("location", "street", True), ("location", "snow", False)
    )
    plain = told("cat", ("location", "grass", True))
    unknown = told("cat", ("location", "none", None))
    table = frame([
        row("a", "clean", 0.0, False, attrs=mixed), row("b", "clean", 0.0, True, attrs=plain),
        row("c", "clean", 0.0, True, attrs=unknown),
    ])  # fmt: skip
    images, of_cells = (
        attribute_gap(table, pool=pool)
        .filter(pl.col("class").is_null(), pl.col("kind") == "location")
        .row(0, named=True)
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
    with pytest.raises(SoritesError, match="1 or 5"):
        partition_accuracy(frame(rows), top=3)
    with pytest.raises(SoritesError, match="got 'rows'"):
        attribute_gap(frame(rows), pool="rows")


@pytest.mark.slow
def test_the_interval_is_scipys_bootstrap() -> None:
    rng = np.random.default_rng(3)
    rare, right = rng.random(400) < 0.3, rng.random(400) < 0.6
    images = np.stack([~rare, ~rare & right, rare, rare & right], axis=1).astype(float)
    ordered = images[np.lexsort(images.T)]

    def gap(*columns: Any, axis: int) -> Any:
        a, b, c, d = (np.sum(column, axis=axis) for column in columns)
        return b / a - d / c

    peer = stats.bootstrap(
        tuple(ordered.T),
        gap,
        n_resamples=9999,
        paired=True,
        vectorized=True,
        method="percentile",
        rng=np.random.default_rng(0),
    )

    def gap_of(sums: np.ndarray) -> np.ndarray:
        return gap(*sums[..., None].swapaxes(0, 1), axis=1)

    low, high = cluster_bootstrap(images, gap_of, 9999)
    # The expanded percentiles of 400 samples are 0.3 % wider; the rest is the noise of both bootstraps.
    assert (low, high) == pytest.approx(tuple(peer.confidence_interval), abs=5e-3)
    assert cluster_bootstrap(images[::-1], gap_of, 9999) == (low, high)


def test_the_interval_of_a_gap_is_newcombes_and_allows_for_pairs() -> None:
    """Against statsmodels for one image per sample, and against a bootstrap where samples are on both sides."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from statsmodels.stats.proportion import confint_proportions_2indep
    rng = np.random.default_rng(3)
    rare, right = rng.random(60) < 0.3, rng.random(60) < 0.7
    sides = [(side & right, side) for side in (~rare, rare)]
    found = clustered_difference_bounds(*((hits.astype(float), rows.astype(float)) for hits, rows in sides))
    counts = [int(part.sum()) for side in sides for part in side]
    assert found == pytest.approx(confint_proportions_2indep(*counts, method="newcomb"), abs=1e-8)
    ease = rng.normal(size=400)
    both = [rng.binomial(5, stats.norm.cdf(shift + ease)).astype(float) for shift in (0.8, 0.2)]
    low, high = clustered_difference_bounds(*((hits, np.full(400, 5.0)) for hits in both))
    peer = cluster_bootstrap(np.stack(both, axis=1), lambda sums: (sums[:, 0] - sums[:, 1]) / 2000, 4000)
    assert (low, high) == pytest.approx(peer, abs=5e-3)


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
    table = frame(
        [
            row("a", "clean", 0.0, True),
            row("b", "clean", 0.0, True, attrs=[{"key": "partition", "value": "S1"}]),
        ]
    )
    assert (
        partition_accuracy(table).height
        == attribute_gap(table).height
        == attribute_accuracy(table).height
        == 0
    )


def test_metrics_group_by_an_attribute() -> None:
    def image(sample: int, severity: float, correct: bool, **attrs: str) -> Row:
        listed = [
            {"key": key, "value": value, "common": None}
            for key, text in attrs.items()
            for value in text.split("+")
        ]
        shift = "fog" if severity else "clean"
        image_id = f"{sample}-{severity}"
        return judged(f"s{sample}", shift, severity, correct, image_id=image_id, attrs=listed)

    table = table_of(
        [
            image(0, 0, True, weather="rain+fog"),
            image(0, 1, False, weather="rain+fog", tag="hard"),
            image(1, 0, True, weather="sun"),
            image(1, 1, True, weather="sun"),
            image(2, 0, False),
        ]
    )
    found = accuracy(table, by=["model", "attrs.weather"]).sort("attrs.weather", nulls_last=True)
    assert found.select("attrs.weather", "n", "value").rows() == [
        ("fog+rain", 2, 0.5),
        ("sun", 2, 1),
        (None, 1, 0),
    ]
    assert accuracy(table.lazy(), by="attrs.tag").sort("n")["n"].to_list() == [1, 4]
    with pytest.raises(SoritesError, match=r"attrs\.weather"):
        accuracy(table, by=["attrs.wether"])
    # Trajectories may be grouped by what holds for a whole sample.
    assert failure_severity(table, by=["model", "shift", "attrs.weather"]).height >= 2
    with pytest.raises(SoritesError, match="cannot be grouped"):
        failure_severity(table, by=["model", "shift", "attrs.tag"])

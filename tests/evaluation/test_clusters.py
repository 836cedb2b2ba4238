"""Kept features read back by image, and cluster numbers at the settings of a real camera run
(ImageNet-ES, Figures 11-12).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import silhouette_score

import sorites
from sorites import metrics
from sorites.analysis.features import (
    MAX_SAMPLES_PER_SETTING,
    SettingImages,
    clusters,
    features_reader,
    read_features,
    run_clusters,
    setting_images,
)
from sorites.analysis.sheet import images_of, most_disputed, sheet
from sorites.core import CLEAN, Model
from sorites.core.errors import SoritesError
from sorites.evaluation.plan import Unit
from sorites.evaluation.reopen import plan_of
from sorites.evaluation.storage import shards
from sorites.suites.suite import parse

SETTINGS = [{"iso": 250, "aperture": 5.0, "light": "on"}, {"mode": "auto", "light": "on"}]


@pytest.fixture(scope="module")
def run(photos: Path, tiny: Callable[..., Model], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty images of four classes, two models, a dial and seven settings of the camera, with features."""
    shifts = [{"name": "camera", "settings": SETTINGS}, {"name": "jpeg", "levels": [1, 5]}]
    suite = parse(
        {"name": "s", "source": f"folder:{photos}", "shifts": shifts, "frame": {"resize": 32}}, "test"
    )
    other = tiny("other--one")
    other.prepare = lambda image, framed: image[::4, ::4]
    out = tmp_path_factory.mktemp("clusters") / "run"
    sorites.run(suite, models=[tiny(), other], keep_features=True, out=out, workers=1).collect()
    return out


def test_features_are_read_back_by_image_and_model(run: Path, tiny: Callable[..., Model]) -> None:
    table = sorites.read(run).filter(pl.col("shift") == "jpeg", pl.col("model") == "tiny").collect()
    found = read_features(run, "tiny", table["image_id"].to_list())
    assert set(found) == set(table["image_id"])
    plan, row = plan_of(run), table.row(0, named=True)
    (image,) = images_of(plan, row["sample_id"], {row["image_id"]}).values()
    expected = tiny()([image], True).features
    assert expected is not None
    np.testing.assert_array_equal(found[row["image_id"]], expected[0])
    assert read_features(run, "tiny", ["none"]) == {}
    assert read_features(run, "one", table["image_id"].to_list()) == {}
    assert not any("--" in shards.slug(name) for name in ("other--one", "a--b--c", "--x"))
    stem = shards.stem(Unit(CLEAN, 0, 16), "other--one")
    assert shards.tensor_files(run, "features")[stem] in shards.all_features(run, "other--one")


def test_places_are_clean_best_worst_auto_and_every_severity(run: Path) -> None:
    table = sorites.read(run)
    found = setting_images(table, "tiny")
    assert [place.what for place in found] == [CLEAN, "best", "worst", "auto", "severity", "severity"]
    assert [place.images.height for place in found] == [20] * 6
    ends = {
        row["what"]: row for row in metrics.setting_table(table).filter(model="tiny", light="on").to_dicts()
    }
    for place in found[1:3]:
        assert place.dials == tuple(ends[place.what][name] for name in ("iso", "shutter", "aperture"))
    shots = table.filter(pl.col("image_id").is_in(found[3].images["image_id"].to_list())).collect()
    assert set(shots["params"].str.json_path_match("$.shot")) == {"1"}
    every = [place.what for place in setting_images(table, "tiny", every=True)]
    assert every.count("manual") == len(set(_manual(table))) - 2


def _manual(table: pl.LazyFrame) -> list[str]:
    rows = table.filter(pl.col("shift") == "camera", pl.col("params").str.contains('"manual"')).collect()
    return rows["params"].to_list()


def test_figure_12_silhouette_of_a_setting_is_scikit_learns(run: Path) -> None:
    numbers = run_clusters(run)
    assert set(numbers["model"]) == {"tiny", "other--one"}
    for place in setting_images(sorites.read(run), "tiny"):
        held = read_features(run, "tiny", place.images["image_id"].to_list())
        rows = np.stack([held[image] for image in place.images["image_id"]]).astype(np.float64)
        expected = silhouette_score(rows, place.images["label"].to_numpy(), metric="cosine")
        same = numbers.filter(
            pl.col("model") == "tiny", *(pl.col(k).eq_missing(pl.lit(v)) for k, v in place.names().items())
        )
        row = same.filter(number="silhouette").row(0, named=True)
        assert row["value"] == pytest.approx(expected, abs=1e-6)
        assert row["low"] <= row["value"] <= row["high"]
        assert (row["n"], row["classes"]) == (20, 4)
        assert same.filter(number="from clean").height == (place.what != CLEAN)


def test_figure_11_distance_from_clean_is_that_of_pairs(run: Path) -> None:
    row = run_clusters(run).filter(model="tiny", what="worst", number="from clean").row(0, named=True)
    at = {place.what: place for place in setting_images(sorites.read(run), "tiny")}
    features = features_reader(run)
    assert features is not None
    held = features("tiny", [*at["worst"].images["image_id"], *at[CLEAN].images["image_id"]])
    start = dict(at[CLEAN].images.select("sample_id", "image_id").iter_rows())
    apart = []
    for sample, image in at["worst"].images.select("sample_id", "image_id").iter_rows():
        a, b = held[image].astype(float), held[start[sample]].astype(float)
        apart.append(1 - a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    assert row["value"] == pytest.approx(np.mean(apart))
    assert row["high"] - row["value"] == pytest.approx(1.96 * np.std(apart, ddof=1) / 20**0.5, rel=1e-3)


def test_of_many_samples_a_fair_thousand_is_taken() -> None:
    n = MAX_SAMPLES_PER_SETTING + 500
    rows = [
        {"run_id": "r", "source": "s", "sample_id": f"{i}", "image_id": f"{i}", "shift": CLEAN, "severity": 0.0, "model": "m",
         "output": "label", "label": i % 7, "correct": True, "params": "{}"}
        for i in range(n)
    ]  # fmt: skip
    (place,) = setting_images(sorites.core.table.rows(rows), "m")
    assert place.images.height == MAX_SAMPLES_PER_SETTING
    assert place.images["sample_id"].cast(pl.Int64).mean() == pytest.approx(n / 2, rel=0.05)


def test_one_class_has_no_number_and_no_error() -> None:
    images = pl.DataFrame(
        {"source": "s", "sample_id": ["a", "b"], "image_id": ["a", "b"], "label": [0, 0], "correct": True}
    )
    place = SettingImages("m", CLEAN, CLEAN, images)
    found = clusters([place], lambda model, wanted: {image: np.ones(3, np.float32) for image in wanted})
    assert found["value"].to_list() == [None, None]


def test_a_run_without_features_says_what_to_type(
    photos: Path, tiny: Callable[..., Model], tmp_path: Path
) -> None:
    suite = parse(
        {"name": "s", "source": f"folder:{photos}", "shifts": ["jpeg"], "limit": 2, "frame": {"resize": 32}},
        "test",
    )
    sorites.run(suite, models=[tiny()], out=tmp_path / "run", workers=1)
    with pytest.raises(SoritesError, match="keep_features=True"):
        run_clusters(tmp_path / "run")


def test_figure_10_sheet_shows_the_sample_on_which_models_differ_most(run: Path) -> None:
    table = sorites.read(run)
    most = metrics.disagreement(table.filter(pl.col("shift") != CLEAN)).sort(
        "value", "shift", "sample_id", descending=[True, False, False]
    )
    assert most_disputed(table) == [most.select("shift", "sample_id").row(0)]
    held = sheet(table, shift="camera", sample=most_disputed(table, "camera")[0][1])
    assert [column.shift for column in held.columns][:2] == [CLEAN, "camera"]
    assert held.columns[1].params["mode"] == "auto"
    assert held.of == len(set(_manual(table))) + 1
    light = [c.params["iso"] * c.params["shutter"] / c.params["aperture"] ** 2 for c in held.columns[2:]]
    assert light == sorted(light)
    rows = table.filter(pl.col("sample_id") == held.sample_id, pl.col("model") == "tiny").collect()
    right = dict(rows.select("image_id", "correct").iter_rows())
    assert {c.image_id: c.verdicts["tiny"].right for c in held.columns} == {
        c.image_id: right[c.image_id] for c in held.columns
    }
    assert len(images_of(plan_of(run), held.sample_id, {c.image_id for c in held.columns})) == len(
        held.columns
    )


def test_a_sheet_of_what_is_not_there_is_an_error_by_name(run: Path) -> None:
    table = sorites.read(run)
    with pytest.raises(SoritesError, match="no shift named 'jpge'. Did you"):
        sheet(table, shift="jpge")
    with pytest.raises(SoritesError, match=r"no sample named 'x'"):
        sheet(table, sample="x")


def test_a_long_dial_is_spread_evenly_and_keeps_its_ends(run: Path) -> None:
    table = sorites.read(run)
    sample = most_disputed(table, "camera")[0][1]
    whole, some = sheet(table, sample, "camera"), sheet(table, sample, "camera", most=4)
    assert len(some.columns) == 4
    assert some.columns[-1] == whole.columns[-1]
    assert some.of == whole.of

"""Features at the best, worst and automatic setting on the page (ImageNet-ES, Figures 11 and 12)."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

import numpy as np
import polars as pl
import pytest
from tests.reports import worlds
from tests.reports.sections.test_exposure import rows

from sorites.analysis.features import clusters, setting_images
from sorites.core import table
from sorites.core.labels import labels
from sorites.core.rng import rng_for
from sorites.reports.sections.features import features
from sorites.reports.view import RunView, merge

CENTRES = np.random.default_rng(3).normal(0.6, 1, (4, 16))


@pytest.fixture(scope="module")
def camera_run() -> RunView:
    """Four classes; features are near the centre of their class if the model is correct."""
    seen = [{**row, "label": int(row["sample_id"][1:]) % 4} for row in rows()]
    near = {(row["model"], row["image_id"]): (row["label"], row["correct"]) for row in seen}

    def kept(model: str, images: Collection[str]) -> dict[str, np.ndarray]:
        found = {}
        for image in images:
            label, right = near[model, image]
            noise = rng_for(0, f"{model} {image}", "features").normal(0, 0.2 if right else 2.0, 16)
            found[image] = np.maximum(0, CENTRES[label] + noise).astype(np.float32)
        return found

    record = worlds.record(
        {"name": "camera", "models": ["lite0", "<b>big</b>"], "shifts": [{"name": "camera"}]}
    )
    return RunView(
        table.rows(seen).lazy(), "camera", record, labels(["cat", "<i>dog</i>", "cup", "car"]), None, kept
    )


def test_the_table_shows_the_cluster_numbers(camera_run: RunView) -> None:
    section = features(merge([camera_run]))
    assert section is not None
    assert camera_run.features is not None
    numbers = clusters(setting_images(camera_run.table, "lite0"), camera_run.features)
    assert set(numbers["what"]) == {"best", "worst", "auto"}
    for row in numbers.drop_nulls("value").filter(pl.col("number") != "from clean").to_dicts():
        text = (
            f"{100 * row['value']:.1f}"
            if row["number"] == "nearest centroid"
            else f"{row['value']:.2f}".replace("-", "−")
        )
        assert text in section.body
    silhouettes = dict(numbers.filter(number="silhouette", light="on").select("what", "value").iter_rows())
    assert silhouettes["best"] > silhouettes["worst"]


def test_maps_of_three_settings_by_both_ways_per_model(camera_run: RunView) -> None:
    section = features(merge([camera_run]))
    assert section is not None
    for words in ("PCA", "best setting", "worst setting", "automatic exposure"):
        assert section.body.count(f'aria-label="{words}') + section.body.count(words) > 0
    assert section.body.count('aria-label="PCA') == 2 * 3
    assert "<i>dog</i>" not in section.body
    assert features(merge([camera_run])) == section


def test_absent_without_features_or_camera(camera_run: RunView, run: RunView) -> None:
    assert features(merge([dataclasses.replace(camera_run, features=None)])) is None
    assert features(merge([dataclasses.replace(camera_run, features=lambda model, images: {})])) is None
    assert features(merge([dataclasses.replace(run, features=lambda model, images: {})])) is None

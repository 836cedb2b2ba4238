"""Prediction sets of a run: recomputed one image at a time, by severity, and by distance."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.analysis.uncertainty.test_scores import by_loop
from typer.testing import CliRunner

import sorites
from sorites.analysis.uncertainty.kept import KeptLogits, logits_reader
from sorites.cli.app import app
from sorites.core import Generated, Model, Outputs, Sample, Source
from sorites.core.errors import InvalidOption, Notice, SoritesError, UnknownName
from sorites.core.labels import labels as labels_of
from sorites.suites.suite import parse

CLASSES = ("a", "b", "c", "d", "e", "f", "g")
ANGLES = np.linspace(0, 3, 7)


def seen(images: list[np.ndarray]) -> Outputs:
    means = np.array([image.mean() / 255 for image in images])
    logits = 4 * np.cos(7 * means[:, None] + ANGLES) + 3 * np.sin(29 * means[:, None] * ANGLES)
    return Outputs(logits.astype(np.float32), means[:, None].astype(np.float32))


def source(samples: int = 90) -> Source:
    rng = np.random.default_rng(0)
    made = []
    for i in range(samples):
        value = int(rng.integers(20, 235))
        label = (
            int(rng.choice(7))
            if i % 3
            else int(seen([np.full((4, 4, 3), value, np.uint8)]).logits[0].argmax())
        )
        accept = frozenset({label, (label + 1) % 7}) if i % 5 == 0 else frozenset()
        made.append(
            Sample(
                f"s{i}", Generated(lambda value=value: np.full((16, 16, 3), value, np.uint8)), label, accept
            )  # type: ignore[misc]
        )
    return Source("greys", made)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sets") / "run"
    suite = parse({"name": "s", "labels": CLASSES, "shifts": ["brightness"], "similarity": ["psnr"]}, "test")
    sorites.run(suite, source=source(), models=[Model("m", seen)], out=out, keep_features=True, levels=[2, 5])
    return out


def test_every_number_is_recomputed_image_by_image(folder: Path) -> None:
    kept = KeptLogits(sorites.read(folder), "m", logits_reader(folder), labels_of(CLASSES))
    images = kept.images
    logits = np.empty((len(images), 7))
    for places, part in kept.batches():
        logits[places] = part
    odds = np.exp(logits)
    p = odds / odds.sum(axis=1, keepdims=True)
    answer = sorites.conformal(folder, alpha=0.2)
    assert answer["method"].unique().sort().to_list() == ["aps", "raps", "thr"]
    for method in ("thr", "aps", "raps"):
        scores = [by_loop(method, p[i], images.draw[i]) for i in range(len(images))]
        right = [min(scores[i][c] for c in images.right[i]) for i in range(len(images))]
        limits = []
        for half in (0, 1):
            pool = sorted(right[i] for i in range(len(images)) if images.clean[i] and images.half[i] != half)
            limits.append(pool[math.ceil((len(pool) + 1) * 0.8) - 1])
        rows = images.rows.with_columns(
            covered=pl.Series([right[i] <= limits[images.half[i]] + 1e-12 for i in range(len(images))]),
            size=pl.Series(
                [sum(s <= limits[images.half[i]] + 1e-12 for s in scores[i]) for i in range(len(images))]
            ),
        )
        wanted = rows.group_by("shift", "severity").agg(
            pl.col("covered").mean(), pl.col("size").mean(), n=pl.len()
        )
        found = answer.filter(method=method).join(wanted, on=["shift", "severity"], suffix="_wanted")
        assert found.height == 3
        np.testing.assert_allclose(found["value"], found["covered"], atol=1e-9)
        np.testing.assert_allclose(found["size"], found["size_wanted"], atol=1e-9)
        assert found["n"].to_list() == found["n_wanted"].to_list()
        assert (
            found.filter((pl.col("low") <= pl.col("value")) & (pl.col("value") <= pl.col("high"))).height == 3
        )
    # Every sample calibrates one half and is evaluated in the other.
    assert set(images.half) == {0, 1}
    per_sample = (
        images.rows.with_columns(half=pl.Series(images.half))
        .group_by("sample")
        .agg(pl.col("half").n_unique())
    )
    assert per_sample["half"].unique().to_list() == [1]


def test_sets_by_distance_stand_beside_the_others(folder: Path) -> None:
    answer = sorites.conformal(folder, methods=["thr"], measure="psnr")
    assert answer["weights"].unique().sort().to_list() == ["none", "psnr"]
    near = answer.filter(weights="psnr", shift="brightness")
    far = answer.filter(weights="none", shift="brightness")
    assert near["n"].to_list() == far["n"].to_list()
    # Calibrated on images like them, shifted images are covered at least about as often as asked.
    assert near["value"].min() > 0.8
    with pytest.raises(SoritesError, match="measure"):
        sorites.conformal(folder, measure="lpips")


def test_the_command_prints_the_same_and_what_is_promised(folder: Path) -> None:
    done = CliRunner().invoke(app, ["conformal", str(folder), "--method", "aps", "--format", "json"])
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)
    assert [row["value"] for row in rows] == sorites.conformal(folder, methods=["aps"])["value"].to_list()
    assert "promised: 90 % of clean images" in done.stderr


def test_what_cannot_be_computed_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption):
        sorites.conformal(folder, alpha=1.0)
    with pytest.raises(UnknownName):
        sorites.conformal(folder, methods=["apps"])
    with pytest.raises(UnknownName):
        sorites.conformal(folder, models=["n"])
    suite = parse({"name": "s", "labels": CLASSES}, "test")
    sorites.run(suite, source=source(9), models=[Model("m", seen)], out=tmp_path / "bare")
    with pytest.raises(SoritesError, match="keep"):
        sorites.conformal(tmp_path / "bare")


@pytest.mark.slow
def test_the_page_shows_coverage_against_severity(folder: Path, tmp_path: Path) -> None:
    with pytest.warns(Notice):  # the images are drawn by a function and are not available
        page = sorites.report(folder, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "How large must a set of answers be?" in page
    assert "coverage against the severity of brightness" in page
    clean = sorites.conformal(folder).filter(shift="clean", method="thr").row(0, named=True)
    assert f"{100 * clean['value']:.1f}" in page[page.index("How large must a set") :]

"""Exports of the table and of images with answers: read back with other code than ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml
from PIL import Image
from polars.testing import assert_frame_equal
from tests.peers import peer

import sorites
from sorites.evaluation.images import shots
from sorites.evaluation.imports.write import import_predictions
from sorites.suites.suite import Suite


@pytest.fixture(scope="module")
def run(photos: Path, tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> sorites.Run:
    suite = Suite(
        name="small", source=f"folder:{photos}", shifts=("gaussian_noise",), models=(), scorers=("energy",)
    )
    out = tmp_path_factory.mktemp("run") / "small"
    return sorites.run(suite, models=[tiny()], limit=6, out=out, levels=[1, 5])


def test_csv_is_imported_again_with_the_same_numbers(run: sorites.Run, tmp_path: Path) -> None:
    sorites.export(run, "csv", out=tmp_path / "csv")
    again = import_predictions([str(tmp_path / "csv")], "csv", tmp_path / "again").folder
    by = ["model", "shift", "severity"]
    assert_frame_equal(sorites.accuracy(sorites.read(again), by=by), sorites.accuracy(run, by=by))
    scores = sorites.read(again).filter(pl.col("scorer") == "energy").collect()
    assert sorted(scores["score"]) == pytest.approx(
        sorted(run.collect().filter(pl.col("scorer") == "energy")["score"])
    )


def test_parquet_is_the_table(run: sorites.Run, tmp_path: Path) -> None:
    sorites.export(run, "parquet", out=tmp_path / "p", models=["tiny"])
    written = pl.read_parquet(tmp_path / "p" / "predictions.parquet")
    assert_frame_equal(written, run.collect(), check_row_order=False)


def test_huggingface_has_a_card_that_names_its_files(run: sorites.Run, tmp_path: Path) -> None:
    out = sorites.export(run, "huggingface", out=tmp_path / "hf")
    front = yaml.safe_load((out / "README.md").read_text().split("---")[1])
    (files,) = front["configs"][0]["data_files"]
    assert pl.read_parquet(out / files["path"]).height == run.collect().height


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_datasets_reads_it(run: sorites.Run, tmp_path: Path) -> None:
    datasets = peer("datasets")
    out = sorites.export(run, "huggingface", out=tmp_path / "hf")
    read = datasets.load_dataset(str(out), cache_dir=str(tmp_path / "cache"))["train"]
    labels = [row for row in read if row["output"] == "label"]
    expected = run.collect().filter(pl.col("output") == "label")["correct"].sum()
    assert sum(row["correct"] for row in labels) == expected


def test_fiftyone_samples_are_the_images_with_their_answers(run: sorites.Run, tmp_path: Path) -> None:
    out = sorites.export(run, "fiftyone", out=tmp_path / "fo")
    metadata = json.loads((out / "metadata.json").read_text())
    samples = json.loads((out / "samples.json").read_text())["samples"]
    assert "version" not in metadata  # FiftyOne then reads plain JSON
    assert len(samples) == 6 * 3
    table = run.collect().filter(pl.col("output") == "label")
    right = table.filter(pl.col("correct")).height
    assert sum(sample["tiny_correct"] for sample in samples) == right
    assert all(sample["tiny"]["_cls"] == "Classification" for sample in samples)
    assert all(isinstance(sample["tiny_energy"], float) for sample in samples)
    plan = run.plan
    images = {
        (s.sample.id, s.shift, s.setting.severity): s.image
        for unit in plan.units()
        for s in shots(plan, unit)
    }
    for sample in samples:
        stored = np.asarray(Image.open(out / sample["filepath"]))
        assert np.array_equal(stored, images[sample["original"], sample["shift"], sample["severity"]])
    for original in {sample["original"] for sample in samples}:
        rows = table.filter(pl.col("sample_id") == original).sort("severity")
        wrong = rows.filter(~pl.col("correct"))["severity"].to_list()
        found = {s["tiny_failure_severity"] for s in samples if s["original"] == original and s["severity"]}
        assert found == {wrong[0] if wrong else None}


def test_models_have_fields_of_their_own_in_fiftyone(tiny: Any, photos: Path, tmp_path: Path) -> None:
    """The name of a model may be that of a field, or equal another one without its signs."""
    names = ["original", "a.b", "a-b"]
    suite = Suite(name="small", source=f"folder:{photos}", shifts=("gaussian_noise",), models=())
    models = {name: tiny() for name in names}
    run = sorites.run(suite, models=models, limit=2, out=tmp_path / "run", levels=[1])
    out = sorites.export(run, "fiftyone", out=tmp_path / "fo")
    (first, *_) = json.loads((out / "samples.json").read_text())["samples"]
    assert isinstance(first["original"], str)
    assert {first[field]["_cls"] for field in ("original_2", "a_b", "a_b_2")} == {"Classification"}

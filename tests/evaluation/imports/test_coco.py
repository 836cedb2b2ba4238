"""Results of detectors are imported with the numbers of pycocotools, and exported files give the same table."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image
from polars.testing import assert_frame_equal
from tests.metrics.box_sets import as_coco, random_scene

import sorites
from sorites import metrics
from sorites.core import Box, Generated, Model, Outputs, Sample, Source, table
from sorites.core.errors import Notice, SoritesError, UnknownName
from sorites.evaluation.imports.write import import_predictions
from sorites.evaluation.run import Run
from sorites.suites.suite import parse

STATS = (
    "map", "map50", "map75", "map_small", "map_medium", "map_large",
    "ar1", "ar10", "ar100", "ar_small", "ar_medium", "ar_large",
)  # fmt: skip


def files(folder: Path, seed: int, name: str = "results.json") -> tuple[Path, Path]:
    """Write a random set of boxes as COCO's two files."""
    ground_truth, results = as_coco(random_scene(seed))
    for image in ground_truth["images"]:
        image["file_name"] = f"{image['id']:05d}.jpg"
    folder.mkdir(exist_ok=True)
    (folder / "annotations.json").write_text(json.dumps(ground_truth))
    (folder / name).write_text(json.dumps(results))
    return folder / "annotations.json", folder / name


def by_pycocotools(annotations: Path, results: Path) -> Any:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    with contextlib.redirect_stdout(io.StringIO()):
        true = COCO(str(annotations))
        asked = COCOeval(true, true.loadRes(str(results)), "bbox")
        asked.evaluate()
        asked.accumulate()
        asked.summarize()
    return asked.stats


def numbers(run: Path, **where: Any) -> list[float]:
    rows = table.read(run).filter(**where) if where else table.read(run)
    found = metrics.map_numbers(rows, by=["model"], resamples=0)
    return [dict(zip(found["number"], found["value"], strict=True))[name] for name in STATS]


def error_of(*arguments: Any, **options: Any) -> SoritesError:
    with pytest.raises(SoritesError) as caught:
        import_predictions(*arguments, **options)
    return caught.value


@pytest.mark.parametrize("seed", range(4))
def test_imported_results_have_the_numbers_of_pycocotools(tmp_path: Path, seed: int) -> None:
    annotations, results = files(tmp_path, seed)
    run = import_predictions([results], "coco", tmp_path / "run", model="m", annotations=annotations).folder
    expected = [np.nan if value == -1 else value for value in by_pycocotools(annotations, results)]
    assert numbers(run) == pytest.approx(expected, abs=1e-9, nan_ok=True)


def test_each_file_is_a_setting_and_may_have_its_own_annotations(tmp_path: Path) -> None:
    annotations, clean = files(tmp_path, 1)
    _, fog = files(tmp_path / "other", 2)
    moved, turned = files(tmp_path / "moved", 3)
    run = import_predictions(
        [f"clean={clean}", f"rotation:15={turned}"],
        "coco",
        tmp_path / "run",
        model="m",
        annotations=[annotations, f"rotation:15={moved}"],
    ).folder
    assert numbers(run, shift="clean") == pytest.approx(by_pycocotools(annotations, clean), abs=1e-9)
    assert numbers(run, shift="rotation") == pytest.approx(by_pycocotools(moved, turned), abs=1e-9)
    severities = table.read(run).select("shift", "severity").unique().sort("severity").collect()
    assert severities.rows() == [("clean", 0.0), ("rotation", 15.0)]
    again = import_predictions(
        [f"rotation:15={turned}", f"clean={clean}"],
        "coco",
        tmp_path / "run",
        model="m",
        annotations=[f"rotation:15={moved}", annotations],
    )
    assert not again.worked
    assert "another run" in str(
        error_of([f"fog:1={fog}"], "coco", tmp_path / "run", model="m", annotations=annotations)
    )
    twins = error_of([clean, f"clean={clean}"], "coco", tmp_path / "b", model="m", annotations=annotations)
    assert "both clean" in str(twins)


def test_files_that_ultralytics_writes_are_read(tmp_path: Path) -> None:
    annotations, results = files(tmp_path, 5)
    truth, found = json.loads(annotations.read_text()), json.loads(results.read_text())
    run = import_predictions([results], "coco", tmp_path / "run", model="m", annotations=annotations).folder
    # predictions.json: image ids are the stems of names; class numbers count from 0.
    for row in found:
        row["category_id"] -= 1
    (tmp_path / "predictions.json").write_text(json.dumps(found))
    numbered = import_predictions(
        [tmp_path / "predictions.json"],
        "coco",
        tmp_path / "b",
        model="m",
        annotations=annotations,
        first_class=0,
    ).folder
    assert numbers(numbered) == numbers(run)
    unknown = error_of(
        [tmp_path / "predictions.json"], "coco", tmp_path / "c", model="m", annotations=annotations
    )
    assert isinstance(unknown, UnknownName)
    # labels/NAME.txt: class, centre and size relative to the image, confidence.
    (tmp_path / "labels").mkdir()
    lines: dict[int, list[str]] = {}
    size = {image["id"]: (image["width"], image["height"]) for image in truth["images"]}
    for row in found:
        (x, y, w, h), (width, height) = row["bbox"], size[row["image_id"]]
        centre = [(x + w / 2) / width, (y + h / 2) / height, w / width, h / height]
        lines.setdefault(row["image_id"], []).append(
            " ".join(map(repr, [row["category_id"], *centre, row["score"]]))
        )
    for image, rows in lines.items():
        (tmp_path / "labels" / f"{image:05d}.txt").write_text("\n".join(rows) + "\n")
    text = import_predictions(
        [tmp_path / "labels"], "coco", tmp_path / "d", model="m", annotations=annotations
    ).folder
    assert numbers(text) == pytest.approx(numbers(run), abs=1e-9)


def test_a_yolo_dataset_is_ground_truth(tmp_path: Path) -> None:
    for folder in ("images", "labels", "found"):
        (tmp_path / folder).mkdir()
    (tmp_path / "data.yaml").write_text("names: [cat, dog]\nval: images\n")
    Image.fromarray(np.zeros((50, 100, 3), np.uint8)).save(tmp_path / "images" / "a.png")
    (tmp_path / "labels" / "a.txt").write_text("1 0.5 0.5 0.4 0.4\n")
    (tmp_path / "found" / "a.txt").write_text("1 0.5 0.5 0.4 0.4 0.9\n0 0.1 0.1 0.1 0.1 0.5\n")
    options: dict[str, Any] = {"model": "m", "annotations": tmp_path / "data.yaml"}
    run = import_predictions([tmp_path / "found"], "coco", tmp_path / "run", **options).folder
    row = table.read(run).collect().row(0, named=True)
    assert (row["boxes"][0]["x0"], row["boxes"][0]["y1"]) == (30.0, 35.0)
    assert row["boxes"][0]["label"] == row["ground_truth"][0]["label"] == 1
    assert numbers(run)[0] == pytest.approx(1.0)
    result = [{"image_id": "a", "category_id": 2, "bbox": [30, 15, 40, 20], "score": 0.9}]
    (tmp_path / "p.json").write_text(json.dumps(result))
    assert "first_class" in str(error_of([tmp_path / "p.json"], "coco", tmp_path / "b", **options))
    from_one = import_predictions(
        [tmp_path / "p.json"], "coco", tmp_path / "b", **options, first_class=1
    ).folder
    assert numbers(from_one)[0] == pytest.approx(1.0)


@pytest.mark.parametrize(
    "change",
    [
        {"bbox": [1, 2, 3, 4, 0.5]},
        {"bbox": [1, 2, 3, 4, 5, 6, 7, 8]},
        {"rbox": [1, 2, 3, 4, 0.5]},
        {"poly": [1, 2, 3, 4, 5, 6, 7, 8]},
    ],
)
def test_oriented_boxes_are_refused_by_name(tmp_path: Path, change: dict[str, Any]) -> None:
    annotations, results = files(tmp_path, 1)
    rows = json.loads(results.read_text())
    results.write_text(json.dumps([{**rows[0], **change}]))
    error = error_of([results], "coco", tmp_path / "run", model="m", annotations=annotations)
    assert "OBB" in str(error)
    truth = json.loads(annotations.read_text())
    results.write_text(json.dumps(rows))
    if "bbox" in change:
        truth["annotations"][0]["bbox"] = change["bbox"]
        annotations.write_text(json.dumps(truth))
        error = error_of([results], "coco", tmp_path / "run", model="m", annotations=annotations)
        assert "OBB" in str(error)
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "00001.txt").write_text("0 .1 .1 .2 .1 .2 .2 .1 .2 .9\n")
    annotations, _ = files(tmp_path, 1)
    labels = error_of([tmp_path / "labels"], "coco", tmp_path / "run", model="m", annotations=annotations)
    assert "OBB" in str(labels)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"image_id": 10**6}, "image_id"),
        ({"bbox": [1, 2, -3, 4]}, "negative"),
        ({"bbox": None}, "bbox"),
        ({"score": None}, "score"),
        ({"score": "0.5"}, "score"),
        ({"category_id": True}, "category"),
    ],
)
def test_invalid_results_are_named(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    annotations, results = files(tmp_path, 1)
    rows = json.loads(results.read_text())
    results.write_text(json.dumps([rows[0], {**rows[1], **change}]))
    error = error_of([results], "coco", tmp_path / "run", model="m", annotations=annotations)
    assert named in str(error)
    assert not (tmp_path / "run").exists()


def test_what_is_missing_is_asked_for(tmp_path: Path) -> None:
    annotations, results = files(tmp_path, 1)
    assert "model" in str(error_of([results], "coco", tmp_path / "run", annotations=annotations))
    assert "annotations" in str(error_of([results], "coco", tmp_path / "run", model="m"))
    swapped = error_of([annotations], "coco", tmp_path / "run", model="m", annotations=annotations)
    assert "ground truth" in str(swapped)
    assert "severity" in str(
        error_of([f"fog={results}"], "coco", tmp_path / "r", model="m", annotations=annotations)
    )


# Export.


def photo(number: int) -> Any:
    rng = np.random.default_rng(number)
    image = np.full((60, 80, 3), 40, np.uint8)
    image[10:40, 20 + number : 50 + number] = rng.integers(150, 255, (30, 30, 3))
    return image


def bright_boxes(images: Any) -> list[list[Box]]:
    """Find the bright rectangle; fail on images that are dark everywhere."""
    found = []
    for image in images:
        rows, cols = np.nonzero(np.asarray(image).mean(2) > 120)
        box = (float(cols.min()), float(rows.min()), float(cols.max() + 1), float(rows.max() + 1))
        found.append([Box(box, 1, 0.7 + 0.01 * (int(cols.min()) % 7)), Box((1.0, 2.0, 30.3, 9.0), 0, 0.2)])
    return found


@pytest.fixture
def boxed_run(tmp_path: Path) -> Run:
    samples = [
        Sample(
            f"{number}.jpg",
            Generated(photo, (number,), version=1),
            ground_truth=(Box((20.5 + number, 10.0, 50.0 + number, 40.0), 1, area=800.0),)
            + ((Box((0.0, 0.0, 9.0, 9.0), 0, crowd=True),) if number else ()),
        )
        for number in range(4)
    ]
    model = Model(
        name="bright",
        forward=lambda images: Outputs(boxes=bright_boxes(images)),
        labels=("cat", "dog"),
        version="1",
        output="boxes",
    )
    suite = parse(
        {
            "name": "boxed",
            "shifts": [{"name": "rotation", "severities": [20]}, {"name": "brightness", "levels": [2]}],
        },
        "test",
    )
    out = tmp_path / "boxed"
    return sorites.run(
        suite,
        source=Source("made", samples),
        models=[model],
        labels=["cat", "dog"],
        out=out,
    )


def same_columns(run: Path) -> pl.DataFrame:
    names = [
        "sample_id",
        "shift",
        "severity",
        "level",
        "family",
        "params",
        "model",
        "boxes",
        "ground_truth",
        "error",
    ]
    rows = table.read(run).filter(pl.col("output") == "boxes").select(names).collect()
    return rows.sort("model", "shift", "severity", "sample_id")


def test_an_exported_run_is_imported_as_it_was(boxed_run: Run, tmp_path: Path) -> None:
    out = sorites.export(boxed_run, "coco", out=tmp_path / "coco")
    again = import_predictions([out], "coco", tmp_path / "again").folder
    before, after = same_columns(boxed_run.folder), same_columns(again)
    assert before.height == 12
    corners = [
        pl.col("ground_truth").list.eval(pl.element().struct.field(name)).alias(name)
        for name in ("x0", "crowd")
    ]
    assert_frame_equal(before.drop("ground_truth"), after.drop("ground_truth"))
    assert_frame_equal(before.select(corners), after.select(corners))
    by = ["model", "shift", "severity"]
    assert_frame_equal(
        metrics.map(table.read(boxed_run.folder), by=by).drop("left_out"),
        metrics.map(table.read(again), by=by).drop("left_out"),
    )
    listed = json.loads((out / "sorites.json").read_text())["results"]
    clean = next(entry for entry in listed if entry["shift"] == "clean")
    stats = by_pycocotools(out / clean["annotations"], out / clean["file"])
    assert numbers(boxed_run.folder, shift="clean")[0] == pytest.approx(stats[0], abs=1e-9)
    turned = next(entry for entry in listed if entry["shift"] == "rotation")
    assert turned["annotations"] != clean["annotations"]
    stats = by_pycocotools(out / turned["annotations"], out / turned["file"])
    assert numbers(boxed_run.folder, shift="rotation")[0] == pytest.approx(stats[0], abs=1e-9)
    with pytest.warns(Notice) as caught:
        sorites.export(boxed_run.folder, "coco", out=tmp_path / "without")
    assert caught[0].message.code == "incomplete"  # type: ignore[union-attr]
    image = json.loads((out / "annotations.json").read_text())["images"][0]
    assert (image["width"], image["height"]) == (80, 60)


def test_ood_scores_and_known_classes_are_kept(boxed_run: Run, tmp_path: Path) -> None:
    """A detector that lacks the class of some objects: its scores, and their metrics, are those of the run."""
    labels = ["cat", "dog", "bird"]
    samples = [
        Sample(
            f"{number}.jpg",
            Generated(photo, (number,), version=1),
            ground_truth=(Box((20.5 + number, 10.0, 50.0 + number, 40.0), 1 + number % 2, area=800.0),),
        )
        for number in range(4)
    ]
    model = Model(
        name="bright",
        forward=lambda images: Outputs(boxes=bright_boxes(images)),
        labels=("cat", "dog"),
        version="1",
        output="boxes",
    )
    suite = parse({"name": "scored", "shifts": ["brightness"], "scorers": ["msp"]}, "test")
    run = sorites.run(
        suite, source=Source("made", samples), models=[model], labels=labels, levels=[2], out=tmp_path / "s"
    )
    out = sorites.export(run, "coco", out=tmp_path / "out")
    listed = json.loads((out / "sorites.json").read_text())["results"]
    clean = next(entry for entry in listed if entry["shift"] == "clean")
    by_pycocotools(out / clean["annotations"], out / clean["file"])
    result = json.loads((out / clean["file"]).read_text())[0]
    odds = result["score"] / (1 - result["score"])
    assert result["ood_scores"]["msp"] == pytest.approx(-np.log(odds), abs=1e-5)
    again = import_predictions([out], "coco", tmp_path / "again").folder
    names = [
        "sample_id", "shift", "severity", "model", "output", "scorer", "score", "known", "boxes",
        "ground_truth", "error",
    ]  # fmt: skip
    before, after = (
        table.read(folder).select(names).collect().sort(names[:6]) for folder in (run.folder, again)
    )
    assert before.filter(pl.col("output") == "ood").height == 8
    assert_frame_equal(before, after)
    for metric in (metrics.box_auroc, metrics.unknown_flagged):
        assert_frame_equal(metric(table.read(run.folder)), metric(table.read(again)))
    assert metrics.unknown_recall(table.read(again))["n"].sum() > 0
    with pytest.raises(SoritesError, match="scorer"):
        sorites.score(run.folder, "energy")


def test_scores_of_other_tools_are_read_and_checked(tmp_path: Path) -> None:
    annotations, results = files(tmp_path, 5)
    content = json.loads(results.read_text())
    for row in content:
        row["ood_scores"] = {"mine": -row["score"]}
    results.write_text(json.dumps(content))
    run = import_predictions([results], "coco", tmp_path / "run", model="m", annotations=annotations).folder
    scored = table.read(run).filter(pl.col("output") == "ood").collect()
    assert scored["scorer"].unique().to_list() == ["mine"]
    for boxes, score in scored.select("boxes", "score").iter_rows():
        reported = [box["score"] for box in boxes if box["conf"] >= 0.25]
        assert score == (max(reported) if reported else None)
    for wrong in ([1], {"mine": "high"}):
        content[0]["ood_scores"] = wrong
        results.write_text(json.dumps(content))
        error = error_of([results], "coco", tmp_path / "x", model="m", annotations=annotations)
        assert "result 1" in str(error)


def test_an_export_refuses_what_it_cannot_write(boxed_run: Run, tmp_path: Path) -> None:
    with pytest.raises(UnknownName) as caught:
        sorites.export(boxed_run, "csv2", out=tmp_path / "x")
    assert caught.value.fields["name"] == "csv2"
    with pytest.raises(UnknownName):
        sorites.export(boxed_run, "coco", out=tmp_path / "x", models=["other"])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").write_text("")
    with pytest.raises(SoritesError):
        sorites.export(boxed_run, "coco", out=tmp_path / "full")
    assert not (tmp_path / "x").exists()

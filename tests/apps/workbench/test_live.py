"""The image under a dial and the answers of models equal those of a run, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image as Pillow
from tests.apps.workbench.conftest import TOY
from tests.conftest import scene

import sorites
from sorites.apps.workbench.library import Library, RunEntry
from sorites.apps.workbench.turning import answers
from sorites.core import ArrayRef, Sample
from sorites.core.errors import SoritesError
from sorites.evaluation import plan as plans
from sorites.evaluation.live import dial
from sorites.evaluation.plan import Plan
from sorites.suites.suite import load

ANSWERS = ["model", "output", "scorer", "image_id", "pred", "conf", "top5", "correct", "score"]


@pytest.fixture(scope="module")
def entry(finished: Path) -> RunEntry:
    (found,) = Library([finished]).runs()
    return found


@pytest.fixture(scope="module")
def plan(entry: RunEntry) -> Plan:
    return entry.plan()


def test_every_row_of_the_run_is_what_the_dial_gives(entry: RunEntry, plan: Plan) -> None:
    table = sorites.read(entry.folder).collect()
    images = entry.opened().images
    places = dict(zip(images["image_id"], range(images.height), strict=True))
    seen = 0
    for sample in sorted(table["sample_id"].unique())[:3]:
        of_sample = table.filter(pl.col("sample_id") == sample)
        for (shift, severity), rows in of_sample.group_by("shift", "severity"):
            made = dial(plan, sample).turn({} if shift == "clean" else {str(shift): float(severity)})
            assert made.shot.image is not None
            assert np.array_equal(made.shot.image, entry.image(places[rows["image_id"][0]]))
            order = ["model", "output"]
            assert made.rows.select(ANSWERS).sort(order).equals(rows.select(ANSWERS).sort(order))
            seen += 1
    assert seen == 3 * 11


def test_two_shifts_have_the_pixels_of_a_grid(
    entry: RunEntry, plan: Plan, photos: Path, tmp_path: Path
) -> None:
    at = {"gaussian_noise": 0.12, "defocus_disk": 4.0}
    sample = next(iter(plan.groups["clean"])).id
    made = dial(plan, sample).turn(at)
    run = sorites.run(
        entry.record.suite.model_copy(update={"shifts": (), "scorers": (), "limit": 2}),
        grid=["gaussian_noise=0.12 x defocus_disk=4"],
        out=tmp_path / "grid",
    )
    rows = run.table.filter(pl.col("severity").is_null(), sample_id=sample).collect()
    both = rows.filter(pl.col("params").str.contains("0.12") & pl.col("params").str.contains("4.0"))
    mine = made.rows.filter(pl.col("output") == "label")
    assert mine["image_id"].unique().item() == both["image_id"].unique().item()
    assert mine.sort("model")["conf"].equals(both.sort("model")["conf"])


def test_failure_severity_is_bracketed(plan: Plan) -> None:
    found = 0
    for sample in list(plan.groups["clean"]):
        of = dial(plan, sample.id)
        failed = of.failure_severity("gaussian_noise", "coarse")
        if failed.holds is None or failed.fails is None:
            continue
        found += 1
        assert of.turn({"gaussian_noise": failed.holds}).correct("coarse")
        assert not of.turn({"gaussian_noise": failed.fails}).correct("coarse")
        assert 0 < failed.fails - failed.holds < 0.001
    assert found


def test_images_without_a_label_fail_where_the_answer_changes(plan: Plan) -> None:
    image = Sample("mine", ArrayRef(scene(3, 90, 120)))
    of = dial(plan, image)
    clean = of.turn({})
    assert clean.correct("classify") is None
    failed = of.failure_severity("gaussian_noise", "coarse")
    if failed.fails is not None and failed.holds is not None:
        assert of.turn({"gaussian_noise": failed.holds}).answer("coarse") == clean.answer("coarse")
        assert of.turn({"gaussian_noise": failed.fails}).answer("coarse") != clean.answer("coarse")


@pytest.fixture
def squares(tmp_path: Path) -> Plan:
    """A detector of bright regions on an image with two of them, one brighter, and one object it cannot see."""
    image = np.full((100, 100, 3), 20, np.uint8)
    boxes = [(10, 10, 30, 30, 250), (60, 60, 30, 30, 190), (60, 10, 20, 20, 60)]
    for x, y, width, height, grey in boxes:
        image[y : y + height, x : x + width] = grey
    Pillow.fromarray(image).save(tmp_path / "0.png")
    objects = [
        {"id": i, "image_id": 0, "category_id": 1, "bbox": box[:4], "area": box[2] * box[3], "iscrowd": 0}
        for i, box in enumerate(boxes)
    ]
    document = {
        "images": [{"id": 0, "file_name": "0.png", "width": 100, "height": 100}],
        "annotations": objects,
        "categories": [{"id": 1, "name": "person"}],
    }
    (tmp_path / "a.json").write_text(json.dumps(document))
    suite = load("demo").override(models=[f"find=python:{TOY}:find"], labels=("person", "dog"))
    source = f"coco:{tmp_path / 'a.json'},images={tmp_path}"
    return plans.make(suite.model_copy(update={"source": source, "fit": None, "scorers": ()}))


def test_a_detector_fails_where_it_misses_an_object_that_it_found(squares: Plan) -> None:
    (sample,) = list(squares.groups["clean"])
    of = dial(squares, sample.id)
    assert of.turn({}).found("find") == {0, 1}
    failed = of.failure_severity("contrast", "find")
    assert failed.holds is not None
    assert failed.fails is not None
    assert of.turn({"contrast": failed.holds}).found("find") == {0, 1}
    assert of.turn({"contrast": failed.fails}).found("find") != {0, 1}
    assert answers(squares, of.turn({}))["find"]["objects"] == [2, 3]
    with pytest.raises(SoritesError):
        dial(squares, Sample("mine", ArrayRef(scene(3, 90, 120)))).failure_severity("contrast", "find")


@pytest.mark.parametrize("at", [{"defocus_disk": 99.0}, {"defocus_disk": -1.0}, {"no_such_shift": 1.0}])
def test_what_cannot_be_turned_is_refused(plan: Plan, at: dict[str, float]) -> None:
    with pytest.raises(SoritesError):
        dial(plan, next(iter(plan.groups["clean"])).id).turn(at)


def test_an_unknown_sample_is_refused(plan: Plan) -> None:
    with pytest.raises(SoritesError):
        dial(plan, "nobody.png")

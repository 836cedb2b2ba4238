"""The image under a dial and the answers of models equal those of a run, bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.conftest import scene

import sorites
from sorites.apps.workbench.library import Library, RunEntry
from sorites.core import ArrayRef, Sample
from sorites.core.errors import SoritesError
from sorites.evaluation.live import dial
from sorites.evaluation.plan import Plan

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


@pytest.mark.parametrize("at", [{"defocus_disk": 99.0}, {"defocus_disk": -1.0}, {"no_such_shift": 1.0}])
def test_what_cannot_be_turned_is_refused(plan: Plan, at: dict[str, float]) -> None:
    with pytest.raises(SoritesError):
        dial(plan, next(iter(plan.groups["clean"])).id).turn(at)


def test_an_unknown_sample_is_refused(plan: Plan) -> None:
    with pytest.raises(SoritesError):
        dial(plan, "nobody.png")

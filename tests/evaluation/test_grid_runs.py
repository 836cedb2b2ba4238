"""Runs of grids and named cameras: rows, equality with single shifts, resuming, boxes, and command lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from sorites import metrics
from sorites.core import Box, Generated, Model, Outputs, Sample, Source
from sorites.core.errors import SoritesError
from sorites.evaluation import plan as plans
from sorites.evaluation.images import captured_shot, shifted_shots
from sorites.evaluation.predict import predict
from sorites.evaluation.run import run
from sorites.suites.suite import Suite, load, parse

GRID = "gaussian_noise=0.1,0.3 x defocus_disk=1,3"
SHIFT = "gaussian_noise x defocus_disk"


def draw(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 255, (32, 40, 3), dtype=np.uint8)


def source(count: int = 5, **more: Any) -> Source:
    return Source("made", [Sample(f"s{i}", Generated(draw, (i,)), label=i % 3, **more) for i in range(count)])


def classifier() -> Model:
    weights = np.random.default_rng(9).normal(size=(3, 3))

    def forward(images: list[np.ndarray]) -> Outputs:
        means = np.stack([image.astype(np.float64).std(axis=(0, 1)) for image in images])
        return Outputs(logits=((means - 60) @ weights / 10).astype(np.float32))

    return Model("m", forward, labels=("a", "b", "c"), version="1")


def suite(**more: Any) -> Suite:
    return parse({"name": "g", "labels": ["a", "b", "c"], "models": ["m"], "scorers": ["msp"], **more}, "g")


def table(out: Path, **how: Any) -> pl.DataFrame:
    base = how.pop("suite", None) or suite()
    return run(
        base, source=how.pop("source", None) or source(), models=[classifier()], out=out, **how
    ).collect()


def test_rows_have_both_severities_in_params_and_no_severity(tmp_path: Path) -> None:
    rows = table(tmp_path / "grid", grid=[GRID]).filter(output="label", shift=SHIFT)
    assert rows["severity"].null_count() == rows.height == 5 * 8
    assert rows["family"].unique().to_list() == ["combined"]
    found = {tuple(sorted(json.loads(text).items())) for text in rows["params"]}
    assert len(found) == 8
    assert (("defocus_disk", 3.0), ("gaussian_noise", 0.1)) in found


def test_on_the_axes_rows_equal_those_of_single_shifts(tmp_path: Path) -> None:
    grid = table(tmp_path / "grid", grid=[GRID])
    columns = ["sample_id", "output", "scorer", "pred", "conf", "top5", "correct", "score"]
    key = ["sample_id", "output", "scorer"]
    for name, severities in (("gaussian_noise", (0.1, 0.3)), ("defocus_disk", (1.0, 3.0))):
        alone = table(tmp_path / name, shifts=[name], severities=severities)
        other = "defocus_disk" if name == "gaussian_noise" else "gaussian_noise"
        for severity in severities:
            told = json.dumps({name: severity, other: 0.0}, sort_keys=True)
            here = grid.filter(shift=SHIFT, params=told).select(columns).sort(key)
            there = alone.filter(shift=name, severity=severity).select(columns).sort(key)
            assert here.height == 10
            assert_frame_equal(here, there, check_exact=True)


def test_metrics_read_a_grid_run(tmp_path: Path) -> None:
    rows = table(tmp_path / "grid", grid=[GRID])
    surface = metrics.grid_accuracy(rows)
    assert surface.height == 9
    assert set(zip(surface["first"], surface["second"], strict=True)) == {
        (a, b) for a in (0.0, 0.1, 0.3) for b in (0.0, 1.0, 3.0)
    }
    clean = rows.filter(shift="clean", output="label")["correct"].mean()
    assert surface.filter(first=0.0, second=0.0)["value"].item() == clean


def test_a_run_is_resumed_and_another_grid_is_another_run(tmp_path: Path) -> None:
    first = table(tmp_path / "grid", grid=[GRID])
    assert_frame_equal(table(tmp_path / "grid", grid=[GRID]), first)
    with pytest.raises(SoritesError, match="grid"):
        table(tmp_path / "grid", grid=["gaussian_noise=0.1,0.3 x defocus_disk=1,4"])


def test_a_grid_replaces_the_shifts_of_the_suite_unless_they_are_named(tmp_path: Path) -> None:
    base = suite(shifts=["jpeg"], grid=["contrast=0.5 x scale=1"])
    assert [dial.name for dial in base.override(grid=[GRID]).dials] == [SHIFT]
    assert [dial.name for dial in base.override(grid=[GRID], shifts=["jpeg"]).dials] == ["jpeg", SHIFT]
    assert [dial.name for dial in base.override().dials] == ["jpeg", "contrast x scale"]
    assert [dial.name for dial in base.override(shifts=["jpeg"]).dials] == ["jpeg"]
    levels = base.override(grid=["jpeg x contrast=0.5"], levels=[1, 2]).grid[0]
    assert [(dial.levels, dial.severities) for dial in levels.shifts] == [((1, 2), ()), ((), (0.5,))]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("jpeg", "grid"),
        ("jpeg x jpeg", "listed twice"),
        ("jpeg x style", "has no severity"),
        ("jpeg x nonsense", "nonsense"),
        ("jpeg=a x contrast", "grid"),
        ("jpeg=0 x contrast", "above 0"),
    ],
)
def test_a_wrong_grid_is_refused_before_any_work(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SoritesError, match=said):
        table(tmp_path / "run", grid=[text])
    assert not (tmp_path / "run").exists()


PHONE = {
    "name": "phone",
    "shifts": [
        {"name": "jpeg", "severities": [40, 80]},
        {"name": "defocus_disk", "severities": [1, 2]},
        "gaussian_noise",
    ],
}


def test_a_named_camera_has_one_severity_and_records_its_parts(tmp_path: Path) -> None:
    rows = table(tmp_path / "phone", suite=suite(compose=[PHONE])).filter(output="label", shift="phone")
    assert rows["severity"].unique().sort().to_list() == [1.0, 2.0]
    assert rows["level"].unique().sort().to_list() == [1, 2]
    assert json.loads(rows.filter(level=2)["params"][0]) == {
        "defocus_disk": 2.0,
        "gaussian_noise": 0.12,
        "jpeg": 80.0,
    }


def test_the_camera_that_is_shipped_turns_four_shifts_in_the_order_of_their_stages(tmp_path: Path) -> None:
    shipped = load("cheap_phone").model_copy(
        update={"labels": ("a", "b", "c"), "models": ("m",), "frame": None}
    )
    rows = table(tmp_path / "phone", suite=shipped.model_copy(update={"reference": None}), levels=[1, 5])
    made = rows.filter(output="label", shift="cheap_phone")
    assert made["severity"].unique().sort().to_list() == [1.0, 5.0]
    assert json.loads(made.filter(level=5)["params"][0]) == {
        "gaussian_blur": 3.0,
        "exposure_stops_down": 3.0,
        "iso_noise": 10.0,
        "jpeg": 85.0,
    }
    (camera,) = shipped.compose
    assert [part.stage for part in camera.shift().parts] == ["optics", "sensor", "sensor", "codec"]


def test_a_named_camera_can_be_selected_and_refined(tmp_path: Path) -> None:
    base = suite(shifts=["contrast"], compose=[PHONE])
    rows = table(tmp_path / "phone", suite=base, shifts=["phone"], refine=0.1)
    assert set(rows["shift"]) == {"clean", "phone"}
    probes = rows.filter(pl.col("probe"))
    assert all(0 < severity < 2 for severity in probes["severity"])
    assert base.override(shifts=["phone"], levels=[2]).compose[0].levels == (2,)


def test_severities_of_a_camera_must_be_equally_many() -> None:
    shifts = [{"name": "jpeg", "severities": [40, 80, 90]}, {"name": "scale", "severities": [1, 2]}]
    camera = suite(compose=[{"name": "odd", "shifts": shifts}]).compose[0]
    with pytest.raises(SoritesError, match="odd: expected equally many severities"):
        camera.shift()


def test_boxes_follow_a_grid_of_geometric_shifts(tmp_path: Path) -> None:
    def forward(images: list[np.ndarray]) -> Outputs:
        return Outputs(boxes=[(Box((1, 1, 9, 9), 0, 0.5),) for _ in images])

    detector = Model("d", forward, labels=("a", "b", "c"), output="boxes", version="1")
    boxed = source(2, ground_truth=(Box((10, 8, 25, 20), 0),))
    base = parse({"name": "b", "labels": ["a", "b", "c"], "models": ["d"]}, "b")
    rows = run(
        base, source=boxed, models=[detector], grid=["rotation=10 x gaussian_noise=0.1"], out=tmp_path / "r"
    ).collect()
    truth = {
        json.dumps(json.loads(p)) if p else "": t
        for p, t in rows.select("params", "ground_truth").iter_rows()
    }
    still = next(t for p, t in truth.items() if '"rotation": 0.0' in p)
    turned = [t for p, t in truth.items() if '"rotation": 10.0' in p]
    assert still[0]["x0"] == 10.0
    assert len(turned) == 2
    assert turned[0] == turned[1]
    assert turned[0][0]["x0"] != 10.0


MOVING = ("rotation", "crop", "radial_distortion", "elastic_transform", "occlusion_objects", "lens_drops")


def test_map_is_unchanged_to_the_bit_at_severity_0() -> None:
    offsets = np.random.default_rng(4).normal(0, 2, (400, 4))

    def forward(images: list[np.ndarray]) -> Outputs:
        found = []
        for image in images:
            jitter = offsets[int(image.sum()) % 400]
            corners = tuple(float(a + b) for a, b in zip((10, 8, 25, 20), jitter, strict=True))
            found.append((Box(corners, 0, 0.5 + int(image.sum()) % 100 / 250),))  # type: ignore[arg-type]
        return Outputs(boxes=found)

    detector = Model("d", forward, labels=("a", "b", "c"), output="boxes", version="1")
    boxed = source(12, ground_truth=(Box((10, 8, 25, 20), 0),))
    base = parse({"name": "b", "labels": ["a", "b", "c"], "models": ["d"], "shifts": list(MOVING)}, "b")
    plan = plans.make(base, boxed, {"d": detector})
    clean = predict(plan, (captured_shot(plan, sample) for sample in boxed), 8)["d"].rows
    expected = metrics.map(clean, by=("model",), resamples=0)["value"].item()
    assert 0 < expected < 1
    for name in MOVING:
        at_0 = (shot for sample in boxed for shot in shifted_shots(plan, sample, name, [0.0]))
        rows = predict(plan, at_0, 8)["d"].rows
        assert metrics.map(rows, by=("model",), resamples=0)["value"].item() == expected
        assert rows["ground_truth"].to_list() == clean["ground_truth"].to_list()

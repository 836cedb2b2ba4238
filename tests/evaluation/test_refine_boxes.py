"""Refining detectors: every object has its own bracket, and an image made for one object is judged for all."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import sorites
from sorites.core import Box, Generated, Model, Outputs, Sample, Source, table
from sorites.evaluation.tasks import Bracket, brackets
from sorites.suites.suite import parse

DIALS = parse({"name": "s", "labels": "coco", "shifts": ["brightness"]}, "test")
PLACES = ((0, 0, 20, 20), (30, 0, 50, 20), (60, 0, 80, 20))
GREYS = (60, 90, 125)
LIMIT = 140.5


def image(greys: tuple[int, ...]) -> np.ndarray:
    """Grey objects on white: an object is lost as soon as it is brighter than the limit."""
    made = np.full((40, 100, 3), 255, np.uint8)
    for (x0, y0, x1, y1), grey in zip(PLACES, greys, strict=True):
        made[y0:y1, x0:x1] = grey
    return made


def detector(broken: tuple[float, float] = (2.0, 2.0)) -> Model:
    def forward(images: list[np.ndarray]) -> Outputs:
        if any(broken[0] < seen[10, 10].mean() < broken[1] for seen in images):
            raise ValueError("not these")
        return Outputs(
            boxes=[tuple(Box(at, 0, 0.9) for at in PLACES if _grey(seen, at) < LIMIT) for seen in images]
        )

    return Model("det", forward, labels=("person",), output="boxes")


def _grey(seen: np.ndarray, at: tuple[int, int, int, int]) -> float:
    return float(seen[at[1] + 5 : at[3] - 5, at[0] + 5 : at[2] - 5].mean())


def refined(out: Path, model: Model, samples: int = 3, **more: Any) -> pl.DataFrame:
    ground_truth = (*(Box(at, 0) for at in PLACES), Box((0, 25, 90, 40), 0, crowd=True))
    made = [
        Sample(f"s{k}", Generated(lambda k=k: image(tuple(g + k for g in GREYS))), ground_truth=ground_truth)
        for k in range(samples)
    ]
    return sorites.run(
        DIALS, source=Source("greys", made), models=[model], refine=0.02, out=out, **more
    ).collect()


def test_every_object_is_found_within_the_tolerance(tmp_path: Path) -> None:
    held = refined(tmp_path / "run", detector())
    assert table.check(held) == []
    points = sorites.metrics.trajectories(sorites.metrics.objects(held)).collect().sort("sample_id")
    assert points.height == 9
    for name, failure in points.select("sample_id", "failure").iter_rows():
        sample, obj = name[1:].split("#")
        crossing = (LIMIT - GREYS[int(obj)] - int(sample)) / 255
        assert 0 <= failure - crossing <= 0.02 * 0.5 + 1e-6


def test_a_image_is_made_once_however_many_objects_want_it(tmp_path: Path) -> None:
    probes = refined(tmp_path / "run", detector(), samples=1).filter(pl.col("probe"))
    assert probes["severity"].is_unique().all()
    assert probes.height <= 3 * math.ceil(math.log2(0.1 / 0.01))


def test_batches_and_resume_do_not_matter(tmp_path: Path) -> None:
    once = refined(tmp_path / "a", detector(), batch=1)
    again = refined(tmp_path / "b", detector(), batch=8)
    order = ["sample_id", "shift", "severity"]
    assert once.drop("run_id").sort(order).equals(again.drop("run_id").sort(order))


def test_a_image_that_fails_ends_the_search_and_no_row_stands_twice(tmp_path: Path) -> None:
    held = refined(tmp_path / "run", detector(broken=(141.0, 150.0)))
    assert held.filter(pl.col("error").is_not_null()).height > 0
    assert table.check(held) == []


def rows(*steps: tuple[float, Any]) -> pl.DataFrame:
    """A sample with two objects at several severities; a step of None is an error."""
    at = [dict(zip(("x0", "y0", "x1", "y1"), place, strict=True)) | {"label": 0} for place in PLACES[:2]]
    whole = {"model": "m", "sample_id": "s", "output": "boxes", "probe": False}
    made: list[dict[str, Any]] = []
    for severity, found in steps:
        where = {"image_id": str(severity), "severity": severity, "shift": "blur" if severity else "clean"}
        seen = (
            {"error": "torn"}
            if found is None
            else {"ground_truth": at, "boxes": [{**at[k], "conf": 0.5} for k in found]}
        )
        made.append({**whole, **where, **seen})
    return table.rows(made)


def test_brackets_of_objects() -> None:
    assert brackets(rows((0, [0, 1]), (1, [0]), (2, [1]), (3, [])), "blur") == {
        ("m", "s", 0): Bracket(1, 2),
        ("m", "s", 1): Bracket(0, 1),
    }
    assert brackets(rows((0, [0, 1]), (1, None), (2, [1])), "blur") == {}
    assert brackets(rows((0, [1]), (1, [0, 1]), (2, [0])), "blur") == {("m", "s", 1): Bracket(1, 2)}

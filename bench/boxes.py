"""mAP with a thousand resamples of 5000 images of 100 boxes, from the table, against one plain
evaluation by hotcoco.

Both start from the rows of the table: hotcoco takes COCO's lists, which are made of them as a user
would. pycocotools, many times slower, is asked on a tenth of the images, for scale.
"""

from __future__ import annotations

import contextlib
import io
import time
from typing import Any

import numpy as np
import polars as pl

from bench._timing import in_turns
from sorites import metrics
from sorites.core import table

IMAGES, BOXES, OBJECTS, CLASSES, RESAMPLES, TURNS = 5000, 100, 7, 80, 1000, 3


def run(images: int = IMAGES) -> list[tuple[str, float, str]]:
    """(what, ratio, note); both sides must give the same number."""
    rows = made_up(images)
    answers: list[float] = []

    def mine() -> None:
        answers.append(metrics.map(rows, by=("model",), resamples=RESAMPLES)["value"].item())

    def theirs() -> None:
        answers.append(by_hotcoco(*as_coco(rows)))

    lists = as_coco(rows)
    works = mine, theirs, lambda: by_hotcoco(*lists)
    ours, peers, bare = (min(taken) for taken in in_turns(TURNS, time.perf_counter, *works))
    if np.ptp(answers) > 1e-9:
        raise AssertionError(f"the two disagree: {answers}")
    few = rows.head(images // 10)
    (slow,), (plain,) = in_turns(
        1, time.perf_counter, lambda: by_pycocotools(few), lambda: metrics.map(few, resamples=0)
    )
    what = f"mAP of {images} images with {RESAMPLES} resamples over"
    return [
        (f"{what} one plain hotcoco", ours / peers, f"x its time (at most 3); {ours:.1f} s here"),
        ("the same, where its lists are ready made", ours / bare, f"x its time; {bare:.1f} s there"),
        (f"plain mAP of {len(few)} images over pycocotools", slow / plain, f"x faster; {plain:.2f} s here"),
    ]


def made_up(images: int) -> pl.DataFrame:
    """Rows of one detector: classes as uneven as COCO's, four boxes of ten near an object."""
    rng = np.random.default_rng(0)
    ground_truth = _corners(rng, images * OBJECTS)
    label = (rng.zipf(1.5, len(ground_truth)) - 1) % CLASSES
    of = np.repeat(np.arange(images), BOXES) * OBJECTS + rng.integers(0, OBJECTS, images * BOXES)
    near = rng.random(len(of)) < 0.4
    size = np.tile(ground_truth[of, 2:] - ground_truth[of, :2], 2)
    found = np.where(
        near[:, None], ground_truth[of] + rng.normal(0, 0.12, size.shape) * size, _corners(rng, len(of))
    )
    found[:, 2:] = np.maximum(found[:, 2:], found[:, :2] + 1)
    conf = np.where(near, rng.beta(2, 2, len(of)), rng.beta(1, 6, len(of)))
    said = np.where(rng.random(len(of)) < 0.8, label[of], rng.integers(0, CLASSES, len(of)))
    rows = {
        "sample_id": [f"{k:06d}" for k in range(images)],
        "image_id": [f"{k:06d}" for k in range(images)],
        "ground_truth": _lists(ground_truth, label, None, OBJECTS, table.SCHEMA["ground_truth"]),
        "boxes": _lists(found, said, conf, BOXES, table.SCHEMA["boxes"]),
    }
    whole = {
        "run_id": "r",
        "source": "made",
        "model": "m",
        "shift": "clean",
        "severity": 0.0,
        "output": "boxes",
        "probe": False,
    }
    filled = pl.DataFrame(rows).with_columns(**{name: pl.lit(value) for name, value in whole.items()})
    empty = [pl.lit(None).alias(name) for name in table.SCHEMA if name not in filled.columns]
    return filled.with_columns(empty).select([pl.col(name).cast(kind) for name, kind in table.SCHEMA.items()])


def _corners(rng: np.random.Generator, count: int) -> Any:
    low = rng.uniform(0, 400, (count, 2))
    return np.concatenate([low, low + np.exp(rng.uniform(2.5, 5.5, (count, 2)))], axis=1)


def _lists(corners: Any, label: Any, conf: Any, each: int, kind: Any) -> pl.Series:
    columns = {name: corners[:, k] for k, name in enumerate(("x0", "y0", "x1", "y1"))} | {"label": label}
    frame = pl.DataFrame({**columns, **({} if conf is None else {"conf": conf})})
    missing = [
        pl.lit(None).alias(field.name) for field in kind.inner.fields if field.name not in frame.columns
    ]
    boxes = frame.with_columns(missing).select(
        pl.struct(field.name for field in kind.inner.fields).alias("box").cast(kind.inner)
    )
    return boxes.group_by(pl.int_range(pl.len()) // each, maintain_order=True).agg("box")["box"]


def as_coco(rows: pl.DataFrame) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return COCO's annotations and results from the rows of a table, as a user would write them."""
    annotations: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for image, (ground_truth, boxes) in enumerate(rows.select("ground_truth", "boxes").iter_rows(), start=1):
        for box in ground_truth:
            where = _where(image, box)
            area = where["bbox"][2] * where["bbox"][3]
            annotations.append({"id": len(annotations) + 1, **where, "area": area, "iscrowd": 0})
        results += [{**_where(image, box), "score": box["conf"]} for box in boxes]
    images = [{"id": k + 1, "width": 700, "height": 700} for k in range(len(rows))]
    names = [{"id": k + 1, "name": str(k)} for k in range(CLASSES)]
    return {"images": images, "categories": names, "annotations": annotations}, results


def _where(image: int, box: dict[str, Any]) -> dict[str, Any]:
    x0, y0 = box["x0"], box["y0"]
    return {
        "image_id": image,
        "category_id": box["label"] + 1,
        "bbox": [x0, y0, box["x1"] - x0, box["y1"] - y0],
    }


def by_hotcoco(ground_truth: dict[str, Any], results: list[dict[str, Any]]) -> float:
    from hotcoco import COCO, COCOeval

    true = COCO(ground_truth)
    return _evaluated(COCOeval(true, true.load_res(results), "bbox"))


def by_pycocotools(rows: pl.DataFrame) -> float:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    ground_truth, results = as_coco(rows)
    with contextlib.redirect_stdout(io.StringIO()):
        true = COCO()
        true.dataset = ground_truth
        true.createIndex()
        return _evaluated(COCOeval(true, true.loadRes(results), "bbox"))


def _evaluated(asked: Any) -> float:
    with contextlib.redirect_stdout(io.StringIO()):
        asked.evaluate()
        asked.accumulate()
        asked.summarize()
    return float(asked.stats[0])

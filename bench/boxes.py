"""mAP with a thousand resamples of 5000 pictures of 100 boxes, from the table, against one plain
evaluation by hotcoco.

Both start from the rows of the table: hotcoco takes COCO's lists, which are made of them as a user
would. pycocotools, many times slower, is asked on a tenth of the pictures, for scale.
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

PICTURES, BOXES, THINGS, CLASSES, RESAMPLES, TURNS = 5000, 100, 7, 80, 1000, 3


def run(pictures: int = PICTURES) -> list[tuple[str, float, str]]:
    """(what, ratio, note); both sides must give the same number."""
    rows = made_up(pictures)
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
    few = rows.head(pictures // 10)
    (slow,), (plain,) = in_turns(
        1, time.perf_counter, lambda: by_pycocotools(few), lambda: metrics.map(few, resamples=0)
    )
    what = f"mAP of {pictures} pictures with {RESAMPLES} resamples over"
    return [
        (f"{what} one plain hotcoco", ours / peers, f"x its time (at most 3); {ours:.1f} s here"),
        ("the same, where its lists are ready made", ours / bare, f"x its time; {bare:.1f} s there"),
        (f"plain mAP of {len(few)} pictures over pycocotools", slow / plain, f"x faster; {plain:.2f} s here"),
    ]


def made_up(pictures: int) -> pl.DataFrame:
    """Rows of one detector: classes as uneven as COCO's, four boxes of ten near a thing."""
    rng = np.random.default_rng(0)
    truth = _corners(rng, pictures * THINGS)
    label = (rng.zipf(1.5, len(truth)) - 1) % CLASSES
    of = np.repeat(np.arange(pictures), BOXES) * THINGS + rng.integers(0, THINGS, pictures * BOXES)
    near = rng.random(len(of)) < 0.4
    size = np.tile(truth[of, 2:] - truth[of, :2], 2)
    found = np.where(
        near[:, None], truth[of] + rng.normal(0, 0.12, size.shape) * size, _corners(rng, len(of))
    )
    found[:, 2:] = np.maximum(found[:, 2:], found[:, :2] + 1)
    conf = np.where(near, rng.beta(2, 2, len(of)), rng.beta(1, 6, len(of)))
    said = np.where(rng.random(len(of)) < 0.8, label[of], rng.integers(0, CLASSES, len(of)))
    rows = {
        "sample_id": [f"{k:06d}" for k in range(pictures)],
        "image_id": [f"{k:06d}" for k in range(pictures)],
        "truth": _lists(truth, label, None, THINGS, table.SCHEMA["truth"]),
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
    for picture, (truth, boxes) in enumerate(rows.select("truth", "boxes").iter_rows(), start=1):
        for box in truth:
            where = _where(picture, box)
            area = where["bbox"][2] * where["bbox"][3]
            annotations.append({"id": len(annotations) + 1, **where, "area": area, "iscrowd": 0})
        results += [{**_where(picture, box), "score": box["conf"]} for box in boxes]
    images = [{"id": k + 1, "width": 700, "height": 700} for k in range(len(rows))]
    names = [{"id": k + 1, "name": str(k)} for k in range(CLASSES)]
    return {"images": images, "categories": names, "annotations": annotations}, results


def _where(picture: int, box: dict[str, Any]) -> dict[str, Any]:
    x0, y0 = box["x0"], box["y0"]
    return {
        "image_id": picture,
        "category_id": box["label"] + 1,
        "bbox": [x0, y0, box["x1"] - x0, box["y1"] - y0],
    }


def by_hotcoco(truth: dict[str, Any], results: list[dict[str, Any]]) -> float:
    from hotcoco import COCO, COCOeval

    true = COCO(truth)
    return _evaluated(COCOeval(true, true.load_res(results), "bbox"))


def by_pycocotools(rows: pl.DataFrame) -> float:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    truth, results = as_coco(rows)
    with contextlib.redirect_stdout(io.StringIO()):
        true = COCO()
        true.dataset = truth
        true.createIndex()
        return _evaluated(COCOeval(true, true.loadRes(results), "bbox"))


def _evaluated(asked: Any) -> float:
    with contextlib.redirect_stdout(io.StringIO()):
        asked.evaluate()
        asked.accumulate()
        asked.summarize()
    return float(asked.stats[0])

"""Random sets of ground-truth and predicted boxes, and the results of reference libraries on them."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core.boxes import areas
from sorites.metrics.detection.scenes import Boxes, Scene


def random_scene(
    seed: int, images: int = 30, classes: int = 4, crowds: float = 0.1, ties: bool = True
) -> Scene:
    """Images with objects, some of them crowds, with nothing at all, and without predictions;
    numbers are those of the table.
    """
    rng = np.random.default_rng(seed)
    objects: list[list[float]] = []
    found: list[list[float]] = []
    for image in range(images):
        here = [_obj(rng, image, classes, crowds) for _ in range(rng.integers(0, 7) if image % 7 else 0)]
        objects += here
        for _ in range(rng.integers(0, 21) if image % 5 != 1 else 0):
            label, box = _near(rng, here, classes) if here and rng.random() < 0.7 else _anywhere(rng, classes)
            conf = rng.random()
            found.append([image, label, *box, round(conf, 1) if ties else conf])
    return scene_of(objects, found, images, rng.uniform(0.4, 1, len(objects)))


def _anywhere(rng: np.random.Generator, classes: int) -> tuple[int, list[float]]:
    x, y = rng.uniform(0, 200, 2)
    width, height = np.exp(rng.uniform(2, 5.2, 2))
    return int(rng.integers(0, classes)), [x, y, x + width, y + height]


def _obj(rng: np.random.Generator, image: int, classes: int, crowds: float) -> list[float]:
    label, box = _anywhere(rng, classes)
    return [image, label, *box, rng.random() < crowds]


def _near(rng: np.random.Generator, here: list[list[float]], classes: int) -> tuple[int, list[float]]:
    obj = here[rng.integers(len(here))]
    moved = np.array(obj[2:6]) + rng.normal(0, 4, 4) * (rng.random() < 0.8)
    moved[2:] = np.maximum(moved[2:], moved[:2] + 1)
    label = int(obj[1]) if rng.random() < 0.85 else int(rng.integers(0, classes))
    return label, moved.tolist()


def scene_of(objects: Any, found: Any, images: int, shares: Any = 1.0) -> Scene:
    """Rows (image, label, x0, y0, x1, y1, crowd) and (..., confidence); an object fills a share of
    its box.
    """
    true, seen = (np.array(rows, np.float64).reshape(-1, 7) for rows in (objects, found))
    for rows in (true, seen):
        rows[:, 2:] = rows[:, 2:].astype(np.float32)
    return Scene({}, *[np.arange(images)] * 3, _boxes(seen, seen[:, 6], 1.0), _boxes(true, None, shares), {})


def _boxes(rows: Any, conf: Any, shares: Any) -> Boxes:
    crowd = rows[:, 6] > 0 if conf is None else np.zeros(len(rows), bool)
    none = np.full(len(rows), np.nan)
    whole = rows[:, :2].astype(np.int64)
    area = areas(rows[:, 2:6]) * shares
    return Boxes(
        whole[:, 0],
        whole[:, 1],
        rows[:, 2:6],
        none if conf is None else conf,
        area,
        crowd,
        np.arange(len(rows)),
    )


def draws(samples: int, resamples: int) -> NDArray[np.uint8]:
    """How often each sample is drawn with replacement in each resample."""
    rng = np.random.default_rng(0)
    return rng.multinomial(samples, np.full(samples, 1 / samples), resamples).T.astype(np.uint8)


def resampled(scene: Scene, counts: Any) -> Scene:
    """The scene whose images stand there as often as ``counts`` says."""
    which = np.repeat(np.arange(len(scene)), counts)

    def copied(boxes: Boxes) -> Boxes:
        parts = [np.flatnonzero(boxes.image == image) for image in which]
        some = boxes[np.concatenate(parts)]
        images = np.repeat(np.arange(len(which)), [len(part) for part in parts])
        return Boxes(images, some.label, some.xyxy, some.conf, some.area, some.crowd, some.place)

    return Scene({}, *[np.arange(len(which))] * 3, copied(scene.found), copied(scene.objects), {})


def as_coco(scene: Scene) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The annotations and the results as COCO's files hold them; ids start from 1."""
    labels = np.unique(np.concatenate([scene.objects.label, scene.found.label]))
    true, seen = scene.objects, scene.found
    annotations = [
        {"id": k + 1, **_where(true, k), "area": float(true.area[k]), "iscrowd": int(true.crowd[k])}
        for k in range(len(true))
    ]
    results = [{**_where(seen, k), "score": float(seen.conf[k])} for k in range(len(seen))]
    images = [{"id": k + 1, "width": 999, "height": 999} for k in range(len(scene))]
    return {
        "images": images,
        "categories": [{"id": int(label) + 1, "name": str(label)} for label in labels],
        "annotations": annotations,
    }, results


def _where(boxes: Boxes, k: int) -> dict[str, Any]:
    x0, y0, x1, y1 = boxes.xyxy[k].tolist()
    return {
        "image_id": int(boxes.image[k]) + 1,
        "category_id": int(boxes.label[k]) + 1,
        "bbox": [x0, y0, x1 - x0, y1 - y0],
    }


def by_pycocotools(scene: Scene) -> Any:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    ground_truth, results = as_coco(scene)
    with contextlib.redirect_stdout(io.StringIO()):
        true = COCO()
        true.dataset = ground_truth
        true.createIndex()
        asked = COCOeval(true, true.loadRes(results), "bbox")
        asked.evaluate()
        asked.accumulate()
        asked.summarize()
    return asked.stats


def by_hotcoco(scene: Scene) -> Any:
    from hotcoco import COCO, COCOeval

    ground_truth, results = as_coco(scene)
    true = COCO(ground_truth)
    asked = COCOeval(true, true.load_res(results), "bbox")
    with contextlib.redirect_stdout(io.StringIO()):
        asked.evaluate()
        asked.accumulate()
        asked.summarize()
    return asked


def by_tidecv(scene: Scene) -> dict[str, float]:
    """The errors as shares, and the average precision under the empty name."""
    from tidecv import TIDE, Data

    true, seen = Data("true"), Data("seen")
    for k in range(len(scene)):
        true.add_image(k, str(k))
    for k in range(len(scene.objects)):
        add = true.add_ignore_region if scene.objects.crowd[k] else true.add_ground_truth
        where = _where(scene.objects, k)
        add(where["image_id"] - 1, where["category_id"], where["bbox"])
    for k in range(len(scene.found)):
        where = _where(scene.found, k)
        seen.add_detection(
            where["image_id"] - 1, where["category_id"], float(scene.found.conf[k]), where["bbox"]
        )
    run = TIDE().evaluate(true, seen, mode=TIDE.BOX, name="run")
    found = {
        kind.short_name: value
        for kind, value in {**run.fix_main_errors(), **run.fix_special_errors()}.items()
    }
    named = {"FalsePos": "FP", "FalseNeg": "FN"}
    return {"": run.ap / 100, **{named.get(name, name): value / 100 for name, value in found.items()}}

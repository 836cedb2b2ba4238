"""Detection: small datasets with boxes in COCO's and nuImages' layouts, detectors of one's own, and
a dataset built of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sorites import core
from sorites.core import Sample
from tools.net.hashes import Entry, of_array, of_folder, of_leaves
from tools.net.home import Task, typed
from tools.net.images import ImageU8, save

CATEGORIES = ((1, "person"), (2, "bicycle"), (3, "car"))
STREET = ("vehicle.car", "human.pedestrian.adult", "movable_object.barrier")
"""Three of nuImages' categories, which the suite calls car, pedestrian and barrier."""
DETECTOR = """
import numpy as np

def detect(images):
    return [found(np.asarray(p, np.float32)) for p in images]

def found(p):
    rows = []
    for c in range(3):
        y, x = np.nonzero(p[..., c] > np.delete(p, c, 2).max(2) + 25)
        if len(y) > 9:
            box = [x.min(), y.min(), x.max() + 1, y.max() + 1]
            rows.append([*box, min(0.99, float(p[y, x, c].mean()) / 256), c])
    return np.array(rows, np.float32).reshape(-1, 6)

detect.sorites = {"labels": LABELS}
"""
"""Finds the hull of everything red, green or blue."""


def tasks() -> list[Task]:
    return [Task(("boxes",), digests)]


def detector(name: str, labels: tuple[str, ...]) -> str:
    """A detector in a module of this name, as a spec."""
    Path(f"{name}.py").write_text(DETECTOR.replace("LABELS", repr(list(labels))), encoding="utf-8")
    return f"python:{name}:detect"


def street(seed: int, height: int = 96, width: int = 128) -> tuple[ImageU8, list[tuple[int, list[int]]]]:
    """A grey scene with one red, one green and one blue rectangle; and their classes with x0, y0, x1, y1."""
    rng = np.random.default_rng(seed)
    ground = rng.normal(120, 8, (height, width, 1)).repeat(3, axis=2)
    objects = []
    for c in range(3):
        x0, y0 = int(rng.integers(2 + 40 * c, 14 + 40 * c)), int(rng.integers(4, height // 2))
        x1, y1 = x0 + int(rng.integers(12, 26)), y0 + int(rng.integers(12, 40))
        ground[y0:y1, x0:x1] = 60
        ground[y0:y1, x0:x1, c] = rng.uniform(120, 250)
        objects.append((c, [x0, y0, x1, y1]))
    return np.clip(ground, 0, 255).astype(np.uint8), objects


def coco(root: str, count: int = 4) -> None:
    """Images and COCO's annotation file, with a crowd and an image without objects."""
    images, annotations = list[dict[str, Any]](), list[dict[str, Any]]()
    for i in range(count):
        image, objects = street(i)
        save(Path(root, f"{i}.png"), image)
        images.append({"id": i, "file_name": f"{i}.png", "width": image.shape[1], "height": image.shape[0]})
        for c, (x0, y0, x1, y1) in objects if i != count - 1 else ():
            shape = {
                "bbox": [x0, y0, x1 - x0, y1 - y0],
                "area": (x1 - x0) * (y1 - y0),
                "iscrowd": int(i == 1 and c == 2),
            }
            annotations.append(
                {"id": len(annotations), "image_id": i, "category_id": CATEGORIES[c][0], **shape}
            )
    categories = [{"id": number, "name": name} for number, name in CATEGORIES]
    held = {"images": images, "annotations": annotations, "categories": categories}
    Path(f"{root}.json").write_text(json.dumps(held), encoding="utf-8")
    detector(f"finds_{root}", tuple(name for _, name in CATEGORIES))


def nuimages(root: str) -> None:
    """Two key frames with boxes and a frame between them, in the published tables."""
    shared = {
        "ego_pose_token": "e",
        "calibrated_sensor_token": "c",
        "fileformat": "jpg",
        "timestamp": 1,
        "next": "",
        "prev": "",
    }
    tables: dict[str, list[dict[str, Any]]] = {
        "sample": [],
        "sample_data": [],
        "object_ann": [],
        "category": [],
    }
    tables["category"] = [
        {"token": f"c{i}", "name": name, "description": ""} for i, name in enumerate(STREET)
    ]
    for i in range(2):
        image, objects = street(10 + i)
        file = f"samples/CAM_FRONT/{i}.png"
        save(Path(root, file), image)
        tables["sample"].append(
            {"token": f"s{i}", "timestamp": 1, "log_token": "l", "key_camera_token": f"d{i}"}
        )
        size = {"width": image.shape[1], "height": image.shape[0], "is_key_frame": True}
        tables["sample_data"].append(
            {"token": f"d{i}", "sample_token": f"s{i}", "filename": file, **size, **shared}
        )
        for c, box in objects:
            of = {
                "sample_data_token": f"d{i}",
                "category_token": f"c{c}",
                "attribute_tokens": [],
                "mask": None,
            }
            tables["object_ann"].append({"token": f"o{i}{c}", "bbox": box, **of})
    Path(root, "v1.0-val").mkdir()
    for name, rows in tables.items():
        Path(root, "v1.0-val", f"{name}.json").write_text(json.dumps(rows), encoding="utf-8")
    detector(f"finds_{root}", ("car", "pedestrian", "barrier"))


def yolo(root: str) -> None:
    """A YOLO folder: shares of the image in text files."""
    Path(root).mkdir()
    Path(root, "data.yaml").write_text("names: [person, bicycle, car]\nval: images\n", encoding="utf-8")
    Path(root, "labels").mkdir()
    for i in range(2):
        image, objects = street(20 + i)
        save(Path(root, "images", f"{i}.png"), image)
        high, wide = image.shape[:2]
        lines = [
            f"{c} {(x0 + x1) / 2 / wide:.6f} {(y0 + y1) / 2 / high:.6f} {(x1 - x0) / wide:.6f}"
            f" {(y1 - y0) / high:.6f}"
            for c, (x0, y0, x1, y1) in objects
        ]
        Path(root, "labels", f"{i}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def graph(path: str) -> str:
    """An ONNX detector in rows, whose three boxes have the colours of one input pixel as scores."""
    from onnx import TensorProto, helper, numpy_helper, save_model

    steps = [
        helper.make_node("Slice", ["images", "start", "end"], ["spot"]),
        helper.make_node("Reshape", ["spot", "shape"], ["scores"]),
        helper.make_node("Concat", ["boxes", "scores", "classes"], ["rows"], axis=2),
    ]
    constants = {
        "start": np.array([0, 0, 20, 20]),
        "end": np.array([1, 3, 21, 21]),
        "shape": np.array([1, 3, 1]),
        "boxes": np.array([[[16, 20, 32, 36], [2, 14, 30, 50], [40, 20, 60, 44]]], np.float32),
        "classes": np.array([[[0], [1], [2]]], np.float32),
    }
    into = helper.make_tensor_value_info("images", TensorProto.FLOAT, (1, 3, 64, 64))
    out = helper.make_tensor_value_info("rows", TensorProto.FLOAT, (1, 3, 6))
    held = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    made = helper.make_model(
        helper.make_graph(steps, "g", [into], [out], held),
        opset_imports=[helper.make_opsetid("", 13)],
        ir_version=8,
    )
    save_model(made, path)
    return f"boxes:{path}"


def read(spec: str) -> list[Sample]:
    """The samples of a source in the classes that its suite has."""
    from sorites.core.labels import labels

    return list(
        core.source(spec, labels(["car", "pedestrian", "barrier"] if spec.startswith("nuimages") else "coco"))
    )


def digests() -> Iterator[Entry]:
    """The samples of both sources, what each detector finds, composites of objects, and a dataset
    with boxes built and read.
    """
    coco("coco")
    nuimages("nu")
    yolo("yolo")
    for spec in ("coco:coco.json,images=coco", "nuimages:nu", "yolo:yolo"):
        samples = sorted(read(spec), key=lambda sample: sample.id)
        for field in ("id", "ground_truth", "split", "image_id"):
            yield from of_leaves(
                [_plain(getattr(sample, field)) for sample in samples], f"boxes/sources/{spec}/{field}"
            )
        yield from ((f"boxes/sources/{spec}/{sample.id}", of_array(sample.load())) for sample in samples)
    images = [street(seed)[0] for seed in range(3)]
    for name, spec in (
        ("function", detector("finds_own", ("person", "car", "dog"))),
        ("onnx", graph("own.onnx")),
    ):
        found = core.model(spec)(images).boxes
        yield from of_leaves([_plain(boxes) for boxes in found or ()], f"boxes/models/{name}")
    typed(
        "build",
        "optics_bench_boxes",
        "--source",
        "coco:coco.json,images=coco",
        "--shift",
        "coma",
        "--level",
        "2",
        "--out",
        "set",
    )
    typed("context", "--objects", "2", "--size", "160", "--limit", "2", "--drawn", "--out", "objects")
    for folder in ("set", "objects"):
        yield from (
            (f"boxes/{folder}/{part}", digest) for part, digest in of_folder(Path(folder), "sorites.json")
        )


def _plain(value: Any) -> Any:
    """Boxes as mappings."""
    from dataclasses import asdict, is_dataclass

    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value

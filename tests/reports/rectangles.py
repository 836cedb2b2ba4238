"""Images of coloured rectangles with exact boxes, and a detector that finds them by colour."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image
from scipy import ndimage

from sorites.core import Box, Generated, ImageU8, Model, Outputs, Sample, Source

CLASSES = ("apple", "broccoli", "cup")
COLOURS = np.array([(220, 40, 40), (40, 190, 60), (60, 80, 230)], np.float32)


def scene(seed: int, side: int = 160) -> tuple[ImageU8, tuple[Box, ...]]:
    """Return a noisy background with one to four separate rectangles."""
    rng = np.random.default_rng(seed)
    image = rng.normal(120, 12, (side, side, 3))
    taken = np.zeros((side, side), bool)
    boxes = []
    for _ in range(int(rng.integers(1, 5))):
        wide, high = rng.integers(6, 60, 2)
        x, y = rng.integers(0, side - wide), rng.integers(0, side - high)
        if taken[max(0, y - 4) : y + high + 4, max(0, x - 4) : x + wide + 4].any():
            continue
        label = int(rng.integers(3))
        taken[y : y + high, x : x + wide] = True
        image[y : y + high, x : x + wide] = COLOURS[label] + rng.normal(0, 12, (high, wide, 3))
        boxes.append(
            Box((float(x), float(y), float(x + wide), float(y + high)), label, area=float(wide * high))
        )
    return np.clip(image, 0, 255).astype(np.uint8), tuple(boxes)


def source(count: int, first: int = 0) -> Source:
    def loader(seed: int) -> Callable[[], ImageU8]:
        return lambda: scene(seed)[0]

    return Source(
        "rectangles",
        [
            Sample(f"r{i:03d}", Generated(loader(i)), ground_truth=scene(i)[1])
            for i in range(first, first + count)
        ],
    )


def detector(name: str = "colours", reach: float = 90.0) -> Model:
    """Return a detector of patches within ``reach`` of a colour; closer colours are more confident."""

    def find(image: ImageU8) -> tuple[Box, ...]:
        apart = np.linalg.norm(image.astype(np.float32)[:, :, None] - COLOURS, axis=-1)
        found = []
        for label in range(3):
            places, _ = ndimage.label(apart[..., label] < reach)
            for i, (rows, columns) in enumerate(ndimage.find_objects(places), start=1):
                xyxy = tuple(map(float, (columns.start, rows.start, columns.stop, rows.stop)))
                inside = apart[rows, columns, label][places[rows, columns] == i]
                found.append(
                    Box(xyxy, label, float(np.exp(-inside.mean() / reach) * min(1.0, inside.size / 50)))
                )
        return tuple(found)

    return Model(
        name,
        lambda images: Outputs(boxes=[find(p) for p in images]),
        labels=CLASSES,
        output="boxes",
        version="1",
    )


def written(folder: Path, count: int) -> str:
    """Write the images and their COCO annotations into a folder; return the name of the source."""
    images, annotations = [], []
    for i in range(count):
        pixels, boxes = scene(i)
        Image.fromarray(pixels).save(folder / f"r{i:03d}.png")
        height, width = pixels.shape[:2]
        images.append({"id": i + 1, "file_name": f"r{i:03d}.png", "width": width, "height": height})
        for box in boxes:
            x0, y0, x1, y1 = box.xyxy
            where = {"bbox": [x0, y0, x1 - x0, y1 - y0], "area": box.area, "iscrowd": 0}
            ids = {"id": len(annotations) + 1, "image_id": i + 1, "category_id": box.label + 1}
            annotations.append({**ids, **where})
    categories = [{"id": i + 1, "name": name} for i, name in enumerate(CLASSES)]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "boxes.json").write_text(json.dumps(content))
    return f"coco:{folder / 'boxes.json'}"

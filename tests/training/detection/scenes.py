"""Images of bright rectangles on a dark ground, with their boxes, as a COCO file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

COLOURS = {"red": (230, 30, 30), "green": (30, 230, 30)}


def write(folder: Path, count: int, size: tuple[int, int] = (64, 96), seed: int = 0) -> Path:
    """Write images with one or two rectangles each, and return the annotation file."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    images, annotations = [], []
    for number in range(count):
        pixels = rng.integers(0, 40, (*size, 3)).astype(np.uint8)
        for half in range(rng.integers(1, 3)):
            kind = int(rng.integers(2))
            tall, wide = rng.integers(16, 40), rng.integers(16, size[1] // 2 - 4)
            top, left = rng.integers(0, size[0] - tall), half * size[1] // 2 + rng.integers(0, 4)
            pixels[top : top + tall, left : left + wide] = list(COLOURS.values())[kind]
            bbox = [int(left), int(top), int(wide), int(tall)]
            row = {"id": len(annotations) + 1, "image_id": number, "category_id": kind + 1, "bbox": bbox}
            annotations.append({**row, "area": bbox[2] * bbox[3], "iscrowd": 0})
        Image.fromarray(pixels).save(folder / f"{number:03d}.png")
        row = {"id": number, "file_name": f"{number:03d}.png", "height": size[0], "width": size[1]}
        images.append(row)
    categories = [{"id": i + 1, "name": name} for i, name in enumerate(COLOURS)]
    file = folder / "boxes.json"
    file.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    return file

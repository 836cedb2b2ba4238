"""Read pictures with boxes from a YOLO dataset: ``data.yaml``, ``images/`` and ``labels/`` with one text file per picture.

A line of a label file is ``class x y width height``, with the middle and the size as shares of the picture; a line with three
points or more (``class x1 y1 x2 y2 x3 y3 ...``) is an outline, and its box is taken. The label file of ``images/a/b.jpg`` is
``labels/a/b.txt``; a picture without one shows nothing, as YOLO's own tools have it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from sorites.core import Box, Sample, add_source
from sorites.errors import BadPicture
from sorites.labels import Labels
from sorites.sources._decode import decode, size
from sorites.sources._options import split_options
from sorites.sources._true_boxes import FOREIGN, Tally, broken, known_classes, true_box
from sorites.sources._yolo_files import Dataset, dataset, label_file, pictures

LONGEST = 1 << 24
"""The most bytes of a label file."""
FAR = 2.0
"""No share of a picture is as far outside of 0 to 1 as this."""


@add_source
def yolo(path: str | None, labels: Labels) -> list[Sample]:
    """Read pictures with true boxes from a YOLO folder or its data.yaml; ``yolo:DIR?split=train`` chooses another split than val.

    Classes go to the suite's labels by name. A picture whose label file cannot be understood becomes a row with its error.
    """
    folder, given = split_options("yolo", path, {"split": ("train", "val", "test")})
    data = dataset(Path(folder).expanduser())
    found, split = pictures(data, given.get("split"))
    known, tally = known_classes(data.names.values(), labels, data.file), Tally(data.file)
    samples = [_sample(data, file, id_, known, split, tally) for id_, file in found]
    tally.warn()
    return samples


def _sample(data: Dataset, file: Path, id_: str, known: Mapping[str, int], split: str, tally: Tally) -> Sample:
    try:
        truth = _truth(data, file, id_, known, tally)
    except BadPicture as error:
        return broken(id_, str(error))
    return Sample(id_, functools.partial(decode, file), truth=truth, split=split)


def _truth(data: Dataset, file: Path, id_: str, known: Mapping[str, int], tally: Tally) -> tuple[Box, ...]:
    listed = label_file(file)
    if not listed.is_file():
        return ()
    if listed.stat().st_size > LONGEST:
        raise BadPicture(f"{listed}: wanted lines of boxes, got {listed.stat().st_size:,} bytes")
    try:
        lines = listed.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadPicture(f"{listed}: cannot be read as text: {error}") from None
    wide, high = size(file)
    boxes: list[Box] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{listed.name}, line {number}"
        name, corners, area = _parsed(line, data, where)
        if name not in known:
            tally.add(FOREIGN, repr(name))
            continue
        x0, y0, x1, y1 = corners
        pixels = (x0 * wide, y0 * high, x1 * wide, y1 * high)
        box = true_box(pixels, known[name], (wide, high), where, tally, None if area is None else area * wide * high)
        boxes += [] if box is None else [box]
    return tuple(boxes)


def _parsed(line: str, data: Dataset, where: str) -> tuple[str, tuple[float, float, float, float], float | None]:
    """Return the class of a line, its box as shares of the picture, and the area of an outline."""
    try:
        first, *numbers = (float(word) for word in line.split())
    except ValueError:
        raise BadPicture(f"{where}: wanted numbers (class x y width height), got {line.strip()[:80]!r}") from None
    if not first.is_integer() or int(first) not in data.names:
        raise BadPicture(f"{where}: wanted a class of {data.file.name}, 0 to {max(data.names)}, got {first:g}")
    if data.points and len(numbers) > 4:
        numbers = numbers[:4]
    if any(FAR < abs(number) < math.inf for number in numbers):
        came = " ".join(f"{number:g}" for number in numbers[:4])
        raise BadPicture(f"{where}: wanted middle and size as shares of the picture, 0 to 1, got {came} (pixels?)")
    if len(numbers) == 4:
        x, y, width, height = numbers
        return data.names[int(first)], (x - width / 2, y - height / 2, x + width / 2, y + height / 2), None
    if len(numbers) < 6 or len(numbers) % 2:
        hint = " (five and a confidence are predictions, not truth)" if len(numbers) == 5 else ""
        raise BadPicture(f"{where}: wanted class x y width height, or an outline, got {len(numbers) + 1} numbers{hint}")
    xs, ys = numbers[::2], numbers[1::2]
    return data.names[int(first)], (min(xs), min(ys), max(xs), max(ys)), _outline(xs, ys)


def _outline(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return the area of a polygon, as a share of the picture."""
    turned = zip(xs, ys, (*xs[1:], xs[0]), (*ys[1:], ys[0]), strict=True)
    return abs(sum(x0 * y1 - x1 * y0 for x0, y0, x1, y1 in turned)) / 2

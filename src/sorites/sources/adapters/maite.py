"""Read a dataset that follows MAITE's protocol: ``maite:module:object``.

The object, or what it returns when called, has ``__len__``, ``__getitem__`` and ``metadata``; a datum is an
image C x H x W (whole numbers in 0..255, or floats in 0..1), a target and metadata with an ``id``. The target
of an image classification is one number per class, whose largest one is the label; that of an object
detection has ``boxes`` and ``labels``. The library itself is not needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Box, Generated, Sample, add_source
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels
from sorites.io.maite import image_of, load, names_of
from sorites.io.readers import parse_integer

ATTRIBUTES = ("__len__", "__getitem__", "metadata")


@add_source
def maite(path: str | None, labels: Labels) -> Iterator[Sample]:
    """Read a dataset that follows MAITE's protocol (maite:module:object): image classification or detection.

    Class names are those of ``index2label`` in its metadata, otherwise numbers are labels of the suite. The
    id of a sample is that of its datum. ``get_target`` and ``get_metadata`` are used if the dataset has them,
    so that images are not loaded to list them. A change of its images is not noticed when a run is resumed.
    """
    dataset = load("source", path or "", ATTRIBUTES)
    names = names_of(dataset)
    for index in range(len(dataset)):
        target, id_ = _described(dataset, index)
        image = Generated(_image, (path, index))
        if hasattr(target, "boxes"):
            yield Sample(id_, image, ground_truth=_boxes(target, names, labels))
        else:
            yield Sample(id_, image, _label(np.asarray(target), names, labels, id_))


def _described(dataset: Any, index: int) -> tuple[Any, str]:
    if hasattr(dataset, "get_target") and hasattr(dataset, "get_metadata"):
        return dataset.get_target(index), str(dataset.get_metadata(index)["id"])
    _, target, metadata = dataset[index]
    return target, str(metadata["id"])


def _image(path: str, index: int) -> NDArray[np.uint8]:
    dataset = load("source", path, ATTRIBUTES)
    image = dataset.get_input(index) if hasattr(dataset, "get_input") else dataset[index][0]
    return image_of(image, f"maite:{path}, image {index}")


def _label(target: NDArray[Any], names: tuple[str, ...] | None, labels: Labels, id_: str) -> int | None:
    if target.ndim != 1 or not target.size:
        raise SoritesError(f"{id_}: expected one number per class as target, got an array of {target.shape}")
    return _found(int(target.argmax()), names, labels)


def _found(number: int, names: tuple[str, ...] | None, labels: Labels) -> int:
    if names is not None and number < len(names) and parse_integer(names[number]) is None:
        return labels.find(names[number])
    if number >= len(labels):
        raise SoritesError(f"class {number} is not among the {len(labels)} labels")
    return number


def _boxes(target: Any, names: tuple[str, ...] | None, labels: Labels) -> tuple[Box, ...]:
    boxes = np.asarray(target.boxes, np.float64).reshape(-1, 4).tolist()
    numbers = np.asarray(target.labels).astype(int).reshape(-1).tolist()
    return tuple(
        Box((x0, y0, x1, y1), _found(number, names, labels))
        for (x0, y0, x1, y1), number in zip(boxes, numbers, strict=True)
    )

"""Validation of ground-truth boxes, with the same rules for every source.

- A box that extends up to ``EDGE`` px beyond its image is kept unchanged: this is rounding, and other
  tools keep it too.
- A box that extends further is clipped to the image and counted.
- A box without width or height, before or after clipping, is dropped and counted.
- A box with missing or non-finite numbers or a negative size makes its image fail, because its ground
  truth is unknown.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import Any, NoReturn

from sorites.core import Box, FileRef, Generated, ImageU8, Sample
from sorites.core.errors import BadImage, Notice, SoritesError
from sorites.core.labels import Labels, coco
from sorites.core.messages import option

EDGE = 1.0
# Areas from this many px on are invalid.
LARGEST = 1e15
# The text of a counted case, in the singular and the plural.
Kind = tuple[str, str]
CUT = (
    "box extends beyond its image and is clipped",
    "boxes extend beyond their image and are clipped",
)
NOTHING_LEFT = (
    "box has no width or height inside its image and is dropped",
    "boxes have no width or height inside their image and are dropped",
)
FOREIGN = (
    "box has a class that is not among the labels and is dropped",
    "boxes have classes that are not among the labels and are dropped",
)


class Tally:
    """Counts of clipped and dropped boxes, reported as one warning per file with examples."""

    def __init__(self, file: object) -> None:
        self.file = file
        self.counts: dict[Kind, tuple[int, str]] = {}

    def add(self, kind: Kind, where: str) -> None:
        """Count a case; ``kind`` is its text in the warning, after the number."""
        count, first = self.counts.get(kind, (0, where))
        self.counts[kind] = (count + 1, first)

    def warn(self) -> None:
        """Emit a warning if anything was counted."""
        if self.counts:
            cases = "; ".join(
                f"{count} {kind[count > 1]}, first {first}" for kind, (count, first) in self.counts.items()
            )
            warnings.warn(Notice(f"{self.file}: {cases}", code="boxes_changed"), stacklevel=3)


def ground_truth_box(
    numbers: Any,
    label: int,
    size: tuple[float, float] | None,
    where: str,
    tally: Tally,
    area: Any = None,
    crowd: bool = False,
) -> Box | None:
    """Validate a ground-truth box.

    Args:
        numbers: x0, y0, x1, y1 in px, as read from a file.
        label: The label of the box.
        size: The width and height of the image; None skips clipping.
        where: The name of the box in messages.
        tally: Counts clipped and dropped boxes.
        area: The area of the object in px; an invalid value is ignored.
        crowd: Whether the box covers a crowd of objects.

    Returns:
        The box, or None if no part of it is inside the image.

    Raises:
        BadImage: The numbers are missing, not finite, or give a negative size.
    """
    x0, y0, x1, y1 = _parse_corners(numbers, where)
    if size is not None and (min(x0, y0) < -EDGE or x1 > size[0] + EDGE or y1 > size[1] + EDGE):
        x0, x1 = (min(max(x, 0.0), size[0]) for x in (x0, x1))
        y0, y1 = (min(max(y, 0.0), size[1]) for y in (y0, y1))
        if x0 < x1 and y0 < y1:
            tally.add(CUT, where)
    if x0 == x1 or y0 == y1:
        tally.add(NOTHING_LEFT, where)
        return None
    return Box((x0, y0, x1, y1), label, area=_area(area), crowd=crowd)


def _parse_corners(numbers: Any, where: str) -> tuple[float, float, float, float]:
    try:
        x0, y0, x1, y1 = (float(number) for number in numbers)
    except (TypeError, ValueError, OverflowError):
        raise BadImage(f"{where}: expected a box of four numbers, got {numbers!r}") from None
    if not all(map(math.isfinite, (x0, y0, x1, y1))):
        raise BadImage(f"{where}: expected a box of finite numbers, got {[x0, y0, x1, y1]}")
    if x1 < x0 or y1 < y0:
        raise BadImage(
            f"{where}: expected a box of non-negative width and height, got {x1 - x0:g} x {y1 - y0:g}"
        )
    return x0, y0, x1, y1


def _area(area: Any) -> float | None:
    """Return a valid area, or None, in which case metrics use the area of the box."""
    usable = isinstance(area, int | float) and not isinstance(area, bool) and 0 <= area < LARGEST
    return float(area) if usable else None


def refuse_oriented(numbers: Any, where: str) -> None:
    """Raise an error if a box is an oriented one: centre, size and angle, or four corners.

    Raises:
        SoritesError: The box has five or eight numbers.
    """
    if isinstance(numbers, list | tuple) and len(numbers) in (5, 8):
        form = "an angle" if len(numbers) == 5 else "four corners"
        raise oriented(f"{where} has a box of {len(numbers)} numbers ({form})")


def oriented(what: str) -> SoritesError:
    """Return the error that refuses oriented boxes; ``what`` is a clause that says where they are."""
    return SoritesError(
        f"{what}: oriented boxes (OBB) are not supported, because COCO's metrics compare upright boxes."
        " Convert them to upright boxes x, y, width, height, and compare upright predictions with them",
    )


def known_classes(names: Iterable[str], labels: Labels, file: object) -> dict[str, int]:
    """Map the class names of a file to labels, leaving out unknown classes.

    Raises:
        SoritesError: None of the classes is among the labels.
    """
    listed = list(dict.fromkeys(names))
    label_of = {name: label for name in listed if (label := labels.get(name)) is not None}
    if not label_of:
        examples = ", ".join(map(repr, listed[:5])) + (" ..." if len(listed) > 5 else "")
        raise SoritesError(
            f"{file}: none of its classes ({examples or 'the file has none'}) is among the labels, such as"
            f" {labels.names[0]!r}. Pass {'' if labels == coco() else option('labels', 'coco') + ' or '}"
            f"{option('labels', 'FILE')} with one class name per line"
        )
    return label_of


def broken(id_: str, reason: str) -> Sample:
    """Return a sample whose image fails to load with this reason; it becomes rows with the error."""
    return Sample(id_, Generated(_raise_bad_image, (reason,)))


def _raise_bad_image(reason: str) -> NoReturn:
    raise BadImage(reason)


def annotated(file: FileRef, size: tuple[int, int] | None, name: str) -> FileRef | Generated:
    """Return an image that fails to load unless it has the width and height that its boxes were annotated
    for; None skips the check.
    """
    return file if size is None else Generated(_load_sized, (file, *size, name))


def _load_sized(file: FileRef, width: int, height: int, name: str) -> ImageU8:
    image = file.load()
    if image.shape[:2] != (height, width):
        actual = f"{image.shape[1]} x {image.shape[0]}"
        raise BadImage(f"{name}: annotated for {width} x {height} px, but the image has {actual} px")
    return image

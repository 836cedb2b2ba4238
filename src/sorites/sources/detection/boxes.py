"""Ground-truth boxes as files have them, checked: what is cut, left out or refused is the same for every source.

- A box that reaches up to ``EDGE`` px beyond its image is kept as it is: that is rounding, and
  metrics of others keep it too.
- One that reaches further is cut at the image's edge and counted.
- One without width or height, there or after the cut, is left out and counted.
- One with numbers that are missing, not finite, or a negative size makes its image a failed one:
  its truth cannot be known.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterable
from typing import Any, NoReturn

from sorites.core import Box, ImageU8, Sample
from sorites.core.errors import BadImage, SoritesError
from sorites.core.labels import Labels, coco

EDGE = 1.0
# No area in px is as large as this.
LARGEST = 1e15
# The words for an object that is counted: of one, and of several.
Kind = tuple[str, str]
CUT = (
    "box reaches out of its image and is cut at its edge",
    "boxes reach out of their image and are cut at its edge",
)
NOTHING_LEFT = (
    "box has no width or height inside its image and is left out",
    "boxes have no width or height inside their image and are left out",
)
FOREIGN = (
    "box is of a class that the suite does not have, and is left out",
    "boxes are of classes that the suite does not have, and are left out",
)


class Tally:
    """A count of the boxes that were cut or left out, told once per file as a warning with the
    first case of each kind.
    """

    def __init__(self, file: object) -> None:
        self.file = file
        self.found: dict[Kind, tuple[int, str]] = {}

    def add(self, kind: Kind, where: str) -> None:
        """Count a case; ``kind`` follows its number in the warning."""
        count, first = self.found.get(kind, (0, where))
        self.found[kind] = (count + 1, first)

    def warn(self) -> None:
        """Warn of everything that was counted."""
        if self.found:
            said = "; ".join(
                f"{count} {kind[count > 1]}, first {first}" for kind, (count, first) in self.found.items()
            )
            warnings.warn(f"{self.file}: {said}", stacklevel=3)


def ground_truth_box(
    numbers: Any,
    label: int,
    size: tuple[float, float] | None,
    where: str,
    tally: Tally,
    area: Any = None,
    crowd: bool = False,
) -> Box | None:
    """Return the box x0, y0, x1, y1 of an image of this width and height, or None where nothing of
    it lies inside.
    """
    try:
        x0, y0, x1, y1 = (float(number) for number in numbers)
    except (TypeError, ValueError, OverflowError):
        raise BadImage(f"{where}: wanted a box of four numbers, got {numbers!r}") from None
    if not all(map(math.isfinite, (x0, y0, x1, y1))):
        raise BadImage(f"{where}: wanted a box of finite numbers, got {[x0, y0, x1, y1]}")
    if x1 < x0 or y1 < y0:
        raise BadImage(
            f"{where}: wanted a box with a width and a height of 0 or more, got {x1 - x0:g} x {y1 - y0:g}"
        )
    if size is not None and (min(x0, y0) < -EDGE or x1 > size[0] + EDGE or y1 > size[1] + EDGE):
        x0, x1 = (min(max(x, 0.0), size[0]) for x in (x0, x1))
        y0, y1 = (min(max(y, 0.0), size[1]) for y in (y0, y1))
        if x0 < x1 and y0 < y1:
            tally.add(CUT, where)
    if x0 == x1 or y0 == y1:
        tally.add(NOTHING_LEFT, where)
        return None
    return Box((x0, y0, x1, y1), label, area=_area(area), crowd=crowd)


def _area(area: Any) -> float | None:
    """Return an area in px if it is one; a box without it counts by its own size."""
    usable = isinstance(area, int | float) and not isinstance(area, bool) and 0 <= area < LARGEST
    return float(area) if usable else None


def known_classes(names: Iterable[str], labels: Labels, file: object) -> dict[str, int]:
    """Return the suite's label of each class of a file that it has, by name; that it has none of
    them is an error.
    """
    listed = list(dict.fromkeys(names))
    found = {name: label for name in listed if (label := labels.get(name)) is not None}
    if not found:
        some = ", ".join(map(repr, listed[:5])) + (" ..." if len(listed) > 5 else "")
        raise SoritesError(
            f"{file}: none of its classes ({some or 'it names none'}) is one of the suite's labels, such as"
            f" {labels.names[0]!r}. Type: {'' if labels == coco() else '--labels coco, or '}--labels FILE"
            " with one class name per line"
        )
    return found


def broken(id_: str, reason: str) -> Sample:
    """Return a sample whose image cannot be used, for this reason: it becomes rows with the error."""
    return Sample(id_, functools.partial(_refused, reason))


def _refused(reason: str) -> NoReturn:
    raise BadImage(reason)


def sized(image: ImageU8, width: int, height: int, called: object) -> ImageU8:
    """Return an image that has the size its annotations were made for; another size is an error,
    as its boxes would be wrong.
    """
    if image.shape[:2] != (height, width):
        found = f"{image.shape[1]} x {image.shape[0]}"
        raise BadImage(f"{called}: its annotations are for {width} x {height} px, and the image has {found}")
    return image

"""Images and samples: image types, settings, attributes, boxes, and sources."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import SoritesError, as_utf8
from sorites.core.refs import REFS, ImageRef

# H x W x 3, sRGB, 0..1: input and output of shifts.
ImageF32 = NDArray[np.float32]

# H x W x 3, sRGB, 8 bits: what a file contains and a model sees.
ImageU8 = NDArray[np.uint8]

# Name of the identity shift: one row per sample and model, shared by all shifts of the sample.
CLEAN = "clean"


def to_float(image: ImageU8) -> ImageF32:
    """Convert 0..255 to 0..1."""
    return image.astype(np.float32) * np.float32(1 / 255)


def to_uint8(image: ImageF32, in_range: bool = False) -> ImageU8:
    """Round to 8 bits, exactly once, so that images made on the fly equal images read from a lossless
    file.

    Args:
        image: Pixels; those outside 0..1 are clipped.
        in_range: Whether all pixels are known to be in 0..1, so that none needs to be clipped.
    """
    scaled = image * np.float32(255)
    scaled += np.float32(0.5)
    if not in_range:
        np.clip(scaled, 0, 255, out=scaled)
    return scaled.astype(np.uint8)


def read_only(image: ImageU8) -> ImageU8:
    """Return a view that cannot be written to."""
    view = image.view()
    view.flags.writeable = False
    return view


def _spell(obj: object, *names: str) -> None:
    """Replace invalid UTF-8 in the named text fields by escapes."""
    for name in names:
        text = getattr(obj, name)
        if isinstance(text, str) and not text.isascii():
            object.__setattr__(obj, name, as_utf8(text))


@dataclass(frozen=True)
class Setting:
    """A severity, or named params for shifts without a severity."""

    severity: float | None = 0.0
    params: Mapping[str, Any] = field(default_factory=dict)
    level: int | None = None

    @functools.cached_property
    def canonical(self) -> str:
        """The setting as JSON with sorted keys; part of image ids."""
        return json.dumps({"severity": self.severity, **self.params}, sort_keys=True)


@dataclass(frozen=True)
class Attr:
    """An attribute of an object or its surroundings; ``common`` says whether it is usual for the class."""

    key: str
    value: str
    common: bool | None = None

    def __post_init__(self) -> None:
        _spell(self, "key", "value")


@dataclass(frozen=True)
class Box:
    """A box with x0, y0, x1, y1 in pixels, a label, and a confidence for predictions.

    A ground-truth box may have an ``area`` in px² (that of its segmentation, by which COCO separates small
    from large objects). A ``crowd`` box covers several objects of its class that are not annotated
    separately.
    """

    xyxy: tuple[float, float, float, float]
    label: int
    conf: float | None = None
    area: float | None = None
    crowd: bool = False


@dataclass(frozen=True)
class OwnDial:
    """A shift of a single sample whose images are made on demand (generated, rendered, measured).

    ``sweep(severities)`` yields one image per severity; each image must not depend on the other severities or
    their order. Severity 0 is the clean image from ``Sample.image`` and is never requested. Dials of the same
    name must have the same levels, unit, family and version in all samples. ``inputs`` is the data that the
    images are made from besides that of ``Sample.image``; a change of it is a change of the sample.
    """

    name: str
    levels: tuple[float, ...]
    """Severities of levels 1, 2, ...: above 0 and increasing."""
    sweep: Callable[[Sequence[float]], Iterator[ImageF32]]
    unit: str = ""
    family: str = "generated"
    version: int | str = 1
    """Change it whenever pixels change; a run cannot be resumed with another version."""
    about: str = ""
    inputs: tuple[ImageRef, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(map(float, self.levels)))
        rising = all(
            low < high < math.inf for low, high in zip((0.0, *self.levels), self.levels, strict=False)
        )
        if not self.levels or not rising:
            raise SoritesError(f"dial {self.name}: levels must be above 0 and increasing, got {self.levels}")
        if self.name in ("", CLEAN):
            raise SoritesError(f"a dial cannot be named {self.name!r}")

    @property
    def shared(self) -> dict[str, Any]:
        """The properties that all dials of one name share, as stored in ``run.json``."""
        return {
            "levels": list(self.levels),
            "unit": self.unit,
            "family": self.family,
            "version": self.version,
        }


@dataclass(frozen=True)
class Sample:
    """A photographed scene or object.

    ``image`` says where its image comes from: a ``FileRef``, ``ArrayRef``, ``BytesRef`` or ``Generated``.
    Captured shifts also set ``shift``, ``setting`` and the fields after them.

    Example:
        >>> from sorites.core import ArrayRef
        >>> Sample("grey", ArrayRef(np.full((2, 3, 3), 128, np.uint8)), label=0).load().shape
        (2, 3, 3)
    """

    id: str
    image: ImageRef
    label: int | None = None
    accept: frozenset[int] = frozenset()
    """Labels that count as correct; empty means only ``label``."""
    ground_truth: tuple[Box, ...] | None = None
    attrs: tuple[Attr, ...] = ()
    split: str = ""
    alpha: Callable[[], NDArray[np.uint8]] | None = None
    """Returns the mask of the cut-out, H x W, if the source has one."""
    shift: str = CLEAN
    setting: Setting = Setting()
    framed: bool = False
    image_id: str | None = None
    source: str = ""
    """Name of its source in a run with several sources; empty for the first."""
    family: str = ""
    """Family of a captured shift, if known."""
    dials: tuple[OwnDial, ...] = ()
    """Shifts that only this sample has; requires a clean sample."""

    def __post_init__(self) -> None:
        # Tables and hashes need valid UTF-8; doing this here covers all sources.
        _spell(self, "id", "split")
        if not isinstance(self.image, REFS):
            raise SoritesError(
                f"sample {self.id}: expected image as a FileRef, ArrayRef, BytesRef or Generated, got"
                f" {type(self.image).__name__}; wrap a function as Generated(function, (argument, ...))"
            )
        if not self.dials:
            return
        if self.shift != CLEAN:
            raise SoritesError(
                f"sample {self.id}: a dial needs a clean image, but this one has the shift {self.shift}"
            )
        if len({dial.name for dial in self.dials}) < len(self.dials):
            raise SoritesError(f"sample {self.id}: two dials have the same name")

    def load(self) -> ImageU8:
        """Decode the image: upright, RGB, 8 bits.

        Raises:
            BadImage: The image cannot be read.
        """
        return self.image.load()

    def dial(self, name: str) -> OwnDial | None:
        """Return the sample's dial of this name, or None."""
        return next((dial for dial in self.dials if dial.name == name), None)

    @property
    def right(self) -> frozenset[int]:
        """Labels that count as correct."""
        return self.accept or (frozenset() if self.label is None else frozenset({self.label}))


@dataclass(frozen=True)
class Source:
    """A named list of samples."""

    name: str
    samples: Sequence[Sample]

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.samples)

    def __len__(self) -> int:
        return len(self.samples)

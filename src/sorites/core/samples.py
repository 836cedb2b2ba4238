"""Images, and where they come from: samples, their attributes and settings, and sources."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import SoritesError, as_utf8

# H x W x 3, sRGB, 0..1: what a shift moves.
ImageF32 = NDArray[np.float32]

# H x W x 3, sRGB, 8 bits: what a file would hold, and therefore what a model sees.
ImageU8 = NDArray[np.uint8]

# The name of the shift that does nothing: one row a sample and model, joined into every trajectory.
CLEAN = "clean"


def to_float(image: ImageU8) -> ImageF32:
    return image.astype(np.float32) * np.float32(1 / 255)


def to_uint8(image: ImageF32) -> ImageU8:
    """Round to 8 bits, once: images on the fly and images from a lossless file are then the same."""
    scaled = image * np.float32(255) + np.float32(0.5)
    np.clip(scaled, 0, 255, out=scaled)
    return scaled.astype(np.uint8)


def read_only(image: ImageU8) -> ImageU8:
    """Return the image as an array that cannot be written into; whoever has to write takes a copy."""
    shown = image.view()
    shown.flags.writeable = False
    return shown


def _spell(obj: object, *names: str) -> None:
    """Replace those of the named texts that are not UTF-8 by the same with escapes."""
    for name in names:
        text = getattr(obj, name)
        if isinstance(text, str) and not text.isascii():
            object.__setattr__(obj, name, as_utf8(text))


@dataclass(frozen=True)
class Setting:
    """The place of the dials: a severity on a line, or named params where there is no line."""

    severity: float | None = 0.0
    params: Mapping[str, Any] = field(default_factory=dict)
    level: int | None = None

    @property
    def canonical(self) -> str:
        return json.dumps({"severity": self.severity, **self.params}, sort_keys=True)


@dataclass(frozen=True)
class Attr:
    """Something true of the object photographed or its surroundings; ``common`` says if it is usual
    for its class.
    """

    key: str
    value: str
    common: bool | None = None

    def __post_init__(self) -> None:
        """Spell what is not UTF-8 with escapes, as ids of samples are."""
        _spell(self, "key", "value")


@dataclass(frozen=True)
class Box:
    """x0, y0, x1, y1 in pixels of the image, a label, and for predictions a confidence.

    A truth may have an ``area`` of its own in px (that of its segmentation, by which COCO tells
    small from large), and a ``crowd`` stands for many objects of its class that are not told apart.
    """

    xyxy: tuple[float, float, float, float]
    label: int
    conf: float | None = None
    area: float | None = None
    crowd: bool = False


@dataclass(frozen=True)
class OwnDial:
    """A dial of a sample's own: images of that sample alone, made while a run asks for them
    (generated, rendered, measured).

    ``sweep(severities)`` yields one image per severity, each the same whatever else is asked and in
    which order. Severity 0 is the clean image that ``Sample.load`` gives, and is never asked. Of
    a dial that several samples have by one name, all have the same levels, unit, family and
    version.
    """

    name: str
    levels: tuple[float, ...]
    """The published stops 1, 2, ..., above 0 and rising."""
    sweep: Callable[[Sequence[float]], Iterator[ImageF32]]
    unit: str = ""
    family: str = "generated"
    version: int | str = 1
    """It changes whenever a pixel may: a run that is resumed with another is refused."""
    about: str = ""

    def __post_init__(self) -> None:
        """Refuse levels that are no dial, before any image is made."""
        object.__setattr__(self, "levels", tuple(map(float, self.levels)))
        rising = all(
            low < high < math.inf for low, high in zip((0.0, *self.levels), self.levels, strict=False)
        )
        if not self.levels or not rising:
            raise SoritesError(
                f"dial {self.name}: wanted levels that rise from above 0 (the clean image), got {self.levels}"
            )
        if self.name in ("", CLEAN):
            raise SoritesError(f"a dial of a sample wants a name of its own, got {self.name!r}")

    @property
    def shared(self) -> dict[str, Any]:
        """Return what all dials of one name have in common, as ``run.json`` keeps it."""
        return {
            "levels": list(self.levels),
            "unit": self.unit,
            "family": self.family,
            "version": self.version,
        }


@dataclass(frozen=True)
class Sample:
    """The object photographed.

    ``load`` decodes it: upright, RGB. Captured shifts fill ``shift`` and what follows it.
    """

    id: str
    load: Callable[[], ImageU8]
    label: int | None = None
    accept: frozenset[int] = frozenset()
    """Labels that count as right; empty means only ``label``."""
    ground_truth: tuple[Box, ...] | None = None
    attrs: tuple[Attr, ...] = ()
    split: str = ""
    alpha: Callable[[], NDArray[np.uint8]] | None = None
    """The cut-out's mask, H x W, where the source has one."""
    shift: str = CLEAN
    setting: Setting = Setting()
    framed: bool = False
    image_id: str | None = None
    source: str = ""
    """The name of its source in a run of several; empty for the first."""
    family: str = ""
    """The family of a captured shift, where the source knows it."""
    dials: tuple[OwnDial, ...] = ()
    """The dials of its own, for a clean sample."""

    def __post_init__(self) -> None:
        """Spell names that are not UTF-8 with escapes, here for all sources: no table and no hash
        could hold them otherwise.
        """
        _spell(self, "id", "split")
        if not self.dials:
            return
        if self.shift != CLEAN:
            raise SoritesError(
                f"sample {self.id}: a dial starts from a clean image, and this one was taken under"
                f" {self.shift}"
            )
        if len({dial.name for dial in self.dials}) < len(self.dials):
            raise SoritesError(f"sample {self.id}: two of its dials have one name")

    def dial(self, name: str) -> OwnDial | None:
        """Return the dial of this name that the sample has, or None."""
        return next((dial for dial in self.dials if dial.name == name), None)

    @property
    def right(self) -> frozenset[int]:
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

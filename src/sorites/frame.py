"""The frame a suite lays on every picture before the shift, and the further sources that may bring one of their own."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any, Literal

import numpy as np
from PIL import Image as Pillow
from pydantic import BaseModel, ConfigDict, Field, StrictInt, model_validator

from sorites.errors import BadPicture
from sorites.types import Picture

MOST = 1 << 28
"""The most pixels that a resized picture may have: 800 MB of them."""


class Strict(BaseModel):
    """A part of a suite: immutable, and a key that it does not have is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Frame(Strict):
    """Resize the shorter side, then crop the centre square.

    Sizes and offsets are rounded as torchvision's Resize and CenterCrop round them, which the published benchmarks used.
    """

    resize: StrictInt = Field(gt=0, description="shorter side, px")
    crop: StrictInt | None = Field(default=None, gt=0, description="centre square, px")
    filter: Literal["bicubic", "bilinear", "lanczos"] = "bicubic"

    @model_validator(mode="after")
    def _fits(self) -> Frame:
        if self.crop is not None and self.crop > self.resize:
            raise ValueError(f"crop ({self.crop}) must not be larger than resize ({self.resize})")
        return self

    @property
    def canonical(self) -> str:
        """The text by which an ``image_id`` knows this frame; a key added later enters it only where it is set."""
        first = ("resize", "crop", "filter")
        later = self.model_dump(mode="json", exclude=set(first), exclude_defaults=True)
        return json.dumps({**{key: getattr(self, key) for key in first}, **later}, separators=(",", ":"))

    def __call__(self, picture: Picture) -> Picture:
        height, width = picture.shape[:2]
        short = min(height, width)
        size = (self.resize * width // short, self.resize * height // short)
        if size[0] * size[1] > MOST:
            raise BadPicture(f"a picture of {width} x {height} px is too long and thin for a frame of {self.resize}")
        if size != (width, height):
            resample = Pillow.Resampling[self.filter.upper()]
            picture = np.asarray(Pillow.fromarray(picture).resize(size, resample))
        if self.crop is None:
            return picture
        left, top = (round((side - self.crop) / 2) for side in size)
        return np.ascontiguousarray(picture[top : top + self.crop, left : left + self.crop])


class SourceEntry(Strict):
    """A source beside the first one of a suite, with the part that its pictures play.

    Pictures of a ``strange`` source count as unknown to every model, whatever their classes are called; those of a ``familiar``
    one have labels of the suite. ``group`` says near or far. Without a frame of its own the suite's is laid on its pictures.
    """

    spec: str
    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    role: Literal["familiar", "strange"] = "strange"
    group: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.-]+$")
    limit: StrictInt | None = Field(default=None, gt=0)
    frame: Frame | None = None

    @model_validator(mode="before")
    @classmethod
    def _named(cls, data: Any) -> Any:
        """Name a source without a name by the last part of its path, or by its reader."""
        if isinstance(data, dict) and isinstance(data.get("spec"), str) and not data.get("name"):
            reader, _, argument = data["spec"].partition(":")
            return {**data, "name": PurePath(argument).name or reader}
        return data

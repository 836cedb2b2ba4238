"""Bring an image of any size to a model's input: scale and crop, nothing else; the model's graph
does the normalising.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import numpy as np
from PIL import Image as Pil
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from sorites.core import ImageU8
from sorites.core.errors import SoritesError
from sorites.io.validation import mistakes

Filter = Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]
Mode = Literal["center", "squash"]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

# The most pixels of a scaled image. One so thin that it would have more is scaled only in the
# part that is kept.
HUGE = 1 << 24

Channels = tuple[float, float, float]
Side = Annotated[int, Field(gt=0)]


def fit(
    image: ImageU8,
    framed: bool,
    size: tuple[int, int],
    crop_pct: float = 0.875,
    filter: Filter = "bicubic",
    mode: Mode = "center",
) -> ImageU8:
    """Return the image at ``size`` (height, width), 8 bits.

    A framed image is only scaled. An unframed one is scaled until its shorter side is ``size /
    crop_pct`` (``squash``: both sides, whatever its aspect) and the centre is cut out; the result
    equals, to the bit, that of torchvision's Resize and CenterCrop on a Pillow image. An image
    that has ``size`` already is returned untouched.
    """
    if image.shape[:2] == tuple(size):
        return image
    tall, wide = size if framed else _scaled(image.shape[0], image.shape[1], size, crop_pct, mode)
    top, left = round((tall - size[0]) / 2), round((wide - size[1]) / 2)
    crop = (left, top, left + size[1], top + size[0])
    given, how = Pil.fromarray(image), Pil.Resampling[filter.upper()]
    if tall * wide > HUGE:
        down, across = given.height / tall, given.width / wide
        part = (crop[0] * across, crop[1] * down, crop[2] * across, crop[3] * down)
        return np.asarray(given.resize((size[1], size[0]), how, box=part))
    return np.asarray(given.resize((wide, tall), how).crop(crop))


def _scaled(height: int, width: int, size: tuple[int, int], crop_pct: float, mode: Mode) -> tuple[int, int]:
    """Return the height and width to which the image is scaled before its centre is cut out."""
    tall, wide = (math.floor(side / crop_pct) for side in size)
    if mode == "squash":
        return tall, wide
    return max(tall, wide * height // width), max(wide, tall * width // height)


class Config(BaseModel):
    """The input of a model as a file or a module states it.

    ``mean`` and ``std`` are those of pixels, as red, green, blue.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("std", check_fields=False)
    @classmethod
    def _divides(cls, std: Channels) -> Channels:
        if not all(value > 0 for value in std):
            raise ValueError("every std must be above 0")
        return std

    @classmethod
    def read(cls, config: Mapping[str, Any], where: str) -> Self:
        """Read a config that a file or a module carries; ``where`` names it in the error."""
        try:
            return cls(**config)
        except ValidationError as error:
            said, keys = mistakes(error, cls)[0], ", ".join(cls.model_fields)
            raise SoritesError(
                f"{where}: {said}{'' if said.endswith(('.', '?')) else '.'} The keys are {keys}."
            ) from error


class Input(Config):
    """The input that a model wants; ``mean`` and ``std`` are those of pixels in 0..1."""

    size: tuple[Side, Side] = (224, 224)
    """Height and width in pixels; one number stands for both."""
    mean: Channels = IMAGENET_MEAN
    std: Channels = IMAGENET_STD
    crop_pct: Annotated[float, Field(gt=0, le=1)] = 0.875
    filter: Filter = "bicubic"
    mode: Mode = "center"

    @field_validator("size", mode="before")
    @classmethod
    def _square(cls, size: Any) -> Any:
        return (size, size) if isinstance(size, int) else size

    @property
    def described(self) -> dict[str, Any]:
        """The same as plain data."""
        return self.model_dump(mode="json")

    def prepare(self, image: ImageU8, framed: bool) -> ImageU8:
        """Bring an image to this input, as ``fit`` does."""
        return fit(image, framed, self.size, self.crop_pct, self.filter, self.mode)

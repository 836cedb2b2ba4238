"""Resize and crop images to the input of a model; normalising is part of the model's graph."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import numpy as np
from PIL import Image as Pil
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from sorites.core import ImageU8
from sorites.core.errors import SoritesError
from sorites.io.resizing import Filter, resized_part
from sorites.io.validation import problems

Mode = Literal["center", "squash"]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

# The maximum number of pixels of a resized image. Of a thinner image, only the crop is resized.
MAX_RESIZED_PIXELS = 1 << 24

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

    A framed image is only resized. Otherwise the image is resized until its shorter side is ``size /
    crop_pct`` (with ``squash`` both sides, ignoring the aspect ratio) and the centre is cropped; the
    result is bit-identical to torchvision's Resize and CenterCrop on a Pillow image. An image that
    already has ``size`` is returned unchanged.
    """
    if image.shape[:2] == tuple(size):
        return image
    tall, wide = size if framed else _resized_shape(image.shape[0], image.shape[1], size, crop_pct, mode)
    top, left = round((tall - size[0]) / 2), round((wide - size[1]) / 2)
    crop = (left, top, left + size[1], top + size[0])
    if tall * wide > MAX_RESIZED_PIXELS:
        pillow_image, resampling = Pil.fromarray(image), Pil.Resampling[filter.upper()]
        down, across = pillow_image.height / tall, pillow_image.width / wide
        part = (crop[0] * across, crop[1] * down, crop[2] * across, crop[3] * down)
        return np.asarray(pillow_image.resize((size[1], size[0]), resampling, box=part))
    return resized_part(image, (wide, tall), crop, filter)


def _resized_shape(
    height: int, width: int, size: tuple[int, int], crop_pct: float, mode: Mode
) -> tuple[int, int]:
    """Return the height and width of the resized image before cropping."""
    tall, wide = (math.floor(side / crop_pct) for side in size)
    if mode == "squash":
        return tall, wide
    return max(tall, wide * height // width), max(wide, tall * width // height)


@dataclass(frozen=True)
class Fit:
    """``fit`` with its options; two with the same options are equal, so that models can share an input."""

    size: tuple[int, int]
    crop_pct: float = 0.875
    filter: Filter = "bicubic"
    mode: Mode = "center"

    def __call__(self, image: ImageU8, framed: bool) -> ImageU8:
        return fit(image, framed, self.size, self.crop_pct, self.filter, self.mode)


class Config(BaseModel):
    """The input of a model, as declared by a file or a module.

    ``mean`` and ``std`` are in the order red, green, blue.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("mean", check_fields=False)
    @classmethod
    def _check_mean(cls, mean: Channels) -> Channels:
        if not all(0 <= value <= 1 for value in mean):
            scaled = [round(value / 255, 4) for value in mean]
            raise ValueError(
                f"every mean must be in 0..1; if these are means of pixels in 0..255, divide mean and std by"
                f" 255: {scaled}"
            )
        return mean

    @field_validator("std", check_fields=False)
    @classmethod
    def _check_std(cls, std: Channels) -> Channels:
        if not all(value > 0 for value in std):
            raise ValueError("every std must be above 0")
        return std

    @classmethod
    def read(cls, config: Mapping[str, Any], where: str) -> Self:
        """Validate a config; ``where`` is its name in error messages."""
        try:
            return cls(**config)
        except ValidationError as error:
            problem, keys = problems(error, cls)[0], ", ".join(cls.model_fields)
            raise SoritesError(
                f"{where}: {problem}{'' if problem.endswith(('.', '?')) else '.'} The keys are {keys}."
            ) from error


class Input(Config):
    """The input of a classifier; ``mean`` and ``std`` refer to pixels in 0..1."""

    size: tuple[Side, Side] = (224, 224)
    """Height and width in pixels; a single number sets both."""
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
        """The fields as plain data."""
        return self.model_dump(mode="json")

    @property
    def assumed(self) -> dict[str, list[str]]:
        """The fields that were not declared, as ``{"assumed": [...]}``; empty if all were."""
        missing = [name for name in type(self).model_fields if name not in self.model_fields_set]
        return {"assumed": missing} if missing else {}

    @property
    def prepare(self) -> Fit:
        """Resizes and crops an image to this input; equal for inputs that differ only in mean and std."""
        return Fit(self.size, self.crop_pct, self.filter, self.mode)

"""Resize and crop images to the input of a model; normalising is part of the model's graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from sorites.core.errors import SoritesError
from sorites.io.resizing import Filter, Fit, Mode
from sorites.io.validation import problems

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

Channels = tuple[float, float, float]
Side = Annotated[int, Field(gt=0)]


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

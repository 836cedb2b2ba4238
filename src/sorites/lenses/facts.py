"""Check the facts that files of traced lenses hold, key by key, before anything is computed with them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, ValidationError, model_validator

from sorites.errors import SoritesError
from sorites.optics.tracing.positions import PERCENT, POSITIONS
from sorites.reading.texts import json_object

Number = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=-1e12, lt=1e12)]
Length = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0, lt=1e12)]
Arrays = Mapping[str, NDArray[Any]]

WIDEST = 1023
"""The widest kernel of a traced lens, px."""


class _Facts(BaseModel):
    model_config = ConfigDict(extra="allow")


class _Layout(_Facts):
    """Surfaces (vertex, radius, whether glass follows), and at two fields rays with a point (z, y) on each surface."""

    surfaces: list[tuple[Number, Number, StrictBool]] = Field(min_length=1)
    rays: list[list[list[tuple[Number, Number]]]] = Field(min_length=2, max_length=2)
    stop: StrictInt

    @model_validator(mode="after")
    def _a_point_per_surface(self) -> _Layout:
        if not all(self.rays) or any(len(path) != len(self.surfaces) for some in self.rays for path in some):
            raise ValueError("wanted rays at both fields with one point on each surface")
        return self


class _Lens(_Facts):
    efl_mm: Number
    f_number: Length
    fov_deg: Length
    pitch_um: Length
    pixels: StrictInt = Field(gt=0, lt=2**31)
    mtf50: list[Number] = Field(min_length=len(PERCENT), max_length=len(PERCENT))
    quality: Number
    lens: StrictStr
    layout: _Layout


class _Tolerance(_Facts):
    lens: StrictStr
    element: StrictInt
    kind: Literal["decentre", "tilt", "spacing"]
    unit: StrictStr
    stops: list[Number] = Field(min_length=2)
    field: Number
    azimuths: list[Annotated[int, Field(strict=True, ge=0, lt=360)]] = Field(min_length=1)

    @model_validator(mode="after")
    def _rises_from_zero(self) -> _Tolerance:
        if self.stops[0] != 0 or any(low >= high for low, high in zip(self.stops, self.stops[1:], strict=False)):
            raise ValueError("wanted stops that rise from 0")
        return self


def lens_facts(header: Mapping[str, str], path: Path) -> dict[str, Any]:
    """Return what the file of a traced lens says of it."""
    return _checked(_Lens, header, path, "traced lens")


def tolerance_facts(header: Mapping[str, str], path: Path) -> dict[str, Any]:
    """Return what the file of a production error says of it."""
    return _checked(_Tolerance, header, path, "traced tolerance")


def _checked(kind: type[_Facts], header: Mapping[str, str], path: Path, what: str) -> dict[str, Any]:
    if "about" not in header:
        raise SoritesError(f"{path} is not a {what}: it has no about")
    try:
        about = json_object(header["about"])
        kind.model_validate(about)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        said = f"it has no {where}" if first["type"] == "missing" else f"{where}: {first['msg'].removeprefix('Value error, ')}"
        raise SoritesError(f"{path} is not a {what}: {said}") from error
    except (ValueError, RecursionError) as error:
        raise SoritesError(f"{path} is not a {what}: what it says of itself cannot be read: {error}") from error
    return about


def lens_arrays(arrays: Arrays, path: Path) -> dict[str, NDArray[np.float32]]:
    """Return the arrays of a traced lens: kernels by place and colour, and MTF and Zernike terms by field and colour."""
    start = {"kernels": (len(POSITIONS), 3), **dict.fromkeys(("mtf", "zernike", "zernike12"), (len(PERCENT), 3))}
    least = {"mtf": 2, "zernike": 12, "zernike12": 12}
    for name, first in start.items():
        if name not in arrays:
            raise SoritesError(f"{path} is not a traced lens: it has no {name}")
        shape = arrays[name].shape
        if shape[:2] != first or (name in least and (len(shape) != 3 or shape[2] < least[name])):
            raise SoritesError(f"{path} is not a traced lens: wanted {name} of shape {first} and more, got {shape}")
    made = {name: _numbers(array, name, path) for name, array in arrays.items()}
    return {**made, "kernels": light(made["kernels"], path)}


def light(kernels: NDArray[np.float32], path: Path) -> NDArray[np.float32]:
    """Return kernels if they are: square, odd, and with some light in each."""
    side = kernels.shape[-1] if kernels.ndim > 2 else 0
    if kernels.ndim < 3 or kernels.shape[-2] != side or side % 2 == 0 or side > WIDEST:
        raise SoritesError(f"{path}: wanted square kernels of an odd number of px up to {WIDEST}, got {kernels.shape}")
    if not kernels.size or not (kernels.sum((-2, -1), dtype=np.float64) > 1e-9).all() or kernels.min() < 0:
        raise SoritesError(f"{path}: wanted kernels of light, which is never negative and somewhere above 0")
    return kernels


def _numbers(array: NDArray[Any], name: str, path: Path) -> NDArray[np.float32]:
    values = array.astype(np.float64) if array.dtype.kind == "f" else np.full(1, np.nan)
    if not (np.abs(values) < 1e30).all():
        raise SoritesError(f"{path}: wanted {name} as finite numbers, got an array of {array.dtype}")
    return np.asarray(array, np.float32)


def tolerance_arrays(arrays: Arrays, path: Path) -> dict[str, NDArray[np.float32]]:
    """Return the kernels and sharpness of a production error as numbers."""
    made = {name: _numbers(array, name, path) for name, array in arrays.items()}
    return {**made, "kernels": light(made["kernels"], path)} if "kernels" in made else made

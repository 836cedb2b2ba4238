"""Folders of traced lenses: one safetensors file per lens, ranked by quality."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    model_validator,
)

from sorites.core.errors import Notice, SoritesError, UnknownName, tell
from sorites.core.messages import command
from sorites.core.rng import digest
from sorites.io.files import write_bytes
from sorites.io.paths import entries, is_dir, is_file
from sorites.io.readers import json_object
from sorites.io.sealed_tensors import NO_DIGEST, require_tensors, seal_tensors
from sorites.io.tables import tensors
from sorites.optics.projection import Places, Projection
from sorites.optics.tracing.around import around
from sorites.optics.tracing.blur import BETWEEN, PERCENT, POSITIONS

if TYPE_CHECKING:
    import polars as pl

# Validation of the metadata of lens files


Number = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=-1e12, lt=1e12)]
Length = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0, lt=1e12)]
Arrays = Mapping[str, NDArray[Any]]

Kind = Literal["decentre", "tilt", "spacing"]

MAX_KERNEL_PX = 1023
# Arrays of the projection of a lens; see ``optics.projection``. They are always in single precision.
PROJECTION = ("angles", "heights", "illumination")

R = TypeVar("R", bound=BaseModel)


class _Record(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)

    def text(self) -> str:
        """Return the record as JSON, without the fields that were not set."""
        return json.dumps(self.model_dump(exclude_unset=True))


class Layout(_Record):
    """Surfaces (vertex, radius, whether glass follows), and rays at two fields with a point (z, y) on each
    surface.
    """

    surfaces: list[tuple[Number, Number, StrictBool]] = Field(min_length=1)
    rays: list[list[list[tuple[Number, Number]]]] = Field(min_length=2, max_length=2)
    stop: StrictInt

    @model_validator(mode="after")
    def _check_points(self) -> Self:
        if not all(self.rays) or any(len(path) != len(self.surfaces) for rays in self.rays for path in rays):
            raise ValueError("expected rays at both fields with one point on each surface")
        return self


class LensRecord(_Record):
    """Metadata of a traced lens; fields with a default are missing in files that others wrote.

    Attributes:
        fov_deg: Full field of view.
        pitch_um: Size of a pixel.
        pixels: Pixels across the whole field.
        mtf50: MTF50 of the kernels at each field, in cycles per pixel.
        quality: Mean of ``mtf50``.
        caught: Share of the light that the kernels contain, by field.
        lens: Digest of the lens itself.
        cause: Digest of the prescription and the settings that it was traced from.
        substitutes: Successors that stand for glasses missing from the catalogues, by the name of the glass.
        measured: How the kernels were measured (``psf`` or ``edge``); None for a traced lens, which has
            focal length, F-number, field of view, pixels and layout.
    """

    efl_mm: Number | None = None
    bfl_mm: Number | None = None
    f_number: Length | None = None
    fov_deg: Length | None = None
    pitch_um: Length
    image_mm: Number | None = None
    pixels: StrictInt | None = Field(default=None, gt=0, lt=2**31)
    mtf50: list[Number] = Field(min_length=len(PERCENT), max_length=len(PERCENT))
    quality: Number
    focus: StrictStr | None = None
    focus_mm: Number | None = None
    window_um: StrictInt | None = None
    caught: list[Number] = []
    kept: Number | None = None
    lens: StrictStr
    layout: Layout | None = None
    cause: StrictStr | None = None
    substitutes: dict[StrictStr, StrictStr] = {}
    measured: Literal["psf", "edge"] | None = None

    @model_validator(mode="after")
    def _check_traced(self) -> Self:
        for name in ("efl_mm", "f_number", "fov_deg", "pixels", "layout"):
            if self.measured is None and getattr(self, name) is None:
                raise ValueError(f"expected {name}")
        return self


class ToleranceRecord(_Record):
    """Metadata of a traced production error; fields with a default are missing in files that others wrote.

    Attributes:
        lens: Name of the lens.
        element: Number of the moved element, from 1.
        elements: Number of glass elements.
        chosen: The element was chosen because it blurs most.
        stops: Traced severities, from 0.
        field: Fraction of the half field of view.
        cause: Digest of the prescription and the settings that it was traced from.
    """

    lens: StrictStr
    element: StrictInt
    elements: StrictInt
    chosen: StrictBool = False
    kind: Kind
    unit: StrictStr
    stops: list[Number] = Field(min_length=2)
    field: Number
    azimuths: list[Annotated[int, Field(strict=True, ge=0, lt=360)]] = Field(min_length=1)
    refocus: StrictBool = False
    pitch_um: Number
    window_um: StrictInt | None = None
    focus_mm: list[Number] = []
    kept: Number | None = None
    mtf50: list[list[Number]] = []
    cause: StrictStr | None = None

    @model_validator(mode="after")
    def _check_stops(self) -> Self:
        if self.stops[0] != 0 or any(
            low >= high for low, high in zip(self.stops, self.stops[1:], strict=False)
        ):
            raise ValueError("expected stops that rise from 0")
        return self


def lens_record(header: Mapping[str, str], path: Path) -> LensRecord:
    """Return the validated metadata of a traced lens."""
    return _validated(LensRecord, header, path, "traced lens")


def tolerance_record(header: Mapping[str, str], path: Path) -> ToleranceRecord:
    """Return the validated metadata of a production error."""
    return _validated(ToleranceRecord, header, path, "traced tolerance")


def _validated(kind: type[R], header: Mapping[str, str], path: Path, what: str) -> R:
    if "about" not in header:
        raise SoritesError(f"{path} is not a {what}: it has no about")
    try:
        return kind.model_validate(json_object(header["about"]))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        problem = (
            f"it has no {where}"
            if first["type"] == "missing"
            else f"{where}: {first['msg'].removeprefix('Value error, ')}"
        )
        raise SoritesError(f"{path} is not a {what}: {problem}") from error
    except (ValueError, RecursionError) as error:
        raise SoritesError(f"{path} is not a {what}: its metadata cannot be read: {error}") from error


def lens_arrays(arrays: Arrays, path: Path, measured: bool = False) -> dict[str, NDArray[np.float32]]:
    """Return the validated arrays of a lens: kernels by place and colour, MTF and Zernike terms by field and
    colour. ``between`` (kernels at azimuths between the places) and the projection may be missing, and the
    Zernike terms of a ``measured`` lens.
    """
    by_field = ("mtf",) if measured else ("mtf", "zernike", "zernike12")
    leading_shapes = {"kernels": (len(POSITIONS), 3), **dict.fromkeys(by_field, (len(PERCENT), 3))}
    min_length = {"mtf": 2, "zernike": 12, "zernike12": 12}
    for name, leading in leading_shapes.items():
        if name not in arrays:
            raise SoritesError(f"{path} is not a traced lens: it has no {name}")
        shape = arrays[name].shape
        if shape[:2] != leading or (name in min_length and (len(shape) != 3 or shape[2] < min_length[name])):
            raise SoritesError(
                f"{path} is not a traced lens: expected {name} of shape {leading} and more, got {shape}"
            )
    numbers = {name: _numbers(array, name, path) for name, array in arrays.items()}
    for name in ("kernels", "between"):
        if name in numbers:
            light(numbers[name], path)
    kernels, between = numbers["kernels"], numbers.get("between")
    wanted = (len(PERCENT) - 1, len(BETWEEN), *kernels.shape[1:])
    if between is not None and between.shape != wanted:
        raise SoritesError(f"{path}: expected between of shape {wanted}, got {between.shape}")
    _check_projection(numbers, path)
    return numbers


def _check_projection(arrays: Arrays, path: Path) -> None:
    """Raise an error if some arrays of the projection are missing or do not fit together."""
    if not arrays.keys() & set(PROJECTION):
        return
    if missing := [name for name in PROJECTION if name not in arrays]:
        raise SoritesError(f"{path} is not a traced lens: it has no {missing[0]}")
    angles, heights, light_ = (arrays[name] for name in PROJECTION)
    if (
        angles.ndim != 1
        or len(angles) < 4
        or heights.shape != light_.shape
        or heights.shape != (3, len(angles))
    ):
        raise SoritesError(
            f"{path}: expected at least 4 angles, and heights and illumination of 3 colours at each, got"
            f" shapes {angles.shape}, {heights.shape} and {light_.shape}"
        )
    rising = all(row[0] == 0 and (np.diff(row) > 0).all() for row in (angles, *heights))
    if not rising or light_.min() < 0:
        raise SoritesError(
            f"{path}: expected angles and heights that rise from 0, and illumination without negative values"
        )


def light(kernels: NDArray[np.float32], path: Path) -> NDArray[np.float32]:
    """Return the kernels if they are square, odd and of positive light."""
    side = kernels.shape[-1] if kernels.ndim > 2 else 0
    if kernels.ndim < 3 or kernels.shape[-2] != side or side % 2 == 0 or side > MAX_KERNEL_PX:
        raise SoritesError(
            f"{path}: expected square kernels of odd size up to {MAX_KERNEL_PX} px, got {kernels.shape}"
        )
    if not kernels.size or not (kernels.sum((-2, -1), dtype=np.float64) > 1e-9).all() or kernels.min() < 0:
        raise SoritesError(f"{path}: expected kernels without negative values and with a positive sum")
    return kernels


def _numbers(array: NDArray[Any], name: str, path: Path) -> NDArray[np.float32]:
    values = array.astype(np.float64) if array.dtype.kind == "f" else np.full(1, np.nan)
    if not (np.abs(values) < 1e30).all():
        raise SoritesError(f"{path}: expected {name} as finite numbers, got an array of {array.dtype}")
    return np.asarray(array, np.float32)


def tolerance_arrays(arrays: Arrays, path: Path) -> dict[str, NDArray[np.float32]]:
    """Return the validated kernels and sharpness of a production error."""
    numbers = {name: _numbers(array, name, path) for name, array in arrays.items()}
    return {**numbers, "kernels": light(numbers["kernels"], path)} if "kernels" in numbers else numbers


SUFFIX = ".safetensors"
IMPORT_AGAIN = f"Restore it from a backup, or trace the lens again: {command('lens import', 'FILE.zmx')}"
# Endings of files that contain production errors of a lens instead of a lens.
TOLERANCE_ENDINGS = (".decentre", ".tilt", ".spacing")
# Increment when a tap of the built-in lenses or the way kernels are applied changes.
VERSION = 3


@dataclass(frozen=True, eq=False)
class Entry:
    """A lens: its arrays (``kernels``, ``between``, ``mtf``, ``zernike``, ``zernike12`` and those of its
    projection) and metadata (``about``). A measured lens has only ``kernels`` and ``mtf``.
    """

    name: str
    arrays: Mapping[str, NDArray[np.float32]]
    about: LensRecord

    @property
    def quality(self) -> float:
        """Mean over the fields of the kernels' MTF50, in cycles per pixel."""
        return self.about.quality

    def around(self) -> NDArray[np.float32]:
        """Return the kernels of the axis and of all azimuths of each field; see ``optics.tracing.around``."""
        return around(self.arrays["kernels"], self.arrays.get("between"))

    def places(self, corner: float, rectified: bool) -> Places:
        """Return where the lens puts the points of an image; see ``Projection.places``.

        Raises:
            SoritesError: The lens was measured, or traced before projections were.
        """
        half = (self.about.fov_deg or 0.0) / 2
        if not set(PROJECTION) <= self.arrays.keys() or not half:
            why = (
                f"trace it again with {command('lens import', 'FILE.zmx')}"
                if self.about.measured is None
                else "measured kernels do not contain them"
            )
            raise SoritesError(
                f"{self.name} has no image heights and no illumination, which distortion, lateral colour and"
                f" illumination need: {why}"
            )
        projection = Projection(*(self.arrays[name].astype(np.float64) for name in PROJECTION))
        try:
            return projection.places(half, corner, rectified)
        except SoritesError as error:
            raise SoritesError(f"{self.name}: {error}") from error


def warn_of_rotation(entries: Iterable[Entry]) -> None:
    """Warn of lenses without kernels between the stated azimuths, whose pixels are rotated instead.

    Files of earlier versions and of other programs have none. Call it where kernels of all azimuths are
    used.
    """
    without = [entry for entry in entries if "between" not in entry.arrays]
    if not without:
        return
    rotated = sorted(entry.name for entry in without)
    listed = ", ".join(rotated[:3]) + (" ..." if len(rotated) > 3 else "")
    traced = any(entry.about.measured is None for entry in without)
    again = f" Trace lenses again with {command('lens import', 'FILE.zmx')}" if traced else ""
    tell(
        Notice(
            f"{listed}: no kernels between 0, 45 and 90 degrees of azimuth, so the pixels of the nearest ones"
            f" are rotated, which differs from a trace by an L1 of 0.10 to 0.23 on average.{again}",
            code="rotated_kernels",
            lenses=tuple(rotated),
        ),
        3,
    )


def builtin() -> Path:
    """Return the folder of the built-in lenses, optiland's photographic objectives."""
    return Path(str(files("sorites.lenses").joinpath("traced", "objectives")))


def existing_names(folder: Path) -> list[str]:
    """Return the names of the lenses in a folder, possibly none; production errors are not lenses."""
    if not is_dir(folder):
        return []
    stems = (entry.name.removesuffix(SUFFIX) for entry in entries(folder) if entry.name.endswith(SUFFIX))
    return sorted(name for name in stems if not name.endswith(TOLERANCE_ENDINGS))


def names(folder: Path) -> list[str]:
    """Return the names of the lenses in a folder.

    Raises:
        SoritesError: There are none.
    """
    existing = existing_names(folder)
    if not existing:
        importing = command("lens import", "FILE.zmx", out=folder)
        raise SoritesError(f"no lenses in {folder}. Import some with: {importing}")
    return existing


def load(folder: Path, name: str) -> Entry:
    """Load one lens of a folder; every kernel sums to 1."""
    path = folder / f"{name}{SUFFIX}"
    if not is_file(path):
        if name in (refused := reasons(folder)):
            raise SoritesError(f"the lens {name} was refused: {refused[name]}")
        listing = command("lens list", **({} if folder == builtin() else {"lenses": folder}))
        raise UnknownName("lens", name, names(folder), f"See: {listing}")
    require_tensors(path, IMPORT_AGAIN)
    stored, header = tensors(path)
    about = lens_record(header, path)
    arrays = lens_arrays(stored, path, about.measured is not None)
    for key in arrays.keys() & {"kernels", "between"}:
        sums = arrays[key].sum((-2, -1), keepdims=True, dtype=np.float64)
        arrays[key] = arrays[key] / sums.astype(np.float32)
    return Entry(name, arrays, about)


def version(folder: Path) -> str:
    """Return a version string that changes with any lens of the folder."""
    if folder == builtin():
        return f"{VERSION}"
    return digest(
        VERSION, *(f"{name} {(folder / (name + SUFFIX)).read_bytes().hex()}" for name in names(folder))
    ).hex()


def save(entry: Entry, folder: Path, small: bool = False) -> Path:
    """Write an entry and return its path; ``small`` stores arrays but the projection in half precision."""
    from safetensors.numpy import save as packed

    arrays = {
        key: np.ascontiguousarray(value, np.float16 if small and key not in PROJECTION else np.float32)
        for key, value in entry.arrays.items()
    }
    path = folder / f"{entry.name}{SUFFIX}"
    data = packed(arrays, {"about": entry.about.text(), **NO_DIGEST})
    write_bytes(seal_tensors(data), path)
    return path


def rank_lenses(folder: Path) -> pl.DataFrame:
    """Return a table of the lenses by falling quality, followed by the refused prescriptions with their
    reasons.
    """
    import polars as pl

    rows = []
    for name in names(folder):
        about = load(folder, name).about
        plain = about.model_dump(include={"efl_mm", "f_number", "fov_deg", "pitch_um"})
        fields = {f"mtf50_{percent:02d}": v for percent, v in zip(PERCENT, about.mtf50, strict=True)}
        rows.append({"name": name, **plain, "pixels": about.pixels, **fields, "quality": about.quality})
    table = pl.DataFrame(rows).sort("quality", "name", descending=[True, False])
    refused = reasons(folder)
    if not refused:
        return table
    return pl.concat(
        [table, pl.DataFrame({"name": list(refused), "refused": list(refused.values())})], how="diagonal"
    )


def reasons(folder: Path) -> dict[str, str]:
    """Return the reason for each refused prescription, by name."""
    from sorites.io.tables import csv

    sheet = folder / "refused.csv"
    if not is_file(sheet):
        return {}
    table = csv(sheet)
    if missing := [name for name in ("lens", "reason") if name not in table.columns]:
        raise SoritesError(
            f"{sheet}: expected the columns lens and reason, {missing[0]} is missing. Delete the file to"
            " continue without it."
        )
    return {lens: reason or "" for lens, reason in table.select("lens", "reason").rows() if lens}


def select_spread(qualities: Mapping[str, float], n: int) -> list[str]:
    """Select lenses spread evenly over quality.

    Args:
        qualities: Quality by lens.
        n: Number of lenses.

    Returns:
        The lenses nearest to ``n`` evenly spaced qualities, each at most once, by rising quality.
    """
    if not 1 <= n <= len(qualities):
        raise SoritesError(f"select: expected 1 to {len(qualities)} lenses, got {n}")
    left = dict(sorted(qualities.items(), key=lambda item: (item[1], item[0])))
    low, high = min(left.values()), max(left.values())
    chosen: list[str] = []
    for target in np.linspace(low, high, n) if n > 1 else [(low + high) / 2]:
        nearest = min(left, key=lambda name: (abs(left[name] - target), name))
        chosen.append(nearest)
        del left[nearest]
    return sorted(chosen, key=lambda name: (qualities[name], name))


def coefficient_space(zernike: NDArray[np.float32], field: int = 2) -> tuple[Sequence[float], float]:
    """Return the balance of a lens between defocus with spherical aberration, astigmatism and coma at one
    field.

    Colours are averaged, and the larger coefficient of each pair counts.

    Returns:
        A unit vector and its length in waves.
    """
    mean = np.abs(zernike[field].mean(0))
    pairs = np.array([max(mean[i - 1], mean[j - 1]) for i, j in ((4, 9), (5, 6), (7, 8))])
    size = float(np.linalg.norm(pairs))
    return (pairs / size if size else pairs).tolist(), size

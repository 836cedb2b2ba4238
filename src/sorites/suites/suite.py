"""Suites: evaluation recipes in TOML, validated before anything runs. Data only, no logic."""

from __future__ import annotations

import functools
import inspect
import itertools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Any, Literal, TypeVar

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from sorites import core
from sorites.core import SettingValue, Shift
from sorites.core.compositions import MOST_AXES, TIMES, camera_shift, check_parts, grid_shift
from sorites.core.errors import BadImage, SoritesError, UnknownName
from sorites.core.messages import command, option
from sorites.core.samples import Box, ImageU8
from sorites.core.specs import model_entry
from sorites.io.readers import toml_file, toml_table
from sorites.io.resizing import frame, frame_size
from sorites.io.validation import problems

# Validation context of a suite that was stored: its names are complete, and the plug-ins that they belong to
# need not be installed.
STORED = {"stored": True}


class Strict(BaseModel):
    """A part of a suite: immutable, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Frame(Strict):
    """Resize the shorter side, then crop the centre square.

    Sizes and offsets are rounded as in torchvision's Resize and CenterCrop, which the published benchmarks
    used.
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
        """Text that represents this frame in an ``image_id``; keys added later are included only if they are
        set.
        """
        return _canonical(self)

    def moved(self, boxes: Sequence[Box], height: int, width: int) -> tuple[Box, ...]:
        """Return the boxes of an image of this size in the coordinates of the frame, clipped to it.

        Boxes outside the frame are dropped. An area is scaled with the image, and by the fraction of its box
        that remains.
        """
        size = frame_size(height, width, self.resize)
        across, down = size[0] / width, size[1] / height
        left, top = (0, 0) if self.crop is None else (round((side - self.crop) / 2) for side in size)
        wide, high = size if self.crop is None else (self.crop, self.crop)
        framed = []
        for box in boxes:
            x0, x1 = (x * across - left for x in (box.xyxy[0], box.xyxy[2]))
            y0, y1 = (y * down - top for y in (box.xyxy[1], box.xyxy[3]))
            clipped = (max(x0, 0.0), max(y0, 0.0), min(x1, float(wide)), min(y1, float(high)))
            if clipped[0] < clipped[2] and clipped[1] < clipped[3]:
                share = (clipped[2] - clipped[0]) * (clipped[3] - clipped[1]) / ((x1 - x0) * (y1 - y0))
                area = None if box.area is None else box.area * across * down * share
                framed.append(replace(box, xyxy=clipped, area=area))
        return tuple(framed)

    def __call__(self, image: ImageU8) -> ImageU8:
        return frame(image, self.resize, self.crop, self.filter)


@functools.lru_cache(256)
def _canonical(frame: Frame) -> str:
    first = ("resize", "crop", "filter")
    later = frame.model_dump(mode="json", exclude=set(first), exclude_defaults=True)
    return json.dumps({**{key: getattr(frame, key) for key in first}, **later}, separators=(",", ":"))


class Dial(Strict):
    """A shift and its settings: levels by number, severities in its unit, or grid settings by params; default
    all.

    Each entry of ``settings`` selects all settings of the grid that agree with it. ``options`` are passed to
    the shift.
    """

    name: str
    levels: tuple[StrictInt, ...] = ()
    severities: tuple[float, ...] = ()
    settings: tuple[dict[str, Any], ...] = ()
    options: dict[str, Any] = Field(default_factory=dict)

    def shift(self) -> Shift:
        return core.shift(self.name, **self.options)

    def setting_values(self, shift: Shift | None = None, foresee: bool = True) -> tuple[SettingValue, ...]:
        """Return the selected settings of the shift.

        Args:
            shift: The shift to use instead of the registered one.
            foresee: Try severities above the published levels on a small image, so that a shift can reject
                them now.
        """
        shift = shift or self.shift()
        if shift.settings:
            return self._on_grid(shift)
        if self.settings:
            raise SoritesError(f"{self.name} has a severity: give levels or severities, not settings")
        if self.severities:
            wrong = [s for s in self.severities if not 0 < s < float("inf")]
            if wrong:
                unit = f" (in {shift.unit})" if shift.unit else ""
                raise SoritesError(f"{self.name}: a severity must be above 0{unit}, got {wrong[0]}")
            _try_severities(shift, [s for s in self.severities if s > shift.top] if foresee else [])
            return tuple(sorted(set(self.severities)))
        levels = self.levels or tuple(range(1, len(shift.levels) + 1))
        wrong_level = [n for n in levels if not 1 <= n <= len(shift.levels)]
        if wrong_level:
            raise SoritesError(f"{self.name} has levels 1 to {len(shift.levels)}, got {wrong_level[0]}")
        return tuple(sorted({shift.levels[n - 1] for n in levels}))

    def _on_grid(self, shift: Shift) -> tuple[SettingValue, ...]:
        if self.levels or self.severities:
            raise SoritesError(f"{self.name} is a grid of settings: it has no levels or severities")
        selections = self.settings or ({},)
        for selection in selections:
            if not any(selection.items() <= dict(s).items() for s in shift.settings):
                raise SoritesError(
                    f"{self.name} has no setting with {selection}; one it has: {dict(shift.settings[0])}"
                )
        return tuple(
            s for s in shift.settings if any(selection.items() <= dict(s).items() for selection in selections)
        )


class Grid(Strict):
    """Two or three shifts at once, at all combinations of their settings and of 0.

    Written ``"exposure_stops x defocus_disk"``, with severities ``"exposure_stops=1,3 x defocus_disk=2,4"``,
    or as a table with ``shifts``.
    """

    shifts: tuple[Dial, ...] = Field(min_length=2, max_length=MOST_AXES)

    @model_validator(mode="before")
    @classmethod
    def _parsed(cls, data: Any) -> Any:
        if isinstance(data, str):
            return {"shifts": [_axis(text) for text in re.split(r"\s+[x×]\s+", data.strip())]}
        return _with_plain_shifts(data)

    @property
    def name(self) -> str:
        """The name of the shift in the table."""
        return TIMES.join(dial.name for dial in self.shifts)

    @property
    def options(self) -> dict[str, Any]:
        """The options of the shifts, by ``SHIFT.OPTION``."""
        return _options_of_parts(self.shifts)

    def shift(self) -> Shift:
        """Return the combination as a shift."""
        parts = [dial.shift() for dial in self.shifts]
        check_parts(self.name, parts)
        return grid_shift(parts, [_severities(dial) for dial in self.shifts])

    def setting_values(self, shift: Shift | None = None, foresee: bool = True) -> tuple[SettingValue, ...]:
        """Return all settings, in the order in which they share most work."""
        return (shift or self.shift()).settings


class Composition(Strict):
    """A named camera: several shifts that one severity, the level, turns together.

    Levels 1, 2, ... are the severities of each shift, equally many, or its own levels, as many as all shifts
    have. In between they are interpolated.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    shifts: tuple[Dial, ...] = Field(min_length=2)
    levels: tuple[StrictInt, ...] = ()
    """The levels to evaluate; default all."""

    @model_validator(mode="before")
    @classmethod
    def _parsed(cls, data: Any) -> Any:
        return _with_plain_shifts(data)

    @property
    def options(self) -> dict[str, Any]:
        """The options of the shifts, by ``SHIFT.OPTION``."""
        return _options_of_parts(self.shifts)

    def shift(self) -> Shift:
        """Return the camera as a shift."""
        if self.name in core.SHIFTS:
            raise SoritesError(f"compose: {self.name} is the name of a shift; choose another")
        parts = [dial.shift() for dial in self.shifts]
        check_parts(self.name, parts)
        severities = [_severities(dial) for dial in self.shifts]
        fewest = min(map(len, severities))
        for dial, values in zip(self.shifts, severities, strict=True):
            if dial.severities and len(values) != fewest:
                raise SoritesError(
                    f"{self.name}: expected equally many severities for each shift; {dial.name} has"
                    f" {len(values)}, another {fewest}"
                )
        return camera_shift(self.name, parts, [values[:fewest] for values in severities])

    def setting_values(self, shift: Shift | None = None, foresee: bool = True) -> tuple[SettingValue, ...]:
        """Return the levels as severities."""
        return Dial(name=self.name, levels=self.levels).setting_values(shift or self.shift(), foresee)


AnyDial = Dial | Grid | Composition
Several = TypeVar("Several", Grid, Composition)


def _axis(text: str) -> dict[str, Any]:
    """Parse ``NAME`` or ``NAME=SEVERITY,SEVERITY``."""
    name, equals, values = text.strip().partition("=")
    if not equals:
        return {"name": name.strip()}
    return {"name": name.strip(), "severities": [value.strip() for value in values.split(",")]}


def _with_plain_shifts(data: Any) -> Any:
    """Return a table whose shifts may be names."""
    if isinstance(data, dict) and isinstance(data.get("shifts"), (list, tuple)):
        return {**data, "shifts": [{"name": s} if isinstance(s, str) else s for s in data["shifts"]]}
    return data


def _severities(dial: Dial) -> list[float]:
    return [float(value) for value in dial.setting_values() if isinstance(value, int | float)]


def _options_of_parts(dials: Sequence[Dial]) -> dict[str, Any]:
    return {f"{dial.name}.{key}": value for dial in dials for key, value in dial.options.items()}


def _try_severities(shift: Shift, severities: Sequence[float]) -> None:
    """Apply the shift to a 96 px image, so that severities it rejects are reported before any work is
    done.
    """
    rng = np.random.default_rng(0)
    small = rng.random((96, 96, 3), np.float32)
    for severity in severities:
        try:
            shift(small, severity, rng)
        except Exception as error:  # other errors may be due to the small image
            if isinstance(error, SoritesError) and not isinstance(error, BadImage):
                prefix = "" if str(error).startswith(shift.name) else f"{shift.name}: "
                raise SoritesError(f"{prefix}{error}") from error


class SourceEntry(Strict):
    """A further source of a suite.

    Images of a source with role ``ood`` count as OOD for every model, whatever their classes are called;
    images of a source with role ``id`` have labels of the suite. ``group`` is near or far. The frame defaults
    to that of the suite.
    """

    spec: str
    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    role: Literal["id", "ood"] = "ood"
    group: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.-]+$")
    limit: StrictInt | None = Field(default=None, gt=0)
    frame: Frame | None = None

    @model_validator(mode="before")
    @classmethod
    def _named(cls, data: Any) -> Any:
        """Name an unnamed source after the last part of its path, or after its reader."""
        if isinstance(data, dict) and isinstance(data.get("spec"), str) and not data.get("name"):
            reader, _, argument = data["spec"].partition(":")
            return {**data, "name": PurePath(argument).name or reader}
        return data


class Validation(Strict):
    """The clean images on which scorers' parameters are chosen: in-distribution and OOD images."""

    source: str | None = None
    """Source of the in-distribution images; defaults to that of the training images if a split is given."""
    split: str | None = None
    ood: str | None = None
    """Source of the OOD images.

    Without one, correctly classified validation images are in-distribution and misclassified ones are OOD,
    for each model (S1+ and S1- of ImageNet-ES).
    """
    limit: StrictInt | None = Field(default=None, gt=0)
    """Maximum number of images of each source, randomly chosen."""

    @model_validator(mode="after")
    def _apart(self) -> Validation:
        if self.source is None and self.split is None:
            raise ValueError(
                "expected a source or a split; otherwise the training images would be the validation images"
            )
        return self


class Fit(Strict):
    """Training images of scorers that need fitting: clean images of a source, in random order."""

    source: str
    split: str | None = None
    limit: StrictInt | None = Field(default=None, gt=0)
    only: Literal["correct"] | None = None
    """With "correct", skip training images and in-distribution validation images that the model misclassifies
    (S3+ of ImageNet-ES).
    """
    search: StrictBool = False
    """Choose scorers' parameters by AUROC on validation images, as OpenOOD does."""
    validation: Validation | None = None

    @field_validator("validation", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return {"source": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _both(self) -> Fit:
        if self.search and self.validation is None:
            raise ValueError(
                'search needs validation images; add to the suite: [fit.validation] source = "folder:PATH"'
            )
        if self.validation is not None and not self.search:
            raise ValueError(
                "validation images are used by a search only; add to the suite's [fit]: search = true"
            )
        return self


class Distance(Strict):
    """Settings of the distance of each image from in-distribution images."""

    encoder: str
    against: str
    """Source of the in-distribution images."""
    limit: StrictInt | None = Field(default=None, gt=0)
    """Maximum number of in-distribution images, randomly chosen."""
    decomposition: str | None = None
    """A file with a trained decomposition; by default the encoder's own texts are used."""
    k: StrictInt = Field(default=10, gt=0)
    neighbours: Literal["exact", "ivf", "hnsw"] = "exact"
    """``exact`` compares all pairs; the others are approximate faiss indexes."""
    levels: StrictInt = Field(default=8, gt=1)
    sem_edges: tuple[float, ...] = ()
    cov_edges: tuple[float, ...] = ()
    """Inner edges of the levels in cosine distance; default: equal steps from 1st to 99th percentile."""

    @field_validator("sem_edges", "cov_edges")
    @classmethod
    def _rising(cls, edges: tuple[float, ...]) -> tuple[float, ...]:
        if not all(low < high for low, high in itertools.pairwise((-math.inf, *edges, math.inf))):
            raise ValueError("expected increasing finite numbers")
        return edges


# Measures that can exclude settings.
LpipsMeasure = Literal["lpips", "lpips_linear"]


def _check_severities(
    shifts: Sequence[str], levels: Sequence[int], severities: Sequence[float], grid: Sequence[str]
) -> None:
    if severities and (len(shifts) != 1 or grid):
        raise SoritesError(
            f"{option('severities', [])} needs exactly one {option('shifts', [])}, because it is in the"
            " unit of that shift"
        )
    if severities and levels:
        raise SoritesError(f"give {option('levels', [])} or {option('severities', [])}, not both")


class Suite(Strict):
    """An evaluation recipe: sources, shifts, models and scorers."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    about: str = ""
    source: str = "stamps"
    source_name: str | None = None
    """Name of the first source in the table; default: the name of its reader."""
    sources: tuple[SourceEntry, ...] = ()
    """Further sources. If ``source`` is not set, the first of them is used as ``source``."""
    labels: str | tuple[str, ...] = "imagenet"
    frame: Frame | None = None
    frames: dict[str, Frame] = Field(default_factory=dict)
    """Frames by name of a captured shift, for sets that their authors framed differently."""
    models: tuple[str, ...] = ()
    """Specs, optionally named: ``"v2=onnx:PATH"``, or as a table ``{name = "v2", spec = "onnx:PATH"}``."""
    shifts: tuple[Dial, ...] = ()
    """Empty: the captured images of the source."""
    grid: tuple[Grid, ...] = ()
    """Two or three shifts at once: ``"exposure_stops x defocus_disk"``."""
    compose: tuple[Composition, ...] = ()
    """Named cameras: several shifts that one severity turns together."""
    scorers: tuple[str, ...] = ()
    """Names, optionally with parameters: ``"knn(k=10)"``, or as a table ``{name = "knn", k = 10}``."""
    scorers_if_fitted: tuple[str, ...] = ()
    """Scorers that are used only if the suite has training images (``fit``), else skipped."""
    fit: Fit | None = None
    reference: str | None = None
    """Model that corruption errors are relative to, or a CSV file with its errors (shift, severity, error).
    """
    refine: float | None = Field(default=None, gt=0, lt=1)
    """Bisect failure severities to this fraction of the top level."""
    lpips_below: float | None = Field(default=None, gt=0)
    """Exclude settings whose mean LPIPS against the clean images is not below this."""
    lpips_measure: LpipsMeasure = "lpips"
    """Measure for ``lpips_below``: on framed images, or as in ImageNet-ES."""
    similarity: tuple[str, ...] = ()
    """Measures of shifted images against their clean images, computed after the run: ``["ssim"]``."""
    limit: StrictInt | None = Field(default=None, gt=0)
    follow_links: StrictBool = False
    """Follow symbolic links that leave the folder of a source; links inside it are always followed."""
    unseen_by: tuple[str, ...] = ()
    """Trained models (``trained:DIR``): their training images are left out, by content, before the limit."""
    order: Literal["shards"] | None = None
    """``shards`` takes the shards of a source in hashed order and their samples in stored order, and reads no
    more than the limit needs. By default any prefix is a random sample of all samples.
    """
    device: str | None = Field(default=None, pattern=r"^(cpu|mps|cuda(:\d+)?)$")
    """Device of torch and ONNX models; default: a GPU if there is one."""
    precision: Literal["float32", "bfloat16", "float16", "int8"] | None = None
    """Number format of torch models; default float32."""
    distance: Distance | None = None
    """Settings of the distance of every image from in-distribution images, measured after the run."""
    seed: StrictInt = Field(default=0, ge=-(2**63), lt=2**63)

    @model_validator(mode="before")
    @classmethod
    def _plain_names(cls, data: Any, info: ValidationInfo) -> Any:
        if info.context is STORED:
            return data
        if isinstance(data, dict) and isinstance(data.get("shifts"), (list, tuple)):
            data = {**data, "shifts": [{"name": s} if isinstance(s, str) else s for s in data["shifts"]]}
        for key in ("scorers", "scorers_if_fitted"):
            if isinstance(data, dict) and isinstance(data.get(key), (list, tuple)):
                data = {**data, key: [_scorer_name(s) for s in data[key]]}
        if isinstance(data, dict) and isinstance(data.get("models"), (list, tuple)):
            data = {**data, "models": [model_entry(model) for model in data["models"]]}
        return _first_source(data)

    @field_validator("labels", mode="before")
    @classmethod
    def _names(cls, labels: Any) -> Any:
        if not isinstance(labels, str | list | tuple):
            raise ValueError('expected "imagenet", "coco", a text file or a list of class names')
        return labels

    @field_validator("similarity")
    @classmethod
    def _measures(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if info.context is STORED:
            return names
        return tuple(dict.fromkeys(core.measure(name).name for name in names))

    @property
    def dials(self) -> tuple[AnyDial, ...]:
        """All shifts: single ones, grids and named cameras."""
        return (*self.shifts, *self.grid, *self.compose)

    @property
    def shift_names(self) -> tuple[str, ...]:
        """The names of all single shifts, including those that are parts of grids and cameras."""
        several: list[Grid | Composition] = [*self.grid, *self.compose]
        parts = [dial.name for one in several for dial in one.shifts]
        return tuple(dict.fromkeys([*(dial.name for dial in self.shifts), *parts]))

    @property
    def model_names(self) -> tuple[str, ...]:
        """Names of the models in the table."""
        return tuple(core.named_spec(model)[0] for model in self.models)

    @model_validator(mode="after")
    def _once_each(self) -> Suite:
        sources = [
            self.source_name or core.split_spec(self.source)[0],
            *(entry.name for entry in self.sources),
        ]
        dials, scorers = [dial.name for dial in self.dials], (*self.scorers, *self.scorers_if_fitted)
        for kind, names in (
            ("model", self.model_names),
            ("shift", dials),
            ("scorer", scorers),
            ("source", sources),
        ):
            twice = {n for n in names if list(names).count(n) > 1}
            if twice:
                raise ValueError(f"{kind} {sorted(twice)[0]!r} is listed twice")
        return self

    def _selected_dials(
        self, shifts: Sequence[str], levels: Sequence[int], severities: Sequence[float], grid: Sequence[str]
    ) -> list[Dial]:
        _check_severities(shifts, levels, severities, grid)
        dials = self._named_dials(shifts) if shifts or grid else list(self.shifts)
        if levels and not (dials or grid or self.grid or self.compose):
            raise SoritesError(f"{option('levels', [])} needs a shift: name one with {option('shifts', [])}")
        if levels:
            return [Dial(name=d.name, options=d.options, levels=tuple(levels)) for d in dials]
        if severities:
            return [Dial(name=d.name, options=d.options, severities=tuple(severities)) for d in dials]
        return dials

    def _named_dials(self, shifts: Sequence[str]) -> list[Dial]:
        """Return the shifts of these names, with the suite's own settings; cameras are left out."""
        named = {dial.name: dial for dial in self.shifts}
        cameras = {camera.name for camera in self.compose}
        return [named.get(name) or Dial(name=name) for name in shifts if name not in cameras]

    def _selected_grids(
        self, shifts: Sequence[str], levels: Sequence[int], grid: Sequence[str]
    ) -> list[Grid]:
        """Return the grids: those given, whose shifts have the options that they have in the suite, or the
        suite's own if no shift is given either.
        """
        try:
            given = [Grid.model_validate(text) for text in grid]
        except ValidationError as error:
            raise SoritesError("\n".join(f"grid: {line}" for line in problems(error, Grid))) from error
        own = {dial.name: dial.options for dial in self.shifts}
        given = [
            _each(one, lambda dial: _having(dial, {**own.get(dial.name, {}), **dial.options}))
            for one in given
        ]
        chosen = given or ([] if shifts else self.grid)
        return [_with_levels(one, levels) for one in chosen]

    def _selected_cameras(
        self, shifts: Sequence[str], levels: Sequence[int], grid: Sequence[str]
    ) -> list[Composition]:
        """Return the named cameras: those among ``shifts``, or all if neither a shift nor a grid is given."""
        all_ = not shifts and not grid
        chosen = [camera for camera in self.compose if all_ or camera.name in shifts]
        return [camera.model_copy(update={"levels": tuple(levels)} if levels else {}) for camera in chosen]

    def _selected_scorers(self, added: Sequence[str], only: Sequence[str]) -> dict[str, Any]:
        """Return the scorers that change: further ones, or others instead of the suite's own."""
        if added and only:
            both = f"{option('scorers', [])} adds to the suite's scorers and {option('only_scorers', [])}"
            raise SoritesError(f"{both} replaces them: pass one of the two")
        if only:
            return {"scorers": tuple(only), "scorers_if_fitted": ()}
        if not added:
            return {}
        names = [_scorer_name(name) for name in added]
        further = [name for name in names if name not in self.scorers]
        later = [name for name in self.scorers_if_fitted if name not in names]
        return {"scorers": (*self.scorers, *further), "scorers_if_fitted": tuple(later)}

    def override(
        self,
        *,
        shifts: Sequence[str] = (),
        levels: Sequence[int] = (),
        severities: Sequence[float] = (),
        grid: Sequence[str] = (),
        scorers: Sequence[str] = (),
        only_scorers: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
        **plain: Any,
    ) -> Suite:
        """Return a copy with some parts replaced; None and empty values keep the suite's own.

        If the source changes, the suite's limit no longer applies.

        Args:
            shifts: Names of shifts to use instead.
            levels: Levels of every shift.
            severities: Severities of the only shift.
            grid: Grids of two or three shifts to use instead: ``"exposure_stops x defocus_disk"``. Without
                ``shifts``, nothing else is applied.
            scorers: Scorers to compute besides those of the suite.
            only_scorers: Scorers to compute instead of those of the suite, including ``scorers_if_fitted``.
            options: Options for every shift of the suite that has one of that name, alone, in grids and in
                named cameras.
            plain: Other fields of the suite.

        Raises:
            SoritesError: The arguments contradict each other, or the result is invalid.
        """
        dials = self._selected_dials(shifts, levels, severities, grid)
        grids = self._selected_grids(shifts, levels, grid)
        cameras = self._selected_cameras(shifts, levels, grid)
        wanted = {key: value for key, value in (options or {}).items() if value is not None}
        several: list[Grid | Composition] = [*grids, *cameras]
        _check_options([*dials, *(dial for one in several for dial in one.shifts)], wanted)
        dials = [_having(dial, wanted) for dial in dials]
        grids = [_each(one, lambda dial: _having(dial, wanted)) for one in grids]
        cameras = [_each(one, lambda dial: _having(dial, wanted)) for one in cameras]
        changed = {key: value for key, value in plain.items() if value is not None and value != ()}
        changed |= self._selected_scorers(scorers, only_scorers)
        base = self.model_dump()
        if changed.get("source", self.source) != self.source:
            base["limit"] = None
        parts: dict[str, Sequence[Strict]] = {"shifts": dials, "grid": grids, "compose": cameras}
        changed |= {key: [one.model_dump() for one in listed] for key, listed in parts.items()}
        return parse({**base, **changed}, self.name)


def _with_levels(grid: Grid, levels: Sequence[int]) -> Grid:
    """Return a grid with these levels for the shifts without severities of their own."""
    if not levels:
        return grid
    dials = [
        dial if dial.severities else Dial(name=dial.name, options=dial.options, levels=tuple(levels))
        for dial in grid.shifts
    ]
    return Grid(shifts=tuple(dials))


def _first_source(data: Any) -> Any:
    """Use the first of ``sources`` as the suite's ``source`` if there is none."""
    if (
        not isinstance(data, dict)
        or "source" in data
        or not isinstance(data.get("sources"), (list, tuple))
        or not data["sources"]
    ):
        return data
    first, *others = data["sources"]
    if not isinstance(first, Mapping) or first.get("role", "id") != "id" or first.get("group"):
        raise ValueError(
            "the first source must be in-distribution: it needs a spec, and must have no group and no role"
            ' other than "id"'
        )
    own = {"source": first.get("spec"), "source_name": first.get("name")}
    own |= {key: first[key] for key in ("limit", "frame") if first.get(key) is not None}
    return {**data, **own, "sources": others}


def _scorer_name(entry: Any) -> Any:
    """Return the name of a scorer in the table."""
    if isinstance(entry, str):
        return core.scorer_name(entry) if "(" in entry else entry
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        raise ValueError(
            f'a scorer is a name or a table with one, such as {{name = "knn", k = 10}}, got {entry!r}'
        )
    return core.scorer_name(entry["name"], {key: value for key, value in entry.items() if key != "name"})


def _check_options(dials: Sequence[Dial], options: Mapping[str, Any]) -> None:
    """Raise an error for an option that none of the shifts has."""
    known = {dial.name: _options_of(dial) for dial in dials}
    unknown = options.keys() - {key for keys in known.values() for key in keys}
    if unknown:
        available = (
            "; ".join(f"{name} has {', '.join(keys) or 'none'}" for name, keys in known.items())
            or "it names no shift"
        )
        raise SoritesError(f"no shift of the suite has an option {min(unknown)!r}: {available}")


def _having(dial: Dial, options: Mapping[str, Any]) -> Dial:
    """Return a shift with those of the options that it has."""
    accepted = {key: value for key, value in options.items() if key in _options_of(dial)}
    return dial.model_copy(update={"options": {**dial.options, **accepted}})


def _each(several: Several, changed: Callable[[Dial], Dial]) -> Several:
    """Return a grid or a named camera with each of its shifts changed."""
    return several.model_copy(update={"shifts": tuple(map(changed, several.shifts))})


def _options_of(dial: Dial) -> list[str]:
    """Return the option names of a shift; captured shifts and dials of samples have none."""
    configure = core.SHIFTS.get(dial.name).configure if dial.name in core.SHIFTS else None
    return [] if configure is None else list(inspect.signature(configure).parameters)


def builtin_suites() -> list[str]:
    """Return the names of the built-in suites."""
    return sorted(
        p.name.removesuffix(".toml")
        for p in files("sorites").joinpath("suites").iterdir()
        if p.name.endswith(".toml")
    )


def load(spec: str | Path | Suite) -> Suite:
    """Load a built-in suite by name, or a TOML file by path.

    Raises:
        UnknownName: There is no such built-in suite.
        SoritesError: The file cannot be read or is invalid.
    """
    if isinstance(spec, Suite):
        return spec
    text = str(spec)
    if text in builtin_suites():
        content = toml_table(files("sorites").joinpath("suites", f"{text}.toml").read_text(encoding="utf-8"))
        return parse({"name": text, **content}, text)
    path = Path(text)
    if path.suffix != ".toml":
        raise UnknownName(
            "suite",
            text,
            builtin_suites(),
            f"See {command('list', 'suites')}, or give a path that ends in .toml.",
        )
    return parse({"name": path.stem, **toml_file(path, "a suite in TOML")}, str(path))


def parse(data: dict[str, Any], where: str) -> Suite:
    """Validate data as a suite; ``where`` names it in messages.

    Raises:
        SoritesError: The data is invalid; one line per problem.
    """
    try:
        return Suite.model_validate(data)
    except ValidationError as error:
        raise SoritesError("\n".join(f"suite {where}: {line}" for line in problems(error, Suite))) from error

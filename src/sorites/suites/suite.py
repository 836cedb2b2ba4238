"""A suite: a named recipe in TOML, read and checked before anything runs. Data only, no logic."""

from __future__ import annotations

import inspect
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Any, Literal

import numpy as np
from PIL import Image as Pillow
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    ValidationError,
    field_validator,
    model_validator,
)

from sorites import core
from sorites.core import SettingValue, Shift
from sorites.core.errors import BadImage, SoritesError, UnknownName
from sorites.core.samples import Box, ImageU8
from sorites.core.specs import model_entry
from sorites.io.readers import toml_file, toml_table
from sorites.io.validation import mistakes

# Parts of a suite: the frame laid on every image before the shift, the stops of a shift, further
# sources, where scorers get training and validation images, and how distances are measured.


# The most pixels that a resized image may have: 800 MB of them.
MOST = 1 << 28


class Strict(BaseModel):
    """A part of a suite: immutable, and a key that it does not have is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Frame(Strict):
    """Resize the shorter side, then crop the centre square.

    Sizes and offsets are rounded as torchvision's Resize and CenterCrop round them, which the
    published benchmarks used.
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
        """The text by which an ``image_id`` knows this frame; a key added later enters it only
        where it is set.
        """
        first = ("resize", "crop", "filter")
        later = self.model_dump(mode="json", exclude=set(first), exclude_defaults=True)
        return json.dumps({**{key: getattr(self, key) for key in first}, **later}, separators=(",", ":"))

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        """Return the width and the height of an image after the resize."""
        short = min(height, width)
        return self.resize * width // short, self.resize * height // short

    def moved(self, boxes: Sequence[Box], height: int, width: int) -> tuple[Box, ...]:
        """Return the boxes of an image of this size where the frame puts them, cut at its edges;
        one outside of it is left out.

        An area shrinks with the image, and by the share of its box that the crop keeps.
        """
        size = self._resized(height, width)
        across, down = size[0] / width, size[1] / height
        left, top = (0, 0) if self.crop is None else (round((side - self.crop) / 2) for side in size)
        wide, high = size if self.crop is None else (self.crop, self.crop)
        found = []
        for box in boxes:
            x0, x1 = (x * across - left for x in (box.xyxy[0], box.xyxy[2]))
            y0, y1 = (y * down - top for y in (box.xyxy[1], box.xyxy[3]))
            kept = (max(x0, 0.0), max(y0, 0.0), min(x1, float(wide)), min(y1, float(high)))
            if kept[0] < kept[2] and kept[1] < kept[3]:
                share = (kept[2] - kept[0]) * (kept[3] - kept[1]) / ((x1 - x0) * (y1 - y0))
                area = None if box.area is None else box.area * across * down * share
                found.append(replace(box, xyxy=kept, area=area))
        return tuple(found)

    def __call__(self, image: ImageU8) -> ImageU8:
        height, width = image.shape[:2]
        size = self._resized(height, width)
        if size[0] * size[1] > MOST:
            raise BadImage(
                f"an image of {width} x {height} px is too long and thin for a frame of {self.resize}"
            )
        if size != (width, height):
            resample = Pillow.Resampling[self.filter.upper()]
            image = np.asarray(Pillow.fromarray(image).resize(size, resample))
        if self.crop is None:
            return image
        left, top = (round((side - self.crop) / 2) for side in size)
        return np.ascontiguousarray(image[top : top + self.crop, left : left + self.crop])


class Dial(Strict):
    """A shift and the stops to visit: published levels by number, severities in its unit, or
    settings of its grid by their params (each names the settings that agree with it); default all.
    ``options`` are the shift's own.
    """

    name: str
    levels: tuple[StrictInt, ...] = ()
    severities: tuple[float, ...] = ()
    settings: tuple[dict[str, Any], ...] = ()
    options: dict[str, Any] = Field(default_factory=dict)

    def shift(self) -> Shift:
        return core.shift(self.name, **self.options)

    def setting_values(self, shift: Shift | None = None, foresee: bool = True) -> tuple[SettingValue, ...]:
        """Return the settings on the shift of this name, or on ``shift``; with ``foresee``, a severity
        above its levels is tried.
        """
        shift = shift or self.shift()
        if shift.settings:
            return self._on_grid(shift)
        if self.settings:
            raise SoritesError(f"{self.name} is a dial: give levels or severities, not settings")
        if self.severities:
            wrong = [s for s in self.severities if not 0 < s < float("inf")]
            if wrong:
                unit = f" (in {shift.unit})" if shift.unit else ""
                raise SoritesError(f"{self.name}: a severity is a number above 0{unit}, got {wrong[0]}")
            _tried(shift, [s for s in self.severities if s > shift.top] if foresee else [])
            return tuple(sorted(set(self.severities)))
        levels = self.levels or tuple(range(1, len(shift.levels) + 1))
        wrong_level = [n for n in levels if not 1 <= n <= len(shift.levels)]
        if wrong_level:
            raise SoritesError(f"{self.name} has levels 1 to {len(shift.levels)}, got {wrong_level[0]}")
        return tuple(sorted({shift.levels[n - 1] for n in levels}))

    def _on_grid(self, shift: Shift) -> tuple[SettingValue, ...]:
        if self.levels or self.severities:
            raise SoritesError(f"{self.name} is a grid of settings: it has no levels or severities")
        wanted = self.settings or ({},)
        for part in wanted:
            if not any(part.items() <= dict(s).items() for s in shift.settings):
                raise SoritesError(
                    f"{self.name} has no setting with {part}; one it has: {dict(shift.settings[0])}"
                )
        return tuple(s for s in shift.settings if any(part.items() <= dict(s).items() for part in wanted))


def _tried(shift: Shift, severities: Sequence[float]) -> None:
    """A severity above the published levels that the shift refuses is refused here, on an image of
    96 px, before any work.
    """
    rng = np.random.default_rng(0)
    small = rng.random((96, 96, 3), np.float32)
    for severity in severities:
        try:
            shift(small, severity, rng)
        except Exception as error:  # any other belongs to that small image
            if isinstance(error, SoritesError) and not isinstance(error, BadImage):
                named = "" if str(error).startswith(shift.name) else f"{shift.name}: "
                raise SoritesError(f"{named}{error}") from error


class SourceEntry(Strict):
    """A source beside the first one of a suite, with the part that its images play.

    Images of a ``OOD`` source count as unknown to every model, whatever their classes are
    called; those of a ``in-distribution`` one have labels of the suite. ``group`` says near or far.
    Without a frame of its own the suite's is laid on its images.
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
        """Name a source without a name by the last part of its path, or by its reader."""
        if isinstance(data, dict) and isinstance(data.get("spec"), str) and not data.get("name"):
            reader, _, argument = data["spec"].partition(":")
            return {**data, "name": PurePath(argument).name or reader}
        return data


class Validation(Strict):
    """The clean images that scorers' parameters are chosen on: in-distribution ones against OOD ones."""

    source: str | None = None
    """The source of the in-distribution images; that of the training images where only a split is named."""
    split: str | None = None
    ood: str | None = None
    """The source of the OOD images.

    Without one, the validation images that a model has right are in-distribution to it and those that it
    has wrong are OOD (S1+ and S1- of ImageNet-ES).
    """
    limit: StrictInt | None = Field(default=None, gt=0)
    """Images taken of each source, in a fair order."""

    @model_validator(mode="after")
    def _apart(self) -> Validation:
        if self.source is None and self.split is None:
            raise ValueError(
                "wanted a source or a split, or the training images themselves would be the in-distribution ones"
            )
        return self


class Fit(Strict):
    """The training images of scorers that remember some: the clean images of a source, in a
    fair order.
    """

    source: str
    split: str | None = None
    limit: StrictInt | None = Field(default=None, gt=0)
    only: Literal["right"] | None = None
    """With "right", images that a model has wrong are not in-distribution to it: it trains no scorer on
    them (S3+ of ImageNet-ES), and they are not among the in-distribution validation images.
    """
    search: StrictBool = False
    """Choose scorers' parameters by the AUROC on validation images, as OpenOOD does; else they
    keep their defaults.
    """
    validation: Validation | None = None

    @field_validator("validation", mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        return {"source": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _both(self) -> Fit:
        if self.search and self.validation is None:
            raise ValueError(
                'search wants validation images: add to the suite: [fit.validation] source = "folder:PATH"'
            )
        if self.validation is not None and not self.search:
            raise ValueError("validation images are for a search: add to the suite's [fit]: search = true")
        return self


class Distance(Strict):
    """The recipe for the distance of each image: by which encoder, from which in-distribution images,
    and in which levels.
    """

    encoder: str
    against: str
    """The source of the in-distribution images."""
    limit: StrictInt | None = Field(default=None, gt=0)
    """In-distribution images taken, in a fair order."""
    decomposition: str | None = None
    """A file made by "sorites decompose train"; without one the encoder's own texts are used."""
    k: StrictInt = Field(default=10, gt=0)
    neighbours: Literal["exact", "ivf", "hnsw"] = "exact"
    """``exact`` compares all pairs; the others are indexes of faiss, which find most of the nearest."""
    levels: StrictInt = Field(default=8, gt=1)
    sem_edges: tuple[float, ...] = ()
    cov_edges: tuple[float, ...] = ()
    """Inner edges of the levels in cosine distance; without them, equal steps between the 1st and
    99th percentile.
    """

    @field_validator("sem_edges", "cov_edges")
    @classmethod
    def _rising(cls, edges: tuple[float, ...]) -> tuple[float, ...]:
        if not all(low < high for low, high in itertools.pairwise((-math.inf, *edges, math.inf))):
            raise ValueError("wanted finite numbers that rise")
        return edges


# The measures by which settings can be set aside.
LpipsMeasure = Literal["lpips", "lpips_linear"]


class Suite(Strict):
    """A recipe: which images are moved by which shifts, shown to which models, and scored by
    which scorers.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    about: str = ""
    source: str = "stamps"
    source_name: str | None = None
    """The name of the first source in the table; without one, that of its reader."""
    sources: tuple[SourceEntry, ...] = ()
    """Further sources. Where a suite names all of its sources here, the first of them is taken as
    ``source``.
    """
    labels: str | tuple[str, ...] = "imagenet"
    frame: Frame | None = None
    frames: dict[str, Frame] = Field(default_factory=dict)
    """Frames by the name of a captured shift, for sets that their authors framed in another way."""
    models: tuple[str, ...] = ()
    """Specs, with the name of each in the table before it where it has one: ``"v2=onnx:PATH"``; a table
    ``{name = "v2", spec = "onnx:PATH"}`` is turned into that."""
    shifts: tuple[Dial, ...] = ()
    """Empty: whatever the source holds, as captured."""
    scorers: tuple[str, ...] = ()
    """Names, with the parameters that are not the default: ``"knn"``, ``"knn(k=10)"``; a table
    ``{name = "knn", k = 10}`` is turned into that.
    """
    scorers_if_fitted: tuple[str, ...] = ()
    """Scorers that join where the suite has training images (``fit``), and are left out with a
    note where it has none.
    """
    fit: Fit | None = None
    reference: str | None = None
    """The model that corruption errors are relative to, or a CSV file with the errors of one
    (shift, severity, error).
    """
    refine: float | None = Field(default=None, gt=0, lt=1)
    """Bisect failure severities to this fraction of the top level."""
    lpips_below: float | None = Field(default=None, gt=0)
    """Set aside the settings whose mean LPIPS against the clean images is not below this."""
    lpips_measure: LpipsMeasure = "lpips"
    """The measure that ``lpips_below`` goes by: on framed images, or as ImageNet-ES took it."""
    similarity: tuple[str, ...] = ()
    """Measures of every shifted image against its clean one, taken when the run is done: ``["ssim"]``."""
    limit: StrictInt | None = Field(default=None, gt=0)
    order: Literal["shards"] | None = None
    """``shards`` takes the shards of a source in the order of a hash and their samples as they lie,
    and reads no more of them than the limit needs; without it any prefix is a fair sample of all
    samples.
    """
    device: str | None = Field(default=None, pattern=r"^(cpu|mps|cuda(:\d+)?)$")
    """The device on which torch and ONNX models compute; the default is a GPU where there is one."""
    precision: Literal["float32", "bfloat16", "float16", "int8"] | None = None
    """The numbers that torch models compute with; without it float32."""
    distance: Distance | None = None
    """The recipe for the distance of every image from in-distribution ones, with levels, measured when
    the run is done.
    """
    seed: StrictInt = Field(default=0, ge=-(2**63), lt=2**63)

    @model_validator(mode="before")
    @classmethod
    def _plain_names(cls, data: Any) -> Any:
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
            raise ValueError('wanted "imagenet", "coco", a text file or a list of class names')
        return labels

    @field_validator("similarity")
    @classmethod
    def _measures(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(core.measure(name).name for name in names))

    @property
    def model_names(self) -> tuple[str, ...]:
        """The names of the models in the table."""
        return tuple(core.named_spec(model)[0] for model in self.models)

    @model_validator(mode="after")
    def _once_each(self) -> Suite:
        sources = [
            self.source_name or core.split_spec(self.source)[0],
            *(entry.name for entry in self.sources),
        ]
        dials, scorers = [dial.name for dial in self.shifts], (*self.scorers, *self.scorers_if_fitted)
        for kind, names in (
            ("model", self.model_names),
            ("shift", dials),
            ("scorer", scorers),
            ("source", sources),
        ):
            twice = {n for n in names if list(names).count(n) > 1}
            if twice:
                raise ValueError(f"{kind} {sorted(twice)[0]!r} stands twice")
        return self

    def override(
        self,
        *,
        shifts: Sequence[str] = (),
        levels: Sequence[int] = (),
        severities: Sequence[float] = (),
        options: Mapping[str, Any] | None = None,
        **plain: Any,
    ) -> Suite:
        """A copy with what the command line says instead; None and empty mean: as the suite has it.

        ``options`` go to every shift of the suite that has an option of that name. Scorers take the
        place of all that the suite names, fitted ones included. The suite's limit goes with its own
        source: another source is taken whole, unless a limit is given.
        """
        if severities and len(shifts) != 1:
            raise SoritesError("--severity needs exactly one --shift, because it is in that shift's own unit")
        if severities and levels:
            raise SoritesError("give --level or --severity, not both")
        named = {dial.name: dial for dial in self.shifts}
        dials = [named.get(name) or Dial(name=name) for name in shifts] or list(self.shifts)
        if not dials and levels:
            raise SoritesError("--level needs a shift: name one with --shift")
        settings = (
            {"levels": tuple(levels)} if levels else {"severities": tuple(severities)} if severities else {}
        )
        if settings:
            dials = [Dial(name=d.name, options=d.options, **settings) for d in dials]
        dials = _with_options(
            dials, {key: value for key, value in (options or {}).items() if value is not None}
        )
        changed = {key: value for key, value in plain.items() if value is not None and value != ()}
        if "scorers" in changed:
            changed["scorers_if_fitted"] = ()
        base = self.model_dump()
        if changed.get("source", self.source) != self.source:
            base["limit"] = None
        return parse({**base, **changed, "shifts": [d.model_dump() for d in dials]}, self.name)


def _first_source(data: Any) -> Any:
    """Take the first of several sources as the suite's own, where the suite names no other."""
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
            "the first of the sources is the in-distribution one: it has a spec, no group, and no role but"
            ' "in-distribution"'
        )
    own = {"source": first.get("spec"), "source_name": first.get("name")}
    own |= {key: first[key] for key in ("limit", "frame") if first.get(key) is not None}
    return {**data, **own, "sources": others}


def _scorer_name(given: Any) -> Any:
    """A scorer with parameters as the table calls it; a plain name stays as it is."""
    if isinstance(given, str):
        return core.scorer_name(given) if "(" in given else given
    if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
        raise ValueError(
            f'a scorer is a name or a table with one, such as {{name = "knn", k = 10}}, got {given!r}'
        )
    return core.scorer_name(given["name"], {key: value for key, value in given.items() if key != "name"})


def _with_options(dials: Sequence[Dial], options: Mapping[str, Any]) -> list[Dial]:
    made, used = [], set[str]()
    for dial in dials:
        own = {k: v for k, v in options.items() if k in _options_of(dial)}
        used |= own.keys()
        made.append(dial.model_copy(update={"options": {**dial.options, **own}}))
    if options.keys() - used:
        key = min(options.keys() - used)
        have = (
            "; ".join(f"{dial.name} has {', '.join(_options_of(dial)) or 'none'}" for dial in dials)
            or "it names no shift"
        )
        raise SoritesError(f"no shift of the suite has an option {key!r}: {have}")
    return made


def _options_of(dial: Dial) -> list[str]:
    """List the options of a shift; one that only the samples of a source know, captured or as a
    dial of theirs, has none.
    """
    makes = core.SHIFTS.get(dial.name).configure if dial.name in core.SHIFTS.names() else None
    return [] if makes is None else list(inspect.signature(makes).parameters)


def builtin_suites() -> list[str]:
    return sorted(
        p.name.removesuffix(".toml")
        for p in files("sorites").joinpath("suites").iterdir()
        if p.name.endswith(".toml")
    )


def load(spec: str | Path | Suite) -> Suite:
    """A built-in suite by name, or a TOML file by path."""
    if isinstance(spec, Suite):
        return spec
    text = str(spec)
    if text in builtin_suites():
        held = toml_table(files("sorites").joinpath("suites", f"{text}.toml").read_text(encoding="utf-8"))
        return parse({"name": text, **held}, text)
    path = Path(text)
    if path.suffix != ".toml":
        raise UnknownName(
            "suite", text, builtin_suites(), 'See "sorites list suites", or give a path that ends in .toml.'
        )
    return parse({"name": path.stem, **toml_file(path, "a suite in TOML")}, str(path))


def parse(data: dict[str, Any], where: str) -> Suite:
    """Checked data to a suite; each mistake on a line of its own."""
    try:
        return Suite.model_validate(data)
    except ValidationError as error:
        raise SoritesError("\n".join(f"suite {where}: {line}" for line in mistakes(error, Suite))) from error

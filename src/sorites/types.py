"""The nouns.

source -> shift -> model -> scorer -> one table -> metric -> report
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from sorites.errors import BadPicture

if TYPE_CHECKING:
    import polars as pl

Image = NDArray[np.float32]
"""H x W x 3, sRGB, 0..1: what a shift moves."""

Picture = NDArray[np.uint8]
"""H x W x 3, sRGB, 8 bits: what a file would hold, and therefore what a model sees."""

CLEAN = "clean"
"""The name of the shift that does nothing: one row a sample and model, joined into every trajectory."""


def to_image(picture: Picture) -> Image:
    return picture.astype(np.float32) * np.float32(1 / 255)


def to_picture(image: Image) -> Picture:
    """Round to 8 bits, once: pictures on the fly and pictures from a lossless file are then the same."""
    scaled = image * np.float32(255) + np.float32(0.5)
    np.clip(scaled, 0, 255, out=scaled)
    return scaled.astype(np.uint8)


@dataclass(frozen=True)
class Setting:
    """Where the dials stand: a severity on a line, or named params where there is no line."""

    severity: float | None = 0.0
    params: Mapping[str, Any] = field(default_factory=dict)
    level: int | None = None

    @property
    def canonical(self) -> str:
        return json.dumps({"severity": self.severity, **self.params}, sort_keys=True)


@dataclass(frozen=True)
class Attr:
    """Something true of the thing photographed or its surroundings; ``common`` says if it is usual for its class."""

    key: str
    value: str
    common: bool | None = None


@dataclass(frozen=True)
class Box:
    """x0, y0, x1, y1 in pixels of the picture, a label, and for predictions a confidence."""

    xyxy: tuple[float, float, float, float]
    label: int
    conf: float | None = None


@dataclass(frozen=True)
class Sample:
    """The thing photographed. ``load`` decodes it: upright, RGB. Captured shifts fill the last four fields."""

    id: str
    load: Callable[[], Picture]
    label: int | None = None
    accept: frozenset[int] = frozenset()
    """Labels that count as right; empty means only ``label``."""
    truth: tuple[Box, ...] | None = None
    attrs: tuple[Attr, ...] = ()
    split: str = ""
    alpha: Callable[[], NDArray[np.uint8]] | None = None
    """The cut-out's mask, H x W, where the source has one."""
    shift: str = CLEAN
    setting: Setting = Setting()
    framed: bool = False
    image_id: str | None = None

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


Stop = float | Mapping[str, Any]
"""Where a shift is asked to go: a severity on its dial, or the params of one setting of its grid."""

ShiftResult = Image | tuple[Image, Mapping[str, Any]]
"""What a shift gives for one stop: an image, or an image together with the params that the shift itself chose for it (an
automatic exposure, a drawn direction). Chosen params are recorded with the setting's params; they are no part of the request."""

Apply = Callable[[Image, Any, np.random.Generator], ShiftResult]
Sweep = Callable[[Image, Sequence[Any], np.random.Generator], Iterable[ShiftResult]]
AnySweep = TypeVar("AnySweep", bound=Sweep)


@dataclass(eq=False)
class Shift:
    """What moves pictures: a dial, whose severity is a float in ``unit`` with 0 = untouched and ``levels`` the published
    stops 1, 2, ...; or a grid of named ``settings``, which has no line."""

    name: str
    apply: Apply
    family: str
    unit: str
    levels: tuple[float, ...] = ()
    settings: tuple[Mapping[str, Any], ...] = ()
    version: int | str = 1
    about: str = ""
    configure: Callable[..., Shift] | None = None
    """Makes the same shift with other options, where it has any."""
    options: Mapping[str, Any] = field(default_factory=dict)
    _sweep: Sweep | None = None

    @property
    def top(self) -> float:
        return max(self.levels)

    def setting(self, stop: Stop) -> Setting:
        if isinstance(stop, Mapping):
            return Setting(None, stop)
        return Setting(stop, level=self.levels.index(stop) + 1 if stop in self.levels else None)

    def __call__(self, image: Image, stop: Stop, rng: np.random.Generator) -> Image:
        return next(self.sweep(image, [stop], rng))

    def chosen_params(self, image: Image, stop: Stop, rng: np.random.Generator) -> Mapping[str, Any]:
        """Return the params that the shift itself chooses for this image and stop; empty for most shifts and at severity 0."""
        return next(self.sweep_with_chosen_params(image, [stop], rng))[1]

    def sweep(self, image: Image, stops: Sequence[Stop], rng: np.random.Generator) -> Iterator[Image]:
        """Yield one image per stop. All stops see the same random draw, so their order and number do not matter."""
        return (moved for moved, _ in self.sweep_with_chosen_params(image, stops, rng))

    def sweep_with_chosen_params(
        self, image: Image, stops: Sequence[Stop], rng: np.random.Generator
    ) -> Iterator[tuple[Image, Mapping[str, Any]]]:
        """Yield what ``sweep`` does, each image with the params that the shift itself chose for it."""
        moved = [s for s in stops if s != 0]
        if self._sweep is not None:
            results = iter(self._sweep(image, moved, copy.deepcopy(rng)))
        else:
            results = (self.apply(image, s, copy.deepcopy(rng)) for s in moved)
        for stop in stops:
            result = image.copy() if stop == 0 else next(results)
            yield result if isinstance(result, tuple) else (result, {})

    def sweeper(self, together: AnySweep) -> AnySweep:
        """Register, as a decorator, a faster way to make many stops of one image; it must equal making them one at a time.

        Per stop it yields an image, or an image and the params it chose for that image.
        """
        self._sweep = together
        return together


@dataclass
class Outputs:
    """What one pass of a model gives for N pictures."""

    logits: NDArray[np.float32] | None = None
    features: NDArray[np.float32] | None = None
    boxes: list[tuple[Box, ...]] | None = None
    inside: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    """What scorers that look inside the model saw there, by the scorer's name: N rows each."""
    ids: Sequence[str] | None = None
    """Of the samples, where a scorer is fitted: which of them it remembers follows from these and not from their order."""

    def __len__(self) -> int:
        filled = next((x for x in (self.logits, self.features, self.boxes, *self.inside.values()) if x is not None), ())
        return len(filled)

    def __getitem__(self, rows: slice | NDArray[np.integer[Any]]) -> Outputs:
        """The outputs of some of the pictures."""
        places = np.arange(len(self))[rows]

        def listed(things: Sequence[Any] | None) -> Any:
            return None if things is None else [things[i] for i in places]

        def part(array: NDArray[np.float32] | None) -> NDArray[np.float32] | None:
            return None if array is None else array[rows]

        inside = {key: array[rows] for key, array in self.inside.items()}
        return Outputs(part(self.logits), part(self.features), listed(self.boxes), inside, listed(self.ids))

    @staticmethod
    def join(parts: Sequence[Outputs]) -> Outputs:
        """The pictures of several outputs, one after the other."""

        def joined(arrays: list[Any]) -> Any:
            return None if not arrays or arrays[0] is None else np.concatenate(arrays)

        boxes = [box for part in parts for box in part.boxes or ()] if parts and parts[0].boxes is not None else None
        inside = {key: joined([part.inside[key] for part in parts]) for key in (parts[0].inside if parts else ())}
        return Outputs(joined([part.logits for part in parts]), joined([part.features for part in parts]), boxes, inside)


@dataclass(eq=False)
class Model:
    """Pictures in, outputs out. It owns resize, crop, normalise and device.

    ``prepare(picture, framed)`` brings one picture to the model's input (a framed one is only scaled,
    never cropped); ``forward`` takes a list of those.
    """

    name: str
    forward: Callable[[list[NDArray[Any]]], Outputs]
    prepare: Callable[[Picture, bool], NDArray[Any]] = lambda picture, framed: picture
    labels: tuple[str, ...] | None = None
    """Class ids in the order of the logits; None means the suite's own label space."""
    head: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None
    """Weights C x D and bias C of the last linear layer."""
    version: str = ""
    """Identifies the weights; a run refuses to continue with others."""
    parameters: int | None = None
    """How many weights it has, where that is known."""
    module: Any = None
    """The torch module behind it, for scorers that look inside: N x H x W x 3 in 0..255 to (logits, ...)."""
    former_version: Callable[[], str] | None = None
    """Returns the version by which releases up to 0.2 knew the same weights: their run folders can still be continued."""

    def __call__(self, pictures: Sequence[Picture], framed: bool = False) -> Outputs:
        return self.forward([self.prepare(picture, framed) for picture in pictures])


@dataclass(frozen=True, eq=False)
class Measure:
    """A measure of how far a picture moved: two 8-bit pictures of one size, the clean reference first, to one number.

    ``nearer`` is the direction. With "higher", a larger value means that the moved picture is nearer to the reference; with
    "lower", a value of smaller size does, its sign aside: equal pictures have 0.
    """

    name: str
    function: Callable[[Picture, Picture], float]
    nearer: Literal["lower", "higher"]
    unit: str = ""
    about: str = ""
    version: int | str = 1

    def __call__(self, reference: Picture, moved: Picture) -> float:
        """Return the value for a pair of pictures; one that the measure cannot take is refused with ``BadPicture``."""
        if reference.shape != moved.shape or reference.dtype != np.uint8 or moved.dtype != np.uint8:
            raise BadPicture(
                f"wanted two 8-bit pictures of one size, got {reference.dtype} {reference.shape} and {moved.dtype} {moved.shape}"
            )
        return self.function(reference, moved)


Features = NDArray[np.float32]
"""N x D, one row per picture or text."""


@dataclass(frozen=True)
class Examples:
    """Pictures that a referee was not taught on: features, and for each the place of its class and of its style in the referee's
    ``labels`` and ``styles`` (-1 where the style is not known)."""

    features: Features
    label: NDArray[np.int64]
    style: NDArray[np.int64]


@dataclass(eq=False)
class Referee:
    """An image-text model that judges pictures (IS-OOD, appendix A): it has seen far more than the models under test.

    ``images(pictures, framed)`` and ``texts(sentences)`` return N x D features of one space, compared by cosine. A framed
    picture is only scaled, never cropped. ``version`` identifies the weights: distances by other weights do not compare. A
    referee made for certain texts names them in ``labels`` and ``styles`` (groups of templates), and ``examples(part, limit)``
    returns pictures of a ``"validation"`` or ``"test"`` part that it was not taught on.
    """

    name: str
    images: Callable[[Sequence[Picture], bool], Features]
    texts: Callable[[Sequence[str]], Features]
    version: str = ""
    labels: tuple[str, ...] = ()
    styles: tuple[tuple[str, ...], ...] = ()
    examples: Callable[[str, int | None], Examples] | None = None


Head = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Weights C x D and bias C of a model's last linear layer."""

Batches = Iterable[tuple[Outputs, Sequence[int | None] | NDArray[Any] | None]]
"""Outputs of training pictures with their labels, which are columns of the logits; None or a negative number is no label."""


class Scorer:
    """Outputs to strangeness: N floats, higher = stranger. A subclass defines ``__call__`` and overrides what it needs.

    A class that overrides ``fit`` and does not say what it needs is taken to need training pictures.
    """

    name: str = ""
    """What the table calls it; ``core.scorer`` sets it, with the parameters that are not the default."""
    version: ClassVar[int | str] = 1
    """Part of a run's id: raise it when the numbers change."""
    needs: ClassVar[frozenset[str]] = frozenset()
    """What it cannot do without beyond logits: some of training, features, head, gradient, maps, layers."""
    fitted: dict[str, int]
    """How many pictures it was fitted on and how many of them it remembers, once it is fitted."""

    def __init_subclass__(cls) -> None:
        cls.name = cls.__name__
        if "fit" in vars(cls) and cls.needs is Scorer.needs:
            cls.needs = frozenset({"training"})

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        """Learn from training pictures and the model's head. Every model gets a scorer of its own; called once, before use."""
        return self

    def enough(self, count: int) -> Any:
        """Raise an error if ``count`` training pictures are too few; asked before any of them is decoded."""

    def look(self, model: Model, pictures: Sequence[Picture], framed: bool = False) -> NDArray[np.float32] | None:
        """Return N rows from inside the model's torch module; they come back as ``outputs.inside[self.name]``."""
        return None

    def __call__(self, outputs: Outputs) -> NDArray[np.float32]:
        raise TypeError(f"the scorer {self.name} defines no __call__(outputs)")

    @property
    def looks(self) -> bool:
        """Whether it looks inside the model."""
        return type(self).look is not Scorer.look


Metric = Callable[..., "pl.DataFrame"]
"""A pure, lazy question of the table: (table, by) to a frame of by + value + n (+ low, high)."""

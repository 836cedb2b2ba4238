"""A shift: what moves images along a dial, or to the settings of a grid."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import BadImage
from sorites.core.samples import Box, ImageF32, ImageU8, Setting

if TYPE_CHECKING:
    import polars as pl

# A place that a shift is asked to go to: a severity on its dial, or the params of one setting of
# its grid.
SettingValue = float | Mapping[str, Any]

# The result of a shift at one stop: an image, or an image together with the params that the shift
# itself chose for it (an automatic exposure, a drawn direction). Chosen params are recorded with
# the setting's params; they are no part of the request.
ShiftResult = ImageF32 | tuple[ImageF32, Mapping[str, Any]]

Apply = Callable[[ImageF32, Any, np.random.Generator], ShiftResult]
Sweep = Callable[[ImageF32, Sequence[Any], np.random.Generator], Iterable[ShiftResult]]
AnySweep = TypeVar("AnySweep", bound=Sweep)


@dataclass(eq=False)
class Shift:
    """A shift moves images.

    It is a dial, whose severity is a float in ``unit`` with 0 = untouched and ``levels`` the
    published settings 1, 2, ...; or a grid of named ``settings``, which has no line.
    """

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
    moves_objects: bool = False
    """True where objects are elsewhere afterwards, so that ground-truth boxes no longer fit."""
    _sweep: Sweep | None = None

    @property
    def top(self) -> float:
        return max(self.levels)

    def setting(self, setting: SettingValue) -> Setting:
        if isinstance(setting, Mapping):
            return Setting(None, setting)
        return Setting(setting, level=self.levels.index(setting) + 1 if setting in self.levels else None)

    def __call__(self, image: ImageF32, setting: SettingValue, rng: np.random.Generator) -> ImageF32:
        return next(self.sweep(image, [setting], rng))

    def chosen_params(
        self, image: ImageF32, setting: SettingValue, rng: np.random.Generator
    ) -> Mapping[str, Any]:
        """Return the params that the shift itself chooses for this image and stop; empty for most
        shifts and at severity 0.
        """
        return next(self.sweep_with_chosen_params(image, [setting], rng))[1]

    def sweep(
        self, image: ImageF32, settings: Sequence[SettingValue], rng: np.random.Generator
    ) -> Iterator[ImageF32]:
        """Yield one image per stop.

        All stops see the same random draw, so their order and number do not matter.
        """
        return (moved for moved, _ in self.sweep_with_chosen_params(image, settings, rng))

    def sweep_with_chosen_params(
        self, image: ImageF32, settings: Sequence[SettingValue], rng: np.random.Generator
    ) -> Iterator[tuple[ImageF32, Mapping[str, Any]]]:
        """Yield what ``sweep`` does, each image with the params that the shift itself chose for it."""
        moved = [s for s in settings if s != 0]
        if self._sweep is not None:
            results = iter(self._sweep(image, moved, _copy(rng)))
        else:
            results = (self.apply(image, s, _copy(rng)) for s in moved)
        for setting in settings:
            result = image.copy() if setting == 0 else next(results)
            moved_image, chosen = result if isinstance(result, tuple) else (result, {})
            self._check(moved_image, image)
            yield moved_image, chosen

    def _check(self, moved: object, image: ImageF32) -> None:
        """Refuse what is not an image like the one that was given."""
        if not isinstance(moved, np.ndarray) or moved.shape != image.shape or moved.dtype.kind != "f":
            came = (
                f"{moved.shape} of {moved.dtype}" if isinstance(moved, np.ndarray) else type(moved).__name__
            )
            raise TypeError(
                f"the shift {self.name} gave {came}; wanted an image of {image.shape}, floats from 0 to 1"
            )

    def sweeper(self, together: AnySweep) -> AnySweep:
        """Register, as a decorator, a faster way to make many stops of one image; it must equal
        making them one at a time.

        Per stop it yields an image, or an image and the params it chose for that image.
        """
        self._sweep = together
        return together


def _copy(rng: np.random.Generator) -> np.random.Generator:
    """Return a generator that draws the same from here on, in a tenth of the time that
    ``copy.deepcopy`` takes.
    """
    bits = rng.bit_generator
    made: np.random.BitGenerator = type(bits)(0)
    made.state = bits.state
    return np.random.Generator(made)


# A model, and the outputs of one of its passes.


# Weights C x D and bias C of a model's last linear layer.
Head = tuple[NDArray[np.float32], NDArray[np.float32]]


@dataclass
class Outputs:
    """The outputs of one pass of a model over N images."""

    logits: NDArray[np.float32] | None = None
    features: NDArray[np.float32] | None = None
    boxes: list[tuple[Box, ...]] | None = None
    inside: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    """Rows from inside the model for scorers that look there, by the scorer's name: N rows each."""
    ids: Sequence[str] | None = None
    """The samples' ids, where a scorer is fitted: which of them it remembers follows from these and
    not from their order.
    """

    def __len__(self) -> int:
        filled = next(
            (x for x in (self.logits, self.features, self.boxes, *self.inside.values()) if x is not None), ()
        )
        return len(filled)

    def __getitem__(self, rows: slice | NDArray[np.integer[Any]]) -> Outputs:
        """The outputs of some of the images."""
        places = np.arange(len(self))[rows]

        def listed(objects: Sequence[Any] | None) -> Any:
            return None if objects is None else [objects[i] for i in places]

        def part(array: NDArray[np.float32] | None) -> NDArray[np.float32] | None:
            return None if array is None else array[rows]

        inside = {key: array[rows] for key, array in self.inside.items()}
        return Outputs(part(self.logits), part(self.features), listed(self.boxes), inside, listed(self.ids))

    @staticmethod
    def join(parts: Sequence[Outputs]) -> Outputs:
        """The images of several outputs, one after the other."""

        def joined(arrays: list[Any]) -> Any:
            return None if not arrays or arrays[0] is None else np.concatenate(arrays)

        boxes = (
            [box for part in parts for box in part.boxes or ()]
            if parts and parts[0].boxes is not None
            else None
        )
        inside = {
            key: joined([part.inside[key] for part in parts]) for key in (parts[0].inside if parts else ())
        }
        return Outputs(
            joined([part.logits for part in parts]), joined([part.features for part in parts]), boxes, inside
        )


@dataclass(eq=False)
class Model:
    """Images in, outputs out. It owns resize, crop, normalise and device.

    ``prepare(image, framed)`` brings one image to the model's input (a framed one is only scaled,
    never cropped); ``forward`` takes a list of those.
    """

    name: str
    forward: Callable[[list[NDArray[Any]]], Outputs]
    prepare: Callable[[ImageU8, bool], NDArray[Any]] = lambda image, framed: image
    labels: tuple[str, ...] | None = None
    """Class ids in the order of the logits; None means the suite's own label space."""
    head: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None
    """Weights C x D and bias C of the last linear layer."""
    version: str = ""
    """Identifies the weights; a run refuses to continue with others."""
    parameters: int | None = None
    """The number of weights, where it is known."""
    module: Any = None
    """The torch module behind it, for scorers that look inside: N x H x W x 3 in 0..255 to (logits, ...)."""
    cache_version: Callable[[], str] | None = None
    """Returns the hash of the weights by which files made from its features are cached; without it
    that is ``version``.
    """
    for_classes: Callable[[Sequence[str]], Model] | None = None
    """Returns the model of a list of class names, where a model has no classes of its own
    (zero-shot): its logits then come in the order of the names. A plan asks it once with the names
    of the suite's labels.
    """
    output: Literal["label", "boxes"] = "label"
    """The kind of output: logits over its labels, or boxes, whose labels are places in ``labels``."""
    background: bool = False
    """True where a detector without names may have one class more than the suite, the background:
    its boxes are left out.
    """
    one_caller: bool = False
    """True where it takes one caller at a time: other threads wait for their turn."""
    repeats: bool = True
    """False where it was seen to answer the same image in two ways."""
    input: Mapping[str, Any] = field(default_factory=dict)
    """The work of ``prepare`` and normalising in words: size, mean, std, crop_pct, filter, mode;
    empty where it is unknown.
    """

    def cache_key(self) -> str:
        """Return what caches of its features, and encoders made from them, are named by."""
        return self.version if self.cache_version is None else self.cache_version()

    def __call__(self, images: Sequence[ImageU8], framed: bool = False) -> Outputs:
        return self.forward([self.prepare(image, framed) for image in images])


# The judges: scorers of outputs, measures and encoders of images, metrics of the table.


# Outputs of training images with their labels, which are columns of the logits; None or a
# negative number is no label.
Batches = Iterable[tuple[Outputs, Sequence[int | None] | NDArray[Any] | None]]


class Scorer:
    """Outputs to OOD score: N floats, higher = more OOD.

    A subclass defines ``__call__`` and overrides what it needs.

    A class that overrides ``fit`` and does not say what it needs is taken to need training images.
    """

    name: str = ""
    """The name that the table uses; ``core.scorer`` sets it, with the parameters that are not the default."""
    version: ClassVar[int | str] = 2
    """Part of a run's id: raise it when the numbers change."""
    needs: ClassVar[frozenset[str]] = frozenset()
    """The objects it cannot do without beyond logits: some of training, features, head, gradient,
    maps, layers.
    """
    ranges: ClassVar[Mapping[str, Sequence[Any]]] = {}
    """Parameters with the values that a search on validation images tries (``search = true`` in a
    suite's fit).
    """
    fitted: dict[str, int]
    """The number of images that it was fitted on and of those that it remembers, once it is fitted."""
    note: str = ""
    """A remark to print beside its scores, once it is fitted; empty where there is none."""

    def __init_subclass__(cls) -> None:
        cls.name = cls.__name__
        if "fit" in vars(cls) and cls.needs is Scorer.needs:
            cls.needs = frozenset({"training"})

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        """Learn from training images and the model's head.

        Every model gets a scorer of its own; called once, before use.
        """
        return self

    def enough(self, count: int) -> Any:
        """Raise an error if ``count`` training images are too few; asked before any of them is decoded."""

    def look(
        self, model: Model, images: Sequence[ImageU8], framed: bool = False
    ) -> NDArray[np.float32] | None:
        """Return N rows from inside the model's torch module; they come back as
        ``outputs.inside[self.name]``.
        """
        return None

    def __call__(self, outputs: Outputs) -> NDArray[np.float32]:
        raise TypeError(f"the scorer {self.name} defines no __call__(outputs)")

    @property
    def looks(self) -> bool:
        """True if it looks inside the model."""
        return type(self).look is not Scorer.look


class PlainScorer(Scorer):
    """A scorer from a function of outputs, or from any object with some of a scorer's members."""

    def __init__(self, call: Callable[[Outputs], Any], members: Any = None) -> None:
        self.call, self.members = call, members
        self.needs = frozenset(getattr(members, "needs", {"training"} if hasattr(members, "fit") else ()))  # type: ignore[misc]

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        if hasattr(self.members, "fit"):
            self.members.fit(batches, head)
            self.fitted = getattr(self.members, "fitted", {})
        return self

    def enough(self, count: int) -> None:
        if hasattr(self.members, "enough"):
            self.members.enough(count)

    def look(self, model: Model, images: Sequence[ImageU8], framed: bool = False) -> NDArray[np.float32]:
        rows: NDArray[np.float32] = self.members.look(model, images, framed)
        return rows

    @property
    def looks(self) -> bool:
        return hasattr(self.members, "look")

    def __call__(self, outputs: Outputs) -> NDArray[np.float32]:
        return np.asarray(self.call(outputs))


@dataclass(frozen=True, eq=False)
class Measure:
    """A measure of how far an image moved: two 8-bit images of one size, the clean reference
    first, to one number.

    ``nearer`` is the direction. With "higher", a larger value means that the moved image is
    nearer to the reference; with "lower", a value of smaller size does, its sign aside: equal
    images have 0. A measure that is ``whole`` takes captured images as they were captured,
    before any frame is laid on them, and brings two sizes to one itself.
    """

    name: str
    function: Callable[[ImageU8, ImageU8], float]
    nearer: Literal["lower", "higher"]
    unit: str = ""
    about: str = ""
    version: int | str = 1
    whole: bool = False

    def __call__(self, reference: ImageU8, moved: ImageU8) -> float:
        """Return the value for a pair of images; one that the measure cannot take is refused with
        ``BadImage``.
        """
        of_one_size = self.whole or reference.shape == moved.shape
        if not of_one_size or reference.dtype != np.uint8 or moved.dtype != np.uint8:
            size = "" if self.whole else " of one size"
            raise BadImage(
                f"wanted two 8-bit images{size}, got {reference.dtype} {reference.shape} and {moved.dtype}"
                f" {moved.shape}"
            )
        return self.function(reference, moved)


# N x D, one row per image or text.
Features = NDArray[np.float32]


@dataclass(frozen=True)
class Examples:
    """Images that an encoder was not taught on: features, and for each the place of its class and
    of its style in the encoder's ``labels`` and ``styles`` (-1 where the style is not known).
    """

    features: Features
    label: NDArray[np.int64]
    style: NDArray[np.int64]


@dataclass(eq=False)
class Encoder:
    """An image-text model that judges images (IS-OOD, appendix A): it has seen far more than the
    models under test.

    ``images(images, framed)`` and ``texts(sentences)`` return N x D features of one space,
    compared by cosine. A framed image is only scaled, never cropped. ``version`` identifies the
    weights: distances by other weights do not compare. An encoder made for certain texts names them
    in ``labels`` and ``styles`` (groups of templates), and ``examples(part, limit)`` returns
    images of a ``"validation"`` or ``"test"`` part that it was not taught on.
    """

    name: str
    images: Callable[[Sequence[ImageU8], bool], Features]
    texts: Callable[[Sequence[str]], Features]
    version: str = ""
    labels: tuple[str, ...] = ()
    styles: tuple[tuple[str, ...], ...] = ()
    examples: Callable[[str, int | None], Examples] | None = None


# A pure, lazy question of the table: (table, by) to a frame of by + value + n (+ low, high).
Metric = Callable[..., "pl.DataFrame"]

"""A shift: what moves pictures along a dial, or to the settings of a grid."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import BadPicture
from sorites.core.samples import Box, Image, Picture, Setting

if TYPE_CHECKING:
    import polars as pl

# A place that a shift is asked to go to: a severity on its dial, or the params of one setting of
# its grid.
Stop = float | Mapping[str, Any]

# The result of a shift at one stop: an image, or an image together with the params that the shift
# itself chose for it (an automatic exposure, a drawn direction). Chosen params are recorded with
# the setting's params; they are no part of the request.
ShiftResult = Image | tuple[Image, Mapping[str, Any]]

Apply = Callable[[Image, Any, np.random.Generator], ShiftResult]
Sweep = Callable[[Image, Sequence[Any], np.random.Generator], Iterable[ShiftResult]]
AnySweep = TypeVar("AnySweep", bound=Sweep)


@dataclass(eq=False)
class Shift:
    """A shift moves pictures.

    It is a dial, whose severity is a float in ``unit`` with 0 = untouched and ``levels`` the
    published stops 1, 2, ...; or a grid of named ``settings``, which has no line.
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
    moves_things: bool = False
    """True where things are elsewhere afterwards, so that true boxes no longer fit."""
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
        """Return the params that the shift itself chooses for this image and stop; empty for most
        shifts and at severity 0.
        """
        return next(self.sweep_with_chosen_params(image, [stop], rng))[1]

    def sweep(self, image: Image, stops: Sequence[Stop], rng: np.random.Generator) -> Iterator[Image]:
        """Yield one image per stop.

        All stops see the same random draw, so their order and number do not matter.
        """
        return (moved for moved, _ in self.sweep_with_chosen_params(image, stops, rng))

    def sweep_with_chosen_params(
        self, image: Image, stops: Sequence[Stop], rng: np.random.Generator
    ) -> Iterator[tuple[Image, Mapping[str, Any]]]:
        """Yield what ``sweep`` does, each image with the params that the shift itself chose for it."""
        moved = [s for s in stops if s != 0]
        if self._sweep is not None:
            results = iter(self._sweep(image, moved, _copy(rng)))
        else:
            results = (self.apply(image, s, _copy(rng)) for s in moved)
        for stop in stops:
            result = image.copy() if stop == 0 else next(results)
            moved_image, chosen = result if isinstance(result, tuple) else (result, {})
            self._check(moved_image, image)
            yield moved_image, chosen

    def _check(self, moved: object, image: Image) -> None:
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
    """The outputs of one pass of a model over N pictures."""

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
    """False where it was seen to answer the same picture in two ways."""
    input: Mapping[str, Any] = field(default_factory=dict)
    """The work of ``prepare`` and normalising in words: size, mean, std, crop_pct, filter, mode;
    empty where it is unknown.
    """

    def cache_key(self) -> str:
        """Return what caches of its features, and referees made from them, are named by."""
        return self.version if self.cache_version is None else self.cache_version()

    def __call__(self, pictures: Sequence[Picture], framed: bool = False) -> Outputs:
        return self.forward([self.prepare(picture, framed) for picture in pictures])


# The judges: scorers of outputs, measures and referees of pictures, metrics of the table.


# Outputs of training pictures with their labels, which are columns of the logits; None or a
# negative number is no label.
Batches = Iterable[tuple[Outputs, Sequence[int | None] | NDArray[Any] | None]]


class Scorer:
    """Outputs to strangeness: N floats, higher = stranger.

    A subclass defines ``__call__`` and overrides what it needs.

    A class that overrides ``fit`` and does not say what it needs is taken to need training pictures.
    """

    name: str = ""
    """The name that the table uses; ``core.scorer`` sets it, with the parameters that are not the default."""
    version: ClassVar[int | str] = 2
    """Part of a run's id: raise it when the numbers change."""
    needs: ClassVar[frozenset[str]] = frozenset()
    """The things it cannot do without beyond logits: some of training, features, head, gradient,
    maps, layers.
    """
    ranges: ClassVar[Mapping[str, Sequence[Any]]] = {}
    """Parameters with the values that a search on validation pictures tries (``search = true`` in a
    suite's fit).
    """
    fitted: dict[str, int]
    """The number of pictures that it was fitted on and of those that it remembers, once it is fitted."""
    note: str = ""
    """A remark to print beside its scores, once it is fitted; empty where there is none."""

    def __init_subclass__(cls) -> None:
        cls.name = cls.__name__
        if "fit" in vars(cls) and cls.needs is Scorer.needs:
            cls.needs = frozenset({"training"})

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        """Learn from training pictures and the model's head.

        Every model gets a scorer of its own; called once, before use.
        """
        return self

    def enough(self, count: int) -> Any:
        """Raise an error if ``count`` training pictures are too few; asked before any of them is decoded."""

    def look(
        self, model: Model, pictures: Sequence[Picture], framed: bool = False
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

    def look(self, model: Model, pictures: Sequence[Picture], framed: bool = False) -> NDArray[np.float32]:
        rows: NDArray[np.float32] = self.members.look(model, pictures, framed)
        return rows

    @property
    def looks(self) -> bool:
        return hasattr(self.members, "look")

    def __call__(self, outputs: Outputs) -> NDArray[np.float32]:
        return np.asarray(self.call(outputs))


@dataclass(frozen=True, eq=False)
class Measure:
    """A measure of how far a picture moved: two 8-bit pictures of one size, the clean reference
    first, to one number.

    ``nearer`` is the direction. With "higher", a larger value means that the moved picture is
    nearer to the reference; with "lower", a value of smaller size does, its sign aside: equal
    pictures have 0. A measure that is ``whole`` takes captured pictures as they were captured,
    before any frame is laid on them, and brings two sizes to one itself.
    """

    name: str
    function: Callable[[Picture, Picture], float]
    nearer: Literal["lower", "higher"]
    unit: str = ""
    about: str = ""
    version: int | str = 1
    whole: bool = False

    def __call__(self, reference: Picture, moved: Picture) -> float:
        """Return the value for a pair of pictures; one that the measure cannot take is refused with
        ``BadPicture``.
        """
        of_one_size = self.whole or reference.shape == moved.shape
        if not of_one_size or reference.dtype != np.uint8 or moved.dtype != np.uint8:
            size = "" if self.whole else " of one size"
            raise BadPicture(
                f"wanted two 8-bit pictures{size}, got {reference.dtype} {reference.shape} and {moved.dtype}"
                f" {moved.shape}"
            )
        return self.function(reference, moved)


# N x D, one row per picture or text.
Features = NDArray[np.float32]


@dataclass(frozen=True)
class Examples:
    """Pictures that a referee was not taught on: features, and for each the place of its class and
    of its style in the referee's ``labels`` and ``styles`` (-1 where the style is not known).
    """

    features: Features
    label: NDArray[np.int64]
    style: NDArray[np.int64]


@dataclass(eq=False)
class Referee:
    """An image-text model that judges pictures (IS-OOD, appendix A): it has seen far more than the
    models under test.

    ``images(pictures, framed)`` and ``texts(sentences)`` return N x D features of one space,
    compared by cosine. A framed picture is only scaled, never cropped. ``version`` identifies the
    weights: distances by other weights do not compare. A referee made for certain texts names them
    in ``labels`` and ``styles`` (groups of templates), and ``examples(part, limit)`` returns
    pictures of a ``"validation"`` or ``"test"`` part that it was not taught on.
    """

    name: str
    images: Callable[[Sequence[Picture], bool], Features]
    texts: Callable[[Sequence[str]], Features]
    version: str = ""
    labels: tuple[str, ...] = ()
    styles: tuple[tuple[str, ...], ...] = ()
    examples: Callable[[str, int | None], Examples] | None = None


# A pure, lazy question of the table: (table, by) to a frame of by + value + n (+ low, high).
Metric = Callable[..., "pl.DataFrame"]

"""Contracts of the plug-ins: shifts, models and their outputs, scorers, measures, encoders and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from sorites.core.compute.passes import in_constant_passes
from sorites.core.errors import BadImage, SoritesError
from sorites.core.samples import Box, ImageF32, ImageU8, Setting

if TYPE_CHECKING:
    import polars as pl

# A setting of a shift: a severity, or the params of one setting of its grid.
SettingValue = float | Mapping[str, Any]

# Result of a shift at one setting: an image, or an image and the params that the shift chose for it (an
# automatic exposure, a drawn direction). Chosen params are stored with the setting's params, but are not part
# of the request.
ShiftResult = ImageF32 | tuple[ImageF32, Mapping[str, Any]]

Apply = Callable[[ImageF32, Any, np.random.Generator], ShiftResult]
# Where in the making of an image a shift acts. Shifts that are applied together are applied in this order.
Stage = Literal["scene", "optics", "sensor", "isp", "codec"]
STAGES: tuple[Stage, ...] = ("scene", "optics", "sensor", "isp", "codec")
# Returns the random generator of the shift with a given name, for one sample.
Draw = Callable[[str], np.random.Generator]
# Moves the boxes of an image (height, width) as the shift moves its objects, given the severity and the same
# random draw. The result has the same number of boxes in the same order.
MoveBoxes = Callable[[Sequence[Box], Any, np.random.Generator, tuple[int, int]], Sequence[Box]]
Sweep = Callable[[ImageF32, Sequence[Any], np.random.Generator], Iterable[ShiftResult]]
AnySweep = TypeVar("AnySweep", bound=Sweep)


@dataclass(eq=False)
class Shift:
    """A change of images.

    A shift has either a severity, a float in ``unit`` with 0 = unchanged and ``levels`` as the published
    values of levels 1, 2, ...; or a grid of named ``settings`` without an order.
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
    """Builds the shift with other options, if it has any."""
    options: Mapping[str, Any] = field(default_factory=dict)
    moves_objects: bool = False
    """True if objects move or disappear. Ground-truth boxes follow with ``move_boxes``; without it, samples
    with boxes are refused.
    """
    stage: Stage = "scene"
    """The stage of image formation at which the shift acts; it orders shifts that are applied together."""
    move_boxes: MoveBoxes | None = None
    _sweep: Sweep | None = None

    @property
    def top(self) -> float:
        """The severity of the highest level."""
        return max(self.levels)

    def setting(self, setting: SettingValue) -> Setting:
        """Return a severity (with its level, if it is one) or params as a ``Setting``."""
        if isinstance(setting, Mapping):
            return Setting(None, setting)
        return Setting(setting, level=self.levels.index(setting) + 1 if setting in self.levels else None)

    def __call__(self, image: ImageF32, setting: SettingValue, rng: np.random.Generator) -> ImageF32:
        return next(self.sweep(image, [setting], rng))

    def chosen_params(
        self, image: ImageF32, setting: SettingValue, rng: np.random.Generator
    ) -> Mapping[str, Any]:
        """Return the params that the shift itself chooses for this image and setting; empty for most shifts
        and at severity 0.
        """
        return next(self.sweep_with_chosen_params(image, [setting], rng))[1]

    def sweep(
        self, image: ImageF32, settings: Sequence[SettingValue], rng: np.random.Generator
    ) -> Iterator[ImageF32]:
        """Yield one image per setting.

        All settings use the same random draw, so their order and number do not matter.
        """
        return (moved for moved, _ in self.sweep_with_chosen_params(image, settings, rng))

    def sweep_with_chosen_params(
        self, image: ImageF32, settings: Sequence[SettingValue], rng: np.random.Generator
    ) -> Iterator[tuple[ImageF32, Mapping[str, Any]]]:
        """Like ``sweep``, but yield each image with the params that the shift chose for it."""
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

    def sweep_drawn(
        self, image: ImageF32, settings: Sequence[SettingValue], draw: Draw
    ) -> Iterator[tuple[ImageF32, Mapping[str, Any]]]:
        """Like ``sweep_with_chosen_params``, with the random generator of each shift by name."""
        return self.sweep_with_chosen_params(image, settings, draw(self.name))

    def boxes_after(
        self, boxes: Sequence[Box], setting: SettingValue, draw: Draw, size: tuple[int, int]
    ) -> tuple[Box, ...]:
        """Return ground-truth boxes after the shift, as many and in the same order.

        Args:
            boxes: The boxes of the clean image.
            setting: The setting.
            draw: Returns the random generator of a shift by name, as for the image.
            size: Height and width of the image.

        Raises:
            SoritesError: Objects move in an unknown way.
        """
        if setting == 0 or not boxes or not self.moves_objects:
            return tuple(boxes)
        if self.move_boxes is None:
            raise SoritesError(
                f"{self.name} moves objects in a way that is not known, so ground-truth boxes would be wrong."
                " Drop the shift, or use a source without boxes."
            )
        return tuple(self.move_boxes(boxes, setting, draw(self.name), size))

    def box_mover(self, move: MoveBoxes) -> MoveBoxes:
        """Register the function that moves ground-truth boxes (decorator)."""
        self.moves_objects, self.move_boxes = True, move
        return move

    def _check(self, moved: object, image: ImageF32) -> None:
        if not isinstance(moved, np.ndarray) or moved.shape != image.shape or moved.dtype.kind != "f":
            actual = (
                f"{moved.shape} of {moved.dtype}" if isinstance(moved, np.ndarray) else type(moved).__name__
            )
            raise TypeError(
                f"the shift {self.name} returned {actual}; expected {image.shape}, floats from 0 to 1"
            )

    def sweeper(self, together: AnySweep) -> AnySweep:
        """Register a faster way to shift one image to many settings (decorator).

        It must give the same images as one setting at a time. For each setting it yields an image, or an
        image and the params that it chose.
        """
        self._sweep = together
        return together


def _copy(rng: np.random.Generator) -> np.random.Generator:
    """Copy a random generator, ten times faster than ``copy.deepcopy``."""
    bits = rng.bit_generator
    copied: np.random.BitGenerator = type(bits)(0)
    copied.state = bits.state
    return np.random.Generator(copied)


# Weights C x D and bias C of a model's last linear layer.
Head = tuple[NDArray[np.float32], NDArray[np.float32]]


@dataclass
class Outputs:
    """Outputs of a model for N images."""

    logits: NDArray[np.float32] | None = None
    features: NDArray[np.float32] | None = None
    boxes: list[tuple[Box, ...]] | None = None
    inside: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    """Internal activations for scorers that implement ``look``, by scorer name: N rows each."""
    ids: Sequence[str] | None = None
    """Sample ids while a scorer is fitted, so that a subsample does not depend on the order."""
    box_logits: list[NDArray[np.float32]] | None = None
    """Class logits of the boxes of each image (boxes x classes), in the order of ``boxes``; None if the
    detector does not expose them.
    """
    box_features: list[NDArray[np.float32]] | None = None
    """Features of the boxes of each image (boxes x D); a row of NaN is a box without features."""
    independent: bool = False
    """True if classes do not exclude each other: a logit is that of a sigmoid, not of a softmax over all."""

    def __len__(self) -> int:
        filled = next(
            (x for x in (self.logits, self.features, self.boxes, *self.inside.values()) if x is not None), ()
        )
        return len(filled)

    def __getitem__(self, rows: slice | NDArray[np.integer[Any]]) -> Outputs:
        """Return the outputs of some of the images."""
        places = np.arange(len(self))[rows]

        def listed(objects: Sequence[Any] | None) -> Any:
            return None if objects is None else [objects[i] for i in places]

        def part(array: NDArray[np.float32] | None) -> NDArray[np.float32] | None:
            return None if array is None else array[rows]

        inside = {key: array[rows] for key, array in self.inside.items()}
        of_boxes = listed(self.box_logits), listed(self.box_features), self.independent
        return Outputs(
            part(self.logits), part(self.features), listed(self.boxes), inside, listed(self.ids), *of_boxes
        )

    @staticmethod
    def join(parts: Sequence[Outputs]) -> Outputs:
        """Concatenate outputs."""
        inside = {
            key: _concatenated([part.inside[key] for part in parts])
            for key in (parts[0].inside if parts else ())
        }
        return Outputs(
            _concatenated([part.logits for part in parts]),
            _concatenated([part.features for part in parts]),
            _chained([part.boxes for part in parts]),
            inside,
            box_logits=_chained([part.box_logits for part in parts]),
            box_features=_chained([part.box_features for part in parts]),
            independent=any(part.independent for part in parts),
        )


def _concatenated(arrays: list[Any]) -> Any:
    return None if not arrays or arrays[0] is None else np.concatenate(arrays)


def _chained(lists: list[Any]) -> Any:
    return None if not lists or lists[0] is None else [x for part in lists for x in part or ()]


@dataclass(frozen=True)
class Backend:
    """The device and library that compute the outputs of a model.

    Attributes:
        library: ``torch`` or ``onnxruntime``; empty for other code.
        device: The device: ``cpu``, ``cuda``, ``cuda:1``, ``mps``.
        precision: The number format.
        batch_matters: True if rounding depends on the number of images in a pass, because the library chooses
            kernels by it.
    """

    library: str = ""
    device: str = "cpu"
    precision: str = "float32"
    batch_matters: bool = False

    @property
    def kind(self) -> str:
        """The kind of device, without its number."""
        return self.device.partition(":")[0]


@dataclass(frozen=True)
class Graph:
    """A classifier as an ONNX graph, for use without the library that it was made with.

    Attributes:
        data: The serialised graph.
        logits: Name of the tensor with the class scores.
        features: Name of the tensor with the features; None if there is none.
        layout: NHWC or NCHW.
        dtype: Type of the input: uint8, float32 or float16. 8-bit inputs are not normalised.
        mean: Subtracted from pixels in 0..1 of other inputs.
        std: Divides them afterwards.
        batch: Images in a pass, if the graph fixes their number.
        columns: The columns of the class scores that are used, in order; None uses all.
        log: The class scores are probabilities, whose logarithm is used.
    """

    data: bytes = field(repr=False)
    logits: str = "logits"
    features: str | None = "features"
    layout: str = "NHWC"
    dtype: str = "uint8"
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)
    batch: int | None = None
    columns: tuple[int, ...] | None = None
    log: bool = False


def unchanged(image: ImageU8, framed: bool) -> ImageU8:
    """Return an image as it is: the input of models that prepare images themselves."""
    return image


@dataclass(eq=False)
class Model:
    """Maps images to outputs; owns resizing, cropping, normalisation and the device.

    ``prepare(image, framed)`` turns one image into the model's input (a framed image is only scaled, never
    cropped); ``forward`` takes a list of these.
    """

    name: str
    forward: Callable[[list[NDArray[Any]]], Outputs]
    prepare: Callable[[ImageU8, bool], NDArray[Any]] = unchanged
    labels: tuple[str, ...] | None = None
    """Class ids in the order of the logits; None means the suite's own label space."""
    head: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None
    """Weights C x D and bias C of the last linear layer."""
    version: str = ""
    """Identifies the weights; a run cannot be resumed with other weights."""
    parameters: int | None = None
    """Number of weights, if known."""
    module: Any = None
    """The torch module, for scorers that look inside: N x H x W x 3 in 0..255 to (logits, ...)."""
    cache_version: Callable[[], str] | None = None
    """Returns the hash of the weights under which derived files are cached; default ``version``."""
    for_classes: Callable[[Sequence[str]], Model] | None = None
    """For zero-shot models: returns the model for a list of class names, with logits in that order. The plan
    calls it once with the class names of the suite.
    """
    output: Literal["label", "boxes"] = "label"
    """Kind of output: logits over ``labels``, or boxes whose labels index ``labels``."""
    background: bool = False
    """True if a detector without class names may have one more class than the suite, the background, whose
    boxes are dropped.
    """
    one_caller: bool = False
    """True if the model is not thread-safe; calls are then serialised."""
    repeats: bool = True
    """False if the model gave two different outputs for the same image."""
    input: Mapping[str, Any] = field(default_factory=dict)
    """Description of the preprocessing: size, mean, std, crop_pct, filter, mode; empty if unknown. A
    detector has ``words`` instead. The list
    ``assumed`` names those that nobody declared, and ``outputs`` is "probabilities" for such a model.
    """
    scale: Literal["unknown", "logits", "probabilities"] = "unknown"
    """The model's output for each class. ``forward`` returns logits in any case, for probabilities their
    logarithm; an unknown scale is determined with trial images when a run is planned.
    """
    backend: Backend = Backend()
    """The device and library that compute the outputs."""
    batch: int | None = None
    """Images in each pass, if their number is constant (see ``with_batch``)."""
    graph: Callable[[], Graph] | None = None
    """Returns the model as an ONNX graph; None if it has none."""
    texts: Callable[[Sequence[str]], NDArray[np.floating[Any]]] | None = None
    """For zero-shot models: embeds class names as the rows of the head are embedded, N x D."""

    def with_batch(self, size: int) -> Model:
        """Return the model with passes of exactly ``size`` images if their number matters, so that the
        outputs of an image do not depend on how many are evaluated together.

        A pass is filled up with copies of its last image, whose outputs are dropped.
        """
        if not self.backend.batch_matters:
            return self
        return replace(self, forward=in_constant_passes(self.forward, size), batch=size)

    def cache_key(self) -> str:
        """Return the key under which files derived from its features are cached."""
        key = self.version if self.cache_version is None else self.cache_version()
        on_cpu = (self.backend.kind, self.backend.precision) == ("cpu", "float32")
        return key if on_cpu else f"{key} {self.backend.kind} {self.backend.precision}"

    def __call__(self, images: Sequence[ImageU8], framed: bool = False) -> Outputs:
        return self.forward([self.prepare(image, framed) for image in images])


# Outputs of training images with their labels, which index the logits; None or a negative number means no
# label.
Batches = Iterable[tuple[Outputs, Sequence[int | None] | NDArray[Any] | None]]


class Scorer:
    """Computes OOD scores from outputs: N floats, higher = more OOD.

    A subclass defines ``__call__`` and overrides what it needs. A class that overrides ``fit`` without
    declaring ``needs`` is assumed to need training images.
    """

    name: str = ""
    """Name in the table, with parameters that differ from the defaults; set by ``core.scorer``."""
    version: ClassVar[int | str] = 2
    """Part of a run's id; increase it when the numbers change."""
    needs: ClassVar[frozenset[str]] = frozenset()
    """Requirements beyond logits: any of training, features, head, texts, gradient, maps, layers."""
    ranges: ClassVar[Mapping[str, Sequence[Any]]] = {}
    """Parameter values that a search on validation images tries (``fit.search = true`` in a suite)."""
    fitted: dict[str, int]
    """After ``fit``: the number of training images, and of those that are kept."""
    note: str = ""
    """After ``fit``: a remark to show with its scores, if any."""
    embed: Callable[[Sequence[str]], NDArray[np.floating[Any]]] | None = None
    """For scorers that need texts: ``Model.texts`` of the model, set before ``fit`` is called."""

    def __init_subclass__(cls) -> None:
        cls.name = cls.__name__
        if "fit" in vars(cls) and cls.needs is Scorer.needs:
            cls.needs = frozenset({"training"})

    def fit(self, batches: Batches, head: Head | None = None) -> Self:
        """Learn from training images and the model's head.

        Called once, before the first score; every model gets its own scorer.
        """
        return self

    def enough(self, count: int) -> Any:
        """Raise ``TooFewImages`` if ``count`` training images are too few; called before any is decoded."""

    def look(
        self, model: Model, images: Sequence[ImageU8], framed: bool = False
    ) -> NDArray[np.float32] | None:
        """Return N rows of internal activations of the model's torch module.

        They are passed to ``fit`` and ``__call__`` as ``outputs.inside[self.name]``.
        """
        return None

    def __call__(self, outputs: Outputs) -> NDArray[np.float32]:
        raise TypeError(f"the scorer {self.name} defines no __call__(outputs)")

    @property
    def looks(self) -> bool:
        """True if the scorer reads internal activations of the model."""
        return type(self).look is not Scorer.look


class PlainScorer(Scorer):
    """Adapts a function of outputs, or any object with some of a scorer's members, to ``Scorer``."""

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
    """Measures how far a shifted image is from its clean reference.

    Args:
        name: Name in the registry.
        function: Maps two 8-bit images of the same size, the reference first, to a number.
        nearer: "higher" if larger values mean closer; "lower" if smaller absolute values do, with 0 for equal
            images.
        unit: Unit of the value.
        about: One-line description.
        version: Part of the identity of results.
        whole: The measure takes captured images without the suite's frame and handles different sizes itself.
    """

    name: str
    function: Callable[[ImageU8, ImageU8], float]
    nearer: Literal["lower", "higher"]
    unit: str = ""
    about: str = ""
    version: int | str = 1
    whole: bool = False

    def __call__(self, reference: ImageU8, moved: ImageU8) -> float:
        """Return the value for a pair of images.

        Raises:
            BadImage: The images are not 8-bit or differ in size.
        """
        sizes_match = self.whole or reference.shape == moved.shape
        if not sizes_match or reference.dtype != np.uint8 or moved.dtype != np.uint8:
            size = "" if self.whole else " of one size"
            raise BadImage(
                f"expected two 8-bit images{size}, got {reference.dtype} {reference.shape} and {moved.dtype}"
                f" {moved.shape}"
            )
        return self.function(reference, moved)


# N x D, one row per image or text.
Features = NDArray[np.float32]


@dataclass(frozen=True)
class Examples:
    """Images that an encoder was not trained on: features, and indices of class and style into its ``labels``
    and ``styles`` (style -1 if unknown).
    """

    features: Features
    label: NDArray[np.int64]
    style: NDArray[np.int64]


@dataclass(eq=False)
class Encoder:
    """An image-text model used to measure or filter images (IS-OOD, appendix A).

    Attributes:
        name: The spec that it was loaded from.
        images: Maps images and ``framed`` to N x D features; a framed image is only scaled, never cropped.
        texts: Maps sentences to N x D features of the same space, compared by cosine.
        version: Identifies the weights; distances of different weights are not comparable.
        labels: Class texts that the encoder was made for, if any.
        styles: Groups of templates that the encoder was made for, if any.
        examples: ``examples(part, limit)`` returns images of the ``"validation"`` or ``"test"`` part, not
            trained on.
    """

    name: str
    images: Callable[[Sequence[ImageU8], bool], Features]
    texts: Callable[[Sequence[str]], Features]
    version: str = ""
    labels: tuple[str, ...] = ()
    styles: tuple[tuple[str, ...], ...] = ()
    examples: Callable[[str, int | None], Examples] | None = None


# Computes a metric of the table: (table, by) to a frame of by + value + n (+ low, high).
Metric = Callable[..., "pl.DataFrame"]

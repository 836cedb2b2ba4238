"""The judges: scorers of outputs, measures and referees of pictures, metrics of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from sorites.errors import BadPicture
from sorites.types.model import Head, Model, Outputs
from sorites.types.pictures import Picture

if TYPE_CHECKING:
    import polars as pl

Batches = Iterable[tuple[Outputs, Sequence[int | None] | NDArray[Any] | None]]
"""Outputs of training pictures with their labels, which are columns of the logits; None or a negative number is no label."""


class Scorer:
    """Outputs to strangeness: N floats, higher = stranger. A subclass defines ``__call__`` and overrides what it needs.

    A class that overrides ``fit`` and does not say what it needs is taken to need training pictures.
    """

    name: str = ""
    """The name that the table uses; ``core.scorer`` sets it, with the parameters that are not the default."""
    version: ClassVar[int | str] = 2
    """Part of a run's id: raise it when the numbers change."""
    needs: ClassVar[frozenset[str]] = frozenset()
    """The things it cannot do without beyond logits: some of training, features, head, gradient, maps, layers."""
    ranges: ClassVar[Mapping[str, Sequence[Any]]] = {}
    """Parameters with the values that a search on validation pictures tries (``search = true`` in a suite's fit)."""
    fitted: dict[str, int]
    """The number of pictures that it was fitted on and of those that it remembers, once it is fitted."""
    note: str = ""
    """A remark to print beside its scores, once it is fitted; empty where there is none."""

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
    """A measure of how far a picture moved: two 8-bit pictures of one size, the clean reference first, to one number.

    ``nearer`` is the direction. With "higher", a larger value means that the moved picture is nearer to the reference; with
    "lower", a value of smaller size does, its sign aside: equal pictures have 0. A measure that is ``whole`` takes captured
    pictures as they were captured, before any frame is laid on them, and brings two sizes to one itself.
    """

    name: str
    function: Callable[[Picture, Picture], float]
    nearer: Literal["lower", "higher"]
    unit: str = ""
    about: str = ""
    version: int | str = 1
    whole: bool = False

    def __call__(self, reference: Picture, moved: Picture) -> float:
        """Return the value for a pair of pictures; one that the measure cannot take is refused with ``BadPicture``."""
        of_one_size = self.whole or reference.shape == moved.shape
        if not of_one_size or reference.dtype != np.uint8 or moved.dtype != np.uint8:
            size = "" if self.whole else " of one size"
            raise BadPicture(
                f"wanted two 8-bit pictures{size}, got {reference.dtype} {reference.shape} and {moved.dtype} {moved.shape}"
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


Metric = Callable[..., "pl.DataFrame"]
"""A pure, lazy question of the table: (table, by) to a frame of by + value + n (+ low, high)."""

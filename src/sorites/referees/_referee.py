"""An image-text model as the measures know it: pictures and texts to one space.

Such a model is called a referee (IS-OOD, appendix A): it has seen far more than the models it judges, so it can say how far a
picture is from what they know. Anything with these two functions will do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

import numpy as np
from numpy.typing import NDArray

from sorites.core import Picture, split_spec
from sorites.errors import SoritesError
from sorites.registry import Registry

Features = NDArray[np.float32]
BATCH = 32


@dataclass(frozen=True)
class Examples:
    """Features of pictures (N x D), and of each the place of its class in ``labels`` and of its look in ``looks``."""

    features: Features
    label: NDArray[np.int64]
    look: NDArray[np.int64]


@dataclass(eq=False)
class Referee:
    """``images(pictures, framed)`` and ``texts(sentences)`` give N x D features of one space, compared by cosine.

    A framed picture is only scaled, never cropped. ``version`` identifies the weights: what was measured by others does not
    compare. Where it was made for certain texts, ``labels`` and ``looks`` (templates by look) are those, and
    ``examples(part, limit)`` gives pictures of a ``"validation"`` or ``"test"`` part that it was not taught on.
    """

    name: str
    images: Callable[[Sequence[Picture], bool], Features]
    texts: Callable[[Sequence[str]], Features]
    version: str = ""
    labels: tuple[str, ...] = ()
    looks: tuple[tuple[str, ...], ...] = ()
    examples: Callable[[str, int | None], Examples] | None = None


REFEREES: Registry[Callable[[str | None], Referee]] = Registry("referee", "sorites.referees")


def add_referee(make: Callable[[str | None], Referee]) -> Callable[[str | None], Referee]:
    """``@add_referee`` over ``name(argument)``; the argument is what follows the colon in ``name:argument``."""
    REFEREES.add(make.__name__, make)
    return make


def referee(spec: str) -> Referee:
    """``"open_clip:ViT-B-32@openai"``, ``"python:module:name"``, ``"cifar"``."""
    name, argument = split_spec(spec)
    made = REFEREES.get(name)(argument)
    made.name = spec
    return made


def checked(name: str, given: object, n: int) -> Features:
    """Features as the measures need them: N x D, finite, float32."""
    found = np.asarray(given, np.float32)
    if found.ndim != 2 or len(found) != n:
        raise SoritesError(f"referee {name}: wanted features of {n} x D, got shape {found.shape}")
    if not np.isfinite(found).all():
        raise SoritesError(f"referee {name} gave features that are not finite")
    return found


def features(referee: Referee, pictures: Iterable[tuple[Picture, bool]]) -> Features:
    """One row a picture, in their order; each comes with whether it is framed. A batch is the most that is held in memory."""
    found = [referee.images(some, framed) for some, framed in _batches(pictures)]
    if not found:
        raise SoritesError(f"there are no pictures for referee {referee.name} to look at")
    return np.concatenate(found)


def _batches(pictures: Iterable[tuple[Picture, bool]]) -> Iterator[tuple[list[Picture], bool]]:
    for framed, run in groupby(pictures, key=lambda pair: pair[1]):
        while some := [picture for picture, _ in islice(run, BATCH)]:
            yield some, framed

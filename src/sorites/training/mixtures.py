"""Pictures of several kinds trained on together: one after the other, or a fixed share of made pictures among real ones."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from sorites.core import Picture
from sorites.errors import SoritesError
from sorites.rng import digest
from sorites.training.pictures import Pictures


@dataclass(frozen=True)
class Joined:
    """The pictures of all parts, one part after the other."""

    parts: Sequence[Pictures]
    _ends: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_ends", tuple(accumulate(map(len, self.parts))))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def _at(self, place: int) -> tuple[Pictures, int]:
        part = bisect_right(self._ends, place)
        return self.parts[part], place - (self._ends[part - 1] if part else 0)

    def id(self, place: int) -> str:
        part, inside = self._at(place)
        return part.id(inside)

    def label(self, place: int) -> int:
        part, inside = self._at(place)
        return part.label(inside)

    def picture(self, place: int, rng: np.random.Generator) -> Picture:
        part, inside = self._at(place)
        return part.picture(inside, rng)


@dataclass(frozen=True)
class Chosen:
    """Some pictures of others, in the order of ``places``; a place may stand there more than once."""

    base: Pictures
    places: Sequence[int]

    def __len__(self) -> int:
        return len(self.places)

    def id(self, place: int) -> str:
        return self.base.id(self.places[place])

    def label(self, place: int) -> int:
        return self.base.label(self.places[place])

    def picture(self, place: int, rng: np.random.Generator) -> Picture:
        return self.base.picture(self.places[place], rng)


def mixed(real: Pictures, made: Pictures, share: float = 0.5, seed: int = 0) -> Joined:
    """Return every made picture once, and as many real ones that made pictures are ``share`` of the whole.

    CNS-Bench fine-tunes on one half made pictures and one half ImageNet's (appendix C). The real ones are chosen by the hash of
    their ids with the seed; where there are too few, all are taken, and those first in that order once more, until there are
    enough.
    """
    if not 0 < share < 1:
        raise SoritesError(f"wanted the share of made pictures between 0 and 1, got {share}.")
    for kind, some in (("real", real), ("made", made)):
        if not len(some):
            raise SoritesError(f"wanted real and made pictures to train on together; there are no {kind} ones.")
    wanted = max(1, round(len(made) * (1 - share) / share))
    order = sorted(range(len(real)), key=lambda place: digest("mixed", seed, real.id(place)))
    return Joined((Chosen(real, [order[i % len(order)] for i in range(wanted)]), made))

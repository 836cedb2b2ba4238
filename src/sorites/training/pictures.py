"""The pictures that a model is trained on: labelled, by their place, each with a generator of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sorites.core import Picture, Sample
from sorites.errors import SoritesError


class Pictures(Protocol):
    """Labelled pictures by their place, 0 to N - 1.

    ``picture`` gets a generator that belongs to the seed, the epoch and the place, so that what is drawn for a picture follows
    from nothing else: not from the batch, the workers, or where a stopped training goes on.
    """

    def __len__(self) -> int: ...

    def id(self, place: int) -> str: ...

    def label(self, place: int) -> int: ...

    def picture(self, place: int, rng: np.random.Generator) -> Picture:
        """Return the picture in 8 bits (H x W x 3) at its own size."""
        ...


@dataclass(frozen=True)
class SamplePictures:
    """The pictures of samples as they are."""

    samples: Sequence[Sample]

    def __post_init__(self) -> None:
        without = next((sample.id for sample in self.samples if sample.label is None), None)
        if without is not None:
            raise SoritesError(f"wanted a label for every training picture; {without} has none that is in the labels.")

    def __len__(self) -> int:
        return len(self.samples)

    def id(self, place: int) -> str:
        return self.samples[place].id

    def label(self, place: int) -> int:
        label = self.samples[place].label
        assert label is not None
        return label

    def picture(self, place: int, rng: np.random.Generator) -> Picture:
        return self.samples[place].load()

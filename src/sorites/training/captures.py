"""Pictures as a camera took them, among the originals: what ImageNet-ES trains on in its experiments 4 to 6.

Each time a picture is asked for, with a probability of one half one of its captures stands in its place, drawn evenly from the
settings that were kept (``cuts``). A capture is a file of the dataset, or the original through the simulated camera.
Baek et al., "Unexplored Faces of Robustness and Out-of-Distribution", CVPR 2024, supplement 4.1 and its released code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sorites import core, es_grid
from sorites.core import CLEAN, Picture, Sample, Setting, Shift, Stop, to_image, to_picture
from sorites.errors import SoritesError
from sorites.training.pictures import Pictures

SHARE = 0.5
"""The published probability that a capture stands in for the original."""


class Shots(Protocol):
    """The captures of pictures by their place, one per kept setting."""

    def __len__(self) -> int: ...

    def shot(self, place: int, number: int, rng: np.random.Generator) -> Picture:
        """Return the capture of the picture at ``place`` at the kept setting ``number``."""
        ...


@dataclass(frozen=True)
class Captured:
    """Pictures, each replaced with a probability of ``share`` by one of its captures."""

    base: Pictures
    shots: Shots
    share: float = SHARE

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise SoritesError(f"wanted the share of captures between 0 and 1, got {self.share}.")
        if not len(self.shots):
            raise SoritesError(
                "no setting is kept to take captures from. Raise the cut: 0.6, 0.8 and 1.0 are the published ones."
            )

    def __len__(self) -> int:
        return len(self.base)

    def id(self, place: int) -> str:
        return self.base.id(place)

    def label(self, place: int) -> int:
        return self.base.label(place)

    def picture(self, place: int, rng: np.random.Generator) -> Picture:
        if rng.random() >= self.share:
            return self.base.picture(place, rng)
        return self.shots.shot(place, int(rng.integers(len(self.shots))), rng)


@dataclass(frozen=True)
class Simulated:
    """Captures made when they are asked for: the picture through a shift, at one of its settings."""

    base: Pictures
    settings: Sequence[Stop]
    shift: Shift

    def __len__(self) -> int:
        return len(self.settings)

    def shot(self, place: int, number: int, rng: np.random.Generator) -> Picture:
        clean = to_image(self.base.picture(place, rng))
        return to_picture(self.shift(clean, self.settings[number], rng))


@dataclass(frozen=True)
class Files:
    """Captures that a dataset brings: for each picture one per kept setting."""

    loads: Sequence[Sequence[Callable[[], Picture]]]

    def __len__(self) -> int:
        return min(map(len, self.loads), default=0)

    def shot(self, place: int, number: int, rng: np.random.Generator) -> Picture:
        return self.loads[place][number]()


def settings(split: str = "val") -> list[es_grid.Params]:
    """Return the manual settings of a published split with the lamp on and off; automatic exposure is not trained on."""
    return [params for light in es_grid.LIGHTS for params in es_grid.manual(split, light)]


def simulated(base: Pictures, kept: Sequence[Stop], shift: str = "camera") -> Simulated:
    """Return the captures of pictures by a simulated camera at the kept settings."""
    return Simulated(base, tuple(kept), core.shift(shift))


def originals(samples: Sequence[Sample]) -> list[Sample]:
    """Return those samples that came unshifted: of ImageNet-ES, the reference pictures."""
    return [sample for sample in samples if sample.shift == CLEAN]


def captured_files(base: Pictures, samples: Sequence[Sample], kept: Sequence[Mapping[str, object]]) -> Files:
    """Return the captures among the samples of a source (``imagenet_es:PATH/es-val``) at the kept settings, matched by id.

    Every picture must be there at every kept setting.
    """
    wanted = {Setting(None, params).canonical: number for number, params in enumerate(kept)}
    found: dict[str, dict[int, Callable[[], Picture]]] = {}
    for sample in samples:
        number = wanted.get(sample.setting.canonical) if sample.shift != CLEAN else None
        if number is not None:
            found.setdefault(sample.id, {})[number] = sample.load
    lost = [base.id(place) for place in range(len(base)) if len(found.get(base.id(place), ())) < len(wanted)]
    if lost:
        raise SoritesError(
            f"{len(lost)} of {len(base)} pictures were not captured at all of the {len(wanted)} kept settings, first {lost[0]} "
            f"(at {len(found.get(lost[0], ()))}). Wanted a part of ImageNet-ES with captures, such as imagenet_es:PATH/es-val."
        )
    return Files([[found[base.id(place)][number] for number in range(len(wanted))] for place in range(len(base))])

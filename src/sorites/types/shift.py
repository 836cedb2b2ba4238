"""A shift: what moves pictures along a dial, or to the settings of a grid."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from sorites.types.pictures import Image, Setting

Stop = float | Mapping[str, Any]
"""A place that a shift is asked to go to: a severity on its dial, or the params of one setting of its grid."""

ShiftResult = Image | tuple[Image, Mapping[str, Any]]
"""The result of a shift at one stop: an image, or an image together with the params that the shift itself chose for it (an
automatic exposure, a drawn direction). Chosen params are recorded with the setting's params; they are no part of the request."""

Apply = Callable[[Image, Any, np.random.Generator], ShiftResult]
Sweep = Callable[[Image, Sequence[Any], np.random.Generator], Iterable[ShiftResult]]
AnySweep = TypeVar("AnySweep", bound=Sweep)


@dataclass(eq=False)
class Shift:
    """A shift moves pictures. It is a dial, whose severity is a float in ``unit`` with 0 = untouched and ``levels`` the published
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
            came = f"{moved.shape} of {moved.dtype}" if isinstance(moved, np.ndarray) else type(moved).__name__
            raise TypeError(f"the shift {self.name} gave {came}; wanted an image of {image.shape}, floats from 0 to 1")

    def sweeper(self, together: AnySweep) -> AnySweep:
        """Register, as a decorator, a faster way to make many stops of one image; it must equal making them one at a time.

        Per stop it yields an image, or an image and the params it chose for that image.
        """
        self._sweep = together
        return together


def _copy(rng: np.random.Generator) -> np.random.Generator:
    """Return a generator that draws the same from here on, in a tenth of the time that ``copy.deepcopy`` takes."""
    bits = rng.bit_generator
    made: np.random.BitGenerator = type(bits)(0)
    made.state = bits.state
    return np.random.Generator(made)

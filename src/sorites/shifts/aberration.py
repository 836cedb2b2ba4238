"""The four OpticsBench shifts: a lens that is out of shape, by published levels and anything between.

Each shift is a pair of Zernike modes; a sample draws one of the two and keeps it at every severity.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

import numpy as np

from sorites.core import SHIFTS, Image, Shift
from sorites.errors import SoritesError
from sorites.optics.convolve import Kernel, Padding
from sorites.optics.convolve import sweep as convolve
from sorites.shifts._dial import check
from sorites.shifts._kernels import LEVELS, NAMES, PAIRS, Colours, Kernels, choose, default

Aberrated = tuple[Image, Mapping[str, Any]]
"""A picture and the Zernike mode that was drawn for it."""


def drawn(pair: tuple[int, int], rng: np.random.Generator) -> int:
    """Draw the mode of the pair that this sample gets."""
    return pair[int(rng.integers(2))]


def aberration(name: str, kernels: Kernels, padding: Padding) -> Shift:
    """Return the shift ``name`` with these kernels; the version of the kernels is its version."""
    pair = PAIRS[name]

    @functools.lru_cache(maxsize=64)
    def kernel(mode: int, severity: float) -> Kernel:
        return Kernel(kernels.taps(mode, severity))

    def together(image: Image, severities: Sequence[float], rng: np.random.Generator) -> Iterator[Aberrated]:
        check(name, severities, LEVELS[-1], "levels")
        mode = drawn(pair, rng)
        for blurred in convolve(image, [kernel(mode, float(severity)) for severity in severities], padding):
            yield np.clip(blurred, 0, 1, out=np.empty(image.shape, np.float32)), {"zernike": mode}

    def apply(image: Image, severity: float, rng: np.random.Generator) -> Aberrated:
        return next(together(image, [severity], rng))

    about = f"Blur by a lens aberration: {NAMES[pair[0]]} or {NAMES[pair[1]]}; each sample draws one of the two (OpticsBench)."
    stops = tuple(map(float, LEVELS))
    shift = Shift(name, apply, "optics", "levels", stops, version=kernels.version, about=about)
    shift.configure = functools.partial(configure, name)
    shift.sweeper(together)
    return shift


def configure(
    name: str,
    *,
    kernels: str | None = None,
    padding: Padding = "zeros",
    colours: Colours = "rgb",
    centre: bool = True,
    scaled: float = 1.0,
) -> Shift:
    """Return the shift with some of its options changed.

    ``kernels`` names a file with a published stack to use instead of ours. ``padding`` says what lies beyond the border:
    ``zeros`` as published, or ``reflect``. ``colours`` is ``rgb``, or ``rg`` for the magenta and green variant. ``centre``
    puts the centre of mass of each kernel on its middle; ``False`` leaves coma off centre, as the first release did.
    ``scaled`` shrinks the kernels so many times, for pictures that are smaller than the published 224 px.
    """
    if padding not in get_args(Padding) or colours not in get_args(Colours):
        raise SoritesError(f"{name}: wanted padding zeros or reflect and colours rgb or rg, got {padding!r} and {colours!r}")
    return aberration(name, choose(name, kernels=kernels, colours=colours, centre=centre, scaled=scaled), padding)


for _name in PAIRS:
    SHIFTS.add(_name, aberration(_name, default(), "zeros"))

"""The four OpticsBench shifts: a lens that is out of shape, by published levels and anything between.

Each is a pair of Zernike modes of which a sample gets one, by its own draw, at every severity.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np

from sorites.core import SHIFTS, Image, Shift
from sorites.errors import SoritesError
from sorites.optics.convolve import Kernel, Padding
from sorites.optics.convolve import sweep as convolve
from sorites.shifts._dial import check
from sorites.shifts._kernels import LEVELS, NAMES, PAIRS, RG, RGB, Kernels, Modelled, default, load

Colours = Literal["rgb", "rg"]


def drawn(pair: tuple[int, int], rng: np.random.Generator) -> int:
    """The mode of the pair that this sample gets."""
    return pair[int(rng.integers(2))]


def aberration(name: str, held: Kernels, padding: Padding) -> Shift:
    """The shift ``name`` with these kernels; the kernels' own version is part of its version."""
    pair = PAIRS[name]

    @functools.lru_cache(maxsize=64)
    def kernel(mode: int, severity: float) -> Kernel:
        return Kernel(held.taps(mode, severity))

    def together(image: Image, severities: Sequence[float], rng: np.random.Generator) -> Iterator[Image]:
        check(name, severities, LEVELS[-1], "levels")
        mode = drawn(pair, rng)
        for blurred in convolve(image, [kernel(mode, float(severity)) for severity in severities], padding):
            yield np.clip(blurred, 0, 1, out=np.empty(image.shape, np.float32))

    def apply(image: Image, severity: float, rng: np.random.Generator) -> Image:
        return next(together(image, [severity], rng))

    def told(image: Image, severity: float, rng: np.random.Generator) -> Mapping[str, Any]:
        return {"zernike": drawn(pair, rng)}

    about = f"Lens blur: {NAMES[pair[0]]} or {NAMES[pair[1]]}, by the sample's draw (OpticsBench)."
    stops = tuple(map(float, LEVELS))
    made = Shift(name, apply, "optics", "levels", stops, version=held.version, about=about, told=told)
    made.configure = functools.partial(configure, name)
    made.sweeper(together)
    return made


def configure(
    name: str, *, kernels: str | None = None, padding: Padding = "zeros", colours: Colours = "rgb", centre: bool = True
) -> Shift:
    """The shift with other options.

    ``kernels``: a file with a published stack, instead of our own. ``padding``: what lies beyond the border, ``zeros`` as
    published or ``reflect``. ``colours``: ``rgb``, or ``rg`` for the magenta and green variant. ``centre``: whether the
    centre of mass of each kernel is put on its middle; ``False`` leaves coma off centre, as the first release did.
    """
    if padding not in get_args(Padding) or colours not in get_args(Colours):
        raise SoritesError(f"{name}: wanted padding zeros or reflect and colours rgb or rg, got {padding!r} and {colours!r}")
    if kernels is not None and (colours != "rgb" or not centre):
        raise SoritesError(f"{name}: kernels from a file are taken as they are; leave out colours and centre")
    if kernels is not None:
        held: Kernels = load(kernels)
    elif colours == "rgb" and centre:
        held = default()
    else:
        held = Modelled(RG if colours == "rg" else RGB, centre)
    return aberration(name, held, padding)


for _name in PAIRS:
    SHIFTS.add(_name, aberration(_name, default(), "zeros"))

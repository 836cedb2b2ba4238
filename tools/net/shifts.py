"""Every shift at every stop, together and alone, as it stands and with its options."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sorites import core
from sorites.core import SHIFTS, Image, Shift, Stop, to_image
from sorites.core.rng import rng_for
from tools.net.hashes import Entry, of_array, of_plain
from tools.net.home import Task
from tools.net.pictures import three

FEW = 6
"""Settings of a grid that the larger pictures are shown at; the smallest is shown at all of them."""
STACK = "stack.npy"
ABERRATION = ({"padding": "reflect"}, {"colours": "rg"}, {"centre": False}, {"kernels": STACK})
TOLERANCE = ({"field": 0.0}, {"padding": "zeros"})
OPTIONS: Mapping[str, tuple[dict[str, Any], ...]] = {
    **dict.fromkeys(("astigmatism", "coma", "defocus_spherical", "trefoil"), ABERRATION),
    **dict.fromkeys(("decentre", "tilt", "spacing"), TOLERANCE),
    "camera": (
        {"grid": "test"},
        {"mosaic": True},
        {"camera": {"full_well_e": 20000.0, "contrast": 0.1}},
        {"studio": {"gamma": 2.0, "confusion_um": 9.0, "quality": 70}},
    ),
    "lens": ({"padding": "zeros"},),
    "lens_whole": ({"corner": 0.5},),
}
"""Alternatives to the options' defaults, each on its own.

Options that name a traced folder stand in ``optics``.
"""


def tasks() -> list[Task]:
    return [Task((f"shifts/{name}",), functools.partial(digests, name)) for name in SHIFTS.names()]


def digests(name: str) -> Iterator[Entry]:
    if {"kernels": STACK} in OPTIONS.get(name, ()):
        write_stack(Path(STACK))
    for options in ({}, *OPTIONS.get(name, ())):
        called = "as it is" if not options else ", ".join(f"{key}={value}" for key, value in options.items())
        yield from of_shift(core.shift(name, **options), f"shifts/{name}/{called}")


def write_stack(path: Path) -> None:
    """Kernels of a made-up lens in the published shape: mode, level, colour, y, x."""
    taps = np.random.default_rng(5).random((8, 5, 3, 25, 25)) ** 8
    np.save(path, (taps / taps.sum((-2, -1), keepdims=True)).astype(np.float32))


def of_shift(shift: Shift, called: str) -> Iterator[Entry]:
    """What it says of itself, and what it makes of three pictures: in one sweep, and stop by stop.

    A picture that it cannot take is told as such.
    """
    facts = (shift.family, shift.unit, shift.levels, shift.settings, shift.version)
    yield f"{called}/facts", of_plain(facts)
    for which, picture in three().items():
        image, stops = to_image(picture), stops_of(shift, everywhere=which == "odd")
        draw = functools.partial(rng_for, 0, f"net/{which}", shift.name)
        try:
            together = [of_array(made) for made in shift.sweep(image, stops, draw())]
        except Exception as error:
            yield f"{called}/{which}", f"raised {type(error).__name__}"
            continue
        for stop, seen in zip(stops, together, strict=True):
            at = f"{called}/{which}/{shift.setting(stop).canonical}"
            yield at, seen
            if isinstance(stop, Mapping) and stop not in stops_of(shift, everywhere=False):
                continue
            yield f"{at}/alone", of_array(shift(image, stop, draw()))
            if stop != 0 and (told := chosen(shift, image, stop, draw())):
                yield f"{at}/chosen", of_plain(told)


def chosen(shift: Shift, image: Image, stop: Stop, rng: np.random.Generator) -> Mapping[str, Any]:
    """What the shift itself chose for a picture, an automatic exposure say; asked by the name it
    has now or had before.
    """
    ask: Any = getattr(shift, "chosen_params", None) or getattr(shift, "told", None)
    return ask(image, stop, rng) if ask else {}


def stops_of(shift: Shift, everywhere: bool) -> list[Stop]:
    """Untouched, each level, half of the first and between the last two; or settings of a grid, all
    or some spread over it.
    """
    if shift.levels:
        *others, last = shift.levels
        return [0.0, others[0] / 2, *others, (others[-1] + last) / 2, last]
    some = (
        range(len(shift.settings))
        if everywhere
        else np.linspace(0, len(shift.settings) - 1, FEW).round().astype(int)
    )
    return [shift.settings[int(i)] for i in some]

"""Every shift at every setting, together and alone, as it stands and with its options."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sorites import core
from sorites.core import SHIFTS, ImageF32, SettingValue, Shift, to_float
from sorites.core.rng import rng_for
from tools.net.hashes import Entry, of_array, of_plain
from tools.net.home import Task
from tools.net.images import three

FEW = 6
"""Settings of a grid that the larger images are shown at; the smallest is shown at all of them."""
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
    """What it says of itself, and what it makes of three images: in one sweep, and stop by stop.

    An image that it cannot take is told as such.
    """
    facts = (shift.family, shift.unit, shift.levels, shift.settings, shift.version)
    yield f"{called}/facts", of_plain(facts)
    for which, image_u8 in three().items():
        image, settings = to_float(image_u8), settings_of(shift, everywhere=which == "odd")
        draw = functools.partial(rng_for, 0, f"net/{which}", shift.name)
        try:
            together = [of_array(made) for made in shift.sweep(image, settings, draw())]
        except Exception as error:
            yield f"{called}/{which}", f"raised {type(error).__name__}"
            continue
        for setting, seen in zip(settings, together, strict=True):
            at = f"{called}/{which}/{shift.setting(setting).canonical}"
            yield at, seen
            if isinstance(setting, Mapping) and setting not in settings_of(shift, everywhere=False):
                continue
            yield f"{at}/alone", of_array(shift(image, setting, draw()))
            if setting != 0 and (told := chosen(shift, image, setting, draw())):
                yield f"{at}/chosen", of_plain(told)


def chosen(
    shift: Shift, image: ImageF32, setting: SettingValue, rng: np.random.Generator
) -> Mapping[str, Any]:
    """What the shift itself chose for an image, an automatic exposure say; asked by the name it
    has now or had before.
    """
    ask: Any = getattr(shift, "chosen_params", None) or getattr(shift, "told", None)
    return ask(image, setting, rng) if ask else {}


def settings_of(shift: Shift, everywhere: bool) -> list[SettingValue]:
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

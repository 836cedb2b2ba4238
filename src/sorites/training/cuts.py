"""Choose the camera settings to train on: those whose captures stay near their originals by mean LPIPS.

ImageNet-ES leaves out a setting whose LPIPS (AlexNet), averaged over its captures, is not below the cut: 0.8, and 0.6 and 1.0 in
its Table 6. ``published_settings`` are those that the authors keep at these cuts; ``mean_lpips`` measures any captures.

LPIPS's weights were fitted on patches of 64 px, and at 32 px AlexNet's deepest layers see a single place. Smaller pictures are
therefore enlarged (bicubic, original and capture alike) until their shorter side has 64 px; larger ones are left as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from PIL import Image as Pillow

from sorites import es_grid
from sorites.core import Picture, measure
from sorites.errors import SoritesError
from sorites.files import cache, cached
from sorites.rng import digest, rng_for
from sorites.training.captures import Shots, Simulated
from sorites.training.pictures import Pictures

LEFT_OUT: Mapping[float, Mapping[str, frozenset[int]]] = {
    0.6: {
        "on": frozenset((1, 2, 3, 4, 7, 8, 12, 13, 18, 19, 20, 24, 29, 30, 35, 36, 40, 41, 45, 46, 47, 51, 52, 57, 58, 61, 62, 63,
                         64)),
        "off": frozenset((2, 3, 4, 7, 8, 13, 14, 19, 20, 24, 25, 29, 30, 31, 35, 36, 41, 42, 45, 46, 47, 48, 52, 53, 57, 58, 59,
                          61, 62, 63, 64)),
    },
    0.8: {
        "on": frozenset((3, 4, 8, 19, 20, 29, 36, 45, 46, 57, 61, 62, 63)),
        "off": frozenset((3, 4, 13, 20, 29, 30, 41, 45, 46, 47, 57, 58, 61, 62, 63, 64)),
    },
    1.0: {"on": frozenset((45, 61, 62)), "off": frozenset((29, 45, 46, 57, 61, 62, 63))},
}  # fmt: skip
"""The validation settings, 1 to 64, that each published cut leaves out by light; the paper's results are with 0.8."""

SIDE = 64
"""The px of the shorter side that pictures are enlarged to before LPIPS: the size that its weights were fitted at."""

T = TypeVar("T")


def kept(settings: Sequence[T], means: Sequence[float], cut: float) -> list[T]:
    """Return the settings whose mean LPIPS is below the cut."""
    if len(settings) != len(means):
        raise SoritesError(f"wanted a mean LPIPS for each of {len(settings)} settings, got {len(means)}.")
    if not cut > 0:
        raise SoritesError(f"wanted a cut of LPIPS above 0, such as 0.8, got {cut}.")
    near = [setting for setting, mean in zip(settings, means, strict=True) if mean < cut]
    if not near:
        raise SoritesError(f"no setting has a mean LPIPS below {cut}; the lowest has {min(means):.2f}.")
    return near


def mean_lpips(base: Pictures, shots: Shots, count: int, seed: int = 0) -> list[float]:
    """Return the mean LPIPS per setting over ``count`` pictures, which are chosen by the hash of their ids with the seed.

    Means of simulated captures follow from the pictures and the shift alone; they are kept in the user's cache, so that a
    training that goes on does not measure them again.
    """
    order = sorted(range(len(base)), key=lambda place: digest("lpips", seed, base.id(place)))[:count]
    if not order:
        raise SoritesError("wanted at least one picture to measure LPIPS on.")

    def measured() -> list[float]:
        values = np.array([_lpips(base, shots, place, seed) for place in order])
        return [float(mean) for mean in values.mean(axis=0)]

    if not isinstance(shots, Simulated):
        return measured()
    shift, spelled = shots.shift, json.dumps(list(map(str, shots.settings)))
    contents = [base.picture(place, rng_for(seed, base.id(place), "lpips")).tobytes() for place in order]
    key = digest(measure("lpips").version, SIDE, seed, shift.name, shift.version, shift.options, spelled, *contents)
    return cached(cache("lpips", f"{key.hex()}.json"), lambda: json.dumps(measured()).encode(), _read)


def _read(path: Path) -> list[float]:
    return [float(mean) for mean in json.loads(path.read_bytes())]


def _lpips(base: Pictures, shots: Shots, place: int, seed: int) -> list[float]:
    """Return the LPIPS of a picture's captures; every capture gets the same draws, as in a sweep."""
    lpips, id_ = measure("lpips_linear"), base.id(place)
    clean = enlarged(base.picture(place, rng_for(seed, id_, "lpips")))
    taken = (shots.shot(place, number, rng_for(seed, id_, "lpips")) for number in range(len(shots)))
    return [lpips(clean, enlarged(shot)) for shot in taken]


def enlarged(picture: Picture, side: int = SIDE) -> Picture:
    """Return a picture whose shorter side has at least ``side`` px: bicubic if it was smaller, else the picture itself."""
    height, width = picture.shape[:2]
    if min(height, width) >= side:
        return picture
    scale = side / min(height, width)
    larger = Pillow.fromarray(picture).resize((round(width * scale), round(height * scale)), Pillow.Resampling.BICUBIC)
    return np.asarray(larger)


def published_settings(cut: float) -> list[es_grid.Params]:
    """Return the manual validation settings that the authors keep at one of their cuts, with the lamp on and off."""
    if cut not in LEFT_OUT:
        told = ", ".join(map(str, LEFT_OUT))
        raise SoritesError(
            f"the settings of a cut are published for {told}, not for {cut}. For another cut, say on how many pictures to "
            "measure LPIPS: captures.measured_on = 50"
        )
    return [
        params
        for light in es_grid.LIGHTS
        for number, params in enumerate(es_grid.manual("val", light), start=1)
        if number not in LEFT_OUT[cut][light]
    ]

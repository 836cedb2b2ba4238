"""Functions that no verb reaches, found by their names wherever in the package they stand."""

from __future__ import annotations

import contextlib
import importlib
import math
import pkgutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

import sorites
from sorites.core import shift, to_float, to_uint8
from sorites.core.rng import rng_for
from tools.net.hashes import Entry, of_answer, of_array, of_plain
from tools.net.home import Task
from tools.net.images import scene

VOTES = ("class_text", "shift_text", "joint_image", "own_image")


def tasks() -> list[Task]:
    parts = {"out_of_class": out_of_class, "haze": haze, "syn_is": syn_is, "optics": optics}
    return [Task((f"library/{name}",), make) for name, make in parts.items()]


def home_of(*names: str) -> Any:
    """The module that has all these functions as its own, else one that has them at all; an error
    where none has, so that a lost function is seen.
    """
    having = []
    for found in pkgutil.walk_packages(sorites.__path__, "sorites."):
        if found.name.endswith("__main__"):  # its import would be a command
            continue
        with contextlib.suppress(ImportError):
            module = importlib.import_module(found.name)
            if all(getattr(getattr(module, name, None), "__module__", None) == found.name for name in names):
                return module
            having += [module] if all(callable(getattr(module, name, None)) for name in names) else []
    if not having:
        raise LookupError(f"no module has {', '.join(names)}")
    return having[0]


def out_of_class() -> Iterator[Entry]:
    """The filter of images that lost their class."""
    held = home_of("similarities", "calibrate", "is_kept", "quality", "stages")
    rng = np.random.default_rng(4)
    outside = rng.random(300) < 0.3
    scores = {vote: rng.normal(1.5, 1, 300) - 2.5 * outside for vote in VOTES}
    frame = pl.DataFrame(
        {
            **scores,
            "outside": outside,
            "image_id": [f"i{k}" for k in range(300)],
            "severity": rng.integers(0, 5, 300),
        }
    )
    found = held.calibrate(frame)
    yield "library/out_of_class/thresholds", of_plain(found)
    yield from of_answer(held.quality(frame), "library/out_of_class/published")
    yield from of_answer(held.quality(frame, found), "library/out_of_class/quality")
    for rule in ("paper", "code", "text"):
        valid = held.is_kept(frame, found, rule)
        yield f"library/out_of_class/{rule}", of_plain(valid.to_list())
        yield from of_answer(held.facts(frame, valid, "severity"), f"library/out_of_class/{rule}/whole")
    kept = frame.with_columns(valid=held.is_kept(frame, found))
    yield from of_answer(held.stages(kept, ["outside", "valid"]), "library/out_of_class/stages")
    images, untouched = [scene(i) for i in range(4)], [scene(i + 1) for i in range(4)]
    texts = (
        ["a cat", "a dog", "a hen", "a fish"],
        ["a cat in snow", "a dog in snow", "a hen in snow", "a fish in snow"],
    )

    def seen(some: list[np.ndarray]) -> np.ndarray:
        return np.stack([np.resize(image[::20, ::20] / 255 - 0.5, 24) for image in some])

    def said(some: list[str]) -> np.ndarray:
        return np.stack([np.sin(np.arange(24) * len(text)) for text in some])

    for soft in (False, True):
        found = held.similarities(images, untouched, texts, (seen, said), seen, soft)
        yield from of_answer(found, f"library/out_of_class/similarities/{soft}")


def haze() -> Iterator[Entry]:
    """The optical depth that an image gained."""
    held, before = home_of("haze_depth"), scene(3, 120, 160)
    for name in ("haze", "smog", "snowfall", "contrast"):
        dial = shift(name)
        moved = to_uint8(dial(to_float(before), dial.levels[2], rng_for(0, "net", name)))
        yield f"library/haze/{name}", of_plain(held.haze_depth(before, moved))


def syn_is() -> Iterator[Entry]:
    """The styles and prompts of Syn-IS."""
    held = home_of("prompts", "styles")
    yield "library/syn_is/styles", of_plain(held.styles())
    yield "library/syn_is/prompts", of_plain(list(held.prompts(["cat", "dog"])))


def optics() -> Iterator[Entry]:
    """Sharpness of a kernel and the wavefronts of Zernike's modes."""
    sharp, waves = home_of("sharpness", "encircled"), home_of("radial", "zernike", "wavefront")
    y, x = np.mgrid[-12:13, -12:13]
    taps = np.exp(-(x**2 / 8 + (y - 1) ** 2 / 18))
    taps /= taps.sum()
    yield "library/optics/mtf", of_array(sharp.mtf(taps))
    yield "library/optics/sharpness", of_plain(sharp.sharpness(taps, math.pi / 4))
    yield "library/optics/encircled", of_plain([sharp.encircled(taps, radius) for radius in (1.0, 2.5, 6.0)])
    rho, theta = np.hypot(x, y) / 12, np.arctan2(y, x)
    for mode in range(4, 12):
        yield f"library/optics/wavefront {mode}", of_array(waves.wavefront({mode: 0.7}, rho, theta))
        yield f"library/optics/rms {mode}", of_plain(waves.wavefront_rms({mode: 0.7}))

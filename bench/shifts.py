"""Each common corruption against the package ``imagecorruptions``: CPU time over the five levels of
a 224 x 224 image.
"""

from __future__ import annotations

import contextlib
import importlib.resources
import io
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator

import numpy as np

from sorites.core import SHIFTS, ImageF32, ImageU8, Shift, to_float, to_uint8
from sorites.core.rng import rng_for

Corrupt = Callable[[ImageU8, str, int], ImageU8]
NAMES = {"defocus_disk": "defocus_blur", "jpeg": "jpeg_compression"}
"""Where our name is not the published one."""


def peer() -> Corrupt | None:
    """``corrupt(image, name, level)`` of imagecorruptions 1.1.2, or None where that or OpenCV or
    scikit-image is absent.

    The package stands still while its dependencies moved on: it asks for modules and names that
    NumPy 2, SciPy 1.15, scikit-image 0.21 and setuptools 81 no longer have. They are lent to it
    here; its own code runs unchanged.
    """
    with _lent_modules(), warnings.catch_warnings(action="ignore"):
        try:
            from imagecorruptions import corruptions
        except ImportError:
            return None
    gaussian = corruptions.gaussian

    def old_gaussian(
        image: ImageF32, *args: object, multichannel: bool = False, **options: object
    ) -> ImageF32:
        return gaussian(image, *args, channel_axis=-1 if multichannel else None, **options)

    corruptions.gaussian = old_gaussian
    corruptions.np = types.SimpleNamespace(**vars(np), float_=np.float64)
    return lambda image_u8, name, level: _corrupt(corruptions, image_u8, NAMES.get(name, name), level)


def _corrupt(corruptions: types.ModuleType, image: ImageU8, name: str, level: int) -> ImageU8:
    from PIL import Image as pil

    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"):
        return np.asarray(np.uint8(np.asarray(getattr(corruptions, name)(pil.fromarray(image), level))))


@contextlib.contextmanager
def _lent_modules() -> Iterator[None]:
    from scipy import ndimage

    old_ndimage = types.ModuleType("scipy.ndimage.interpolation")
    old_ndimage.map_coordinates = ndimage.map_coordinates  # type: ignore[attr-defined]
    resources = types.ModuleType("pkg_resources")
    resources.resource_filename = lambda _, path: str(
        importlib.resources.files("imagecorruptions").joinpath(path)
    )  # type: ignore[attr-defined]
    lent = {"scipy.ndimage.interpolation": old_ndimage, "pkg_resources": resources}
    before = {name: sys.modules[name] for name in lent if name in sys.modules}
    sys.modules.update(lent)
    try:
        yield
    finally:
        for name in lent:
            del sys.modules[name]
        sys.modules.update(before)


def scene(side: int = 224, seed: int = 0) -> ImageF32:
    """Leaves fallen on one another under uneven light: edges, flat parts and fine texture, at 8 bits."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side].astype(np.float32)
    made = np.full((side, side, 3), 0.5, np.float32)
    for _ in range(120):
        leaf = np.hypot(y - rng.uniform(0, side), x - rng.uniform(0, side)) < 0.03 * side / rng.uniform(
            0.1, 1
        )
        made[leaf] = rng.uniform(0.05, 0.95, 3) * (0.8 + 0.2 * rng.random((int(leaf.sum()), 1)))
    return to_float(to_uint8(made * (0.7 + 0.3 * x / side)[..., None]))


def _ours(shift: Shift, image: ImageF32) -> float:
    """CPU seconds an image, float32 in and out: the quickest of some sweeps over the published levels."""
    times = []
    for turn in range(6):
        start = time.process_time()
        for _ in shift.sweep(image, shift.levels, rng_for(0, str(turn), shift.name)):
            pass
        times.append((time.process_time() - start) / len(shift.levels))
    return min(times)


def _theirs(corrupt: Corrupt, name: str, image: ImageF32) -> float:
    """CPU seconds an image, called as a shift: float32 in and out too, its own 8 bits between."""
    times = []
    for _ in range(1 if name == "glass_blur" else 3):
        start = time.process_time()
        for level in range(1, 6):
            to_float(corrupt(to_uint8(image), name, level))
        times.append((time.process_time() - start) / 5)
    return min(times)


def run() -> list[tuple[str, float, str]]:
    """Per corruption how many times faster than the peer, or ms an image where there is no peer;
    then the median.
    """
    image, corrupt = scene(), peer()
    rows, ratios = [], []
    for shift in map(SHIFTS.get, SHIFTS.names()):
        if not shift.levels:
            continue
        name, ours = shift.name, _ours(shift, image)
        if corrupt is None or not _peer_has(name):
            rows.append((f"{name}, per image", ours * 1e3, "ms"))
            continue
        ratios.append(_theirs(corrupt, name, image) / ours)
        rows.append((f"{name} ({ours * 1e3:.2f} ms) against imagecorruptions", ratios[-1], "x"))
    if ratios:
        rows.append(
            ("median over the common corruptions against imagecorruptions", float(np.median(ratios)), "x")
        )
    return rows


def _peer_has(name: str) -> bool:
    from imagecorruptions import corruptions

    return hasattr(corruptions, NAMES.get(name, name))


if __name__ == "__main__":
    for label, value, unit in run():
        print(f"{label:70} {value:8.2f} {unit}")

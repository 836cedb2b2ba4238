"""Blurring one 224 x 224 image by twenty kernels on one core, against OpenCV, torch and the bare
inverse FFT.

The four aberrations are swept over their five levels through their public shifts, a new image and
new draws every time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from bench._timing import in_turns
from sorites import core
from sorites.core.rng import rng_for
from sorites.optics.convolve import Kernel, sweep

ROUNDS = 15
Array = NDArray[np.float32]


def _seconds(*works: Callable[[], object]) -> list[float]:
    """CPU seconds of each work, the least of its rounds, so that neighbours on the machine count least."""
    for work in works:
        work()
    return [min(seconds) for seconds in in_turns(ROUNDS, time.process_time, *works)]


def _blur(images: list[Array], kernels: list[Kernel]) -> None:
    for image in images:
        for _ in sweep(image, kernels, "zeros"):
            pass


def _public(images: list[Array]) -> Callable[[], object]:
    """The four aberrations of a new image, as a user asks for them."""
    shifts, turns = (
        [core.shift(name) for name in ("astigmatism", "coma", "defocus_spherical", "trefoil")],
        count(),
    )

    def work() -> None:
        turn = next(turns)
        for shift in shifts:
            for _ in shift.sweep(images[turn % len(images)], shift.levels, rng_for(0, str(turn), shift.name)):
                pass

    return work


def _bare(kernels: int) -> Callable[[], object]:
    """As many inverse FFTs of a 240 x 240 x 3 spectrum: what no method of this kind can do without."""
    spectrum = fft.rfft2(np.random.default_rng(0).random((3, 240, 240), dtype=np.float32))
    return lambda: [fft.irfft2(spectrum, s=(240, 240)) for _ in range(kernels)]


def _opencv(image: Array, taps: Array) -> Callable[[], object]:
    import cv2

    cv2.setNumThreads(1)
    sets = taps.astype(np.float32)

    def one(kernel: Array) -> object:
        return cv2.merge([cv2.filter2D(p, -1, k) for p, k in zip(cv2.split(image), kernel, strict=True)])

    return lambda: [one(kernel) for kernel in sets]


def _torch(image: Array, taps: Array) -> Callable[[], object]:
    import torch

    torch.set_num_threads(1)
    image_u8 = torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))[None]
    weight = torch.from_numpy(taps.astype(np.float32))[:, None]
    return lambda: torch.nn.functional.conv2d(image_u8, weight, padding="same", groups=3)


def run() -> list[tuple[str, float, str]]:
    rng = np.random.default_rng(0)
    images = [rng.random((224, 224, 3), dtype=np.float32) for _ in range(4)]
    taps = rng.random((20, 3, 25, 25))
    small, large = ([Kernel(rng.random((3, side, side))) for _ in range(20)] for side in (25, 65))
    ours, bare, opencv, wide, four, torch_one, public = _seconds(
        lambda: _blur(images[:1], small),
        _bare(20),
        _opencv(images[0], taps),
        lambda: _blur(images[:1], large),
        lambda: _blur(images, small),
        _torch(images[0], taps[0]),
        _public(images),
    )
    return [
        ("twenty kernels: over cv2.filter2D", opencv / ours, f"aim >= 7; {20 / ours:.0f} images/s"),
        ("twenty kernels: over torch conv2d with groups", 20 * torch_one / ours, "aim >= 100"),
        ("twenty kernels: share of the bare inverse-FFT rate", bare / ours, "aim >= 0.8"),
        (
            "four aberrations by their shifts: share of the bare inverse-FFT rate",
            bare / public,
            f"aim >= 0.75; {20 / public:.0f}/s",
        ),
        ("four aberrations by their shifts: over cv2.filter2D", opencv / public, ""),
        ("kernels of 65 px over kernels of 25 px: time", wide / ours, "aim: about 1"),
        ("four images over one: time", four / ours, "aim: about 4"),
    ]

"""The PSF of a lens at 256 x 256 points from the same rays, against optiland's Huygens sum; and
what a whole lens costs.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

SIZE, RAYS = 256, 64
LEFT_OUT = "TelescopeObjective48Inch"
"""A lens that takes more than half as long as all others together: one process would wait for the
one that has it.
"""


def _psfs() -> tuple[float, float]:
    """CPU seconds of one PSF, theirs and ours, both with their rays traced; theirs compiled before."""
    from optiland.psf import HuygensPSF

    from sorites.optics.tracing.assembly import objective
    from sorites.optics.tracing.blur import psf
    from sorites.optics.tracing.lens import D_LINE_UM
    from sorites.optics.tracing.rays import beams, trace

    lens = objective("CookeTriplet")
    angle = 0.7 * lens.field_deg
    box = beams(lens, [angle], 90.0, D_LINE_UM)[0]
    HuygensPSF(lens.optic, (0, 0.7), D_LINE_UM, num_rays=8, image_size=8, pixel_pitch=1e-3)
    start = time.process_time()
    HuygensPSF(lens.optic, (0, 0.7), D_LINE_UM, num_rays=RAYS, image_size=SIZE, pixel_pitch=1e-3)
    theirs = time.process_time() - start
    ours = []
    for _ in range(5):
        start = time.process_time()
        psf(trace(lens, angle, D_LINE_UM, RAYS, box), D_LINE_UM, SIZE)
        ours.append(time.process_time() - start)
    return theirs, min(ours)


def _lenses() -> list[float]:
    """CPU seconds of whole lenses: 13 positions x 3 colours, focus, MTF, matching and fits."""
    from sorites.lenses.trace import trace_lens
    from sorites.optics.tracing.assembly import objective

    taken = []
    for name in ("DoubleGauss", "TessarLens", "ReverseTelephoto"):
        start = time.process_time()
        trace_lens(objective(name))
        taken.append(time.process_time() - start)
    return taken


def _import(processes: int) -> float:
    """Seconds on the clock until so many new processes have imported the ray tracer."""
    from sorites.lenses.trace import one_thread_each
    from sorites.optics.tracing.lens import tracer

    start = time.perf_counter()
    with one_thread_each(), ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        for done in [pool.submit(tracer) for _ in range(processes)]:
            done.exception()  # what it gives cannot be sent back, and need not
    return time.perf_counter() - start


def _batch(processes: int) -> float:
    """Seconds on the clock of all lenses but one in new processes, which import the ray tracer first."""
    from sorites.lenses.trace import one_thread_each, trace_all
    from sorites.optics.tracing.assembly import OBJECTIVES

    names = [name for name in OBJECTIVES if name != LEFT_OUT]
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        if processes == 1:
            with one_thread_each(), ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                pool.submit(trace_all, names, Path(folder), workers=1).result()
        else:
            trace_all(names, Path(folder), workers=processes)
        return time.perf_counter() - start


def _photo() -> tuple[float, float]:
    """CPU seconds of a 12-megapixel image: through a lens with the blur of every place, and by
    one kernel in one bare FFT.
    """
    from scipy import fft

    from sorites.datasets.lens_photo import through
    from sorites.lenses import store as lenses

    entry = lenses.load(lenses.builtin(), "CookeTriplet")
    image_u8 = np.random.default_rng(0).integers(0, 256, (3000, 4000, 3), dtype=np.uint8)
    kernel, image = entry.arrays["kernels"][0], np.moveaxis(image_u8.astype(np.float32), -1, 0).copy()
    size = [fft.next_fast_len(side + kernel.shape[-1] - 1, real=True) for side in image.shape[1:]]
    ours, bare = [], []
    for _ in range(3):
        start = time.process_time()
        through(entry, image_u8)
        ours.append(time.process_time() - start)
        start = time.process_time()
        fft.irfft2(fft.rfft2(image, size) * fft.rfft2(kernel, size), size)
        bare.append(time.process_time() - start)
    return min(ours), min(bare)


def run() -> list[tuple[str, float, str]]:
    from sorites.optics.tracing.lens import tracer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tracer()
        theirs, ours = _psfs()
        whole, one, two = _lenses(), _batch(1), _batch(2)
        alone, both = _import(1), _import(2)
    seen, bare = _photo()
    return [
        (
            f"a PSF of {SIZE} x {SIZE} from {RAYS} rays across: over Huygens",
            theirs / ours,
            f"aim >= 30; {1 / ours:.0f} PSFs/s",
        ),
        ("a whole lens, 39 PSFs: seconds of one core", float(np.mean(whole)), "aim <= 15"),
        ("fourteen lenses on one process: over two processes", one / two, "on the clock"),
        (
            "the same without the import of the ray tracer",
            (one - alone) / (two - both),
            f"aim >= 1.7; it takes {alone:.1f}, {both:.1f} s",
        ),
        (
            "12 megapixels by place: over one bare FFT convolution",
            seen / bare,
            f"aim <= 4; {seen:.1f} s of one core",
        ),
    ]

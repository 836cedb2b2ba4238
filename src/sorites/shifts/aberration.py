"""The four OpticsBench shifts: lens aberrations at the published levels and any severity in between.

Each shift is a pair of Zernike modes; a sample draws one of the two and keeps it at every severity.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from sorites.core import SHIFTS, ImageF32, Shift
from sorites.core.errors import MissingExtra, SoritesError
from sorites.core.rng import digest
from sorites.io.paths import is_file
from sorites.optics import convolve
from sorites.optics.convolve import Kernel, Library, Padding, check_library
from sorites.optics.develop import linear_from_srgb, to_display
from sorites.optics.psf import LINES_UM, RESIDUAL, Imager
from sorites.shifts.base import check

# Coefficients and kernels of the OpticsBench aberrations.
Array = NDArray[np.float64]
Colours = Literal["rgb", "rg"]
# Increase it whenever the default kernels change.
VERSION = 1

LEVELS = (1, 2, 3, 4, 5)
# The shape of a kernel stack: mode, level, colour, y, x.
SHAPE = (8, 5, 3, 25, 25)

# The factor by which kernels are scaled down for images of 32 px. The exact ratio to 224 px is 7; with 4,
# small models lose accuracy over the levels about as fast as large models do in the paper.
SMALL = 4

# The published peak coefficients in waves at each level, by Fringe index, in the order of a stack.
WAVES: dict[int, tuple[float, ...]] = {
    4: (0.7, 0.9, 1.3, 1.6, 2.1),
    5: (1.1, 1.5, 2.1, 3.0, 3.7),
    6: (1.1, 1.5, 2.2, 3.0, 3.8),
    7: (0.9, 1.3, 2.2, 2.9, 3.5),
    8: (0.9, 1.3, 2.2, 2.9, 3.5),
    9: (0.7, 0.9, 1.4, 2.0, 2.6),
    10: (0.9, 1.4, 2.2, 2.8, 3.3),
    11: (0.9, 1.4, 2.2, 2.8, 3.2),
}

NAMES = {
    4: "defocus",
    5: "vertical astigmatism",
    6: "oblique astigmatism",
    7: "horizontal coma",
    8: "vertical coma",
    9: "spherical",
    10: "oblique trefoil",
    11: "vertical trefoil",
}
PAIRS = {"defocus_spherical": (4, 9), "astigmatism": (5, 6), "coma": (7, 8), "trefoil": (10, 11)}
# Below this severity diffraction fades out as well, so that severity 0 is the unchanged image.
FADE = 0.25

RGB = Imager()
# The magenta and green variant: red and blue share one kernel. Its wavefront is fitted to the published one.
RG = Imager(
    wavelengths_um=(LINES_UM[2], LINES_UM[1], LINES_UM[2]),
    residual=({**RESIDUAL[2], 4: 0.3}, {**RESIDUAL[1], 4: -0.2}, {**RESIDUAL[2], 4: 0.3}),
)


class Kernels(Protocol):
    """A set of kernels: the taps (colour, y, x) of a mode at any severity from 0 to 5, and a version."""

    @property
    def version(self) -> str: ...
    def taps(self, mode: int, severity: float) -> Array: ...


@dataclass(frozen=True)
class Modelled:
    """Kernels from the optical model, with coefficients interpolated linearly between levels.

    Below level 1 the whole wavefront, including the residual, is scaled by the severity.
    """

    imager: Imager = RGB
    centre: bool = True

    @property
    def version(self) -> str:
        return f"{VERSION}"

    def taps(self, mode: int, severity: float) -> Array:
        waves = float(np.interp(severity, (0, *LEVELS), (0.0, *WAVES[mode])))
        kernel = self.imager.kernel({mode: waves}, residual=min(severity, 1.0), centre=self.centre)
        return _mix(point(kernel.shape), kernel, min(severity / FADE, 1.0))


@dataclass(frozen=True, eq=False)
class Stack:
    """Precomputed kernels of the five levels.

    Between levels, kernels come from ``between``, or are interpolated linearly; level 0 is the identity.
    """

    array: NDArray[np.float32]
    between: Kernels | None = None

    @property
    def version(self) -> str:
        return f"{VERSION}" if self.between else digest(self.array.tobytes()).hex()

    def taps(self, mode: int, severity: float) -> Array:
        levels = self.array[list(WAVES).index(mode)].astype(np.float64)
        low = math.floor(severity)
        if low == severity and low > 0:
            return np.asarray(levels[low - 1])
        if self.between is not None:
            return self.between.taps(mode, severity)
        return _mix(levels[low - 1] if low else point(levels[0].shape), levels[low], severity - low)


def point(shape: tuple[int, ...]) -> Array:
    """Return the identity kernel: one in the centre, zero elsewhere."""
    kernel = np.zeros(shape)
    kernel[..., shape[-2] // 2, shape[-1] // 2] = 1
    return kernel


def _mix(first: Array, second: Array, share: float) -> Array:
    return np.asarray((1 - share) * first + share * second)


def make(kernels: Kernels) -> NDArray[np.float32]:
    """Compute the stack of the eight modes at the five levels."""
    return np.array([[kernels.taps(mode, level) for level in LEVELS] for mode in WAVES], np.float32)


@functools.cache
def default() -> Stack:
    """Return the default kernels: embedded data at the levels, identical on every machine, and the optical
    model in between.
    """
    return _embedded(f"optics_bench_{VERSION}.npy", RGB)


@functools.cache
def small() -> Stack:
    """Return the default kernels scaled down by ``SMALL``, also embedded, because they take half a minute to
    compute.
    """
    return _embedded(f"optics_bench_{VERSION}_scaled_{SMALL}.npy", shrunk(RGB, SMALL))


def _embedded(name: str, imager: Imager) -> Stack:
    with files("sorites.shifts").joinpath(name).open("rb") as file:
        return Stack(checked(np.load(file), "the default kernels", imager.size), Modelled(imager))


def choose(
    name: str, *, kernels: str | None = None, colours: str = "rgb", centre: bool = True, scaled: float = 1.0
) -> Kernels:
    """Return the kernels for the options of an aberration, which ``configure`` documents."""
    if colours not in get_args(Colours):
        raise SoritesError(f"{name}: expected colours rgb or rg, got {colours!r}")
    if isinstance(scaled, bool) or not isinstance(scaled, int | float) or not 1 <= scaled <= SHAPE[-1]:
        raise SoritesError(f"{name}: expected scaled from 1 to {SHAPE[-1]}, got {scaled!r}")
    if kernels is not None and (colours != "rgb" or not centre or scaled != 1):
        raise SoritesError(
            f"{name}: kernels from a file are used unchanged; remove the options colours, centre and scaled"
        )
    if kernels is not None:
        return load(kernels)
    if colours == "rgb" and centre and scaled in (1, SMALL):
        return default() if scaled == 1 else small()
    return Modelled(shrunk(RG if colours == "rg" else RGB, scaled), centre)


def shrunk(imager: Imager, times: float) -> Imager:
    """Return the camera with ``times`` larger pixels, as if its image were downscaled.

    The frame is twice as wide as needed, up to the published 25 px, because light outside the frame matters
    more for small frames.
    """
    if times == 1:
        return imager
    half = min(SHAPE[-1] // 2, math.ceil((2 * SHAPE[-1] / times - 1) / 2))
    return replace(imager, pixel_um=imager.pixel_um * times, size=2 * half + 1)


def load(path: str | Path) -> Stack:
    """Read a kernel stack from a file: a torch tensor (as published by OpticsBench) or a NumPy ``.npy``."""
    path = Path(path)
    if not is_file(path):
        raise SoritesError(f"kernels: no file {path}; expected a torch or .npy file of shape {SHAPE}")
    try:
        stack = np.load(path, allow_pickle=False) if path.suffix == ".npy" else _torch(path)
    except MissingExtra:
        raise
    except Exception as error:
        raise SoritesError(
            f"kernels: cannot read {path} as a torch or .npy file of shape {SHAPE}: {error}"
        ) from error
    return Stack(checked(stack, str(path)))


def _torch(path: Path) -> object:
    try:
        import torch
    except ImportError:
        raise MissingExtra("reading kernels saved by torch", "torch") from None
    stack = torch.load(path, weights_only=True, map_location="cpu")
    return stack.numpy() if isinstance(stack, torch.Tensor) else stack


def checked(stack: object, name: str, side: int = SHAPE[-1]) -> NDArray[np.float32]:
    """Return ``stack`` if it contains non-negative kernels that each sum to one; raise an error otherwise."""
    expected = (*SHAPE[:3], side, side)
    if not isinstance(stack, np.ndarray) or stack.shape != expected or stack.dtype.kind != "f":
        actual = (
            f"shape {stack.shape} of {stack.dtype}" if isinstance(stack, np.ndarray) else type(stack).__name__
        )
        raise SoritesError(
            f"kernels: expected real numbers of shape {expected} (mode, level, colour, y, x) in {name}, got"
            f" {actual}"
        )
    if not np.isfinite(stack).all() or stack.min() < 0:
        raise SoritesError(f"kernels: {name} has taps that are negative or not finite")
    deviation = np.abs(stack.sum((-2, -1), dtype=np.float64) - 1).max()
    if deviation > 1e-3:
        raise SoritesError(
            f"kernels: the taps of each kernel in {name} must sum to 1 within 0.001, but deviate by"
            f" {deviation:.3g}"
        )
    return np.ascontiguousarray(stack, np.float32)


# An image, and the Zernike mode drawn for it.
Aberrated = tuple[ImageF32, Mapping[str, Any]]


def draw_mode(pair: tuple[int, int], rng: np.random.Generator) -> int:
    """Draw one of the two modes for a sample."""
    return pair[int(rng.integers(2))]


def aberration(
    name: str, kernels: Kernels, padding: Padding, linear: bool = False, fft: Library = "scipy"
) -> Shift:
    """Return the shift ``name`` with these kernels, whose version becomes that of the shift; ``linear`` blurs
    linear light instead of display values, and ``fft`` names the library of the transforms.
    """
    pair = PAIRS[name]

    @functools.lru_cache(maxsize=64)
    def kernel(mode: int, severity: float) -> Kernel:
        return Kernel(kernels.taps(mode, severity))

    def sweep(image: ImageF32, severities: Sequence[float], rng: np.random.Generator) -> Iterator[Aberrated]:
        check(name, severities, LEVELS[-1], "levels")
        mode = draw_mode(pair, rng)
        light = linear_from_srgb(image) if linear else image
        chosen = [kernel(mode, float(severity)) for severity in severities]
        for blurred in convolve.sweep(light, chosen, padding, library=fft):
            yield displayed(blurred, linear), {"zernike": mode}

    def apply(image: ImageF32, severity: float, rng: np.random.Generator) -> Aberrated:
        return next(sweep(image, [severity], rng))

    about = (
        f"Blur by a lens aberration: {NAMES[pair[0]]} or {NAMES[pair[1]]}; each sample draws one of the two"
        " (OpticsBench)."
    )
    settings = tuple(map(float, LEVELS))
    version = version_with(kernels.version, linear, fft)
    shift = Shift(name, apply, "optics", "levels", settings, version=version, about=about, stage="optics")
    shift.configure = functools.partial(configure, name)
    shift.sweeper(sweep)
    return shift


def configure(
    name: str,
    *,
    kernels: str | None = None,
    padding: Padding = "zeros",
    colours: Colours = "rgb",
    centre: bool = True,
    scaled: float = 1.0,
    linear: bool = False,
    fft: Library = "scipy",
) -> Shift:
    """Return the shift with other options.

    Args:
        name: The name of the shift.
        kernels: A file with a published stack to use instead of the default kernels.
        padding: The border: ``zeros`` as published, or ``reflect``.
        colours: ``rgb``, or ``rg`` for the magenta and green variant.
        centre: Whether the centre of mass of each kernel is centred; False leaves coma off centre, as in
            the first release.
        scaled: The factor by which kernels are scaled down, for images smaller than the published 224 px.
        linear: Whether linear light is blurred, as in a camera, instead of display values, as published.
        fft: The library of the transforms: ``scipy``, ``ducc``, which is the fastest, or ``torch``, which is
            faster than SciPy with MKL; they differ in the last bits.
    """
    check_linear(name, linear)
    check_library(name, fft)
    if padding not in get_args(Padding) or colours not in get_args(Colours):
        raise SoritesError(
            f"{name}: expected padding zeros or reflect and colours rgb or rg, got {padding!r} and"
            f" {colours!r}"
        )
    chosen = choose(name, kernels=kernels, colours=colours, centre=centre, scaled=scaled)
    return aberration(name, chosen, padding, linear, fft)


def version_with(version: str, linear: bool, fft: Library) -> str:
    """Return the version of a shift with these options, which includes that of the transforms."""
    used = f"fft{convolve.VERSION}"
    return " ".join([version, *(["linear"] if linear else []), *([fft] if fft != "scipy" else []), used])


def check_linear(name: str, linear: object) -> None:
    """Raise an error unless the option ``linear`` is true or false."""
    if not isinstance(linear, bool):
        raise SoritesError(f"{name}: expected linear true or false, got {linear!r}")


def displayed(blurred: ImageF32, linear: bool) -> ImageF32:
    """Return a blurred image as display values from 0 to 1."""
    if linear:
        return to_display(blurred)
    # The layout is kept: to interleave the colours of planes takes as long as a third of the transforms.
    return np.clip(blurred, 0, 1, out=np.empty_like(blurred))


for _name in PAIRS:
    SHIFTS.add(_name, aberration(_name, default(), "zeros"))

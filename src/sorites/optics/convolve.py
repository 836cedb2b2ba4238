"""Blur one image with many kernels: one forward FFT per image and one inverse FFT per kernel.

The default is cross-correlation, as in ``torch.conv2d``, ``cv2.filter2D`` and the published OpticsBench
code; ``flip=True`` is true convolution. The output has the size of the image.

Three libraries can do the transforms. ``scipy`` is the default and always there, ``ducc`` (the package ducc0)
is the fastest, and ``torch`` is faster than SciPy where it comes with MKL. Their results differ in the last
bits, so what uses them records which one it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import fft

from sorites.core.compute.torch_tools import one_thread
from sorites.core.errors import MissingExtra, SoritesError

Image = NDArray[np.float32]
Padding = Literal["zeros", "reflect"]
Library = Literal["scipy", "torch", "ducc"]
Spectrum = NDArray[np.complex64]
# Increase it whenever the last bits of blurred images change; the versions of shifts contain it.
VERSION = 2


class Kernel:
    """Taps of a filter with a cached transfer function.

    Taps may have any size, sign and sum, but must be finite. The origin is the tap ``(kh // 2, kw // 2)``.
    Reuse the object: images of the same size share its transfer function.

    Args:
        taps: ``(kh, kw)`` for all channels, or ``(C, kh, kw)``.
    """

    def __init__(self, taps: ArrayLike) -> None:
        array = np.asarray(taps, np.float64)
        self.taps = array[None] if array.ndim == 2 else array
        if self.taps.ndim != 3 or not self.taps.size:
            raise SoritesError(f"kernel: expected (kh, kw) or (C, kh, kw) taps, got shape {np.shape(taps)}")
        if not np.isfinite(self.taps).all():
            raise SoritesError("kernel: some taps are not finite numbers")
        self._last: tuple[tuple[int, int, int, bool], Spectrum] | None = None
        self._planes: tuple[tuple[int, int, int, bool], Any] | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the kernel in pixels."""
        return self.taps.shape[1], self.taps.shape[2]

    def transfer(self, size: tuple[int, int], channels: int, flip: bool) -> Spectrum:
        """Return the spectrum ``(rows, cols // 2 + 1, channels)`` on a grid of ``size``, with the origin at
        sample 0, divided by ``rows * cols``, so that inverse transforms need no factor.
        """
        key = (*size, channels, flip)
        last = self._last
        if last is None or last[0] != key:
            last = self._last = (key, self._transform(size, channels, flip))
        return last[1]

    def planes(self, size: tuple[int, int], channels: int, flip: bool) -> Any:
        """Return the same spectrum as ``(channels, rows, cols // 2 + 1)``, a tensor of torch."""
        key, last = (*size, channels, flip), self._planes
        if last is None or last[0] != key:
            spectrum = np.ascontiguousarray(np.moveaxis(self._transform(size, channels, flip), -1, 0))
            last = self._planes = (key, _torch().from_numpy(spectrum))
        return last[1]

    def _transform(self, size: tuple[int, int], channels: int, flip: bool) -> Spectrum:
        if len(self.taps) not in (1, channels):
            raise SoritesError(
                f"kernel: expected taps of 1 or {channels} channels for this image, got {len(self.taps)}"
            )
        grid = np.zeros((*size, len(self.taps)))
        grid[: self.size[0], : self.size[1]] = np.moveaxis(self.taps, 0, -1)
        spectrum = fft.rfft2(np.roll(grid, (-(self.size[0] // 2), -(self.size[1] // 2)), (0, 1)), axes=(0, 1))
        oriented = ((spectrum if flip else spectrum.conj()) / (size[0] * size[1])).astype(np.complex64)
        return np.ascontiguousarray(np.broadcast_to(oriented, (*oriented.shape[:2], channels)))


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtra("blurring with torch", "torch") from None
    return torch


class _Transforms(NamedTuple):
    """Transforms of images of H x W x C; the inverse ones are without a factor."""

    forward: Callable[[Image, tuple[int, int]], Spectrum]
    columns: Callable[[Spectrum], Spectrum]
    """Inverse along the first axis; it may overwrite its argument."""
    rows: Callable[[Spectrum, int], Image]
    """Inverse along the second axis, to that many real numbers."""


_SCIPY = _Transforms(
    lambda image, size: fft.rfft2(image, s=size, axes=(0, 1)),
    lambda spectrum: fft.ifft(spectrum, axis=0, overwrite_x=True, norm="forward"),
    lambda spectrum, width: fft.irfft(spectrum, n=width, axis=1, norm="forward"),
)


def _ducc() -> _Transforms:
    try:
        from ducc0.fft import c2c, c2r, r2c
    except ImportError:
        raise MissingExtra("blurring with ducc0", "ducc") from None

    def forward(image: Image, size: tuple[int, int]) -> Spectrum:
        grid = np.zeros((*size, image.shape[2]), np.float32)
        grid[: image.shape[0], : image.shape[1]] = image
        return np.asarray(r2c(grid, axes=(0, 1)))

    def rows(spectrum: Spectrum, width: int) -> Image:
        # NumPy's array: with one that ducc0 makes, a whole blur takes a twentieth longer.
        out = np.empty((len(spectrum), width, spectrum.shape[2]), np.float32)
        return np.asarray(c2r(spectrum, axes=(1,), lastsize=width, forward=False, out=out))

    return _Transforms(forward, lambda spectrum: c2c(spectrum, axes=(0,), forward=False, out=spectrum), rows)


def check_library(name: str, library: object) -> None:
    """Raise an error unless ``library`` is a known and installed one."""
    if library not in get_args(Library):
        raise SoritesError(f"{name}: expected fft {', '.join(get_args(Library))}, got {library!r}")
    if library == "torch":
        _torch()
    elif library == "ducc":
        _ducc()


def sweep(
    image: Image,
    kernels: Iterable[Kernel | ArrayLike],
    padding: Padding = "zeros",
    *,
    flip: bool = False,
    library: Library = "scipy",
) -> Iterator[Image]:
    """Blur an image with each kernel in turn.

    Args:
        image: H x W x C, float32.
        kernels: Kernels or arrays of taps.
        padding: Values beyond the border: ``zeros``, or ``reflect``, which mirrors the image without
            repeating its edge (OpenCV's reflect-101) and mirrors small images repeatedly.
        flip: Convolve instead of cross-correlating.
        library: What does the transforms: ``scipy``, ``torch`` or ``ducc``.

    Yields:
        The blurred images, not clipped; the caller may change them in place. Those of torch are views of
        planes.

    Raises:
        SoritesError: The image is smaller than a kernel and ``padding`` is ``zeros``.
    """
    prepared = [kernel if isinstance(kernel, Kernel) else Kernel(kernel) for kernel in kernels]
    _check(image, prepared, padding)
    if not prepared:
        return iter(())
    if library == "torch":
        return _sweep_planes(image, prepared, padding, flip)
    return _sweep(image, prepared, padding, flip, _ducc() if library == "ducc" else _SCIPY)


def _sweep(
    image: Image, kernels: list[Kernel], padding: Padding, flip: bool, transforms: _Transforms
) -> Iterator[Image]:
    height, width, channels = image.shape
    image, size, (top, left) = _padded(image, kernels, padding)
    spectrum = transforms.forward(image, size)
    product = np.empty_like(spectrum)
    for kernel in kernels:
        np.multiply(spectrum, kernel.transfer(size, channels, flip), out=product)
        rows = transforms.columns(product)[top : top + height]
        yield transforms.rows(rows, size[1])[:, left : left + width]


def _sweep_planes(image: Image, kernels: list[Kernel], padding: Padding, flip: bool) -> Iterator[Image]:
    """Blur the planes of an image with torch, kernel by kernel, so that no result depends on the others."""
    torch = _torch()
    height, width, channels = image.shape
    image, size, (top, left) = _padded(image, kernels, padding)
    planes = torch.from_numpy(np.ascontiguousarray(np.moveaxis(image, -1, 0)))
    with one_thread():
        spectrum = torch.fft.rfft2(planes, s=size)
    product = torch.empty_like(spectrum)
    for kernel in kernels:
        with one_thread():
            torch.mul(spectrum, kernel.planes(size, channels, flip), out=product)
            blurred = torch.fft.irfft2(product, s=size, norm="forward")
        yield np.moveaxis(blurred[:, top : top + height, left : left + width].numpy(), 0, -1)


def _padded(
    image: Image, kernels: list[Kernel], padding: Padding
) -> tuple[Image, tuple[int, int], tuple[int, int]]:
    """Return the image with its border, the size of its transform, and where the image begins in it."""
    height, width = image.shape[:2]
    top, left = (max(kernel.size[axis] // 2 for kernel in kernels) for axis in (0, 1))
    reach = height + top, width + left
    if padding == "reflect":
        image = np.pad(image, ((top, top), (left, left), (0, 0)), mode="reflect")
        reach = image.shape[:2]
    else:
        top, left = 0, 0  # the FFT is circular and wraps zeros around, so one margin serves both sides
    size = fft.next_fast_len(reach[0]), fft.next_fast_len(reach[1], real=True)
    return image, size, (top, left)


def _check(image: Image, kernels: list[Kernel], padding: str) -> None:
    if padding not in get_args(Padding):
        raise SoritesError(f"padding: expected {' or '.join(get_args(Padding))}, got {padding!r}")
    if image.ndim != 3 or image.dtype != np.float32 or not image.size:
        raise SoritesError(
            f"blur: expected a float32 image of H x W x C, got {image.dtype} of shape {image.shape}"
        )
    height, width, _ = image.shape
    for kernel in kernels if padding == "zeros" else ():
        if height < kernel.size[0] or width < kernel.size[1]:
            raise SoritesError(
                f"an image of {width}x{height} px is smaller than the kernel"
                f' ({kernel.size[1]}x{kernel.size[0]}). Use a larger image or padding="reflect".'
            )

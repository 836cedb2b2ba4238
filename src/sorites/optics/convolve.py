"""Blur one image with many kernels: one forward FFT per image and one inverse FFT per kernel.

The default is cross-correlation, as in ``torch.conv2d``, ``cv2.filter2D`` and the published OpticsBench
code; ``flip=True`` is true convolution. The output has the size of the image.

Two libraries can do the transforms. ``scipy`` is the default and always there; ``torch`` is faster where it
comes with MKL. Their results differ in the last bits, so what uses them records which one it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import fft

from sorites.core.errors import MissingExtra, SoritesError

Image = NDArray[np.float32]
Padding = Literal["zeros", "reflect"]
Library = Literal["scipy", "torch"]


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
        self._last: tuple[tuple[int, int, int, bool], NDArray[np.complex64]] | None = None
        self._planes: tuple[tuple[int, int, int, bool], Any] | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the kernel in pixels."""
        return self.taps.shape[1], self.taps.shape[2]

    def transfer(self, size: tuple[int, int], channels: int, flip: bool) -> NDArray[np.complex64]:
        """Return the spectrum ``(rows, cols // 2 + 1, channels)`` on a grid of ``size``, with the origin at
        sample 0.
        """
        key = (*size, channels, flip)
        last = self._last
        if last is None or last[0] != key:
            last = self._last = (key, self._transform(size, channels, flip))
        return last[1]

    def planes(self, size: tuple[int, int], channels: int, flip: bool) -> Any:
        """Return the spectrum ``(channels, rows, cols // 2 + 1)`` as a tensor of torch."""
        key, last = (*size, channels, flip), self._planes
        if last is None or last[0] != key:
            spectrum = np.ascontiguousarray(np.moveaxis(self._transform(size, channels, flip), -1, 0))
            last = self._planes = (key, _torch().from_numpy(spectrum))
        return last[1]

    def _transform(self, size: tuple[int, int], channels: int, flip: bool) -> NDArray[np.complex64]:
        if len(self.taps) not in (1, channels):
            raise SoritesError(
                f"kernel: expected taps of 1 or {channels} channels for this image, got {len(self.taps)}"
            )
        grid = np.zeros((*size, len(self.taps)))
        grid[: self.size[0], : self.size[1]] = np.moveaxis(self.taps, 0, -1)
        spectrum = fft.rfft2(np.roll(grid, (-(self.size[0] // 2), -(self.size[1] // 2)), (0, 1)), axes=(0, 1))
        oriented = (spectrum if flip else spectrum.conj()).astype(np.complex64)
        return np.ascontiguousarray(np.broadcast_to(oriented, (*oriented.shape[:2], channels)))


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise MissingExtra("blurring with torch", "torch") from None
    return torch


def check_library(name: str, library: object) -> None:
    """Raise an error unless ``library`` is a known and installed one."""
    if library not in get_args(Library):
        raise SoritesError(f"{name}: expected fft {' or '.join(get_args(Library))}, got {library!r}")
    if library == "torch":
        _torch()


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
        library: What does the transforms: ``scipy`` or ``torch``.

    Yields:
        The blurred images, not clipped; the caller may change them in place. Those of torch are views of
        planes.

    Raises:
        SoritesError: The image is smaller than a kernel and ``padding`` is ``zeros``.
    """
    prepared = [kernel if isinstance(kernel, Kernel) else Kernel(kernel) for kernel in kernels]
    _check(image, prepared, padding)
    each = _sweep_planes if library == "torch" else _sweep
    return each(image, prepared, padding, flip) if prepared else iter(())


def _sweep(image: Image, kernels: list[Kernel], padding: Padding, flip: bool) -> Iterator[Image]:
    height, width, channels = image.shape
    image, size, (top, left) = _padded(image, kernels, padding)
    spectrum = fft.rfft2(image, s=size, axes=(0, 1))
    product = np.empty_like(spectrum)
    for kernel in kernels:
        np.multiply(spectrum, kernel.transfer(size, channels, flip), out=product)
        rows = fft.ifft(product, axis=0, overwrite_x=True)[top : top + height]
        yield fft.irfft(rows, n=size[1], axis=1)[:, left : left + width]


def _sweep_planes(image: Image, kernels: list[Kernel], padding: Padding, flip: bool) -> Iterator[Image]:
    """Blur the planes of an image with torch, kernel by kernel, so that no result depends on the others."""
    torch = _torch()
    height, width, channels = image.shape
    image, size, (top, left) = _padded(image, kernels, padding)
    planes = torch.from_numpy(np.ascontiguousarray(np.moveaxis(image, -1, 0)))
    spectrum = torch.fft.rfft2(planes, s=size)
    product = torch.empty_like(spectrum)
    for kernel in kernels:
        torch.mul(spectrum, kernel.planes(size, channels, flip), out=product)
        blurred = torch.fft.irfft2(product, s=size)[:, top : top + height, left : left + width]
        yield np.moveaxis(blurred.numpy(), 0, -1)


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

"""Blur one image by many kernels: one forward FFT per image, one inverse FFT per kernel.

The default is cross-correlation: the kernel lies over the image as it is drawn, which is what
``torch.conv2d`` and ``cv2.filter2D`` do and what OpticsBench publishes. ``flip=True`` is true
convolution. The output has the image's size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import fft

from sorites.core.errors import SoritesError

Image = NDArray[np.float32]
Padding = Literal["zeros", "reflect"]


class Kernel:
    """The taps of a filter, ``(kh, kw)`` for every channel or ``(C, kh, kw)``, with the latest FFT of them.

    The origin is the tap ``(kh // 2, kw // 2)``. Keep the object and pass it again: images of the
    same size share its transfer function. Taps need not be odd in number, be non-negative or sum to
    one, but they must be finite.
    """

    def __init__(self, taps: ArrayLike) -> None:
        given = np.asarray(taps, np.float64)
        self.taps = given[None] if given.ndim == 2 else given
        if self.taps.ndim != 3 or not self.taps.size:
            raise SoritesError(f"kernel: wanted (kh, kw) or (C, kh, kw) taps, got shape {np.shape(taps)}")
        if not np.isfinite(self.taps).all():
            raise SoritesError("kernel: some taps are not finite numbers; wanted real weights")
        self._last: tuple[tuple[int, int, int, bool], NDArray[np.complex64]] | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the kernel in pixels."""
        return self.taps.shape[1], self.taps.shape[2]

    def transfer(self, size: tuple[int, int], channels: int, flip: bool) -> NDArray[np.complex64]:
        """Return the kernel's spectrum on a grid of ``size``, ``(rows, cols // 2 + 1, channels)``;
        its origin is sample 0.
        """
        key = (*size, channels, flip)
        last = self._last
        if last is None or last[0] != key:
            last = self._last = (key, self._transform(size, channels, flip))
        return last[1]

    def _transform(self, size: tuple[int, int], channels: int, flip: bool) -> NDArray[np.complex64]:
        if len(self.taps) not in (1, channels):
            raise SoritesError(
                f"kernel: it has {len(self.taps)} channels and the image has {channels}; give 1 or {channels}"
            )
        grid = np.zeros((*size, len(self.taps)))
        grid[: self.size[0], : self.size[1]] = np.moveaxis(self.taps, 0, -1)
        spectrum = fft.rfft2(np.roll(grid, (-(self.size[0] // 2), -(self.size[1] // 2)), (0, 1)), axes=(0, 1))
        laid = (spectrum if flip else spectrum.conj()).astype(np.complex64)
        return np.ascontiguousarray(np.broadcast_to(laid, (*laid.shape[:2], channels)))


def sweep(
    image: Image, kernels: Iterable[Kernel | ArrayLike], padding: Padding = "zeros", *, flip: bool = False
) -> Iterator[Image]:
    """Yield ``image`` (H x W x C, float32) blurred by each kernel in turn, not clipped.

    ``padding`` is what lies beyond the border: black (``zeros``), or the image mirrored without
    repeating its edge (``reflect``, OpenCV's reflect-101), mirrored again as often as a small
    image needs. With ``zeros`` an image smaller than a kernel is an error, because most of the
    result would be border. The caller may change each result in place.
    """
    prepared = [kernel if isinstance(kernel, Kernel) else Kernel(kernel) for kernel in kernels]
    _check(image, prepared, padding)
    return _sweep(image, prepared, padding, flip) if prepared else iter(())


def _sweep(image: Image, kernels: list[Kernel], padding: Padding, flip: bool) -> Iterator[Image]:
    height, width, channels = image.shape
    top, left = (max(kernel.size[axis] // 2 for kernel in kernels) for axis in (0, 1))
    reach = height + top, width + left
    if padding == "reflect":
        image = np.pad(image, ((top, top), (left, left), (0, 0)), mode="reflect")
        reach = image.shape[:2]
    else:
        top, left = 0, 0  # the FFT wraps only black around, so one margin serves both sides
    size = fft.next_fast_len(reach[0]), fft.next_fast_len(reach[1], real=True)
    spectrum = fft.rfft2(image, s=size, axes=(0, 1))
    product = np.empty_like(spectrum)
    for kernel in kernels:
        np.multiply(spectrum, kernel.transfer(size, channels, flip), out=product)
        rows = fft.ifft(product, axis=0, overwrite_x=True)[top : top + height]
        yield fft.irfft(rows, n=size[1], axis=1)[:, left : left + width]


def _check(image: Image, kernels: list[Kernel], padding: str) -> None:
    if padding not in get_args(Padding):
        raise SoritesError(f"padding: wanted {' or '.join(get_args(Padding))}, got {padding!r}")
    if image.ndim != 3 or image.dtype != np.float32 or not image.size:
        raise SoritesError(
            f"blur: wanted a float32 image of H x W x C, got {image.dtype} of shape {image.shape}"
        )
    height, width, _ = image.shape
    for kernel in kernels if padding == "zeros" else ():
        if height < kernel.size[0] or width < kernel.size[1]:
            raise SoritesError(
                f"an image of {width}x{height} px is smaller than the kernel"
                f' ({kernel.size[1]}x{kernel.size[0]}). Give a larger image, or padding="reflect".'
            )

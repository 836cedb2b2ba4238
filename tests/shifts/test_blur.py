from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import ndimage
from scipy.special import j1

from sorites.core import ImageF32, shift
from sorites.core.errors import SoritesError
from sorites.core.rng import rng_for
from sorites.shifts.blur import disk


def radial_mtf(kernel: NDArray[np.float64], frequencies: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean modulus of the Fourier sum over 8 directions of a half turn, at frequencies in
    cycles/px, 1 at 0.
    """
    half = len(kernel) // 2
    y, x = np.mgrid[-half : half + 1, -half : half + 1]
    angles = np.pi * np.arange(8) / 8
    along = (np.cos(angles)[:, None, None] * x + np.sin(angles)[:, None, None] * y).reshape(8, 1, -1)
    waves = np.exp(-2j * np.pi * frequencies[:, None] * along)
    return np.abs(waves @ kernel.ravel()).mean(axis=0) / kernel.sum()


def mtf50(kernel: NDArray[np.float64]) -> float:
    frequencies = np.linspace(0, 0.4, 61)
    mtf = radial_mtf(kernel, frequencies)
    first = int(np.argmax(mtf < 0.5))
    return (
        float(np.interp(0.5, mtf[[first, first - 1]], frequencies[[first, first - 1]]))
        if mtf.min() < 0.5
        else 0.5
    )


@pytest.mark.parametrize(
    ("radius", "published"), [(3, 0.1153), (4, 0.0873), (6, 0.0582), (8, 0.0439), (10, 0.0346)]
)
def test_the_disk_has_the_published_mtf50(radius: float, published: float) -> None:
    assert mtf50(disk(radius)) == pytest.approx(published, rel=0.01)


def test_mtf_follows_the_closed_form_of_a_disk() -> None:
    frequencies = np.array([0.005, 0.01, 0.02, 0.03])
    x = 2 * np.pi * 9.5 * frequencies
    np.testing.assert_allclose(radial_mtf(disk(9.5), frequencies), 2 * j1(x) / x, atol=0.03)


def test_mtf50_falls_all_along_the_dial() -> None:
    found = [mtf50(disk(radius)) for radius in np.arange(1.5, 12.1, 0.7)]
    assert (np.diff(found) < 0).all()


def test_kernels_are_a_point_at_zero_even_and_without_a_jump() -> None:
    assert disk(0).max() == disk(0).sum() == 1
    for radius in (0.3, 2.5, 7.99, 11.2):
        kernel = disk(radius)
        np.testing.assert_allclose(kernel, kernel[::-1, ::-1], atol=1e-15)
        np.testing.assert_allclose(kernel, kernel.T, atol=1e-15)
    assert np.abs(disk(8.001) - disk(7.999)).sum() < 1e-3


@pytest.mark.parametrize("radius", [2.4, 6.0, 14.5])
def test_defocus_equals_a_direct_filter_mirrored_at_the_border(photo: ImageF32, radius: float) -> None:
    direct = ndimage.correlate(photo.astype(np.float64), disk(radius)[..., None], mode="mirror").clip(0, 1)
    made = shift("defocus_disk")(photo, radius, rng_for(0, "a", "defocus_disk"))
    np.testing.assert_allclose(made, direct, atol=2e-6)


def test_defocus_of_one_pixel_is_that_pixel() -> None:
    image = np.full((1, 1, 3), 0.25, np.float32)
    np.testing.assert_allclose(
        shift("defocus_disk")(image, 3, rng_for(0, "a", "defocus_disk")), image, atol=1e-6
    )


@pytest.mark.parametrize(("name", "most"), [("defocus_disk", 500), ("gaussian_blur", 125)])
def test_a_kernel_that_would_take_gigabytes_is_refused(name: str, most: float) -> None:
    with pytest.raises(SoritesError, match=f"{name}: expected a severity from 0 to {most} .px., got 12000.0"):
        shift(name)(np.zeros((32, 32, 3), np.float32), 12_000, np.random.default_rng(0))

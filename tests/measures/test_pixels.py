"""PSNR and SSIM against scikit-image, clipping by hand."""

from __future__ import annotations

import numpy as np
import pytest
from skimage.metrics import peak_signal_noise_ratio, structural_similarity
from tests.measures.images import blurred, scene

from sorites.core.errors import BadImage
from sorites.measures.images import clipped_share, psnr, ssim


@pytest.mark.parametrize("sigma", [0.5, 1.5, 4])
def test_psnr_and_ssim_are_scikit_images(sigma: float) -> None:
    one = scene()
    two = blurred(one, sigma)
    assert psnr(one, two) == pytest.approx(peak_signal_noise_ratio(one, two))
    wanted = structural_similarity(
        one, two, channel_axis=-1, gaussian_weights=True, sigma=1.5, use_sample_covariance=False
    )
    assert ssim(one, two) == pytest.approx(wanted, abs=1e-9)


def test_clipped_share_counts_only_newly_clipped_values() -> None:
    one = np.full((4, 4, 3), 100, np.uint8)
    one[0] = 255
    two = one.copy()
    two[1] = 255
    two[2, :2] = 0
    assert clipped_share(one, two) == pytest.approx(6 / 16)


def test_images_smaller_than_the_window_raise() -> None:
    with pytest.raises(BadImage, match="got 10x10"):
        ssim(scene(0, 10), scene(1, 10))

import numpy as np
import pytest
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from sorites.core.errors import SoritesError
from sorites.optics.quality import psnr, ssim

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(40, 31), (33, 64, 3)])
def test_equals_scikit_image(shape):
    first = RNG.random(shape)
    second = np.clip(first + RNG.normal(0, 0.1, shape), 0, 1)
    options = {"channel_axis": -1 if len(shape) == 3 else None, "data_range": 1.0}
    theirs = structural_similarity(
        first, second, gaussian_weights=True, sigma=1.5, use_sample_covariance=False, **options
    )
    assert ssim(first, second) == pytest.approx(theirs, abs=1e-10)
    assert psnr(first, second) == pytest.approx(
        peak_signal_noise_ratio(first, second, data_range=1.0), abs=1e-10
    )


def test_equal_images():
    image = RNG.random((20, 20))
    assert ssim(image, image) == pytest.approx(1)
    assert psnr(image, image) == np.inf


@pytest.mark.parametrize("other", [(20, 21), (8, 8)])
def test_what_cannot_be_compared(other):
    with pytest.raises(SoritesError, match="sides above 10 px"):
        ssim(np.zeros((20, 20)) if other != (8, 8) else np.zeros(other), np.zeros(other))

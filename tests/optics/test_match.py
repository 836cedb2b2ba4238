import numpy as np
import pytest

from sorites.errors import SoritesError
from sorites.optics.aberrated import Imager
from sorites.optics.match import charts, match, residuals


@pytest.fixture(scope="module")
def own():
    return Imager(wavelengths_um=(0.55,), residual=({},), f_number=4.0, pixel_um=3.0, aperture=1.0)


@pytest.mark.parametrize("criterion", ["mtf50", "area", "psnr"])
def test_a_kernel_made_with_a_coefficient_is_matched_by_it(own, criterion):
    reference = own.kernel({5: 1.37})
    found = match(own, 5, reference, criterion)
    assert found.waves == pytest.approx(1.37, abs=0.02)
    assert residuals(found.taps, reference)["mtf50"] == pytest.approx(0, abs=0.02)
    assert charts(found.taps, reference)["ssim_coins"] > 0.99


def test_a_match_by_mtf50_is_within_a_thousandth_for_another_mode(own):
    reference = own.kernel({4: 1.0})[0]
    told = residuals(match(own, 7, reference).taps, reference)
    assert abs(told["mtf50"]) < 1e-3
    assert {"mtf20", "mtf10", "area", "mtf50_colour0", "mtf50_0deg", "mtf50_135deg"} <= told.keys()


def test_what_the_frame_cannot_hold_gives_the_nearest():
    small = Imager(wavelengths_um=(0.55,), residual=({},), size=9)
    found = match(small, 4, np.ones((31, 31)))
    assert np.isfinite(found.waves)
    assert found.caught < 0.9


def test_an_unknown_criterion():
    with pytest.raises(SoritesError, match="wanted one of mtf50, area, ssim, psnr"):
        match(Imager(), 4, np.ones((3, 3)), "beauty")

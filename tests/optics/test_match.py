import numpy as np
import pytest
from scipy.ndimage import correlate

from sorites.core.errors import SoritesError
from sorites.optics.match import charts, match, residuals
from sorites.optics.mtf import spilled_coins
from sorites.optics.psf import Imager


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


@pytest.mark.slow
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
    with pytest.raises(SoritesError, match="criterion: expected one of"):
        match(Imager(), 4, np.ones((3, 3)), "beauty")


def seen_by_hand(kernel, chart):
    """MTF50 and area of the MTF's mean over 60 directions by a direct sum, and the chart blurred in
    space with mirrored edges.
    """
    places, f, curves = np.arange(len(kernel)) - (len(kernel) - 1) / 2, np.linspace(0, 0.5, 201), []
    for turn in np.pi * np.arange(60) / 60:
        across, down = (
            np.exp(-2j * np.pi * np.outer(f * part, places)) for part in (np.cos(turn), np.sin(turn))
        )
        curves.append(np.abs(((down @ kernel) * across).sum(1)))
    curve = np.mean(curves, axis=0)
    first = np.flatnonzero(curve <= 0.5)[0]
    mtf50 = np.interp(0.5, curve[[first, first - 1]], f[[first, first - 1]])
    return mtf50, np.trapezoid(curve, f) / 0.5, correlate(chart, kernel, mode="mirror")


def costs_by_hand(ours, theirs):
    """The four criteria of appendix E-B, as distances: MTF50, area, SSIM and PSNR of the spilled
    coins (scikit-image's).
    """
    metrics = pytest.importorskip("skimage.metrics")
    options = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False, "data_range": 1.0}
    alike = metrics.structural_similarity(ours[2], theirs[2], **options)
    noise = metrics.peak_signal_noise_ratio(theirs[2], ours[2], data_range=1.0)
    return [abs(ours[0] / theirs[0] - 1), abs(ours[1] / theirs[1] - 1), 1 - alike, 10 ** (-noise / 20)]


@pytest.mark.slow
def test_the_best_overall_fit_in_steps_of_a_tenth_of_a_wave_as_in_appendix_e_b(own):
    """Horizontal coma against defocus: every step is tried, and the four criteria count alike
    between their own best steps.
    """
    chart, target = spilled_coins(), own.kernel({4: 0.5})[0]
    theirs = seen_by_hand(target, chart)
    steps = np.round(np.arange(0.4, 1.3, 0.1), 1)
    costs = np.array(
        [costs_by_hand(seen_by_hand(own.kernel({7: float(a)})[0], chart), theirs) for a in steps]
    )
    best = costs.argmin(0)
    assert 0 < best.min() < best.max() < len(steps) - 1, (
        "the single criteria do not agree: there is something to weigh"
    )
    inside = costs[best.min() : best.max() + 1]
    wanted = steps[best.min() + ((inside - inside.min(0)) / np.ptp(inside, axis=0)).sum(1).argmin()]
    assert match(own, 7, target, "overall").waves == wanted


@pytest.mark.slow
def test_a_kernel_of_coma_at_level_1_is_matched_by_its_published_coefficient(own):
    """The released coefficient of coma at level 1 is 0.9 waves."""
    found = match(own, 7, own.kernel({7: 0.9}), "overall")
    assert found.waves == 0.9
    np.testing.assert_array_equal(found.taps, own.kernel({7: 0.9}))

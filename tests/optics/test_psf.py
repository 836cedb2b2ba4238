import numpy as np
import pytest
from scipy import special

from sorites.core.errors import SoritesError
from sorites.optics.psf import Imager, Pupil, centroid, compute_psf, spread_px, strehl
from sorites.optics.zernike import wavefront_rms

CAMERA = {"wavelength_um": 0.5876, "f_number": 5.0, "pixel_um": 4.0}


@pytest.mark.parametrize("spread", [0.6, 2.0])
def test_a_perfect_pupil_gives_the_airy_pattern(spread):
    x = np.linspace(-12, 12, 193)
    light = Pupil((), spread).intensity(x, np.zeros(1))[0] * 4 * spread**2 / np.pi
    v = np.pi * np.hypot(x, 1e-12) / spread
    assert np.abs(light - (2 * special.j1(v) / v) ** 2).max() < 1e-3


@pytest.mark.parametrize("index", [4, 5, 7, 9, 11])
def test_strehl_follows_marechal(index):
    for waves in ({index: 0.02}, {index: 0.05}):
        phase = 2 * np.pi * wavefront_rms(waves)
        assert strehl(waves) == pytest.approx(np.exp(-(phase**2)), abs=phase**4)


def test_strehl_is_the_peak_of_the_psf_and_has_the_closed_form_of_defocus():
    for waves in (0.1, 0.4, 1.2):
        exact = np.sinc(2 * waves) ** 2
        assert strehl({4: waves}) == pytest.approx(exact, abs=1e-12)
        peak = Pupil(((4, waves),), 1.5).intensity(np.zeros(1), np.zeros(1)).item() * 4 * 1.5**2 / np.pi
        assert peak == pytest.approx(exact, abs=1e-3)


def test_encircled_light_of_the_airy_pattern():
    """Rayleigh: 1 - J0^2 - J1^2; here over a square frame, so between the circle inside and the one
    around.
    """
    spread, size = 1.3, 21
    inside, around = (
        1 - special.j0(v) ** 2 - special.j1(v) ** 2 for v in np.pi * size / 2 / spread * np.array([1, 2**0.5])
    )
    caught = Pupil((), spread, size).frame(0, 0).sum()
    assert inside - 1e-3 < caught < around + 1e-3


def test_all_of_a_large_defocus_becomes_the_geometric_disk():
    """Radius 8 x spread x waves: the slope of 2 r^2 - 1 at the rim is 4 waves per radius."""
    kernel = compute_psf({4: 3.0}, wavelength_um=0.5, f_number=2.0, pixel_um=2.0, size=25)
    y, x = np.indices((25, 25)) - 12
    disk = (np.hypot(x, y) < 8 * 0.5 * 3.0).astype(float)
    assert np.abs(kernel.taps - disk / disk.sum()).sum() < 0.3
    assert np.average(np.hypot(x, y) ** 2, weights=kernel.taps) == pytest.approx(12.0**2 / 2, rel=0.06)


@pytest.mark.parametrize("index", range(4, 12))
def test_kernels_sum_to_one_and_are_centred_after_truncation(index):
    for waves in (0.9, 3.5):
        for plane in Imager().kernel({index: waves}):
            assert plane.sum() == pytest.approx(1, abs=1e-12)
            assert plane.min() >= 0
            assert np.abs(centroid(plane)).max() < 0.01


def test_the_centre_of_mass_of_coma_moves_by_the_mean_slope():
    kernel = compute_psf({7: 0.6, 8: -0.4}, **CAMERA, size=101, centre=True)
    spread = spread_px(**CAMERA)
    assert kernel.offset == pytest.approx((-2 * spread * 0.6, 2 * spread * 0.4), abs=0.04)
    loose = compute_psf({7: 0.6, 8: -0.4}, **CAMERA, size=101, centre=False)
    assert loose.offset == (-1.0, 1.0)


def test_orientation():
    """Oblique astigmatism mirrors by transposing, vertical and horizontal coma swap by it."""
    astigmatism, across, down = (compute_psf({i: 1.5}, **CAMERA).taps for i in (6, 7, 8))
    assert astigmatism == pytest.approx(astigmatism.T, abs=1e-12)
    assert across == pytest.approx(down.T, abs=1e-4)
    assert across == pytest.approx(across[::-1], abs=1e-12)


@pytest.mark.parametrize(
    ("waves", "options", "says"),
    [
        ({4: float("nan")}, {}, "finite"),
        ({99: 1.0}, {}, "Fringe"),
        ({4: 1.0}, {"pixel_um": 0.0}, "positive"),
        ({4: 1.0}, {"f_number": float("nan")}, "positive"),
        ({4: 1.0}, {"size": 0}, "size above 0 px"),
        ({4: 1.0}, {"aperture": 1.5}, "aperture"),
        ({4: 5000.0}, {}, "samples across"),
    ],
)
def test_bad_input_is_a_clear_error(waves, options, says):
    with pytest.raises(SoritesError, match=says):
        compute_psf(waves, **{**CAMERA, **options})


def test_a_camera_wants_a_residual_for_each_colour():
    with pytest.raises(SoritesError, match="each of 1 colours"):
        Imager(wavelengths_um=(0.5,))


@pytest.mark.parametrize("waves", [{7: 0.6, 8: -0.3}, {5: 0.8, 10: 0.4}])
def test_equation_5_of_opticsbench_by_a_direct_sum_over_the_pupil(waves):
    """|F{Circ exp(-2 pi i W)}|^2 with W in waves (the printed z_i in the exponent is left out, as in
    the released code).
    """
    spread, side = 1.4, (np.arange(601) - 300) / 300
    x, y = np.meshgrid(side, side)
    rho, theta = np.hypot(x, y), np.arctan2(y, x)
    inside = rho <= 1
    phase = 0.0
    if 7 in waves:
        phase = (3 * rho**2 - 2) * rho * (waves[7] * np.cos(theta) + waves[8] * np.sin(theta))
    else:
        phase = waves[5] * rho**2 * np.cos(2 * theta) + waves[10] * rho**3 * np.cos(3 * theta)
    at = np.array([-3.0, -1.5, 0.0, 0.7, 2.2])
    field = (inside * np.exp(-2j * np.pi * phase)).astype(complex)
    across, down = (np.exp(-2j * np.pi * np.outer(at, side) / (2 * spread)) for _ in range(2))
    wanted = np.abs(down @ field @ across.T) ** 2 / inside.sum() ** 2
    light = Pupil(tuple(waves.items()), spread).intensity(at, at) * 4 * spread**2 / np.pi
    assert light == pytest.approx(wanted, abs=2e-3)
    assert wanted.max() > 0.05, "there is something to compare"

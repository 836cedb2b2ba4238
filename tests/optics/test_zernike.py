import math
import re

import numpy as np
import pytest
from prysm.polynomials import zernike_nm

from sorites.core.errors import SoritesError
from sorites.optics.zernike import FRINGE, fringe, max_slope, radial, rms, wavefront, wavefront_rms, zernike


def disk(radii=64, angles=128):
    """Gauss-Legendre nodes in rho^2 and equal angles: exact for every product of two polynomials
    used here.
    """
    nodes, weights = np.polynomial.legendre.leggauss(radii)
    rho = np.sqrt((nodes + 1) / 2)[:, None] * np.ones(angles)
    theta = np.ones((radii, 1)) * np.arange(angles) * 2 * np.pi / angles
    return rho, theta, (weights[:, None] / 2 / angles) * np.ones(angles)


def test_the_fringe_basis_is_orthogonal_with_the_stated_norm():
    rho, theta, weight = disk()
    basis = np.array([zernike(*FRINGE[i], rho, theta) for i in range(1, 38)])
    gram = np.einsum("irt,jrt,rt->ij", basis, basis, weight)
    norms = [rms(*FRINGE[i]) ** 2 if i > 1 else 1.0 for i in range(1, 38)]
    assert np.abs(gram - np.diag(norms)).max() < 1e-12


@pytest.mark.parametrize("index", range(1, 37))
def test_equals_prysm(index):
    rho, theta, _ = disk(20, 40)
    n, m = fringe(index)
    assert np.abs(zernike(n, m, rho, theta) - zernike_nm(n, m, rho, theta, norm=False)).max() < 1e-10


def test_the_published_polynomials_in_their_order():
    r, t, _ = disk(10, 24)
    forms = {
        4: 2 * r**2 - 1,
        5: r**2 * np.cos(2 * t),
        6: r**2 * np.sin(2 * t),
        7: (3 * r**2 - 2) * r * np.cos(t),
        8: (3 * r**2 - 2) * r * np.sin(t),
        9: 6 * r**4 - 6 * r**2 + 1,
        10: r**3 * np.cos(3 * t),
        11: r**3 * np.sin(3 * t),
        16: 20 * r**6 - 30 * r**4 + 12 * r**2 - 1,
        17: r**4 * np.cos(4 * t),
        37: 924 * r**12 - 2772 * r**10 + 3150 * r**8 - 1680 * r**6 + 420 * r**4 - 42 * r**2 + 1,
    }
    for index, form in forms.items():
        assert np.abs(wavefront({index: 1.0}, r, t) - form).max() < 1e-12


def test_high_orders_stay_bounded():
    assert np.abs(radial(80, 4, np.linspace(0, 1, 501))).max() <= 1 + 1e-12


def test_rms_and_slope():
    rho, theta, weight = disk()
    waves = {4: 0.3, 7: -0.5, 11: 0.2}
    values = wavefront(waves, rho, theta)
    assert np.sqrt((values**2 * weight).sum()) == pytest.approx(wavefront_rms(waves), rel=1e-12)
    x = np.linspace(-1, 1, 401)
    grid = wavefront(
        waves, *(lambda a, b: (np.minimum(np.hypot(a, b), 1), np.arctan2(b, a)))(*np.meshgrid(x, x))
    )
    inside = np.hypot(*np.meshgrid(x, x)) < 0.99
    assert np.hypot(*np.gradient(grid, x, x))[inside].max() <= max_slope(waves)


@pytest.mark.parametrize("bad", [{0: 1.0}, {38: 1.0}, {4: float("nan")}, {4: float("inf")}])
def test_bad_coefficients_are_clear_errors(bad):
    with pytest.raises(SoritesError, match=r"Fringe|finite"):
        wavefront(bad, np.zeros(1), np.zeros(1))


def test_a_polynomial_that_is_not_one():
    with pytest.raises(SoritesError, match="n >= "):
        radial(2, 1, np.zeros(1))


@pytest.mark.parametrize("index", range(1, 38))
def test_equations_2_to_4_of_opticsbench_by_factorials(index):
    """The printed sum of factorials; the released polynomials have the cosine where m > 0, equation
    3 where m < 0.
    """
    (n, m), (rho, theta, _) = FRINGE[index], disk(12, 26)
    k = abs(m)
    terms = range((n - k) // 2 + 1)
    signed = [(-1) ** s * math.factorial(n - s) / math.factorial(s) for s in terms]
    below = [math.factorial((n + k) // 2 - s) * math.factorial((n - k) // 2 - s) for s in terms]
    form = sum(a / b * rho ** (n - 2 * s) for s, a, b in zip(terms, signed, below, strict=True))
    form = form * (np.cos(k * theta) if m >= 0 else np.sin(k * theta))
    assert np.abs(wavefront({index: 0.7}, rho, theta) - 0.7 * form).max() < 1e-9


TABLE_XVI = """
    4: Defocus, 5: Astigmatism (straight), 6: Astigmatism (oblique), 7: Coma (horizontal), 8: Coma (vertical),
    9: Primary Spherical, 10: Trefoil (horiz.), 11: Trefoil (vertical), 12: 2nd Astig. (straight),
    13: 2nd Astig. (oblique), 14: 2nd Coma (horiz.), 15: 2nd Coma (vertical), 16: 2nd Spherical,
    17: Tetrafoil (straight), 18: Tetrafoil (oblique), 19: 2nd Trefoil (horiz.), 20: 2nd Trefoil (vertical),
    21: 3rd Astig. (straight), 22: 3rd Astig. (oblique), 23: 3rd Coma (horiz.), 24: 3rd Coma (vertical),
    25: 3rd Spherical, 26: Pentafoil (horiz.), 27: Pentafoil (vertical), 28: 2nd Tetrafoil (straight),
    29: 2nd Tetrafoil (oblique), 30: 3rd Trefoil (horiz.), 31: 3rd Trefoil (vertical),
    32: 4th Astig. (straight), 33: 4th Astig. (oblique), 34: 4th Coma (horiz.), 35: 4th Coma (vertical),
    36: 4th Spherical, 37: 5th Spherical
"""
LOWEST = {
    "Defocus": (2, 0),
    "Spherical": (4, 0),
    "Coma": (3, 1),
    "Astig": (2, 2),
    "Trefoil": (3, 3),
    "Tetrafoil": (4, 4),
}


def test_tables_i_and_xvi_name_every_fringe_term():
    """A name is the lowest order of its kind, "2nd" two orders above it; straight and horizontal
    have the cosine.
    """
    lines = [line.strip() for line in re.sub(r"\s+", " ", TABLE_XVI).split(",")]
    assert len(lines) == 34
    for line in lines:
        index, name = line.split(": ")
        kind = next(k for k in (*LOWEST, "Pentafoil") if k in name)
        n, m = LOWEST.get(kind, (5, 5))
        nth = int(name[0]) if name[0].isdigit() else 1
        assert FRINGE[int(index)] == (
            n + 2 * (nth - 1),
            -m if "oblique" in name or "vertical" in name else m,
        ), line

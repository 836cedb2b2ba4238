import numpy as np
import pytest

from sorites.optics.psf import LINES_UM, Imager

TABLE_XVII = {
    "red": (0.32671, 0.088223, -0.061867, -4.7631e-06),
    "green": (0.11273, 0.095923, -0.069497, -5.3967e-06),
    "blue": (-0.41772, 0.10825, -0.085119, -6.7436e-06),
}
"""Defocus, spherical, secondary spherical and quadrafoil in waves, by the caption: Fringe 4, 9, 16,
17 (printed 4, 9, 15, 16).
"""


def test_table_xvii_is_taken_away_from_every_wavefront_by_colour():
    assert LINES_UM == (0.6563, 0.5876, 0.4861)
    for colour, held in enumerate(TABLE_XVII.values()):
        made = Imager().wavefront(colour, {7: 0.9, 9: 0.5})
        wanted = {4: -held[0], 7: 0.9, 9: 0.5 - held[1], 16: -held[2], 17: -held[3]}
        assert made == pytest.approx(wanted, abs=1e-12)


def test_colours_differ_by_it():
    red, green, blue = Imager().kernel({5: 1.1})
    assert min(np.abs(a - b).sum() for a, b in ((red, green), (green, blue), (red, blue))) > 0.1

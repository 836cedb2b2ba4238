"""Against closed forms, our own matrices and direct traces.

One import of the ray tracer takes ten seconds: all of it is slow.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from sorites.core.errors import SoritesError
from sorites.optics.tracing.assembly import build, objective
from sorites.optics.tracing.blur import fit_zernike, psf
from sorites.optics.tracing.glass import material
from sorites.optics.tracing.lens import D_LINE_UM, Lens, first_order, paraxial
from sorites.optics.tracing.prescription import Glass, Prescription, Refused, Surface
from sorites.optics.tracing.rays import COARSE, beams, chief, launch, through, trace
from sorites.optics.tracing.tolerance import (
    AZIMUTHS,
    built_blurs,
    coarse_traces,
    designed,
    elements,
    moved,
    spread_mm,
    worst_element,
)

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("tracer")]
GLASS = Glass("", 1.6, 60.0)
Array = NDArray[np.float64]


def index() -> float:
    return float(np.squeeze(material(GLASS, ()).n(D_LINE_UM)))


def perfect(*behind: Surface) -> Lens:
    """Descartes' hyperboloid, without aberration on the axis, F/8 and 50 mm; ``behind`` stands 20
    mm behind it.
    """
    bent = Surface(
        curvature=-1 / (50 * (index() - 1)), conic=-(index() ** 2), thickness=20.0 if behind else 50.0
    )
    front = Surface(thickness=5.0, glass=GLASS)
    surfaces = [Surface(thickness=np.inf), front, bent, *behind, Surface()]
    return build(Prescription("perfect", surfaces, 1, ("F-number", 8.0), "angle", 5.0))


def light(lens: Lens, angle: float, azimuth: float, window: int = 65) -> Array:
    box = beams(lens, [angle], azimuth, D_LINE_UM)[0]
    made = psf(trace(lens, angle, D_LINE_UM, 160, box, azimuth, whole=True), D_LINE_UM, window)
    return np.asarray(made / made.sum())


def apart(first: Array, second: Array) -> float:
    return float(np.abs(first - second).sum())


def test_a_cemented_group_is_one_element() -> None:
    assert elements(objective("CookeTriplet")) == [(1, 2), (3, 4), (5, 6)]
    assert elements(objective("DoubleGauss")) == [(1, 2), (3, 5), (7, 9), (10, 11)]


@pytest.mark.parametrize("kind", ["decentre", "tilt", "spacing"])
def test_the_given_lens_is_left_alone(kind: str) -> None:
    lens = objective("CookeTriplet")
    before = [
        (*map(float, (s.geometry.cs.y, s.geometry.cs.rx)), float(np.squeeze(s.geometry.cs.z)))
        for s in lens.surfaces
    ]
    there = chief(lens, 14.0, 90.0, D_LINE_UM)
    assert chief(moved(lens, 1, kind, 50.0), 14.0, 90.0, D_LINE_UM) != there
    after = [
        (*map(float, (s.geometry.cs.y, s.geometry.cs.rx)), float(np.squeeze(s.geometry.cs.z)))
        for s in lens.surfaces
    ]
    assert (before, there) == (after, chief(lens, 14.0, 90.0, D_LINE_UM))


def test_a_perfect_lens_off_its_axis_moves_the_image_and_nothing_else() -> None:
    lens = perfect()
    off = moved(lens, 1, "decentre", 30.0)
    rays = [
        trace(one, 0.0, D_LINE_UM, COARSE, beams(one, [0.0], 90.0, D_LINE_UM)[0], whole=True)
        for one in (lens, off)
    ]
    assert rays[1].y.mean() - rays[0].y.mean() == pytest.approx(0.030, abs=1e-7)
    assert rays[1].x.mean() == pytest.approx(0, abs=1e-7)
    assert apart(light(lens, 0.0, 90.0), light(off, 0.0, 90.0)) < 1e-3


@pytest.mark.parametrize("minutes", [30.0, 600.0])
def test_a_tilted_plate_displaces_the_beam_by_the_closed_form(minutes: float) -> None:
    thick = 4.0
    lens = perfect(Surface(thickness=thick, glass=GLASS), Surface(thickness=20.0))
    i = math.radians(minutes / 60)
    wanted = thick * math.sin(i) * (1 - math.cos(i) / math.sqrt(index() ** 2 - math.sin(i) ** 2))
    x, y = chief(moved(lens, 2, "tilt", minutes), 0.0, 90.0, D_LINE_UM)
    assert abs(y) == pytest.approx(wanted, rel=1e-6)
    assert x == pytest.approx(0, abs=1e-12)


def test_a_tilted_plate_gives_the_same_wherever_it_stands() -> None:
    """Around its own middle: neither the image nor its blur knows how far the plate is from the
    first surface.
    """
    plate = Surface(thickness=4.0, glass=GLASS)
    near = moved(perfect(plate, Surface(thickness=20.0)), 2, "tilt", 300.0)
    far = moved(perfect(Surface(thickness=10.0), plate, Surface(thickness=10.0)), 2, "tilt", 300.0)
    assert chief(near, 0.0, 90.0, D_LINE_UM)[1] == pytest.approx(
        chief(far, 0.0, 90.0, D_LINE_UM)[1], abs=1e-9
    )


@pytest.mark.parametrize("by", [100.0, 500.0])
def test_a_wider_space_moves_the_focus_as_matrices_say(by: float) -> None:
    """A ray close to the axis crosses it where the product of matrices, given the wider space by
    hand, has the focus.
    """
    lens = objective("CookeTriplet")
    inner = lens.surfaces[1:-1]
    curved, behind = (
        [1 / float(s.geometry.radius) for s in inner],
        [float(np.squeeze(s.material_post.n(D_LINE_UM))) for s in inner],
    )
    spaces = [float(s.thickness) for s in inner]
    spaces[1] += by / 1000
    wanted = first_order(curved, spaces, behind, lens.stop - 1)
    wider = moved(lens, 1, "spacing", by)
    ray = through(wider, *launch(wider, 0.0, 90.0, np.zeros(1), np.array([0.01])), D_LINE_UM)
    crossing = float(-ray.y[0] * ray.N[0] / ray.M[0])
    assert crossing + spaces[-1] == pytest.approx(wanted.bfl_mm, abs=1e-5)
    assert abs(wanted.bfl_mm - lens.paraxial.bfl_mm) > 0.05
    assert wider.paraxial.bfl_mm == pytest.approx(wanted.bfl_mm, rel=1e-12)
    assert paraxial(lens.optic, lens.stop) == lens.paraxial


def test_the_last_space_is_the_sensor_out_of_focus() -> None:
    lens = objective("CookeTriplet")
    rays = coarse_traces(moved(lens, 3, "spacing", 80.0), 0.7)[0].rays[1]
    still = coarse_traces(lens, 0.7)[0].rays[1].moved(0.080)
    np.testing.assert_allclose(rays.y, still.y, atol=1e-9)


def test_coma_on_the_axis_grows_with_the_decentre() -> None:
    """In proportion (Seidel aberrations of a decentred element are linear in the field's apparent
    shift), and along y alone.
    """
    lens, found = objective("CookeTriplet"), []
    for by in (0.0, 10.0, 20.0, 40.0):
        off = moved(lens, 2, "decentre", by)
        rays = trace(off, 0.0, D_LINE_UM, 65, beams(off, [0.0], 90.0, D_LINE_UM)[0], whole=True)
        found.append(fit_zernike(rays, D_LINE_UM, 37)[[6, 7]])
    x, y = np.array(found).T
    assert np.abs(x).max() < 1e-3
    assert abs(y[0]) < 1e-3
    assert y[1:] / y[1] == pytest.approx([1, 2, 4], rel=0.02)
    assert abs(y[3]) > 0.2


@pytest.mark.parametrize("kind", ["decentre", "tilt"])
def test_the_yz_plane_is_a_mirror(kind: str) -> None:
    """What is mirrored from 45 degrees is what is traced at 135; so it is not about the xz plane."""
    off = moved(objective("CookeTriplet"), 2, kind, 20.0)
    right, left, low = (light(off, 14.0, azimuth) for azimuth in (45.0, 135.0, -45.0))
    assert apart(right[:, ::-1], left) < 0.02
    assert apart(right[::-1], low) > 0.2


def test_stops_places_and_the_lens_as_designed() -> None:
    """Stop 0 is the symmetric lens: the field at -90 degrees is that at 90 turned about; moved,
    they differ.
    """
    nominal, pitch = designed(objective("CookeTriplet"))
    made = built_blurs(nominal, pitch, 2, "decentre", [10.0, 40.0], 0.7)
    side = made.kernels.shape[-1]
    assert made.kernels.shape == (3, 6, 3, side, side)
    assert made.mtf50.shape == (3, 6)
    np.testing.assert_allclose(made.kernels.sum((-2, -1)), 1, atol=1e-9)
    up, down = 1 + AZIMUTHS.index(90), 1 + AZIMUTHS.index(270)
    differ = np.abs(made.kernels[:, up] - made.kernels[:, down][..., ::-1, ::-1]).sum((-2, -1)).max(1)
    assert differ[0] < 0.02
    assert differ[2] > 0.2
    assert made.mtf50[0, 0] > made.mtf50[1, 0] > made.mtf50[2, 0]
    assert set(made.focus_mm) == {nominal.focus_mm}


def test_halfway_between_stops_a_mix_is_near_the_trace() -> None:
    nominal, pitch = designed(objective("CookeTriplet"))
    made = built_blurs(nominal, pitch, 2, "decentre", [10.0, 15.0, 20.0], 0.7).kernels
    mixed = (made[1] + made[3]) / 2
    assert np.abs(mixed - made[2]).sum((-2, -1)).max() < 0.15


def test_refocusing_takes_back_what_the_sensor_can() -> None:
    """A wider last space is a sensor too far back: refocused, the lens is as designed."""
    nominal, pitch = designed(objective("CookeTriplet"))
    still, again = (
        built_blurs(nominal, pitch, 3, "spacing", [100.0], 0.7, refocus) for refocus in (False, True)
    )
    assert again.focus_mm[0] == nominal.focus_mm
    assert again.focus_mm[1] == pytest.approx(nominal.focus_mm - 0.1, abs=2e-3)
    assert still.mtf50[1, 0] < 0.8 * still.mtf50[0, 0]
    assert again.mtf50[1] == pytest.approx(again.mtf50[0], abs=5e-3)


def test_the_element_that_hurts_most_is_the_inner_one_of_a_triplet() -> None:
    """The negative element of a Cooke triplet carries the opposed, largest contributions."""
    nominal, _ = designed(objective("CookeTriplet"))
    hurt = [spread_mm(nominal, k, "decentre", 50.0, 0.7, False) for k in (1, 2, 3)]
    assert worst_element(nominal, "decentre", 50.0, 0.7) == 1 + int(np.argmax(hurt)) == 2


def test_what_cannot_be_moved_is_named() -> None:
    lens = objective("CookeTriplet")
    with pytest.raises(
        SoritesError,
        match="got .decentre. and 4",
    ):
        moved(lens, 4, "decentre", 1.0)
    with pytest.raises(SoritesError, match="got 'shear' and 1"):
        moved(lens, 1, "shear", 1.0)
    with pytest.raises(Refused, match="smaller stops"):
        built_blurs(replace(lens), 3.0, 3, "spacing", [12000.0], 0.7)

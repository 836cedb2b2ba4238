"""Against optiland and closed forms.

One import of the ray tracer takes ten seconds and more, so all of it is slow.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import j1

from sorites.lenses.store import builtin, load
from sorites.lenses.trace import trace_lens
from sorites.optics.psf import LINES_UM
from sorites.optics.tracing.assembly import OBJECTIVES, build, objective
from sorites.optics.tracing.blur import (
    best_focus,
    blur,
    drop_stray_rays,
    fit_zernike,
    inside,
    psf,
    rays_across,
)
from sorites.optics.tracing.glass import material
from sorites.optics.tracing.lens import D_LINE_UM, Lens, paraxial
from sorites.optics.tracing.prescription import Glass, Prescription, Refused, Surface
from sorites.optics.tracing.rays import COARSE, Rays, beams, chief, launch, through, trace

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("tracer")]


def singlet(f_number: float = 8.0, glass: Glass | None = None, focal: float = 50.0) -> Prescription:
    """Flat, then a hyperboloid of conic -n^2: without any aberration on the axis (Descartes)."""
    n = float(np.squeeze(material(Glass("", 1.6, 60.0), ()).n(D_LINE_UM)))
    bent = Surface(curvature=-1 / (focal * (n - 1)), conic=-(n**2), thickness=focal)
    front = Surface(thickness=5.0, glass=glass or Glass("", 1.6, 60.0))
    return Prescription(
        "perfect",
        [Surface(thickness=np.inf), front, bent, Surface()],
        1,
        ("F-number", f_number),
        "angle",
        5.0,
    )


@pytest.mark.parametrize("name", OBJECTIVES)
def test_first_order_data_agree_with_optiland(name: str) -> None:
    lens = objective(name)
    line = float(lens.optic.primary_wavelength)
    ours = paraxial(lens.optic, lens.stop, line)
    theirs = lens.optic.paraxial
    assert ours.efl_mm == pytest.approx(float(np.squeeze(theirs.f2())), rel=1e-6)
    last = float(np.squeeze(lens.surfaces[-2].geometry.cs.z))
    image = float(np.squeeze(lens.surfaces[-1].geometry.cs.z))
    assert ours.bfl_mm == pytest.approx(float(np.squeeze(theirs.F2())) + image - last, rel=1e-6, abs=1e-9)
    assert ours.efl_mm / lens.epd_mm == pytest.approx(float(np.squeeze(theirs.FNO())), rel=0.01)


def test_a_perfect_lens_gives_the_airy_pattern() -> None:
    lens = build(singlet())
    box = beams(lens, [0.0], 90.0, D_LINE_UM)[0]
    rays = trace(lens, 0.0, D_LINE_UM, 120, box)
    light = psf(rays, D_LINE_UM, 64)
    place = np.arange(64) - 32
    radius = np.hypot(place, place[:, None])
    v = np.pi * radius / (D_LINE_UM * lens.f_number)
    airy = np.where(v == 0, 1.0, (2 * j1(np.where(v == 0, 1, v)) / np.where(v == 0, 1, v)) ** 2)
    np.testing.assert_allclose(light / light.max(), airy, atol=0.02)


@pytest.mark.parametrize("name", ["CookeTriplet", "DoubleGauss", "TessarLens"])
@pytest.mark.parametrize("field", [0.0, 0.7])
def test_the_sum_of_waves_agrees_with_huygens(name: str, field: float) -> None:
    """The same rays, summed by optiland's Huygens integral and by ours."""
    from optiland.distribution import create_distribution
    from optiland.psf import HuygensPSF

    lens, size = objective(name), 65
    theirs = HuygensPSF(
        lens.optic, (0, field), D_LINE_UM, num_rays=64, image_size=size, pixel_pitch=1e-3 * (size - 1) / size
    )
    pupil = create_distribution("uniform")
    pupil.generate_points(64)
    sent = lens.optic.ray_tracer.ray_generator.generate_rays(
        0 * pupil.x, 0 * pupil.x + field, pupil.x, pupil.y, D_LINE_UM
    )
    starts, direction = np.stack([sent.x, sent.y, sent.z]), np.array([sent.L[0], sent.M[0], sent.N[0]])
    rays = through(replace(lens, stop_mm=np.inf), starts, direction, D_LINE_UM)
    ours = psf(rays, D_LINE_UM, size, 1.0, (float(theirs.cx), float(theirs.cy)))
    assert np.abs(ours / ours.sum() - theirs.psf / np.sum(theirs.psf)).sum() < 0.02


@pytest.mark.parametrize("name", ["CookeTriplet", "DoubleGauss", "TessarLens"])
@pytest.mark.parametrize("field", [0.0, 0.7])
def test_our_own_rays_agree_with_huygens(name: str, field: float) -> None:
    """Rays of an even grid across the plane wave, stopped by the real stop, against rays that
    optiland aims at the stop.

    Theirs carry equal light for an equal part of the stop, ours for an equal part of the wave; here
    ours are weighed as theirs.
    """
    from optiland.psf import HuygensPSF

    lens, size = objective(name), 65
    lens.optic.ray_tracer.set_aiming("iterative")
    theirs = HuygensPSF(
        lens.optic, (0, field), D_LINE_UM, num_rays=160, image_size=size, pixel_pitch=1e-3 * (size - 1) / size
    )
    rays, weights = weighed(lens, field * lens.field_deg)
    ours = summed(rays, weights, size, (float(theirs.cx), float(theirs.cy)))
    assert np.abs(ours - theirs.psf / np.sum(theirs.psf)).sum() < 0.02


def weighed(lens: Lens, angle: float) -> tuple[Rays, np.ndarray]:
    """Rays on an even grid, and the part of the stop that belongs to each."""
    box = beams(lens, [angle], 90.0, D_LINE_UM)[0]
    places = 2 * (np.arange(256) + 0.5) / 256 - 1
    a, b = np.meshgrid(box.a + box.wide * places, box.b + box.tall * places, indexing="ij")
    wide = replace(lens, stop_mm=1.15 * lens.stop_mm)
    rays = through(wide, *launch(lens, angle, 90.0, a.ravel(), b.ravel()), D_LINE_UM)
    x, y = (1.15 * part.reshape(a.shape) for part in (rays.sx, rays.sy))
    (xa, xb), (ya, yb) = np.gradient(x), np.gradient(y)
    area = np.abs(xa * yb - xb * ya)
    passed = np.isfinite(area) & (np.hypot(x, y) <= 1)
    return rays.where(passed.ravel()), area[passed]


def summed(rays: Rays, weights: np.ndarray, size: int, centre: tuple[float, float]) -> np.ndarray:
    """The weighed sum of plane waves term by term, a block of rays at a time."""
    wave, step = 2 * np.pi / (D_LINE_UM / 1000), 1e-3 * (np.arange(size) - size // 2)
    late = rays.path + rays.L * (centre[0] - rays.x) + rays.M * (centre[1] - rays.y)
    total = np.zeros((size, size), complex)
    for part in np.array_split(np.arange(len(late)), 40):
        down = np.exp(1j * wave * np.outer(step, rays.M[part])) * (
            weights[part] * np.exp(1j * wave * (late[part] - late.mean()))
        )
        total += down @ np.exp(1j * wave * np.outer(rays.L[part], step))
    light = np.abs(total) ** 2
    return np.asarray(light / light.sum())


def test_turning_the_rays_is_turning_the_field() -> None:
    """Half a beam at 90 degrees, mirrored and turned, against the whole beam traced at 45 degrees."""
    lens, angle = objective("CookeTriplet"), 14.0
    half = trace(lens, angle, D_LINE_UM, 120, beams(lens, [angle], 90.0, D_LINE_UM)[0]).turned(-45)
    whole = trace(lens, angle, D_LINE_UM, 120, beams(lens, [angle], 45.0, D_LINE_UM)[0], 45.0, whole=True)
    first, second = (psf(rays, D_LINE_UM, 64) for rays in (half, whole))
    assert np.abs(first / first.sum() - second / second.sum()).sum() < 0.02


def test_more_rays_change_nothing() -> None:
    lens, angle = objective("DoubleGauss"), 9.8
    box = beams(lens, [angle], 90.0, D_LINE_UM)[0]
    enough = rays_across(trace(lens, angle, D_LINE_UM, COARSE, box), D_LINE_UM)
    few, many = (psf(trace(lens, angle, D_LINE_UM, n, box), D_LINE_UM) for n in (enough, 2 * enough))
    assert np.abs(few / few.sum() - many / many.sum()).sum() < 0.1


def test_a_beam_that_is_foreshortened_is_sampled_enough() -> None:
    """At 76 degrees off axis a beam is narrow in one direction; all its rays land within 20 um, and
    so must the light.
    """
    lens = objective("WideAngle170FOV")
    angle = 0.9 * lens.field_deg
    box = beams(lens, [angle], 90.0, D_LINE_UM)[0]
    rays = trace(
        lens, angle, D_LINE_UM, rays_across(trace(lens, angle, D_LINE_UM, COARSE, box), D_LINE_UM), box
    )
    near = np.abs(np.arange(256) - 128) <= 20
    light = psf(rays, D_LINE_UM)
    assert inside(rays, 40) > 0.97
    assert light[np.ix_(near, near)].sum() / light.sum() > 0.97


@pytest.mark.parametrize(
    ("name", "inches"),
    [("TelescopeObjective48Inch", 48.0), ("TessarLens", 4.0), ("LensWithFieldCorrector", 5.0)],
)
def test_objectives_given_in_inches_are_taken_so(name: str, inches: float) -> None:
    """The focal lengths that Laikin's book names."""
    assert objective(name).paraxial.efl_mm == pytest.approx(25.4 * inches, rel=0.01)


def test_the_chief_ray_lands_where_optiland_says() -> None:
    lens = objective("CookeTriplet")
    sent, direction = launch(lens, 0.0, 90.0, np.array([0.0]), np.array([1.0]))
    assert through(lens, sent, direction, D_LINE_UM).path[0] > 0
    lens.optic.ray_tracer.set_aiming("iterative")
    theirs = lens.optic.trace_generic(0.0, 0.7, 0.0, 0.0, D_LINE_UM)
    assert chief(lens, 0.7 * lens.field_deg, 90.0, D_LINE_UM)[1] == pytest.approx(
        float(theirs.y[0]), abs=2e-3
    )


def test_best_focus_finds_a_moved_sensor() -> None:
    lens = build(singlet())
    rays = trace(lens, 0.0, D_LINE_UM, COARSE, beams(lens, [0.0], 90.0, D_LINE_UM)[0])
    assert best_focus([[rays.moved(0.2)]], lens.f_number) == pytest.approx(-0.2, abs=2e-3)


def test_a_moved_sensor_is_defocus_alone() -> None:
    """W = dz / (8 F^2) at the rim; the coefficient of 2 r^2 - 1 is half of it."""
    lens = build(singlet())
    rays = trace(lens, 0.0, D_LINE_UM, COARSE, beams(lens, [0.0], 90.0, D_LINE_UM)[0]).moved(0.3)
    found = fit_zernike(rays, D_LINE_UM, 37)
    assert abs(found[3]) == pytest.approx(0.3 / (16 * lens.f_number**2) / (D_LINE_UM / 1000), rel=0.02)
    assert np.abs(np.delete(found, [0, 3])).max() < 0.02


def test_an_unknown_glass_is_refused_by_name() -> None:
    with pytest.raises(Refused, match="glass LAFN99.*SCHOTT"):
        build(replace(singlet(glass=Glass("LAFN99")), catalogues=("SCHOTT",)))


def test_a_named_glass_is_that_of_its_catalogue() -> None:
    """Schott's data sheet of N-BK7: nd 1.51680, nF 1.52238, nC 1.51432."""
    glass = material(Glass("N-BK7"), ("SCHOTT",))
    found = [float(np.squeeze(glass.n(line))) for line in (0.4861327, 0.5875618, 0.6562725)]
    assert found == pytest.approx([1.52238, 1.51680, 1.51432], abs=1e-5)


def test_a_glass_of_one_name_in_several_catalogues_is_that_of_the_stated_one() -> None:
    """Schott's data sheet of SF5, which Hikari has too: nd 1.67270; and N-SF5 is another glass by
    its name.
    """
    assert float(np.squeeze(material(Glass("SF5"), ("SCHOTT",)).n(0.5875618))) == pytest.approx(
        1.67270, abs=1e-5
    )
    assert (
        material(Glass("SF5"), ("HIKARI",)).filename
        != material(Glass("SF5"), ("HIKARI", "SCHOTT")[::-1]).filename
    )


def test_a_negative_lens_is_refused() -> None:
    made = singlet()
    made.surfaces[2].curvature *= -1
    with pytest.raises(Refused, match="no real image"):
        build(made)


def test_a_blur_beyond_the_window_is_refused() -> None:
    far = build(singlet(f_number=2.0))
    far.focus_mm = 12.0
    with pytest.raises(Refused, match="within 2048 um"):
        blur(far, focus="file")


@pytest.mark.long
@pytest.mark.parametrize("name", ["DoubleGauss", "TessarLens"])
def test_the_lenses_that_come_with_us_are_what_tracing_gives(name: str) -> None:
    fresh, held = trace_lens(objective(name)), load(builtin(), name)
    assert fresh.quality == pytest.approx(held.quality, abs=1e-3)
    assert np.abs(fresh.arrays["kernels"] - held.arrays["kernels"]).sum((-2, -1)).max() < 0.02
    assert held.arrays["zernike12"].shape == (5, len(LINES_UM), 12)


def test_rays_thrown_far_away_neither_move_the_window_nor_count_as_caught() -> None:
    lens = build(singlet())
    rays = trace(lens, 0.0, D_LINE_UM, COARSE, beams(lens, [0.0], 90.0, D_LINE_UM)[0])
    far = np.arange(len(rays.x)) < 0.02 * len(rays.x)
    thrown = replace(rays, y=rays.y + np.where(far, 5.0, 0.0))
    assert len(drop_stray_rays(thrown).x) == len(rays.x) - far.sum()
    assert abs(drop_stray_rays(thrown).y.mean()) < 1e-3
    assert inside(thrown) == pytest.approx(1 - far.mean())

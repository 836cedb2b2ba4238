"""Indices of glasses against the tables in the prescription reports of the LensLibrary collection (N. Hagen),
and what follows from them: axial colour, and the PSF per colour against a tracer of spheres written here.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from sorites.optics.tracing.glass import (
    C_UM,
    D_UM,
    F_UM,
    G_UM,
    MEASURED_UM,
    NORMAL_LINE,
    described,
    material,
    successor,
    used_name,
)
from sorites.optics.tracing.prescription import Glass, Prescription, Refused, Surface, parse

# (nd, vd) of the prescription: nF, nd, nC of the report.
DESCRIBED = {
    (1.4339, 95.2): (1.4369864384, 1.4339009353, 1.4324304233),
    (1.4645, 65.7): (1.4693908649, 1.4645014140, 1.4623236579),
    (1.48749, 70.21): (1.4922777232, 1.4874913942, 1.4853371560),
    (1.48749, 70.44): (1.4922613029, 1.4874913899, 1.4853433974),
    (1.497, 81.61): (1.5011649379, 1.4970012351, 1.4950773792),
    (1.51633, 64.15): (1.5219041309, 1.5163316075, 1.5138585409),
    (1.545, 56.0): (1.5517791634, 1.5450019297, 1.5420509230),
    (1.5834, 30.23): (1.5970890332, 1.5834037385, 1.5777982554),
    (1.6031, 28.99): (1.6178693388, 1.6031040255, 1.5970741740),
    (1.6073, 59.5): (1.6143920702, 1.6073020301, 1.6041894264),
    (1.62, 36.3): (1.6320638805, 1.6200033271, 1.6149909704),
    (1.632, 23.4): (1.6512490655, 1.6320051994, 1.6242516913),
    (1.6398, 34.48): (1.6529229725, 1.6398036086, 1.6343748840),
    (1.661, 20.4): (1.6841410568, 1.6610062205, 1.6517525378),
    (1.6968, 55.4): (1.7055649821, 1.6968024925, 1.6929924112),
    (1.7174, 29.5): (1.7346585744, 1.7174047079, 1.7103499326),
    (1.755, 52.3): (1.7650821384, 1.7550028529, 1.7506520013),
    (1.8044, 39.59): (1.8187181389, 1.8044039697, 1.7984081538),
    (1.84666, 23.8): (1.8720066116, 1.8466668509, 1.8364473726),
    (1.883, 40.8): (1.8982381228, 1.8830042330, 1.8766047722),
}
NAMED = {
    "BK1": (1.5156636409, 1.5100909531, 1.5076262556),
    "BK10": (1.5029566103, 1.4978210089, 1.4955213933),
    "F5": (1.6146122611, 1.6034202574, 1.5987452734),
    "FK51": (1.4905574408, 1.4865610802, 1.4847971397),
    "KZFS4": (1.6231993257, 1.6133999429, 1.6091959557),
    "LAFN21": (1.7999198414, 1.7883089381, 1.7833135149),
    "LLF1": (1.5565468438, 1.5481400960, 1.5445656546),
    "N-BK7": (1.5223762897, 1.5168000345, 1.5143223473),
    "N-KZFS4": (1.6230023177, 1.6133601948, 1.6092169810),
    "N-LAK10": (1.7299485449, 1.7200280067, 1.7157249934),
    "N-LAK34": (1.7384689362, 1.7291600602, 1.7250896647),
    "N-LASF44": (1.8163026412, 1.8041998964, 1.7990082565),
    "N-PK52A": (1.5012293980, 1.4970000692, 1.4951394805),
    "N-PSK53A": (1.6247815394, 1.6180001008, 1.6150323197),
    "N-SK11": (1.5702842012, 1.5638397368, 1.5610103488),
    "N-SSK8": (1.6264075146, 1.6177282061, 1.6140105933),
    "SF15": (1.7154601697, 1.6989513375, 1.6922145837),
    "SF2": (1.6612312722, 1.6476890932, 1.6420961828),
    "SF5": (1.6874953348, 1.6726974920, 1.6666104954),
    "SF53": (1.7463473341, 1.7283008787, 1.7209592054),
    "SF6": (1.8277521139, 1.8051820781, 1.7960919378),
}


def indices(glass: Glass, catalogues: tuple[str, ...] = ()) -> list[float]:
    found = material(glass, catalogues)
    return [float(np.squeeze(found.n(line))) for line in MEASURED_UM]


@pytest.mark.parametrize(("numbers", "stated"), DESCRIBED.items())
def test_a_described_glass_has_the_indices_of_the_report(
    numbers: tuple[float, float], stated: tuple[float, ...]
) -> None:
    found = described(*numbers)
    assert [found.index(line) for line in MEASURED_UM] == pytest.approx(stated, abs=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "stated"), NAMED.items())
def test_a_named_glass_has_the_indices_of_the_report(name: str, stated: tuple[float, ...]) -> None:
    assert indices(Glass(name), ("SCHOTT",)) == pytest.approx(stated, abs=2e-6)


@pytest.mark.parametrize(
    ("nd", "vd", "deviation"), [(1.48749, 70.4, 0.0), (1.9, 20.0, 0.03), (1.3, 95, -0.02)]
)
def test_index_abbe_number_and_partial_dispersion_are_exact(nd: float, vd: float, deviation: float) -> None:
    d, f, c, g = (described(nd, vd, deviation).index(line) for line in (D_UM, F_UM, C_UM, G_UM))
    assert d == pytest.approx(nd, abs=1e-12)
    assert (d - 1) / (f - c) == pytest.approx(vd, rel=1e-9)
    assert (g - f) / (f - c) == pytest.approx(NORMAL_LINE[0] + NORMAL_LINE[1] * vd + deviation, abs=1e-9)


def test_an_abbe_number_of_0_means_no_dispersion() -> None:
    assert [described(1.56, 0.0).index(line) for line in MEASURED_UM] == [1.56] * 3


@pytest.mark.slow
def test_the_tracer_uses_the_formula() -> None:
    for numbers in DESCRIBED:
        wanted = [described(*numbers).index(line) for line in MEASURED_UM]
        assert indices(Glass("", *numbers)) == pytest.approx(wanted, abs=1e-12)


def test_a_deviation_that_no_glass_has_is_refused() -> None:
    with pytest.raises(Refused, match=r"25\.45"):
        described(1.6042, 33.56, 25.45)


def test_the_deviation_of_a_file_is_read() -> None:
    lines = "SURF 0\n GLAS ___BLANK 1 0 1.6 40 0.012 0 0\nSURF 1\n GLAS ___BLANK 1 0 1.6 0\n"
    first, second = (surface.glass for surface in parse(lines, "a").surfaces)
    assert first == Glass("", 1.6, 40.0, 0.012)
    assert second == Glass("", 1.6, 0.0, 0.0)


@pytest.mark.slow
def test_a_missing_glass_is_replaced_by_its_successor() -> None:
    assert successor(Glass("SK16"), ("SCHOTT",)) == "N-SK16"
    assert used_name(Glass("BAFN10"), ("INFRARED", "SCHOTT")) == "N-BAF10"
    assert used_name(Glass("SF5"), ("SCHOTT",)) == "SF5"
    assert indices(Glass("SK16"), ("SCHOTT",)) == indices(Glass("N-SK16"), ("SCHOTT",))
    assert used_name(Glass("K-FK5"), ("SUMITA_AUG2011",)) == "K-FK5"
    with pytest.raises(Refused, match="SK16 is in none"):
        material(Glass("SK16"), ("HOYA",))
    with pytest.raises(Refused, match="XYZ9 is in none"):
        material(Glass("XYZ9"), ("SCHOTT",))


# Radius in mm (0 is flat), distance to the next surface, (nd, vd) of the glass behind it; stop; entrance pupil;
# half field in degrees; shift of the paraxial focus at F and at C from that at d, in mm, from the report.
Lens = tuple[
    tuple[tuple[float, float, tuple[float, float] | None], ...], int, float, float, tuple[float, float]
]
US1791276: Lens = (
    (
        (101, 16, (1.62, 36.3)),
        (-258, 1, None),
        (0, 6, (1.6073, 59.5)),
        (33.19, 99.5, None),
        (120.1, 14, (1.6073, 59.5)),
        (-113, 0, None),
        (387, 7, (1.7174, 29.5)),
        (59.28, 4, None),
        (87.1, 14, (1.5163, 64.0)),
        (-118.1, 164.3608, None),
    ),
    10,
    30.0,
    10.0,
    (0.220242, 0.077107),
)
US5852515C: Lens = (
    (
        (44.1653, 7, (1.48749, 70.21)),
        (200.473, 0.8, None),
        (45.1729, 4.9, (1.497, 81.61)),
        (74.1478, 1, None),
        (31.2811, 11.4965, (1.497, 81.61)),
        (139.0851, 5.6941, (1.8044, 39.59)),
        (21.0069, 28.9681, None),
        (-27.1947, 4.2, (1.48749, 70.21)),
        (-79.5088, 1.9322, None),
        (84.549, 5.0287, (1.6398, 34.48)),
        (0, 71.57962, None),
    ),
    7,
    50.0,
    4.0,
    (-0.010343, 0.256876),
)
D = 1
REPORTED = {**DESCRIBED, (1.5163, 64.0): (1.5218874693, 1.5163016110, 1.5138234915)}
both = pytest.mark.parametrize("stated", [US1791276, US5852515C], ids=["1791276", "5852515c"])


def prescription(stated: Lens) -> Prescription:
    surfaces, stop, pupil, field, _ = stated
    middle = [
        Surface(1 / radius if radius else 0.0, apart, glass=Glass("", *numbers) if numbers else None)
        for radius, apart, numbers in surfaces
    ]
    ends = Surface(thickness=math.inf), Surface()
    return Prescription("x", [ends[0], *middle, ends[1]], stop, ("entrance pupil", pupil), "angle", field)


@pytest.mark.slow
@both
def test_axial_colour_is_that_of_the_report(stated: Lens) -> None:
    from sorites.optics.tracing.assembly import build
    from sorites.optics.tracing.lens import paraxial

    lens = build(prescription(stated))
    blue, green, red = (paraxial(lens.optic, lens.stop, line).bfl_mm for line in MEASURED_UM)
    assert (blue - green, red - green) == pytest.approx(stated[4], abs=2e-5)


Array = NDArray[np.float64]


def traced_waves(stated: Lens, colour: int, angle: float) -> tuple[Array, ...]:
    """An even plane wave through the lens, as wide as the stop lets through: where its rays land on the image plane (2 x n),
    their direction (2 x n) and their path; those outside the stop are dropped.
    """
    side = np.linspace(-stated[2], stated[2], 61)
    open_, *_ = stopped(stated, colour, angle, *np.meshgrid(side, side))
    assert not open_[[0, -1]].any(), "the stop lies within the wave"
    assert not open_[:, [0, -1]].any()
    inside = side[open_.any(0)], side[open_.any(1)]
    step = side[1] - side[0]
    fine = [np.linspace(part[0] - step, part[-1] + step, 231) for part in inside]
    open_, landed, along, path = stopped(stated, colour, angle, *np.meshgrid(*fine))
    return landed[:2, open_], along[:2, open_], path[open_]


def stopped(stated: Lens, colour: int, angle: float, a: Array, b: Array) -> tuple[Array, ...]:
    """Whether rays pass the stop, whose radius is the height of the marginal ray; then as ``waves``."""
    crossing, *rays = waves(stated, colour, angle, a.ravel(), b.ravel())
    rim, *_ = waves(stated, D, 0.0, np.zeros(1), np.full(1, stated[2] / 2))
    open_ = (np.hypot(*crossing[:2]) <= np.hypot(*rim[:2])).reshape(a.shape)
    landed, along, path = (part.reshape(*part.shape[:-1], *a.shape) for part in rays)
    return open_, landed, along, path


def waves(stated: Lens, colour: int, angle: float, a: Array, b: Array) -> tuple[Array, ...]:
    """Rays through spheres by the vector form of Snell's law, with the indices of the report: where they cross
    the stop and land on the image plane, their direction, and their path.
    """
    surfaces, stop, *_ = stated
    tilt = math.radians(angle)
    direction = np.array([0.0, math.sin(tilt), math.cos(tilt)])
    starts = np.stack([a, b * math.cos(tilt), -b * math.sin(tilt)]) - 80.0 * direction[:, None]
    along = np.repeat(direction[:, None], len(a), 1)
    path, z, before = direction @ starts, 0.0, 1.0
    crossing = starts
    for number, (radius, apart, numbers) in enumerate(surfaces, start=1):
        starts = starts - np.array([[0], [0], [z]])
        starts, along, path = _refracted(starts, along, path, radius, before, _after(numbers, colour))
        before, z = _after(numbers, colour), apart
        if number == stop:
            crossing = starts
    starts = starts - np.array([[0], [0], [z]])
    to_sensor = -starts[2] / along[2]
    return crossing, starts + along * to_sensor, along, path + to_sensor


def _after(numbers: tuple[float, float] | None, colour: int) -> float:
    return 1.0 if numbers is None else REPORTED[numbers][colour]


def _refracted(
    starts: Array, along: Array, path: Array, radius: float, before: float, after: float
) -> tuple[Array, Array, Array]:
    """Move rays to a sphere with its vertex at 0, and refract them there."""
    bent = 1 / radius if radius else 0.0
    with np.errstate(invalid="ignore"):
        on_plane = starts - along * (starts[2] / along[2])
        half = along[2] - bent * (along * on_plane).sum(0)
        squares = bent * (on_plane**2).sum(0)
        more = squares / (half + np.sqrt(half**2 - bent * squares))
        hit = on_plane + along * more
        normal = np.array([[0.0], [0.0], [1.0]]) - bent * hit
        ratio, cosine = before / after, (along * normal).sum(0)
        bend = np.sqrt(1 - ratio**2 * (1 - cosine**2)) - ratio * cosine
    return hit, ratio * along + bend * normal, path + before * (more - starts[2] / along[2])


def summed(rays: tuple[Array, ...], line_um: float, centre: tuple[float, float], window: int) -> Array:
    """Sum plane waves at points 1 um apart, one by one."""
    (x, y), (right, down), path = rays
    k = 2000 * math.pi / line_um
    grid = (np.arange(window) - window // 2) / 1000
    phase = path + right * (centre[0] - x) + down * (centre[1] - y)
    columns = np.exp(1j * k * np.outer(right, grid))
    rows = np.exp(1j * k * (np.outer(down, grid) + (phase - phase.mean())[:, None]))
    light = np.abs(rows.T @ columns) ** 2
    return light / light.sum()


@pytest.mark.slow
@pytest.mark.parametrize("part", [0.0, 0.7])
@both
def test_the_psf_of_each_colour_is_that_of_a_separate_tracer(stated: Lens, part: float) -> None:
    from sorites.optics.tracing.assembly import build
    from sorites.optics.tracing.blur import psf
    from sorites.optics.tracing.lens import D_LINE_UM
    from sorites.optics.tracing.rays import beams, trace

    lens, angle = build(prescription(stated)), part * stated[3]
    box = beams(lens, [angle], 90.0, D_LINE_UM)[0]
    for colour, line in enumerate(MEASURED_UM):
        ours = trace(lens, angle, line, 280, box)
        centre = float(ours.x.mean()), float(ours.y.mean())
        light = psf(ours, line, 120, centre=centre)
        theirs = summed(traced_waves(stated, colour, angle), line, centre, 120)
        assert np.abs(light / light.sum() - theirs).sum() <= 0.06

"""Image heights and illumination of traced lenses, against closed forms and optiland.

One import of the ray tracer takes ten seconds and more, so all of it is slow.
"""

from __future__ import annotations

import numpy as np
import pytest

from sorites.lenses.store import PROJECTION, builtin, load
from sorites.optics.projection import GREEN
from sorites.optics.tracing.assembly import build, objective
from sorites.optics.tracing.lens import D_LINE_UM
from sorites.optics.tracing.places import trace_places
from sorites.optics.tracing.prescription import Glass, Prescription, Surface
from sorites.optics.tracing.rays import chief

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("tracer")]


def test_a_ball_with_its_stop_in_the_middle_has_no_distortion_and_the_light_of_cos4() -> None:
    """A chief ray through the common centre is not bent, so h = L tan A for every colour. The stop is seen
    under the angle A: its beam is cos A wide, and a flat sensor adds cos^3 A.
    """
    glass = Glass("", 1.6, 60.0)
    ball = Prescription(
        "ball",
        [
            Surface(thickness=np.inf),
            Surface(curvature=0.1, thickness=10.0, glass=glass),
            Surface(thickness=10.0, glass=glass),
            Surface(curvature=-0.1, thickness=3.0),
            Surface(),
        ],
        2,
        ("F-number", 20.0),
        "angle",
        25.0,
    )
    traced = trace_places(build(ball), 4096)
    tangent = np.tan(np.radians(traced.angles))
    np.testing.assert_allclose(traced.heights[GREEN], 13.0 * tangent, rtol=2e-4, atol=1e-9)
    np.testing.assert_allclose(traced.illumination[GREEN], np.cos(np.radians(traced.angles)) ** 4, rtol=4e-3)


@pytest.mark.parametrize("name", ["CookeTriplet", "TessarLens"])
def test_distortion_is_optilands_and_the_built_in_files_are_this_trace(name: str) -> None:
    from optiland.analysis.distortion import Distortion

    lens, entry = objective(name), load(builtin(), name)
    theirs = Distortion(lens.optic, wavelengths=[D_LINE_UM], num_points=21).data[0]
    angles = np.linspace(1e-10, 1, 21) * lens.field_deg
    ours = np.array([abs(chief(lens, angle, 90.0, D_LINE_UM)[1]) for angle in angles[1:]])
    small = abs(chief(lens, 1e-3, 90.0, D_LINE_UM)[1]) / np.tan(np.radians(1e-3))
    percent = 100 * (ours / (small * np.tan(np.radians(angles[1:]))) - 1)
    np.testing.assert_allclose(percent, np.asarray(theirs)[1:], atol=0.02)
    lens.focus_mm = entry.about.focus_mm or 0.0
    traced = trace_places(lens, entry.about.window_um or 256)
    for key in PROJECTION:
        np.testing.assert_allclose(entry.arrays[key], getattr(traced, key), rtol=1e-5, atol=1e-6)
    # The middle of the light is near the chief ray: within the blur.
    last = abs(chief(lens, float(traced.angles[-1]), 90.0, D_LINE_UM)[1])
    assert traced.heights[GREEN, -1] == pytest.approx(last, abs=0.03)

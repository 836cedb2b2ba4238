from __future__ import annotations

import numpy as np
import pytest

from sorites.lenses import store
from sorites.optics.tracing.around import SECTORS, around
from sorites.optics.tracing.blur import FIELDS, POSITIONS, centre_kernel, psf
from sorites.optics.tracing.field import kernel_at

LENSES = store.names(store.builtin())


def test_mirror_images_fill_the_turn() -> None:
    lens = store.load(store.builtin(), "CookeTriplet")
    made = lens.around()
    assert made.shape[0] == 1 + SECTORS * (len(FIELDS) - 1)
    kernels = lens.arrays["kernels"]
    for index, (field, azimuth) in enumerate(POSITIONS):
        np.testing.assert_array_equal(kernel_at(made, field, azimuth), kernels[index])
    first, beyond = made[1 : 1 + SECTORS], {5: 3, 12: 4, 20: 4, 27: 5}
    np.testing.assert_array_equal(first[beyond[5]], np.swapaxes(first[5], -1, -2))
    np.testing.assert_array_equal(first[12], first[beyond[12]][:, :, ::-1])
    np.testing.assert_array_equal(first[20], first[beyond[20]][:, ::-1, ::-1])
    np.testing.assert_array_equal(first[27], first[beyond[27]][:, ::-1])


def test_a_file_without_the_azimuths_between_gets_rotated_pixels() -> None:
    """A smooth blur that is longer along the field than across it, at any azimuth."""
    y, x = np.mgrid[-12:13, -12:13]

    def blur(azimuth: float) -> np.ndarray:
        turn = np.radians(azimuth)
        along, across = x * np.cos(turn) + y * np.sin(turn), y * np.cos(turn) - x * np.sin(turn)
        light = np.exp(-(along**2) / 18 - across**2 / 6) * (1 + 0.3 * np.tanh(along))
        return np.stack([light / light.sum()] * 3)

    made = around(np.stack([blur(azimuth) for _, azimuth in POSITIONS]))
    for k in range(SECTORS):
        assert np.abs(made[1 + k] - blur(360 * k / SECTORS)).sum((-2, -1)).max() < 0.03


def traced(name: str, field: float, azimuth: float) -> np.ndarray:
    """The kernel (colour, y, x) of a built-in lens from rays that enter at this azimuth, whole beams of them."""
    from sorites.optics.psf import LINES_UM
    from sorites.optics.tracing.assembly import objective
    from sorites.optics.tracing.blur import drop_stray_rays, rays_across
    from sorites.optics.tracing.lens import D_LINE_UM
    from sorites.optics.tracing.rays import COARSE, beams, trace

    entry, lens = store.load(store.builtin(), name), objective(name)
    lens.focus_mm, window = entry.about.focus_mm or 0.0, entry.about.window_um or 256
    angle, side = field * lens.field_deg, entry.arrays["kernels"].shape[-1]
    box = beams(lens, [angle], azimuth, D_LINE_UM)[0]
    kernels = []
    for line in LINES_UM:
        coarse = drop_stray_rays(trace(lens, angle, line, COARSE, box, azimuth, whole=True), window)
        count = rays_across(coarse, line, window)
        rays = drop_stray_rays(trace(lens, angle, line, count, box, azimuth, whole=True), window)
        kernels.append(centre_kernel(psf(rays, line, window), entry.about.pitch_um, side))
    return np.stack(kernels)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["CookeTriplet", "TessarLens"])
def test_at_22_degrees_a_built_in_lens_has_the_kernel_of_a_trace_there(name: str) -> None:
    made = kernel_at(store.load(store.builtin(), name).around(), 0.7, 22.5)
    assert np.abs(made - traced(name, 0.7, 22.5)).sum((-2, -1)).max() <= 0.08

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from sorites.core.errors import SoritesError
from sorites.optics.tracing import field as lens_field
from sorites.optics.tracing.around import SECTORS, STEP_DEG, around
from sorites.optics.tracing.blur import BETWEEN, FIELDS, POSITIONS
from sorites.optics.tracing.field import TiledImage, field_blur, kernel_at, tiling, transfer, weights

# Numbers of the kernels of ``around`` by traced field and azimuth.
NUMBER = {
    (field, azimuth): 1 + SECTORS * (FIELDS.index(field) - 1) + round(azimuth / STEP_DEG) if field else 0
    for field, azimuth in POSITIONS
}


def point(size: int = 9) -> np.ndarray:
    made = np.zeros((3, size, size))
    made[:, size // 2, size // 2] = 1
    return made


def bar(size: int = 9) -> np.ndarray:
    made = np.zeros((3, size, size))
    made[:, :, size // 2] = 1 / size
    return made


def photo(height: int = 150, width: int = 210) -> np.ndarray:
    return np.random.default_rng(0).random((height, width, 3), dtype=np.float32)


def lens(middle: np.ndarray, *edge: np.ndarray) -> np.ndarray:
    """The middle's kernel, then at four fields those of all azimuths: up to 22.5 degrees the first of the edge,
    beyond the last, mirrored around the axis.
    """
    traced = np.stack([middle, *[edge[0], edge[-1], edge[-1]] * 4])
    quarter = np.stack([edge[0], edge[0], edge[-1]])
    return around(traced, np.stack([quarter] * 4)).astype(np.float64)


def any_lens(side: int = 9) -> np.ndarray:
    """Different kernels at all azimuths, with the symmetry that a lens has: along x up and down, along y
    left and right, and along the diagonal rows and columns are alike.
    """
    taps = np.random.default_rng(1).random((13, 3, side, side))
    for index, (field, azimuth) in enumerate(POSITIONS):
        if azimuth == 0 or not field:
            taps[index] += taps[index, :, ::-1]
        if azimuth == 90 or not field:
            taps[index] += taps[index, :, :, ::-1]
        if azimuth == 45:
            taps[index] += np.swapaxes(taps[index], -1, -2)
        if azimuth == 90 and field:
            taps[index] = np.swapaxes(taps[index - 2], -1, -2)
    between = np.random.default_rng(2).random((4, len(BETWEEN), 3, side, side))
    parts = (part / part.sum((-2, -1), keepdims=True) for part in (taps, between))
    return around(*parts)


def test_a_perfect_lens_leaves_the_image_alone() -> None:
    np.testing.assert_allclose(field_blur(photo(), lens(point(), point())), photo(), atol=1e-5)


@pytest.mark.parametrize(("height", "width"), [(150, 210), (8, 5), (1, 40), (600, 700)])
def test_one_kernel_everywhere_is_one_convolution(height: int, width: int) -> None:
    """SciPy's, mirrored at the border; the kernel is its own mirror image, so that it is the same
    at all azimuths.
    """
    taps = np.random.default_rng(2).random((7, 7)) ** 3
    taps = taps + taps.T
    taps = (taps + taps[::-1] + taps[:, ::-1] + taps[::-1, ::-1]) / (4 * taps.sum())
    made = field_blur(photo(height, width), lens(np.stack([taps] * 3), np.stack([taps] * 3)))
    wanted = np.stack(
        [ndimage.convolve(photo(height, width)[..., c], taps, mode="mirror") for c in range(3)], -1
    )
    np.testing.assert_allclose(made, wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("side", "height", "width"),
    [
        *((side, *size) for side in (3, 51) for size in ((90, 130), (33, 260), (20, 14), (1, 40), (1, 1))),
        pytest.param(151, 520, 530, marks=pytest.mark.slow),  # large enough to be cut coarsely
        pytest.param(201, 33, 26, marks=pytest.mark.slow),
        (1, 1, 40),
        (1, 40, 1),
        (1, 1, 1),
        (1, 2, 3),
    ],
)
def test_kernels_of_any_width_are_one_convolution(side: int, height: int, width: int) -> None:
    """SciPy's, with taps that part into rows and columns, so that it takes these one after the other."""
    line = np.random.default_rng(side).random(side) ** 3
    line = (line + line[::-1]) / (2 * line.sum())
    taps = np.outer(line, line)
    made = field_blur(photo(height, width), lens(np.stack([taps] * 3), np.stack([taps] * 3)))
    wanted = ndimage.convolve(photo(height, width).astype(np.float64), line[:, None, None], mode="mirror")
    wanted = ndimage.convolve(wanted, line[None, :, None], mode="mirror")
    np.testing.assert_allclose(made, wanted, atol=1e-5)


def test_between_fields_and_azimuths_kernels_are_mixed_and_mirrored() -> None:
    tail = np.zeros((3, 9, 9))
    tail[:, 8, 7] = 1  # down and right of the middle
    held = lens(point(), bar(), tail)
    np.testing.assert_allclose(kernel_at(held, 0.15, 90.0), (point() + tail) / 2, atol=1e-12)
    np.testing.assert_allclose(kernel_at(held, 0.9, 28.125), (bar() + tail) / 2, atol=1e-12)
    np.testing.assert_allclose(kernel_at(held, 1.0, -45.0), tail[:, ::-1], atol=1e-12)
    np.testing.assert_allclose(kernel_at(held, 1.0, 225.0), tail[:, ::-1, ::-1], atol=1e-12)


def test_the_weights_are_parts_of_one_everywhere() -> None:
    rng = np.random.default_rng(3)
    field, sector = rng.random((2, 160, 160), np.float32) * np.float32([[[1]], [[SECTORS]]])
    shares = weights(field, sector)
    assert set(shares) == set(range(1 + 4 * SECTORS))
    np.testing.assert_allclose(sum(shares.values()), 1, atol=2e-6)
    assert min(share.min() for share in shares.values()) >= 0
    few = weights(np.full((4, 4), 0.6, np.float32), np.full((4, 4), 31.5, np.float32))
    assert sorted(few) == [33, 64, 65, 96]  # fields 50 and 70 %, azimuths 0 and 348.75 degrees


@pytest.mark.slow
def test_at_a_traced_place_a_point_of_light_becomes_the_traced_kernel() -> None:
    """Stars right and below of the axis, at every traced field and azimuth that the image holds."""
    kernels, side = any_lens(), 1201
    half = np.hypot(side, side) / 2
    image, places = np.zeros((side, side, 3), np.uint8), {}
    for index, (field, azimuth) in enumerate(POSITIONS):
        turn = np.radians(azimuth)
        y, x = (round(field * half * part + side / 2 - 0.5) for part in (np.sin(turn), np.cos(turn)))
        if max(y, x) + 5 < side:
            places[index] = y, x
            image[y, x] = 255
    made = np.moveaxis(field_blur(image, kernels), -1, 0)
    assert set(places) == {*range(10), 11}
    for index, (y, x) in places.items():
        field, azimuth = POSITIONS[index]
        # of taps up to 0.025: the star stands on a pixel, up to half of one beside the
        # traced place
        near = 8e-4
        wanted = kernels[NUMBER[field, azimuth]]
        np.testing.assert_allclose(made[:, y - 4 : y + 5, x - 4 : x + 5], wanted, atol=near)


def test_every_point_of_a_star_field_becomes_the_kernel_of_its_place() -> None:
    kernels, (height, width), corner = any_lens(), (333, 450), 0.8
    image = np.zeros((height, width, 3), np.float32)
    image[10::20, 12::20] = 1
    made = field_blur(image, kernels, corner)
    half = np.hypot(height, width) / 2
    for y in range(10, height - 4, 20):
        for x in range(12, width - 4, 20):
            down, right = y + 0.5 - height / 2, x + 0.5 - width / 2
            wanted = kernel_at(
                kernels, corner * np.hypot(down, right) / half, np.degrees(np.arctan2(down, right))
            )
            np.testing.assert_allclose(
                made[y - 4 : y + 5, x - 4 : x + 5], np.moveaxis(wanted, 0, -1), atol=2e-6
            )


def test_light_is_neither_lost_nor_made() -> None:
    image = np.zeros((200, 300, 3), np.float32)
    image[20:-20, 20:-20] = 0.5 * photo(160, 260)
    np.testing.assert_allclose(field_blur(image, any_lens()).sum((0, 1)), image.sum((0, 1)), rtol=1e-4)


def test_the_tiles_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    image, kernels = photo(300, 200), any_lens()
    coarse = field_blur(image, kernels)
    monkeypatch.setattr(lens_field, "SMALL_TILE_PX", 31)
    np.testing.assert_allclose(field_blur(image, kernels), coarse, atol=3e-6)
    assert len(tiling(300, 200, 9).rows) > 5


def test_eight_bits_and_floats_are_one_image() -> None:
    image_u8 = (photo() * 255).astype(np.uint8)
    image = image_u8.astype(np.float32) * np.float32(1 / 255)
    np.testing.assert_array_equal(field_blur(image_u8, any_lens()), field_blur(image, any_lens()))


def test_the_strips_are_the_image_from_top_to_bottom() -> None:
    scene = TiledImage(photo(), 9)
    parts = list(scene.through(transfer(any_lens(), scene.tiling)))
    assert [top for top, _ in parts] == np.cumsum([0, *(len(strip) for _, strip in parts[:-1])]).tolist()
    np.testing.assert_array_equal(
        np.concatenate([strip for _, strip in parts]), field_blur(photo(), any_lens())
    )


def test_a_point_of_light_grows_its_tail_outward() -> None:
    """Coma of the right edge points right and that of the left edge left: true convolution,
    mirrored kernels.
    """
    tail = np.zeros((3, 9, 9))
    tail[:, 4, 4:] = 0.2
    image = np.zeros((64, 256, 3), np.float32)
    image[32, [10, 245]] = 1
    made = field_blur(image, lens(tail, tail, tail))
    assert made[32, 13].max() < 0.02 < made[32, 7].max()
    assert made[32, 242].max() < 0.02 < made[32, 248].max()


def test_the_middle_stays_sharper_than_the_corner() -> None:
    image = photo(256, 256)
    change = np.abs(field_blur(image, lens(point(15), bar(15))) - image).mean(-1)
    assert change[120:136, 120:136].mean() < 0.7 * change[:24, :24].mean()


def test_the_fields_are_the_traced_ones() -> None:
    assert SECTORS * (len(FIELDS) - 1) + 1 == len(transfer(any_lens(), tiling(20, 20, 9)))


def test_what_is_no_image_or_corner_is_named() -> None:
    with pytest.raises(SoritesError, match="corner"):
        field_blur(photo(), any_lens(), 1.5)
    with pytest.raises(SoritesError, match="expected an image of H x W x 3"):
        field_blur(photo()[..., 0], any_lens())

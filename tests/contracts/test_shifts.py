"""What every shift owes, built in or plugged in: the registry is swept, so a new shift is covered
when it is registered.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from sorites.core import SHIFTS, Box, ImageF32, SettingValue, Shift, to_float, to_uint8
from sorites.core.errors import SoritesError
from sorites.core.rng import rng_for
from sorites.core.types import STAGES

SIZES = [(8, 8), (37, 53), (64, 96)]
LONG = ("lens_whole", "camera", "aperture")
"""Shifts that take a tenth of a second and more per image."""
ALL = [
    pytest.param(SHIFTS.get(name), id=name, marks=pytest.mark.slow if name in LONG else ())
    for name in SHIFTS.names()
]
every_shift = pytest.mark.parametrize("shift", ALL)
every_dial = pytest.mark.parametrize("shift", [one for one in ALL if SHIFTS.get(str(one.id)).levels])

UNEVEN = {
    "crop",
    "frost",
    "glass_blur",
    "laion_glitch",
    "laion_mosaic",
    "laion_stickers",
    "laion_vertical_lines",
    "saturate",
    "snow",
    "spatter",
}
"""Published levels that do not move every image further than the level before, by their own
constants: saturation first falls and then rises, frost dims as it thickens, glass is stirred thrice
at level 3 and twice at 4, a window of an image differs from it as much as any other window, strips wrap around, stickers
cover one another, neighbouring sizes of tiles are mixed, ...
"""


@functools.cache
def photo(height: int, width: int, seed: int = 0, gray: bool = False) -> ImageF32:
    """Leaves fallen on one another under uneven light: edges, flat parts and fine texture, as in a
    photograph, at 8 bits.
    """
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width].astype(np.float32)
    scene = np.full((height, width, 3), 0.5, np.float32)
    for _ in range(40):
        radius = 0.05 * max(height, width) / rng.uniform(0.12, 1)
        leaf = np.hypot(y - rng.uniform(0, height), x - rng.uniform(0, width)) < radius
        scene[leaf] = rng.uniform(0.05, 0.9, 3) * (0.6 + 0.4 * rng.random((int(leaf.sum()), 1)))
    scene *= (0.7 + 0.3 * x / width)[..., None]
    if gray:
        scene[...] = scene.mean(axis=2, keepdims=True)
    made = to_float(to_uint8(scene))
    made.flags.writeable = False
    return made


def draw(shift: Shift, sample: str = "sample") -> np.random.Generator:
    return rng_for(0, sample, shift.name)


def settings(shift: Shift) -> list[SettingValue]:
    """The published ones: levels, or settings where there is no line."""
    return [*shift.levels, *shift.settings]


def sweep(
    shift: Shift, image: ImageF32, severities: Sequence[SettingValue], sample: str = "sample"
) -> list[ImageF32]:
    return list(shift.sweep(image, severities, draw(shift, sample)))


def refuses(shift: Shift, image: ImageF32) -> bool:
    """Return whether a shift says that an image is too small for it, which it may say of the
    smallest of ``SIZES`` only.
    """
    try:
        shift(image, settings(shift)[-1], draw(shift))
    except SoritesError as error:
        if "small" not in str(error) or image.shape[:2] != SIZES[0]:
            raise
        return True
    return False


@every_shift
def test_states_its_family_unit_and_rising_levels(shift: Shift) -> None:
    assert shift.name.isidentifier()
    assert shift.family
    assert shift.unit
    assert shift.about
    assert shift.version
    assert bool(shift.levels) != bool(shift.settings)
    assert all(0 < low < high for low, high in zip(shift.levels, shift.levels[1:], strict=False))


@every_shift
@pytest.mark.parametrize(("size", "gray"), [*((size, False) for size in SIZES), (SIZES[1], True)])
def test_gives_an_image_of_the_same_size_and_leaves_its_input_alone(
    shift: Shift, size: tuple[int, int], gray: bool
) -> None:
    image = photo(*size, gray=gray)
    if refuses(shift, image):
        return
    before = image.copy()
    between = [shift.levels[0] / 3, shift.top * 0.99] if shift.levels else []
    for moved in sweep(shift, image, [0.0, *settings(shift), *between]):
        assert moved.dtype == np.float32
        assert moved.shape == image.shape
        assert moved.flags.c_contiguous
        assert moved.flags.writeable
        assert not np.shares_memory(moved, image)
        assert np.isfinite(moved).all()
        assert moved.min() >= 0
        assert moved.max() <= 1
    np.testing.assert_array_equal(image, before)


@every_shift
def test_severity_zero_is_identity(shift: Shift) -> None:
    image = photo(37, 53)
    assert to_uint8(shift(image, 0.0, draw(shift))).tobytes() == to_uint8(image).tobytes()
    np.testing.assert_array_equal(shift(image, 0.0, draw(shift)), image)


@every_dial
def test_starts_from_nothing(shift: Shift) -> None:
    image = photo(64, 96)
    least, first = sweep(shift, image, [shift.levels[0] * 1e-3, shift.levels[0]])
    assert np.abs(least - image).mean() < 0.05 * np.abs(first - image).mean() + 1e-4


@every_dial
@pytest.mark.parametrize("gray", [False, True], ids=["colour", "gray"])
def test_degree_grows_along_the_levels(shift: Shift, gray: bool) -> None:
    """Mean squared change over a few images: it rises from stop to stop, published and between."""
    places = np.interp(
        np.arange(0, len(shift.levels) + 0.1, 0.5), range(len(shift.levels) + 1), [0, *shift.levels]
    ).tolist()
    moved = np.zeros(len(places))
    for seed in range(4):
        image = photo(64, 96, seed, gray)
        moved += [np.square(made - image).mean() for made in sweep(shift, image, places, str(seed))]
    assert moved[0] == 0
    if shift.name in UNEVEN:
        assert moved[-1] > moved[2], moved
        assert (moved >= np.maximum.accumulate(moved) / 4).all(), moved
    else:
        assert (np.diff(moved) > 0).all(), moved


@every_shift
@pytest.mark.parametrize("size", SIZES[:2])
def test_a_sweep_equals_single_calls_in_any_order(shift: Shift, size: tuple[int, int]) -> None:
    image = photo(*size)
    if refuses(shift, image):
        return
    severities = [settings(shift)[-1], 0.0, *settings(shift), *(low / 2 for low in shift.levels[:1])]
    together = sweep(shift, image, severities)
    for severity, made in zip(severities, together, strict=True):
        np.testing.assert_array_equal(made, shift(image, severity, draw(shift)))
    for made, again in zip(reversed(together), sweep(shift, image, severities[::-1]), strict=True):
        np.testing.assert_array_equal(made, again)


@every_shift
def test_the_generator_given_is_not_used_up(shift: Shift) -> None:
    rng = draw(shift)
    first = shift(photo(64, 96), settings(shift)[-1], rng)
    np.testing.assert_array_equal(first, shift(photo(64, 96), settings(shift)[-1], rng))


@every_dial
def test_a_small_turn_is_a_small_change(shift: Shift) -> None:
    """A thousandth of the dial moves the image by a sixth of the whole way at most, at and
    between the levels.

    Most dials stay under a hundredth; JPEG's quantisation steps are whole numbers, so it moves by
    small jumps.
    """
    image, step = photo(64, 96), shift.top * 1e-3
    places = [
        *shift.levels[:-1],
        *(np.add(shift.levels[1:], shift.levels[:-1]) / 2).tolist(),
        shift.levels[0] / 2,
    ]
    whole = np.abs(sweep(shift, image, [shift.top])[0] - image).mean()
    for place in places:
        below, at, above = sweep(shift, image, [place - step, place, place + step])
        assert np.abs(at - below).mean() < whole / 6
        assert np.abs(above - at).mean() < whole / 6


@every_shift
def test_threads_and_neighbours_do_not_matter(shift: Shift) -> None:
    def work(seed: int) -> bytes:
        return b"".join(
            made.tobytes() for made in sweep(shift, photo(37, 53, seed), settings(shift), str(seed))
        )

    alone = [work(seed) for seed in range(6)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, reversed(range(6)))) == alone[::-1]


MOVING = [one for one in ALL if SHIFTS.get(str(one.id)).move_boxes is not None]
UNKNOWN = [
    one for one in ALL if SHIFTS.get(str(one.id)).moves_objects and SHIFTS.get(str(one.id)).move_boxes is None
]


@pytest.mark.parametrize("shift", UNKNOWN)
def test_boxes_are_refused_where_objects_move_in_an_unknown_way(shift: Shift) -> None:
    draws = functools.partial(rng_for, 0, "sample")
    with pytest.raises(SoritesError):
        shift.boxes_after([Box((5, 5, 30, 40), 1)], settings(shift)[0], draws, (64, 96))


@every_shift
def test_states_its_stage(shift: Shift) -> None:
    assert shift.stage in STAGES


def test_shifts_that_move_objects_are_swept() -> None:
    names = {str(one.id) for one in MOVING}
    assert names >= {"rotation", "crop", "radial_distortion", "occlusion_patches", "lens_drops"}
    assert "elastic_transform" in names


@pytest.mark.parametrize("shift", MOVING)
def test_boxes_keep_their_number_and_stay_inside_the_image(shift: Shift) -> None:
    size = (64, 96)
    boxes = [Box((5, 5, 30, 40), 1, area=700.0), Box((60, 20, 96, 64), 2), Box((0, 0, 9, 9), 3, crowd=True)]
    draws = functools.partial(rng_for, 0, "sample")
    assert shift.boxes_after(boxes, 0.0, draws, size) == tuple(boxes)
    for severity in (shift.levels[0] * 1e-6, *shift.levels):
        after = shift.boxes_after(boxes, severity, draws, size)
        assert after == shift.boxes_after(boxes, severity, draws, size)
        assert [box.label for box in after] == [1, 2, 3]
        assert after[2].crowd
        for box in after:
            x0, y0, x1, y1 = box.xyxy
            assert 0 <= x0 <= x1 <= size[1]
            assert 0 <= y0 <= y1 <= size[0]
            assert box.area is None or box.area >= 0
    least = shift.boxes_after(boxes, shift.levels[0] * 1e-6, draws, size)
    for before, after_ in zip(boxes, least, strict=True):
        np.testing.assert_allclose(after_.xyxy, before.xyxy, atol=1e-3)
        assert after_.crowd == before.crowd

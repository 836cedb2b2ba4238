"""Distortion, lateral colour and illumination of lenses: options of the shift ``lens_whole``."""

from __future__ import annotations

import functools
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sorites import core
from sorites.core import Box, ImageF32
from sorites.core.errors import SoritesError
from sorites.core.rng import rng_for
from sorites.lenses import store
from sorites.optics.develop import linear_from_srgb
from sorites.optics.projection import GREEN, Places, Projection
from sorites.scenes.moved_boxes import boxes_after_map
from sorites.shifts.lens import Geometry, colour_map, green_map

LENS = {"lens": "TessarLens"}
ANGLES = np.linspace(0, 30, 21)
PITCH = 40.0
SIZE = (120, 160)


def barrel(rectified: bool, red: float = 1.0, blue: float = 1.0) -> Places:
    heights = 8 * np.radians(ANGLES)
    light = np.cos(np.radians(ANGLES)) ** 4
    projection = Projection(ANGLES, np.stack([red * heights, heights, blue * heights]), np.stack([light] * 3))
    return projection.places(30, 1.0, rectified)


def test_without_options_nothing_but_the_blur_is_applied(photo: ImageF32) -> None:
    photo = photo[:64, :64]
    plain, same = core.shift("lens_whole"), core.shift("lens_whole", rectified=True)
    assert plain.version == same.version
    assert not same.moves_objects
    rng = rng_for(0, "a", "lens_whole")
    assert np.array_equal(plain(photo, LENS, rng), same(photo, LENS, rng))


def test_each_option_changes_the_image_and_the_version(photo: ImageF32, tmp_path: Path) -> None:
    shutil.copy(store.builtin() / "WideAngle100FOV.safetensors", tmp_path)
    params, rng, part = {"lens": "WideAngle100FOV"}, rng_for(0, "a", "lens_whole"), photo[:96, :96]
    options: tuple[dict[str, bool], ...] = (
        {},
        {"rectified": False},
        {"lateral_colour": True},
        {"illumination": True},
    )
    made = [core.shift("lens_whole", lenses=str(tmp_path), **one) for one in options]
    assert len({shift.version for shift in made}) == 4
    images = [shift(part, params, rng) for shift in made]
    for i in range(4):
        for j in range(i):
            assert np.abs(images[i] - images[j]).max() > 0.01
    assert [shift.moves_objects for shift in made] == [False, True, False, False]
    places = store.load(tmp_path, "WideAngle100FOV").places(1.0, False)
    chosen = made[1].chosen_params(part, params, rng)
    assert chosen["distortion"] == pytest.approx(places.distortion, abs=1e-5)


def test_setting_0_is_the_unchanged_image(photo: ImageF32) -> None:
    shift = core.shift("lens_whole", rectified=False, lateral_colour=True, illumination=True)
    draw = functools.partial(rng_for, 0, "a")
    assert np.array_equal(shift(photo, 0.0, draw("lens_whole")), photo)
    boxes = (Box((5, 5, 30, 40), 1),)
    assert shift.boxes_after(boxes, 0.0, draw, SIZE) == boxes


def test_a_box_moves_with_the_object_it_surrounds() -> None:
    image = np.zeros((*SIZE, 3), np.float32)
    image[20:41, 22:65] = 1
    places = barrel(False)
    seen = Geometry(rectified=False).before_blur(image, places, PITCH)
    rows, columns = np.nonzero((seen[..., GREEN] > 0.5) & (np.hypot(*np.indices(SIZE)) > 0))
    inside = (rows > 5) & (columns > 5) & (rows < 60) & (columns < 90)  # grey comes in at the border
    drawn = columns[inside].min(), rows[inside].min(), columns[inside].max() + 1, rows[inside].max() + 1
    shift = core.shift("lens_whole", rectified=False)
    assert shift.move_boxes is not None
    moved = boxes_after_map([Box((22, 20, 65, 41), 1)], green_map(places, SIZE), SIZE)
    np.testing.assert_allclose(moved[0].xyxy, drawn, atol=0.75)
    assert moved[0].xyxy[0] > 23


def test_the_shift_moves_boxes_by_the_projection_of_its_lens() -> None:
    """A degenerate box is a point: it moves to where the traced height of its angle is."""
    shift = core.shift("lens_whole", rectified=False, corner=0.9)
    params = {"lens": "WideAngle100FOV"}
    entry = store.load(store.builtin(), params["lens"])
    half = (entry.about.fov_deg or 0) / 2
    angles, green = (entry.arrays[name].astype(np.float64) for name in ("angles", "heights"))
    k = 9  # 0.45 of the half field
    edge = np.interp(0.9 * half, angles, green[GREEN])
    scale = green[GREEN, 1] / np.tan(np.radians(angles[1]))
    diagonal = np.hypot(*SIZE) / 2
    before = 80 + diagonal * scale * np.tan(np.radians(angles[k])) / edge
    after = 80 + diagonal * green[GREEN, k] / edge
    draw = functools.partial(rng_for, 0, "a")
    (moved,) = shift.boxes_after([Box((before, 60, before, 60), 1)], params, draw, SIZE)
    assert moved.xyxy[0] == pytest.approx(after, abs=0.05)
    assert moved.xyxy[1] == pytest.approx(60, abs=1e-9)
    assert abs(after - before) > 0.2


def test_red_and_blue_of_a_point_land_beside_green() -> None:
    image = np.zeros((*SIZE, 3), np.float32)
    image[58:62, 128:132] = 1
    places = barrel(True, red=1.03, blue=0.98)
    seen = Geometry(lateral_colour=True).before_blur(image, places, PITCH)
    middle = [(seen[..., c].sum(0) * (np.arange(160) + 0.5)).sum() / seen[..., c].sum() for c in range(3)]
    # The point is half a diagonal off the axis, at half the tangent of the corner.
    height = 8 * np.arctan(0.5 * np.tan(np.radians(30)))
    expected = [130 + part * 1000 * height / PITCH for part in (0.03, 0.0, -0.02)]
    moved = [colour_map(places, c, SIZE, PITCH).forward(np.array([[130.0, 60.0]]))[0, 0] for c in range(3)]
    np.testing.assert_allclose(moved, expected, atol=1e-3)
    np.testing.assert_allclose(middle, expected, atol=0.05)
    assert middle[1] == pytest.approx(130, abs=1e-3)
    assert middle[0] - middle[1] > 1
    assert middle[1] - middle[2] > 0.5


def test_light_falls_off_in_linear_light() -> None:
    image = np.full((*SIZE, 3), 0.8, np.float32)
    places = barrel(False)
    seen = Geometry(illumination=True).before_blur(image, places, PITCH)
    ratio = linear_from_srgb(seen)[60, :, GREEN] / linear_from_srgb(image)[60, :, GREEN]
    part = np.abs(np.arange(160) + 0.5 - 80) / (np.hypot(*SIZE) / 2)
    np.testing.assert_allclose(ratio, np.cos(np.radians(30 * part)) ** 4, atol=2e-3)


def test_what_cannot_be_projected_is_reported(tmp_path: Path) -> None:
    entry = store.load(store.builtin(), "HeliarLens")
    old = {key: value for key, value in entry.arrays.items() if key not in store.PROJECTION}
    store.save(replace(entry, name="old", arrays=old), tmp_path)
    core.shift("lens_whole", lenses=str(tmp_path))
    with pytest.raises(SoritesError, match="old has no image heights"):
        core.shift("lens_whole", lenses=str(tmp_path), illumination=True)
    with pytest.raises(SoritesError, match="true or false"):
        core.shift("lens_whole", rectified=1)
    broken = {**entry.arrays, "heights": entry.arrays["heights"][:, ::-1]}
    store.save(replace(entry, name="broken", arrays=broken), tmp_path / "b")
    with pytest.raises(SoritesError, match="rise from 0"):
        store.load(tmp_path / "b", "broken")

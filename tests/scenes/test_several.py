"""Several objects in one place: sizes in range, boxes around visible parts, nearer objects in front."""

from __future__ import annotations

import numpy as np
import pytest

from sorites.scenes.composite import ENLARGED, CutOut, Spot, draw, draw_spots, visible_parts


def block(height: int, width: int, colour: tuple[float, float, float] = (0.9, 0.1, 0.1)) -> CutOut:
    """An opaque rectangle of one colour."""
    return CutOut(np.full((height, width, 3), colour, np.float32), np.ones((height, width), np.float32))


def test_objects_stand_inside_the_image_in_sizes_of_the_range() -> None:
    rng = np.random.default_rng(0)
    objects = [block(200, 100), block(40, 90), block(500, 500), block(10, 10)] * 50
    spots = draw_spots(objects, 640, rng)
    longest = [max(obj.mask.shape) * spot.factor for obj, spot in zip(objects, spots, strict=True)]
    assert min(longest) >= 47.9
    assert max(longest) <= 400.1
    assert (
        max(spot.factor for obj, spot in zip(objects, spots, strict=True) if max(obj.mask.shape) > 48)
        <= ENLARGED
    )
    for part in visible_parts(objects[:1], spots[:1], 640):
        assert part.share == 1
    for obj, spot in zip(objects, spots, strict=True):
        (part,) = visible_parts([obj], [spot], 640)
        x0, y0, x1, y1 = part.box
        assert 0 <= x0 < x1 <= 640
        assert 0 <= y0 < y1 <= 640
        assert y1 >= 320, "on the ground"
    half = draw_spots(objects, 320, np.random.default_rng(0))
    assert max(max(t.mask.shape) * s.factor for t, s in zip(objects, half, strict=True)) <= 200.1


def test_a_box_holds_what_a_nearer_object_leaves_to_see() -> None:
    far, near = block(40, 40), block(40, 40)
    spots = [Spot(1.0, 20, 20), Spot(1.0, 40, 30)]
    behind, front = visible_parts([far, near], spots, 100)
    assert (front.share, front.area, front.box) == (1.0, 1600, (30, 40, 70, 80))
    assert behind.area == 1600 - 30 * 20
    assert behind.share == pytest.approx(1 - 600 / 1600)
    assert behind.box == (20, 20, 60, 60), "the left column still reaches down to its foot"
    swapped = visible_parts([near, far], spots[::-1], 100)
    assert swapped == [front, behind], "the order of the list does not matter"


def test_a_object_that_is_hidden_has_no_share() -> None:
    hidden, cover = visible_parts([block(10, 10), block(60, 60)], [Spot(1.0, 30, 30), Spot(1.0, 10, 10)], 100)
    assert (hidden.share, hidden.area) == (0.0, 0)
    assert cover.share == 1


def test_the_image_shows_each_object_where_its_box_is() -> None:
    red, blue = block(40, 40), block(40, 40, (0.1, 0.1, 0.9))
    spots = [Spot(1.0, 20, 20), Spot(1.0, 40, 30)]
    shown = draw([red, blue], spots, np.full((100, 100, 3), 0.5, np.float32), shadow=0.0)
    strongest = shown.argmax(axis=-1)
    flat = np.isclose(shown[..., 0], shown[..., 2], atol=0.02)
    for part, channel in zip(visible_parts([red, blue], spots, 100), (0, 2), strict=True):
        mine = (strongest == channel) & ~flat
        rows, cols = (np.flatnonzero(mine.any(axis)) for axis in (1, 0))
        assert part.box == (cols[0], rows[0], cols[-1] + 1, rows[-1] + 1)
        assert part.area == mine.sum()

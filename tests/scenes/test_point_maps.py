"""Maps of points: inverses, closed forms, and kornia as a peer."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sorites.scenes import point_maps
from sorites.scenes.point_maps import PointMap, Radial, rectangle

SIZE = (90, 140)
MAPS: dict[str, PointMap] = {
    "rotation": point_maps.rotation(33.0, SIZE),
    "scaling": point_maps.scaling(0.4, SIZE),
    "translation": point_maps.translation(12.5, -7.25),
    "shearing": point_maps.shearing(-20.0, SIZE),
    "tilting": point_maps.tilting(40.0, 1.1, SIZE),
    "cropping": point_maps.cropping(0.3, 0.8, 0.6, SIZE),
    "barrel": Radial(0.4, True, SIZE),
    "pincushion": Radial(0.4, False, SIZE),
}


@pytest.mark.parametrize("name", MAPS)
def test_the_inverse_undoes_the_map(name: str) -> None:
    points = np.random.default_rng(0).uniform((0, 0), (140, 90), (200, 2))
    map_ = MAPS[name]
    np.testing.assert_allclose(map_.inverse(map_.forward(points)), points, atol=1e-9)
    np.testing.assert_allclose(map_.forward(map_.inverse(points)), points, atol=1e-9)


@settings(derandomize=True, database=None, max_examples=50, deadline=None)
@given(degrees=st.floats(-180, 180), x=st.floats(0, 140), y=st.floats(0, 90))
def test_turning_back_returns_every_point(degrees: float, x: float, y: float) -> None:
    there = point_maps.rotation(degrees, SIZE).forward(np.array([[x, y]]))
    back = point_maps.rotation(-degrees, SIZE).forward(there)
    np.testing.assert_allclose(back, [[x, y]], atol=1e-9)
    distance = np.hypot(*(there[0] - (70, 45)))
    assert distance == pytest.approx(math.hypot(x - 70, y - 45), abs=1e-9)


def test_barrel_and_pincushion_undo_each_other() -> None:
    points = np.random.default_rng(1).uniform((0, 0), (140, 90), (200, 2))
    there = Radial(0.7, True, SIZE).forward(points)
    np.testing.assert_allclose(Radial(0.7, False, SIZE).forward(there), points, atol=1e-9)


def test_radial_distortion_displaces_the_corners_by_its_strength() -> None:
    half = math.hypot(70, 45)
    corner = Radial(0.3, False, SIZE).forward(np.array([[140.0, 90.0]]))
    assert np.hypot(*(corner[0] - (70, 45))) == pytest.approx(1.3 * half)


def test_a_tilted_plane_is_foreshortened_as_a_pinhole_camera_sees_it() -> None:
    """A point of the plane at distance d from the axis is at depth f + d sin, and d cos off the axis."""
    focal, degrees = 140.0, 35.0
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    map_ = point_maps.tilting(degrees, 0.0, SIZE)
    for d, e in ((50.0, 20.0), (-50.0, 20.0), (0.0, -30.0)):
        x, y = map_.forward(np.array([[70 + d, 45 + e]]))[0]
        assert x - 70 == pytest.approx(focal * d * cos / (focal + d * sin))
        assert y - 45 == pytest.approx(focal * e / (focal + d * sin))


@pytest.mark.parametrize("name", MAPS)
def test_the_outline_has_the_bounds_of_all_points_of_the_box(name: str) -> None:
    """Dense points on the outline, moved, have the same bounds as the few points of ``outline``."""
    rng = np.random.default_rng(2)
    map_ = MAPS[name]
    for _ in range(20):
        x0, x1 = np.sort(rng.uniform(0, 140, 2))
        y0, y1 = np.sort(rng.uniform(0, 90, 2))
        corners = (float(x0), float(y0), float(x1), float(y1))
        t = np.linspace(0, 1, 2001)[:, None]
        sides = [
            a + (b - a) * t
            for a, b in zip(rectangle(corners), np.roll(rectangle(corners), -1, axis=0), strict=True)
        ]
        dense, few = map_.forward(np.concatenate(sides)), map_.forward(map_.outline(corners))
        np.testing.assert_allclose(few.min(axis=0), dense.min(axis=0), atol=1e-4)
        np.testing.assert_allclose(few.max(axis=0), dense.max(axis=0), atol=1e-4)


def test_a_radial_table_is_the_map_it_was_made_from() -> None:
    size = (90, 140)
    radii = np.linspace(0, 1.2, 4001)
    table = point_maps.RadialTable(radii, radii * (1 + 0.2 * radii**2), size)
    formula = point_maps.Radial(0.2, barrel=False, size=size)
    points = np.random.default_rng(0).random((200, 2)) * (140, 90)
    np.testing.assert_allclose(table.forward(points), formula.forward(points), atol=1e-4)
    np.testing.assert_allclose(table.inverse(table.forward(points)), points, atol=1e-9)
    far = np.array([[700.0, -300.0]])
    np.testing.assert_allclose(table.inverse(table.forward(far)), far, atol=1e-9)
    np.testing.assert_allclose(table.forward(np.array([[70.0, 45.0]])), [[70, 45]])


def test_the_outline_of_a_radial_table_holds_the_whole_moved_box() -> None:
    """The scale of moustache distortion turns around inside the image."""
    size, radii = (90, 140), np.linspace(0, 1.2, 4001)
    table = point_maps.RadialTable(radii, radii * (1 - 0.25 * radii**2 + 0.3 * radii**4), size)
    for corners in ((5.0, 3.0, 135.0, 40.0), (90.0, 50.0, 138.0, 88.0), (10.0, 20.0, 60.0, 25.0)):
        x0, y0, x1, y1 = corners
        across, down = np.linspace(x0, x1, 20001), np.linspace(y0, y1, 20001)
        sides = [np.column_stack([across, np.full_like(across, y)]) for y in (y0, y1)]
        sides += [np.column_stack([np.full_like(down, x), down]) for x in (x0, x1)]
        dense = table.forward(np.concatenate(sides))
        moved = table.forward(table.outline(corners))
        np.testing.assert_allclose(moved.min(axis=0), dense.min(axis=0), atol=1e-4)
        np.testing.assert_allclose(moved.max(axis=0), dense.max(axis=0), atol=1e-4)


def test_a_box_without_extent_is_moved_as_a_point() -> None:
    radial = Radial(0.3, barrel=True, size=SIZE)
    point = np.array([[100.0, 70.0]])
    moved = radial.forward(radial.outline((100.0, 70.0, 100.0, 70.0)))
    np.testing.assert_allclose(moved, np.broadcast_to(radial.forward(point), moved.shape))

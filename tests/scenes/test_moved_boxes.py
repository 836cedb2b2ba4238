"""Boxes after geometric changes, compared with kornia and with sampling, and behind occlusions."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from sorites.core import Box
from sorites.core.compute.torch_tools import with_torchvision
from sorites.scenes import point_maps
from sorites.scenes.moved_boxes import (
    boxes_after_map,
    boxes_behind,
    boxes_where,
    clipped_polygon,
    polygon_area,
)
from sorites.scenes.point_maps import Homography, Radial

SIZE = (90, 140)


def random_boxes(count: int, seed: int = 0) -> list[Box]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        x0, x1 = np.sort(rng.uniform(0, SIZE[1], 2))
        y0, y1 = np.sort(rng.uniform(0, SIZE[0], 2))
        found.append(Box((float(x0), float(y0), float(x1), float(y1)), 0))
    return found


@pytest.mark.parametrize("degrees", [-130.0, -12.5, 7.0, 90.0])
@pytest.mark.parametrize("factor", [0.5, 1.0])
def test_boxes_are_those_of_kornia(degrees: float, factor: float) -> None:
    """Kornia builds its own matrix from angle, centre, scale and translation, and moves the boxes with it."""
    torch = pytest.importorskip("torch")
    geometry = pytest.importorskip("kornia.geometry")
    boxes = random_boxes(40)
    offset = (9.0, -4.5)
    matrix = geometry.get_affine_matrix2d(
        torch.tensor([offset], dtype=torch.float64),
        torch.tensor([[SIZE[1] / 2, SIZE[0] / 2]], dtype=torch.float64),
        torch.full((1, 2), factor, dtype=torch.float64),
        torch.tensor([degrees], dtype=torch.float64),
    )
    there = torch.tensor([[box.xyxy for box in boxes]], dtype=torch.float64)
    peer = geometry.boxes.Boxes.from_tensor(there, mode="xyxy_plus").transform_boxes(matrix)
    expected = peer.to_tensor(mode="xyxy_plus").numpy()[0]
    limits = np.array([SIZE[1], SIZE[0]] * 2)
    ours = Homography(
        point_maps.translation(*offset).matrix
        @ point_maps.rotation(degrees, SIZE).matrix
        @ point_maps.scaling(factor, SIZE).matrix
    )
    actual = np.array([box.xyxy for box in boxes_after_map(boxes, ours, SIZE)])
    np.testing.assert_allclose(actual, np.clip(expected, 0, limits), atol=1e-3)


def test_perspective_boxes_are_those_of_kornia() -> None:
    torch = pytest.importorskip("torch")
    geometry = pytest.importorskip("kornia.geometry")
    boxes = random_boxes(40, seed=3)
    map_ = point_maps.tilting(40, 2.0, SIZE)
    corners = torch.tensor([[0, 0], [SIZE[1], 0], [SIZE[1], SIZE[0]], [0, SIZE[0]]], dtype=torch.float64)
    moved = torch.from_numpy(map_.forward(corners.numpy()))
    matrix = geometry.get_perspective_transform(corners[None], moved[None])
    there = torch.tensor([[box.xyxy for box in boxes]], dtype=torch.float64)
    peer = geometry.boxes.Boxes.from_tensor(there, mode="xyxy_plus").transform_boxes(matrix)
    expected = np.clip(peer.to_tensor(mode="xyxy_plus").numpy()[0], 0, [SIZE[1], SIZE[0]] * 2)
    actual = np.array([box.xyxy for box in boxes_after_map(boxes, map_, SIZE)])
    np.testing.assert_allclose(actual, expected, atol=1e-3)


@pytest.mark.parametrize("barrel", [True, False])
def test_the_visible_part_of_a_distorted_box_is_that_of_its_points(barrel: bool) -> None:
    """An independent estimate of the visible share and of the area: points inside the box, moved."""
    map_ = Radial(0.5, barrel, SIZE)
    for box in [Box((100, 5, 139, 40), 0, area=700.0), Box((0, 0, 30, 30), 0, area=900.0)]:
        x0, y0, x1, y1 = box.xyxy
        x, y = np.meshgrid(np.linspace(x0, x1, 400), np.linspace(y0, y1, 400))
        points = np.stack([x, y], axis=-1)
        moved = map_.forward(points)
        du, dv = np.gradient(moved, axis=1), np.gradient(moved, axis=0)
        jacobian = np.abs(du[..., 0] * dv[..., 1] - du[..., 1] * dv[..., 0])
        inside = ((moved >= 0) & (moved <= (SIZE[1], SIZE[0]))).all(axis=-1)
        (after,) = boxes_after_map([box], map_, SIZE)
        share = (jacobian * inside).sum() / jacobian.sum()
        assert after.crowd is bool(share < 0.25)
        assert after.area is not None
        assert box.area is not None
        visible = (jacobian * inside).sum()
        cells = jacobian.size / (400 / 399) ** 2
        expected = box.area * visible / cells / (((x1 - x0) / 399) * ((y1 - y0) / 399))
        assert after.area == pytest.approx(expected, rel=0.02)


def test_the_rule_for_objects_that_leave_the_image() -> None:
    boxes = [Box((0, 10, 40, 50), 1, area=1600.0), Box((60, 10, 100, 50), 1, area=1600.0)]
    for right, visible in ((-10.0, 0.75), (-30.0, 0.25), (-31.0, 0.225), (-50.0, 0.0)):
        leaving, staying = boxes_after_map(boxes, point_maps.translation(right, 0), SIZE)
        assert leaving.area == pytest.approx(1600 * visible)
        assert leaving.crowd is (visible < 0.25)
        assert leaving.xyxy == (0, 10, max(40 + right, 0), 50)
        assert staying == Box((60 + right, 10, 100 + right, 50), 1, area=1600.0)
    crowd = Box((0, 0, 5, 5), 2, crowd=True)
    assert boxes_after_map([crowd], point_maps.translation(1, 0), SIZE)[0].crowd


@pytest.mark.parametrize("degrees", [3.0, 45.0, 101.0])
def test_turning_there_and_back_contains_the_box(degrees: float) -> None:
    """The bounding box of a turned bounding box contains the original, and its centre is the same."""
    box = Box((60, 35, 90, 60), 0)
    (there,) = boxes_after_map([box], point_maps.rotation(degrees, (900, 1400)), (900, 1400))
    (back,) = boxes_after_map([there], point_maps.rotation(-degrees, (900, 1400)), (900, 1400))
    outer, inner = np.array(back.xyxy), np.array(box.xyxy)
    if (there.xyxy[0] > 0) and (there.xyxy[1] > 0):
        assert (outer[:2] <= inner[:2] + 1e-9).all()
        assert (outer[2:] >= inner[2:] - 1e-9).all()
        np.testing.assert_allclose(outer[:2] + outer[2:], inner[:2] + inner[2:], atol=1e-9)


def test_a_box_behind_something_is_hidden_by_its_share() -> None:
    hidden = np.zeros(SIZE, np.float32)
    hidden[:, :50] = 1
    boxes = [Box((40, 10, 60, 30), 0, area=400.0), Box((10.5, 10.5, 50.5, 20.5), 0), Box((60, 0, 80, 9), 0)]
    half, most, none = boxes_behind(boxes, hidden)
    assert half.area == pytest.approx(200)
    assert (half.crowd, most.crowd, none.crowd) == (False, True, False)
    assert [box.xyxy for box in (half, most, none)] == [box.xyxy for box in boxes]


def test_a_deformation_known_backwards_moves_boxes_to_whole_pixels() -> None:
    y, x = np.mgrid[: SIZE[0], : SIZE[1]] + 0.5
    moved, gone = boxes_where(
        [Box((20, 30, 40, 50), 0, area=400.0), Box((0, 0, 5, 5), 0)], np.stack([x - 7, y + 3], -1), SIZE
    )
    assert moved == Box((27, 27, 47, 47), 0, area=400.0)
    assert gone.xyxy == (7, 0, 12, 2)
    (lost,) = boxes_where([Box((0, 0, 5, 5), 0)], np.stack([x + 20, y], -1), SIZE)
    assert lost.crowd
    assert lost.xyxy[0] == lost.xyxy[2]


def test_polygons_are_clipped_to_the_image() -> None:
    triangle = np.array([(-10.0, 10.0), (30.0, 10.0), (30.0, 50.0)])
    assert polygon_area(triangle) == pytest.approx(800)
    assert polygon_area(clipped_polygon(triangle, SIZE)) == pytest.approx(800 - 50)
    assert polygon_area(clipped_polygon(triangle - 100, SIZE)) == 0


def test_boxes_are_those_of_torchvision() -> None:
    torch = pytest.importorskip("torch")
    functional = with_torchvision(lambda: importlib.import_module("torchvision.transforms.v2.functional"))
    tensors = with_torchvision(lambda: importlib.import_module("torchvision.tv_tensors"))
    boxes = random_boxes(30, seed=5)
    there = tensors.BoundingBoxes(
        torch.tensor([box.xyxy for box in boxes], dtype=torch.float64), format="XYXY", canvas_size=SIZE
    )
    peer = functional.affine(there, angle=24, translate=[6, -3], scale=0.7, shear=[0.0, 0.0])
    expected = functional.clamp_bounding_boxes(peer, clamping_mode="hard").numpy()
    ours = Homography(
        point_maps.translation(6, -3).matrix
        @ point_maps.rotation(24, SIZE).matrix
        @ point_maps.scaling(0.7, SIZE).matrix
    )
    actual = np.array([box.xyxy for box in boxes_after_map(boxes, ours, SIZE)])
    np.testing.assert_allclose(actual, expected, atol=1e-3)
    sheared = functional.affine(there, angle=0, translate=[0, 0], scale=1.0, shear=[-20.0, 0.0])
    expected = functional.clamp_bounding_boxes(sheared, clamping_mode="hard").numpy()
    leaning = [box.xyxy for box in boxes_after_map(boxes, point_maps.shearing(-20, SIZE), SIZE)]
    mirrored = [box.xyxy for box in boxes_after_map(boxes, point_maps.shearing(20, SIZE), SIZE)]
    errors = [np.abs(np.array(one) - expected).max() for one in (leaning, mirrored)]
    assert min(errors) < 1e-3

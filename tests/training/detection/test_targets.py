"""Which location is to find which object, against torchvision's assignment."""

from __future__ import annotations

import numpy as np
import pytest
from tests.training.detection import peers

from sorites.models.detectors.fcos import locations
from sorites.training.detection.targets import BACKGROUND, IGNORED, GroundTruth, targets_of

SIZE = (256, 320)


def _random(seed: int, count: int = 12) -> GroundTruth:
    rng = np.random.default_rng(seed)
    corners = rng.uniform(0, 200, (count, 2))
    boxes = np.concatenate([corners, corners + rng.uniform(3, 300, (count, 2)) ** rng.uniform(0.5, 1)], 1)
    return GroundTruth(boxes, rng.integers(0, 9, count), np.zeros(count, bool))


@pytest.mark.parametrize("seed", range(8))
def test_every_location_has_the_object_that_torchvision_gives_it(seed: int) -> None:
    ground_truth = _random(seed)
    centres, strides = locations(SIZE)
    targets, theirs = targets_of(ground_truth, centres, strides), peers.matched(ground_truth.boxes, SIZE)
    found = theirs >= 0
    assert found.any()
    assert np.array_equal(targets[found, 0], ground_truth.labels[theirs[found]])
    assert (targets[~found, 0] == BACKGROUND).all()
    boxes = np.concatenate([centres - targets[:, 1:3], centres + targets[:, 3:]], 1)[found]
    assert np.allclose(boxes, ground_truth.boxes[theirs[found]], atol=1e-3)


def test_no_location_of_an_image_without_objects_has_one() -> None:
    nothing = GroundTruth(np.zeros((0, 4)), np.zeros(0, np.int64), np.zeros(0, bool))
    assert (targets_of(nothing, *locations(SIZE))[:, 0] == BACKGROUND).all()


def test_locations_in_an_ignored_box_do_not_count_but_objects_in_it_do() -> None:
    boxes = np.array([[0.0, 0, 128, 128], [32.0, 32, 64, 64]])
    centres, strides = locations(SIZE)
    targets = targets_of(GroundTruth(boxes, np.array([1, 3]), np.array([True, False])), centres, strides)
    inside = (centres < 128).all(1)
    assert set(targets[inside, 0].tolist()) == {IGNORED, 3}
    assert set(targets[~inside, 0].tolist()) == {BACKGROUND}

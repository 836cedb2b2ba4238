"""The losses of detectors against closed forms and against torchvision's."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.training.detection import peers

from sorites.models.detectors.fcos import locations
from sorites.training.detection.losses import centreness, detection_loss, focal_loss, giou_loss
from sorites.training.detection.targets import IGNORED, GroundTruth, targets_of

SIZE = (96, 128)


def test_focal_loss_is_its_formula_and_torchvisions() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(50, 7, generator=generator) * 4
    present = (torch.rand(50, 7, generator=generator) < 0.3).float()
    theirs = peers.library.ops.sigmoid_focal_loss(logits, present, 0.25, 2.0)
    assert torch.allclose(focal_loss(logits, present), theirs, rtol=1e-5, atol=1e-7)
    half = focal_loss(torch.zeros(2), torch.tensor([1.0, 0.0]))
    assert half.tolist() == pytest.approx([0.25 * 0.25 * math.log(2), 0.75 * 0.25 * math.log(2)])
    plain = focal_loss(logits, present, alpha=0.5, gamma=0.0)
    cross_entropy = torch.nn.functional.binary_cross_entropy_with_logits(logits, present, reduction="none")
    assert torch.allclose(plain, cross_entropy / 2)


def test_giou_loss_is_its_formula_and_torchvisions() -> None:
    generator = torch.Generator().manual_seed(1)
    one, other = (torch.rand(60, 4, generator=generator) * 30 + 0.1 for _ in range(2))
    boxes = [torch.cat([-part[:, :2], part[:, 2:]], 1) for part in (one, other)]
    theirs = peers.library.ops.generalized_box_iou_loss(*boxes)
    assert torch.allclose(giou_loss(one, other), theirs, atol=1e-5)
    assert giou_loss(one, one).abs().max() < 1e-5
    # A box of 2 x 2 inside one of 4 x 4: IoU 1/4, and the hull is the larger box.
    inside = giou_loss(torch.ones(1, 4), torch.full((1, 4), 2.0))
    assert inside.item() == pytest.approx(0.75, abs=1e-6)


def test_centreness_is_one_in_the_middle_and_falls_to_the_sides() -> None:
    distances = torch.tensor([[2.0, 3.0, 2.0, 3.0], [1.0, 2.0, 4.0, 2.0], [1.0, 1.0, 4.0, 9.0]])
    assert centreness(distances).tolist() == pytest.approx([1, 0.5, math.sqrt(1 / 4 / 9)])


def _scene(seed: int) -> tuple[GroundTruth, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    corners = rng.uniform(0, 70, (6, 2))
    boxes = np.concatenate([corners, corners + rng.uniform(8, 60, (6, 2))], 1)
    count = len(locations(SIZE)[0])
    outputs = (
        torch.randn(1, count, 5, generator=generator),
        torch.rand(1, count, 4, generator=generator) * 40,
        torch.randn(1, count, generator=generator),
    )
    return GroundTruth(boxes, rng.integers(0, 5, 6), np.zeros(6, bool)), outputs


@pytest.mark.parametrize("seed", range(5))
def test_the_loss_of_an_image_is_torchvisions(seed: int) -> None:
    ground_truth, outputs = _scene(seed)
    targets = torch.from_numpy(targets_of(ground_truth, *locations(SIZE)))[None]
    theirs = peers.losses(outputs, ground_truth.boxes, ground_truth.labels, SIZE)
    assert detection_loss(outputs, targets).item() == pytest.approx(theirs.item(), rel=2e-5)


def test_ignored_locations_have_no_loss_and_an_empty_image_has_one() -> None:
    _, outputs = _scene(0)
    nothing = torch.full((1, outputs[0].shape[1], 5), -1.0)
    empty = detection_loss(outputs, nothing)
    assert empty.item() == pytest.approx(focal_loss(outputs[0], torch.zeros_like(outputs[0])).sum().item())
    nothing[..., 0] = IGNORED
    assert detection_loss(outputs, nothing).item() == 0

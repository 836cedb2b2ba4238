"""Detectors of torchvision: a real one with weights made here, on an operator made here; and every
way in which none loads.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.models import detectors
from tests.models.detectors import NAME, weights

from sorites import core
from sorites.core.errors import SoritesError, UnknownName


@pytest.fixture
def operators() -> Iterator[None]:
    with detectors.operators():
        yield


def test_a_detector_with_weights_from_a_file(operators: None, tmp_path: Path) -> None:
    model = core.model(f"torchvision:{NAME}@{weights(tmp_path / 'w.pth')}")
    assert model.output == "boxes"
    assert model.labels is not None
    assert (len(model.labels), model.labels[0], len(model.version)) == (80, "person", 32)
    images = [np.random.default_rng(i).integers(0, 256, (120, 90 + 40 * i, 3), np.uint8) for i in range(2)]
    together = model(images).boxes
    assert together is not None
    assert together == [model([image]).boxes[0] for image in images]  # type: ignore[index]
    for image, boxes in zip(images, together, strict=True):
        assert boxes
        assert all(
            0 <= b.label < 80 and b.xyxy[2] <= image.shape[1] and b.xyxy[3] <= image.shape[0] for b in boxes
        )


@pytest.mark.slow
def test_classes_of_ones_own_start_at_one(operators: None, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("apple\npear\n")
    path = weights(tmp_path / "w.pth", 3)
    assert core.model(f"torchvision:{NAME}@{path}?labels={tmp_path / 'names.txt'}").labels == (
        "apple",
        "pear",
    )
    with pytest.raises(SoritesError, match="91 classes"):
        core.model(f"torchvision:{NAME}@{path}")


def test_mistakes_are_reported(operators: None, tmp_path: Path) -> None:
    (tmp_path / "text.pth").write_text("text")
    for spec, error, said in (
        ("torchvision", SoritesError, "torchvision:"),
        (f"torchvision:{NAME}", SoritesError, "detector and its weights"),
        ("torchvision:ssdlite320_mobilenet@w.pth", UnknownName, "ssdlite320_mobilenet_v3_large"),
        (
            f"torchvision:{NAME}@nowhere.pth",
            SoritesError,
            "COCO_V1",
        ),
        (
            f"torchvision:{NAME}@{tmp_path / 'text.pth'}",
            SoritesError,
            "weights file",
        ),
        (f"torchvision:{NAME}@w.pth?classes=3", SoritesError, r"expected \?labels=FILE"),
    ):
        with pytest.raises(error, match=said):
            core.model(spec)


@pytest.mark.skipif(detectors.works(), reason="torchvision's operators load here")
def test_without_operators_it_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(
        SoritesError,
        match="not load with torch.*Install",
    ):
        core.model(f"torchvision:{NAME}@{tmp_path / 'w.pth'}")

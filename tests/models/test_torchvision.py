"""Detectors of torchvision: a real one with weights made here, on an operator made here; and every
way in which none loads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.models import detectors
from tests.models.detectors import NAME, weights

from sorites import core
from sorites.core.compute.torch_tools import import_with_torchvision
from sorites.core.errors import Notice, SoritesError, UnknownName
from sorites.models import torchvision as classifiers


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
        (f"torchvision:{NAME}", SoritesError, "a name and its weights"),
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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:torchvision.mobilenet_v3_small")
def test_a_classifier_equals_that_of_torchvision(tmp_path: Path) -> None:
    library = import_with_torchvision("torchvision", "the test", "timm")
    network = library.models.get_model("mobilenet_v3_small", weights=None, num_classes=5).eval()
    torch.save(network.state_dict(), tmp_path / "w.pth")
    (tmp_path / "names.txt").write_text("a\nb\nc\nd\ne\n")
    model = core.model(f"torchvision:mobilenet_v3_small@{tmp_path / 'w.pth'}?labels={tmp_path / 'names.txt'}")
    assert model.labels == ("a", "b", "c", "d", "e")
    preset = library.models.get_model_weights("mobilenet_v3_small").DEFAULT.transforms()
    images = [np.random.default_rng(i).integers(0, 256, (260 + 90 * i, 300, 3), np.uint8) for i in range(2)]
    expected = torch.stack([preset(Image.fromarray(image)) for image in images])
    prepared = np.stack([model.prepare(image, False) for image in images])
    mean, std = torch.tensor(preset.mean).view(3, 1, 1), torch.tensor(preset.std).view(3, 1, 1)
    pixels = torch.from_numpy(prepared.transpose(0, 3, 1, 2)).to(torch.float32).div(255)
    assert torch.equal((pixels - mean) / std, expected)
    with torch.inference_mode():
        logits = network(expected).numpy()
        same = classifiers.load(
            library, "mobilenet_v3_small", str(tmp_path / "w.pth"), preset_of(library, "mobilenet_v3_small")
        )
        assert np.array_equal(same(expected).numpy(), logits)
    outputs = model(images)
    assert outputs.logits is not None
    assert outputs.features is not None
    assert np.allclose(outputs.logits, logits, atol=1e-4)
    assert model.head is not None
    assert np.allclose(outputs.features @ model.head[0].T + model.head[1], outputs.logits, atol=1e-4)


def preset_of(library: Any, name: str) -> Any:
    return library.models.get_model_weights(name).DEFAULT


def test_presets_are_read_to_the_pixel() -> None:
    """All presets of torchvision, of which some would round to another size."""
    library = import_with_torchvision("torchvision", "the test", "timm")
    seen = set()
    for name in classifiers.names(library):
        for tag in library.models.get_model_weights(name):
            preset, wants = tag.transforms(), classifiers.input_of(tag, name)
            seen.add((wants.size, wants.crop_pct, preset.resize_size[0]))
            assert math.floor(wants.size[0] / wants.crop_pct) == preset.resize_size[0]
            assert wants.filter == preset.interpolation.value
    assert len(seen) > 10


def test_a_classifier_from_a_file_that_does_not_say_its_preset_is_noted(tmp_path: Path) -> None:
    library = import_with_torchvision("torchvision", "the test", "timm")
    torch.save(
        library.models.get_model("resnet50", weights=None, num_classes=2).state_dict(), tmp_path / "w.pth"
    )
    spec = f"torchvision:resnet50@{tmp_path / 'w.pth'}"
    tags = library.models.get_model_weights("resnet50").__members__
    with pytest.warns(Notice, match="preset=IMAGENET1K_V1"):
        assert classifiers._preset("resnet50", spec, tags, None).name == "IMAGENET1K_V2"
    assert classifiers._preset("resnet50", spec, tags, "IMAGENET1K_V1").name == "IMAGENET1K_V1"
    for bad, said in (
        ("torchvision:resnet5@random", "resnet50"),
        (f"{spec}?preset=V9", "presets IMAGENET1K_V1"),
        ("torchvision:resnet50@nowhere.pth?preset=IMAGENET1K_V1", "no weights file nowhere.pth"),
        (f"torchvision:resnet18@{tmp_path / 'w.pth'}", "cannot be loaded as the weights"),
        ("torchvision:googlenet@random", "published weights only"),
    ):
        with pytest.raises(SoritesError, match=said):
            core.model(bad)

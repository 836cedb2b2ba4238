"""What every model has to do, built in or plugged in.

One that needs an argument gets the one of ``examples``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.contracts import examples
from tests.contracts.conftest import Example

from sorites import core
from sorites.core import MODELS, ImageU8, Model, Outputs
from sorites.core.compute.torch_tools import one_thread
from sorites.core.errors import SoritesError
from sorites.evaluation.predict import wrong_boxes

# Large networks, models that fetch or fit something when the cache is empty, and those of libraries that only
# the slow tests install.
SLOW = {"cifar6", "hf", "lite1", "lite2", "openvino", "picodet", "tflite"}
_loaded: dict[str, Model] = {}


def _marked(name: str) -> object:
    return pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name


@pytest.fixture(params=[_marked(name) for name in MODELS.names()])
def model(
    request: pytest.FixtureRequest, example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Model]:
    name = request.param
    spec, folder = example("model", name)
    monkeypatch.syspath_prepend(str(folder))
    if name in examples.MODELS:
        monkeypatch.setenv("SORITES_CACHE", str(tmp_path / "cache"))
    with examples.operators_for(name), one_thread():
        if name not in _loaded:
            _loaded[name] = _load(spec, name)
        yield _loaded[name]


def _load(spec: str, name: str) -> Model:
    try:
        made = core.model(spec)
    except SoritesError as error:
        if "connection" not in str(error).lower():
            raise
        pytest.skip(f"{name} fetches its weights, and there is no network: {error}")
    return (
        made
        if made.for_classes is None
        else replace(made.for_classes(examples.CLASSES[name]), name=made.name)
    )


@pytest.fixture(scope="module")
def images() -> list[ImageU8]:
    rng = np.random.default_rng(0)
    sizes = [(1, 1), (60, 80), (224, 224), (300, 200), (8, 500)]
    return [rng.integers(0, 256, (*size, 3), np.uint8) for size in sizes]


def logits(outputs: Outputs) -> np.ndarray:
    assert outputs.logits is not None
    return outputs.logits


def check_boxes(model: Model, given: Outputs, images: list[ImageU8]) -> None:
    assert given.boxes is not None
    for boxes, image in zip(given.boxes, images, strict=True):
        assert wrong_boxes(boxes, model) is None
        height, width = image.shape[:2]
        assert all(
            0 <= b.xyxy[0] < b.xyxy[2] <= width and 0 <= b.xyxy[1] < b.xyxy[3] <= height for b in boxes
        )


def test_every_image_gets_finite_logits_or_boxes(model: Model, images: list[ImageU8]) -> None:
    for framed in (False, True):
        given = model(images, framed)
        assert len(given) == len(images)
        if model.output == "boxes":
            check_boxes(model, given, images)
            continue
        assert logits(given).dtype == np.float32
        assert np.isfinite(logits(given)).all()
        assert logits(given).shape == (len(images), len(model.labels or logits(given)[0]))
        if given.features is not None:
            assert given.features.ndim == 2
            assert np.isfinite(given.features).all()


def test_neighbours_in_a_batch_do_not_matter(model: Model, images: list[ImageU8]) -> None:
    if model.output == "boxes":
        assert model(images).boxes == [boxes for image in images for boxes in model([image]).boxes or ()]
        return
    together = logits(model(images))
    backwards = logits(model(images[::-1]))[::-1]
    alone = np.concatenate([logits(model([image])) for image in images])
    for other in (backwards, alone):
        np.testing.assert_allclose(other, together, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(other.argmax(axis=1), together.argmax(axis=1))


def test_the_same_batch_twice_is_the_same_bit_for_bit(model: Model, images: list[ImageU8]) -> None:
    once, twice = model(images), model(images)
    assert once.boxes == twice.boxes
    if model.output == "label":
        np.testing.assert_array_equal(logits(once), logits(twice))


def test_images_are_not_written_to(model: Model, images: list[ImageU8]) -> None:
    before = [image.copy() for image in images]
    for image in images:
        image.flags.writeable = False
    model(images)
    for image, was in zip(images, before, strict=True):
        np.testing.assert_array_equal(image, was)


def test_a_framed_image_is_not_cropped(model: Model) -> None:
    """Its border is seen: preparing it framed depends on pixels that a centre crop would lose."""
    plain = np.full((250, 250, 3), 90, np.uint8)
    edged = plain.copy()
    edged[:6] = edged[-6:] = 255
    assert not np.array_equal(model.prepare(plain, True), model.prepare(edged, True))


def test_it_says_who_it_is(model: Model) -> None:
    assert model.name
    assert model.version, "a run must be able to tell other weights"
    assert model.labels is None or len(set(model.labels)) == len(model.labels)


def test_features_times_head_are_the_logits(model: Model, images: list[ImageU8]) -> None:
    given = model(images)
    if model.head is None or given.features is None:
        return
    weight, bias = model.head
    np.testing.assert_allclose(given.features @ weight.T + bias, logits(given), rtol=1e-3, atol=1e-3)

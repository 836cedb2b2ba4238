"""Boxes follow their image into the input of a detector: letterboxed, cropped, mirrored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.training.detection import scenes

from sorites import core
from sorites.core import ArrayRef, Box, Sample
from sorites.core.errors import SoritesError
from sorites.core.labels import labels
from sorites.models.preprocess import Input
from sorites.training.batches import Batches
from sorites.training.data import data_hash, images
from sorites.training.detection.images import BoxImages, BoxPrepared
from sorites.training.recipe import Recipe, parse

WANTS = Input(size=(128, 128), crop_pct=1.0)


def prepared(folder: Path, crop: tuple[float, float] | None) -> BoxPrepared:
    samples = core.source(f"coco:{scenes.write(folder, 6)}", labels(list(scenes.COLOURS)))
    return BoxPrepared(BoxImages(list(samples)), WANTS, crop)


def _extent(image: np.ndarray, label: int) -> np.ndarray:
    """Return the box around the pixels of a colour."""
    colour = np.array(list(scenes.COLOURS.values())[label])
    rows, columns = np.nonzero(np.abs(image.astype(int) - colour).max(-1) < 60)
    return np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])


@pytest.mark.parametrize("crop", [None, (0.3, 0.9)])
def test_boxes_are_where_the_pixels_of_their_object_are(
    tmp_path: Path, crop: tuple[float, float] | None
) -> None:
    ready, compared = prepared(tmp_path, crop), 0
    for epoch in range(3):
        for index in range(len(ready)):
            for mirrored in (False, True):
                image = ready.one(index, 5, epoch)
                image = image[:, ::-1] if mirrored else image
                own = ready.boxes(index, 5, epoch, mirrored)
                for box, label in zip(own.boxes, own.labels, strict=True):
                    if (own.labels == label).sum() == 1 and min(box[2:] - box[:2]) > 4:
                        assert np.abs(_extent(image, int(label)) - box).max() <= 1.5
                        compared += 1
    assert compared >= 20


def test_a_batch_is_mirrored_as_its_boxes_are(tmp_path: Path) -> None:
    ready = prepared(tmp_path, None)
    batches = Batches(ready, 3, 1, True)
    seen = set()
    for step in range(4):
        batch = batches.batch(step)
        for image, index, mirrored in zip(batch.images, batch.indices, batches.mirrored(step), strict=True):
            plain = ready.one(int(index), 1, 0)
            assert np.array_equal(image, plain[:, ::-1] if mirrored else plain)
            seen.add(bool(mirrored))
    assert seen == {True, False}


def test_sizes_are_read_where_another_process_decoded(tmp_path: Path) -> None:
    one, other = (prepared(tmp_path, (0.4, 0.8)) for _ in range(2))
    one.one(2, 0, 1)
    assert np.array_equal(one.boxes(2, 0, 1, True).boxes, other.boxes(2, 0, 1, True).boxes)


def _sample(*boxes: Box) -> Sample:
    return Sample("s", ArrayRef(np.zeros((100, 100, 3), np.uint8)), ground_truth=boxes)


def test_crowds_and_objects_of_which_a_crop_shows_little_are_ignored() -> None:
    corners = [Box((x, y, x + 9, y + 9), 0) for x in (0, 91) for y in (0, 91)]
    edge = _sample(*corners, Box((20, 20, 80, 80), 1, crowd=True), Box((5, 5, 5, 9), 1))
    ready = BoxPrepared(BoxImages([edge]), WANTS, (0.8, 0.8))
    own = [ready.boxes(0, 0, epoch, False) for epoch in range(40)]
    assert all(len(one.boxes) <= 5 for one in own)  # the box without an area is dropped
    assert all(one.ignored[one.labels == 1].all() for one in own)
    shown = np.concatenate([one.ignored[one.labels == 0] for one in own])
    assert 0 < shown.sum() < len(shown)
    whole = BoxPrepared(BoxImages([edge]), WANTS).boxes(0, 0, 0, False)
    assert not whole.ignored[whole.labels == 0].any()


def test_images_without_ground_truth_are_refused() -> None:
    with pytest.raises(SoritesError, match="s"):
        BoxImages([Sample("s", ArrayRef(np.zeros((8, 8, 3), np.uint8)), label=1)])


# The data of a recipe.


def recipe(source: str, **keys: object) -> Recipe:
    data = {"source": source, "labels": "found", **(keys.pop("data", {}) or {})}  # type: ignore[dict-item]
    return parse({"name": "r", "task": "boxes", "steps": 2, "data": data, **keys}, "r")


def test_classes_are_found_in_the_annotations(tmp_path: Path) -> None:
    data = images(recipe(f"coco:{scenes.write(tmp_path, 6)}", data={"validation": 0.4}))
    assert data.labels.ids == ("green", "red")
    assert isinstance(data.train, BoxImages)
    assert isinstance(data.validation, BoxImages)
    assert (len(data.train), len(data.validation)) == (3, 3)
    kept = images(recipe(f"coco:{tmp_path / 'boxes.json'}", data={"labels": ["red", "green"]}))
    own = {sample.id: sample.ground_truth for sample in kept.samples["train"]}
    for sample in data.samples["train"]:
        assert [1 - box.label for box in sample.ground_truth or ()] == [
            box.label for box in own[sample.id] or ()
        ]


def test_a_moved_box_changes_the_hash_of_the_data(tmp_path: Path) -> None:
    file = scenes.write(tmp_path, 4)
    before = data_hash(images(recipe(f"coco:{file}")).listed())
    assert data_hash(images(recipe(f"coco:{file}")).listed()) == before
    text = file.read_text()
    file.write_text(text.replace('"bbox": [', '"bbox": [1', 1))
    assert file.read_text() != text
    assert data_hash(images(recipe(f"coco:{file}")).listed()) != before


@pytest.mark.parametrize(
    "keys",
    [
        {"label_smoothing": 0.1},
        {"augment": {"names": "augmix", "jsd": True}},
        {"data": {"validation": 0.2}, "early_stopping": {"patience": 2}},
        {"keep_head": True},
    ],
)
def test_keys_without_a_meaning_for_detectors_are_refused(keys: dict[str, object]) -> None:
    with pytest.raises(SoritesError, match="boxes"):
        recipe("composites", **keys)

"""The data of a recipe, and what cannot be trained on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from sorites.core.errors import SoritesError
from sorites.training.data import TrainingData, check, data_hash, images
from sorites.training.images import SampleImages
from sorites.training.recipe import Recipe, parse


def recipe(root: Path, **data: Any) -> Recipe:
    return parse(
        {"name": "r", "epochs": 1, "data": {"source": f"folder:{root}", "labels": "found", **data}}, "r"
    )


def ids(part: Any) -> list[str]:
    return [part.id(place) for place in range(len(part))]


def test_classes_are_found_in_the_folders(photos: Path) -> None:
    found = images(recipe(photos))
    assert found.labels.ids == ("n01440764", "n01443537", "n01484850", "n01491361")
    assert all(
        found.labels.ids[found.train.label(i)] == found.train.id(i).split("/")[0]
        for i in range(len(found.train))
    )


def test_names_of_found_classes_are_spelled_as_the_folders_are(tmp_path: Path) -> None:
    for name in ("Big_Dog", "a-Cat", "7"):
        (tmp_path / name).mkdir()
        Pillow.new("RGB", (4, 4)).save(tmp_path / name / "x.png")
    found = images(recipe(tmp_path))
    assert found.labels.ids == ("7", "Big_Dog", "a-Cat")
    assert sorted((found.train.id(i), found.train.label(i)) for i in range(3)) == [
        ("7/x.png", 0),
        ("Big_Dog/x.png", 1),
        ("a-Cat/x.png", 2),
    ]


def test_the_validation_part_shares_no_image_and_follows_from_its_seed(photos: Path) -> None:
    found = images(recipe(photos, validation=0.25))
    assert found.validation is not None
    assert (len(found.train), len(found.validation)) == (15, 5)
    assert not set(ids(found.train)) & set(ids(found.validation))
    again = images(recipe(photos, validation={"share": 0.25, "seed": 1}))
    assert set(ids(again.validation)) != set(ids(found.validation))
    assert ids(images(recipe(photos, validation=0.25)).train) == ids(found.train)


def test_a_limit_is_a_fair_prefix_before_the_split(photos: Path) -> None:
    some, all_ = images(recipe(photos, limit=12)), images(recipe(photos))
    assert ids(some.train) == ids(all_.train)[:12]


def test_the_hash_follows_contents_labels_and_parts(photos: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(photos, copy)
    first = images(recipe(copy, validation=0.25)).listed()
    assert data_hash(first) == data_hash(images(recipe(photos, validation=0.25)).listed())
    assert data_hash(first) != data_hash(images(recipe(copy, validation={"share": 0.25, "seed": 3})).listed())
    Pillow.new("RGB", (9, 9)).save(copy / "n01440764/p00.png")
    now = images(recipe(copy, validation=0.25)).listed(first)
    assert data_hash(now) != data_hash(first)


def one_class(root: Path) -> Path:
    (root / "cat").mkdir()
    for i in range(3):
        Pillow.new("RGB", (4, 4)).save(root / "cat" / f"{i}.png")
    return root


def test_one_class_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match=r"one class \(cat\)"):
        images(recipe(one_class(tmp_path)))


def test_an_empty_part_is_refused(photos: Path) -> None:
    with pytest.raises(SoritesError, match="beside the validation part"):
        images(recipe(photos, validation=0.99))
    found = images(recipe(photos))
    with pytest.raises(SoritesError, match="data.validation"):
        check(TrainingData(found.train, SampleImages([]), found.labels), recipe(photos))


def test_a_validation_part_from_the_same_source_is_refused(photos: Path) -> None:
    with pytest.raises(SoritesError, match="20 of its 20 images"):
        images(recipe(photos, validation=f"folder:{photos}"))


def test_a_folder_without_classes_cannot_be_trained_on(tmp_path: Path) -> None:
    Pillow.new("RGB", (4, 4)).save(tmp_path / "x.png")
    with pytest.raises(SoritesError, match="has no class folders"):
        images(recipe(tmp_path))
    with pytest.raises(SoritesError, match="x.png"):
        images(recipe(tmp_path, labels=["cat", "dog"]))


def test_a_label_without_an_output_is_named(photos: Path) -> None:
    class Odd:
        def __len__(self) -> int:
            return 2

        def id(self, place: int) -> str:
            return f"odd{place}"

        def label(self, place: int) -> int:
            return 7 * place

        def image(self, place: int, rng: np.random.Generator) -> Any:
            raise AssertionError

    asked = recipe(photos)
    space = images(asked).labels
    with pytest.raises(SoritesError, match="odd1.* 7.* 0 to 3"):
        check(TrainingData(Odd(), None, space), asked)


def test_images_that_are_not_there_are_said_with_the_key_that_names_them(photos: Path) -> None:
    with pytest.raises(SoritesError, match='data.source = "folder:nowhere"'):
        images(recipe(Path("nowhere")))
    with pytest.raises(SoritesError, match='data.validation = "folder:nowhere"'):
        images(recipe(photos, validation={"source": "folder:nowhere"}))
    with pytest.raises(SoritesError, match=r"labels='found'"):
        images(recipe(photos, labels=["cat", "dog"]))

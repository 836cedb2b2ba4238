"""Splits against torch's own, and the refusal of a division that shows one object on both sides."""

from __future__ import annotations

import numpy as np
import pytest

from sorites.core import Generated, Sample
from sorites.core.errors import SoritesError
from sorites.training.images import (
    FOCUS_SEED,
    FOCUS_SHARE,
    Split,
    by_hash,
    by_object,
    coarse,
    objects_of,
    permuted,
)

OBJECTS = [f"{folder}/{number}.png" for folder in ("animals", "food", "tools") for number in range(8)]
IMAGES = [obj for obj in OBJECTS for _ in range(5)]
CLASSES = [["animals", "food", "tools"].index(obj.partition("/")[0]) for obj in IMAGES]


@pytest.mark.parametrize("count", [10, 20815])
def test_the_split_of_focus_is_torchs_random_split(count: int) -> None:
    torch = pytest.importorskip("torch")
    data = torch.utils.data
    first = int(count * 0.7)
    generator = torch.Generator().manual_seed(7342984)
    theirs = data.random_split(range(count), [first, count - first], generator=generator)
    ours = permuted(count, FOCUS_SHARE, FOCUS_SEED)
    assert [list(part.indices) for part in theirs] == list(ours)


def test_a_split_by_hash_follows_from_the_ids_and_the_seed() -> None:
    train, rest = by_hash(OBJECTS, 0.75, 3)
    assert (len(train), len(rest)) == (18, 6)
    assert sorted(train + rest) == list(range(24))
    backwards = OBJECTS[::-1]
    again, _ = by_hash(backwards, 0.75, 3)
    assert {backwards[place] for place in again} == {OBJECTS[place] for place in train}
    assert by_hash(OBJECTS, 0.75, 4)[0] != train


def test_no_object_stands_on_both_sides_of_a_split_by_object() -> None:
    split = by_object(IMAGES, CLASSES, 0.75, 0)
    train, test = ({IMAGES[place] for place in places} for places in (split.train, split.test))
    assert not train & test
    assert sorted((*split.train, *split.test)) == list(range(len(IMAGES)))
    assert all(sum(obj.startswith(folder) for obj in train) == 6 for folder in ("animals", "food", "tools"))
    assert by_object(IMAGES, CLASSES, 0.75, 1).train != split.train


def test_a_split_by_image_of_composites_is_refused() -> None:
    pytest.importorskip("torch")
    train, test = permuted(len(IMAGES), 0.7, FOCUS_SEED)
    with pytest.raises(SoritesError, match="on both sides") as error:
        Split(tuple(train), tuple(test), IMAGES)
    assert "by_object" in str(error.value)


def test_a_single_image_on_the_wrong_side_is_refused_by_the_objects_name() -> None:
    split = by_object(IMAGES, CLASSES, 0.75, 0)
    with pytest.raises(SoritesError, match=f"such as {IMAGES[split.test[0]]}"):
        Split((*split.train, split.test[0]), split.test[1:], IMAGES)


def test_an_empty_side_and_a_class_of_one_object_are_refused() -> None:
    with pytest.raises(SoritesError, match="the other side has none of 3"):
        Split((0, 1, 2), (), ["a", "b", "c"])
    with pytest.raises(SoritesError, match="class 1 has only c"):
        by_object(["a", "b", "c"], [0, 0, 1], 0.5, 0)
    with pytest.raises(SoritesError, match="between 0 and 1, got 1"):
        by_hash(["a", "b"], 1.0, 0)


def test_coarse_classes_are_first_folders_with_enough_objects() -> None:
    few = [*IMAGES, "town/box.png", "town/box.png", "loose.png"]
    assert set(coarse(few).values()) == {"animals", "food", "tools"}
    assert coarse(few, least=1)["town/box.png"] == "town"
    with pytest.raises(SoritesError, match="with 9 objects each"):
        coarse(few, least=9)


def test_the_built_in_cut_outs_make_eight_coarse_classes_or_more() -> None:
    from sorites.sources import stamps

    named = [stamp.file for stamp in stamps.table() if stamp.split == "test"]
    sizes = {
        class_: sum(its == class_ for its in coarse(named).values()) for class_ in set(coarse(named).values())
    }
    assert {"animals", "food", "hobbies", "household", "vehicles"} <= sizes.keys()
    assert min(sizes.values()) >= 4


def test_a_object_is_what_a_samples_id_names() -> None:
    def load() -> np.ndarray:
        return np.zeros((2, 2, 3), np.uint8)

    assert objects_of(
        [Sample("a", Generated(load), 0, image_id="1"), Sample("a", Generated(load), 0, image_id="2")]
    ) == ["a", "a"]

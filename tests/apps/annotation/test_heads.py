"""Heads learnt from words, judged on objects not seen, with a confidence that can be believed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.apps.annotation.worlds import answered, seeing, world

from sorites.apps.annotation.heads import (
    Annotated,
    KindHead,
    agreement,
    calibration_error,
    features_of,
    fit_heads,
    read_heads,
    split,
)
from sorites.apps.annotation.images import Entry
from sorites.apps.annotation.predict import annotator_words, by_heads, predict_source
from sorites.core import Generated, Sample
from sorites.core.errors import BadImage, Notice, SoritesError


def test_heads(tmp_path: Path) -> None:
    """Time, weather and several locations are told of objects not seen, better than chance, with a
    confidence to be believed.
    """
    heads = fit_heads(world(), seeing(), "python:seeing:model", source="drawn")
    rows = {row["kind"]: row for row in heads.measured.to_dicts()}
    assert set(rows) == {"time", "weather", "location"}
    assert rows["time"]["agreement"] > 0.85
    assert rows["weather"]["agreement"] > 0.85
    assert rows["location"]["agreement"] > 0.7
    for row in rows.values():
        assert row["chance"] < row["low"] <= row["agreement"] <= row["high"]
        assert row["objects"] == 15
        assert row["images"] == 30
        assert row["error"] < 0.15
    heads.save(tmp_path / "h.safetensors")
    again = read_heads(tmp_path / "h.safetensors")
    features, _ = features_of(seeing(), [one.load for one in world(8)])
    assert [head.predict(features) for head in again.heads] == [
        head.predict(features) for head in heads.heads
    ]
    assert again.measured.equals(heads.measured)
    assert again.reach.source == heads.reach.source == "drawn"
    assert (again.reach.images, again.reach.objects, again.reach.limit) == (120, 60, heads.reach.limit)
    np.testing.assert_array_equal(again.reach.distances(features), heads.reach.distances(features))


def test_images_unlike_the_training_images_are_told_nothing_about(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = fit_heads(world(), seeing(), "seeing")
    near, _ = features_of(seeing(), [one.load for one in world(70)[120:]])
    assert heads.reach.far(near).mean() < 0.2
    # The distance is that of a loop.
    bank = heads.reach.bank
    cosines = sorted(float(near[0] @ row / np.linalg.norm(near[0])) for row in bank)
    assert heads.reach.distances(near[:1])[0] == pytest.approx(1 - cosines[-5], abs=1e-5)
    rng = np.random.default_rng(0)
    unseen = [
        np.stack([np.full((64, 64), v, np.uint8) for v in rng.permutation([255, 0, 0])], 2) for _ in range(9)
    ]
    monkeypatch.setattr("sorites.apps.annotation.predict.core.model", lambda spec: seeing())
    samples = [Sample(f"s{i}", Generated(lambda image=image: image)) for i, image in enumerate(unseen)]  # type: ignore[misc]
    with pytest.warns(Notice) as told:
        found = predict_source(by_heads(heads)[0], samples)
    assert told[0].message.code == "far_images"  # type: ignore[union-attr]
    features, _ = features_of(seeing(), [sample.load for sample in samples])
    far = {sample.id for sample, is_far in zip(samples, heads.reach.far(features), strict=True) if is_far}
    assert len(far) >= 3
    assert set(found.filter(found["value"].is_null())["image"]) == far
    assert set(found.filter(found["confidence"].is_null())["image"]) == far


def test_split() -> None:
    """No object stands in two parts, whatever the order; the shares are those stated."""
    objects = [one.obj for one in world(40)]
    parts = split(objects, 0)
    sides = [{objects[place] for place in places} for places in parts.values()]
    assert [len(side) for side in sides] == [24, 6, 10]
    assert sum(map(len, sides)) == len(set.union(*sides))
    turned = split(objects[::-1], 0)
    assert {objects[::-1][place] for place in turned["test"]} == sides[2]
    with pytest.raises(SoritesError, match="at least 12"):
        split(objects[:10], 0)


def test_several_words() -> None:
    """Of locations all that are likelier than not are told, and one at least; of time always one."""
    weight = np.eye(3, dtype=np.float32)
    features = np.array([[2, 2, -9], [-1, -2, -3]], np.float32)
    head = KindHead("location", ("grass", "sand", "water"), weight, np.zeros(3, np.float32))
    assert [[word for word, _ in told] for told in head.predict(features)] == [["grass", "sand"], ["grass"]]
    assert head.predict(features)[0][0][1] == pytest.approx(1 / (1 + np.exp(-2)))
    time = KindHead("time", ("day", "night", "none"), weight, np.zeros(3, np.float32))
    assert [len(told) for told in time.predict(features)] == [1, 1]


def test_agreement_by_hand() -> None:
    """Agreement, chance and calibration of a few images, counted by hand."""
    told = [[("day", 0.95)], [("night", 0.95)], [("day", 0.55)], [("day", 0.55)]]
    row = agreement(
        "time", told, [("day",), ("day",), ("day",), ("night",)], ["a", "a", "b", "b"], ("day",), 2
    ).row(0, named=True)
    assert (row["agreement"], row["chance"], row["objects"], row["images"]) == (0.5, 0.75, 2, 4)
    assert calibration_error(told, [("day",), ("day",), ("day",), ("night",)]) == pytest.approx(
        (0.45 + 0.05) / 2
    )


def test_what_cannot_be_learnt() -> None:
    """An image that cannot be read is passed over; words that never differ, and models without
    features, are refused.
    """

    def broken() -> np.ndarray:
        raise BadImage("no")

    features, kept = features_of(seeing(), [broken, *(one.load for one in world(3))])
    assert kept == [1, 2, 3, 4, 5, 6]
    assert len(features) == 6
    same = [Annotated(one.obj, one.load, {"time": ("day",)}) for one in world(20)]
    with pytest.raises(SoritesError, match="differ"):
        fit_heads(same, seeing(), "x")
    with pytest.raises(SoritesError, match="none of 1 images"):
        features_of(seeing(), [broken])


def test_read_wrong_files(tmp_path: Path) -> None:
    """A file that holds no heads is refused by name."""
    from safetensors.numpy import save_file

    with pytest.raises(SoritesError, match="no such file"):
        read_heads(tmp_path / "none.safetensors")
    save_file({"x": np.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(SoritesError, match="annotate.heads"):
        read_heads(tmp_path / "other.safetensors")


def test_people(tmp_path: Path) -> None:
    """What people answered to the task context are the words that heads learn from."""
    images = world(3)
    entries = [Entry(f"p{at}", f"p{at}", one.load) for at, one in enumerate(images)]

    def say(row: object, who: int) -> dict[str, object]:
        words = images[int(row["name"][1:])].words  # type: ignore[index]
        return {
            "category": "cat",
            "time": words["time"][0],
            "weather": words["weather"][0],
            "locations": list(words["location"]),
            "humans": "no",
        }

    told = annotator_words(answered(tmp_path / "l.sqlite", "context", entries, say))
    assert told == {f"p{at}": dict(one.words) for at, one in enumerate(images)}

"""Composites of several objects: a fixed list by seed and number, exact boxes, hidden objects recorded."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from sorites import core
from sorites.core.errors import SoritesError
from sorites.core.labels import coco, labels
from sorites.scenes.composite import CutOut
from sorites.scenes.scenery import DRAWN
from sorites.sources import stamps
from sorites.sources.composites import Object, Recipe, annotation_table, parse_range, samples


def discs(size: int) -> CutOut:
    y, x = np.mgrid[:size, :size]
    mask = ((x - size / 2) ** 2 + (y - size / 2) ** 2 < (size / 2) ** 2).astype(np.float32)
    return CutOut(np.full((size, size, 3), (0.9, 0.1, 0.1), np.float32), mask)


OBJECTS = [
    Object(name, i, ("grass", "indoors"), functools.partial(discs, 80 + 40 * i))
    for i, name in enumerate("abc")
]
OBJECTS.append(Object("d", None, ("snow",), functools.partial(discs, 200)))


def test_the_table_names_stamps_classes_of_coco_and_places() -> None:
    rows = annotation_table()
    assert len(rows) == 59
    assert len({name for _, name, _ in rows}) == 24
    known = {stamp.file for stamp in stamps.table()}
    for file, name, places in rows:
        assert file in known
        assert coco().get(name) is not None
        assert set(places) <= set(DRAWN)
    assert not any("paratrooper" in file for file, _, _ in rows), "its box would hold the parachute"


def test_an_image_follows_from_seed_and_number_alone() -> None:
    few, many = (samples(OBJECTS, Recipe(side=160), count, ()) for count in (3, 6))
    assert [(s.id, s.ground_truth, s.attrs) for s in few] == [
        (s.id, s.ground_truth, s.attrs) for s in many[:3]
    ]
    np.testing.assert_array_equal(few[2].load(), many[2].load())
    other = samples(OBJECTS, Recipe(seed=1, side=160), 3, ())
    assert [s.ground_truth for s in other] != [s.ground_truth for s in few]
    assert not {s.id for s in other} & {s.id for s in few}
    assert few[0].load().shape == (160, 160, 3)
    assert few[0].load().flags.writeable is False


def test_boxes_hidden_objects_and_objects_of_no_class() -> None:
    made = samples(OBJECTS, Recipe(objects=(6, 9), side=200), 60, ())
    hidden = 0
    for sample in made:
        told = {}
        for attr in sample.attrs:
            told.setdefault(attr.key, []).append(attr.value)
        assert 6 <= int(told["objects"][0]) <= 9
        hidden += len(told.get("hidden", ()))
        for box in sample.ground_truth or ():
            assert 0 <= box.xyxy[0] < box.xyxy[2] <= 200
            assert box.area is not None
            assert 0 < box.area <= (box.xyxy[2] - box.xyxy[0]) * (box.xyxy[3] - box.xyxy[1])
            assert box.label in (0, 1, 2), "what the labels lack has no box"
    assert hidden > 5, "with this many objects some are mostly hidden"
    assert any(len(s.ground_truth or ()) < 6 for s in made)


@pytest.mark.parametrize(("text", "wanted"), [("3", (3, 3)), ("1..5", (1, 5)), ("2..2", (2, 2))])
def test_a_range_of_objects(text: str, wanted: tuple[int, int]) -> None:
    assert parse_range(text) == wanted


@pytest.mark.parametrize("text", ["", "0", "5..1", "1-5", "a", "1..", "1..99", "-1"])
def test_what_is_no_range_is_reported(text: str) -> None:
    with pytest.raises(SoritesError, match=r"such as 3 or 1\.\.5"):
        parse_range(text)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("composites:many", "whole number"),
        ("composites:0", "expected 1 to 100,000 images"),
        ("composites:5?size=9999", "4096 px, got 9999"),
        ("composites:5?colour=red", "option named 'colour'"),
        ("composites:5?places=mars", "drawn, photographed"),
    ],
)
def test_options_that_do_not_exist(spec: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sorites.sources.composites.objects", lambda labels: OBJECTS)
    monkeypatch.setattr("sorites.sources.composites.fetch", lambda: ())
    with pytest.raises(SoritesError, match=message):
        core.source(spec, coco())


def test_other_labels_are_refused() -> None:
    with pytest.raises(SoritesError, match="labels"):
        core.source("composites", labels(["gnome"]))


@pytest.mark.slow
def test_the_embedded_images_show_all_classes() -> None:
    made = core.source("composites:150?places=drawn", coco()).samples
    assert len(made) == 150
    assert len({box.label for sample in made for box in sample.ground_truth or ()}) == 24
    assert made[0].load().shape == (640, 640, 3)

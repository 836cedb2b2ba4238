"""The held-out pairs of class and style are balanced, and no style reveals the class."""

from __future__ import annotations

from collections import Counter

from sorites.core import SHIFTS
from sorites.encoders.cifar import CLASSES, PHOTO, STYLES, part_of
from sorites.sources import cifar

PAIRS = [(i, j) for i in range(len(CLASSES)) for j in range(len(STYLES))]


def test_styles_are_the_photograph_and_every_style() -> None:
    assert {PHOTO, *(s["style"] for s in SHIFTS.get("style").settings)} == set(STYLES)
    assert all(way.count("{}") == 1 for ways in STYLES.values() for way in ways)
    assert CLASSES == cifar.CLASSES


def test_every_class_is_held_out_in_two_styles_of_each_part_and_every_such_style_from_five_classes() -> None:
    parts = {pair: part_of(*pair) for pair in PAIRS}
    for part in ("test", "validation"):
        held = [pair for pair, of in parts.items() if of == part]
        assert Counter(i for i, _ in held) == dict.fromkeys(range(10), 2)
        assert set(Counter(j for _, j in held).values()) == {5}
    assert all(parts[i, 0] == "training" for i in range(10))


def test_every_class_and_every_style_is_learnt() -> None:
    learnt = [pair for pair in PAIRS if part_of(*pair) == "training"]
    assert min(Counter(i for i, _ in learnt).values()) == 9
    assert min(Counter(j for _, j in learnt).values()) == 5

"""Images joined and mixed: what stands at which place, and in which share."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from sorites.core import Generated, Sample
from sorites.core.errors import SoritesError
from sorites.training.captures import Chosen, Joined, mixed
from sorites.training.images import SampleImages


def images(name: str, count: int, value: int = 0) -> SampleImages:
    return SampleImages(
        [
            Sample(f"{name}{i}", Generated(lambda i=i: np.full((2, 2, 3), value + i, np.uint8)), i % 3)
            for i in range(count)
        ]  # type: ignore[misc]
    )


def everything(some: Joined | Chosen) -> list[tuple[str, int, int]]:
    rng = np.random.default_rng(0)
    return [(some.id(i), some.label(i), int(some.image(i, rng)[0, 0, 0])) for i in range(len(some))]


def test_parts_follow_one_another() -> None:
    joined = Joined((images("a", 2), images("b", 0), images("c", 3, 100)))
    assert everything(joined) == [("a0", 0, 0), ("a1", 1, 1), ("c0", 0, 100), ("c1", 1, 101), ("c2", 2, 102)]
    assert len(Joined(())) == 0


def test_half_of_a_mixture_is_made_and_each_made_image_stands_there_once() -> None:
    found = everything(mixed(images("real", 40), images("made", 10, 100)))
    names = Counter(name.rstrip("0123456789") for name, _, _ in found)
    assert names == {"real": 10, "made": 10}
    assert len({name for name, _, _ in found}) == 20
    assert all((value >= 100) == name.startswith("made") for name, _, value in found)


def test_the_real_ones_are_chosen_by_seed_and_repeat_only_where_they_must() -> None:
    chosen = [
        {name for name, _, _ in everything(mixed(images("real", 40), images("made", 10), seed=s))}
        for s in (0, 0, 1)
    ]
    assert chosen[0] == chosen[1] != chosen[2]
    found = Counter(name for name, _, _ in everything(mixed(images("real", 4), images("made", 10))))
    assert sorted(found[f"real{i}"] for i in range(4)) == [2, 2, 3, 3]
    assert len(mixed(images("real", 40), images("made", 10), share=0.25)) == 40


def test_a_mixture_of_one_kind_is_refused() -> None:
    with pytest.raises(SoritesError, match="no generated ones"):
        mixed(images("real", 4), images("made", 0))
    with pytest.raises(SoritesError, match="between 0 and 1, got 1"):
        mixed(images("real", 4), images("made", 4), share=1)

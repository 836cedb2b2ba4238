"""Near and far by name, from the table alone: nothing is fetched."""

from __future__ import annotations

from collections import Counter

import pytest

from sorites.core.errors import SoritesError
from sorites.core.labels import imagenet
from sorites.sources.stamps import group, stamps_ood, table


def test_a_bird_among_birds_is_near_and_a_planet_far() -> None:
    assert group("animals/birds/crow.png", "unknown") == "near"
    assert group("food/vegetables/carrot.png", "unknown") == "near"
    assert group("animals/mammals/deer/doe.png", "unknown") == "near"
    assert group("space/planets/5_jupiter.png", "unknown") == "far"
    assert group("plants/flowers/rose.png", "unknown") in ("near", "far")
    assert group("animals/birds/hen.png", "test") == "id"


def test_all_three_groups_are_large_enough_to_ask() -> None:
    counts = Counter(group(stamp.file, stamp.split) for stamp in table())
    assert min(counts["id"], counts["near"], counts["far"]) >= 30


def test_takes_no_argument() -> None:
    with pytest.raises(SoritesError, match='expected "stamps_ood"'):
        stamps_ood("near", imagenet())

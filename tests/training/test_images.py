from __future__ import annotations

import numpy as np
import pytest

from sorites.core import Generated, Sample
from sorites.core.errors import SoritesError
from sorites.training.images import SampleImages


def samples(*labels: int | None) -> list[Sample]:
    return [
        Sample(f"s{i}", Generated(lambda i=i: np.full((2, 2, 3), i, np.uint8)), label)
        for i, label in enumerate(labels)
    ]  # type: ignore[misc]


def test_images_of_samples_are_found_by_place() -> None:
    images = SampleImages(samples(4, 2))
    assert [len(images), images.id(1), images.label(1)] == [2, "s1", 2]
    assert (images.image(1, np.random.default_rng(0)) == 1).all()


def test_a_sample_without_a_label_is_refused() -> None:
    with pytest.raises(SoritesError, match="s1"):
        SampleImages(samples(4, None))

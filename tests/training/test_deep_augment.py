"""DeepAugment's folders beside the originals: matched by class folder and name, and what is missing
is said.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow

from sorites.core import source
from sorites.core.errors import SoritesError
from sorites.training.captures import deep_augmented
from sorites.training.images import SampleImages


@pytest.fixture
def folders(photos: Path, tmp_path: Path) -> Path:
    """EDSR and CAE with every original inverted or halved, under the originals' class folders and
    names; CAE as PNG.
    """
    for name, suffix in (("EDSR", ".JPEG"), ("CAE", ".png")):
        for file in photos.glob("*/*.png"):
            where = tmp_path / name / file.parent.name
            where.mkdir(parents=True, exist_ok=True)
            pixels = np.asarray(Pillow.open(file))
            made = 255 - pixels if name == "EDSR" else pixels // 2
            Pillow.fromarray(made).save(where / f"{file.stem}{suffix}", format="PNG")
    return tmp_path


def base(photos: Path) -> SampleImages:
    return SampleImages(source(f"folder:{photos}").samples)


def test_originals_are_followed_by_both_folders_with_the_same_labels(photos: Path, folders: Path) -> None:
    plain = base(photos)
    joined, rng = deep_augmented(plain, folders), np.random.default_rng(0)
    assert len(joined) == 60
    assert [joined.id(0), joined.id(20), joined.id(40)] == [
        plain.id(0),
        f"EDSR/{plain.id(0)}",
        f"CAE/{plain.id(0)}",
    ]
    for place in (0, 7, 19):
        original = plain.image(place, rng)
        np.testing.assert_array_equal(joined.image(20 + place, rng), 255 - original)
        np.testing.assert_array_equal(joined.image(40 + place, rng), original // 2)
        assert joined.label(20 + place) == joined.label(40 + place) == plain.label(place)


def test_missing_images_are_counted_and_said(photos: Path, folders: Path) -> None:
    for file in sorted((folders / "CAE").glob("*/*.png"))[:3]:
        file.unlink()
    with pytest.warns(UserWarning, match="first n01440764/p00.png"):
        assert len(deep_augmented(base(photos), folders)) == 57


def test_a_folder_that_is_absent_or_of_other_images_is_refused(
    photos: Path, folders: Path, tmp_path: Path
) -> None:
    with pytest.raises(SoritesError, match="NOISE_distort_imagenet.py"):
        deep_augmented(base(photos), folders, ["NOISE"])
    (tmp_path / "OTHER" / "n1").mkdir(parents=True)
    with pytest.raises(
        SoritesError,
        match="of the 20 originals",
    ):
        deep_augmented(base(photos), folders, ["OTHER"])

"""How real generated images are: distances on named features and accuracy at severity 0."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sorites.apps.generation.check import check_realism, images_in, plain_features
from sorites.apps.generation.images import make_images
from sorites.core.errors import SoritesError
from sorites.core.samples import to_uint8
from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.shelves import Shelf
from sorites.diffusion.toy.world import SHAPES, draw
from sorites.measures.distributions import frechet

from .conftest import FEW


def _real(folder: Path, style: str, seed: int, count: int = 16) -> Path:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    for place in range(count):
        Image.fromarray(to_uint8(draw(SHAPES[place % 4], style, rng))).save(folder / f"{place:02d}.png")
    return folder


def test_images_like_the_real_ones_are_nearer(tmp_path: Path) -> None:
    real, alike, snowy = (_real(tmp_path / name, style, seed) for name, style, seed in
                          (("real", "plain", 0), ("alike", "plain", 1), ("snowy", "snow", 2)))  # fmt: skip
    found = check_realism(alike, snowy, real, "toy:all")
    assert found is not None
    assert found["number"].to_list() == ["frechet [toy:all]", "kernel [toy:all]"] * 2
    near, far = (found.filter(images=str(folder)) for folder in (alike, snowy))
    assert (near["value"] < far["value"]).all()
    assert (found["low"] < found["value"]).all()
    assert (found["value"] < found["high"]).all()
    assert found["n"].to_list() == [16] * 4
    own = frechet(*(plain_features(folder, images_in(folder), "toy:all") for folder in (alike, real)))
    assert near["value"][0] == pytest.approx(own)


@pytest.mark.slow
def test_accuracy_is_asked_at_severity_0_once_per_image(tiny: Pipe, sliders: Shelf, tmp_path: Path) -> None:
    make_images(tiny, sliders, (0.0, 1.0), (1, 2), tmp_path, FEW, "png")
    assert len(images_in(tmp_path)) == 2 * 2, "two classes, two seeds; the shifts share them"
    found = check_realism(tmp_path, model="toy:all")
    assert found is not None
    row = found.row(0, named=True)
    assert (row["number"], row["n"]) == ("accuracy [toy:all]", 4)
    assert 0 <= row["low"] <= row["value"] <= row["high"] <= 1


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="real=DIR"):
        check_realism(tmp_path, features="toy:all")
    with pytest.raises(SoritesError, match="no images found"):
        check_realism(tmp_path, real=tmp_path, features="toy:all")
    with pytest.raises(SoritesError, match="names the classes"):
        check_realism(tmp_path, model="toy:all")
    assert check_realism(tmp_path) is None

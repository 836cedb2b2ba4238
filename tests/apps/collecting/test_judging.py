"""Hashes against the package imagehash, drawings told from photographs, and near duplicates."""

from __future__ import annotations

import imagehash
import numpy as np
import pytest
from PIL import Image
from tests.conftest import scene

from sorites.apps.collecting.judging import Hashes, is_drawn, perceptual_hash


@pytest.mark.parametrize("seed", range(40))
def test_peer(seed: int) -> None:
    """Every bit is that of imagehash's pHash."""
    image = scene(seed, 60 + 7 * seed, 91 + 5 * seed)
    assert f"{perceptual_hash(image):016x}" == str(imagehash.phash(Image.fromarray(image)))


def test_scaled_and_compressed() -> None:
    """A copy of half the size differs by few bits, another image by many."""
    hashes = [perceptual_hash(scene(seed, 240, 320)) for seed in range(12)]
    half = [
        perceptual_hash(np.asarray(Image.fromarray(scene(seed, 240, 320)).resize((160, 120))))
        for seed in range(12)
    ]
    same = [(a ^ b).bit_count() for a, b in zip(hashes, half, strict=True)]
    other = [(a ^ b).bit_count() for i, a in enumerate(hashes) for b in hashes[:i]]
    assert max(same) <= 4 < np.median(other)


def test_drawn() -> None:
    """A chart is drawn; a photograph is not, however dark, foggy or grey it is."""
    chart = np.full((300, 400, 3), 255, np.uint8)
    chart[50:250, 60:120] = (200, 30, 30)
    assert is_drawn(chart)
    rng = np.random.default_rng(0)
    dark = np.clip(rng.normal(6, 3, (300, 400, 3)), 0, 255).astype(np.uint8)
    foggy = np.clip(scene(1, 300, 400) * 0.1 + 190 + rng.normal(0, 1.5, (300, 400, 3)), 0, 255).astype(
        np.uint8
    )
    for image in (scene(2, 300, 400), dark, foggy, np.repeat(scene(3, 300, 400)[..., :1], 3, axis=2)):
        assert not is_drawn(image)


def test_near() -> None:
    """The register of hashes equals a comparison one by one, while images come and go."""
    rng = np.random.default_rng(5)
    kept: dict[str, int] = {}
    hashes = Hashes()
    for step in range(400):
        value = (
            int(rng.integers(0, 2**63))
            if step % 3 or not kept
            else next(iter(kept.values())) ^ (1 << step % 60)
        )
        kept[str(step)] = value
        hashes.add(str(step), value)
        if step % 5 == 4:
            gone = list(kept)[int(rng.integers(len(kept)))]
            hashes.remove(gone)
            del kept[gone]
        wanted = {key for key, other in kept.items() if (other ^ value).bit_count() <= 4}
        assert set(hashes.near(value, 4)) == wanted

"""Each framed image is decoded once, however many workers ask for it at the same time."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import sorites
from sorites.core import Generated, ImageU8, Model, Outputs, Sample, Source
from sorites.core.errors import BadImage
from sorites.core.packed import as_packed
from sorites.evaluation.samples import CleanImages
from sorites.suites.suite import Suite, parse

SIDE = 16
BYTES = SIDE * SIDE * 3


class Decoder:
    """Counts how often each image is decoded."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self._lock = threading.Lock()

    def decode(self, number: int) -> ImageU8:
        with self._lock:
            self.counts[number] += 1
        time.sleep(0.002)
        if number == 99:
            raise BadImage("broken")
        return np.full((SIDE + 4, SIDE + 4, 3), number, np.uint8)

    def source(self, count: int) -> Source:
        return Source("counted", [Sample(f"s{i}", Generated(self.decode, (i,)), i % 2) for i in range(count)])


def suite() -> Suite:
    frame = {"resize": SIDE, "crop": SIDE}
    shifts = ["contrast", "brightness", "gaussian_noise"]
    return parse({"name": "t", "shifts": shifts, "labels": ["a", "b"], "frame": frame}, "test")


@pytest.mark.parametrize("workers", [2, 16])
def test_a_run_decodes_every_image_once(workers: int, tmp_path: Path) -> None:
    decoder = Decoder()
    fast = Model("fast", lambda images: Outputs(np.zeros((len(images), 2), np.float32)))
    sorites.run(
        suite(),
        source=decoder.source(48),
        models=[fast],
        engine="local",
        workers=workers,
        out=tmp_path / "run",
    )
    assert len(decoder.counts) == 48
    assert set(decoder.counts.values()) == {1}


def clean(decoder: Decoder, count: int, kept: int) -> CleanImages:
    return CleanImages(suite(), as_packed(decoder.source(count).samples), kept)


def test_threads_share_one_decode() -> None:
    decoder = Decoder()
    images = clean(decoder, 8, 8 * BYTES)
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(images, [f"s{i}" for i in range(8)] * 16))
    assert set(decoder.counts.values()) == {1}
    assert [int(image[0, 0, 0]) for image in found] == list(range(8)) * 16


def test_the_oldest_images_make_room() -> None:
    decoder = Decoder()
    images = clean(decoder, 4, 2 * BYTES)
    for name in ("s0", "s1", "s0", "s2", "s0", "s1"):
        images(name)
    assert decoder.counts == {0: 1, 1: 2, 2: 1}
    nothing_kept = clean(decoder, 4, 0)
    assert nothing_kept("s3").shape == nothing_kept("s3").shape == (SIDE, SIDE, 3)
    assert decoder.counts[3] == 2


def test_a_failure_reaches_everyone_who_waits_and_is_tried_again() -> None:
    decoder = Decoder()
    images = CleanImages(suite(), as_packed([Sample("bad", Generated(decoder.decode, (99,)), 0)]), 8 * BYTES)

    def ask(_: int) -> str:
        with pytest.raises(BadImage) as caught:
            images("bad")
        return str(caught.value)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(ask, range(8))) == {"broken"}
    before = decoder.counts[99]
    ask(0)
    assert decoder.counts[99] == before + 1

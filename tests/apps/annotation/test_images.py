"""Which images are shown: those of a source, or the very images of a run; and what the page gets
of them.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image as Pillow
from tests.conftest import CLASSES, scene

from sorites.apps.annotation.images import Album, Entry, encoded, from_run, from_source, read_list
from sorites.core import Model
from sorites.core.errors import BadImage, SoritesError
from sorites.core.table import read
from sorites.evaluation.run import run
from sorites.suites.suite import parse


@pytest.fixture(scope="module")
def folder(photos: Path, tiny: Callable[..., Model], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run")
    shifts = [{"name": "aperture", "severities": [4, 8]}]
    suite = {
        "name": "small",
        "source": f"folder:{photos}",
        "labels": list(CLASSES),
        "frame": {"resize": 64},
        "limit": 3,
    }
    run(parse({**suite, "shifts": shifts}, "small"), models=[tiny()], out=out)
    return out


def test_images_of_a_source_have_their_class_in_words(photos: Path) -> None:
    found = from_source(f"folder:{photos}")
    assert len(found) == 20
    assert {entry.shown_class for entry in found} == {"tench", "goldfish", "great white shark", "tiger shark"}
    assert [entry.name for entry in found] == [entry.name for entry in from_source(f"folder:{photos}")]


def test_classes_of_ones_own_keep_their_names(tmp_path: Path) -> None:
    (tmp_path / "my object").mkdir()
    Pillow.fromarray(scene(0)).save(tmp_path / "my object" / "a.png")
    assert from_source(f"folder:{tmp_path}")[0].shown_class == "my object"


def test_images_of_a_run_are_those_that_its_models_saw(folder: Path) -> None:
    table = read(folder).select("image_id", "shift", "severity").unique().collect()
    shifted = table.filter(pl.col("shift") != "clean")
    found = {entry.image_id: entry for entry in from_run(folder)}
    assert set(found) == set(shifted["image_id"])
    for row in shifted.iter_rows(named=True):
        assert (found[row["image_id"]].shift, found[row["image_id"]].severity) == (
            row["shift"],
            row["severity"],
        )
    images = [entry.load() for entry in found.values()]
    assert all(image.shape[2] == 3 and min(image.shape[:2]) == 64 for image in images)
    assert len({image.tobytes() for image in images}) == 6


def test_a_list_chooses_images_clean_ones_too(folder: Path, tmp_path: Path) -> None:
    table = read(folder).select("image_id", "shift").unique("image_id").collect()
    chosen = [table.filter(pl.col("shift") == shift)["image_id"][0] for shift in ("clean", "aperture")]
    pl.DataFrame({"image_id": chosen}).write_csv(tmp_path / "only.csv")
    assert {entry.image_id for entry in from_run(folder, read_list(tmp_path / "only.csv"))} == set(chosen)
    pl.DataFrame({"other": [1]}).write_csv(tmp_path / "wrong.csv")
    with pytest.raises(SoritesError, match="the column image_id or image"):
        read_list(tmp_path / "wrong.csv")


def test_small_images_are_shown_without_loss_and_large_ones_smaller_with_their_true_size() -> None:
    small = encoded(scene(1))
    assert small.kind == "image/png"
    assert np.array_equal(np.asarray(Pillow.open(io.BytesIO(small.data))), scene(1))
    large = encoded(np.zeros((3000, 4000, 3), np.uint8))
    assert (large.kind, large.width, large.height) == ("image/jpeg", 4000, 3000)
    assert Pillow.open(io.BytesIO(large.data)).size == (2048, 1536)


def test_an_album_keeps_what_was_asked_for_last_and_says_what_it_has_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []

    def load(i: int) -> np.ndarray:
        made.append(i)
        return scene(i)

    monkeypatch.setattr("sorites.apps.annotation.images.MAX_CACHE_BYTES", len(encoded(scene(0)).data) * 2)
    album = Album([Entry(str(i), str(i), lambda i=i: load(i)) for i in range(4)])  # type: ignore[misc]
    for i in (0, 0, 1, 2, 3, 0):
        album.shown(str(i))
    assert made == [0, 1, 2, 3, 0]
    with pytest.raises(BadImage, match="no image"):
        album.shown("elsewhere")

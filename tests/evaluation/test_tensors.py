"""Kept outputs of models that are damaged: named, set aside, and made again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

import sorites
from sorites.analysis.features import read_features
from sorites.core import Model
from sorites.core.errors import Damaged, Notice, SoritesError
from sorites.evaluation.fit import kept_slices
from sorites.evaluation.integrity.check import check
from sorites.evaluation.rescore import score
from sorites.evaluation.storage.tensors import read_head_file, read_tensors, write_tensors
from sorites.suites.suite import parse

SUITE = parse({"name": "s", "shifts": ["contrast"], "frame": {"resize": 40}, "limit": 4}, "test")
HALF = save({"features": np.zeros((2, 3), np.float32)}, metadata={"image_id": '["a"]'})


@pytest.fixture
def run(photos: Path, tiny: Callable[..., Model], tmp_path: Path) -> Callable[[], Path]:
    def go() -> Path:
        where = f"folder:{photos}"
        with pytest.warns(Notice, match="20 training images are also in the test set"):
            sorites.run(
                SUITE,
                source=where,
                fit=where,
                scorers=["knn(k=2)"],
                models=[tiny()],
                out=tmp_path,
                keep_features=True,
            )
        return tmp_path

    return go


def content(path: Path) -> list[object]:
    about, arrays = read_tensors(path, ())
    return [about, {name: array.tolist() for name, array in arrays.items()}]


@pytest.mark.parametrize("data", [b"", b"x" * 100, save({"features": np.zeros((2, 3), np.float32)}), HALF])
def test_damaged_features_are_named_wherever_they_are_read(run: Callable[[], Path], data: bytes) -> None:
    folder = run()
    path = min((folder / "features").iterdir())
    path.write_bytes(data)
    for read in (
        lambda: read_features(folder, "tiny", ["a"]),
        lambda: score(folder, ["energy"]),
        lambda: check(str(folder)),
    ):
        with pytest.raises(SoritesError, match=rf"{path.name} cannot be read: (.|\n)*Type: .*repair=True"):
            read()


@pytest.mark.parametrize("room", ["features", "fits", "heads"])
def test_what_was_set_aside_is_made_again(run: Callable[[], Path], room: str) -> None:
    folder = run()
    if room == "heads":
        write_tensors(folder / "heads", "tiny", {"weight": np.zeros(2), "bias": np.zeros(2)})
    paths = sorted((folder / room).glob("*.safetensors"))
    whole = content(paths[0]) if room != "heads" else []
    paths[0].write_bytes(b"half")
    with pytest.raises(SoritesError, match=f"{paths[0].name} cannot be read"):
        check(str(folder))
    check(str(folder), repair=True)
    assert (folder / "damaged" / room / paths[0].name).read_bytes() == b"half"
    run()
    assert "complete" in check(str(folder))
    if room != "heads":  # this model has no last layer to keep
        assert content(paths[0]) == whole
        assert sorted((folder / room).glob("*.safetensors")) == paths


def test_scorers_are_not_fitted_on_what_is_left_of_the_training_images(run: Callable[[], Path]) -> None:
    folder = run()
    first = next((folder / "fits").glob("fit-*.safetensors"))
    about, arrays = read_tensors(first, ())
    write_tensors(folder / "fits", "fit-0000256--tiny", arrays, **about)
    with pytest.raises(SoritesError, match="lacks the fit images from 128"):
        kept_slices(folder, "tiny")


def test_a_head_without_its_parts_is_named(tmp_path: Path) -> None:
    path = write_tensors(tmp_path / "heads", "m", {"weight": np.zeros((2, 3), np.float32)})
    with pytest.raises(Damaged, match="no weight and bias"):
        read_head_file(path)
    assert read_tensors(path, ())[1].keys() == {"weight"}

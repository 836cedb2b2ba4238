"""Images in rows of parquet files, in the layout of the Hugging Face hub."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image

from sorites import core
from sorites.core import packed
from sorites.core.errors import BadImage, SoritesError
from sorites.core.labels import Labels
from sorites.core.packed import PackedSamples

SPACE = Labels(("cat", "dog"), ("cat", "dog"))


def image(value: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 3), (value,) * 3).save(buffer, "PNG")
    return buffer.getvalue()


def write(path: Path, labels: list[Any], column: str = "label", struct: bool = True) -> Path:
    held: list[Any] = [image(i) for i in range(len(labels))]
    images = [{"bytes": data, "path": None} for data in held] if struct else held
    pl.DataFrame({"image": images, column: labels}).write_parquet(path)
    return path


@pytest.mark.parametrize("struct", [True, False])
def test_a_row_is_a_sample_with_its_bytes_and_label(tmp_path: Path, struct: bool) -> None:
    write(tmp_path / "a.parquet", ["cat", "dog", None, "dog"], struct=struct)
    found = core.source(f"parquet:{tmp_path}", SPACE)
    assert [(sample.id, sample.label) for sample in found] == [
        ("a.parquet/0000000", 0), ("a.parquet/0000001", 1), ("a.parquet/0000002", None), ("a.parquet/0000003", 1),
    ]  # fmt: skip
    assert [int(sample.load()[0, 0, 0]) for sample in found] == [0, 1, 2, 3]


def test_positions_count_in_the_suites_labels_and_minus_one_is_none(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [1, -1, 0], column="target")
    found = core.source(f"parquet:{tmp_path}/a.parquet?label=target", SPACE)
    assert [sample.label for sample in found] == [1, None, 0]


def test_many_rows_are_columns_and_the_same_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.parquet", ["cat", "dog", None] * 3)
    write(tmp_path / "b.parquet", ["dog"] * 2)
    few = core.source(f"parquet:{tmp_path}", SPACE)
    monkeypatch.setattr(packed, "SAMPLES_PER_BLOCK", 4)
    many = core.source(f"parquet:{tmp_path}", SPACE)
    assert (isinstance(few.samples, PackedSamples), isinstance(many.samples, PackedSamples)) == (False, True)
    assert [(sample.id, sample.label) for sample in few] == [(sample.id, sample.label) for sample in many]
    assert all(np.array_equal(one.load(), other.load()) for one, other in zip(few, many, strict=True))


def test_mistakes_are_reported(tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="parquet files"):
        core.source(f"parquet:{tmp_path}/none-*.parquet", SPACE)
    write(tmp_path / "a.parquet", ["cat", "cow"])
    with pytest.raises(SoritesError, match=r"a\.parquet: .*cow"):
        core.source(f"parquet:{tmp_path}", SPACE)
    with pytest.raises(SoritesError, match="column other; it has image"):
        core.source(f"parquet:{tmp_path}?label=other", SPACE)
    pl.DataFrame({"image": [b"no image", None]}).write_parquet(tmp_path / "a.parquet")
    for sample in core.source(f"parquet:{tmp_path}", SPACE):
        with pytest.raises(BadImage, match=r"a\.parquet/000000"):
            sample.load()

"""Croissant metadata of written datasets, validated and read by mlcroissant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image
from tests.peers import peer

from sorites.datasets import croissant
from sorites.datasets.build import build

slow = pytest.mark.slow
# Of rdflib and pandas, which mlcroissant uses.
pytestmark = pytest.mark.filterwarnings("ignore")


def validated(folder: Path) -> Any:
    """Return the dataset that mlcroissant reads from a folder; it raises an error for anything invalid."""
    mlcroissant = peer("mlcroissant")
    found = mlcroissant.Dataset(jsonld=folder / croissant.NAME)
    assert not found.metadata.ctx.issues.errors
    return found


def rows(dataset: Any) -> list[dict[str, Any]]:
    return [
        {key.removeprefix("rows/"): value for key, value in row.items()} for row in dataset.records("rows")
    ]


@pytest.fixture
def built(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name in ("disc", "cross"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.fromarray(rng.integers(0, 256, (24, 24, 3), np.uint8)).save(
            tmp_path / "photos" / name / "a.png"
        )
    build(
        "demo", tmp_path / "out", source=f"folder:{tmp_path / 'photos'}", labels=("disc", "cross"),
        shifts=("defocus_disk",), levels=(1, 3),
    )  # fmt: skip
    return tmp_path / "out"


def test_metadata_describe_the_table_and_the_images(built: Path) -> None:
    found = json.loads((built / croissant.NAME).read_text())
    table = pl.read_parquet(built / "sorites.parquet")
    assert found["conformsTo"] == croissant.CONFORMS_TO
    scalars = {name for name, kind in table.schema.items() if not kind.is_nested()}
    assert {field["name"] for field in found["recordSet"][0]["field"]} == scalars
    includes = found["distribution"][1]["includes"]
    matched = {
        path.relative_to(built).as_posix()
        for pattern in ([includes] if isinstance(includes, str) else includes)
        for path in built.glob(pattern)
    }
    assert matched == set(table["path"])
    assert str(built.parent) not in (built / croissant.NAME).read_text(), "no path of this machine"


@slow
def test_mlcroissant_reads_a_built_dataset(built: Path) -> None:
    table = pl.read_parquet(built / "sorites.parquet")
    found = rows(validated(built))
    assert len(found) == table.height
    for name in ("path", "shift", "label"):
        assert [_text(row[name]) for row in found] == table[name].to_list()


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


@slow
def test_a_changed_table_is_noticed(built: Path) -> None:
    """mlcroissant compares the digest of the table before it reads it."""
    dataset = validated(built)
    (built / "sorites.parquet").write_bytes(b"something else")
    with pytest.raises(Exception, match=r"Download\(table\)"):
        rows(dataset)

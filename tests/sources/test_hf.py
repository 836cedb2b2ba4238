"""Folders of Hugging Face datasets: written by polars here, and by the real library in the slow tests."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

import sorites
from sorites.core.errors import SoritesError
from sorites.core.labels import labels

NAMES = ("apple", "pear", "plum")
PEERS = "needs: pip install 'sorites[peers]'"


def image(i: int) -> np.ndarray:
    return np.random.default_rng(i).integers(0, 256, (12, 16 + i, 3), np.uint8)


def png(i: int, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image(i)).save(folder / f"{i}.png")
    return folder / f"{i}.png"


def saved(folder: Path, rows: int = 2) -> Path:
    """Write the layout of ``save_to_disk`` with polars."""
    cells = [{"bytes": png(i, folder).read_bytes(), "path": f"{i}.png"} for i in range(rows)]
    table = pl.DataFrame({"note": ["a"] * rows, "image": cells, "label": [i % 2 for i in range(rows)]})
    table.write_ipc_stream(folder / "data-00000-of-00001.arrow", compat_level=pl.CompatLevel.oldest())
    features = {
        "note": {"dtype": "string", "_type": "Value"},
        "image": {"_type": "Image"},
        "label": {"names": ["n02123045", "n02085620"], "_type": "ClassLabel"},
    }
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))
    (folder / "state.json").write_text(
        json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_split": None})
    )
    return folder


def test_an_arrow_file_of_another_writer(tmp_path: Path) -> None:
    source = sorites.source(f"hf:{saved(tmp_path, 5)}?attrs=note")
    assert [sample.label for sample in source] == [281, 151, 281, 151, 281]
    assert [sample.attrs[0].value for sample in source] == ["a"] * 5
    for i, sample in enumerate(source):
        assert np.array_equal(sample.load(), image(i))


def test_a_damaged_arrow_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    file = saved(tmp_path) / "data-00000-of-00001.arrow"
    data = file.read_bytes()
    rng = np.random.default_rng(0)
    for cut in (4, 100, len(data) // 2, len(data) - 9):
        file.write_bytes(data[:cut])
        with pytest.raises(SoritesError, match="arrow"):
            sorites.source(f"hf:{tmp_path}")
    # Bytes that were flipped give an error or samples, never anything else.
    for _ in range(100):
        bad = bytearray(data)
        for place in rng.integers(0, 700, 3):
            bad[place] ^= 1 << int(rng.integers(8))
        file.write_bytes(bytes(bad))
        with contextlib.suppress(SoritesError):
            sorites.source(f"hf:{tmp_path}")


def test_an_image_folder_with_metadata(tmp_path: Path) -> None:
    for split, rows in (("train", (0, 1)), ("test", (2,))):
        listed = [
            {"file_name": png(i, tmp_path / split).name, "label": NAMES[i], "weather": "fog"} for i in rows
        ]
        (tmp_path / split / "metadata.jsonl").write_text("\n".join(map(json.dumps, listed)))
    space = labels(NAMES)
    with pytest.raises(SoritesError, match="split=test"):
        sorites.source(f"hf:{tmp_path}", space)
    (only,) = sorites.source(f"hf:{tmp_path}?split=test&attrs=weather", space)
    assert (only.id, only.label, only.split, only.attrs[0].value) == ("test/2.png", 2, "test", "fog")
    assert len(sorites.source(f"hf:{tmp_path}?split=train", space)) == 2


def test_an_image_folder_with_metadata_in_parquet(tmp_path: Path) -> None:
    rows = [{"file_name": png(i, tmp_path).name, "label": NAMES[i]} for i in range(3)]
    pl.DataFrame(rows).write_parquet(tmp_path / "metadata.parquet")
    source = sorites.source(f"hf:{tmp_path}", labels(NAMES))
    assert [(sample.id, sample.label) for sample in source] == [("0.png", 0), ("1.png", 1), ("2.png", 2)]


def test_parquet_with_paths(tmp_path: Path) -> None:
    cells = [
        {"bytes": None, "path": str(png(i, tmp_path / "images").relative_to(tmp_path))} for i in range(3)
    ]
    schema = {"image": pl.Struct({"bytes": pl.Binary, "path": pl.String}), "label": pl.Int64}
    (tmp_path / "data").mkdir()
    frame = pl.DataFrame({"image": cells, "label": [0, 1, 2]}, schema=schema)
    frame.write_parquet(tmp_path / "data" / "test-00000-of-00001.parquet")
    source = sorites.source(f"hf:{tmp_path}", labels(NAMES))
    assert [sample.label for sample in source] == [0, 1, 2]
    assert all(np.array_equal(sample.load(), image(i)) for i, sample in enumerate(source))


def test_paths_relative_to_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``Dataset.to_parquet`` writes paths as they were given, and ``datasets`` opens them from there."""
    monkeypatch.chdir(tmp_path)
    png(1, tmp_path / "images")
    cells = [{"bytes": None, "path": "images/1.png"}]
    schema = {"image": pl.Struct({"bytes": pl.Binary, "path": pl.String}), "label": pl.Int64}
    (tmp_path / "saved" / "data").mkdir(parents=True)
    pl.DataFrame({"image": cells, "label": [1]}, schema=schema).write_parquet("saved/data/test.parquet")
    (sample,) = sorites.source("hf:saved", labels(NAMES))
    assert np.array_equal(sample.load(), image(1))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of the library
def test_folders_of_the_real_library(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason=PEERS)
    datasets.disable_progress_bars()
    files = [str(png(i, tmp_path / "images")) for i in range(7)]
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "tags": datasets.Sequence(datasets.Value("string")),
            "kind": datasets.ClassLabel(names=list(NAMES)),
        }
    )
    rows = {"image": files, "tags": [["a", "b"]] * 7, "kind": [i % 3 for i in range(7)]}
    whole = datasets.Dataset.from_dict(rows, features=features)
    split = datasets.DatasetDict({"train": whole.select(range(5)), "test": whole.select([5, 6])})
    split.save_to_disk(str(tmp_path / "dict"), max_shard_size=400)
    whole.save_to_disk(str(tmp_path / "one"))
    joined = datasets.concatenate_datasets([whole.select(range(3)), whole.select(range(3, 7))])
    joined.save_to_disk(str(tmp_path / "batches"), num_shards=2)
    (tmp_path / "hub" / "data").mkdir(parents=True)
    whole.to_parquet(str(tmp_path / "hub" / "data" / "train-00000-of-00001.parquet"))
    space = labels(NAMES)
    for name, order in (
        ("one", range(7)),
        ("batches", range(7)),
        ("hub", range(7)),
        ("dict?split=test", (5, 6)),
    ):
        ours = (
            sorites.source(f"hf:{tmp_path / name}", space)
            if name != "hub"
            else sorites.source(f"hf:{tmp_path / name}?label=kind", space)
        )
        assert [sample.label for sample in ours] == [i % 3 for i in order], name
        assert all(np.array_equal(sample.load(), image(i)) for i, sample in zip(order, ours, strict=True)), (
            name
        )

    listed = [{"file_name": f"{i}.png", "label": NAMES[i % 3]} for i in range(7)]
    (tmp_path / "images" / "metadata.jsonl").write_text("\n".join(map(json.dumps, listed)))
    theirs = datasets.load_dataset(
        "imagefolder", data_dir=str(tmp_path / "images"), cache_dir=str(tmp_path / "cache")
    )["train"]
    ours = sorites.source(f"hf:{tmp_path / 'images'}", space)
    found = {sample.id: (sample.load().tobytes(), NAMES[sample.label or 0]) for sample in ours}
    expected = {
        Path(row["image"].filename).name: (np.asarray(row["image"]).tobytes(), row["label"]) for row in theirs
    }
    assert found == expected

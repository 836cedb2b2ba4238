"""Images that a CSV file lists."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow

import sorites
from sorites.core import source
from sorites.core.errors import Notice, SoritesError
from sorites.core.labels import Labels

CLASSES = Labels(("cat", "dog"), ("cat", "dog"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    for i in range(3):
        Pillow.fromarray(np.full((20, 30, 3), 60 * i, np.uint8)).save(tmp_path / f"images/{i}.png")
    return tmp_path


def listed(folder: Path, text: str) -> str:
    (folder / "list.csv").write_text(text)
    return f"csv:{folder / 'list.csv'}"


def test_paths_labels_splits_and_attributes(folder: Path) -> None:
    text = f"path,class,split,weather\nimages/0.png,cat,val,snow\n{folder}/images/1.png,1,val,\nimages/2.png,,train,fog\n"
    samples = list(source(listed(folder, text) + "?attrs=weather", labels=CLASSES))
    assert [one.label for one in samples] == [0, 1, None]
    assert [one.split for one in samples] == ["val", "val", "train"]
    assert [[(a.key, a.value) for a in one.attrs] for one in samples] == [
        [("weather", "snow")],
        [],
        [("weather", "fog")],
    ]
    assert [int(one.load().max()) for one in samples] == [0, 60, 120]
    assert [one.id for one in source(listed(folder, text) + "?split=train", labels=CLASSES)] == [
        "images/2.png"
    ]


def test_columns_can_be_named(folder: Path) -> None:
    spec = listed(folder, "where,animal,label\nimages/0.png,dog,7\n") + "?image=where&label=animal"
    assert [one.label for one in source(spec, labels=CLASSES)] == [1]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_separators_and_capitals_do_not_matter(folder: Path, separator: str) -> None:
    rows = [("Path", " Label "), ("images/0.png", "dog"), ("images/1.png", "cat")]
    spec = listed(folder, "\n".join(separator.join(row) for row in rows))
    assert [one.label for one in source(spec, labels=CLASSES)] == [1, 0]


def test_columns_that_could_be_labels_are_told(folder: Path) -> None:
    with pytest.warns(Notice) as told:
        (sample,) = source(listed(folder, "file,animal,split\nimages/0.png,dog,val\n"), labels=CLASSES)
    assert sample.label is None
    fields = [notice.message.fields for notice in told if isinstance(notice.message, Notice)]
    assert fields == [{"columns": ["animal"]}]
    (sample,) = source(listed(folder, "file\nimages/0.png\n"), labels=CLASSES)
    assert sample.label is None


@pytest.mark.parametrize(
    ("text", "query", "words"),
    [
        ("where,label\nimages/0.png,cat\n", "", "where"),
        ("image,label\nimages/0.png,cat\n", "?label=class", "class"),
        ("image,label\nimages/0.png,horse\n", "", "horse"),
        ("image,label\nimages/0.png,cat\nimages/0.png,dog\n", "", "images/0.png"),
        ("image,label\nnone.png,cat\n", "", "none.png"),
        ("image,label\nimages/0.png,cat\n,dog\n", "", "row 3"),
        ("image,split\nimages/0.png,val\n", "?split=test", "val"),
        ("image,label\n", "", "no images"),
    ],
)
def test_mistakes_are_named(folder: Path, text: str, query: str, words: str) -> None:
    with pytest.raises(SoritesError, match=words):
        list(source(listed(folder, text) + query, labels=CLASSES))


def test_a_missing_file_is_an_error_row(folder: Path) -> None:
    (folder / "names.txt").write_text("cat\ndog\n")

    def predict(images: list[np.ndarray]) -> np.ndarray:
        return np.array([[float(image.mean()), 60.0] for image in images], np.float32)

    predict.sorites = {"version": "1"}  # type: ignore[attr-defined]
    spec = listed(folder, "image,label\nimages/0.png,dog\nimages/2.png,cat\nimages/9.png,cat\n")
    run = sorites.run(
        "demo", source=spec, models={"m": predict}, labels=folder / "names.txt", shifts=["brightness"], levels=[1],
        out=folder / "run",
    )  # fmt: skip
    clean = run.collect().filter(shift="clean").sort("sample_id")
    assert clean["correct"].to_list() == [True, True, None]
    assert clean["error"].is_null().to_list() == [True, True, False]


def test_similar_class_names_are_shown(tmp_path: Path) -> None:
    Pillow.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "list.csv").write_text("image,label\na.png,Tabbies\n")
    with pytest.warns(Notice, match="'Tabbies' as tabby") as noted:
        (sample,) = sorites.source(f"csv:{tmp_path / 'list.csv'}")
    assert sample.label == 281
    assert noted[0].message.code == "similar_classes"  # type: ignore[union-attr]
    (tmp_path / "list.csv").write_text("image,label\na.png,taby\n")
    with pytest.raises(SoritesError, match="no class named 'taby'. Did you mean tabby"):
        sorites.source(f"csv:{tmp_path / 'list.csv'}")

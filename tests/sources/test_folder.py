"""The ways people lay images out in folders."""

from __future__ import annotations

import os
import pickle
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sorites import core
from sorites.core.errors import BadImage, SoritesError
from sorites.core.labels import imagenet, labels
from sorites.io.paths import following_links
from sorites.sources.folder import folder

TABBY = 281


def put(root: Path, *names: str, value: int = 100) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (3, 2), (value, value, value)).save(path, "PNG")
    return root


def found(root: Path) -> dict[str, int | None]:
    return {sample.id: sample.label for sample in folder(str(root), imagenet())}


@pytest.mark.parametrize(
    "name",
    [
        "n02123045",
        "n02123045_tabby",
        "281",
        "0281",
        "281_tabby",
        "281-tabby",
        "tabby",
        "Tabby cat",
        "tabby_cat",
    ],
)
def test_a_class_folder_by_any_name(tmp_path: Path, name: str) -> None:
    assert found(put(tmp_path, f"{name}/a.png")) == {f"{name}/a.png": TABBY}


def test_deeper_images_belongs_to_the_class(tmp_path: Path) -> None:
    put(tmp_path, "tabby/2019/may/a.png", "goldfish/b.JPEG")
    assert found(tmp_path) == {"goldfish/b.JPEG": 1, "tabby/2019/may/a.png": TABBY}


@pytest.mark.parametrize(
    "name",
    [
        "n02123045_tabby",
        "n02123045_123",
        "n02123045",
        "ILSVRC2012_val_00000001_n02123045",
        "n02123045_9_n02123045",
    ],
)
def test_a_flat_folder_by_wordnet_id(tmp_path: Path, name: str) -> None:
    assert found(put(tmp_path, f"{name}.JPEG")) == {f"{name}.JPEG": TABBY}


def test_a_flat_folder_without_classes_is_unlabelled(tmp_path: Path) -> None:
    put(tmp_path, "b.png", "holiday 281.jpg", "ILSVRC2012_val_00000001.JPEG", "n0212304.png")
    assert set(found(tmp_path).values()) == {None}


def test_own_classes(tmp_path: Path) -> None:
    put(tmp_path, "good part/a.png", "scratched/b.png")
    samples = folder(str(tmp_path), labels(["good_part", "scratched"]))
    assert [sample.label for sample in samples] == [0, 1]


def test_order_is_by_id_and_samples_load(tmp_path: Path) -> None:
    put(tmp_path, "tabby/b.png", "tabby/a.png", "tabby/B.PNG", "goldfish/z.png")
    samples = folder(str(tmp_path), imagenet())
    assert [s.id for s in samples] == ["goldfish/z.png", "tabby/B.PNG", "tabby/a.png", "tabby/b.png"]
    assert np.array_equal(samples[0].load(), np.full((2, 3, 3), 100, np.uint8))
    assert pickle.loads(pickle.dumps(samples[0])).load().shape == (2, 3, 3)
    assert [s.id for s in core.source(f"folder:{tmp_path}")] == [s.id for s in samples]


def test_other_files_are_skipped(tmp_path: Path) -> None:
    put(tmp_path, "tabby/a.png", ".hidden/b.png", "tabby/.c.png", "__MACOSX/tabby/._a.png")
    for name in ("notes.txt", "labels.csv", "README.md", "tabby/a.json", "docs/index.html"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    assert list(found(tmp_path)) == ["tabby/a.png"]


def test_an_unknown_class_folder_names_the_nearest_and_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="'goldfih'.*goldfish.*labels"):
        found(put(tmp_path, "goldfih/a.png"))


@pytest.mark.parametrize("name", ["n00000001/a.png", "n00000001_x.png", "1000/a.png", "2000_cat/a.png"])
def test_a_class_outside_the_label_space(tmp_path: Path, name: str) -> None:
    with pytest.raises(SoritesError, match="no class named"):
        found(put(tmp_path, name))


def test_a_folder_of_splits_says_to_go_deeper(tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="deeper."):
        found(put(tmp_path, "val/n02123045/a.png"))


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="needs a path"):
        folder(None, imagenet())
    with pytest.raises(SoritesError, match="does not exist"):
        found(tmp_path / "none")
    with pytest.raises(SoritesError, match="no images"):
        found(tmp_path)
    with pytest.raises(SoritesError, match="is a file"):
        found(put(tmp_path, "a.png") / "a.png")


def test_links_inside_are_followed_and_links_outside_are_not(tmp_path: Path) -> None:
    root = put(tmp_path / "in", "tabby/a.png")
    put(tmp_path / "out", "secret.png")
    (root / "tabby" / "same.png").symlink_to("a.png")
    (root / "goldfish").symlink_to(root / "tabby")
    (root / "tabby" / "round").symlink_to(root)
    assert list(found(root))[:2] == ["goldfish/a.png", "goldfish/same.png"]
    (root / "tabby" / "leak.png").symlink_to(tmp_path / "out" / "secret.png")
    (root / "tench").symlink_to(tmp_path / "out")
    with pytest.warns(UserWarning, match="3 links"):
        assert "secret" not in str(list(found(root)))


def test_links_outside_are_followed_on_request(tmp_path: Path) -> None:
    """ImageNet subsets are often folders of links; a cycle outside ends too."""
    put(tmp_path / "all", "n02123045/a.png", "n02123045/b.png", "n01443537/c.png")
    root = tmp_path / "subset"
    (root / "n02123045").mkdir(parents=True)
    (root / "n02123045" / "a.png").symlink_to(tmp_path / "all" / "n02123045" / "a.png")
    (root / "n01443537").symlink_to(tmp_path / "all" / "n01443537")
    (tmp_path / "all" / "n01443537" / "up").symlink_to(root)
    with following_links(True):
        assert list(found(root)) == ["n01443537/c.png", "n02123045/a.png"]
    with pytest.raises(SoritesError, match="2 links leading out"):
        found(root)


def test_a_folder_of_links_to_elsewhere_says_so(tmp_path: Path) -> None:
    put(tmp_path / "out", "a.png")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "tabby").symlink_to(tmp_path / "out")
    with pytest.raises(SoritesError, match="1 link"):
        found(tmp_path / "in")


def test_a_name_that_is_not_utf8_gets_a_printable_id(tmp_path: Path) -> None:
    put(tmp_path, "tabby/a.png")
    os.rename(tmp_path / "tabby" / "a.png", os.fsencode(tmp_path / "tabby") + b"/caf\xe9.png")
    [sample] = folder(str(tmp_path), imagenet())
    assert sample.id == "tabby/caf\\udce9.png"
    assert sample.load().shape == (2, 3, 3)


def test_a_bad_image_is_an_error_of_its_own(tmp_path: Path) -> None:
    put(tmp_path, "tabby/a.png")
    (tmp_path / "tabby" / "b.png").write_text("no image")
    good, bad = folder(str(tmp_path), imagenet())
    assert good.load().shape == (2, 3, 3)
    with pytest.raises(BadImage, match=r"b\.png"):
        bad.load()


def test_links_in_a_circle_are_passed_over_and_those_that_multiply_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "n02123045/a.png")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "n02123045" / "up").symlink_to("..")
    assert [sample.id for sample in core.source(f"folder:{tmp_path}")] == ["n02123045/a.png"]
    for i in range(9):
        (tmp_path / f"n0212304{i}").mkdir(exist_ok=True)
        for j in range(9):
            (tmp_path / f"n0212304{i}" / f"to{j}").symlink_to(f"../n0212304{j}")
    monkeypatch.setattr("sorites.sources.folder.MAX_LINKED_FOLDERS", 500)
    with pytest.raises(SoritesError, match="more than 500 folders"):
        core.source(f"folder:{tmp_path}")


def test_folders_may_be_nested_more_deeply_than_calls(tmp_path: Path) -> None:
    deep = tmp_path / "n02123045"
    deep.mkdir()
    for _ in range(1200):
        deep = deep / "d"
        deep.mkdir()
    put(deep, "a.png")
    try:
        assert len(core.source(f"folder:{tmp_path}")) == 1
    finally:
        subprocess.run(["rm", "-rf", tmp_path / "n02123045"], check=True)  # pytest itself could not remove it

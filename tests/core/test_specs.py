"""Bare paths that are given where a spec is expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from sorites.core import model, source, specs
from sorites.core.errors import UnknownName


@pytest.mark.parametrize(
    ("kind", "given", "files", "spec"),
    [
        ("source", "animals", ["cat/1.png"], "folder:animals"),
        ("source", "shards", ["0.tar"], "webdataset:shards"),
        ("source", "set", ["data.yaml"], "yolo:set"),
        ("source", "hub", ["README.md", "data/test-00000-of-00001.parquet"], "hf:hub"),
        ("source", "listed", ["test/1.png", "test/metadata.jsonl"], "hf:listed"),
        ("source", "imagenet-c", ["blur/defocus_blur/1/n01440764/1.JPEG"], "variants:imagenet-c"),
        ("source", "imagenet-c", ["jpeg/1/n01440764/1.JPEG"], "variants:imagenet-c"),
        ("source", "list.csv", [], "csv:list.csv"),
        ("source", "instances.json", [], "coco:instances.json"),
        ("model", "m.onnx", [], "onnx:m.onnx"),
        ("model", "m.xml", [], "openvino:m.xml"),
        ("model", "net", ["model.json"], "trained:net"),
        ("source", "stampz", [], None),
        ("scorer", "m.onnx", [], None),
    ],
)
def test_the_spec_of_a_bare_path(
    kind: str, given: str, files: list[str], spec: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in files:
        (tmp_path / given / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / given / name).touch()
    assert specs.spec_of_path(kind, given) == spec


def test_a_bare_path_is_answered_with_its_spec(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    with pytest.raises(UnknownName) as raised:
        source(str(tmp_path))
    assert f"folder:{tmp_path}" in str(raised.value)
    assert raised.value.fields["suggestions"] == ()


def test_a_path_that_does_not_exist_is_not_compared_with_names() -> None:
    with pytest.raises(UnknownName, match="There is no such file or folder") as raised:
        source("animals/vall")
    assert raised.value.fields["suggestions"] == ()
    with pytest.raises(UnknownName, match=r"Pass hf:google/vit-base@main"):
        model("google/vit-base")
    # A name of a plug-in is near.
    with pytest.raises(UnknownName, match=r"tflite:boxes\.tflite"):
        model("boxes.keras")

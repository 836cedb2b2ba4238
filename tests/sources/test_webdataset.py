"""Samples out of tars, by the conventions of WebDataset."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sorites import core
from sorites.core.errors import BadImage, SoritesError
from sorites.core.labels import imagenet

TABBY = 281


def image(value: int, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 3), (value,) * 3).save(buffer, kind)
    return buffer.getvalue()


def make(path: Path, **members: bytes | str | object) -> Path:
    """Members by name, with ``__`` for a dot: bytes as they are, other objects as text or JSON."""
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            text = content if isinstance(content, bytes | str) else json.dumps(content)
            data = text if isinstance(text, bytes) else text.encode()
            member = tarfile.TarInfo(name.replace("__", "."))
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def label(path: Path, **members: object) -> int | None:
    [sample] = core.source(f"webdataset:{make(path / 'a.tar', x__jpg=image(0), **members)}")
    return sample.label


@pytest.mark.parametrize("name", ["281", "n02123045", "tabby", "tabby\n"])
@pytest.mark.parametrize("kind", ["cls", "txt"])
def test_labels_as_text(tmp_path: Path, kind: str, name: str) -> None:
    assert label(tmp_path, **{f"x__{kind}": name}) == TABBY


@pytest.mark.parametrize(
    "record", [{"label": 281}, {"cls": "281"}, {"class": "tabby", "width": 4}, {"label": None, "cls": 281}]
)
def test_labels_as_json(tmp_path: Path, record: object) -> None:
    assert label(tmp_path, x__json=record) == TABBY


def test_cls_before_json_before_txt(tmp_path: Path) -> None:
    assert label(tmp_path, x__txt="a caption", x__json={"label": 1}, x__cls="281") == TABBY
    assert label(tmp_path, x__txt="a caption", x__json={"label": 281}) == TABBY
    assert label(tmp_path, x__txt="tabby", x__json={"width": 4}) == TABBY


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"x__cls": ""},
        {"x__cls": "-1"},
        {"x__json": {"label": -1}},
        {"x__json": []},
        {"x__json": {"label": None}},
    ],
)
def test_a_missing_label_is_none(tmp_path: Path, members: dict[str, object]) -> None:
    assert label(tmp_path, **members) is None


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"x__cls": "1000"}, "class named '1000'"),
        ({"x__txt": "a cat on a mat"}, r"a\.tar/x\.txt: no class named"),
        ({"x__cls": "goldfih"}, "Did you mean goldfish"),
        ({"x__json": "{"}, r"x\.json: not JSON"),
        ({"x__cls": b"\xff\xfe"}, r"x\.cls: not text"),
        ({"x__json": {"label": True}}, "class name"),
        ({"x__json": {"label": 2.5}}, "class name"),
        ({"x__json": {"label": [1]}}, "class name"),
        ({"x__txt": "x" * (1 << 21)}, "got 2,097,152 bytes"),
    ],
)
def test_a_wrong_label_is_reported(tmp_path: Path, members: dict[str, object], message: str) -> None:
    with pytest.raises(SoritesError, match=message):
        label(tmp_path, **members)


def test_ids_images_and_order(tmp_path: Path) -> None:
    make(
        tmp_path / "b-1.tar",
        **{
            "dir/z__png": image(1),
            "a__webp": image(2, "WEBP"),
            "a__cls": "0",
            "./q__JPG": image(3, "JPEG"),
        },
    )
    make(
        tmp_path / "b-0.tar",
        m__jpeg=image(4, "JPEG"),
        m__seg__png=image(9),
        other__npy=b"x",
        README="x",
        __hidden__png=b"",
    )
    samples = core.source(f"webdataset:{tmp_path}").samples
    assert [s.id for s in samples] == ["b-0.tar/m", "b-1.tar/dir/z", "b-1.tar/a", "b-1.tar/q"]
    assert [s.label for s in samples] == [None, None, 0, None]
    with ThreadPoolExecutor(4) as pool:
        assert [int(p[0, 0, 0]) for p in pool.map(lambda s: s.load(), samples)] == [4, 1, 2, 3]
    assert np.array_equal(pickle.loads(pickle.dumps(samples[1])).load(), np.full((3, 4, 3), 1, np.uint8))
    assert [s.id for s in core.source(f"webdataset:{tmp_path}/b-{{1..1}}.tar")] == [s.id for s in samples[1:]]


def test_member_names_are_never_paths(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    make(tmp_path / "in" / "a.tar", **{"../../evil__png": image(1), "/etc/evil__png": image(2)})
    samples = core.source(f"webdataset:{tmp_path}/in/a.tar").samples
    assert [int(s.load()[0, 0, 0]) for s in samples] == [1, 2]
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a.tar", "in"]


def test_a_bad_image_is_an_error_of_its_own(tmp_path: Path) -> None:
    good, bad = core.source(f"webdataset:{make(tmp_path / 'a.tar', a__png=image(1), b__png=image(2)[:40])}")
    assert good.load().shape == (3, 4, 3)
    with pytest.raises(BadImage, match=r"^a\.tar/b: cannot be read"):
        bad.load()


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="needs a path"):
        list(core.SOURCES.get("webdataset")(None, imagenet()))
    with pytest.raises(SoritesError, match="no images"):
        core.source(f"webdataset:{make(tmp_path / 'a.tar', a__txt='tabby')}")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for _ in range(2):
            archive.addfile(tarfile.TarInfo("a.png"))
    with pytest.raises(SoritesError, match="a.png"):
        core.source(f"webdataset:{tmp_path}/a.tar")

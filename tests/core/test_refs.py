"""References say where an image comes from, decode it, and name the data that it is made from."""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sorites.core import (
    ArrayRef,
    BytesRef,
    FileRef,
    Generated,
    ImageF32,
    ImageRef,
    ImageU8,
    OwnDial,
    Sample,
    to_float,
)
from sorites.core.errors import BadImage, SoritesError
from sorites.evaluation.storage.contents import changed, contents

PIXELS = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)


def encoded() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(PIXELS).save(buffer, "PNG")
    return buffer.getvalue()


def negative(file: FileRef) -> ImageU8:
    return 255 - file.load()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "a.png").write_bytes(encoded())
    (tmp_path / "a.bin").write_bytes(b"head" + encoded() + b"tail")
    return tmp_path / "a.png"


def refs(path: Path) -> list[ImageRef]:
    return [
        FileRef(path),
        FileRef(str(path), within=path.parent),
        FileRef(path.with_suffix(".bin"), 4, len(encoded()), "a"),
        BytesRef(encoded()),
        ArrayRef(PIXELS),
        Generated(negative, (FileRef(path),)),
    ]


def test_each_kind_decodes_the_image_here_and_after_pickling(path: Path) -> None:
    for ref in refs(path):
        expected = 255 - PIXELS if isinstance(ref, Generated) else PIXELS
        sample = Sample("a", ref)
        np.testing.assert_array_equal(sample.load(), expected)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(sample)).load(), expected)


def test_the_hash_of_a_file_of_a_part_and_of_bytes_is_that_of_the_encoded_image(path: Path) -> None:
    of = hashlib.blake2b(encoded(), digest_size=16).hexdigest()
    found = contents([Sample(str(i), ref) for i, ref in enumerate(refs(path))])["content"].to_list()
    assert [hash_ == of for hash_ in found] == [True, True, True, True, False, True]
    assert None not in found


def test_a_generated_image_has_the_content_of_its_version_and_of_the_references_it_is_given(
    path: Path,
) -> None:
    def row(image: ImageRef) -> dict[str, Any]:
        return contents([Sample("a", image)]).row(0, named=True)

    file = FileRef(path)
    versions = [row(Generated(negative, (file,), version)) for version in (None, 1, 2)]
    assert len({then["content"] for then in versions}) == 3
    assert row(Generated(negative, (Generated(negative, (file,)),))) == versions[0]
    closure = Generated(lambda: file.load())
    default = Generated(lambda held=file: held.load())
    plain = Generated(lambda held: FileRef(held).load(), (str(path),))
    for unknown in (closure, default, plain):
        then = row(unknown)
        assert then == {"bytes": None, "modified": None, "content": None}
        path.write_bytes(encoded() + b"x")
        assert not changed(then, row(unknown))


def test_the_inputs_of_a_dial_are_data_of_its_sample(path: Path) -> None:
    def sweep(severities: Sequence[float]) -> Iterator[ImageF32]:
        return (to_float(PIXELS) for _ in severities)

    def row(*inputs: ImageRef) -> dict[str, Any]:
        dials = (OwnDial("fade", (1.0,), sweep, inputs=inputs),)
        return contents([Sample("a", ArrayRef(PIXELS), dials=dials)]).row(0, named=True)

    before = row(FileRef(path))
    path.write_bytes(encoded() + b"x")
    assert changed(before, row(FileRef(path)))
    assert before["bytes"] == len(encoded())
    assert row()["bytes"] is None


def test_a_part_of_a_file_that_became_shorter_is_a_bad_image(path: Path) -> None:
    ref = FileRef(path, 10, len(encoded()), "cat")
    with pytest.raises(BadImage, match="cat"):
        ref.load()
    with pytest.raises(BadImage, match="cat"):
        FileRef(path.parent / "none", 0, 4, "cat").read()


def test_a_link_that_leaves_the_folder_is_refused(path: Path, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "a.png").symlink_to(path)
    np.testing.assert_array_equal(FileRef(inside / "a.png").load(), PIXELS)
    with pytest.raises(BadImage):
        FileRef(inside / "a.png", within=inside).load()


@pytest.mark.parametrize("image", [lambda: PIXELS, PIXELS, "a.png", None])
def test_other_values_are_refused_where_the_sample_is_made(image: Any) -> None:
    with pytest.raises(SoritesError, match="Generated"):
        Sample("a", image)


def test_an_array_cannot_be_changed_through_what_it_returns() -> None:
    with pytest.raises(ValueError, match="read-only"):
        ArrayRef(PIXELS).load()[0, 0, 0] = 1

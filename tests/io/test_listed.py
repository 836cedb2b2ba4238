"""Records list digests of files inside their folder only, and every kind of damage is told apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pydantic import BaseModel
from safetensors.numpy import load, save

from sorites.core.errors import Damaged
from sorites.io.digests import digest_of, write_sealed
from sorites.io.listed import listed_files, listed_problems, others, read_verified, refuse
from sorites.io.sealed_tensors import NO_DIGEST, require_tensors, seal_tensors
from sorites.io.validation import read_typed


class Small(BaseModel):
    n: int


def test_a_record_is_read_as_its_model(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    write_sealed({"n": 3}, path)
    assert read_typed(path, Small, "") == Small(n=3)
    write_sealed({"n": "x"}, path)
    with pytest.raises(Damaged, match="n: expected"):
        read_typed(path, Small, "")
    path.write_text('{"n": 3}')
    with pytest.raises(Damaged, match="digest"):
        read_typed(path, Small, "")


@pytest.mark.parametrize(
    "files", [["a"], {"a": 1}, {"a": [1]}, {"a": {}}, {"../a": "0"}, {"facts/../../a": ["0"]}, {"/a": "0"}]
)
def test_a_list_of_other_things_or_outside_the_folder_is_refused(tmp_path: Path, files: object) -> None:
    write_sealed({"files": files}, tmp_path / "r.json")
    with pytest.raises(Damaged, match="files: expected"):
        listed_files(tmp_path / "r.json", "")


def test_listed_files_are_compared_before_they_are_returned(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with pytest.raises(Damaged, match="it is missing"):
        read_verified(path, ("0",), "")
    path.write_bytes(b"abc")
    assert read_verified(path, (digest_of(b"abc"),), "") == b"abc"
    with pytest.raises(Damaged, match="does not list it"):
        read_verified(path, (), "")
    with pytest.raises(Damaged, match="does not match"):
        read_verified(path, (digest_of(b"abd"),), "")
    found = listed_problems(tmp_path, {"a": digest_of(b"abd"), "b": "0"})
    with pytest.raises(Damaged) as caught:
        refuse(found, "Do this.")
    assert [name in str(caught.value) for name in ("/a cannot", "/b cannot", "Do this.")] == [True] * 3
    assert others(tmp_path, ["b"]) == [path]
    refuse({}, "")


def test_tensors_contain_their_own_digest(tmp_path: Path) -> None:
    arrays = {"x": np.arange(5.0)}
    plain = save(arrays, {"about": '{"digest":"00"}', **NO_DIGEST})
    data, path = seal_tensors(plain), tmp_path / "a.safetensors"
    assert len(data) == len(plain)
    np.testing.assert_array_equal(load(data)["x"], arrays["x"])
    path.write_bytes(data)
    require_tensors(path, "")
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        with pytest.raises(Damaged, match="a.safetensors"):
            require_tensors(path, "")
    for content in (b"", data[:-1], data[:20], save(arrays)):
        path.write_bytes(content)
        with pytest.raises(Damaged, match="a.safetensors"):
            require_tensors(path, "")

"""Every flipped bit of a shard, a sealed record or a listed file is found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sorites.core.errors import Damaged, SoritesError
from sorites.io import digests
from sorites.io.files import write_bytes
from sorites.io.stores import to_path

CONTENT = {"name": "a run", "files": {"manifest.parquet": "00"}, "n": [1, 2.5, None]}


def flip(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_a_sealed_record_is_read_back() -> None:
    assert digests.unseal(digests.seal(CONTENT)) == CONTENT


def test_every_flipped_bit_of_a_sealed_record_is_found() -> None:
    data = digests.seal(CONTENT)
    for bit in range(8 * len(data)):
        with pytest.raises(SoritesError):
            digests.unseal(flip(data, bit))


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(SoritesError):
        digests.unseal(data)


def test_a_shard_carries_its_digest_in_its_name() -> None:
    name = digests.shard_name("blur-0-16--lite0", b"rows", ".parquet")
    assert digests.digest_in(name) == digests.digest_of(b"blur-0-16--lite0\0rows")
    assert digests.stem_of(name) == "blur-0-16--lite0"
    assert digests.digest_in("blur-0-16--lite0.parquet") is None
    assert digests.digest_in(name.replace(".parquet", " copy.parquet")) is None


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[Path, str]:
    monkeypatch.setenv("SORITES_CACHE", str(tmp_path / "cache"))
    expected = {}
    for index in range(5):
        path = tmp_path / "run" / f"{index}.bin"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes([index]) * 1000)
        expected[path] = digests.digest_of_file(path)
    return expected


def test_changed_missing_and_empty_files_are_named(files: dict[Path, str]) -> None:
    first, second, third, *_ = files
    first.write_bytes(flip(first.read_bytes(), 77))
    second.unlink()
    third.write_bytes(b"")
    found = digests.Verifier(first.parent).problems(files)
    assert list(found) == [first, second, third]
    with pytest.raises(Damaged) as caught:
        digests.Verifier(first.parent).require(files, "Restore it.")
    assert caught.value.fields["path"] == str(first)


def test_a_verified_file_is_hashed_once_and_again_when_it_changes(
    files: dict[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[Path] = []
    real = digests.digest_of_file
    monkeypatch.setattr(
        digests, "digest_of_file", lambda path, salt: (hashed.append(path), real(path, salt))[1]
    )
    first = next(iter(files))
    assert not digests.Verifier(first.parent).problems(files)
    assert len(hashed) == len(files)
    assert not digests.Verifier(first.parent).problems(files)
    assert len(hashed) == len(files)
    first.write_bytes(flip(first.read_bytes(), 5))
    os.utime(first, ns=(1, 1))
    assert list(digests.Verifier(first.parent).problems(files)) == [first]
    assert hashed[len(files) :] == [first]


def test_a_change_that_keeps_size_and_time_is_found_without_memory(files: dict[Path, str]) -> None:
    first = next(iter(files))
    assert not digests.Verifier(first.parent).problems(files)
    stat = first.stat()
    first.write_bytes(flip(first.read_bytes(), 5))
    os.utime(first, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert not digests.Verifier(first.parent).problems(files)
    assert list(digests.Verifier(first.parent, remember=False).problems(files)) == [first]


def test_a_damaged_memory_costs_only_time(files: dict[Path, str], tmp_path: Path) -> None:
    folder = next(iter(files)).parent
    assert not digests.Verifier(folder).problems(files)
    (memory,) = (tmp_path / "cache" / "verified").glob("*.json")
    memory.write_text('{"a": [1]}')
    assert not digests.Verifier(folder).problems(files)


def test_a_shard_is_read_back_and_every_change_of_name_or_content_is_found(tmp_path: Path) -> None:
    path = digests.write_shard(tmp_path, "a", ".bin", b"rows")
    assert digests.read_shard(path, "") == b"rows"
    assert not digests.Verifier(tmp_path).problems(digests.named_digests([path]))
    copy = path.with_name(path.name.replace("a.", "b.", 1))
    copy.write_bytes(path.read_bytes())
    changed = path.with_name(digests.shard_name("c", b"rows", ".bin"))
    changed.write_bytes(b"rowS")
    empty = path.with_name(digests.shard_name("d", b"rows", ".bin"))
    empty.touch()
    for damaged in (copy, changed, empty, path.with_name("e.bin")):
        with pytest.raises(Damaged) as caught:
            digests.read_shard(damaged, "")
        assert caught.value.fields["path"] == str(damaged)
    found = digests.Verifier(tmp_path).problems(digests.named_digests([path, copy, changed, empty]))
    assert list(found) == [copy, changed, empty]


def test_shards_are_listed_by_stem_and_other_files_are_not(tmp_path: Path) -> None:
    assert digests.shards_in(tmp_path / "absent", ".bin") == {}
    second, first = (digests.write_shard(tmp_path, stem, ".bin", b"rows") for stem in ("b", "a"))
    twins = sorted((second, digests.write_shard(tmp_path, "b", ".bin", b"other rows")))
    digests.write_shard(tmp_path, "a", ".txt", b"rows")
    for name in ("a.bin", first.name.replace(".bin", " copy.bin"), "sorites-00.tmp"):
        (tmp_path / name).write_bytes(b"rows")
    assert digests.shards_in(tmp_path, ".bin") == {"a": first, "b": twins[0]}
    assert digests.all_shards_in(tmp_path, ".bin") == {"a": [first], "b": twins}


def test_a_sealed_file_is_read_back_and_a_changed_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    digests.write_sealed(CONTENT, path)
    assert digests.read_sealed(path, "") == CONTENT
    for data in (b"", b"{}", flip(path.read_bytes(), 100)):
        path.write_bytes(data)
        with pytest.raises(Damaged):
            digests.read_sealed(path, "")
    path.unlink()
    with pytest.raises(Damaged):
        digests.read_sealed(path, "")


def test_a_damaged_copy_of_a_file_on_a_store_is_copied_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SORITES_CACHE", str(tmp_path))
    folder = to_path("memory://digests/run")
    path = digests.write_shard(folder, "a", ".bin", b"rows")
    expected = digests.named_digests(digests.shards_in(folder, ".bin").values())
    for read in (
        lambda: digests.read_shard(path, ""),
        lambda: digests.Verifier(folder, remember=False).require(expected, ""),
    ):
        read()
        (copy,) = (tmp_path / "stores").rglob("*.bin")
        copy.write_bytes(b"rowS")
        read()
        (copy,) = (tmp_path / "stores").rglob("*.bin")
        assert copy.read_bytes() == b"rows"
    write_bytes(b"rowS", path)
    assert list(digests.Verifier(folder, remember=False).problems(expected)) == [path]
    with pytest.raises(Damaged):
        digests.read_shard(path, "")

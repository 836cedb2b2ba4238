"""Finding tars and reading them in place."""

from __future__ import annotations

import io
import itertools
import subprocess
import tarfile
from pathlib import Path

import pytest

from sorites.core.errors import BadImage, SoritesError
from sorites.sources import shards
from sorites.sources import webdataset as tars


def make(path: Path, *members: tuple[str, bytes], kind: str = "") -> Path:
    with tarfile.open(path, f"w:{kind}") as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize(
    "pattern",
    [
        "a-{000..012}.tar",
        "a-{8..11}.tar",
        "{a,b}-{1..3}.tar",
        "x{3..1}",
        "plain.tar",
        "{a,}b",
        "{a}",
        "{1..2}{3..4}",
    ],
)
def test_braces_expand_as_in_bash(pattern: str) -> None:
    said = subprocess.run(
        ["bash", "-c", f"echo {pattern}"], check=True, capture_output=True, text=True
    ).stdout
    assert shards.expand(pattern) == said.split()


@pytest.mark.parametrize("pattern", ["{0..999999999}", "{0..999}{0..999}"])
def test_endless_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(SoritesError, match="more than 100,000 files"):
        shards.expand(pattern)


def test_a_tar_a_folder_and_patterns(tmp_path: Path) -> None:
    made = [make(tmp_path / f"a-{i:03}.tar", ("x.jpg", b"x")) for i in range(3)]
    assert shards.find(str(made[0]), ".tar") == made[:1]
    assert shards.find(str(tmp_path), ".tar") == made
    assert shards.find(f"{tmp_path}/a-{{000..001}}.tar", ".tar") == made[:2]
    assert shards.find(f"{tmp_path}/a-*.tar", ".tar") == made
    with pytest.raises(SoritesError, match=r"no file at .*a-003\.tar"):
        shards.find(f"{tmp_path}/a-{{000..003}}.tar", ".tar")
    with pytest.raises(SoritesError, match="no .tar files at"):
        shards.find(f"{tmp_path}/b-*.tar", ".tar")
    (tmp_path / "deep").mkdir()
    make(tmp_path / "deep" / "a-000.tar")
    with pytest.raises(SoritesError, match=r"2 files called a-000\.tar"):
        shards.find(f"{tmp_path}/**/a-000.tar", ".tar")


def test_members_are_where_they_are_reported_to_be(tmp_path: Path) -> None:
    contents = {"a.jpg": b"1" * 700, "b/" + "n" * 150 + ".cls": b"", "é.png": b"3" * 512, "../up": b"4"}
    path = make(tmp_path / "a.tar", *contents.items())
    with tarfile.open(path, "a") as archive:
        link = tarfile.TarInfo("link.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    found = list(tars.members(path))
    assert {member.name: member.read() for member in found} == contents
    assert sorted(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("kind", "tool"), [("gz", "gunzip"), ("xz", "unxz"), ("bz2", "bunzip2")])
def test_a_compressed_tar_says_how_to_unpack_it(tmp_path: Path, kind: str, tool: str) -> None:
    path = make(tmp_path / f"a.tar.{kind}", ("x.jpg", b"x"), kind=kind)
    assert shards.find(str(tmp_path), ".tar") == [path]
    with pytest.raises(SoritesError, match=rf"is compressed.*Type: {tool} .*a\.tar\.{kind}"):
        list(tars.members(path))


def test_damaged_tars_are_reported(tmp_path: Path) -> None:
    data = make(tmp_path / "good.tar", ("a.jpg", b"1" * 2000), ("b.jpg", b"2" * 2000)).read_bytes()
    header = data.index(b"b.jpg")
    damaged = {
        "empty": b"",
        "text": b"I am no tar" * 100,
        "cut in the data": data[: header + 1000],
        "cut in a header": data[: header + 100],
        "cut in the first": data[:100],
        "spoilt header": data[:header] + b"\xff" * 512 + data[header + 512 :],
    }
    for why, bytes_ in damaged.items():
        (tmp_path / "bad.tar").write_bytes(bytes_)
        with pytest.raises(SoritesError, match="complete tar:"):
            print(why, list(tars.members(tmp_path / "bad.tar")))
    with pytest.raises(SoritesError, match="such file"):
        list(tars.members(tmp_path / "none.tar"))


def test_a_tar_cut_between_members_is_not_whole_and_says_how_to_mend_it(tmp_path: Path) -> None:
    path = make(tmp_path / "a.tar", ("a.jpg", b"1" * 512), ("b.jpg", b"2" * 512))
    path.write_bytes(path.read_bytes()[:1024])
    with pytest.raises(SoritesError, match=r"byte 1,024.*truncate -s \+1024"):
        list(tars.members(path))
    subprocess.run(["truncate", "-s", "+1024", path], check=True)
    assert [member.read() for member in tars.members(path)] == [b"1" * 512]


def with_size(path: Path, field: bytes, name: str = "a.jpg") -> Path:
    """Write a size into the header of a member and make its checksum right again."""
    data = bytearray(path.read_bytes())
    start = data.index(name.encode())
    data[start + 124 : start + 136] = field.ljust(12, b"\0")
    data[start + 148 : start + 156] = b" " * 8
    data[start + 148 : start + 156] = b"%06o\0 " % sum(data[start : start + 512])
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    "field",
    [
        b"\xff" * 12,  # -1
        b"\xff" * 10 + b"\xfc\x00",  # -1024: the next header is this one again
        b"\xff" * 10 + b"\xfe\x00",
        b"\xff" + b"\0" * 11,
        b"\x80" + b"\xff" * 11,
        b"77777777777",
    ],
)
@pytest.mark.parametrize("member", ["a.jpg", "b.jpg"])
def test_a_size_below_zero_or_beyond_the_file_does_not_hang(
    tmp_path: Path, field: bytes, member: str
) -> None:
    path = with_size(make(tmp_path / "a.tar", ("a.jpg", b"1" * 600), ("b.jpg", b"2" * 600)), field, member)
    with pytest.raises(SoritesError, match="complete tar:"):
        list(itertools.islice(tars.members(path), 3))


def test_a_chain_of_long_names_does_not_end_in_a_traceback(tmp_path: Path) -> None:
    header = tarfile.TarInfo("././@LongLink")
    header.type = tarfile.GNUTYPE_LONGNAME
    (tmp_path / "a.tar").write_bytes(header.tobuf(tarfile.GNU_FORMAT) * 5000 + b"\0" * 1024)
    with pytest.raises(SoritesError, match="complete tar:"):
        list(tars.members(tmp_path / "a.tar"))


def test_a_member_with_holes_is_reported_and_not_skipped(tmp_path: Path) -> None:
    with (tmp_path / "a.jpg").open("wb") as file:
        file.truncate(1 << 20)
        file.seek(1 << 19)
        file.write(b"x")
    subprocess.run(["tar", "--sparse", "-cf", "a.tar", "a.jpg"], cwd=tmp_path, check=True)
    with pytest.raises(SoritesError, match="pack it again"):
        list(tars.members(tmp_path / "a.tar"))


def test_names_are_literal_where_they_exist(tmp_path: Path) -> None:
    for folder in ("set1", "set[1]"):
        (tmp_path / folder).mkdir()
        for name in ("a-1.tar", "a-[1].tar", "{1..2}.tar"):
            make(tmp_path / folder / name, (f"{folder}.jpg", b"x"))
    here = tmp_path / "set[1]"
    assert shards.find(str(here), ".tar") == sorted(here.iterdir())
    for name in ("a-1.tar", "a-[1].tar", "{1..2}.tar"):
        assert shards.find(str(here / name), ".tar") == [here / name]
    assert shards.find(f"{here}/a-*.tar", ".tar") == [here / "a-1.tar", here / "a-[1].tar"]
    assert shards.find(f"{here}/a-{{1,[1]}}.tar", ".tar") == [here / "a-1.tar", here / "a-[1].tar"]
    assert shards.find(f"{tmp_path}/set?/a-1.tar", ".tar") == [tmp_path / "set1" / "a-1.tar"]


def test_a_tar_that_changes_later_is_a_bad_image(tmp_path: Path) -> None:
    path = make(tmp_path / "a.tar", ("a.jpg", b"1" * 512))
    [member] = tars.members(path)
    path.write_bytes(b"")
    with pytest.raises(BadImage, match="has changed"):
        member.read()
    path.unlink()
    with pytest.raises(BadImage, match=r"a\.tar/a\.jpg: No such file"):
        member.read()

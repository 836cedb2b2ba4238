"""Finding tars and reading them in place."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from sorites.errors import BadPicture, SoritesError
from sorites.sources import _tars as tars


def make(path: Path, *members: tuple[str, bytes], kind: str = "") -> Path:
    with tarfile.open(path, f"w:{kind}") as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize(
    "pattern", ["a-{000..012}.tar", "a-{8..11}.tar", "{a,b}-{1..3}.tar", "x{3..1}", "plain.tar", "{a,}b", "{a}", "{1..2}{3..4}"]
)
def test_braces_expand_as_in_bash(pattern: str) -> None:
    said = subprocess.run(["bash", "-c", f"echo {pattern}"], check=True, capture_output=True, text=True).stdout
    assert tars.expand(pattern) == said.split()


@pytest.mark.parametrize("pattern", ["{0..999999999}", "{0..999}{0..999}"])
def test_endless_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(SoritesError, match="more than 100,000 tars"):
        tars.expand(pattern)


def test_a_tar_a_folder_and_patterns(tmp_path: Path) -> None:
    made = [make(tmp_path / f"a-{i:03}.tar", ("x.jpg", b"x")) for i in range(3)]
    assert tars.find(str(made[0])) == made[:1]
    assert tars.find(str(tmp_path)) == made
    assert tars.find(f"{tmp_path}/a-{{000..001}}.tar") == made[:2]
    assert tars.find(f"{tmp_path}/a-*.tar") == made
    with pytest.raises(SoritesError, match=r"no tar at .*a-003\.tar"):
        tars.find(f"{tmp_path}/a-{{000..003}}.tar")
    with pytest.raises(SoritesError, match="no tars at"):
        tars.find(f"{tmp_path}/b-*.tar")
    (tmp_path / "deep").mkdir()
    make(tmp_path / "deep" / "a-000.tar")
    with pytest.raises(SoritesError, match=r"2 tars called a-000\.tar"):
        tars.find(f"{tmp_path}/**/a-000.tar")


def test_members_are_where_they_are_said_to_be(tmp_path: Path) -> None:
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
    assert tars.find(str(tmp_path)) == [path]
    with pytest.raises(SoritesError, match=rf"is compressed.*Type: {tool} .*a\.tar\.{kind}"):
        list(tars.members(path))


def test_damaged_tars_are_named(tmp_path: Path) -> None:
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
        with pytest.raises(SoritesError, match=r"bad\.tar is not a whole tar"):
            print(why, list(tars.members(tmp_path / "bad.tar")))
    with pytest.raises(SoritesError, match="is not a whole tar: .*No such file"):
        list(tars.members(tmp_path / "none.tar"))


def test_a_tar_without_its_last_blocks_is_whole(tmp_path: Path) -> None:
    path = make(tmp_path / "a.tar", ("a.jpg", b"1" * 512))
    path.write_bytes(path.read_bytes()[:1024])
    assert [member.read() for member in tars.members(path)] == [b"1" * 512]


def test_a_tar_that_changes_later_is_a_bad_picture(tmp_path: Path) -> None:
    path = make(tmp_path / "a.tar", ("a.jpg", b"1" * 512))
    [member] = tars.members(path)
    path.write_bytes(b"")
    with pytest.raises(BadPicture, match="has changed"):
        member.read()
    path.unlink()
    with pytest.raises(BadPicture, match=r"a\.tar/a\.jpg: No such file"):
        member.read()

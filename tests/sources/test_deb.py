"""Debian packages made by hand, honest and hostile."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from sorites.core.errors import SoritesError
from sorites.io import packages as deb


def ar(*members: tuple[str, bytes]) -> bytes:
    """The format of ar(5): a magic, then 60 bytes of header before each member, padded to even length."""
    out = b"!<arch>\n"
    for name, data in members:
        out += (
            f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
            + data
            + b"\n" * (len(data) % 2)
        )
    return out


def tar(*members: tuple[str, bytes | str], kind: str = "xz") -> bytes:
    """Bytes make a file, text a symbolic link to it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=f"w:{kind}") as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def package(path: Path, *members: tuple[str, bytes | str], kind: str = "xz") -> Path:
    name = f"data.tar.{kind}" if kind else "data.tar"
    path.write_bytes(
        ar(
            ("debian-binary", b"2.0\n"),
            ("control.tar.xz", b"odd"),
            (name, tar(*members, kind=kind)),
            ("later", b"x"),
        )
    )
    return path


@pytest.mark.parametrize("kind", ["xz", "gz", "bz2", ""])
def test_only_requested_files_are_extracted(tmp_path: Path, kind: str) -> None:
    made = package(
        tmp_path / "a.deb",
        ("./usr/a.png", b"one"),
        ("./usr/b.png", b"two"),
        ("./usr/c.png", b"three"),
        kind=kind,
    )
    heard: list[int] = []
    assert dict(deb.read(made, {"usr/a.png", "usr/c.png", "usr/none.png"}, heard.append)) == {
        "usr/a.png": b"one",
        "usr/c.png": b"three",
    }
    assert heard
    assert max(heard) <= made.stat().st_size


def test_hostile_members_lead_nowhere(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    members = [
        ("../../evil", b"x"),
        ("/etc/evil", b"x"),
        ("./usr/a.png", str(secret)),
        ("./usr/../usr/b.png", b"x"),
        ("./usr/c.png", b"ok"),
    ]
    made = package(tmp_path / "a.deb", *members)
    before = sorted(os.listdir(tmp_path))
    assert dict(deb.read(made, {"usr/a.png", "usr/b.png", "usr/c.png"})) == {"usr/c.png": b"ok"}
    assert sorted(os.listdir(tmp_path)) == before


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deb, "MAX_FILE_BYTES", 4)
    made = package(tmp_path / "a.deb", ("./a", b"12345"), ("./b", b"1234"))
    assert dict(deb.read(made, {"a", "b"})) == {"b": b"1234"}


def test_a_file_that_occurs_twice_is_read_once(tmp_path: Path) -> None:
    made = package(tmp_path / "a.deb", ("./a", b"first"), ("./a", b"second"), ("./b", b"b"))
    assert list(deb.read(made, {"a", "b"})) == [("a", b"first"), ("b", b"b")]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no package",
        b"!<arch>\n",
        ar(("debian-binary", b"2.0\n")),
        ar(("data.tar.xz", b"not xz at all")),
        ar(("data.tar.xz", tar(("./b", os.urandom(9999)))[:5000])),
        ar(("data.tar", tar(("./b", b"0" * 9999), kind="")[:3000])),
        b"!<arch>\n" + b"?" * 60,
    ],
    ids=["empty", "text", "bare", "no data", "not xz", "cut xz", "cut tar", "bad header"],
)
def test_a_damaged_package_is_reported(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "bad.deb").write_bytes(data)
    with pytest.raises(SoritesError, match=r"bad\.deb cannot be unpacked"):
        dict(deb.read(tmp_path / "bad.deb", {"a"}))


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="zstd packages are read with dpkg-deb")
def test_a_package_of_dpkg_deb_itself(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN" / "control").write_text(
        "Package: a\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b.c>\nDescription: a\n"
    )
    (root / "usr").mkdir()
    (root / "usr" / "a.png").write_bytes(b"one")
    for kind in ("zstd", "xz"):
        built = tmp_path / f"{kind}.deb"
        subprocess.run(
            ["dpkg-deb", f"-Z{kind}", "--root-owner-group", "--build", root, built],
            check=True,
            capture_output=True,
        )
        assert dict(deb.read(built, {"usr/a.png"})) == {"usr/a.png": b"one"}

"""Fetching, as far as it goes without a network; the real fetch is in test_stamps."""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
from pathlib import Path

import pytest
from rich.progress import Progress

from sorites.core.errors import SoritesError
from sorites.io import packages as debian

WANTED = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("a", "x/b", "c")}


def package(path: Path, *members: tuple[str, bytes]) -> Path:
    """The least that counts as a Debian package: an ar archive (60 bytes of header a member) of one
    plain tar.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    header = f"{'data.tar':<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(buffer.getvalue()):<10}`\n"
    path.write_bytes(b"!<arch>\n" + header.encode() + buffer.getvalue())
    return path


def test_missing_tells_absent_and_changed_files(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "b").write_text("x/b")
    (tmp_path / "c").write_text("changed")
    assert set(debian.missing(WANTED, tmp_path)) == {"a", "c"}


def test_unpack_keeps_only_what_the_hash_confirms(tmp_path: Path) -> None:
    members = [
        ("./in/a", b"a"),
        ("./in/x/b", b"x/b"),
        ("./in/c", b"tampered"),
        ("./in/d", b"d"),
        ("./in/../../e", b"e"),
    ]
    debian.unpack(
        package(tmp_path / "p.deb", *members), "in", WANTED, tmp_path / "out", Progress(disable=True)
    )
    found = {
        path.relative_to(tmp_path / "out").as_posix()
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }
    assert found == {"a", "x/b"}
    assert set(debian.missing(WANTED, tmp_path / "out")) == {"c"}


def test_without_apt_get_the_way_out_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SoritesError, match="this machine does"):
        debian.fetch("p", "in", WANTED, tmp_path / "out", "note")


def test_what_is_there_is_not_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "a").write_text("a")
    debian.fetch("p", "in", {"a": WANTED["a"]}, tmp_path, "note")
    assert capfd.readouterr() == ("", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


def test_a_cache_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SoritesError, match="Set SORITES_CACHE"):
        debian.fetch("p", "in", WANTED, tmp_path / "file" / "out", "note")


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="needs apt-get")
def test_apt_get_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(debian.APT_TIMEOUT_SECONDS, "update", 0.0)
    with pytest.raises(SoritesError, match="took more than 0"):
        debian.fetch("p", "in", WANTED, tmp_path / "out", "note")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("apt-get") is None, reason="needs apt-get")
def test_a_package_that_nobody_has(tmp_path: Path) -> None:
    with pytest.raises(
        SoritesError, match=r"could not fetch no-such-package-at-all. Its output:\n.*no-such-package-at-all"
    ):
        debian.fetch("no-such-package-at-all", "in", WANTED, tmp_path / "out", "note")

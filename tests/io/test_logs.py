"""A log keeps what was appended, whatever a killed process left at its end, and no line can change unnoticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from sorites.core.errors import Damaged
from sorites.io.logs import Log, read_log


def test_a_line_cut_short_is_passed_over_and_never_joined(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = Log(path)
    log.add("shot", file="a")
    log.close()
    with path.open("ab") as file:
        file.write(b'{"event": "shot", "fi')
    assert [line["file"] for line in read_log(path, "")] == ["a"]
    again = Log(path, capture="x")
    again.add("shot", file="ü")
    again.close()
    lines = list(read_log(path, ""))
    assert [(line["file"], line.get("capture")) for line in lines] == [("a", None), ("ü", "x")]
    assert path.read_bytes().count(b"\n") == 2


def test_no_file_is_no_event(tmp_path: Path) -> None:
    assert list(read_log(tmp_path / "none", "")) == []
    (tmp_path / "empty").touch()
    assert list(read_log(tmp_path / "empty", "")) == []


def test_every_changed_byte_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = Log(path)
    for name in ("a", "b"):
        log.add("shot", file=name)
    log.close()
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(Damaged, match=r"log.jsonl cannot be read: line [12]:"):
            list(read_log(path, ""))
        if place == len(whole) - 1:
            with pytest.raises(Damaged, match="its end has changed"):
                Log(path)

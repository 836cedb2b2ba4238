"""The log keeps what was appended, whatever a killed process left at its end."""

from __future__ import annotations

from pathlib import Path

from sorites.apps.studio.folder import Log, read


def test_a_line_cut_short_is_passed_over_and_never_joined(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = Log(path)
    log.add("shot", file="a")
    log.close()
    with path.open("ab") as file:
        file.write(b'{"event": "shot", "fi')
    again = Log(path)
    again.add("shot", file="ü")
    again.close()
    assert [line["file"] for line in read(path)] == ["a", "ü"]
    assert path.read_bytes().count(b"\n") == 3


def test_no_file_is_no_event(tmp_path: Path) -> None:
    assert list(read(tmp_path / "none")) == []
    (tmp_path / "odd").write_bytes(b'\xff\n[1]\n{"a": 1}\n' + b"[" * 100_000 + b"\n")
    assert list(read(tmp_path / "odd")) == []

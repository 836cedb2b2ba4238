"""A log keeps what was appended, whatever a killed process left at its end, and no line can change unnoticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import TypeAdapter

from sorites.core.errors import Damaged
from sorites.io.logs import Entry, Log, read_entries, read_log


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


class Taken(Entry):
    event: Literal["taken"] = "taken"
    place: str
    count: int = 0


def test_typed_entries_are_written_with_the_time_and_read_again(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl", capture="c")
    log.write(Taken(place="a", count=2))
    log.close()
    written = next(read_log(tmp_path / "log.jsonl", ""))
    assert {**written, "time": 0} == {"event": "taken", "time": 0, "capture": "c", "place": "a", "count": 2}
    assert written["time"] > 1e9


@pytest.mark.parametrize(
    "fields", [{"place": 1}, {"place": "a", "count": "2"}, {}, {"place": "a", "other": 1}]
)
def test_an_entry_with_other_fields_is_damage_that_names_its_line(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    path = tmp_path / "log.jsonl"
    log = Log(path)
    log.write(Taken(place="a"))
    log.add("taken", **fields)
    log.close()
    entries = read_entries(path, TypeAdapter(Taken), "Delete it.")
    assert next(entries).place == "a"
    with pytest.raises(Damaged) as damaged:
        next(entries)
    assert damaged.value.code == "damaged"
    assert "line 2" in str(damaged.value)

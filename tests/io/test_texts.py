"""Text, JSON and TOML: byte order marks, depth, digits and half characters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sorites.core.errors import SoritesError
from sorites.io import readers


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    for name, content in (("a.txt", "cat\ndog\n"), ("a.json", '{"a": 1}'), ("a.toml", "a = 1\n")):
        (tmp_path / name).write_text(f"\ufeff{content}", encoding="utf-8")
    assert readers.lines(tmp_path / "a.txt") == ["cat", "dog"]
    assert readers.json_file(tmp_path / "a.json") == readers.toml_file(tmp_path / "a.toml") == {"a": 1}


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "9" * 5000, '"\\ud800"', "", "{", "\x00"])
def test_bad_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        readers.json_value(text)


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 10_000, "a = " + "{b=" * 3000, "a = " + "9" * 5000, "a = 1979-13-99", "a", "\x00"]
)
def test_bad_toml_is_a_value_error_and_names_its_file(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"."):
        readers.toml_table(text)
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(SoritesError, match=r"a\.toml: not valid TOML:"):
        readers.toml_file(tmp_path / "a.toml", "a suite")


def test_pairs_of_surrogates_are_characters() -> None:
    assert readers.json_value(json.dumps("\N{OWL}")) == "\N{OWL}"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("281", 281),
        (" 7 ", 7),
        ("9" * 18, 10**18 - 1),
        ("9" * 19, None),
        ("-1", None),
        ("½", None),
        ("", None),
    ],
)
def test_whole_numbers_are_short(text: str, number: int | None) -> None:
    assert readers.parse_integer(text) == number


@pytest.mark.parametrize("text", ["", "x", "1,,2", "nan", "1,inf", "1e999", "9" * 5000])
def test_numbers_are_finite(text: str) -> None:
    assert readers.numbers("1,2.5,-3", "--stops") == (1, 2.5, -3)
    with pytest.raises(SoritesError, match="--stops"):
        readers.numbers(text, "--stops")

"""The comparison of hashes before and after a refactoring: renames are allowed, everything else is named."""

from __future__ import annotations

import pytest
from tools.net import renames
from tools.net.hashes import of_leaves

TABLES = {
    "columns": {"old_column": "new_column"},
    "keys": {"old_word": "new_word"},
    "flags": {"--old": "--new", "make old": "make new"},
    "names": {"old_share": "new_share", "runs/old": "runs/new"},
    "values": {"old_value": "new_word"},
}
BEFORE = {
    "runs/old/old_column": "1",
    "runs/old/old_column/(values)": ["a", "old_value"],
    "metrics/old_share/n": "2",
    "metrics/other/old_column": "3",
    "lists/flags/make old": ["--old", "--out"],
    "runs/old/(columns)": ["label", "old_column"],
    "words/help": "4",
}
AFTER = {
    "runs/new/new_column": "1",
    "runs/new/new_column/(values)": ["a", "new_word"],
    "metrics/new_share/n": "2",
    "metrics/other/old_column": "3",
    "lists/flags/make new": ["--new", "--out"],
    "runs/new/(columns)": ["label", "new_column"],
    "words/help": "5",
}


@pytest.fixture(autouse=True)
def _renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renames, "renames", lambda: TABLES)


def test_what_is_only_renamed_is_equal_and_texts_may_change(capsys: pytest.CaptureFixture[str]) -> None:
    assert renames.compare(BEFORE, AFTER) == 0
    assert "1 texts and drawings" in capsys.readouterr().out
    assert renames.compare(BEFORE, AFTER, with_words=True) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"runs/new/new_column": "9"}, "runs/new/new_column: differs"),
        (
            {"runs/new/new_column/(values)": ["new_word", "a"]},
            "runs/new/new_column/(values): is in another order",
        ),
        (
            {"lists/flags/make new": ["--new", "--in"]},
            "lists/flags/make new: lost --out; new --in",
        ),
        ({"runs/more": "1"}, "runs/more: is new"),
    ],
)
def test_everything_else_is_named(
    change: dict[str, str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert renames.compare(BEFORE, AFTER | change) == 1
    assert said in capsys.readouterr().out
    assert (
        renames.compare(BEFORE, {name: held for name, held in AFTER.items() if name != "runs/new/new_column"})
        == 1
    )
    assert "runs/old/old_column: is gone" in capsys.readouterr().out


def test_commands_and_columns_are_asked_by_their_new_names() -> None:
    assert renames.words_now(["make", "old", "--old", "x"]) == [
        "make",
        "new",
        "--new",
        "x",
    ]
    assert renames.now("columns", "new_column", "model")("old_column") == "new_column"
    assert renames.now("columns", "old_column")("old_column") == "old_column"


def test_a_mapping_is_taken_apart_so_that_a_key_can_be_renamed() -> None:
    one = dict(of_leaves({"a": {"old_column": 1}, "rows": [{"x": "u", "y": [1]}, {"x": "v"}]}))
    other = dict(of_leaves({"a": {"new_column": 1}, "rows": [{"x": "u", "y": [1]}, {"x": "w"}]}))
    assert one["a/old_column"] == other["a/new_column"]
    assert one["rows/x"] == other["rows/x"], "only the list of values differs"
    assert (one["rows/x/(values)"], other["rows/x/(values)"]) == (["u", "v"], ["u", "w"])

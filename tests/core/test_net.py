"""The comparison of hashes before and after a refactoring: renames are allowed, everything else is named."""

from __future__ import annotations

import pytest
from tools.net import renames
from tools.net.hashes import of_leaves

TABLES = {
    "columns": {"image": "image"},
    "keys": {"ood": "ood"},
    "flags": {"--ood": "--ood", "generate images": "generate images"},
    "names": {"ood_share": "ood_share", "runs/old": "runs/new"},
    "values": {"ood": "ood"},
}
BEFORE = {
    "runs/old/image": "1",
    "runs/old/image/(values)": ["a", "ood"],
    "metrics/ood_share/n": "2",
    "metrics/other/image": "3",
    "lists/flags/generate images": ["--out", "--ood"],
    "runs/old/(columns)": ["label", "image"],
    "words/help": "4",
}
AFTER = {
    "runs/new/image": "1",
    "runs/new/image/(values)": ["a", "ood"],
    "metrics/ood_share/n": "2",
    "metrics/other/image": "3",
    "lists/flags/generate images": ["--ood", "--out"],
    "runs/new/(columns)": ["image", "label"],
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
        ({"runs/new/image": "9"}, "runs/new/image: differs"),
        ({"runs/new/image/(values)": ["ood", "a"]}, "runs/new/image/(values): is in another order"),
        (
            {"lists/flags/generate images": ["--ood", "--in"]},
            "lists/flags/generate images: lost --out; new --in",
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
        renames.compare(BEFORE, {name: held for name, held in AFTER.items() if name != "runs/new/image"}) == 1
    )
    assert "runs/old/image: is gone" in capsys.readouterr().out


def test_commands_and_columns_are_asked_by_their_new_names() -> None:
    assert renames.words_now(["generate", "images", "--ood", "x"]) == [
        "generate",
        "images",
        "--ood",
        "x",
    ]
    assert renames.now("columns", "image", "model")("image") == "image"
    assert renames.now("columns", "image")("image") == "image"


def test_a_mapping_is_taken_apart_so_that_a_key_can_be_renamed() -> None:
    one = dict(of_leaves({"a": {"image": 1}, "rows": [{"x": "u", "y": [1]}, {"x": "v"}]}))
    other = dict(of_leaves({"a": {"image": 1}, "rows": [{"x": "u", "y": [1]}, {"x": "w"}]}))
    assert one["a/image"] == other["a/image"]
    assert one["rows/x"] == other["rows/x"], "only the list of values differs"
    assert (one["rows/x/(values)"], other["rows/x/(values)"]) == (["u", "v"], ["u", "w"])

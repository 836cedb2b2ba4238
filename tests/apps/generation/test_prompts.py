"""Prompts of Syn-IS: the named styles, files of others, blocked words, and many labels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sorites.apps.generation.styles import blocked_words, labels_of, pair_prompts, published, styles
from sorites.core.errors import SoritesError
from sorites.sources.papers.is_ood import styles as named


def test_the_styles_are_the_51_that_the_paper_names() -> None:
    assert tuple(style.name for style in published()) == named()
    assert len({style.prompt for style in published()}) == 51
    assert all(style.prompt.count("{label}") == 1 and style.negative for style in published())


def test_a_prompt_holds_the_label() -> None:
    assert published()[0].prompt_for("bald eagle").startswith("bald eagle in art nouveau")


@pytest.mark.parametrize("suffix", ["json", "csv", "tsv"])
def test_a_file_in_the_usual_form_is_read(tmp_path: Path, suffix: str) -> None:
    file, rows = (
        tmp_path / f"styles.{suffix}",
        [["base", "photo of {prompt} .", "bad"], ["sketch", "{prompt} drawn", "photo"]],
    )
    keys = ["name", "prompt", "negative_prompt"]
    mark = "\t" if suffix == "tsv" else ","
    as_json = json.dumps([dict(zip(keys, row, strict=True)) for row in rows])
    file.write_text(
        as_json if suffix == "json" else "\n".join(mark.join(row) for row in [keys, *rows]) + "\n"
    )
    found = styles(file)
    assert [(style.name, style.prompt_for("cat"), style.negative) for style in found] == [
        ("base", "photo of cat .", "bad"),
        ("sketch", "cat drawn", "photo"),
    ]


def test_a_style_without_a_place_for_the_label_is_named(tmp_path: Path) -> None:
    file = tmp_path / "styles.json"
    file.write_text(json.dumps([{"name": "odd", "prompt": "a photo"}]))
    with pytest.raises(SoritesError, match="the style 'odd'"):
        styles(file)
    file.write_text("{}")
    with pytest.raises(SoritesError, match="styles as JSON"):
        styles(file)


def test_blocked_words_leave_whole_labels_out_and_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "block.txt"
    file.write_text("cat\n")
    found = pair_prompts(["cat", "category", "a Cat nap", "dog"], published(), blocked_words(file))
    assert found.blocked == 2 * 51
    assert {found.labels[label] for label, _ in found.pairs} == {"category", "dog"}
    with pytest.raises(SoritesError, match="blocked words"):
        pair_prompts(["cat"], published(), blocked_words(file))


@pytest.mark.slow
def test_twenty_thousand_labels_are_planned(tmp_path: Path) -> None:
    file = tmp_path / "labels.txt"
    file.write_text("".join(f"object number {i}\n" for i in range(20_000)))
    found = pair_prompts(labels_of(file), published(), blocked_words())
    assert len(found) == 20_000 * 51
    assert found.text(51) == published()[0].prompt_for("object number 1")
    some = pair_prompts(labels_of(file), published(), blocked_words(), most=1000)
    assert len(some) == 1000
    assert len({label for label, _ in some.pairs}) > 900


def test_labels_are_taken_once_and_wanted(tmp_path: Path) -> None:
    file = tmp_path / "labels.txt"
    file.write_text("disc\n\ncross\ndisc\n")
    assert labels_of(file) == ["disc", "cross"]
    with pytest.raises(SoritesError, match="one or more labels"):
        pair_prompts([], published(), ())

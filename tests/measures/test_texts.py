"""Triplets change one thing at a time, and templates are what they must be."""

from __future__ import annotations

from pathlib import Path

import pytest

from sorites.errors import SoritesError
from sorites.measures._texts import STYLES, read_styles, triplets

THINGS = ["cat", "dog", "frog"]
SIMPLE = [["a {} photo", "the {} photo"], ["a {} sketch"], ["a {} toy"]]


def test_each_triplet_changes_the_label_once_and_the_style_once() -> None:
    style = {template: i for i, group in enumerate(SIMPLE) for template in group}
    of = {template.replace("{}", thing): (thing, template) for template in style for thing in THINGS}
    made = triplets(THINGS, SIMPLE, 500)
    assert len(set(made.texts)) == len(made.texts)
    for standard, semantic, covariate in made.places:
        (thing, template), (other, same), (still, unlike) = (of[made.texts[i]] for i in (standard, semantic, covariate))
        assert thing != other
        assert template == same
        assert thing == still
        assert style[template] != style[unlike]
    assert len(made.texts) == len(of)


def test_triplets_follow_from_the_seed() -> None:
    first, again, other = (triplets(THINGS, SIMPLE, 50, seed) for seed in (0, 0, 1))
    assert first.texts == again.texts
    assert (first.places == again.places).all()
    assert first.texts != other.texts or (first.places != other.places).any()


def test_the_default_styles_are_distinct_templates() -> None:
    every = [template for style in STYLES for template in style]
    assert len(set(every)) == len(every)
    triplets(THINGS, STYLES, 10)


def test_templates_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "templates.txt"
    path.write_text("a {}\nthe {}\n\n\na toy {}\n", encoding="utf-8")
    assert read_styles(path) == [["a {}", "the {}"], ["a toy {}"]]
    path.write_text("a {}\na toy {}\n", encoding="utf-8")
    assert read_styles(path) == [["a {}"], ["a toy {}"]]


def test_says_what_is_wrong_with_texts(tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="one {} where the label goes, got 'a cat'"):
        triplets(THINGS, [["a {}"], ["a cat"]], 1)
    with pytest.raises(SoritesError, match="got 1 and 3"):
        triplets(["cat", "cat"], SIMPLE, 1)
    with pytest.raises(SoritesError, match="cannot read templates"):
        read_styles(tmp_path / "none.txt")

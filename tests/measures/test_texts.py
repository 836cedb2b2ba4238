"""Triplets change one part of a text at a time, and templates are validated."""

from __future__ import annotations

from pathlib import Path

import pytest

from sorites.core.errors import SoritesError
from sorites.measures.decomposition import STYLES, read_names, read_styles, triplets

OBJECTS = ["cat", "dog", "frog"]
SIMPLE = [["a {} photo", "the {} photo"], ["a {} sketch"], ["a {} toy"]]


def test_each_triplet_changes_the_label_once_and_the_style_once() -> None:
    style = {template: i for i, group in enumerate(SIMPLE) for template in group}
    of = {template.replace("{}", obj): (obj, template) for template in style for obj in OBJECTS}
    made = triplets(OBJECTS, SIMPLE, 500)
    assert len(set(made.texts)) == len(made.texts)
    for standard, semantic, covariate in made.places:
        (obj, template), (other, same), (still, unlike) = (
            of[made.texts[i]] for i in (standard, semantic, covariate)
        )
        assert obj != other
        assert template == same
        assert obj == still
        assert style[template] != style[unlike]
    assert len(made.texts) == len(of)


def test_triplets_follow_from_the_seed() -> None:
    first, again, other = (triplets(OBJECTS, SIMPLE, 50, seed) for seed in (0, 0, 1))
    assert first.texts == again.texts
    assert (first.places == again.places).all()
    assert first.texts != other.texts or (first.places != other.places).any()


def test_the_default_styles_are_distinct_templates() -> None:
    every = [template for style in STYLES for template in style]
    assert len(set(every)) == len(every)
    triplets(OBJECTS, STYLES, 10)


def test_templates_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "templates.txt"
    path.write_text("a {}\nthe {}\n\n\na toy {}\n", encoding="utf-8")
    assert read_styles(path) == [["a {}", "the {}"], ["a toy {}"]]
    path.write_text("a {}\na toy {}\n", encoding="utf-8")
    assert read_styles(path) == [["a {}"], ["a toy {}"]]


@pytest.mark.parametrize(
    "text",
    [
        "a bad photo of a {}.\na {} in a video game.\n",
        "a bad photo of a {c}.\na {c} in a video game.\n",
        "imagenet_templates = [\n    'a bad photo of a {}.',\n    'a {} in a video game.',\n]\n",
        (
            "imagenet_templates = [\n    lambda c: f'a bad photo of a {c}.',\n    lambda c: f'a {c} in a"
            " video game.',\n]\n"
        ),
    ],
)
def test_openai_s_templates_are_read_in_the_forms_they_come_in(tmp_path: Path, text: str) -> None:
    path = tmp_path / "templates.txt"
    path.write_text(text, encoding="utf-8")
    assert read_styles(path) == [["a bad photo of a {}."], ["a {} in a video game."]]


def test_labels_of_imagenet_21k_are_read_as_their_lists_have_them(tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    path.write_text(
        "organism, being\nn00015388\tanimal, animate_being, beast\nn02012849 crane\nn03126707"
        " Crane\n\nn01440764\nhot_dog\n"
    )
    assert read_names(path) == ("organism", "animal", "crane", "tench", "hot dog")
    path.write_text("n00004475\n")
    with pytest.raises(SoritesError, match="line 1: n00004475"):
        read_names(path)
    with pytest.raises(SoritesError, match="one class name per line"):
        read_names(tmp_path / "none.txt")


def test_triplets_of_21_thousand_labels_take_little_time() -> None:
    names = [f"object {i}" for i in range(21_000)]
    made = triplets(names, [[f"{i} {{}}"] for i in range(80)], 3000)
    assert len(made.texts) > 8500
    assert made.places.shape == (3000, 3)


def test_invalid_labels_and_templates_raise(tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="got 'a cat'"):
        triplets(OBJECTS, [["a {}"], ["a cat"]], 1)
    with pytest.raises(SoritesError, match="got 1 and 3"):
        triplets(["cat", "cat"], SIMPLE, 1)
    with pytest.raises(SoritesError, match="cannot read .*Expected templates, one per line"):
        read_styles(tmp_path / "none.txt")

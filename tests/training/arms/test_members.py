"""Which trainings a comparison is made of."""

import pytest

from sorites.core.errors import SoritesError
from sorites.training.arms import Member, members
from sorites.training.recipe import load


def test_every_arm_has_every_seed_and_whole_seeds_come_first():
    assert [member.name for member in members(["none", "optics"], 2, 5)] == [
        "none_5",
        "optics_5",
        "none_6",
        "optics_6",
    ]


def test_an_arm_changes_the_augmentation_and_the_seed_alone():
    base = load("cifar_optics")
    recipe = Member("optics+augmix", 3).recipe(base)
    assert recipe.augment.names == "optics,augmix"
    assert recipe.seed == 3
    assert recipe.augment.options == {"optics": {"scaled": 4}}
    assert (
        recipe.override({"augment.names": "none", "seed": 0}).hash()
        == base.override({"augment.names": "none"}).hash()
    )


@pytest.mark.parametrize(
    ("arm", "options"),
    [
        ("optics", {"scaled": 4, "augmix": {"severity": 1}}),
        ("none", {"scaled": 4, "augmix": {"severity": 1}}),
        ("augmix", {"optics": {"scaled": 4}, "augmix": {"severity": 1}}),
        ("optics+augmix", {"optics": {"scaled": 4}, "augmix": {"severity": 1}}),
    ],
)
def test_options_without_a_name_stay_with_the_augmentation_of_the_recipe(arm, options):
    base = load("cifar_optics").override(
        {"augment": {"names": "optics", "options": {"scaled": 4, "augmix": {"severity": 1}}}}
    )
    assert Member(arm, 0).recipe(base).augment.options == options


def test_options_that_are_set_together_with_a_name_are_for_that_name():
    base = load("cifar_optics").override({"augment": {"names": "optics", "options": {"scaled": 4}}})
    changed = base.override({"augment.names": "augmix", "augment.options.severity": 1})
    assert changed.augment.options == {"optics": {"scaled": 4}, "severity": 1}


def test_suites_are_not_what_weights_follow_from():
    base = load("cifar_optics")
    assert base.override({"suites": ("demo",)}).hash() == base.hash()
    assert "suites" not in base.described()


@pytest.mark.parametrize(
    ("arms", "seeds", "said"),
    [
        (["none"], 1, "at least two"),
        (["none", "none"], 1, "each augmentation"),
        (["none", ""], 1, "each augmentation"),
        (["none", "optics"], 0, "at least one seed"),
    ],
)
def test_what_cannot_be_compared_is_refused(arms, seeds, said):
    with pytest.raises(SoritesError, match=said):
        members(arms, seeds)

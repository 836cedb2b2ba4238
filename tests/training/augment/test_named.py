"""Augmentations by name, and options that find the one they are for."""

import pytest

from sorites.core.errors import SoritesError, UnknownName
from sorites.training import (
    AugMix,
    AugMixReleased,
    CameraAugment,
    Cascade,
    Digital,
    LensAugment,
    OpticsAugment,
    ShiftAugment,
    augmentation,
)
from sorites.training.augment import Chain, Flip, NoAugment
from sorites.training.augment.named import of_recipe


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ("none", NoAugment), ("flip", Flip), ("optics", OpticsAugment), ("augmix", AugMix), ("cascade", Cascade), ("augmix_released", AugMixReleased),
        ("digital", Digital), ("lens", LensAugment), ("camera", CameraAugment), ("fog", ShiftAugment), ("optics,augmix", Chain),
    ],
)  # fmt: skip
def test_each_name_makes_its_kind_for_the_size(spec, kind):
    made = augmentation(spec, 32)
    assert type(made) is kind
    assert made.size == 32


def test_a_chain_keeps_its_order():
    made = augmentation("augmix, fog,optics", 32, {"optics": {"scaled": 4}, "fog": {"probability": 0.5}})
    assert [type(part) for part in made.parts] == [AugMix, ShiftAugment, OpticsAugment]
    assert made.parts[1].probability == 0.5
    assert made.parts[2].blur.side == 13


def test_options_go_to_the_one_that_is_named():
    shared = {"optics": {"scaled": 4, "severity": [1, 3]}, "augmix": {"severity": 1}}
    assert augmentation("optics", 32, shared).severities == (1.0, 3.0)
    assert augmentation("augmix", 32, shared).severity == 1
    assert type(augmentation("none", 32, shared)) is NoAugment
    cascade = augmentation("cascade", 32, shared)
    assert cascade.optics.severities == (1.0, 3.0)
    assert cascade.augmix.severity == 1
    assert augmentation("optics", 32, {"scaled": 4, "severity": 2}).severities == (2.0,)
    assert augmentation("camera", 32, {"grid": "test", "probability": 0.5}).probability == 0.5
    assert augmentation("coma", 32, {"options": {"scaled": 4}, "settings": [2]}).settings == (2,)


@pytest.mark.parametrize(
    ("spec", "options", "said"),
    [
        ("optic", {}, "no augmentation named 'optic'. Did you mean optics"),
        ("optics,", {}, "no augmentation named ''"),
        ("optics", {"scale": 4}, "no option of the augmentation optics named 'scale'. Did you mean scaled"),
        ("cascade", {"optics": {"scale": 4}}, "no option of the augmentation optics named 'scale'"),
        ("cascade", {"scaled": 4}, "no option of the augmentation cascade named 'scaled'"),
        ("none", {"severity": 4}, "It has none"),
        ("lens", {"padding": "zeros"}, "no option of the augmentation lens named 'padding'"),
        ("fog", {"strength": 4}, "It has options, probability, settings"),
    ],
)
def test_unknown_names_are_told_with_the_nearest(spec, options, said):
    with pytest.raises(UnknownName, match=said):
        augmentation(spec, 32, options)


def test_a_name_of_a_shift_that_is_also_an_option_goes_by_its_value():
    assert augmentation("digital", 32, {"contrast": 0.25, "fog": {"probability": 0.5}}).factors[1] == 0.25
    assert type(augmentation("flip", 32, {"contrast": {"probability": 0.5}})) is Flip


@pytest.mark.parametrize(
    ("names", "options", "said"),
    [
        ("augmix", {"scaled": 4}, r"= \{ optics = \{ scaled = 4 \} \}"),
        ("optics,augmix", {"severity": 3}, "options = { optics = { severity = 3 } }"),
        ("optic", {"scaled": 4}, "no augmentation named 'optic'"),
        ("optics", {"scale": 4}, "Did you mean scaled"),
    ],
)
def test_a_recipe_s_options_for_another_augmentation_are_told_with_the_form(names, options, said):
    with pytest.raises(SoritesError, match=said):
        of_recipe(names, 32, options)
    assert of_recipe("none", 32, options) is None


def test_options_of_a_chain_need_a_name():
    with pytest.raises(SoritesError, match="such as optics.severity"):
        augmentation("optics,augmix", 32, {"severity": 3})
    with pytest.raises(SoritesError, match="options of optics"):
        augmentation("optics", 32, {"optics": 4})

"""The published recipes hold what the papers and their released code say."""

from __future__ import annotations

import pytest
from PIL import Image

from sorites.training.recipe import builtin_recipes, load, variants

EVERY = [f"{name}@{one}" if one else name for name in builtin_recipes() for one in (variants(name) or [""])]
PUBLISHED = {
    "flowers_cars",
    "focus_finetune",
    "imagenet_es_ladder",
    "optics_augment",
    "synthetic",
    "tiny_imagenet_heads",
}


@pytest.mark.parametrize("name", EVERY)
def test_every_recipe_is_read_and_says_what_it_is(name: str) -> None:
    recipe = load(name)
    assert recipe.name == name
    assert recipe.about.endswith((".", "s"))


def test_the_published_ones_are_there() -> None:
    assert set(builtin_recipes()) >= PUBLISHED


def test_the_ladder_is_that_of_the_supplement_and_its_code() -> None:
    rungs = {number: load(f"imagenet_es_ladder@{number}") for number in range(1, 7)}
    for number, rung in rungs.items():
        optimiser, schedule = rung.optimiser, rung.schedule
        assert (optimiser.kind, optimiser.lr, optimiser.momentum, optimiser.weight_decay) == (
            "sgd",
            0.001,
            0.9,
            1e-4,
        )
        assert rung.batch == (128 if number == 6 else 256)
        # The released code: the factor falls to 1e-6 / (lr * batch / 256).
        assert (schedule.kind, rung.epochs, rung.seed) == ("cosine", 10, 1001)
        assert schedule.floor == pytest.approx(1e-6 * 256 / rung.batch)
        assert (rung.data.captures is not None) == (number > 3)
        assert (rung.data.deep_augment is not None) == rung.augment.jsd == (number in (3, 6))
        assert rung.augment.names == ("none", "digital", "augmix")[(number - 1) % 3]
    # Pillow reads the released fillcolor=128 of an RGB image as a packed colour.
    released = Image.new("RGB", (1, 1), 128).getpixel((0, 0))
    assert [rungs[n].augment.options["fill"] for n in (3, 6)] == [list(released)] * 2  # type: ignore[arg-type]
    validation = rungs[4].data.validation
    assert validation is not None
    assert validation.shifted
    captures = rungs[4].data.captures
    assert captures is not None
    assert (captures.cut, captures.share, captures.measured_on) == (0.8, 0.5, None)
    assert rungs[6].augment.jsd_weight == 12
    cut = load("imagenet_es_ladder@4").override({"data.captures.cut": 0.6}).data.captures
    assert cut is not None
    assert cut.cut == 0.6


def test_heads_are_those_of_table_5() -> None:
    table = {"efficientnet_b0": (5e-3, 20), "resnet18": (5e-2, 15), "vit": (5e-3, 20), "swin_b": (5e-3, 20)}
    for name, (lr, epochs) in table.items():
        recipe = load(f"tiny_imagenet_heads@{name}")
        assert (recipe.optimiser.lr, recipe.epochs, recipe.batch, recipe.head_only) == (lr, epochs, 128, True)
        assert recipe.schedule.kind == "plateau"


def test_focus_is_split_and_trained_as_released() -> None:
    recipe = load("focus_finetune")
    validation = recipe.data.validation
    assert validation is not None
    assert (validation.share, validation.split, validation.seed) == (0.3, "permuted", 7342984)
    assert (recipe.optimiser.lr, recipe.optimiser.momentum, recipe.epochs, recipe.batch) == (
        1e-4,
        0.9,
        10,
        32,
    )
    assert recipe.head_only
    assert recipe.data.categories == "focus"


def test_only_flowers_has_layer_wise_rates_and_both_begin_with_the_head() -> None:
    flowers, cars = (load(f"flowers_cars@{name}").stretches for name in ("flowers", "cars"))
    assert [stage.head_only for stage in flowers] == [stage.head_only for stage in cars] == [True, False]
    assert [stage.optimiser.layer_decay for stage in (*flowers, *cars)] == [None, 0.75, None, None]


def test_half_of_the_synthetic_recipe_is_made() -> None:
    made = load("synthetic").data.made
    assert made is not None
    assert made.share == 0.5

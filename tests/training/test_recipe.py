"""Recipes: read, checked, overridden."""

from __future__ import annotations

from pathlib import Path

import pytest

from sorites.core.errors import SoritesError
from sorites.training.recipe import Recipe, about, builtin_recipes, load, parse, recorded, variants

DATA = {"source": "cifar:train", "labels": ["cat", "dog"]}


@pytest.mark.parametrize("name", builtin_recipes())
def test_every_recipe_of_the_house_is_sound(name: str) -> None:
    for spec in [f"{name}@{variant}" for variant in variants(name)] or [name]:
        assert load(spec).name == spec
    assert about(name)


def test_the_published_recipe_of_optics_augment() -> None:
    recipe = load("optics_augment")
    assert (recipe.epochs, recipe.batch, recipe.augment.names) == (90, 32, "optics")
    assert (recipe.optimiser.lr, recipe.optimiser.momentum, recipe.optimiser.weight_decay) == (0.1, 0.9, 1e-4)
    assert (recipe.schedule.kind, recipe.schedule.every, recipe.schedule.factor) == ("step", 30, 0.1)


def test_each_mistake_stands_on_a_line_of_its_own() -> None:
    wrong = {"name": "r", "data": {**DATA, "sorce": 1}, "epochs": 0, "optimiser": {"kind": "sdg"}, "bach": 3}
    with pytest.raises(SoritesError) as caught:
        parse(wrong, "r.toml")
    lines = str(caught.value).splitlines()
    assert len(lines) == 4
    assert all(line.startswith("recipe r.toml: ") for line in lines)
    assert any("unknown key 'data.sorce'" in line and "Did you mean source" in line for line in lines)
    assert any("unknown key 'bach'" in line and "batch" in line for line in lines)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"data": {**DATA, "validation": 2}},
            r"data\.validation: expected a table with keys share, split, .*, got 2$",
        ),
        (
            {"data": {"labels": 5}},
            r"data\.source is missing\nrecipe r: data\.labels: expected a text or a list, got 5$",
        ),
        ({"data": {**DATA, "labels": ["a", 2]}}, r"^recipe r: data\.labels\.1: expected a text, got 2$"),
        ({"data": {**DATA, "crop": 0.5}}, r"data\.crop: expected a list, got 0\.5$"),
        (
            {"optimiser": {"kind": "sdg", "lr": 0}},
            r"optimiser\.kind: expected 'sgd' or 'adamw', got 'sdg'\n.*lr: expected a number above 0",
        ),
        ({"stages": [{"epochs": 1.5}]}, r"stages\.0\.epochs: expected a whole number, got 1\.5$"),
        (
            {"augment": {"options": 3}, "head_only": 3},
            r"options: expected a table, got 3\n.*head_only: expected true or false, got 3$",
        ),
    ],
)
def test_mistakes_are_told_in_plain_words(keys: dict[str, object], said: str) -> None:
    with pytest.raises(SoritesError, match=said):
        parse({"name": "r", "data": DATA, "epochs": 1, **keys}, "r")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "epochs, steps"),
        ({"epochs": 1, "steps": 2}, "epochs, steps"),
        ({"epochs": 1, "early_stopping": {"patience": 2}}, "add data.validation = 0.1"),
        (
            {"epochs": 1, "augment": {"names": "augmix", "jsd": True}, "label_smoothing": 0.1},
            "with augment.jsd",
        ),
        ({"stages": [{"epochs": 1}], "head_only": True}, "in the stages"),
        ({"epochs": 1, "data": {**DATA, "validation": {"limit": 3}}}, "share or source"),
        ({"epochs": 1, "data": {**DATA, "crop": [0.9, 0.1]}}, "two shares of the area"),
    ],
)
def test_what_does_not_go_together_is_refused(keys: dict[str, object], said: str) -> None:
    with pytest.raises(SoritesError, match=said):
        parse({"name": "r", "data": DATA, **keys}, "r")


def test_variants_are_laid_over_the_recipe(tmp_path: Path) -> None:
    path = tmp_path / "ladder.toml"
    path.write_text(
        'epochs = 2\n[data]\nsource = "cifar:train"\n[optimiser]\nlr = 0.1\nmomentum = 0.5\n'
        '[variants.a]\nmodel = "lite0"\n[variants.b.optimiser]\nlr = 0.2\n'
    )
    assert load(f"{path}@a").model == "lite0"
    changed = load(f"{path}@b")
    assert (changed.name, changed.optimiser.lr, changed.optimiser.momentum) == ("ladder@b", 0.2, 0.5)
    with pytest.raises(SoritesError, match="ladder.toml@a or"):
        load(path)
    with pytest.raises(SoritesError, match="no variant of .* named 'c'"):
        load(f"{path}@c")


def test_keys_are_replaced_by_dotted_names() -> None:
    recipe = load("cifar_optics").override(
        {"optimiser.lr": 0.02, "epochs": 3, "model": None, "augment.names": "optics"}
    )
    assert (recipe.optimiser.lr, recipe.epochs, recipe.steps, recipe.model) == (0.02, 3, None, "small")
    assert (recipe.augment.names, recipe.optimiser.nesterov) == ("optics", True)
    with pytest.raises(SoritesError, match="unknown key 'optimiser.rl'"):
        recipe.override({"optimiser.rl": 1})
    with pytest.raises(SoritesError, match="model.name"):
        recipe.override({"model.name": 1})


def test_another_source_brings_its_own_validation_part() -> None:
    recipe = load("cifar_optics").override({"data.source": "cifar:test"})
    assert recipe.data.validation is not None
    assert (recipe.data.validation.share, recipe.data.validation.source) == (0.1, None)


def test_keys_that_the_kind_of_a_schedule_does_not_use_are_refused() -> None:
    recipe = parse(
        {"name": "r", "data": DATA, "epochs": 1, "schedule": {"kind": "step", "every": 3, "warm_up": 1}}, "r"
    )
    said = "cosine does not use every"
    with pytest.raises(SoritesError, match=said):
        recipe.override({"schedule.kind": "cosine", "schedule.every": 3})
    with pytest.raises(SoritesError, match="factor and rise"):
        parse(
            {"name": "r", "data": DATA, "stages": [{"epochs": 1, "schedule": {"factor": 0.2, "rise": 0.5}}]},
            "r",
        )
    changed = recipe.override({"schedule.kind": "cosine", "schedule.floor": 0.01}).schedule
    assert (changed.kind, changed.floor, changed.warm_up, changed.model_fields_set) == (
        "cosine", 0.01, 1, {"kind", "floor", "warm_up"}
    )  # fmt: skip


def test_a_variant_may_have_a_schedule_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "kinds.toml"
    path.write_text(
        'epochs = 2\n[data]\nsource = "cifar:train"\n[schedule]\nkind = "step"\nevery = 3\nwarm_up ='
        ' 1\n[variants.a.schedule]\nkind = "cosine"\n[variants.b.schedule]\nevery ='
        " 4\n[variants.c.schedule]\nrise = 0.5\n"
    )
    assert (load(f"{path}@a").schedule.kind, load(f"{path}@a").schedule.warm_up) == ("cosine", 1)
    assert load(f"{path}@b").schedule.every == 4
    with pytest.raises(SoritesError, match="does not use rise"):
        load(f"{path}@c")


@pytest.mark.parametrize("name", builtin_recipes())
def test_what_a_training_wrote_of_its_recipe_is_read_again(name: str) -> None:
    for spec in [f"{name}@{variant}" for variant in variants(name)] or [name]:
        recipe = load(spec)
        assert (
            recorded({"name": recipe.name, **recipe.described()}, "train.json").described()
            == recipe.described()
        )
    ignored = load("cifar_optics").described()
    ignored["schedule"]["every"] = 3
    assert recorded({"name": "r", **ignored}, "train.json").described() == load("cifar_optics").described()


def test_a_stage_has_the_recipes_optimiser_unless_it_names_one() -> None:
    stages = [{"epochs": 1, "head_only": True}, {"steps": 5, "optimiser": {"lr": 0.01}}]
    recipe = parse({"name": "r", "data": DATA, "optimiser": {"lr": 0.5}, "stages": stages}, "r")
    assert [stage.optimiser.lr for stage in recipe.stretches] == [0.5, 0.01]
    assert recipe.override({"epochs": 2}).stretches[0].epochs == 2


def test_the_hash_follows_from_what_is_set() -> None:
    one = parse({"name": "a", "data": DATA, "epochs": 1}, "r")
    assert one.hash() == parse({"name": "b", "data": DATA, "epochs": 1, "seed": 0, "about": "x"}, "r").hash()
    assert one.hash() != one.override({"seed": 1}).hash()


def test_an_unknown_name_is_answered_with_near_ones() -> None:
    with pytest.raises(SoritesError, match="Did you mean cifar_optics"):
        load("cifar_optic")
    assert isinstance(load(load("cifar_optics")), Recipe)

"""A recipe: how a model is trained, in TOML, read and checked before anything runs.

Data only, no logic.

Published recipes have names (``sorites list recipes``). One with variants, such as the experiments
of a paper, is named with the variant after an ``@``: ``imagenet_es_ladder@4``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, StrictBool, StrictInt, ValidationError, field_validator, model_validator

from sorites.core.errors import SoritesError, UnknownName
from sorites.core.rng import digest
from sorites.io.paths import is_file
from sorites.io.readers import toml_file, toml_table
from sorites.io.validation import mistakes
from sorites.suites.suite import Strict

# Parts of a recipe: the data, the augmentation, the optimiser, the schedule, and when to stop early.


class ValidationPart(Strict):
    """The images by which a training is judged while it runs; no weight follows from them, but
    early stopping does.
    """

    share: float | None = Field(default=None, gt=0, lt=1)
    """The share of the training images that is kept aside."""
    split: Literal["hash", "object", "permuted"] = "hash"
    """They are chosen by the hash of their ids; by object, so that no object is on both sides; or as
    torch's ``random_split`` draws them, which is how FOCUS was split.
    """
    seed: StrictInt = 0
    """Other seeds keep other images aside.

    It is not the seed of the training, so that trainings are judged alike.
    """
    source: str | None = None
    """A source of its own, instead of a share."""
    limit: StrictInt | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _one_of_two(self) -> ValidationPart:
        if (self.share is None) == (self.source is None):
            raise ValueError("wanted share or source, one of the two")
        return self


class CapturedPart(Strict):
    """Images as a camera took them, which stand in for the originals now and then (ImageNet-ES,
    experiments 4 to 6).
    """

    by: Literal["files", "camera"] = "files"
    """``files``: the captures that the source holds itself (``imagenet_es:PATH/es-val``);
    ``camera``: the simulated camera.
    """
    cut: float | None = Field(default=0.8, gt=0)
    """Settings whose mean LPIPS is not below this are left out; None keeps all."""
    share: float = Field(default=0.5, gt=0, le=1)
    """The probability that a capture stands in for the original."""
    measured_on: StrictInt | None = Field(default=None, gt=0)
    """So many images are measured for the mean LPIPS of each setting; without it, the settings
    count that the authors keep.
    """


class DeepAugmentPart(Strict):
    """Images that DeepAugment's scripts wrote, after the originals."""

    root: str
    """The folder that holds one folder per network."""
    folders: tuple[str, ...] = ("EDSR", "CAE")


class MadePart(Strict):
    """Made images among the real ones (CNS-Bench, appendix C)."""

    source: str
    """All of its images are taken, shifted ones too: ``cns_bench:PATH``."""
    share: float = Field(default=0.5, gt=0, lt=1)
    """The share of all training images that is made."""


class Data(Strict):
    """The images: where they come from, which classes they have, and how they are brought to the
    network's input.
    """

    source: str
    """A source as everywhere: ``cifar:train``, ``folder:PATH``."""
    labels: str | tuple[str, ...] = "imagenet"
    """``"imagenet"``, ``"coco"``, a text file or a list of class names; ``"found"`` takes the
    classes that the source has.
    """
    limit: StrictInt | None = Field(default=None, gt=0)
    """Take only so many images, the first of a fixed shuffled order, before a validation part is
    kept aside.
    """
    shifted: StrictBool = False
    """Take images of captured shifts too, not only clean ones."""
    validation: ValidationPart | None = None
    captures: CapturedPart | None = None
    deep_augment: DeepAugmentPart | None = None
    categories: Literal["focus"] | None = None
    """Learn FOCUS's ten categories, the labels, with a head of ImageNet's thousand classes: by the
    sum of their probabilities.
    """
    made: MadePart | None = None
    size: StrictInt | None = Field(default=None, gt=0)
    """The side of the network's input in px; without it, the network's own."""
    flip: StrictBool = True
    """Mirror every second image, chosen at random."""
    crop: tuple[float, float] | None = None
    """The least and the largest share of an image's area in a random resized crop (torchvision's
    RandomResizedCrop); without it images are brought to the input as the model will see them.
    """

    @field_validator("validation", mode="before")
    @classmethod
    def _plain_share(cls, given: Any) -> Any:
        return (
            {"share": given}
            if isinstance(given, float)
            else {"source": given}
            if isinstance(given, str)
            else given
        )

    @field_validator("crop")
    @classmethod
    def _shares(cls, crop: tuple[float, float] | None) -> tuple[float, float] | None:
        if crop is not None and not 0 < crop[0] <= crop[1] <= 1:
            raise ValueError("wanted two shares of the area, 0 < least <= largest <= 1")
        return crop


class Augment(Strict):
    """The augmentation of a batch of images before the network sees it."""

    names: str = "none"
    """Augmentations with commas between them: ``optics,augmix``."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the augmentation that is named, or tables of options under the name of the one
    that they are for.
    """
    jsd: StrictBool = False
    """Show each image three times, clean and twice mixed, and add the Jensen-Shannon divergence
    of the answers to the loss.
    """
    jsd_weight: float = Field(default=12.0, gt=0)

    def options_for(self, names: str) -> dict[str, Any]:
        """Return the options as another augmentation may have them: those of this one stand under
        its name, if it has one.
        """
        own = {
            key: value
            for key, value in self.options.items()
            if key == "options" or not isinstance(value, Mapping)
        }
        if not own or names in (self.names, "none") or self.names == "none" or "," in self.names:
            return self.options
        named = {key: value for key, value in self.options.items() if key not in own}
        return {**named, self.names: {**named.get(self.names, {}), **own}}


class Optimiser(Strict):
    """One of torch's optimisers."""

    kind: Literal["sgd", "adamw"] = "sgd"
    lr: float = Field(default=0.1, gt=0)
    """The learning rate at its highest."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    nesterov: StrictBool = False
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = Field(default=1e-4, ge=0)
    layer_decay: float | None = Field(default=None, gt=0, le=1)
    """The learning rate of each layer as a share of that of the layer after it; the head has the
    full rate.
    """
    clip: float | None = Field(default=None, gt=0)
    """The largest norm of the gradient; a longer one is scaled down to it."""


# The keys that a schedule of any kind uses.
ALWAYS = ("kind", "warm_up", "warm_up_from")
# The further keys by kind.
USED = {
    "constant": (),
    "step": ("every", "factor"),
    "cosine": ("floor",),
    "one_cycle": ("rise",),
    "plateau": ("patience", "factor"),
}


def used_keys(schedule: Any, kind: object = None) -> Any:
    """Return a schedule's table without the keys that a kind, by default its own, does not use;
    what is no table stays.
    """
    if not isinstance(schedule, Mapping):
        return schedule
    uses = USED.get(str(kind or schedule.get("kind", "constant")), tuple(schedule))
    return {key: value for key, value in schedule.items() if key in (*ALWAYS, *uses)}


class Schedule(Strict):
    """The learning rate over the steps of a stage."""

    kind: Literal["constant", "step", "cosine", "one_cycle", "plateau"] = "constant"
    every: float = Field(default=30, gt=0)
    """``step``: epochs after which the rate is multiplied by ``factor``."""
    factor: float = Field(default=0.1, gt=0, lt=1)
    patience: StrictInt = Field(default=10, ge=0)
    """``plateau``: times that the validation loss may fail to fall before the rate is multiplied by
    ``factor``.
    """
    floor: float = Field(default=0.0, ge=0)
    """``cosine``: the rate that it ends at."""
    rise: float = Field(default=0.25, gt=0, lt=1)
    """``one_cycle``: the share of the steps in which the rate rises, from 1/25 of it; it ends at
    1/250 000.
    """
    warm_up: float = Field(default=0.0, ge=0)
    """Epochs at the beginning in which the rate rises in a straight line; the schedule begins after them."""
    warm_up_from: float = Field(default=0.01, gt=0, le=1)
    """The share of the rate that the warm-up begins with."""

    @model_validator(mode="after")
    def _refuse_unused(self) -> Schedule:
        used = (*USED[self.kind], *ALWAYS[1:])
        others = {key: field for key, field in type(self).model_fields.items() if key not in (*used, "kind")}
        unused = [key for key, field in others.items() if getattr(self, key) != field.default]
        if unused:
            keys = " and ".join(unused)
            raise ValueError(
                f"the schedule {self.kind} does not use {keys}: leave it out. Its keys are {', '.join(used)}"
            )
        return self


class EarlyStopping(Strict):
    """Stop when the accuracy on the validation part has not risen for some epochs; the best weights
    are kept.
    """

    patience: StrictInt = Field(gt=0)


class Stage(Strict):
    """A stretch of training with an optimiser of its own: for example first the head, then all layers."""

    epochs: StrictInt | None = Field(default=None, gt=0)
    steps: StrictInt | None = Field(default=None, gt=0)
    head_only: StrictBool = False
    """Train only the last layer; the others, their batch normalisation included, stay as they are."""
    optimiser: Optimiser = Optimiser()
    schedule: Schedule = Schedule()

    @model_validator(mode="after")
    def _one_length(self) -> Stage:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("wanted epochs or steps, one of the two")
        return self


SEE = 'See "sorites list recipes", or give a path that ends in .toml.'


class Recipe(Strict):
    """A recipe for training: the data, the model it starts from, the augmentation, the optimiser,
    and for how long.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9_.@-]+$")
    about: str = ""
    model: str = "small"
    """The model to start from: small, lite0, timm:NAME, timm:NAME@PATH, trained:DIR; NAME@random
    has random weights.
    """
    data: Data
    augment: Augment = Augment()
    optimiser: Optimiser = Optimiser()
    schedule: Schedule = Schedule()
    epochs: StrictInt | None = Field(default=None, gt=0)
    steps: StrictInt | None = Field(default=None, gt=0)
    """Updates of the weights, instead of epochs."""
    head_only: StrictBool = False
    keep_head: StrictBool = False
    """Begin with those rows of the model's head that stand for the classes, which it must know, not
    with a random head.
    """
    stages: tuple[Stage, ...] = ()
    """Stretches of training one after the other, instead of epochs or steps.

    A stage that names no optimiser or schedule has the recipe's.
    """
    batch: StrictInt = Field(default=64, gt=0)
    accumulate: StrictInt = Field(default=1, gt=0)
    """Batches whose gradients are added up before the weights change."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    early_stopping: EarlyStopping | None = None
    validate_every: float = Field(default=1.0, gt=0)
    """Epochs after which the validation part is looked at; at the end of the training it always is."""
    mixed_precision: StrictBool = True
    """Compute in 16 bits where that is exact enough; on a GPU only."""
    seed: StrictInt = Field(default=0, ge=0, lt=2**63)
    suites: tuple[str, ...] = ()
    """The suites by which ``sorites train arms`` compares trainings by this recipe; no weight
    follows from them.
    """

    @model_validator(mode="before")
    @classmethod
    def _inherit(cls, data: Any) -> Any:
        """Fill in what a stage leaves out, and take a plain text as the names of augmentations."""
        if isinstance(data, dict) and isinstance(data.get("augment"), str):
            data = {**data, "augment": {"names": data["augment"]}}
        if not isinstance(data, dict) or not isinstance(data.get("stages"), list | tuple):
            return data
        shared = {key: data[key] for key in ("optimiser", "schedule") if key in data}
        stages = [{**shared, **stage} if isinstance(stage, Mapping) else stage for stage in data["stages"]]
        return {**data, "stages": stages}

    @model_validator(mode="after")
    def _one_length(self) -> Recipe:
        if sum([self.epochs is not None, self.steps is not None, bool(self.stages)]) != 1:
            raise ValueError("wanted epochs, steps or [[stages]], one of the three")
        if self.stages and self.head_only:
            raise ValueError("head_only belongs in the stages where a recipe has stages")
        if self.early_stopping is not None and self.data.validation is None:
            raise ValueError(
                "early stopping needs a validation part, and the recipe has none: add data.validation = 0.1"
            )
        if self.augment.jsd and self.label_smoothing:
            raise ValueError("label_smoothing does not go with augment.jsd, whose loss has no smoothing")
        if self.data.validation is None and any(stage.schedule.kind == "plateau" for stage in self.stretches):
            raise ValueError(
                "the schedule plateau needs a validation part, and the recipe has none: add data.validation"
                " = 0.1"
            )
        return self

    @property
    def stretches(self) -> tuple[Stage, ...]:
        """The stages; a recipe without some is one stage itself."""
        one = Stage.model_construct(
            epochs=self.epochs,
            steps=self.steps,
            head_only=self.head_only,
            optimiser=self.optimiser,
            schedule=self.schedule,
        )
        return self.stages or (one,)

    def described(self) -> dict[str, Any]:
        """Return what the weights follow from, as plain data."""
        return self.model_dump(mode="json", exclude={"name", "about", "suites"})

    def hash(self) -> str:
        """Return a hash of what the weights follow from; a key added later enters it only where it is set."""
        plain = self.model_dump(mode="json", exclude={"name", "about", "suites"}, exclude_defaults=True)
        return digest(json.dumps(plain, sort_keys=True)).hex()

    def override(self, changes: Mapping[str, Any]) -> Recipe:
        """Return a copy with some keys replaced, by dotted names such as ``optimiser.lr``; None
        means: as the recipe has it.

        The limit goes with the recipe's own source, and so does a validation part from a source:
        with another source all images are taken, and a tenth is kept aside, unless something else
        is said. Options of its own augmentation stay its own, and keys of its schedule that one of
        another kind does not use are dropped.
        """
        data = self.model_dump(exclude_unset=True)
        given = {key: value for key, value in changes.items() if value is not None}
        for one, other in (("epochs", "steps"), ("steps", "epochs")):
            if one in given:
                data.pop(other, None)
                data.pop("stages", None)
        if given.get("data.source", self.data.source) != self.data.source:
            data["data"] = {key: value for key, value in data["data"].items() if key != "limit"}
            if self.data.validation is not None and self.data.validation.source is not None:
                data["data"]["validation"] = {"share": 0.1}
        if "schedule.kind" in given and "schedule" in data:
            data["schedule"] = used_keys(data["schedule"], given["schedule.kind"])
        if self.augment.options and "augment.names" in given:
            data["augment"] = {
                **data["augment"],
                "options": self.augment.options_for(str(given["augment.names"])),
            }
        for key, value in given.items():
            _put(data, key.split("."), value, key)
        return parse(data, self.name)


def _put(data: dict[str, Any], path: list[str], value: Any, key: str) -> None:
    first, *rest = path
    if not rest:
        data[first] = value
        return
    inner = data.get(first)
    inner = {} if inner is None else inner
    if not isinstance(inner, dict):
        raise SoritesError(f"{key}: {first} holds no keys of its own")
    data[first] = {**inner}
    _put(data[first], rest, value, key)


def defaults() -> dict[str, Any]:
    """Return the keys that have a default, with it."""
    return parse({"name": "r", "data": {"source": ""}, "steps": 1}, "r").described()


def builtin_recipes() -> list[str]:
    """Return the names of the recipes that come with the package."""
    folder = files("sorites.training").joinpath("recipes")
    return sorted(
        entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")
    )


def load(spec: str | Path | Recipe) -> Recipe:
    """Return a recipe by its name or the path of a TOML file, each perhaps with a variant:
    ``imagenet_es_ladder@4``.
    """
    if isinstance(spec, Recipe):
        return spec
    text = str(spec)
    plain, _, variant = (
        (text, "", "") if is_file(text) else text.rpartition("@") if "@" in text else (text, "", "")
    )
    held, name = _held(plain)
    about_variants: Any = held.pop("variants", {})
    if not isinstance(about_variants, dict) or not all(
        isinstance(part, dict) for part in about_variants.values()
    ):
        raise SoritesError(f"recipe {plain}: variants: wanted tables [variants.NAME] of keys that differ")
    if not variant and about_variants:
        raise SoritesError(
            f"recipe {plain} has variants: name one,"
            f" {' or '.join(f'{plain}@{one}' for one in about_variants)}"
        )
    if variant and variant not in about_variants:
        raise UnknownName(
            f"variant of {plain}", variant, about_variants, f"It has {', '.join(about_variants) or 'none'}."
        )
    chosen = _varied(held, about_variants[variant]) if variant else held
    return parse({"name": f"{name}@{variant}" if variant else name, **chosen}, text)


def variants(spec: str) -> list[str]:
    """Return the names of a recipe's variants; most recipes have none."""
    return list(_held(spec)[0].get("variants", {}))


def about(name: str) -> str:
    """Return the line about a built-in recipe, with the names of its variants."""
    named = variants(name)
    said = str(_held(name)[0].get("about", ""))
    return f"{said}  [{', '.join(f'@{one}' for one in named)}]" if named else said


def _held(spec: str) -> tuple[dict[str, Any], str]:
    """Return what a recipe's file holds, and its name."""
    if spec in builtin_recipes():
        text = files("sorites.training").joinpath("recipes", f"{spec}.toml").read_text(encoding="utf-8")
        return toml_table(text), spec
    path = Path(spec)
    if path.suffix != ".toml":
        raise UnknownName("recipe", spec, builtin_recipes(), SEE)
    return toml_file(path, "a recipe in TOML"), re.sub(r"[^A-Za-z0-9_.-]", "_", path.stem) or "recipe"


def _varied(held: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe's table with a variant laid over it; a schedule of another kind loses the
    keys that it does not use.
    """
    schedule = other.get("schedule")
    kind = schedule.get("kind") if isinstance(schedule, Mapping) else None
    before = {**held, "schedule": used_keys(held["schedule"], kind)} if kind and "schedule" in held else held
    return _merged(before, other)


def _merged(base: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with the keys of another laid over it, tables inside it likewise; lists are
    replaced whole.
    """
    made = {**base}
    for key, value in other.items():
        inner = made.get(key)
        made[key] = (
            _merged(inner, value) if isinstance(value, Mapping) and isinstance(inner, Mapping) else value
        )
    return made


def recorded(data: Mapping[str, Any], where: str) -> Recipe:
    """Return the recipe of a training that was begun before: it holds all keys, those too that its
    schedules do not use.
    """
    plain = {**data, "schedule": used_keys(data.get("schedule", {}))}
    stages = [{**stage, "schedule": used_keys(stage.get("schedule", {}))} for stage in data.get("stages", ())]
    return parse({**plain, "stages": stages}, where)


def parse(data: dict[str, Any], where: str) -> Recipe:
    """Return checked data as a recipe; each mistake stands on a line of its own."""
    try:
        return Recipe.model_validate(data)
    except ValidationError as error:
        raise SoritesError(
            "\n".join(f"recipe {where}: {line}" for line in mistakes(error, Recipe))
        ) from error

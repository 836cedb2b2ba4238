"""Training recipes: TOML files that are validated before anything runs.

Published recipes have names (``sorites list recipes``). A variant, such as one of a paper's experiments, is
named after an ``@``: ``imagenet_es_ladder@4``.
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
from sorites.core.messages import command
from sorites.core.rng import digest
from sorites.io.paths import is_file
from sorites.io.readers import toml_file, toml_table
from sorites.io.validation import problems
from sorites.suites.suite import Strict

# Sections of a recipe.


class ValidationPart(Strict):
    """The validation images. They do not affect the weights, except through early stopping."""

    share: float | None = Field(default=None, gt=0, lt=1)
    """Hold out this share of the training images."""
    split: Literal["hash", "object", "permuted"] = "hash"
    """The choice of these: by the hash of their ids, by object (so that no object is on both sides), or as
    torch's ``random_split`` does, which is how FOCUS was split.
    """
    seed: StrictInt = 0
    """Seed of the split. It differs from the training seed, so that trainings are validated alike."""
    source: str | None = None
    """Take validation images from this source instead of holding out a share."""
    limit: StrictInt | None = Field(default=None, gt=0)
    shifted: StrictBool = False
    """Of a source, validate on images of captured shifts too, not only on clean ones."""

    @model_validator(mode="after")
    def _one_of_two(self) -> ValidationPart:
        if (self.share is None) == (self.source is None):
            raise ValueError("set either share or source")
        if self.shifted and self.source is None:
            raise ValueError("shifted needs a source of captures")
        return self


class CapturedPart(Strict):
    """Replace originals by camera captures at random (ImageNet-ES, experiments 4 to 6)."""

    by: Literal["files", "camera"] = "files"
    """``files``: captures in the source itself (``imagenet_es:PATH/es-val``); ``camera``: the simulated
    camera.
    """
    cut: float | None = Field(default=0.8, gt=0)
    """Use only camera settings with a mean LPIPS below this; None uses all."""
    share: float = Field(default=0.5, gt=0, le=1)
    """Probability of replacing an original by a capture."""
    measured_on: StrictInt | None = Field(default=None, gt=0)
    """Number of images to measure the mean LPIPS of each setting on; by default the authors' published
    selection is used.
    """


class DeepAugmentPart(Strict):
    """Images written by DeepAugment's scripts, added to the originals."""

    root: str
    """Folder with one subfolder per network."""
    folders: tuple[str, ...] = ("EDSR", "CAE")


class MadePart(Strict):
    """Generated images mixed with real ones (CNS-Bench, appendix C)."""

    source: str
    """Source of the generated images, such as ``cns_bench:PATH``; all are used, shifted ones too."""
    share: float = Field(default=0.5, gt=0, lt=1)
    """Share of generated images among all training images."""


class Data(Strict):
    """The training images: source, classes, and preparation for the network's input."""

    source: str
    """Source spec, such as ``cifar:train`` or ``folder:PATH``."""
    labels: str | tuple[str, ...] = "imagenet"
    """``"imagenet"``, ``"coco"``, a text file, or a list of class names; ``"found"`` uses the classes of
    the source.
    """
    limit: StrictInt | None = Field(default=None, gt=0)
    """Use only this many images, in a fixed shuffled order, before the validation split."""
    shifted: StrictBool = False
    """Use images of captured shifts too, not only clean ones."""
    follow_links: StrictBool = False
    """Follow symbolic links that leave the folder of a source; links inside it are always followed."""
    validation: ValidationPart | None = None
    captures: CapturedPart | None = None
    deep_augment: DeepAugmentPart | None = None
    categories: Literal["focus"] | None = None
    """Train on FOCUS's ten categories with an ImageNet head, by summing class probabilities."""
    made: MadePart | None = None
    size: StrictInt | None = Field(default=None, gt=0)
    """Side of the network's input in px; by default the network's own."""
    flip: StrictBool = True
    """Mirror images with probability one half."""
    crop: tuple[float, float] | None = None
    """Minimum and maximum share of the area in a random resized crop (torchvision's RandomResizedCrop);
    without it, images are prepared as for evaluation.
    """

    @field_validator("validation", mode="before")
    @classmethod
    def _plain_share(cls, value: Any) -> Any:
        return (
            {"share": value}
            if isinstance(value, float)
            else {"source": value}
            if isinstance(value, str)
            else value
        )

    @field_validator("crop")
    @classmethod
    def _shares(cls, crop: tuple[float, float] | None) -> tuple[float, float] | None:
        if crop is not None and not 0 < crop[0] <= crop[1] <= 1:
            raise ValueError("expected two shares of the area, 0 < minimum <= maximum <= 1")
        return crop


class Augment(Strict):
    """The augmentation of image batches."""

    names: str = "none"
    """Augmentations, separated by commas: ``optics,augmix``."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the augmentation, or tables of options by augmentation name."""
    jsd: StrictBool = False
    """Use three views of each image, one clean and two augmented, and add the Jensen-Shannon divergence of
    the predictions to the loss.
    """
    jsd_weight: float = Field(default=12.0, gt=0)

    def options_for(self, names: str) -> dict[str, Any]:
        """Return the options for other augmentations: plain options move under this augmentation's name."""
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
    """The optimiser, one of torch's."""

    kind: Literal["sgd", "adamw"] = "sgd"
    lr: float = Field(default=0.1, gt=0)
    """Peak learning rate."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    nesterov: StrictBool = False
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = Field(default=1e-4, ge=0)
    layer_decay: float | None = Field(default=None, gt=0, le=1)
    """Learning rate of each layer relative to the next layer; the head has the full rate."""
    clip: float | None = Field(default=None, gt=0)
    """Clip the gradient to this norm."""


# Keys used by all kinds of schedule.
SHARED_SCHEDULE_KEYS = ("kind", "warm_up", "warm_up_from")
# Additional keys by kind.
SCHEDULE_KEYS = {
    "constant": (),
    "step": ("every", "factor"),
    "cosine": ("floor",),
    "one_cycle": ("rise",),
    "plateau": ("patience", "factor"),
}


def used_keys(schedule: Any, kind: object = None) -> Any:
    """Drop the keys of a schedule table that its kind (or ``kind``) does not use.

    Other values are returned unchanged.
    """
    if not isinstance(schedule, Mapping):
        return schedule
    uses = SCHEDULE_KEYS.get(str(kind or schedule.get("kind", "constant")), tuple(schedule))
    return {key: value for key, value in schedule.items() if key in (*SHARED_SCHEDULE_KEYS, *uses)}


class Schedule(Strict):
    """The learning rate over the steps of a stage."""

    kind: Literal["constant", "step", "cosine", "one_cycle", "plateau"] = "constant"
    every: float = Field(default=30, gt=0)
    """``step``: multiply the rate by ``factor`` after this many epochs."""
    factor: float = Field(default=0.1, gt=0, lt=1)
    patience: StrictInt = Field(default=10, ge=0)
    """``plateau``: multiply the rate by ``factor`` after more than this many validations without a lower
    loss.
    """
    floor: float = Field(default=0.0, ge=0)
    """``cosine``: the final rate."""
    rise: float = Field(default=0.25, gt=0, lt=1)
    """``one_cycle``: share of the steps in which the rate rises from 1/25 of its peak; it ends at 1/250
    000.
    """
    warm_up: float = Field(default=0.0, ge=0)
    """Epochs of linear warm-up before the schedule starts."""
    warm_up_from: float = Field(default=0.01, gt=0, le=1)
    """Initial share of the rate during warm-up."""

    @model_validator(mode="after")
    def _refuse_unused(self) -> Schedule:
        used = (*SCHEDULE_KEYS[self.kind], *SHARED_SCHEDULE_KEYS[1:])
        others = {key: field for key, field in type(self).model_fields.items() if key not in (*used, "kind")}
        unused = [key for key, field in others.items() if getattr(self, key) != field.default]
        if unused:
            keys = " and ".join(unused)
            raise ValueError(
                f"the schedule {self.kind} does not use {keys}; remove it. Its keys are {', '.join(used)}"
            )
        return self


class EarlyStopping(Strict):
    """Stop when the validation accuracy has stalled for ``patience`` validations; keep the best weights."""

    patience: StrictInt = Field(gt=0)


class Stage(Strict):
    """A phase of training with its own optimiser and schedule, e.g. first the head, then all layers."""

    epochs: StrictInt | None = Field(default=None, gt=0)
    steps: StrictInt | None = Field(default=None, gt=0)
    head_only: StrictBool = False
    """Train only the last layer; all others, including their batch normalization, stay frozen."""
    optimiser: Optimiser = Optimiser()
    schedule: Schedule = Schedule()

    @model_validator(mode="after")
    def _one_length(self) -> Stage:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("set either epochs or steps")
        return self


RECIPE_HINT = f"See {command('list', 'recipes')}, or pass a path that ends in .toml."


class Recipe(Strict):
    """A training recipe: data, initial model, augmentation, optimiser, and duration."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.@-]+$")
    about: str = ""
    task: Literal["labels", "boxes"] = "labels"
    """``labels``: train a classifier; ``boxes``: train a detector, FCOS with ``model`` as its backbone, on a
    source with ground-truth boxes.
    """
    model: str = "small"
    """Initial model: small, lite0, timm:NAME, timm:NAME@PATH, trained:DIR; NAME@random has random weights."""
    data: Data
    augment: Augment = Augment()
    optimiser: Optimiser = Optimiser()
    schedule: Schedule = Schedule()
    epochs: StrictInt | None = Field(default=None, gt=0)
    steps: StrictInt | None = Field(default=None, gt=0)
    """Number of weight updates, instead of epochs."""
    head_only: StrictBool = False
    keep_head: StrictBool = False
    """Start from the rows of the model's head for these classes, which it must know, instead of a random
    head.
    """
    stages: tuple[Stage, ...] = ()
    """Phases of training, instead of epochs or steps. Stages inherit the recipe's optimiser and schedule."""
    batch: StrictInt = Field(default=64, gt=0)
    accumulate: StrictInt = Field(default=1, gt=0)
    """Number of batches whose gradients are accumulated before an update."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    early_stopping: EarlyStopping | None = None
    validate_every: float = Field(default=1.0, gt=0)
    """Epochs between two validations; the end of the training is always validated."""
    mixed_precision: StrictBool = True
    """Use 16-bit autocast on GPUs."""
    seed: StrictInt = Field(default=0, ge=0, lt=2**63)
    suites: tuple[str, ...] = ()
    """Suites to evaluate with when comparing arms; they do not affect the weights."""

    @model_validator(mode="before")
    @classmethod
    def _inherit(cls, data: Any) -> Any:
        """Let stages inherit shared keys, and accept a plain text as augmentation names."""
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
            raise ValueError("set exactly one of epochs, steps and [[stages]]")
        if self.stages and self.head_only:
            raise ValueError("with [[stages]], set head_only in the stages")
        if self.early_stopping is not None and self.data.validation is None:
            raise ValueError("early stopping needs a validation part; add data.validation = 0.1")
        if self.task == "boxes":
            self._refuse_for_boxes()
        if self.augment.jsd and self.label_smoothing:
            raise ValueError("label_smoothing cannot be combined with augment.jsd")
        if self.data.validation is None and any(stage.schedule.kind == "plateau" for stage in self.stretches):
            raise ValueError("the schedule plateau needs a validation part; add data.validation = 0.1")
        return self

    def _refuse_for_boxes(self) -> None:
        """Raise an error for keys that have no meaning for detectors."""
        used = [key for key in ("early_stopping", "label_smoothing", "keep_head") if getattr(self, key)]
        parts = ("captures", "deep_augment", "categories", "made")
        used += [f"data.{key}" for key in parts if getattr(self.data, key)]
        used += ["augment.jsd"] if self.augment.jsd else []
        if used:
            raise ValueError(f'task = "boxes" cannot be combined with {" and ".join(used)}; remove it')

    @property
    def stretches(self) -> tuple[Stage, ...]:
        """The stages; a recipe without stages is a single stage."""
        single = Stage.model_construct(
            epochs=self.epochs,
            steps=self.steps,
            head_only=self.head_only,
            optimiser=self.optimiser,
            schedule=self.schedule,
        )
        return self.stages or (single,)

    def described(self) -> dict[str, Any]:
        """Return all keys that affect the weights, as plain data."""
        return self.model_dump(mode="json", exclude={"name", "about", "suites"})

    def hash(self) -> str:
        """Return a hash of the keys that affect the weights.

        Defaults are left out, so adding a key keeps old hashes.
        """
        plain = self.model_dump(mode="json", exclude={"name", "about", "suites"}, exclude_defaults=True)
        return digest(json.dumps(plain, sort_keys=True)).hex()

    def override(self, changes: Mapping[str, Any]) -> Recipe:
        """Return a copy with some keys replaced.

        With a new source, the limit is dropped and a validation part from a source becomes a share of 0.1,
        unless overridden too. Augmentation options stay with their augmentation, and schedule keys that a new
        kind does not use are dropped.

        Args:
            changes: Values by dotted key, such as ``optimiser.lr``; None keeps the recipe's value.
        """
        data = self.model_dump(exclude_unset=True)
        overrides = {key: value for key, value in changes.items() if value is not None}
        for key, alternative in (("epochs", "steps"), ("steps", "epochs")):
            if key in overrides:
                data.pop(alternative, None)
                data.pop("stages", None)
        if overrides.get("data.source", self.data.source) != self.data.source:
            data["data"] = {key: value for key, value in data["data"].items() if key != "limit"}
            if self.data.validation is not None and self.data.validation.source is not None:
                data["data"]["validation"] = {"share": 0.1}
        if "schedule.kind" in overrides and "schedule" in data:
            data["schedule"] = used_keys(data["schedule"], overrides["schedule.kind"])
        if self.augment.options and "augment.names" in overrides:
            data["augment"] = {
                **data["augment"],
                "options": self.augment.options_for(str(overrides["augment.names"])),
            }
        for key, value in overrides.items():
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
        raise SoritesError(f"{key}: {first} is not a table")
    data[first] = {**inner}
    _put(data[first], rest, value, key)


def defaults() -> dict[str, Any]:
    """Return all keys with a default value."""
    return parse({"name": "r", "data": {"source": ""}, "steps": 1}, "r").described()


def builtin_recipes() -> list[str]:
    """Return the names of the built-in recipes."""
    folder = files("sorites.training").joinpath("recipes")
    return sorted(
        entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")
    )


def load(spec: str | Path | Recipe) -> Recipe:
    """Load a recipe by name or path of a TOML file, optionally with a variant: ``imagenet_es_ladder@4``."""
    if isinstance(spec, Recipe):
        return spec
    text = str(spec)
    base, variant = _split_variant(text)
    table, name = _read_table(base)
    options: Any = table.pop("variants", {})
    if not isinstance(options, dict) or not all(isinstance(part, dict) for part in options.values()):
        raise SoritesError(f"recipe {base}: variants must be tables [variants.NAME] of keys")
    if not variant:
        if options:
            choices = " or ".join(f"{base}@{option}" for option in options)
            raise SoritesError(f"recipe {base} has variants; choose {choices}")
        return parse({"name": name, **table}, text)
    if variant not in options:
        raise UnknownName(f"variant of {base}", variant, options, f"It has {', '.join(options) or 'none'}.")
    return parse({"name": f"{name}@{variant}", **_apply_variant(table, options[variant])}, text)


def _split_variant(text: str) -> tuple[str, str]:
    """Split ``NAME@VARIANT``; the path of an existing file may contain an @ itself."""
    if is_file(text) or "@" not in text:
        return text, ""
    base, _, variant = text.rpartition("@")
    return base, variant


def variants(spec: str) -> list[str]:
    """Return the names of a recipe's variants."""
    return list(_read_table(spec)[0].get("variants", {}))


def about(name: str) -> str:
    """Return the description of a built-in recipe, with the names of its variants."""
    names = variants(name)
    description = str(_read_table(name)[0].get("about", ""))
    return f"{description}  [{', '.join(f'@{name}' for name in names)}]" if names else description


def _read_table(spec: str) -> tuple[dict[str, Any], str]:
    """Return the table in a recipe file, and the recipe's name."""
    if spec in builtin_recipes():
        text = files("sorites.training").joinpath("recipes", f"{spec}.toml").read_text(encoding="utf-8")
        return toml_table(text), spec
    path = Path(spec)
    if path.suffix != ".toml":
        raise UnknownName("recipe", spec, builtin_recipes(), RECIPE_HINT)
    return toml_file(path, "a recipe in TOML"), re.sub(r"[^A-Za-z0-9_.-]", "_", path.stem) or "recipe"


def _apply_variant(table: Mapping[str, Any], variant: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a variant into a recipe's table; a new kind of schedule drops unused keys."""
    schedule = variant.get("schedule")
    kind = schedule.get("kind") if isinstance(schedule, Mapping) else None
    before = (
        {**table, "schedule": used_keys(table["schedule"], kind)} if kind and "schedule" in table else table
    )
    return _merge(before, variant)


def _merge(base: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Merge tables recursively; lists are replaced."""
    merged = {**base}
    for key, value in other.items():
        inner = merged.get(key)
        merged[key] = (
            _merge(inner, value) if isinstance(value, Mapping) and isinstance(inner, Mapping) else value
        )
    return merged


def recorded(data: Mapping[str, Any], where: str) -> Recipe:
    """Return the recipe of an existing training from its record, which includes unused schedule keys."""
    plain = {**data, "schedule": used_keys(data.get("schedule", {}))}
    stages = [{**stage, "schedule": used_keys(stage.get("schedule", {}))} for stage in data.get("stages", ())]
    return parse({**plain, "stages": stages}, where)


def parse(data: dict[str, Any], where: str) -> Recipe:
    """Validate a table and return the recipe; errors list one mistake per line."""
    try:
        return Recipe.model_validate(data)
    except ValidationError as error:
        raise SoritesError(
            "\n".join(f"recipe {where}: {line}" for line in problems(error, Recipe))
        ) from error

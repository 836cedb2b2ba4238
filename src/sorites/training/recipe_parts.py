"""Parts of a recipe: the data, the augmentation, the optimiser, the schedule, and when to stop early."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, StrictBool, StrictInt, field_validator, model_validator

from sorites.frame import Strict


class ValidationPart(Strict):
    """The pictures by which a training is judged while it runs; no weight follows from them, but early stopping does."""

    share: float | None = Field(default=None, gt=0, lt=1)
    """The share of the training pictures that is kept aside."""
    split: Literal["hash", "thing", "permuted"] = "hash"
    """They are chosen by the hash of their ids; by thing, so that no thing is on both sides; or as torch's ``random_split``
    draws them, which is how FOCUS was split."""
    seed: StrictInt = 0
    """Other seeds keep other pictures aside. It is not the seed of the training, so that trainings are judged alike."""
    source: str | None = None
    """A source of its own, instead of a share."""
    limit: StrictInt | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _one_of_two(self) -> ValidationPart:
        if (self.share is None) == (self.source is None):
            raise ValueError("wanted share or source, one of the two")
        return self


class CapturedPart(Strict):
    """Pictures as a camera took them, which stand in for the originals now and then (ImageNet-ES, experiments 4 to 6)."""

    by: Literal["files", "camera"] = "files"
    """``files``: the captures that the source holds itself (``imagenet_es:PATH/es-val``); ``camera``: the simulated camera."""
    cut: float | None = Field(default=0.8, gt=0)
    """Settings whose mean LPIPS is not below this are left out; None keeps all."""
    share: float = Field(default=0.5, gt=0, le=1)
    """The probability that a capture stands in for the original."""
    measured_on: StrictInt | None = Field(default=None, gt=0)
    """So many pictures are measured for the mean LPIPS of each setting; without it, the settings count that the authors keep."""


class DeepAugmentPart(Strict):
    """Pictures that DeepAugment's scripts wrote, after the originals."""

    root: str
    """The folder that holds one folder per network."""
    folders: tuple[str, ...] = ("EDSR", "CAE")


class MadePart(Strict):
    """Made pictures among the real ones (CNS-Bench, appendix C)."""

    source: str
    """All of its pictures are taken, shifted ones too: ``cns_bench:PATH``."""
    share: float = Field(default=0.5, gt=0, lt=1)
    """The share of all training pictures that is made."""


class Data(Strict):
    """The pictures: where they come from, which classes they have, and how they are brought to the network's input."""

    source: str
    """A source as everywhere: ``cifar:train``, ``folder:PATH``."""
    labels: str | tuple[str, ...] = "imagenet"
    """``"imagenet"``, ``"coco"``, a text file or a list of class names; ``"found"`` takes the classes that the source has."""
    limit: StrictInt | None = Field(default=None, gt=0)
    """Take only so many pictures, the first of a fixed shuffled order, before a validation part is kept aside."""
    shifted: StrictBool = False
    """Take pictures of captured shifts too, not only clean ones."""
    validation: ValidationPart | None = None
    captures: CapturedPart | None = None
    deep_augment: DeepAugmentPart | None = None
    categories: Literal["focus"] | None = None
    """Learn FOCUS's ten categories, the labels, with a head of ImageNet's thousand classes: by the sum of their probabilities."""
    made: MadePart | None = None
    size: StrictInt | None = Field(default=None, gt=0)
    """The side of the network's input in px; without it, the network's own."""
    flip: StrictBool = True
    """Mirror every second picture, chosen at random."""
    crop: tuple[float, float] | None = None
    """The least and the largest share of a picture's area in a random resized crop (torchvision's RandomResizedCrop); without it
    pictures are brought to the input as the model will see them."""

    @field_validator("validation", mode="before")
    @classmethod
    def _plain_share(cls, given: Any) -> Any:
        return {"share": given} if isinstance(given, float) else {"source": given} if isinstance(given, str) else given

    @field_validator("crop")
    @classmethod
    def _shares(cls, crop: tuple[float, float] | None) -> tuple[float, float] | None:
        if crop is not None and not 0 < crop[0] <= crop[1] <= 1:
            raise ValueError("wanted two shares of the area, 0 < least <= largest <= 1")
        return crop


class Augment(Strict):
    """The augmentation of a batch of pictures before the network sees it."""

    names: str = "none"
    """Augmentations with commas between them: ``optics,augmix``."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the augmentation that is named, or tables of options under the name of the one that they are for."""
    jsd: StrictBool = False
    """Show each picture three times, clean and twice mixed, and add the Jensen-Shannon divergence of the answers to the loss."""
    jsd_weight: float = Field(default=12.0, gt=0)

    def options_for(self, names: str) -> dict[str, Any]:
        """Return the options as another augmentation may have them: those of this one stand under its name, if it has one."""
        own = {key: value for key, value in self.options.items() if key == "options" or not isinstance(value, Mapping)}
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
    """The learning rate of each layer as a share of that of the layer after it; the head has the full rate."""
    clip: float | None = Field(default=None, gt=0)
    """The largest norm of the gradient; a longer one is scaled down to it."""


ALWAYS = ("kind", "warm_up", "warm_up_from")
"""The keys that a schedule of any kind uses."""
USED = {
    "constant": (),
    "step": ("every", "factor"),
    "cosine": ("floor",),
    "one_cycle": ("rise",),
    "plateau": ("patience", "factor"),
}
"""The further keys by kind."""


def used_keys(schedule: Any, kind: object = None) -> Any:
    """Return a schedule's table without the keys that a kind, by default its own, does not use; what is no table stays."""
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
    """``plateau``: times that the validation loss may fail to fall before the rate is multiplied by ``factor``."""
    floor: float = Field(default=0.0, ge=0)
    """``cosine``: the rate that it ends at."""
    rise: float = Field(default=0.25, gt=0, lt=1)
    """``one_cycle``: the share of the steps in which the rate rises, from 1/25 of it; it ends at 1/250 000."""
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
            raise ValueError(f"the schedule {self.kind} does not use {keys}: leave it out. Its keys are {', '.join(used)}")
        return self


class EarlyStopping(Strict):
    """Stop when the accuracy on the validation part has not risen for some epochs; the best weights are kept."""

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

"""The data of a recipe: training images, a validation part that shares none of them, and the
classes of both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import polars as pl

from sorites import core
from sorites.core import CLEAN, Sample
from sorites.core.errors import MissingExtra, SoritesError, UnknownName
from sorites.core.labels import Labels, OpenLabels, imagenet, labels
from sorites.core.rng import digest
from sorites.evaluation.samples import in_order, unique
from sorites.evaluation.storage.contents import COLUMNS, contents
from sorites.sources.papers.focus import accepted
from sorites.training import captures
from sorites.training.captures import deep_augmented, mixed
from sorites.training.images import Images, SampleImages, Split, by_hash, by_object, objects_of, permuted
from sorites.training.recipe import CapturedPart, Data, Recipe, ValidationPart

if TYPE_CHECKING:
    import torch

# Categories of several classes, learnt with a head that knows the classes: the loss with which FOCUS was
# fine-tuned.


# The classes of each category, as places among the logits.
Groups = Sequence[Sequence[int]]


def focus_groups(categories: Labels) -> Groups:
    """Return the ImageNet classes that each of FOCUS's categories stands for."""
    known = accepted(imagenet())
    for name in categories.ids:
        if name not in known:
            raise UnknownName("category of FOCUS", name, known, f"There are {', '.join(known)}.")
    return [sorted(known[name]) for name in categories.ids]


def collated(logits: torch.Tensor, groups: Groups) -> torch.Tensor:
    """Return logits of the categories, N x (C + 1); the last is that of all classes which are in none."""
    import torch

    taken = {place for group in groups for place in group}
    rest = [place for place in range(logits.shape[1]) if place not in taken]
    parts = [*groups, rest] if rest else list(groups)
    return torch.stack([logits[:, list(part)].logsumexp(1) for part in parts], 1)


# Parts of a recipe's data: the images kept aside, and what stands in for the originals or beside them.


def parted(samples: Sequence[Sample], asked: ValidationPart | None) -> tuple[list[Sample], list[Sample]]:
    """Return the training images and those kept aside; the samples come in the order of their source."""
    if asked is None or asked.share is None:
        return list(samples), []
    share, objects = 1 - asked.share, objects_of(samples)
    if asked.split == "object":
        split = by_object(
            objects, [-1 if sample.label is None else sample.label for sample in samples], share, asked.seed
        )
        train, test = list(split.train), list(split.test)
    else:
        train, test = (
            permuted(len(samples), share, asked.seed)
            if asked.split == "permuted"
            else by_hash(objects, share, asked.seed)
        )
        if train and test:
            Split(tuple(train), tuple(test), objects)  # refuses images of one object on both sides
    return [samples[place] for place in train], [samples[place] for place in test]


def composed(base: SampleImages, data: Data, space: Labels) -> Images:
    """Return the training images with captures in their place, DeepAugment's after them, and made
    ones among them.
    """
    whole: Images = base
    if data.captures is not None:
        whole = _captured(base, data.captures, data.source, space)
    if data.deep_augment is not None:
        whole = deep_augmented(whole, data.deep_augment.root, data.deep_augment.folders)
    if data.made is not None:
        made = [sample for sample in core.source(data.made.source, space) if sample.label is not None]
        whole = mixed(whole, SampleImages([_named(sample) for sample in made]), data.made.share)
    return whole


def _named(sample: Sample) -> Sample:
    """Return a sample under an id that says its setting too, because made images of one object
    share theirs.
    """
    return (
        sample
        if sample.shift == CLEAN
        else replace(sample, id=f"{sample.id} {sample.shift} {sample.setting.canonical}")
    )


def _captured(base: SampleImages, asked: CapturedPart, source: str, space: Labels) -> Images:
    settings = captures.settings("val")
    samples = list(core.source(source, space)) if asked.by == "files" else []

    def shots(kept: Sequence[core.SettingValue]) -> captures.Shots:
        if asked.by == "camera":
            return captures.simulated(base, kept)
        return captures.captured_files(
            base, samples, [setting for setting in kept if not isinstance(setting, float | int)]
        )

    if asked.cut is not None and asked.measured_on is None:
        settings = captures.published_settings(asked.cut)
    elif asked.cut is not None and asked.measured_on is not None:
        settings = captures.kept(
            settings, captures.mean_lpips(base, shots(settings), asked.measured_on), asked.cut
        )
    return captures.Captured(base, shots(settings), asked.share)


# In the place of a list of labels: the classes that the source turns out to have.
FOUND = "found"


@dataclass(frozen=True)
class TrainingData:
    """The images that a training learns from and is judged by."""

    train: Images
    validation: Images | None
    labels: Labels
    framed: bool = False
    """True where images are only scaled to the network's input, never cropped."""
    samples: Mapping[str, Sequence[Sample]] = field(default_factory=dict)
    """The samples behind the images by part, where it is known which; what they are decoded from
    enters the data's hash.
    """
    categories: Groups | None = None
    """The classes that each category stands for, where the labels are categories."""

    def listed(self, before: pl.DataFrame | None = None) -> pl.DataFrame:
        """Return a row for each image: its part, id and label, and the content of its file; files
        known ``before`` are not read again.
        """
        parts = {"train": self.train} | ({} if self.validation is None else {"validation": self.validation})
        return pl.concat([self._rows(part, images, before) for part, images in parts.items()])

    def _rows(self, part: str, images: Images, before: pl.DataFrame | None) -> pl.DataFrame:
        count = range(len(images))
        frame = pl.DataFrame(
            {"part": part, "id": [images.id(i) for i in count], "label": [images.label(i) for i in count]}
        )
        behind = self.samples.get(part, ())
        if len(behind) != len(images):
            return frame.with_columns(pl.lit(None, kind).alias(name) for name, kind in COLUMNS.items())
        known: pl.DataFrame | None = None
        if before is not None and before.height:
            old = before.filter(pl.col("part") == part)
            known = old.select(COLUMNS.names()) if old["id"].to_list() == frame["id"].to_list() else None
        return pl.concat([frame, contents(behind, known)], how="horizontal")


def data_hash(listed: pl.DataFrame) -> str:
    """Return a hash of the ids, labels and contents of all images, in their order."""
    return digest(*listed.select("part", "id", "label", "content").rows()).hex()


def images(recipe: Recipe) -> TrainingData:
    """Return the images that a recipe names; a part that cannot be trained on or judged by is an
    error here.
    """
    data = recipe.data
    found, space = _read(data)
    some = {id(sample) for sample in _fair(found)[: data.limit]}
    kept, aside = parted([sample for sample in found if id(sample) in some], data.validation)
    if data.validation is not None and data.validation.source is not None:
        aside = _labelled(
            _opened(data.validation.source, space, "validation"), data.validation.source, data.shifted
        )
        both = {sample.id for sample in kept} & {sample.id for sample in aside}
        if both and data.validation.source == data.source:
            raise SoritesError(
                f"data.validation: {len(both)} of its {len(aside)} images are training images; take a share"
            )
    kept, aside = _fair(kept), _fair(aside)[: None if data.validation is None else data.validation.limit]
    whole = TrainingData(
        composed(SampleImages(kept), data, space),
        None if data.validation is None else SampleImages(aside),
        space if data.categories is None else imagenet(),
        all(sample.framed for sample in (*kept, *aside)),
        {"train": kept, "validation": aside},
        None if data.categories is None else focus_groups(space),
    )
    check(whole, recipe)
    return whole


def check(data: TrainingData, recipe: Recipe) -> None:
    """Refuse data that cannot be trained on: an empty part, one class, a label without an output."""
    source = recipe.data.source
    if not len(data.train):
        raise SoritesError(f"data: no training images are left of {source} beside the validation part")
    if data.validation is not None and not len(data.validation):
        raise SoritesError(
            f"data.validation: it is empty ({len(data.train)} training images of {source}); take a larger"
            " share"
        )
    for part in (data.train, data.validation) if data.validation is not None else (data.train,):
        _check_labels(part, len(data.labels))
    counted = Counter(data.train.label(place) for place in range(len(data.train)))
    if len(counted) == 1:
        named = data.labels.names if data.categories is None else recipe.data.labels
        only = named[next(iter(counted))]
        raise SoritesError(
            f"data: all {len(data.train)} training images of {source} are of one class ({only}); wanted"
            " several"
        )


def _check_labels(part: Images, classes: int) -> None:
    for place in range(len(part)):
        if not 0 <= part.label(place) < classes:
            raise SoritesError(
                f"{part.id(place)} has the label {part.label(place)}, and the model has outputs for 0 to"
                f" {classes - 1}: name all classes in data.labels"
            )


class _Found(OpenLabels):
    """Takes every class that a source asks for, and remembers how it was spelled."""

    def __bool__(self) -> bool:
        return True

    def find(self, name: str) -> int:
        place = super().find(name)
        self.spelled.setdefault(place, name)
        return place

    @property
    def spelled(self) -> dict[int, str]:
        found: dict[int, str] = self.__dict__.setdefault("_spelled", {})
        return found


def _read(data: Data) -> tuple[list[Sample], Labels]:
    """Return the labelled clean images of the source in a fair order, and the classes."""
    if data.labels != FOUND:
        space = labels(data.labels)
        return _labelled(_opened(data.source, space, "source"), data.source, data.shifted), space
    asked = _Found((), (), {})
    samples = [sample for sample in _opened(data.source, asked, "source") if sample.label is not None]
    used = {sample.label for sample in samples}
    names = sorted(asked.spelled[place] for place in used if place is not None)
    if not names:
        raise SoritesError(
            f"data: {data.source} has no class folders that labels could be found from; name data.labels"
        )
    space = labels(names)
    moved = {place: names.index(name) for place, name in asked.spelled.items() if name in names}
    renamed = [replace(sample, label=moved[sample.label]) for sample in samples if sample.label is not None]
    return _labelled(renamed, data.source, data.shifted), space


def _opened(spec: str, space: Labels, key: str) -> Iterable[Sample]:
    """Return the images of a source; where they cannot be read, the error says which key of the
    recipe names them.
    """
    try:
        return core.source(spec, space)
    except MissingExtra:
        raise
    except SoritesError as error:
        if isinstance(error.__context__, UnknownName):
            raise SoritesError(f"{error} To take the classes that the source has: --labels found") from error
        told = str(error).rstrip(".")
        raise SoritesError(
            f'{told}. The recipe has data.{key} = "{spec}"; name your own: --{key} SOURCE:PATH'
        ) from error


def _labelled(source: Iterable[Sample], where: str, shifted: bool) -> list[Sample]:
    """Return images with their classes, each under an id of its own.

    One of no class stays, to be refused by name, unless its source says that it shows none of the classes.
    """
    some = [sample for sample in source if shifted or sample.shift == CLEAN]
    known = [sample for sample in some if sample.label is not None or sample.split != "unknown"]
    if not known:
        raise SoritesError(f"data: {where} holds no clean images of the classes in data.labels")
    unique(known)
    return known


def _fair(samples: Sequence[Sample]) -> list[Sample]:
    return list(in_order(core.Source("data", samples))) if samples else []

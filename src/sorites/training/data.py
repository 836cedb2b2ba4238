"""The data of a recipe: training images, a disjoint validation part, and their classes."""

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
from sorites.core.messages import option
from sorites.core.rng import digest
from sorites.evaluation.samples import check_unique, hashed_samples
from sorites.evaluation.storage.contents import COLUMNS, contents
from sorites.io.paths import following_links
from sorites.sources.papers.focus import accepted_labels
from sorites.training import captures
from sorites.training.captures import deep_augmented, mixed
from sorites.training.detection.images import BoxImages
from sorites.training.images import Images, SampleImages, Split, by_hash, by_object, objects_of, permuted
from sorites.training.recipe import CapturedPart, Data, Recipe, ValidationPart

if TYPE_CHECKING:
    import torch

# Categories of several classes: FOCUS was fine-tuned on ten categories with an ImageNet head.


# For each category, the indices of its classes among the logits.
Groups = Sequence[Sequence[int]]


def focus_groups(categories: Labels) -> Groups:
    """Return the ImageNet classes of each FOCUS category."""
    classes_of = accepted_labels(imagenet())
    for name in categories.ids:
        if name not in classes_of:
            raise UnknownName("category of FOCUS", name, classes_of, f"Available: {', '.join(classes_of)}.")
    return [sorted(classes_of[name]) for name in categories.ids]


def category_logits(logits: torch.Tensor, groups: Groups) -> torch.Tensor:
    """Return logits of the categories, N x (C + 1).

    The last column is for all classes outside the categories.
    """
    import torch

    taken = {index for group in groups for index in group}
    rest = [index for index in range(logits.shape[1]) if index not in taken]
    parts = [*groups, rest] if rest else list(groups)
    return torch.stack([logits[:, list(part)].logsumexp(1) for part in parts], 1)


# Validation split, and images that replace or extend the originals.


def split_validation(
    samples: Sequence[Sample], part: ValidationPart | None
) -> tuple[list[Sample], list[Sample]]:
    """Split samples, in source order, into training and validation images."""
    if part is None or part.share is None:
        return list(samples), []
    share, objects = 1 - part.share, objects_of(samples)
    if part.split == "object":
        split = by_object(
            objects, [-1 if sample.label is None else sample.label for sample in samples], share, part.seed
        )
        train, test = list(split.train), list(split.test)
    else:
        train, test = (
            permuted(len(samples), share, part.seed)
            if part.split == "permuted"
            else by_hash(objects, share, part.seed)
        )
        if train and test:
            Split(tuple(train), tuple(test), objects)  # refuses images of one object on both sides
    return [samples[index] for index in train], [samples[index] for index in test]


def compose_images(base: SampleImages, data: Data, space: Labels) -> Images:
    """Return the training images with captures, DeepAugment images and generated images as configured."""
    whole: Images = base
    if data.captures is not None:
        whole = _with_captures(base, data.captures, data.source, space)
    if data.deep_augment is not None:
        whole = deep_augmented(whole, data.deep_augment.root, data.deep_augment.folders)
    if data.made is not None:
        generated = [sample for sample in core.source(data.made.source, space) if sample.label is not None]
        whole = mixed(
            whole, SampleImages([_with_setting_in_id(sample) for sample in generated]), data.made.share
        )
    return whole


def _with_setting_in_id(sample: Sample) -> Sample:
    """Return a sample with its setting in the id, since generated images of one object share their id."""
    return (
        sample
        if sample.shift == CLEAN
        else replace(sample, id=f"{sample.id} {sample.shift} {sample.setting.canonical}")
    )


def _with_captures(base: SampleImages, config: CapturedPart, source: str, space: Labels) -> Images:
    settings = captures.settings("val")
    samples = list(core.source(source, space)) if config.by == "files" else []

    def shots(chosen: Sequence[core.SettingValue]) -> captures.Shots:
        if config.by == "camera":
            return captures.simulated(base, chosen)
        return captures.captured_files(
            base, samples, [setting for setting in chosen if not isinstance(setting, float | int)]
        )

    if config.cut is not None and config.measured_on is None:
        settings = captures.published_settings(config.cut)
    elif config.cut is not None and config.measured_on is not None:
        settings = captures.near_settings(
            settings, captures.mean_lpips(base, shots(settings), config.measured_on), config.cut
        )
    return captures.Captured(base, shots(settings), config.share)


# Value of data.labels that takes the classes found in the source.
LABELS_FROM_SOURCE = "found"


@dataclass(frozen=True)
class TrainingData:
    """The images that a training learns from and is validated with."""

    train: Images
    validation: Images | None
    labels: Labels
    framed: bool = False
    """True if images are only scaled to the network's input, never cropped."""
    samples: Mapping[str, Sequence[Sample]] = field(default_factory=dict)
    """The samples behind the images by part, if they map one to one; their content enters the data hash."""
    categories: Groups | None = None
    """The classes of each category if the labels are categories."""

    def listed(self, before: pl.DataFrame | None = None) -> pl.DataFrame:
        """Return one row per image: part, id, label, and the content hash of its file.

        Args:
            before: Rows of an earlier call; unchanged files in it are not read again.
        """
        parts = {"train": self.train} | ({} if self.validation is None else {"validation": self.validation})
        return pl.concat([self._rows(part, images, before) for part, images in parts.items()])

    def _rows(self, part: str, images: Images, before: pl.DataFrame | None) -> pl.DataFrame:
        count = range(len(images))
        frame = pl.DataFrame(
            {"part": part, "id": [images.id(i) for i in count], "label": [images.label(i) for i in count]}
        )
        if isinstance(images, BoxImages):
            boxes = pl.Series("boxes", [images.boxes_digest(i) for i in count], pl.String)
            frame = frame.with_columns(boxes, label=pl.lit(None, pl.Int64))
        samples = self.samples.get(part, ())
        if len(samples) != len(images):
            return frame.with_columns(pl.lit(None, kind).alias(name) for name, kind in COLUMNS.items())
        reusable: pl.DataFrame | None = None
        if before is not None and before.height:
            old = before.filter(pl.col("part") == part)
            reusable = old.select(COLUMNS.names()) if old["id"].to_list() == frame["id"].to_list() else None
        return pl.concat([frame, contents(samples, reusable)], how="horizontal")


def data_hash(listed: pl.DataFrame) -> str:
    """Return a hash of the ids, labels or boxes, and contents of all images, in order."""
    truth = ("label", "boxes") if "boxes" in listed.columns else ("label",)
    return digest(*listed.select("part", "id", *truth, "content").rows()).hex()


def images(recipe: Recipe) -> TrainingData:
    """Load the images of a recipe.

    Raises:
        SoritesError: If a part cannot be trained on or validated with.
    """
    with following_links(recipe.data.follow_links):
        return _images(recipe)


def _images(recipe: Recipe) -> TrainingData:
    data = recipe.data
    with_boxes = recipe.task == "boxes"
    samples, space = _read_boxes(data) if with_boxes else _read(data)
    selected = {id(sample) for sample in _in_fair_order(samples)[: data.limit]}
    training, validation = split_validation(
        [sample for sample in samples if id(sample) in selected], data.validation
    )
    if data.validation is not None and data.validation.source is not None:
        validation = _validation_source(data.validation.source, recipe, space, training)
    training, validation = (
        _in_fair_order(training),
        _in_fair_order(validation)[: None if data.validation is None else data.validation.limit],
    )
    whole = TrainingData(
        BoxImages(training) if with_boxes else compose_images(SampleImages(training), data, space),
        None
        if data.validation is None
        else (BoxImages if with_boxes else SampleImages)([_with_setting_in_id(s) for s in validation]),
        space if data.categories is None else imagenet(),
        all(sample.framed for sample in (*training, *validation)),
        {"train": training, "validation": validation},
        None if data.categories is None else focus_groups(space),
    )
    check(whole, recipe)
    return whole


def _validation_source(
    source: str, recipe: Recipe, space: Labels, training: Sequence[Sample]
) -> list[Sample]:
    """Return the validation images of a source, none of which may be a training image."""
    data = recipe.data
    usable = _boxed if recipe.task == "boxes" else _labelled
    shifted = data.shifted or (data.validation is not None and data.validation.shifted)
    samples = usable(_open_source(source, space, "validation"), source, shifted)
    shared = {sample.id for sample in training} & {sample.id for sample in samples}
    if shared and source == data.source:
        raise SoritesError(
            f"data.validation: {len(shared)} of its {len(samples)} images are training images; use a share"
            " instead"
        )
    return samples


def check(data: TrainingData, recipe: Recipe) -> None:
    """Raise an error for an empty part, a single class, or a label without an output."""
    source = recipe.data.source
    if not len(data.train):
        raise SoritesError(f"data: no training images of {source} are left beside the validation part")
    if data.validation is not None and not len(data.validation):
        raise SoritesError(
            f"data.validation is empty ({len(data.train)} training images of {source}); use a larger share"
        )
    if isinstance(data.train, BoxImages):
        if not any(len(data.train.ground_truth(index).boxes) for index in range(len(data.train))):
            raise SoritesError(f"data: no training image of {source} has a box of the classes in data.labels")
        return
    for part in (data.train, data.validation) if data.validation is not None else (data.train,):
        _check_labels(part, len(data.labels))
    counts = Counter(data.train.label(index) for index in range(len(data.train)))
    if len(counts) == 1:
        names = data.labels.names if data.categories is None else recipe.data.labels
        only = names[next(iter(counts))]
        raise SoritesError(
            f"data: all {len(data.train)} training images of {source} are of one class ({only}); need several"
        )


def _check_labels(part: Images, classes: int) -> None:
    for index in range(len(part)):
        if not 0 <= part.label(index) < classes:
            raise SoritesError(
                f"{part.id(index)} has label {part.label(index)}, but the model has outputs 0 to "
                f"{classes - 1}: list all classes in data.labels"
            )


class _RecordingLabels(OpenLabels):
    """Accepts every class name of a source and records its spelling."""

    def __bool__(self) -> bool:
        return True

    def find(self, name: str) -> int:
        index = super().find(name)
        self.spelled.setdefault(index, name)
        return index

    @property
    def spelled(self) -> dict[int, str]:
        spelled: dict[int, str] = self.__dict__.setdefault("_spelled", {})
        return spelled


def _read(data: Data) -> tuple[list[Sample], Labels]:
    """Return the labelled images of the source and the classes."""
    if data.labels != LABELS_FROM_SOURCE:
        space = labels(data.labels)
        return _labelled(_open_source(data.source, space, "source"), data.source, data.shifted), space
    recorder = _RecordingLabels((), (), {})
    samples = [sample for sample in _open_source(data.source, recorder, "source") if sample.label is not None]
    used_labels = {sample.label for sample in samples}
    names = sorted(recorder.spelled[index] for index in used_labels if index is not None)
    if not names:
        raise SoritesError(f"data: {data.source} has no class folders to take labels from; set data.labels")
    space = labels(names)
    new_label = {index: names.index(name) for index, name in recorder.spelled.items() if name in names}
    renamed = [
        replace(sample, label=new_label[sample.label]) for sample in samples if sample.label is not None
    ]
    return _labelled(renamed, data.source, data.shifted), space


class _RecordingBoxLabels(_RecordingLabels):
    """Accepts the class names of a source of boxes, which asks whether they are among the labels."""

    def get(self, *names: str) -> int | None:
        return self.find(names[0])


def _read_boxes(data: Data) -> tuple[list[Sample], Labels]:
    """Return the images of the source that have ground-truth boxes, and the classes."""
    if data.labels != LABELS_FROM_SOURCE:
        space = labels(data.labels)
        return _boxed(_open_source(data.source, space, "source"), data.source, data.shifted), space
    recorder = _RecordingBoxLabels((), (), {})
    samples = _boxed(_open_source(data.source, recorder, "source"), data.source, data.shifted)
    used = {box.label for sample in samples for box in sample.ground_truth or ()}
    names = sorted(recorder.spelled[index] for index in used)
    if not names:
        raise SoritesError(f"data: {data.source} has no boxes to take classes from; set data.labels")
    new_label = {index: names.index(recorder.spelled[index]) for index in used}
    return [_renamed(sample, new_label) for sample in samples], labels(names)


def _renamed(sample: Sample, new_label: Mapping[int, int]) -> Sample:
    boxes = tuple(replace(box, label=new_label[box.label]) for box in sample.ground_truth or ())
    return replace(sample, ground_truth=boxes)


def _boxed(source: Iterable[Sample], where: str, shifted: bool) -> list[Sample]:
    """Return images with ground-truth boxes, perhaps none of the classes, and unique ids."""
    clean = [sample for sample in source if shifted or sample.shift == CLEAN]
    boxed = [sample for sample in clean if sample.ground_truth is not None]
    if not boxed:
        raise SoritesError(f"data: {where} has no images with ground-truth boxes, which a detector needs")
    check_unique(boxed)
    return boxed


def _open_source(spec: str, space: Labels, key: str) -> Iterable[Sample]:
    """Open a source; errors name the recipe key that refers to it."""
    try:
        return core.source(spec, space)
    except MissingExtra:
        raise
    except SoritesError as error:
        if isinstance(error.__context__, UnknownName):
            raise SoritesError(
                f"{error} To use the classes of the source: {option('labels', 'found')}"
            ) from error
        text = f"{error}".rstrip(".")
        raise SoritesError(
            f'{text}. The recipe has data.{key} = "{spec}"; to use your own: {option(key, "SOURCE:PATH")}'
        ) from error


def _labelled(source: Iterable[Sample], where: str, shifted: bool) -> list[Sample]:
    """Return labelled images with unique ids.

    Images without a label are kept, so that they are reported later, unless their source marks them as
    showing none of the classes.
    """
    allowed = [sample for sample in source if shifted or sample.shift == CLEAN]
    labelled = [sample for sample in allowed if sample.label is not None or sample.split != "unknown"]
    if not labelled:
        raise SoritesError(f"data: {where} has no clean images of the classes in data.labels")
    check_unique(labelled)
    return labelled


def _in_fair_order(samples: Sequence[Sample]) -> list[Sample]:
    return list(hashed_samples(core.Source("data", samples))) if samples else []

"""Show images to models and keep what each gave as rows of the table: batched from the model to the row."""

from __future__ import annotations

import copy
import json
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl
from scipy.special import softmax

from sorites.core import Box, ImageU8, Model, Outputs, Sample, Scorer
from sorites.core.errors import SoritesError, as_utf8
from sorites.core.table import SCHEMA
from sorites.evaluation.engines.interrupts import hear_once, leave_if_asked
from sorites.evaluation.images import Shot, reason
from sorites.evaluation.plan import Columns, Plan
from sorites.evaluation.samples import GroundTruth

# Boxes as the table keeps them: those that a model found, in the suite's labels, and the true ones.


# The most boxes that are kept per image and class, as COCO counts them; those of the highest
# confidence stay.
MOST = 100

Cell = dict[str, Any]


def ground_truth_cells(ground_truth: GroundTruth) -> list[Cell] | None:
    """Return ground-truth boxes as the column ``truth`` holds them; None means that they are not known, []
    that nothing is there.
    """
    return (
        None
        if ground_truth is None
        else [{**_cell(box, box.label), "area": box.area, "crowd": box.crowd} for box in ground_truth]
    )


def box_cells(columns: Columns, outputs: Outputs) -> list[list[Cell] | None]:
    """Return what ``boxes`` holds of each image: boxes of classes that the suite asks about, by
    falling confidence.
    """
    if outputs.boxes is None:
        return [None] * len(outputs)
    label = dict(zip(columns.places.tolist(), columns.labels.tolist(), strict=True))
    return [_kept(boxes, label) for boxes in outputs.boxes]


def wrong_boxes(boxes: Sequence[Box], model: Model, labels: int | None = None) -> str | None:
    """Return what is wrong with the boxes that a model gave for an image, or None; ``labels`` is
    how many the suite has.
    """
    suites = math.inf if labels is None else labels + model.background
    classes = suites if model.labels is None else len(model.labels)
    for box in boxes:
        if box.conf is None or not all(map(math.isfinite, (*box.xyxy, box.conf))):
            return f"model {model.name} gave a box without finite numbers: {box.xyxy}, confidence {box.conf}"
        if not 0 <= box.label < classes:
            return f"model {model.name} gave a box of class {box.label}, and {_classes(model, labels)}"
    return None


def _classes(model: Model, labels: int | None) -> str:
    if model.labels is not None:
        return f"it has classes 0 to {len(model.labels) - 1}"
    places = "labels" if labels is None else f"{labels} labels, 0 to {labels - 1}"
    return f"its classes are the suite's {places}; if it has others, name them (labels in docs/models.md)"


def _kept(boxes: Sequence[Box], label: dict[int, int]) -> list[Cell]:
    counts: dict[int, int] = {}
    cells = []
    for box in sorted(boxes, key=lambda box: -(box.conf or 0.0)):
        counts[box.label] = counts.get(box.label, 0) + 1
        if box.label in label and counts[box.label] <= MOST:
            cells.append(_cell(box, label[box.label]))
    return cells


def _cell(box: Box, label: int) -> Cell:
    return dict(zip(("x0", "y0", "x1", "y1"), box.xyxy, strict=True)) | {"label": label, "conf": box.conf}


# From images to a model's outputs: batched, with the reason for each image that the model could not
# see.


Errors = list[str | None]
_halved: set[str] = set()
# The shape of a model's features for one image, as they came first.
_features: WeakKeyDictionary[Model, tuple[int, ...] | None] = WeakKeyDictionary()


@dataclass(frozen=True)
class Answers:
    """The outputs of the images that a model could see, in order, and one error or None per image."""

    outputs: Outputs
    errors: Errors

    @property
    def seen(self) -> list[int]:
        """List the places of the images that ``outputs`` are about."""
        return [i for i, error in enumerate(self.errors) if error is None]


def answers(
    model: Model, shots: Sequence[Shot], is_framed: Callable[[Sample], bool], width: int | None = None
) -> Answers:
    """Show the images of some shots to a model; framed ones are only scaled, others are resized
    and cropped.

    An answer of another number of logits than ``width`` is an error.
    """
    errors: Errors = [(shot.error or "no image") if shot.image is None else None for shot in shots]
    parts: list[Outputs] = []
    order: list[int] = []
    for framed in (True, False):
        group = [
            (i, shot.image)
            for i, shot in enumerate(shots)
            if shot.image is not None and is_framed(shot.sample) is framed
        ]
        outputs, failed = ask(model, [image for _, image in group], framed, width)
        for (i, _), error in zip(group, failed, strict=True):
            errors[i] = error
        if seen := [i for i, _ in group if errors[i] is None]:
            parts.append(outputs)
            order += seen
    together = parts[0] if len(parts) == 1 else Outputs.join(parts)
    return Answers(together if order == sorted(order) else together[np.argsort(order)], errors)


def ask(
    model: Model, images: Sequence[ImageU8], framed: bool, width: int | None = None
) -> tuple[Outputs, Errors]:
    """Return the outputs of the images that went well, and one error or None per image.

    A model gets images of its own, which it may write into: that spoils no other model's. A batch
    that fails is tried again one image at a time, so that a bad image spoils no other.
    """
    if not images:
        return Outputs(), []
    try:
        together = model([np.array(image) for image in images], framed)
        if model.output == "boxes" and together.boxes is None:
            raise SoritesError(f"model {model.name} gave no boxes")
        if len(together) != len(images):
            raise SoritesError(f"model {model.name} gave {len(together)} outputs for {len(images)} images")
        _same_shapes(model, together, width)
    except (Exception, SystemExit) as error:
        if len(images) == 1:
            return Outputs(), [reason(error, f"model {model.name}")]
        if out_of_memory(error):
            _say_halved(model.name, len(images))
            half = len(images) // 2
            (first, failed), (second, more) = (
                ask(model, part, framed, width) for part in (images[:half], images[half:])
            )
            return Outputs.join([part for part in (first, second) if len(part)]), [*failed, *more]
        each = [ask(model, [image], framed, width) for image in images]
        return Outputs.join([outputs for outputs, (failed,) in each if failed is None]), [
            failed for _, (failed,) in each
        ]
    return _finite(model, _single(together), width)


def out_of_memory(error: BaseException) -> bool:
    """Return whether a device had no memory for a batch, by the words that torch and ONNX Runtime use."""
    said = str(error).lower()
    return isinstance(error, MemoryError) or "out of memory" in said or "failed to allocate memory" in said


def _say_halved(name: str, size: int) -> None:
    """Say once for each model that its batches do not fit."""
    if name in _halved:
        return
    _halved.add(name)
    said = (
        f"model {name}: no memory for {size} images at once, they are shown in halves; give a smaller --batch"
    )
    warnings.warn(said, stacklevel=2)


def _same_shapes(model: Model, outputs: Outputs, width: int | None) -> None:
    """Raise an error where a model gives another number of logits than ``width``, or other features
    than the first time.
    """
    logits, features = (
        None if part is None else np.shape(part)[1:] for part in (outputs.logits, outputs.features)
    )
    if width is not None and logits is not None and logits != (width,):
        raise SoritesError(f"model {model.name} gave logits of shape {logits}, not ({width},) as before")
    first = _features.setdefault(model, features)
    if features != first:
        raise SoritesError(
            f"model {model.name} gave features of shape {features or 'none'}, not {first or 'none'} as before"
        )


def _single(outputs: Outputs) -> Outputs:
    """Return the same outputs in single precision."""
    logits, features = (
        None if a is None else np.asarray(a, np.float32) for a in (outputs.logits, outputs.features)
    )
    return replace(outputs, logits=logits, features=features)


def _finite(model: Model, outputs: Outputs, width: int | None) -> tuple[Outputs, Errors]:
    if model.output == "boxes":
        errors: Errors = [wrong_boxes(boxes, model, width) for boxes in outputs.boxes or ()]
    elif outputs.logits is None:
        return outputs, [None] * len(outputs)
    else:
        bad = f"model {model.name} gave logits that are not finite"
        errors = [
            None if fine else bad for fine in np.asarray(np.isfinite(outputs.logits).all(axis=1)).tolist()
        ]
    good = [i for i, error in enumerate(errors) if error is None]
    return (outputs if len(good) == len(errors) else outputs[np.array(good, dtype=np.int64)]), errors


# From outputs to OOD score: what each scorer needs of a model, and the score of each image, or why it
# has none.


# The OOD score of one image, or none and why.
Scored = tuple[float | None, str | None]

WORDS = {
    "features": "the model's features",
    "head": "the model's last linear layer",
    "gradient": "the gradient at the model's input",
    "maps": "the model's feature maps",
    "layers": "the activations of the model's layers",
}
# Needs that only a model with its torch module meets.
INSIDE = frozenset({"gradient", "maps", "layers"})


def refuse(name: str, scorer: Scorer, model: Model, outputs: Outputs) -> None:
    """Raise an error by name when the model, which gave ``outputs``, cannot give what the scorer needs."""
    has = {
        "features": outputs.features is not None,
        "head": model.head is not None,
        **dict.fromkeys(INSIDE, model.module is not None),
    }
    lacks = [need for need in sorted(scorer.needs) if not has.get(need, True)]
    if not lacks:
        return _agrees(name, model, outputs) if "head" in scorer.needs else None
    which = "lite0 to lite2, timm models and torch modules (python:module:name)"
    hint = f"; {which} show it" if lacks[0] in INSIDE else ""
    raise SoritesError(
        f"{name} needs {WORDS[lacks[0]]}, which {model.name} does not show{hint}. Leave out the one or the"
        " other."
    )


def _agrees(name: str, model: Model, outputs: Outputs) -> None:
    """Check that the head makes the logits of the features, or it is not the head."""
    if model.head is None or outputs.features is None or outputs.logits is None:
        return
    weight, bias = model.head
    wanted = (outputs.logits.shape[1], outputs.features.shape[1])
    if weight.shape != wanted:
        raise SoritesError(
            f"{name}: the head of {model.name} is {weight.shape}; its logits and features are {wanted}"
        )
    made = outputs.features.astype(np.float64) @ weight.T + bias
    if not np.allclose(
        made, outputs.logits, rtol=1e-3, atol=1e-3 * max(1.0, float(np.abs(outputs.logits).max()))
    ):
        raise SoritesError(f"{name}: the head of {model.name} does not make its logits from its features")


def for_model(scorer: Scorer, head: Any) -> Scorer:
    """Return a copy for one model; it gets the head now if it needs no training images, and stays
    to be fitted if it does.
    """
    copied = copy.deepcopy(scorer)
    return copied if "training" in scorer.needs else copied.fit((), head)


def look_inside(
    scorer: Scorer, name: str, model: Model, image: ImageU8, framed: bool
) -> tuple[Any, str | None]:
    """Return the row that a scorer sees inside the model for one image, or none and why."""
    leave_if_asked()
    try:
        return scorer.look(model, [image], framed), None
    except (Exception, SystemExit) as error:
        return None, reason(error, f"scorer {name}")


def score_outputs(
    name: str, scorer: Scorer, model: Model, outputs: Outputs, images: Sequence[tuple[ImageU8 | None, bool]]
) -> list[Scored]:
    """Score the images that a model saw: one entry per image, which comes with whether it is framed."""
    if not scorer.looks:
        return scored(name, scorer, outputs)
    rows = [look_inside(scorer, name, model, image, framed) for image, framed in images if image is not None]
    seen = [i for i, (_, error) in enumerate(rows) if error is None]
    found: list[Scored] = [(None, error) for _, error in rows]
    if seen:
        inside = {name: np.concatenate([rows[i][0] for i in seen])}
        for i, score in zip(
            seen, scored(name, scorer, replace(outputs[np.array(seen)], inside=inside)), strict=True
        ):
            found[i] = score
    return found


def scored(name: str, scorer: Scorer, outputs: Outputs) -> list[Scored]:
    """Score images together, one entry each; when that fails, one by one."""
    count = len(outputs)
    if not count:
        return []
    try:
        given = np.asarray(scorer(outputs), np.float64)
        if given.shape != (count,):
            raise SoritesError(f"scorer {name} gave shape {given.shape} for {count} images")
    except (Exception, SystemExit) as error:
        if count > 1:
            return [scored(name, scorer, outputs[i : i + 1])[0] for i in range(count)]
        return [(None, reason(error, f"scorer {name}"))]
    return [
        (float(score), None) if np.isfinite(score) else (None, f"scorer {name} gave {score}")
        for score in given
    ]


def try_scorer(name: str, scorer: Scorer, model: Model, outputs: Outputs, image: ImageU8) -> None:
    """Raise an error where the model lacks what the scorer needs, or where it cannot score ``image``.

    One that is to be fitted is not asked for a score before it is.
    """
    refuse(name, scorer, model, outputs)
    copied = for_model(scorer, model.head)
    if "training" in scorer.needs:
        failed = look_inside(copied, name, model, image, False)[1] if copied.looks else None
    else:
        ((_, failed),) = score_outputs(name, copied, model, outputs, [(image, False)])
    if failed:
        raise SoritesError(f"{name} cannot score what {model.name} gives for a plain grey image: {failed}")


# The image on which every model and scorer is tried before any work is done.
GREY: ImageU8 = np.full((96, 128, 3), 128, dtype=np.uint8)
# Columns that the rows of all models share; they are built once per image.
SHARED = (
    "source", "split", "sample_id", "image_id", "probe", "label", "accept", "ground_truth", "attrs", "family", "shift", "severity",
    "level", "params", "seed",
)  # fmt: skip
VERDICT = ("known", "pred", "conf", "top5", "correct", "boxes", "error")
T = TypeVar("T")


@dataclass(frozen=True)
class Predictions:
    """The predictions of one model for some images: its rows of the table, and the raw outputs of
    those it could see.
    """

    rows: pl.DataFrame
    outputs: Outputs
    image_ids: list[str]


def predict(
    plan: Plan,
    images: Iterable[Shot],
    batch: int,
    tick: Callable[[int], None] = lambda n: None,
    models: Sequence[str] = (),
) -> dict[str, Predictions]:
    """Show the images to the models, one batch at a time; a batch of images is the most that is
    held in memory.
    """
    shared: dict[str, list[Any]] = {name: [] for name in SHARED}
    verdicts = {name: _Verdicts(plan, plan.models[name]) for name in models or plan.models}
    for some in batches(images, batch):
        ids = [plan.image_id(shot.sample, shot.shift, shot.setting) for shot in some]
        for shot, image_id in zip(some, ids, strict=True):
            for name, value in _about(plan, shot, image_id).items():
                shared[name].append(value)
        for kept in verdicts.values():
            leave_if_asked()
            kept.add(some, ids)
        tick(len(some) * len(verdicts))
    images_seen = pl.DataFrame(shared, schema={name: SCHEMA[name] for name in SHARED})
    return {name: kept.predictions(images_seen) for name, kept in verdicts.items()}


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    source = iter(items)
    while some := list(islice(source, size)):
        yield some


def _about(plan: Plan, shot: Shot, image_id: str) -> dict[str, Any]:
    sample = shot.sample
    return {
        "source": plan.source_of(sample),
        "split": sample.split,
        "sample_id": sample.id,
        "image_id": image_id,
        "probe": shot.probe,
        "label": sample.label,
        "accept": sorted(sample.right),
        "ground_truth": ground_truth_cells(shot.ground_truth),
        "attrs": [vars(attr) for attr in sample.attrs],
        "family": plan.family(shot.shift),
        "shift": shot.shift,
        "severity": shot.setting.severity,
        "level": shot.setting.level,
        "params": json.dumps({**shot.setting.params, **shot.chosen_params}, sort_keys=True),
        "seed": plan.suite.seed,
    }


@dataclass
class _Verdicts:
    """The verdicts of one model on images, collected batch after batch as columns."""

    plan: Plan
    model: Model
    columns: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in VERDICT})
    scores: dict[str, list[Scored]] = field(default_factory=dict)
    outputs: list[Outputs] = field(default_factory=list)
    image_ids: list[str] = field(default_factory=list)

    def add(self, some: Sequence[Shot], ids: Sequence[str]) -> None:
        given = answers(self.model, some, self.plan.is_framed, self.plan.width_of(self.model.name))
        seen, known = given.seen, self.plan.columns[self.model.name]
        judged = dict(zip(seen, _judged(known, [some[i].sample for i in seen], given.outputs), strict=True))
        boxes = dict(zip(seen, box_cells(known, given.outputs), strict=True))
        for i, (shot, error) in enumerate(zip(some, given.errors, strict=True)):
            right = shot.sample.right
            knows = (
                False
                if self.plan.is_ood(shot.sample)
                else not right.isdisjoint(known.known)
                if right
                else None
            )
            for name, value in zip(
                VERDICT, (knows, *judged.get(i, (None,) * 4), boxes.get(i), error), strict=True
            ):
                self.columns[name].append(value)
        images = [(some[i].image, self.plan.is_framed(some[i].sample)) for i in seen]
        for name, scorer in self.plan.scorers_of(self.model.name).items():
            found = dict(
                zip(seen, score_outputs(name, scorer, self.model, given.outputs, images), strict=True)
            )
            self.scores.setdefault(name, []).extend(found.get(i, (None, None)) for i in range(len(some)))
        if seen:
            self.outputs.append(given.outputs)
            self.image_ids += [ids[i] for i in seen]

    def predictions(self, images: pl.DataFrame) -> Predictions:
        verdict = pl.DataFrame(self.columns, schema={name: SCHEMA[name] for name in VERDICT})
        labels = images.hstack(verdict).with_columns(
            model=pl.lit(self.model.name), output=pl.lit(self.model.output)
        )
        parts = [labels, *(score_rows(labels, name, found) for name, found in self.scores.items())]
        return Predictions(
            whole(pl.concat(parts, how="diagonal")), Outputs.join(self.outputs), self.image_ids
        )


def score_rows(labels: pl.DataFrame, scorer: str, found: Sequence[Scored]) -> pl.DataFrame:
    """The rows of a scorer: a label row with its score.

    One that is an error stays the same error and has no verdict.
    """
    failed = pl.Series([error for _, error in found], dtype=pl.String)
    made = labels.with_columns(
        output=pl.lit("ood"),
        scorer=pl.lit(scorer),
        score=pl.Series([value for value, _ in found], dtype=SCHEMA["score"]),
        error=pl.coalesce("error", failed),
    )
    return made.with_columns(correct=pl.when(pl.col("error").is_null()).then("correct"))


def whole(rows: pl.DataFrame) -> pl.DataFrame:
    """The same rows with every column of the table, absent ones null."""
    absent = [pl.lit(None, dtype).alias(name) for name, dtype in SCHEMA.items() if name not in rows.columns]
    return rows.with_columns(absent).select(SCHEMA.names())


def _judged(columns: Columns, samples: Sequence[Sample], outputs: Outputs) -> list[tuple[Any, ...]]:
    """Prediction, confidence, the best five labels and whether it is right, one entry per image."""
    if outputs.logits is None:
        return [(None,) * 4] * len(samples)
    logits = columns.of(outputs.logits)
    order = np.argsort(-logits, axis=1, kind="stable")[:, :5]
    best = columns.labels[order]
    sure = np.take_along_axis(softmax(logits.astype(np.float64), axis=1), order[:, :1], axis=1)[:, 0]
    return [
        (top[0], conf, top, None if sample.right.isdisjoint(columns.known) else top[0] in sample.right)
        for sample, top, conf in zip(samples, best.tolist(), sure.tolist(), strict=True)
    ]


def try_models(plan: Plan) -> dict[str, Outputs]:
    """Show one plain grey image to every model and scorer: a broken one is an error before any
    work is done.
    """
    tried: dict[str, Outputs] = {}
    hear_once()
    for name, model in plan.models.items():
        if as_utf8(name) != name:
            raise SoritesError(
                f"model {as_utf8(name)}: its name stands in the table and must be UTF-8; rename the file"
            )
        outputs, (error,) = ask(
            model, [GREY], False, plan.width_of(name) if model.output == "boxes" else None
        )
        if error is not None:
            raise SoritesError(f"{name} fails on a plain grey image: {error}")
        wide = 0 if outputs.logits is None else outputs.logits.shape[1]
        wanted = len(plan.labels) if model.labels is None else len(model.labels)
        if model.output == "label" and wide != wanted:
            raise SoritesError(
                f"{name} gives {wide} logits for {wanted} labels; name its classes with --labels FILE"
            )
        for scorer in plan.scorers:
            try_scorer(scorer, plan.scorers[scorer], model, outputs, GREY)
        tried[name] = outputs
    return tried

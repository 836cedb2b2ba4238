"""Evaluate images with models and scorers, in batches, and turn the outputs into rows of the table."""

from __future__ import annotations

import copy
import functools
import json
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import softmax

from sorites.core import Box, ImageU8, Model, Outputs, Sample, Scorer
from sorites.core.compute.passes import Call, Inputs, SharedInputs, copied
from sorites.core.compute.torch_tools import free_memory
from sorites.core.errors import BatchTooLarge, Notice, SoritesError, as_utf8
from sorites.core.labels import imagenet
from sorites.core.messages import option
from sorites.core.table import SCHEMA
from sorites.evaluation.box_scores import (
    Scored,
    ScoredImage,
    score_boxes,
    trial_box,
    wrong_rows,
)
from sorites.evaluation.engines.interrupts import arm_second_interrupt, stop_if_requested
from sorites.evaluation.images import Shot, reason
from sorites.evaluation.plan import Columns, Plan
from sorites.evaluation.samples import GroundTruth

# Boxes.


# Maximum number of boxes per image and class, as in COCO; those with the highest confidence are kept.
MAX_BOXES_PER_CLASS = 100

Cell = dict[str, Any]


def ground_truth_cells(ground_truth: GroundTruth) -> list[Cell] | None:
    """Return ground-truth boxes as cells of the table; None means unknown, [] means no objects."""
    return (
        None
        if ground_truth is None
        else [{**_cell(box, box.label), "area": box.area, "crowd": box.crowd} for box in ground_truth]
    )


def box_cells(
    columns: Columns, outputs: Outputs, scores: Sequence[Sequence[float | None]] | None = None
) -> list[list[Cell] | None]:
    """Return the boxes of each image as cells of the table: classes of the suite only, by decreasing
    confidence, with the OOD score of each box if there are scores.
    """
    if outputs.boxes is None:
        return [None] * len(outputs)
    label = dict(zip(columns.places.tolist(), columns.labels.tolist(), strict=True))
    own: Sequence[Sequence[float | None]] = scores or [[None] * len(boxes) for boxes in outputs.boxes]
    return [_top_boxes(boxes, label, given) for boxes, given in zip(outputs.boxes, own, strict=True)]


def wrong_boxes(boxes: Sequence[Box], model: Model, labels: int | None = None) -> str | None:
    """Return what is wrong with a model's boxes for an image, or None.

    Args:
        boxes: The predicted boxes.
        model: The model.
        labels: Number of labels of the suite.
    """
    suite_classes = math.inf if labels is None else labels + model.background
    classes = suite_classes if model.labels is None else len(model.labels)
    for box in boxes:
        if box.conf is None or not all(map(math.isfinite, (*box.xyxy, box.conf))):
            return (
                f"model {model.name} returned a box without finite numbers: {box.xyxy}, confidence {box.conf}"
            )
        if not 0 <= box.label < classes:
            return f"model {model.name} returned a box of class {box.label}, but {_classes(model, labels)}"
    return None


def _classes(model: Model, labels: int | None) -> str:
    if model.labels is not None:
        return f"it has classes 0 to {len(model.labels) - 1}"
    places = "labels" if labels is None else f"{labels} labels, 0 to {labels - 1}"
    return f"its classes are the suite's {places}; if it has others, name them (see docs/models.md)"


def _top_boxes(boxes: Sequence[Box], label: dict[int, int], scores: Sequence[float | None]) -> list[Cell]:
    counts: dict[int, int] = {}
    cells = []
    for box, score in sorted(zip(boxes, scores, strict=True), key=lambda pair: -(pair[0].conf or 0.0)):
        counts[box.label] = counts.get(box.label, 0) + 1
        if box.label in label and counts[box.label] <= MAX_BOXES_PER_CLASS:
            cells.append({**_cell(box, label[box.label]), "score": score})
    return cells


def _cell(box: Box, label: int) -> Cell:
    return dict(zip(("x0", "y0", "x1", "y1"), box.xyxy, strict=True)) | {"label": label, "conf": box.conf}


# Outputs of models.


Errors = list[str | None]
_halved: set[str] = set()
# Shape of a model's features for one image, from its first output.
_features: WeakKeyDictionary[Model, tuple[int, ...] | None] = WeakKeyDictionary()


@dataclass(frozen=True)
class Answers:
    """The outputs of the images that a model could evaluate, in order, and one error or None per image."""

    outputs: Outputs
    errors: Errors

    @property
    def seen(self) -> list[int]:
        """Indices of the images in ``outputs``."""
        return [i for i, error in enumerate(self.errors) if error is None]


def evaluate_shots(
    model: Model,
    shots: Sequence[Shot],
    is_framed: Callable[[Sample], bool],
    width: int | None = None,
    inputs: SharedInputs | None = None,
) -> Answers:
    """Evaluate images with a model; framed images are only scaled, others are resized and cropped.

    Args:
        model: The model.
        shots: The images. They must exist as long as ``inputs`` keeps what was made of them.
        is_framed: Whether the image of a sample is framed.
        width: A number of logits other than this is an error.
        inputs: Inputs that models share; default none.
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
        images = [image for _, image in group]
        if inputs is None:
            outputs, failed = evaluate_images(model, images, framed, width)
        else:
            outputs, failed = _evaluate(model, inputs.call(model, framed), images, width)
        for (i, _), error in zip(group, failed, strict=True):
            errors[i] = error
        if seen := [i for i, _ in group if errors[i] is None]:
            parts.append(outputs)
            order += seen
    together = parts[0] if len(parts) == 1 else Outputs.join(parts)
    return Answers(together if order == sorted(order) else together[np.argsort(order)], errors)


def evaluate_images(
    model: Model, images: Sequence[ImageU8], framed: bool, width: int | None = None
) -> tuple[Outputs, Errors]:
    """Return the outputs of the images that succeeded, and one error or None per image.

    The model gets copies of the images, which it may modify. A batch that fails is repeated one image at a
    time (in halves if memory ran out), so that a bad image does not affect the others.

    Raises:
        BatchTooLarge: Memory ran out, and the rows depend on the batch size, which therefore stays.
    """
    return _evaluate(model, copied(functools.partial(model, framed=framed)), images, width)


def evaluate_inputs(
    model: Model, inputs: Inputs, width: int | None = None, first: Call | None = None
) -> tuple[Outputs, Errors]:
    """Like ``evaluate_images``, for images that were turned into inputs of the model by ``prepare``.

    Args:
        model: The model.
        inputs: The inputs.
        width: The number of logits.
        first: Called for the first attempt instead of ``model.forward``: waits for a pass that was started.
    """
    call = copied(model.forward)
    if first is None:
        return _evaluate(model, call, inputs, width)
    outputs, failure = _attempt(model, first, inputs, width)
    return _judged(model, call, inputs, width, outputs, failure)


def _evaluate(model: Model, call: Call, images: Inputs, width: int | None) -> tuple[Outputs, Errors]:
    if not len(images):
        return Outputs(), []
    outputs, failure = _attempt(model, call, images, width)
    return _judged(model, call, images, width, outputs, failure)


def _judged(
    model: Model, call: Call, images: Inputs, width: int | None, outputs: Outputs, failure: _Failure | None
) -> tuple[Outputs, Errors]:
    """Return checked outputs; if the batch failed, those of parts of it."""
    if failure is None:
        return _finite(model, _single(outputs), width)
    if failure.memory:
        # The error is gone, and with it what its traceback kept alive: the activations of the failed batch.
        free_memory()
        if model.batch is not None:
            raise BatchTooLarge(model.name, model.batch)
    if len(images) == 1:
        return Outputs(), [failure.reason]
    if failure.memory:
        _warn_halved(model.name, len(images))
    half = len(images) // 2
    parts = [images[:half], images[half:]] if failure.memory else [[image] for image in images]
    answers = [_evaluate(model, call, part, width) for part in parts]
    return Outputs.join([part for part, _ in answers if len(part)]), [
        error for _, errors in answers for error in errors
    ]


@dataclass(frozen=True)
class _Failure:
    """Why a batch failed, and whether memory ran out."""

    reason: str
    memory: bool


def _attempt(model: Model, call: Call, images: Inputs, width: int | None) -> tuple[Outputs, _Failure | None]:
    """Return the checked outputs of a batch, or why it failed, without the error itself."""
    try:
        outputs = call(images)
        if model.output == "boxes" and outputs.boxes is None:
            raise SoritesError(f"model {model.name} returned no boxes")
        if len(outputs) != len(images):
            raise SoritesError(f"model {model.name} returned {len(outputs)} outputs for {len(images)} images")
        _same_shapes(model, outputs, width)
        if problem := wrong_rows(outputs):
            raise SoritesError(f"model {model.name} returned {problem}")
    except (Exception, SystemExit) as error:
        return Outputs(), _Failure(reason(error, f"model {model.name}"), out_of_memory(error))
    return outputs, None


# Messages of torch, ONNX Runtime, cuBLAS and cuDNN, and of C++, if memory cannot be allocated.
OUT_OF_MEMORY = re.compile(
    r"out of memory|not enough memory|failed to allocate memory|can't allocate memory|bad[_ ]alloc"
    r"|cu(blas|dnn)_status_\w*alloc\w*_failed",
    re.IGNORECASE,
)


def out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that a batch did not fit into memory."""
    return isinstance(error, MemoryError) or bool(OUT_OF_MEMORY.search(str(error)))


def _warn_halved(name: str, size: int) -> None:
    """Warn once per model that its batches do not fit into memory."""
    if name in _halved:
        return
    _halved.add(name)
    text = (
        f"model {name}: not enough memory for {size} images at once; batches are halved. Use a smaller"
        f" {option('batch', None)}"
    )
    warnings.warn(Notice(text, code="batch_halved", model=name), stacklevel=2)


def _same_shapes(model: Model, outputs: Outputs, width: int | None) -> None:
    """Raise an error if a model returns a number of logits other than ``width``, or features of another shape
    than before.
    """
    logits, features = (
        None if part is None else np.shape(part)[1:] for part in (outputs.logits, outputs.features)
    )
    if width is not None and logits is not None and logits != (width,):
        raise SoritesError(f"model {model.name} returned logits of shape {logits}, not ({width},) as before")
    first = _features.setdefault(model, features)
    if features != first:
        raise SoritesError(
            f"model {model.name} returned features of shape {features or 'none'}, not {first or 'none'} as"
            " before"
        )


def _single(outputs: Outputs) -> Outputs:
    """Return the outputs in single precision."""
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
        bad = f"model {model.name} returned logits that are not finite"
        errors = [
            None if fine else bad for fine in np.asarray(np.isfinite(outputs.logits).all(axis=1)).tolist()
        ]
    good = [i for i, error in enumerate(errors) if error is None]
    return (outputs if len(good) == len(errors) else outputs[np.array(good, dtype=np.int64)]), errors


# OOD scores.


WORDS = {
    "features": "the model's features",
    "head": "the model's last linear layer",
    "texts": "the text encoder of a zero-shot model",
    "gradient": "the gradient at the model's input",
    "maps": "the model's feature maps",
    "layers": "the activations of the model's layers",
}
# Embeds class names, as ``Model.texts``.
Texts = Callable[[Sequence[str]], NDArray[np.floating[Any]]]
# Needs that require the model's torch module.
INSIDE = frozenset({"gradient", "maps", "layers"})


def refuse(name: str, scorer: Scorer, model: Model, outputs: Outputs) -> None:
    """Raise a ``SoritesError`` if the model cannot provide what the scorer needs.

    Args:
        name: Name of the scorer, for the message.
        scorer: The scorer.
        model: The model.
        outputs: Outputs of the model for some image.
    """
    boxes = model.output == "boxes"
    available = {
        "features": (outputs.box_features if boxes else outputs.features) is not None,
        "head": model.head is not None,
        "texts": model.texts is not None,
        **dict.fromkeys(INSIDE, model.module is not None and not boxes),
    }
    missing = [need for need in sorted(scorer.needs) if not available.get(need, True)]
    if missing and boxes:
        hint = (
            f" Use crops:lite0,{model.name}, which gives each box the features of its crop, or leave out the"
            " scorer."
            if missing == ["features"]
            else " Leave out the scorer: boxes can be scored from their logits and features."
        )
        raise SoritesError(
            f"{name} needs {WORDS[missing[0]]}, which {model.name} does not give for boxes.{hint}"
        )
    if not missing:
        return _agrees(name, model, outputs) if "head" in scorer.needs else None
    which = "lite0 to lite2, timm models and torch modules (python:module:name)"
    hint = f"; {which} provide it" if missing[0] in INSIDE else ""
    hint = "; open_clip models provide it" if missing[0] == "texts" else hint
    raise SoritesError(
        f"{name} needs {WORDS[missing[0]]}, which {model.name} does not provide{hint}. Leave out the scorer"
        " or"
        " the model."
    )


def _agrees(name: str, model: Model, outputs: Outputs) -> None:
    """Check that the head maps the features to the logits."""
    if model.head is None or outputs.features is None or outputs.logits is None:
        return
    weight, bias = model.head
    expected = (outputs.logits.shape[1], outputs.features.shape[1])
    if weight.shape != expected:
        raise SoritesError(
            f"{name}: the head of {model.name} is {weight.shape}; its logits and features are {expected}"
        )
    computed = outputs.features.astype(np.float64) @ weight.T + bias
    if not np.allclose(
        computed, outputs.logits, rtol=1e-3, atol=1e-3 * max(1.0, float(np.abs(outputs.logits).max()))
    ):
        raise SoritesError(f"{name}: the head of {model.name} does not map its features to its logits")


def for_model(scorer: Scorer, head: Any, texts: Texts | None = None) -> Scorer:
    """Return a copy of a scorer for one model, fitted with the head unless it needs training images.

    Args:
        scorer: The scorer.
        head: The last layer of the model.
        texts: ``Model.texts``, for scorers that need it.
    """
    copied = copy.deepcopy(scorer)
    if "texts" in scorer.needs:
        copied.embed = texts
    return copied if "training" in scorer.needs else copied.fit((), head)


# A row of a scorer's internal activations (1 x K) or None, and an error or None.
Looked = tuple[Any, str | None]


def look_inside(
    scorer: Scorer, name: str, model: Model, images: Sequence[tuple[ImageU8, bool]]
) -> list[Looked]:
    """Return a scorer's internal activations for each image; ``images`` have whether they are framed.

    On a CPU, where larger batches are not faster, the scorer gets one image at a time.
    """
    size = 1 if model.backend.kind == "cpu" else model.batch or 1
    rows: dict[int, Looked] = {}
    for framed in (True, False):
        places = [i for i, (_, is_framed) in enumerate(images) if is_framed is framed]
        for part in batches(places, size):
            looked = _look(scorer, name, model, [images[i][0] for i in part], framed)
            rows |= zip(part, looked, strict=True)
    return [rows[i] for i in range(len(images))]


def _look(scorer: Scorer, name: str, model: Model, images: Sequence[ImageU8], framed: bool) -> list[Looked]:
    """Return one row or error per image; if they fail together, each is tried alone."""
    stop_if_requested()
    values, failure = _attempt_look(scorer, name, model, images, framed)
    if failure is None:
        return [(values[i : i + 1], None) for i in range(len(images))]
    if failure.memory:
        free_memory()
        if model.batch is not None:
            raise BatchTooLarge(model.name, model.batch)
    if len(images) == 1:
        return [(None, failure.reason)]
    return [row for image in images for row in _look(scorer, name, model, [image], framed)]


def _attempt_look(
    scorer: Scorer, name: str, model: Model, images: Sequence[ImageU8], framed: bool
) -> tuple[Any, _Failure | None]:
    try:
        values = scorer.look(model, images, framed)
        if values is None or len(values) != len(images):
            got = "no rows" if values is None else f"{len(values)} rows"
            raise SoritesError(f"scorer {name} returned {got} for {len(images)} images")
    except (Exception, SystemExit) as error:
        return None, _Failure(reason(error, f"scorer {name}"), out_of_memory(error))
    return values, None


def score_outputs(
    name: str, scorer: Scorer, model: Model, outputs: Outputs, images: Sequence[tuple[ImageU8 | None, bool]]
) -> list[Scored]:
    """Score images that a model evaluated; ``images`` are the images with whether they are framed."""
    if not scorer.looks:
        return score_together(name, scorer, outputs)
    shown = [(image, framed) for image, framed in images if image is not None]
    return score_looked(name, scorer, outputs, look_inside(scorer, name, model, shown))


def score_looked(
    name: str, scorer: Scorer, outputs: Outputs, rows: Sequence[tuple[Any, str | None]]
) -> list[Scored]:
    """Score images given what the scorer sees inside the model, as ``look_inside`` returns it."""
    succeeded = [i for i, (_, error) in enumerate(rows) if error is None]
    scores: list[Scored] = [(None, error) for _, error in rows]
    if succeeded:
        inside = {name: np.concatenate([rows[i][0] for i in succeeded])}
        for i, score in zip(
            succeeded,
            score_together(name, scorer, replace(outputs[np.array(succeeded)], inside=inside)),
            strict=True,
        ):
            scores[i] = score
    return scores


def score_together(name: str, scorer: Scorer, outputs: Outputs) -> list[Scored]:
    """Score images together; if that fails, one by one."""
    count = len(outputs)
    if not count:
        return []
    try:
        scores = np.asarray(scorer(outputs), np.float64)
        if scores.shape != (count,):
            raise SoritesError(f"scorer {name} returned shape {scores.shape} for {count} images")
    except (Exception, SystemExit) as error:
        if count > 1:
            return [score_together(name, scorer, outputs[i : i + 1])[0] for i in range(count)]
        return [(None, reason(error, f"scorer {name}"))]
    return [
        (None, f"scorer {name} returned {score}") if np.isnan(score) else (float(score), None)
        for score in scores
    ]


def try_scorer(name: str, scorer: Scorer, model: Model, outputs: Outputs, image: ImageU8) -> None:
    """Raise a ``SoritesError`` if the model lacks what the scorer needs, or if ``image`` cannot be scored.

    Scorers that need training images are not asked for a score.
    """
    refuse(name, scorer, model, outputs)
    copied = for_model(scorer, model.head, model.texts)
    if model.output == "boxes":
        return _try_box_scorer(name, copied, model, outputs)
    if "training" in scorer.needs:
        failed = look_inside(copied, name, model, [(image, False)])[0][1] if copied.looks else None
    else:
        ((_, failed),) = score_outputs(name, copied, model, outputs, [(image, False)])
    if failed:
        raise SoritesError(f"{name} cannot score the output of {model.name} for a grey image: {failed}")


def _try_box_scorer(name: str, scorer: Scorer, model: Model, outputs: Outputs) -> None:
    if "training" in scorer.needs:
        return
    ((_, failed),) = score_together(name, scorer, trial_box(outputs))
    if failed:
        without = (
            "" if outputs.box_logits is not None else ", which gives one confidence per box and no logits"
        )
        raise SoritesError(f"{name} cannot score the boxes of {model.name}{without}: {failed}")


# Image on which every model and scorer is tried before any work is done.
GREY: ImageU8 = np.full((96, 128, 3), 128, dtype=np.uint8)
# Columns shared by the rows of all models; computed once per image.
SHARED = (
    "source", "split", "sample_id", "image_id", "probe", "label", "accept", "ground_truth", "attrs", "family",
    "shift", "severity", "level", "params", "seed",
)  # fmt: skip
VERDICT = ("known", "pred", "conf", "top5", "correct", "boxes", "error")
T = TypeVar("T")


@dataclass(frozen=True)
class Predictions:
    """Rows of the table of one model, and the raw outputs of the images that it could evaluate."""

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
    """Evaluate images with models, one batch at a time; only one batch of images is in memory.

    Args:
        plan: The plan.
        images: The images.
        batch: Images per batch.
        tick: Called with the number of evaluated images after each batch.
        models: Names of the models; default all.

    Returns:
        Predictions by model.
    """
    seen = SeenImages(plan)
    inputs = SharedInputs(plan.models[name] for name in models or plan.models)
    verdicts = {name: Verdicts(plan, plan.models[name], inputs) for name in models or plan.models}
    for chunk in batches(images, batch):
        ids = seen.add(chunk)
        inputs.clear()
        for verdict in verdicts.values():
            stop_if_requested()
            verdict.evaluate(chunk, ids)
        tick(len(chunk) * len(verdicts))
    images_seen = seen.rows()
    return {name: verdict.predictions(images_seen) for name, verdict in verdicts.items()}


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of up to ``size`` items."""
    source = iter(items)
    while chunk := list(islice(source, size)):
        yield chunk


class SeenImages:
    """Collects the columns that the rows of all models share."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._columns: dict[str, list[Any]] = {name: [] for name in SHARED}

    def add(self, shots: Sequence[Shot]) -> list[str]:
        """Add images and return their ids."""
        ids = [self._plan.image_id(shot.sample, shot.shift, shot.setting) for shot in shots]
        for shot, image_id in zip(shots, ids, strict=True):
            for name, value in _about(self._plan, shot, image_id).items():
                self._columns[name].append(value)
        return ids

    def rows(self) -> pl.DataFrame:
        """Return one row per image."""
        return frame_of_columns(self._columns)


def frame_of_columns(columns: Mapping[str, Sequence[Any]]) -> pl.DataFrame:
    """Return columns of the table as a frame.

    Polars converts nested values slowly and one by one, so values that follow each other, such as the
    attributes of one sample or no boxes, are converted once.
    """
    return pl.DataFrame([_column(name, values) for name, values in columns.items()])


def _column(name: str, values: Sequence[Any]) -> pl.Series:
    dtype = SCHEMA[name]
    if not dtype.is_nested():
        return pl.Series(name, values, dtype=dtype)
    runs = [(value, len(list(same))) for value, same in groupby(values)]
    places = np.repeat(np.arange(len(runs)), [count for _, count in runs])
    return pl.Series(name, [value for value, _ in runs], dtype=dtype).gather(places)


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


# Scores images that a model evaluated: name of the scorer, scorer, and outputs to one score per output.
Score = Callable[[str, Scorer, Outputs], list[Scored]]


@dataclass
class Verdicts:
    """Collects the predictions of one model as columns, batch by batch."""

    plan: Plan
    model: Model
    inputs: SharedInputs | None = None
    columns: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in VERDICT})
    scores: dict[str, list[Scored]] = field(default_factory=dict)
    scored_boxes: dict[str, list[list[Cell] | None]] = field(default_factory=dict)
    """Boxes with their OOD scores, by scorer; empty for classifiers."""
    outputs: list[Outputs] = field(default_factory=list)
    image_ids: list[str] = field(default_factory=list)

    def evaluate(self, chunk: Sequence[Shot], ids: Sequence[str]) -> None:
        """Evaluate images and add the outputs."""
        answered = evaluate_shots(
            self.model, chunk, self.plan.is_framed, self.plan.width_of(self.model.name), self.inputs
        )
        images = [(chunk[i].image, self.plan.is_framed(chunk[i].sample)) for i in answered.seen]
        self.add(
            chunk,
            ids,
            answered,
            lambda name, scorer, outputs: score_outputs(name, scorer, self.model, outputs, images),
        )

    def add(self, chunk: Sequence[Shot], ids: Sequence[str], answered: Answers, score: Score) -> None:
        """Add outputs of images."""
        seen, columns = answered.seen, self.plan.columns[self.model.name]
        judged = dict(
            zip(
                seen,
                _classify(
                    columns,
                    [chunk[i].sample for i in seen],
                    answered.outputs,
                    self.plan.same_answers,
                ),
                strict=True,
            )
        )
        boxes = dict(zip(seen, box_cells(columns, answered.outputs), strict=True))
        for i, (shot, error) in enumerate(zip(chunk, answered.errors, strict=True)):
            known = self._known(shot)
            for name, value in zip(
                VERDICT, (known, *judged.get(i, (None,) * 4), boxes.get(i), error), strict=True
            ):
                self.columns[name].append(value)
        for name, scorer in self.plan.scorers_of(self.model.name).items():
            scored = self._score(name, scorer, answered.outputs, score)
            scores = dict(zip(seen, scored, strict=True))
            self.scores.setdefault(name, []).extend(
                scores[i].image if i in scores else (None, None) for i in range(len(chunk))
            )
            if self.model.output == "boxes":
                cells = box_cells(columns, answered.outputs, [scored_image.boxes for scored_image in scored])
                of_image = dict(zip(seen, cells, strict=True))
                self.scored_boxes.setdefault(name, []).extend(of_image.get(i) for i in range(len(chunk)))
        if seen:
            self.outputs.append(answered.outputs)
            self.image_ids += [ids[i] for i in seen]

    def _known(self, shot: Shot) -> bool | None:
        """Return whether the model has the class of an image, or of all its objects; None if unknown."""
        known = self.plan.columns[self.model.name].known
        if self.plan.is_ood(shot.sample):
            return False
        if self.model.output == "boxes":
            objects = {box.label for box in shot.ground_truth or () if not box.crowd}
            return objects <= known if objects else None
        return not shot.sample.right.isdisjoint(known) if shot.sample.right else None

    def _score(self, name: str, scorer: Scorer, outputs: Outputs, score: Score) -> list[ScoredImage]:
        if self.model.output == "boxes":
            return score_boxes(outputs, "features" in scorer.needs, lambda boxes: score(name, scorer, boxes))
        return [ScoredImage(scored, ()) for scored in score(name, scorer, outputs)]

    def predictions(self, images: pl.DataFrame) -> Predictions:
        """Return the rows of the model, given those of the images."""
        verdict = frame_of_columns(self.columns)
        labels = images.hstack(verdict).with_columns(
            model=pl.lit(self.model.name), output=pl.lit(self.model.output)
        )
        if self.model.output == "boxes":
            labels = labels.with_columns(_with_known(self.plan.columns[self.model.name].known))
        parts = [
            labels,
            *(
                score_rows(labels, name, scores, self.scored_boxes.get(name))
                for name, scores in self.scores.items()
            ),
        ]
        return Predictions(
            with_all_columns(pl.concat(parts, how="diagonal")), Outputs.join(self.outputs), self.image_ids
        )


def _with_known(known: Iterable[int]) -> pl.Expr:
    """Return the ground-truth boxes with whether the model has the class of each."""
    label = pl.element().struct.field("label")
    return pl.col("ground_truth").list.eval(pl.element().struct.with_fields(known=label.is_in(sorted(known))))


def score_rows(
    labels: pl.DataFrame,
    scorer: str,
    scores: Sequence[Scored],
    boxes: Sequence[list[Cell] | None] | None = None,
) -> pl.DataFrame:
    """Return the rows of a scorer: the label rows with scores; rows with errors keep them and are not
    judged.

    Args:
        labels: The label rows.
        scorer: The name of the scorer.
        scores: One score for each row.
        boxes: The boxes of each row with their scores, for detectors.
    """
    if boxes is not None:
        labels = labels.with_columns(_column("boxes", boxes))
    failed = pl.Series([error for _, error in scores], dtype=pl.String)
    rows = labels.with_columns(
        output=pl.lit("ood"),
        scorer=pl.lit(scorer),
        score=pl.Series([value for value, _ in scores], dtype=SCHEMA["score"]),
        error=pl.coalesce("error", failed),
    )
    return rows.with_columns(correct=pl.when(pl.col("error").is_null()).then("correct"))


def with_all_columns(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with every column of the table; absent ones are null."""
    absent = [pl.lit(None, dtype).alias(name) for name, dtype in SCHEMA.items() if name not in rows.columns]
    return rows.with_columns(absent).select(SCHEMA.names())


def _classify(
    columns: Columns,
    samples: Sequence[Sample],
    outputs: Outputs,
    same_answers: Mapping[int, frozenset[int]],
) -> list[tuple[Any, ...]]:
    """Return prediction, confidence, top-5 labels and correctness of each image.

    The confidence is the probability of the predicted class and of the classes that mean the same answer: a
    category is judged, so its probability is the sum over its classes.
    """
    if outputs.logits is None:
        return [(None,) * 4] * len(samples)
    logits = columns.of(outputs.logits)
    order = np.argsort(-logits, axis=1, kind="stable")[:, :5]
    best = columns.labels[order]
    probabilities = softmax(logits.astype(np.float64), axis=1)
    confidence = np.take_along_axis(probabilities, order[:, :1], axis=1)[:, 0]
    for row in np.flatnonzero(np.isin(best[:, 0], list(same_answers))):
        together = np.isin(columns.labels, list(same_answers[int(best[row, 0])]))
        confidence[row] = min(probabilities[row, together].sum(), 1.0)
    return [
        (top[0], conf, top, None if sample.right.isdisjoint(columns.known) else top[0] in sample.right)
        for sample, top, conf in zip(samples, best.tolist(), confidence.tolist(), strict=True)
    ]


def _naming_classes(plan: Plan, logit_count: int) -> str:
    """Return how to name the classes of a model with this number of logits."""
    whole = imagenet().ids
    if logit_count == len(whole) and set(plan.labels.ids) <= set(whole):
        return (
            'if they are those of ImageNet, declare it so that the others are masked: {"labels": "imagenet"},'
            " in the JSON file beside an ONNX file, or as the attribute sorites of your own code"
        )
    return f"name its classes with {option('labels', 'FILE')}"


def try_models(plan: Plan) -> dict[str, Outputs]:
    """Evaluate a grey image with every model and scorer, so that a broken one is reported before any work is
    done.
    """
    outputs_by_model: dict[str, Outputs] = {}
    arm_second_interrupt()
    for name, model in plan.models.items():
        if as_utf8(name) != name:
            raise SoritesError(
                f"model {as_utf8(name)}: its name is used in the table and must be UTF-8; rename the file"
            )
        outputs, (error,) = evaluate_images(
            model, [GREY], False, plan.width_of(name) if model.output == "boxes" else None
        )
        if error is not None:
            raise SoritesError(f"{name} fails on a grey image: {error}")
        logit_count = 0 if outputs.logits is None else outputs.logits.shape[1]
        label_count = len(plan.labels) if model.labels is None else len(model.labels)
        if model.output == "label" and logit_count != label_count:
            hint = _naming_classes(plan, logit_count)
            raise SoritesError(f"{name} gives {logit_count} logits for {label_count} labels; {hint}")
        for scorer in plan.scorers:
            try_scorer(scorer, plan.scorers[scorer], model, outputs, GREY)
        outputs_by_model[name] = outputs
    return outputs_by_model

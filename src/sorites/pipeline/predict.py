"""Show images to models and keep what each gave as rows of the table: batched from the model to the row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import polars as pl
from scipy.special import softmax

from sorites.core import Model, Outputs, Picture, Sample
from sorites.engines.interrupts import hear_once, leave_if_asked
from sorites.errors import SoritesError, as_utf8
from sorites.pipeline.answers import answers, ask
from sorites.pipeline.box_cells import box_cells, truth_cells
from sorites.pipeline.pictures import Shot
from sorites.pipeline.plan import Columns, Plan
from sorites.pipeline.scoring import Scored, scores, try_scorer
from sorites.table import SCHEMA

GREY: Picture = np.full((96, 128, 3), 128, dtype=np.uint8)
"""The picture on which every model and scorer is tried before any work is done."""
SHARED = (
    "source", "split", "sample_id", "image_id", "probe", "label", "accept", "truth", "attrs", "family", "shift", "severity",
    "level", "params", "seed",
)  # fmt: skip
"""Columns that the rows of all models share; they are built once per image."""
VERDICT = ("known", "pred", "conf", "top5", "correct", "boxes", "error")
T = TypeVar("T")


@dataclass(frozen=True)
class Predictions:
    """The predictions of one model for some images: its rows of the table, and the raw outputs of those it could see."""

    rows: pl.DataFrame
    outputs: Outputs
    image_ids: list[str]


def predict(
    plan: Plan, images: Iterable[Shot], batch: int, tick: Callable[[int], None] = lambda n: None, models: Sequence[str] = ()
) -> dict[str, Predictions]:
    """Show the images to the models, one batch at a time; a batch of pictures is the most that is held in memory."""
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
        "truth": truth_cells(shot.truth),
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
            knows = False if self.plan.is_strange(shot.sample) else not right.isdisjoint(known.known) if right else None
            for name, value in zip(VERDICT, (knows, *judged.get(i, (None,) * 4), boxes.get(i), error), strict=True):
                self.columns[name].append(value)
        pictures = [(some[i].picture, self.plan.is_framed(some[i].sample)) for i in seen]
        for name, scorer in self.plan.scorers_of(self.model.name).items():
            found = dict(zip(seen, scores(name, scorer, self.model, given.outputs, pictures), strict=True))
            self.scores.setdefault(name, []).extend(found.get(i, (None, None)) for i in range(len(some)))
        if seen:
            self.outputs.append(given.outputs)
            self.image_ids += [ids[i] for i in seen]

    def predictions(self, images: pl.DataFrame) -> Predictions:
        verdict = pl.DataFrame(self.columns, schema={name: SCHEMA[name] for name in VERDICT})
        labels = images.hstack(verdict).with_columns(model=pl.lit(self.model.name), output=pl.lit(self.model.output))
        parts = [labels, *(score_rows(labels, name, found) for name, found in self.scores.items())]
        return Predictions(whole(pl.concat(parts, how="diagonal")), Outputs.join(self.outputs), self.image_ids)


def score_rows(labels: pl.DataFrame, scorer: str, found: Sequence[Scored]) -> pl.DataFrame:
    """The rows of a scorer: a label row with its score. One that is an error stays the same error and has no verdict."""
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
    """Prediction, confidence, the best five labels and whether it is right, one entry per picture."""
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
    """Show one plain grey picture to every model and scorer: a broken one is an error before any work is done."""
    tried: dict[str, Outputs] = {}
    hear_once()
    for name, model in plan.models.items():
        if as_utf8(name) != name:
            raise SoritesError(f"model {as_utf8(name)}: its name stands in the table and must be UTF-8; rename the file")
        outputs, (error,) = ask(model, [GREY], False, plan.width_of(name) if model.output == "boxes" else None)
        if error is not None:
            raise SoritesError(f"{name} fails on a plain grey picture: {error}")
        wide = 0 if outputs.logits is None else outputs.logits.shape[1]
        wanted = len(plan.labels) if model.labels is None else len(model.labels)
        if model.output == "label" and wide != wanted:
            raise SoritesError(f"{name} gives {wide} logits for {wanted} labels; name its classes with --labels FILE")
        for scorer in plan.scorers:
            try_scorer(scorer, plan.scorers[scorer], model, outputs, GREY)
        tried[name] = outputs
    return tried

"""``sorites guard``: choose a threshold on the scores of a run and write a guard that can be deployed."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

import sorites
from sorites import core
from sorites.analysis.guard.graph import guarded, scorer_alone
from sorites.analysis.guard.rates import as_scored, chosen_model, estimated, scored_images
from sorites.analysis.guard.rules import parse_rule
from sorites.analysis.options import GuardOptions
from sorites.core import CLEAN, Model, Scorer
from sorites.core.errors import IncompatibleRun, InvalidOption, Notice, SoritesError, UnfinishedRun, tell
from sorites.core.messages import option
from sorites.core.packed import ById
from sorites.core.plugins import scorer_version
from sorites.core.table import RunLike, read, run_folder
from sorites.deploy.guard import Guard
from sorites.deploy.record import (
    GRAPH,
    NAME,
    REFERENCE,
    Agreement,
    Choice,
    Frame,
    GuardRecord,
    Preparation,
    digest_of,
    dump,
)
from sorites.evaluation import fit
from sorites.evaluation.integrity.unfinished import unfinished
from sorites.evaluation.plan import Plan
from sorites.evaluation.predict import GREY
from sorites.evaluation.reopen import recreate_plan
from sorites.evaluation.run import Run
from sorites.evaluation.samples import frame_of
from sorites.evaluation.storage.overlap import overlap_notes, overlap_of
from sorites.evaluation.storage.record import read_record, versions
from sorites.evaluation.storage.schema import RunRecord
from sorites.evaluation.storage.shards import all_features
from sorites.evaluation.storage.tensors import read_tensors
from sorites.io.files import write_bytes
from sorites.io.paths import path_of

# Clean images whose scores are compared with those of the run.
COMPARED = 32
# The largest difference that is rounding, and the largest that is accepted with a notice, relative to 1 or to
# the score if that is larger.
ROUNDING, TOLERATED = 1e-5, 1e-2
# Clean images that are kept as a reference for tests of drift.
MAX_REFERENCE = 2000


def guard(
    run: str | Path | RunLike,
    scorer: str,
    at: str = "tpr=0.95",
    *,
    model: str | None = None,
    power: float = 0.9,
    confidence: float = 0.95,
    coverage: float = 0.9,
    out: str | Path = "guard",
) -> GuardRecord:
    """Choose a threshold on the OOD scores of a run, and write guard.json and guard.onnx.

    Args:
        run: A run folder, made by "sorites run". Also a ``Run``.
        scorer: A scorer of the run: energy, 'knn(k=10)'.
        at: How the threshold is chosen: tpr=0.95 (clean images without an alarm), risk=0.05 (errors among
            images without an alarm), beyond=SHIFT:SEVERITY (an alarm for images at or beyond it) or
            cost=FILE.
        model: Model of the run, if it has several.
        power: With beyond: the share of those images that raise an alarm.
        confidence: With risk and beyond: the confidence of the promise.
        coverage: The share of prediction sets that contain the class, for runs with kept features.
        out: The folder to write.

    Returns:
        The content of guard.json.

    Raises:
        SoritesError: The run has no such scores, or the rule cannot be satisfied.
    """
    options = GuardOptions(
        run=run,
        scorer=scorer,
        at=at,
        model=model,
        power=power,
        confidence=confidence,
        coverage=coverage,
        out=out,
    )
    return write_guard(options)


@dataclass(frozen=True)
class Parts:
    """The parts of a guard: the run, the model, and the fitted scorer."""

    folder: Path
    record: RunRecord
    plan: Plan
    model: Model
    name: str
    scorer: Scorer


def write_guard(options: GuardOptions) -> GuardRecord:
    """Write a guard, like ``guard``, with options as one object."""
    for name in ("power", "confidence", "coverage"):
        if not 0 < (value := getattr(options, name)) < 1:
            raise InvalidOption(
                name, f"{option(name, None)}: expected a number between 0 and 1, got {value:g}"
            )
    choose = parse_rule(options.at, options.power, options.confidence)
    folder, scorer = run_folder(options.run), core.scorer_name(options.scorer)
    if (incomplete := unfinished(folder)) is not None:
        raise UnfinishedRun(folder, f"{incomplete.found()} Repeat the run to finish it, then make the guard.")
    table = read(folder)
    model = chosen_model(table, folder, options.model)
    for note in overlap_notes({name: seen for name, seen in overlap_of(folder).items() if name == model}):
        tell(Notice(note, code="trained_on", model=model))
    images = scored_images(table, folder, model, scorer)
    held_out = images.filter(pl.col("half") == 1)
    if not held_out["clean"].any():
        raise SoritesError(f"{folder} has no scores of {scorer} for clean in-distribution images")
    chosen = choose(as_scored(images.filter(pl.col("half") == 0)))
    if not math.isfinite(chosen.threshold):
        raise SoritesError(f"{options.at}: the threshold would be {chosen.threshold}, a score of {scorer}")
    parts = _parts(options.run, folder, model, scorer)
    graph, preparation, classes = _graph(parts)
    kept = _kept_outputs(folder, model, images.filter("clean"))
    set_threshold = _set_threshold(parts, kept, images, options.coverage)
    record = GuardRecord(
        model=model,
        model_version=str(parts.record.models[model]),
        scorer=scorer,
        scorer_version=str(scorer_version(scorer)),
        threshold=chosen.threshold,
        choice=Choice(options.at, _samples(images, 0), _samples(images, 1), chosen.confidence, chosen.note),
        rates=estimated(held_out, chosen.threshold),
        classes=classes,
        label_space=parts.plan.labels.ids,
        preparation=preparation,
        set_threshold=set_threshold,
        coverage=None if set_threshold is None else options.coverage,
        fitted=dict(getattr(parts.scorer, "fitted", {})),
        run_id=parts.record.run_id,
        suite=parts.record.suite.name,
        source=parts.record.suite.source,
        agreement=Agreement(0, None),
        versions={"sorites": sorites.__version__, **versions()},
        command=options.command_line("guard"),
    )
    reference = _reference(images.filter("clean"), kept)
    return _written(path_of(options.out), record, {GRAPH: graph, REFERENCE: reference}, parts, images)


def _samples(images: pl.DataFrame, half: int) -> int:
    return images.filter(pl.col("half") == half).select("source", "sample_id").n_unique()


def _parts(run: str | Path | RunLike, folder: Path, model: str, scorer: str) -> Parts:
    """Load the model of a run and fit the scorer on the outputs of training images that the run has kept."""
    record = read_record(folder)
    if isinstance(run, Run) and model in run.plan.models:
        plan = run.plan
    else:
        suite = record.suite
        entries = [
            entry for entry, name in zip(suite.models, suite.model_names, strict=True) if name == model
        ]
        reduced = {"models": tuple(entries), "scorers": (), "scorers_if_fitted": (), "fit": None}
        plan = recreate_plan(folder, record, suite.model_copy(update=reduced))
    loaded = plan.models[model]
    if str(loaded.version) != str(record.models[model]):
        raise IncompatibleRun(
            folder,
            f"{model} has version {str(loaded.version)[:12]} now, but {str(record.models[model])[:12]} in the"
            f" run. Run again.",
        )
    if loaded.output != "label":
        raise SoritesError(f"{model} is a detector; a guard needs a classifier")
    before = fit.read_fits(folder).get(model)
    searched = {} if before is None else before.search
    fits = fit.Fits(folder, model, loaded.head, record.suite.fit, searched, loaded.texts)
    fitted, _ = fits.scorer(scorer, core.scorer(scorer))
    if isinstance(fitted, fit.UnfittedScorer):
        raise SoritesError(f"{model}: {fitted.note}")
    return Parts(folder, record, plan, loaded, model, fitted)


def _graph(parts: Parts) -> tuple[bytes, Preparation | None, tuple[str, ...]]:
    """Return the graph, how images are prepared for it, and the classes of its logits."""
    model = parts.model
    outputs = model([GREY])
    if outputs.logits is None:
        raise SoritesError(f"{parts.name} gives no logits")
    classes, width = outputs.logits.shape[1], 0 if outputs.features is None else outputs.features.shape[1]
    ids = model.labels or parts.plan.labels.ids
    if model.graph is None:
        tell(
            Notice(
                f"{parts.name} has no ONNX graph: guard.onnx contains only the scorer, and takes the logits"
                " and features of the model",
                code="scorer_only",
                model=parts.name,
            )
        )
        return scorer_alone(parts.scorer, classes, width), None, tuple(ids)
    graph, frame, wants = model.graph(), parts.plan.suite.frame, model.input
    preparation = Preparation(
        None if frame is None else Frame(frame.resize, frame.crop, frame.filter),
        tuple(wants["size"]),
        wants["crop_pct"],
        wants["filter"],
        wants["mode"],
        graph.layout,
        graph.dtype,
        graph.mean,
        graph.std,
        graph.batch,
    )
    return guarded(graph, parts.scorer, classes, width), preparation, tuple(ids)


# Outputs of clean images that the run has kept.


@dataclass(frozen=True)
class Kept:
    """Logits and features of clean images, if the run has kept them."""

    image_ids: list[str]
    logits: NDArray[np.float32] | None
    features: NDArray[np.float32] | None


def _kept_outputs(folder: Path, model: str, clean: pl.DataFrame) -> Kept:
    wanted = set(clean["image_id"])
    ids: list[str] = []
    found: dict[str, list[NDArray[np.float32]]] = {"logits": [], "features": []}
    for path in all_features(folder, model):
        about, arrays = read_tensors(path, ("image_id",), ("logits", "features"))
        places = [i for i, image in enumerate(about["image_id"]) if image in wanted]
        ids += [about["image_id"][i] for i in places]
        for name, rows in found.items():
            if places and name in arrays:
                rows.append(arrays[name][places])
    joined = {name: np.concatenate(rows) if rows else None for name, rows in found.items()}
    return Kept(ids, joined["logits"], joined["features"])


def _set_threshold(parts: Parts, kept: Kept, images: pl.DataFrame, coverage: float) -> float | None:
    """Return the least probability of classes in a prediction set (split conformal prediction, Sadinle et al.
    2019), from the probabilities of the classes of clean images; None without kept logits.
    """
    if kept.logits is None:
        return None
    accepted: Mapping[str, list[int]] = dict(images.filter("clean").select("image_id", "accept").iter_rows())
    columns = parts.plan.columns[parts.name]
    place = dict(zip(columns.labels.tolist(), columns.places.tolist(), strict=True))
    logits = kept.logits.astype(np.float64)
    likely = np.exp(logits - logits.max(axis=1, keepdims=True))
    likely /= likely.sum(axis=1, keepdims=True)
    own = [
        [place[label] for label in accepted.get(image) or () if label in place] for image in kept.image_ids
    ]
    least = np.sort([row[right].max() for row, right in zip(likely, own, strict=True) if right])
    rank = int(np.floor((1 - coverage) * (len(least) + 1)))
    if rank < 1:
        return None
    return float(least[rank - 1])


def _reference(clean: pl.DataFrame, kept: Kept) -> bytes:
    """Return scores, and features if there are any, of clean images, for tests of drift."""
    order = clean.sort("half", "source", "sample_id")
    scores = order["score"].to_numpy()
    rng = np.random.default_rng(0)
    arrays: dict[str, NDArray[np.floating]] = {"scores": scores[rng.permutation(len(scores))[:MAX_REFERENCE]]}
    if kept.features is not None:
        chosen = rng.permutation(len(kept.features))[:MAX_REFERENCE]
        arrays["features"] = kept.features[np.sort(chosen)]
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _written(
    folder: Path, record: GuardRecord, files: Mapping[str, bytes], parts: Parts, images: pl.DataFrame
) -> GuardRecord:
    """Write the files, compare the scores of the guard with those of the run, and write the record."""
    for name, data in files.items():
        write_bytes(data, folder / name)
    record = replace(record, files={name: digest_of(data) for name, data in files.items()})
    write_bytes(dump(record), folder / NAME)
    record = replace(record, agreement=_compared(Guard(folder / NAME), parts, images))
    write_bytes(dump(record), folder / NAME)
    return record


def _compared(made: Guard, parts: Parts, images: pl.DataFrame) -> Agreement:
    """Compare the scores of the guard with those of the run on clean images.

    Raises:
        SoritesError: They differ by more than rounding.
    """
    if made.record.preparation is None:
        return Agreement(0, None)
    samples = ById(parts.plan.groups[CLEAN])
    rows = images.filter("clean").select("sample_id", "score").head(COMPARED)
    largest, count = 0.0, 0
    for sample_id, score in rows.iter_rows():
        try:
            sample = samples[sample_id]
            image = sample.load()
        except (KeyError, SoritesError):
            continue
        if frame_of(parts.plan.suite, sample) != parts.plan.suite.frame or sample.framed:
            continue
        found = float(made.score([image]).scores[0])
        count, largest = count + 1, max(largest, abs(found - score) / max(1.0, abs(score)))
    if not count:
        text = "the images of the run are not available, so the guard's scores were not compared with them"
        tell(Notice(text, code="not_compared"))
        return Agreement(0, None)
    if not largest <= TOLERATED:
        raise SoritesError(
            f"the scores of the guard differ from those of the run by {largest:.2g}; the images or the model"
            " have changed since, or the model prepares images in a way that is not recorded"
        )
    if largest > ROUNDING:
        tell(
            Notice(f"the scores of the guard differ from those of the run by {largest:.2g}", code="rounding")
        )
    return Agreement(count, largest)

"""Explain the flipped images of a run, and store the explanations in the run folder for the report.

Torch classifiers are explained with Grad-CAM, all other models by hiding parts of images (``masking``).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import polars as pl
from PIL import Image as Pillow

from sorites.analysis.sheet import images_of
from sorites.core import Box, ImageU8, Model, Sample
from sorites.core.errors import Information, SoritesError, UnknownName, tell
from sorites.core.messages import option
from sorites.core.progress import Bar, Tick
from sorites.core.rng import digest, rng_for
from sorites.core.table import RunLike, read, run_folder
from sorites.evaluation.plan import Plan
from sorites.evaluation.reopen import recreate_plan, refuse_attacks
from sorites.evaluation.resume import guard
from sorites.evaluation.run import Run
from sorites.evaluation.storage.explanations import (
    Change,
    Kind,
    Method,
    Side,
    image_files,
    kinds_of,
    read_changes,
    stem_of_image,
    write_changes,
    write_image,
)
from sorites.evaluation.storage.folder import read_manifest
from sorites.evaluation.storage.record import read_record
from sorites.evaluation.storage.schema import RunRecord
from sorites.io.files import locked
from sorites.models.torch_module import module_of
from sorites.training.explain import masking
from sorites.training.explain.flips import Row, changes, object_changes
from sorites.training.explain.gradcam import VERB, explained, heat, relief
from sorites.training.options import FOUND_CONFIDENCE, MASKS, MAX_EXPLAINED, ExplainOptions

# Increment when the same model and image would be drawn differently.
VERSION = 1
Target = Literal["prediction", "ground_truth"]
# The longer side of stored images of masking methods, in px.
STORED_SIDE = 320


def explain(
    run: str | Path | RunLike,
    models: Sequence[str] = (),
    *,
    shifts: Sequence[str] = (),
    limit: int | None = MAX_EXPLAINED,
    target: str = "prediction",
    layer: str | Mapping[str, str] | None = None,
    method: str = "auto",
    masks: int = MASKS,
    conf: float = FOUND_CONFIDENCE,
    max_pixels: int | None = None,
    bar: Bar | None = None,
) -> tuple[Change, ...]:
    """Explain images that flipped between two models, or for one model between clean and shifted.

    For detectors, objects that were lost or gained take the place of images. Existing explanations in the run
    folder are reused; a different target, layer, method or number of masks replaces them.

    Args:
        run: A run folder, made by "sorites run"; may be on an object store: s3://BUCKET/RUN. Also a ``Run``.
        models: Models of the run. Two models are compared; one is compared clean and shifted.
        shifts: Use only these shifts; clean counts as one.
        limit: Explain at most N images, in a fixed random order. None explains all.
        target: Class to explain: prediction or ground_truth.
        layer: Layer to explain, for all models or by model; default: the last one with feature maps.
        method: Grad-CAM for torch classifiers (gradcam), or by hiding parts of images of any model: rise (for
            detectors D-RISE) or occlusion; auto is gradcam if it can be used, else rise.
        masks: Number of masks of rise per image; the noise falls with its square root.
        conf: Of detectors: the confidence from which a box finds an object.
        max_pixels: Refuse images with more pixels than this; default: 100 million.
        bar: Creates a progress bar.

    Returns:
        The explained flips.
    """
    options = ExplainOptions(
        run=run,
        models=models,
        shifts=shifts,
        limit=limit,
        target=target,
        layer=layer,
        method=method,
        masks=masks,
        conf=conf,
        max_pixels=max_pixels,
    )
    with options.reading():
        return explain_flips(options, bar)


def explain_flips(options: ExplainOptions, bar: Bar | None = None) -> tuple[Change, ...]:
    """Explain images that flipped, like ``explain``, with options as one object."""
    folder, target, limit = run_folder(options.run), options.target, options.limit
    if target not in get_args(Target):
        raise SoritesError(
            f"{option('target', None)} must be one of {', '.join(get_args(Target))}; got {target!r}"
        )
    if limit is not None and limit < 1:
        raise SoritesError(f"{option('limit', None)} must be at least 1, got {limit}")
    record = read_record(folder)
    names = _names(record, options.models)
    plan = options.run.plan if isinstance(options.run, Run) else _plan(folder, record, names)
    models = [plan.models[name] for name in names]
    method = _method(options, models)
    for model in models:
        _check_model(folder, record, model, method)
    work = _Work(folder, plan, target, _layers(options.layer, names), method, options.masks)
    with locked(folder):
        before = _unchanged(folder, read_changes(folder))
        if models[0].output == "boxes":
            todo = object_changes(read(folder), names, options.shifts, limit, options.conf)
        else:
            todo = changes(read(folder), names, options.shifts, limit)
        stored = {side.file: side for earlier in before for side in earlier.sides}
        work.open(todo, stored, bar)
        recorded, explained = {change.key: change for change in before}, list[Change]()
        for change in work.explained(todo, stored):
            if change is not None:
                explained.append(change)
                recorded[change.key] = change
                write_changes(folder, list(recorded.values()))
    return tuple(explained)


def explain_row(
    plan: Plan, row: Row, image: ImageU8, masks: int = MASKS
) -> tuple[Method, dict[Kind, ImageU8], Row]:
    """Explain the prediction in one row of a run's table: Grad-CAM for torch classifiers, else RISE.

    Args:
        plan: The plan of the run.
        row: The row; of a detector with the explained box as ``box`` and its class as ``label``.
        image: The image of the row.
        masks: Number of masks of RISE.

    Returns:
        The method, the images that it makes, and facts about them, such as ``empty``.
    """
    model = plan.models[row["model"]]
    method: Method = "gradcam" if model.module is not None and model.output == "label" else "rise"
    work = _Work(Path(), plan, "prediction", {}, method, masks)
    return method, *work.drawn(row, image)


def _method(options: ExplainOptions, models: Sequence[Model]) -> Method:
    """Return the method: as asked, or Grad-CAM where all models are torch classifiers."""
    known = ("auto", *get_args(Method))
    if options.method not in known:
        raise UnknownName("method", options.method, known, f"The methods are {', '.join(known)}.")
    if len({model.output for model in models}) > 1:
        raise SoritesError(
            "a classifier and a detector cannot be compared; choose models of one kind with"
            f" {option('models', ['NAME'])}"
        )
    if options.masks < 2:
        raise SoritesError(f"{option('masks', None)} must be at least 2, got {options.masks}")
    has_gradients = all(model.module is not None and model.output == "label" for model in models)
    found: Method = next((name for name in get_args(Method) if name == options.method), "rise")
    chosen: Method = ("gradcam" if has_gradients else "rise") if options.method == "auto" else found
    if chosen == "gradcam" and models[0].output == "boxes":
        raise SoritesError(
            f"Grad-CAM explains classes, and {models[0].name} is a detector: pass {option('method', 'rise')}"
        )
    if options.layer and chosen != "gradcam":
        raise SoritesError(f"{option('layer', None)} belongs to Grad-CAM, and the method is {chosen}")
    return chosen


def _names(record: RunRecord, models: Sequence[str]) -> list[str]:
    """Return the one or two models to explain."""
    available = list(record.models)
    names = list(dict.fromkeys(models)) or available
    for name in names:
        if name not in available:
            raise UnknownName("model of this run", name, available, f"It has {', '.join(available)}.")
    if len(names) > 2:
        raise SoritesError(
            f"Expected one model, or two to compare; the run has {', '.join(available)}. Choose with "
            f"{option('models', ['NAME'])}."
        )
    return names


def _plan(folder: Path, record: RunRecord, names: Sequence[str]) -> Plan:
    """Rebuild the plan of a run folder with the models to explain."""
    refuse_attacks(folder)
    if record.imported is not None:
        raise SoritesError(f"{folder} was imported from prediction files, so it has no images to explain")
    suite = record.suite
    specs = dict(zip(suite.model_names, suite.models, strict=True))
    changes = {
        "models": tuple(specs[name] for name in names),
        "fit": None,
        "scorers": (),
        "scorers_if_fitted": (),
    }
    return guard(recreate_plan(folder, record, suite.model_copy(update=changes)), read_manifest(folder))


def _check_model(folder: Path, record: RunRecord, model: Model, method: Method) -> None:
    if method == "gradcam":
        module_of(model, VERB)
    then = record.models[model.name]
    if then != model.version:
        raise SoritesError(
            f"The weights of {model.name} have changed since {folder} was run (version {then} "
            f"there, {model.version} now). Run again with another {option('out', 'DIR')}."
        )


def _layers(layer: str | Mapping[str, str] | None, names: Sequence[str]) -> dict[str, str]:
    if isinstance(layer, Mapping):
        unknown = next((name for name in layer if name not in names), None)
        if unknown is not None:
            raise UnknownName("model to explain", unknown, names, f"Available: {', '.join(names)}.")
        return dict(layer)
    return dict.fromkeys(names, layer) if layer else {}


def _unchanged(folder: Path, before: Sequence[Change]) -> list[Change]:
    """Return the explanations whose predictions still match the table.

    Changed images were evaluated again.
    """
    images = [side.image_id for change in before for side in change.sides]
    rows = read(folder).filter(pl.col("image_id").is_in(images), pl.col("output").is_in(["label", "boxes"]))
    rows_by_key = {
        (row["image_id"], row["model"]): row
        for row in rows.select("image_id", "model", "pred", "conf", "boxes").collect().to_dicts()
    }

    def same(side: Side) -> bool:
        row = rows_by_key.get((side.image_id, side.model))
        if row is None:
            return False
        if side.box is not None:
            return _answer(row) == side.answer
        return (row["pred"], row["conf"]) == (side.pred, side.conf)

    return [change for change in before if all(same(side) for side in change.sides)]


def _answer(row: Row) -> str:
    """Return a hash of a detector's boxes for an image; empty for classifiers."""
    return digest(json.dumps(row["boxes"]), size=8).hex() if row.get("boxes") is not None else ""


@dataclass
class _Work:
    """Explains flips one by one."""

    folder: Path
    plan: Plan
    target: str
    layers: Mapping[str, str]
    method: Method
    masks: int
    tick: Tick = lambda n: None

    def open(self, pairs: Sequence[tuple[Row, Row]], before: Mapping[str, Side], bar: Bar | None) -> None:
        """Open the progress bar, and say how long masking will take."""
        missing = [row for pair in pairs for row in pair if not self._is_stored(self._file(row), before)]
        if bar is not None:
            self.tick = bar("explaining", max(len(missing) * self._passes, 1))
        if self.method != "gradcam" and missing:
            seconds = self._seconds_per_pass(missing[0])
            minutes = len(missing) * (self._passes + len(masking.SHARES) * 2) * seconds / 60
            text = (
                f"{len(missing)} images x {self._passes} {'masks' if self.method == 'rise' else 'squares'},"
                f" {1000 * seconds:.0f} ms each: about {minutes:.1f} min"
            )
            tell(Information(text, images=len(missing), minutes=minutes))

    @property
    def _passes(self) -> int:
        """The number of images that one map takes."""
        if self.method == "gradcam":
            return 1
        return self.masks + self.masks % 2 if self.method == "rise" else masking.OCCLUSION_PASSES

    def _seconds_per_pass(self, row: Row) -> float:
        """Time the model on one batch of copies of an image, after a first call that is not counted."""
        images = images_of(self.plan, row["sample_id"], {row["image_id"]})
        if row["image_id"] not in images:
            return 0.0
        score = self._score(row, self._sample(row))
        batch = [images[row["image_id"]]] * masking.BATCH
        score(batch[:1])
        start = time.perf_counter()
        score([masking.hidden(image, np.full(image.shape[:2], 0.5)) for image in batch])
        return (time.perf_counter() - start) / len(batch)

    def explained(
        self, pairs: Sequence[tuple[Row, Row]], before: Mapping[str, Side]
    ) -> Iterator[Change | None]:
        """Yield an explanation per pair of rows, or None if its images cannot be recreated."""
        for pair in pairs:
            files = [self._file(row) for row in pair]
            sides = [before[file] for file in files if self._is_stored(file, before)]
            if len(sides) < 2:
                images = images_of(self.plan, pair[0]["sample_id"], {row["image_id"] for row in pair})
                if not all(row["image_id"] in images for row in pair):
                    yield None
                    continue
                sides = [
                    self._side(row, file, images[row["image_id"]])
                    for row, file in zip(pair, files, strict=True)
                ]
            kind: Literal["models", "settings"] = (
                "models" if pair[0]["model"] != pair[1]["model"] else "settings"
            )
            yield Change(
                between=kind,
                sample_id=pair[0]["sample_id"],
                label=pair[0]["label"],
                sides=(sides[0], sides[1]),
            )

    def _sample(self, row: Row) -> Sample:
        return next(iter(self.plan.groups[row["shift"]].called(row["sample_id"])))

    def _is_stored(self, file: str, before: Mapping[str, Side]) -> bool:
        stored = image_files(self.folder)
        return file in before and all(stem_of_image(file, kind) in stored for kind in kinds_of(self.method))

    def _file(self, row: Row) -> str:
        """Return the file name of a side, unique for its image, model, method, target and prediction."""
        name = row["model"]
        version = self.plan.models[name].version
        parts: tuple[object, ...] = (
            row["image_id"],
            name,
            version,
            self.layers.get(name),
            self._label(row),
            row["pred"],
            row["conf"],
        )
        if self.method != "gradcam":
            parts += (
                self.method,
                self.masks if self.method == "rise" else None,
                row.get("box"),
                _answer(row),
            )
        return digest(VERSION, *parts, size=8).hex()

    def _label(self, row: Row) -> int:
        """Return the class to explain; the prediction if the model lacks the ground-truth class."""
        ground_truth = self.target == "ground_truth" and row["label"] in self._columns(row["model"])
        return int(row["label"] if ground_truth else row["pred"])

    def _columns(self, model: str) -> dict[int, int]:
        """Map the labels that a model has to columns of its logits."""
        columns = self.plan.columns[model]
        return dict(zip(columns.labels.tolist(), columns.places.tolist(), strict=True))

    def _side(self, row: Row, file: str, image: ImageU8) -> Side:
        """Explain one prediction and write its images."""
        images, more = self.drawn(row, image)
        for kind in kinds_of(self.method):
            write_image(images[kind], self.folder, file, kind)
        about = {
            name: row[name]
            for name in ("image_id", "shift", "severity", "params", "model", "pred", "conf", "correct")
        }
        version = self.plan.models[row["model"]].version
        return Side(file=file, version=version, target=self._label(row), method=self.method, **about, **more)

    def drawn(self, row: Row, image: ImageU8) -> tuple[dict[Kind, ImageU8], Row]:
        """Return the images of the method, and what is recorded of them."""
        return (self._gradients if self.method == "gradcam" else self._masked)(row, image)

    def _gradients(self, row: Row, image: ImageU8) -> tuple[dict[Kind, ImageU8], Row]:
        """Return the images of Grad-CAM, and what is recorded of it."""
        model, framed = self.plan.models[row["model"]], self.plan.is_framed(self._sample(row))
        layer_name = self.layers.get(model.name)
        column = self._columns(model.name)[self._label(row)]
        cams, guided, layer = explained(model, [image], [column], layer=layer_name, framed=framed)
        self.tick(1)
        model_input = np.asarray(model.prepare(np.array(image), framed))
        images: dict[Kind, ImageU8] = {
            "seen": model_input.astype(np.uint8),
            "cam": heat(model_input.astype(np.float32), cams[0]),
            "guided": relief(guided[0]),
        }
        return images, {"layer": layer, "empty": not bool(cams[0].any())}

    def _score(self, row: Row, sample: Sample) -> masking.Score:
        """Return what a map explains: the probability of a class, or how well an object is found."""
        model, framed = self.plan.models[row["model"]], self.plan.is_framed(sample)
        columns = self._columns(model.name)
        if "box" in row:
            return masking.object_score(model, Box(row["box"], columns[row["label"]]), framed)
        return masking.class_score(model, columns[self._label(row)], list(columns.values()), framed)

    def _masked(self, row: Row, image: ImageU8) -> tuple[dict[Kind, ImageU8], Row]:
        """Return the images of a masking method, and what is recorded of it."""
        sample = self._sample(row)
        score = self._score(row, sample)
        if self.method == "rise":
            # All settings and models of a sample share the masks.
            rng = rng_for(self.plan.suite.seed, sample.id, "rise")
            cells = masking.OBJECT_CELLS if "box" in row else masking.CLASS_CELLS
            found, clear = masking.rise(score, image, rng, masks=self.masks, cells=cells, tick=self.tick)
        else:
            found, clear = masking.occlusion(score, image, tick=self.tick)
        curve = masking.deletion(score, image, found)
        shown = heat(image.astype(np.float32), (found - found.min()).astype(np.float32))
        recorded = {
            "empty": not clear,
            "masks": self._passes,
            "score": float(curve[0]),
            "deleted": float(curve[1]),
            "deletion": masking.area(curve),
            "insertion": masking.area(masking.insertion(score, image, found)),
            "size": (image.shape[1], image.shape[0]),
            "answer": _answer(row),
            "box": row.get("box"),
        }
        return {"seen": _small(image), "cam": _small(shown)}, recorded


def _small(image: ImageU8) -> ImageU8:
    """Return an image whose longer side is at most ``STORED_SIDE``."""
    height, width = image.shape[:2]
    scale = min(1.0, STORED_SIDE / max(height, width))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return np.asarray(Pillow.fromarray(image).resize(size, Pillow.Resampling.LANCZOS))

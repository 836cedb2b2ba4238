"""Explain the flipped images of a run, and store the explanations in the run folder for the report."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import polars as pl

from sorites.analysis.sheet import images_of
from sorites.core import CLEAN, ImageU8, Model, Sample
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.messages import option
from sorites.core.progress import Bar
from sorites.core.rng import digest, hashed_order
from sorites.core.table import RunLike, Table, read, run_folder
from sorites.evaluation.explanations import (
    KINDS,
    Change,
    Side,
    image_files,
    read_changes,
    stem_of_image,
    write_changes,
    write_image,
)
from sorites.evaluation.plan import Plan
from sorites.evaluation.reopen import recreate_plan, refuse_attacks
from sorites.evaluation.resume import guard
from sorites.evaluation.run import Run
from sorites.evaluation.storage.folder import read_manifest
from sorites.evaluation.storage.record import read_record
from sorites.evaluation.storage.schema import RunRecord
from sorites.io.files import locked
from sorites.models.torch_module import module_of
from sorites.training.explain.gradcam import VERB, explained, heat, relief
from sorites.training.options import MAX_EXPLAINED, ExplainOptions

# Flipped images: correct for one model but not the other, or correct clean but not shifted.


Row = dict[str, Any]
SIDE_COLUMNS = ("image_id", "shift", "severity", "params", "model", "pred", "conf", "correct")
ORDER_COLUMNS = ("sample_id", "shift", "severity", "params")


def changes(
    table: Table, models: Sequence[str], shifts: Sequence[str] = (), limit: int | None = None
) -> list[tuple[Row, Row]]:
    """Return pairs of rows with different correctness: two models, or one model clean and shifted.

    Per sample the mildest change is kept; fixed and broken samples alternate in a fixed shuffled order.
    """
    rows = _rated_rows(table, models)
    _check_shifts(rows, shifts)
    pairs = _between_models(rows, *models) if len(models) == 2 else _between_settings(rows)
    chosen = pairs.filter(pl.col("shift").is_in(list(shifts))) if shifts else pairs
    by_severity = chosen.sort("severity", "image_id", nulls_last=True)
    mildest = by_severity.unique(
        ["gained", "source", "sample_id", "shift"], keep="first", maintain_order=True
    )
    shuffled = hashed_order(mildest.to_dicts(), lambda row: [row[name] for name in ORDER_COLUMNS])
    gained, lost = ([row for row in shuffled if row["gained"] is direction] for direction in (True, False))
    alternating = [
        row
        for pair in itertools.zip_longest(_first_per_sample(gained), _first_per_sample(lost))
        for row in pair
        if row is not None
    ]
    return [_pair(row) for row in _first_per_sample(alternating)[:limit]]


def _first_per_sample(rows: Sequence[Row]) -> list[Row]:
    """Return the first row of each sample, in order."""
    first: dict[tuple[str, str], Row] = {}
    for row in rows:
        first.setdefault((row["source"], row["sample_id"]), row)
    return list(first.values())


def _rated_rows(table: Table, models: Sequence[str]) -> pl.DataFrame:
    rated = pl.col("correct").is_not_null() & pl.col("error").is_null() & ~pl.col("probe").fill_null(False)
    rows = table.lazy().filter((pl.col("output") == "label") & rated & pl.col("model").is_in(list(models)))
    return rows.select("source", "sample_id", "label", *SIDE_COLUMNS).collect(engine="streaming")


def _check_shifts(rows: pl.DataFrame, shifts: Sequence[str]) -> None:
    available = rows["shift"].unique().sort().to_list()
    for name in shifts:
        if name not in available:
            raise UnknownName(
                "shift of this run", name, available, f"It has {', '.join(available) or 'none'}."
            )


def _between_models(rows: pl.DataFrame, first_model: str, second_model: str) -> pl.DataFrame:
    """Pair two models by image; ``gained`` means that the second is correct."""
    first, second = (rows.filter(pl.col("model") == name) for name in (first_model, second_model))
    paired = first.join(second.select(SIDE_COLUMNS), on="image_id", suffix="_after").with_columns(
        image_id_after="image_id"
    )
    return paired.filter(pl.col("correct") != pl.col("correct_after")).with_columns(
        gained=pl.col("correct_after")
    )


def _between_settings(rows: pl.DataFrame) -> pl.DataFrame:
    """Pair every shifted image of a model with its clean one.

    ``gained`` means that the shifted one is correct.
    """
    clean, shifted = (rows.filter(pl.col("shift") == CLEAN), rows.filter(pl.col("shift") != CLEAN))
    after = shifted.select(
        "source", "sample_id", *(pl.col(name).alias(f"{name}_after") for name in SIDE_COLUMNS)
    )
    paired = clean.join(after, on=["source", "sample_id"])
    changed = paired.filter(pl.col("correct") != pl.col("correct_after")).with_columns(
        gained=pl.col("correct_after")
    )
    before = {name: pl.col(name).alias(f"{name}_before") for name in SIDE_COLUMNS}
    return changed.with_columns(**{f"{name}_before": column for name, column in before.items()}).with_columns(
        shift="shift_after", severity="severity_after", params="params_after"
    )


def _pair(row: Row) -> tuple[Row, Row]:
    shared = {name: row[name] for name in ("sample_id", "label")}
    before = {name: row.get(f"{name}_before", row[name]) for name in SIDE_COLUMNS}
    return {**shared, **before}, {**shared, **{name: row[f"{name}_after"] for name in SIDE_COLUMNS}}


# Increment when the same model and image would be drawn differently.
VERSION = 1
Target = Literal["prediction", "ground_truth"]


def explain(
    run: str | Path | RunLike,
    models: Sequence[str] = (),
    *,
    shifts: Sequence[str] = (),
    limit: int | None = MAX_EXPLAINED,
    target: str = "prediction",
    layer: str | Mapping[str, str] | None = None,
    max_pixels: int | None = None,
    bar: Bar | None = None,
) -> tuple[Change, ...]:
    """Explain images that flipped between two models, or for one model between clean and shifted.

    Existing explanations in the run folder are reused; a different target or layer replaces them.

    Args:
        run: A run folder, made by "sorites run"; may be on an object store: s3://BUCKET/RUN. Also a ``Run``.
        models: Models of the run. Two models are compared; one is compared clean and shifted.
        shifts: Use only these shifts; clean counts as one.
        limit: Explain at most N images, in a fixed random order. None explains all.
        target: Class to explain: prediction or ground_truth.
        layer: Layer to explain, for all models or by model; default: the last one with feature maps.
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
    for name in names:
        _check_model(folder, record, plan.models[name])
    work = _Work(folder, plan, target, _layers(options.layer, names))
    with locked(folder):
        before = _unchanged(folder, read_changes(folder))
        todo = changes(read(folder), names, options.shifts, limit)
        tick = bar("explaining", len(todo)) if bar else lambda n: None
        recorded, explained = {change.key: change for change in before}, list[Change]()
        for change in work.explained(todo, {side.file: side for earlier in before for side in earlier.sides}):
            if change is not None:
                explained.append(change)
                recorded[change.key] = change
                write_changes(folder, list(recorded.values()))
            tick(1)
    return tuple(explained)


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


def _check_model(folder: Path, record: RunRecord, model: Model) -> None:
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
    import polars as pl

    images = [side.image_id for change in before for side in change.sides]
    rows = read(folder).filter(pl.col("image_id").is_in(images), pl.col("output") == "label")
    rows_by_key = {
        (row["image_id"], row["model"]): row
        for row in rows.select("image_id", "model", "pred", "conf").collect().to_dicts()
    }

    def same(side: Side) -> bool:
        row = rows_by_key.get((side.image_id, side.model))
        return row is not None and (row["pred"], row["conf"]) == (side.pred, side.conf)

    return [change for change in before if all(same(side) for side in change.sides)]


@dataclass
class _Work:
    """Explains flips one by one."""

    folder: Path
    plan: Plan
    target: str
    layers: Mapping[str, str]

    def explained(
        self, pairs: Sequence[tuple[Row, Row]], before: Mapping[str, Side]
    ) -> Iterator[Change | None]:
        """Yield an explanation per pair of rows, or None if its images cannot be recreated."""
        samples = {
            (shift, sample.id): sample for shift, group in self.plan.groups.items() for sample in group
        }
        for pair in pairs:
            files = [self._file(row) for row in pair]
            sides = [before[file] for file in files if file in before and self._is_complete(file)]
            if len(sides) < 2:
                images = images_of(self.plan, pair[0]["sample_id"], {row["image_id"] for row in pair})
                if not all(row["image_id"] in images for row in pair):
                    yield None
                    continue
                sides = [
                    self._side(row, file, images[row["image_id"]], samples[row["shift"], row["sample_id"]])
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

    def _is_complete(self, file: str) -> bool:
        stored = image_files(self.folder)
        return all(stem_of_image(file, kind) in stored for kind in KINDS)

    def _file(self, row: Row) -> str:
        """Return the file name of a side, unique for its image, model, layer, target and prediction."""
        name = row["model"]
        version = self.plan.models[name].version
        parts = (
            row["image_id"],
            name,
            version,
            self.layers.get(name),
            self._label(row),
            row["pred"],
            row["conf"],
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

    def _side(self, row: Row, file: str, image: ImageU8, sample: Sample) -> Side:
        """Explain one prediction and write its images."""
        model, framed = self.plan.models[row["model"]], self.plan.is_framed(sample)
        layer_name = self.layers.get(model.name)
        column = self._columns(model.name)[self._label(row)]
        cams, guided, layer = explained(model, [image], [column], layer=layer_name, framed=framed)
        model_input = np.asarray(model.prepare(np.array(image), framed))
        images = {
            "seen": model_input.astype(np.uint8),
            "cam": heat(model_input.astype(np.float32), cams[0]),
            "guided": relief(guided[0]),
        }
        for kind in KINDS:
            write_image(images[kind], self.folder, file, kind)
        about = {
            name: row[name]
            for name in ("image_id", "shift", "severity", "params", "model", "pred", "conf", "correct")
        }
        version, empty = model.version, not bool(cams[0].any())
        return Side(file=file, version=version, target=self._label(row), layer=layer, empty=empty, **about)

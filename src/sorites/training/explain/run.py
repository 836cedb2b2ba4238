"""Explain the images of a run that flipped, and keep the explanations in its folder for the
report.
"""

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
from sorites.core.progress import Bar
from sorites.core.rng import digest, fair_order
from sorites.core.table import Table, read
from sorites.evaluation.explanations import (
    KINDS,
    Change,
    Side,
    image_file,
    read_changes,
    write_changes,
    write_image,
)
from sorites.evaluation.plan import Plan
from sorites.evaluation.reopen import made_again, refuse_attacks, suite_of
from sorites.evaluation.resume import guard
from sorites.evaluation.run import RunTable
from sorites.evaluation.storage.folder import read_info, read_manifest
from sorites.io.files import locked
from sorites.models.torch_module import module_of
from sorites.training.explain.maps import VERB, explained, heat, relief

# Images of a run that flipped: right for one model and wrong for another, or right when clean and
# wrong when shifted.


Row = dict[str, Any]
SIDE = ("image_id", "shift", "severity", "params", "model", "pred", "conf", "correct")
ORDER = ("sample_id", "shift", "severity", "params")


def changes(
    table: Table, models: Sequence[str], shifts: Sequence[str] = (), limit: int | None = None
) -> list[tuple[Row, Row]]:
    """Return pairs of rows of the table: of two models for the same image, or of one model clean
    and shifted.
    """
    rows = _judged(table, models)
    _refuse_unknown(rows, shifts)
    both = _between_models(rows, *models) if len(models) == 2 else _between_settings(rows)
    chosen = both.filter(pl.col("shift").is_in(list(shifts))) if shifts else both
    least = chosen.sort("severity", "image_id", nulls_last=True)
    first = least.unique(["gained", "source", "sample_id", "shift"], keep="first", maintain_order=True)
    fair = fair_order(first.to_dicts(), lambda row: [row[name] for name in ORDER])
    gained, lost = ([row for row in fair if row["gained"] is direction] for direction in (True, False))
    turns = [
        row for pair in itertools.zip_longest(_once(gained), _once(lost)) for row in pair if row is not None
    ]
    return [_pair(row) for row in _once(turns)[:limit]]


def _once(rows: Sequence[Row]) -> list[Row]:
    """Return the first row of each image, in order."""
    first: dict[tuple[str, str], Row] = {}
    for row in rows:
        first.setdefault((row["source"], row["sample_id"]), row)
    return list(first.values())


def _judged(table: Table, models: Sequence[str]) -> pl.DataFrame:
    told = pl.col("correct").is_not_null() & pl.col("error").is_null() & ~pl.col("probe").fill_null(False)
    rows = table.lazy().filter((pl.col("output") == "label") & told & pl.col("model").is_in(list(models)))
    return rows.select("source", "sample_id", "label", *SIDE).collect(engine="streaming")


def _refuse_unknown(rows: pl.DataFrame, shifts: Sequence[str]) -> None:
    known = rows["shift"].unique().sort().to_list()
    for name in shifts:
        if name not in known:
            raise UnknownName("shift of this run", name, known, f"It has {', '.join(known) or 'none'}.")


def _between_models(rows: pl.DataFrame, one: str, other: str) -> pl.DataFrame:
    """Pair two models by image; ``gained`` means that the second is right."""
    first, second = (rows.filter(pl.col("model") == name) for name in (one, other))
    paired = first.join(second.select(SIDE), on="image_id", suffix="_after").with_columns(
        image_id_after="image_id"
    )
    return paired.filter(pl.col("correct") != pl.col("correct_after")).with_columns(
        gained=pl.col("correct_after")
    )


def _between_settings(rows: pl.DataFrame) -> pl.DataFrame:
    """Pair every shifted image of a model with its clean one; ``gained`` means that the shifted one
    is right.
    """
    clean, moved = (rows.filter(pl.col("shift") == CLEAN), rows.filter(pl.col("shift") != CLEAN))
    after = moved.select("source", "sample_id", *(pl.col(name).alias(f"{name}_after") for name in SIDE))
    paired = clean.join(after, on=["source", "sample_id"])
    changed = paired.filter(pl.col("correct") != pl.col("correct_after")).with_columns(
        gained=pl.col("correct_after")
    )
    before = {name: pl.col(name).alias(f"{name}_before") for name in SIDE}
    return changed.with_columns(**{f"{name}_before": column for name, column in before.items()}).with_columns(
        shift="shift_after", severity="severity_after", params="params_after"
    )


def _pair(row: Row) -> tuple[Row, Row]:
    shared = {name: row[name] for name in ("sample_id", "label")}
    before = {name: row.get(f"{name}_before", row[name]) for name in SIDE}
    return {**shared, **before}, {**shared, **{name: row[f"{name}_after"] for name in SIDE}}


# Rises when the same model and image would be drawn otherwise.
VERSION = 1
LIMIT = 12
Target = Literal["prediction", "ground_truth"]


def explain(
    run: str | Path | RunTable,
    models: Sequence[str] = (),
    *,
    shifts: Sequence[str] = (),
    limit: int | None = LIMIT,
    target: str = "prediction",
    layer: str | Mapping[str, str] | None = None,
    bar: Bar | None = None,
) -> tuple[Change, ...]:
    """Explain images that flipped between two models, or for one model between clean and
    shifted, and return them.

    ``target`` is the class whose evidence is shown: each model's prediction, or the truth.
    ``layer`` names the layer whose maps are used, for all models or by model. What the folder holds
    already is not made again; another class or layer replaces it.
    """
    folder = run.folder if isinstance(run, RunTable) else Path(run)
    if target not in get_args(Target):
        raise SoritesError(f"--target wants prediction or truth, got {target!r}")
    if limit is not None and limit < 1:
        raise SoritesError(f"--limit wants a whole number above 0, got {limit}")
    info = read_info(folder)
    names = _names(info, models)
    plan = run.plan if isinstance(run, RunTable) else _plan(folder, info, names)
    for name in names:
        _refuse_model(folder, info, plan.models[name])
    work = _Work(folder, plan, target, _layers(layer, names))
    with locked(folder):
        before = _still_true(folder, read_changes(folder))
        todo = changes(read(folder), names, shifts, limit)
        tick = bar("explaining", len(todo)) if bar else lambda n: None
        made, found = {change.key: change for change in before}, list[Change]()
        for change in work.explained(todo, {side.file: side for one in before for side in one.sides}):
            if change is not None:
                found.append(change)
                made[change.key] = change
                write_changes(folder, list(made.values()))
            tick(1)
    return tuple(found)


def _names(info: Mapping[str, Any], models: Sequence[str]) -> list[str]:
    """Return the one or two models to explain."""
    known = list(info["models"])
    names = list(dict.fromkeys(models)) or known
    for name in names:
        if name not in known:
            raise UnknownName("model of this run", name, known, f"It has {', '.join(known)}.")
    if len(names) > 2:
        raise SoritesError(
            f"wanted one model or two to compare; the run has {', '.join(known)}. Name them: --model A"
            " --model B"
        )
    return names


def _plan(folder: Path, info: Mapping[str, Any], names: Sequence[str]) -> Plan:
    """Make the plan of a run folder again, with the models that are explained."""
    refuse_attacks(folder)
    if "imported" in info:
        raise SoritesError(
            f"{folder} was made of prediction files by sorites import: it has no images to explain"
        )
    suite = suite_of(info)
    specs = dict(zip(suite.model_names, suite.models, strict=True))
    alone = {
        "models": tuple(specs[name] for name in names),
        "fit": None,
        "scorers": (),
        "scorers_if_fitted": (),
    }
    return guard(made_again(folder, info, suite.model_copy(update=alone)), read_manifest(folder))


def _refuse_model(folder: Path, info: Mapping[str, Any], model: Model) -> None:
    module_of(model, VERB)
    then = info["models"][model.name]
    if then != model.version:
        raise SoritesError(
            f"{model.name} has other weights than those that {folder} looked at (version {then} there,"
            f" {model.version} here), so that it would explain other answers. Run it again with another --out"
            " DIR."
        )


def _layers(given: str | Mapping[str, str] | None, names: Sequence[str]) -> dict[str, str]:
    if isinstance(given, Mapping):
        unknown = next((name for name in given if name not in names), None)
        if unknown is not None:
            raise UnknownName("model to explain", unknown, names, f"There are {', '.join(names)}.")
        return dict(given)
    return dict.fromkeys(names, given) if given else {}


def _still_true(folder: Path, before: Sequence[Change]) -> list[Change]:
    """Return the changes whose rows are still those of the table: images that changed were judged again."""
    import polars as pl

    images = [side.image_id for change in before for side in change.sides]
    rows = read(folder).filter(pl.col("image_id").is_in(images), pl.col("output") == "label")
    known = {
        (row["image_id"], row["model"]): row
        for row in rows.select("image_id", "model", "pred", "conf").collect().to_dicts()
    }

    def same(side: Side) -> bool:
        row = known.get((side.image_id, side.model))
        return row is not None and (row["pred"], row["conf"]) == (side.pred, side.conf)

    return [change for change in before if all(same(side) for side in change.sides)]


@dataclass
class _Work:
    """Explains changes one by one: makes their images again and asks the models where they looked."""

    folder: Path
    plan: Plan
    target: str
    layers: Mapping[str, str]

    def explained(
        self, pairs: Sequence[tuple[Row, Row]], before: Mapping[str, Side]
    ) -> Iterator[Change | None]:
        """Yield a change per pair of rows, or None where its images cannot be made again."""
        samples = {
            (shift, sample.id): sample for shift, group in self.plan.groups.items() for sample in group
        }
        for pair in pairs:
            files = [self._file(row) for row in pair]
            done = [before[file] for file in files if file in before and self._is_there(file)]
            if len(done) < 2:
                images = images_of(self.plan, pair[0]["sample_id"], {row["image_id"] for row in pair})
                if not all(row["image_id"] in images for row in pair):
                    yield None
                    continue
                done = [
                    self._side(row, file, images[row["image_id"]], samples[row["shift"], row["sample_id"]])
                    for row, file in zip(pair, files, strict=True)
                ]
            kind: Literal["models", "settings"] = (
                "models" if pair[0]["model"] != pair[1]["model"] else "settings"
            )
            yield Change(
                between=kind, sample_id=pair[0]["sample_id"], label=pair[0]["label"], sides=(done[0], done[1])
            )

    def _is_there(self, file: str) -> bool:
        return all(image_file(self.folder, file, kind).exists() for kind in KINDS)

    def _file(self, row: Row) -> str:
        """Return the name of a side: another model, layer, class or answer has another."""
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
        """Return the class to explain, as a label of the suite: the answer, where the model does
        not have the true class.
        """
        ground_truth = self.target == "ground_truth" and row["label"] in self._columns(row["model"])
        return int(row["label"] if ground_truth else row["pred"])

    def _columns(self, model: str) -> dict[int, int]:
        """Return the column of a model's logits for each label of the suite that it has."""
        columns = self.plan.columns[model]
        return dict(zip(columns.labels.tolist(), columns.places.tolist(), strict=True))

    def _side(self, row: Row, file: str, image: ImageU8, sample: Sample) -> Side:
        """Explain one answer and write its images."""
        model, framed = self.plan.models[row["model"]], self.plan.is_framed(sample)
        given = self.layers.get(model.name)
        column = self._columns(model.name)[self._label(row)]
        cams, guided, layer = explained(model, [image], [column], layer=given, framed=framed)
        seen = np.asarray(model.prepare(np.array(image), framed))
        drawn = {
            "seen": seen.astype(np.uint8),
            "cam": heat(seen.astype(np.float32), cams[0]),
            "guided": relief(guided[0]),
        }
        for kind in KINDS:
            write_image(drawn[kind], image_file(self.folder, file, kind))
        about = {
            name: row[name]
            for name in ("image_id", "shift", "severity", "params", "model", "pred", "conf", "correct")
        }
        version, empty = model.version, not bool(cams[0].any())
        return Side(file=file, version=version, target=self._label(row), layer=layer, empty=empty, **about)

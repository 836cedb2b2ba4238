"""Filter out-of-class images of a run: compute four similarities per image, and mark it valid or not.

The similarities are stored in the table's column ``degrees``, so that thresholds and rules can change without
encoding again. A filtered image stays in the table with ``valid`` false. Dünkel et al., "CNS-Bench", ICCV
2025, section 3.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import AliasChoices, Field

from sorites.analysis.filter.encoders import VIEWS, Encoders, LoadedPair, Pair, PairRecord
from sorites.analysis.filter.rules import (
    NEEDED,
    OUTSIDE,
    VOTES,
    Thresholds,
    facts,
    is_kept,
    quality,
    read_thresholds,
    similarities_of_features,
)
from sorites.core import CLEAN
from sorites.core.errors import BadImage, SoritesError, UnknownName
from sorites.core.messages import option
from sorites.core.progress import Bar
from sorites.core.table import repair, write_facts
from sorites.evaluation.engines import Engine
from sorites.evaluation.facts.similarity import MeasuredValues, MeasureTask, Row, images_of, shots_of
from sorites.evaluation.images import Shot
from sorites.evaluation.plan import Plan
from sorites.evaluation.reopen import plan_of
from sorites.evaluation.storage import shards
from sorites.evaluation.storage.record import read_record
from sorites.evaluation.storage.schema import validated
from sorites.evaluation.worker import Running, chosen_engine
from sorites.io.stores import to_path
from sorites.io.tables import as_numbers, refuse_types, sheet
from sorites.io.validation import Record

# --- Annotations: whether an image still shows its class, to calibrate and evaluate a filter

# Columns of the table, with the alternative names that a file may use.
NAMES = {"sample_id": "sample", "severity": "scale"}
KEY = ("sample_id", "shift", "severity")
# Accepted labels, and whether each means out of class (None: partially in class).
WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("in", "in class", "class", "ic"), False),
    **dict.fromkeys(("partial", "partly", "partial class properties", "partially in class"), None),
    **dict.fromkeys(("out", "out of class", "not class", "ooc"), True),
}
BOOLEAN_WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": None}
# Severities that agree to this many decimals are equal.
SEVERITY_DECIMALS = 6


# The facts that an export of annotations writes into a run.
ANNOTATED = "annotated"


def is_partial(word: str) -> bool:
    """Return whether an answer says that an image shows its class in part."""
    return WORDS.get(_plain(word), False) is None


def _plain(word: object) -> str:
    return str(word).strip().lower().replace("-", " ").replace("_", " ")


def read_annotations(file: str | Path) -> pl.DataFrame:
    """Read annotations from a CSV or Parquet file, such as an export of annotations.

    Args:
        file: A table with ``image_id``, or with sample, shift and scale; and with ``label`` (in, partial or
            out) or ``outside`` (true or false, or empty for partial). Where some images have no id, samples,
            shifts and scales are used.

    Returns:
        The key columns and ``outside``, which is null for partial.

    Raises:
        SoritesError: Columns are missing, or a value cannot be parsed.
    """
    path = Path(file)
    frame = sheet(path)
    frame = frame.rename(
        {short: name for name, short in NAMES.items() if short in frame.columns and name not in frame.columns}
    )
    has_ids = "image_id" in frame.columns
    if has_ids and set(KEY) <= set(frame.columns):
        has_ids = frame.height > 0 and not any(cell in (None, "") for cell in frame["image_id"])
    keys = ["image_id"] if has_ids else list(KEY)
    if any(key not in frame.columns for key in keys) or not {"label", "outside"} & set(frame.columns):
        raise SoritesError(
            f"{path}: expected the columns image_id, or sample, shift and scale, and one of label (in,"
            f" partial or out) and outside (true or false); got {', '.join(frame.columns)}."
        )
    column, words = ("label", WORDS) if "label" in frame.columns else ("outside", BOOLEAN_WORDS)
    outside = [_parse_label(path, row, column, value, words) for row, value in enumerate(frame[column], 1)]
    judged = frame.select(keys).with_columns(pl.Series("outside", outside, pl.Boolean))
    refuse_types(judged, dict.fromkeys((key for key in keys if key != "severity"), pl.String), path)
    if "severity" not in keys:
        return judged
    # Clean images, which no filter judges, have no shift and no severity in an export.
    shifted = judged.filter(~pl.col("shift").fill_null("").is_in(["", CLEAN]))
    return shifted.with_columns(_severity(shifted, path))


def _parse_label(
    path: Path, row: int, column: str, value: object, words: dict[str, bool | None]
) -> bool | None:
    if value is None:
        return None
    plain = _plain(value)
    if plain not in words:
        expected = "in, partial or out" if column == "label" else "true or false"
        raise SoritesError(f"{path}, row {row}: expected {expected} in column {column}, got {value!r}.")
    return words[plain]


def _severity(judged: pl.DataFrame, path: Path) -> pl.Series:
    numbers = as_numbers(judged["severity"], f"{path}, column scale")
    if wrong := [i for i, value in enumerate(numbers, 1) if value is None]:
        raise SoritesError(
            f"{path}, row {wrong[0]}: expected a number as scale, got {judged['severity'][wrong[0] - 1]!r}."
        )
    return numbers


def join_annotations(images: pl.DataFrame, judged: pl.DataFrame, name: str) -> pl.DataFrame:
    """Join annotations to the images of a run.

    Annotations of other images, such as clean ones, are ignored.

    Args:
        images: The shifted images with their keys.
        judged: The annotations; see ``read_annotations``.
        name: The name of the annotations in messages.

    Returns:
        ``image_id`` and ``outside`` of the annotated images.

    Raises:
        SoritesError: No annotation is of a shifted image of the run.
    """
    if "image_id" in judged.columns:
        joined = images.select("image_id").join(judged, on="image_id", maintain_order="left")
    else:
        joined = _rounded(images).join(_rounded(judged), on=list(KEY), maintain_order="left")
    if not joined.height:
        first = (
            ", ".join(str(value) for value in judged.drop("outside").row(0)) if judged.height else "nothing"
        )
        raise SoritesError(
            f"{name}: none of its {judged.height} rows is a shifted image of the run; the first row is"
            f" {first}."
        )
    outside = pl.col("outside")
    combined = pl.when(outside.any()).then(True).when((~outside).any()).then(False)
    return joined.group_by("image_id", maintain_order=True).agg(outside=combined)


def _rounded(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col("severity").round(SEVERITY_DECIMALS))


NAME = "out_of_class"
IMAGES_PER_BATCH = 32
RULES = (*NEEDED, "text")


@dataclass(frozen=True, eq=False)
class Filtered:
    """The outcome of a filter.

    Attributes:
        path: The file of facts.
        record: The encoders, thresholds and rule.
        rows: One row per image: similarities, ``valid`` and ``outside``.
        quality: The quality of each vote and rule, if there are annotations.
    """

    path: Path
    record: FilterRecord
    rows: pl.DataFrame
    quality: pl.DataFrame | None

    def counts(self) -> pl.DataFrame:
        """Count images, evaluated images and kept images per shift and severity."""
        valid = pl.col("valid")
        counts = self.rows.group_by("shift", "severity").agg(
            images=pl.len(), judged=valid.count(), kept=valid.sum()
        )
        return counts.sort("shift", "severity")


def filter_run(
    run: str | Path,
    encoder: str | None = None,
    second: str | None = None,
    *,
    thresholds: str | Path = "published",
    rule: str = "paper",
    annotations: str | Path | None = None,
    phrases: Mapping[str, str] | None = None,
    softmax: bool = False,
    view: str | None = None,
    whole: bool = False,
    engine: str | Engine = "local",
    workers: int | None = None,
    bar: Bar | None = None,
) -> Filtered:
    """Filter the shifted images of a run, and write their similarities and ``valid`` as facts.

    Images that were encoded before are not encoded again.

    Args:
        run: The run folder.
        encoder: An image-text encoder. Without encoders, the stored similarities are judged again.
        second: An image encoder, or a model with features.
        thresholds: ``"published"``, a file, or ``"calibrated"`` on the annotations.
        rule: ``"paper"``, ``"code"`` or ``"text"``; see ``rules.stays``.
        annotations: A file for ``read_annotations``; by default those exported into the run as facts, and
            those of an earlier call.
        phrases: Phrases that add a shift to a class, such as ``{"snow": "in snow"}``.
        softmax: Apply a softmax to the features of ``second``, as the released code does.
        view: What the encoders see: ``"whole"`` images (the default), for which the published thresholds were
            chosen, or ``"framed"`` ones, as the models of the run do. Images that a shift of Sorites made are
            framed.
        whole: Keep only trajectories (one sample under one shift) all of whose images are kept, as the
            published set does.
        engine: The engine that runs the tasks.
        workers: Number of workers; by default all cores of the engine.
        bar: Opens a progress bar.

    Raises:
        SoritesError: The run has no shifted images, its images cannot be made, or an argument is invalid.
    """
    folder, plan = to_path(run), plan_of(run)
    if rule not in RULES:
        raise UnknownName("rule", rule, RULES, "Available: paper, code, text.")
    if view not in (None, *VIEWS):
        raise UnknownName("view", view, VIEWS, "Available: whole, framed.")
    images = _images(plan)
    if not images.height:
        raise SoritesError(f"{folder} has no shifted images to filter.")
    limits = read_thresholds(thresholds)
    labels = (
        join_annotations(images, read_annotations(annotations), str(annotations))
        if annotations
        else _stored_annotations(folder, images)
    )
    if limits.calibrated and not labels["outside"].any():
        raise SoritesError(
            f"{option('thresholds', 'calibrated')} needs images labelled out of class; pass"
            f" {option('annotations', 'FILE')}, or export annotations into the run (got {labels.height}"
            " labelled images, none of them out of class)."
        )
    start = chosen_engine(engine, plan)
    opened = Running(folder, plan, read_record(folder).run_id)
    prepared = _prepare(opened, encoder, second, (softmax, view), phrases or {})
    found = MeasuredValues(folder, images.select("image_id", setting=pl.lit("")), VOTES, NAME)
    todo = _todo(plan, found) if encoder else []
    tick = bar("encoding", sum(map(len, todo))) if bar and todo else lambda n: None
    done = opened.each(start, todo, encode_unit, workers or start.cores(), pair=prepared.pair)
    found.gather(done, tick)
    if not found.values().height:
        raise SoritesError(
            f"{folder}: none of its {images.height} shifted images could be recomputed{_cause(plan)}"
        )
    return _write(folder, images, found.values(), labels, limits, rule, whole, prepared.record)


def _cause(plan: Plan) -> str:
    try:
        plan.framed(plan.groups[CLEAN][0].id)
    except SoritesError as error:
        return f": {error}"
    return ""


@dataclass(frozen=True)
class _Prepared:
    pair: Pair
    record: PairRecord


def _prepare(
    run: Running,
    encoder: str | None,
    second: str | None,
    how: tuple[bool, str | None],
    phrases: Mapping[str, str],
) -> _Prepared:
    """Load the encoders, and drop similarities of other encoders; without names, use the stored ones."""
    folder, previous = run.folder, read_filter(run.folder)
    if not encoder and not second:
        if previous is None:
            raise SoritesError(
                f"{folder} has no similarities yet; pass {option('encoder', 'NAME')} and"
                f" {option('second', 'NAME')}."
            )
        if how[1] not in (None, previous.made_of.view):
            raise SoritesError(
                f"{folder} has similarities of {previous.made_of.view} images; for {how[1]} ones pass"
                f" {option('encoder', 'NAME')} and {option('second', 'NAME')} too."
            )
        return _Prepared(Pair("", ""), previous.made_of)
    if not encoder or not second:
        raise SoritesError(
            "The filter needs two encoders; pass both"
            f" {option('encoder', 'NAME')} and {option('second', 'NAME')}."
        )
    shifts = [name for name in run.plan.groups if name != CLEAN]
    for name in phrases:
        if name not in shifts:
            raise UnknownName("shift", name, shifts, f"The run has {', '.join(shifts)}.")
    softmax, view = how
    pair = Pair(encoder, second, softmax, tuple(sorted(phrases.items())), view or VIEWS[0])
    record = _encoders(run, pair).record
    if previous is None or previous.made_of != record:
        shards.delete_facts(folder, NAME)
        _write_record(folder, FilterRecord(made_of=record))
    return _Prepared(pair, record)


def _encoders(run: Running, pair: Pair) -> Encoders:
    return Encoders(run.once(f"encoders {pair}", lambda _: LoadedPair(pair)), run.plan)


class FilterRecord(Record):
    """Record of how the images of a run were filtered, as stored in ``facts/out_of_class.json``.

    Only ``made_of`` is set until a rule was applied.
    """

    made_of: PairRecord
    thresholds: dict[str, int | float] = Field(default_factory=dict)
    origin: str = Field(
        default="", validation_alias=AliasChoices("from", "origin"), serialization_alias="from"
    )
    """The origin of the thresholds."""
    rule: str = ""
    whole: bool = False


def read_filter(folder: Path) -> FilterRecord | None:
    """Return the encoders and thresholds of the last filter of a run; None if there was none.

    Raises:
        Damaged: The record cannot be read.
    """
    path, content = folder / shards.metadata_file(NAME), shards.read_metadata(folder, NAME)
    return None if content is None else validated(content, path, FilterRecord, repair(folder))


def _write_record(folder: Path, record: FilterRecord) -> None:
    shards.write_metadata(folder, NAME, record.as_json())


def _images(plan: Plan) -> pl.DataFrame:
    """List the shifted images whose clean image is available."""
    rows = []
    for unit in plan.units():
        shift = plan.shifts.get(unit.shift)
        for sample, value, image_id, _ in images_of(plan, unit):
            setting = shift.setting(value) if shift and value is not None else sample.setting
            rows.append((image_id, sample.id, unit.shift, setting.severity))
    schema = {"image_id": pl.String, "sample_id": pl.String, "shift": pl.String, "severity": pl.Float64}
    return pl.DataFrame(rows, schema, orient="row").unique("image_id", maintain_order=True)


def _stored_annotations(folder: Path, images: pl.DataFrame) -> pl.DataFrame:
    """Return the annotations of the run's images: those that were exported into the run, then those of an
    earlier call.
    """
    stored = pl.concat([_annotations_in(folder, name) for name in (ANNOTATED, NAME)])
    return stored.unique("image_id", keep="first", maintain_order=True).join(
        images.select("image_id"), on="image_id", how="semi", maintain_order="left"
    )


def _annotations_in(folder: Path, name: str) -> pl.DataFrame:
    """Return the annotations in one file of facts."""
    empty = pl.DataFrame(schema={"image_id": pl.String, "outside": pl.Boolean})
    before = shards.read_facts(folder, name)
    if before is None or "degrees" not in before.columns:
        return empty
    entries = (
        before.select("image_id", "degrees")
        .explode("degrees")
        .unnest("degrees")
        .filter(pl.col("measure") == OUTSIDE)
    )
    return entries.select("image_id", outside=pl.col("value") > 0)


def _todo(plan: Plan, found: MeasuredValues) -> list[MeasureTask]:
    """List the units with images that are not encoded yet."""
    units = {
        unit: [image_id for _, _, image_id, _ in images_of(plan, unit) if found.missing(image_id)]
        for unit in plan.units()
    }
    return [
        MeasureTask(unit, tuple((image_id, VOTES) for image_id in left))
        for unit, left in units.items()
        if left
    ]


def encode_unit(run: Running, todo: MeasureTask, *, pair: Pair) -> list[Row]:
    """Recompute the images of a unit and return their similarities, skipping those that cannot be made."""
    plan, encoders = run.plan, _encoders(run, pair)
    todo = replace(todo, unit=run.here(todo.unit))
    rows: list[Row] = []
    shots = shots_of(plan, todo, encoders.sees_whole(todo.unit.shift))
    for framed, batch in _batches(encoders, shots):
        rows += _similarities(plan, encoders, batch, framed)
    return rows


def _batches(encoders: Encoders, shots: Iterator[Shot]) -> Iterator[tuple[bool, list[Shot]]]:
    available = (shot for shot in shots if shot.image is not None)
    for framed, run in groupby(available, key=lambda shot: encoders.is_framed(shot.sample, shot.shift)):
        while batch := list(islice(run, IMAGES_PER_BATCH)):
            yield framed, batch


def _similarities(plan: Plan, encoders: Encoders, shots: Sequence[Shot], framed: bool) -> list[Row]:
    joint, alone = encoders.images([shot.image for shot in shots if shot.image is not None], framed)
    rows: list[Row] = []
    for i, shot in enumerate(shots):
        try:
            start, own_start = encoders.clean(shot.sample.id, shot.shift)
        except BadImage:
            continue
        texts = encoders.texts(shot.sample.label, shot.shift)
        pairs = (joint[i : i + 1], start), (alone[i : i + 1], own_start)
        try:
            values: Sequence[Any] = similarities_of_features(
                pairs[0], texts, pairs[1], encoders.pair.softmax
            ).row(0)
        # Some encoders return zero features for an image of one colour.
        except SoritesError:
            values = [None] * len(VOTES)
        key = plan.image_id(shot.sample, shot.shift, shot.setting)
        rows += [(key, vote, value) for vote, value in zip(VOTES, values, strict=True)]
    return rows


def _write(
    folder: Path,
    images: pl.DataFrame,
    values: pl.DataFrame,
    annotations: pl.DataFrame,
    limits: Thresholds,
    rule: str,
    whole: bool,
    made_of: PairRecord,
) -> Filtered:
    """Apply the rule to the similarities, and write facts and record."""
    votes = values.filter(pl.col("measure").is_in(VOTES)).with_columns(pl.col("value").cast(pl.Float64))
    wide = {vote: pl.col("value").filter(pl.col("measure") == vote).first() for vote in VOTES}
    scores = images.join(votes.group_by("image_id").agg(**wide), on="image_id", maintain_order="left")
    scores = scores.join(annotations, on="image_id", how="left", maintain_order="left")
    used = limits.chosen(scores)
    trajectories = scores.with_columns(trajectory=pl.struct("sample_id", "shift"))
    judged = facts(trajectories, is_kept(scores, used, rule), "trajectory" if whole else None)
    labels = annotations.select("image_id", measure=pl.lit(OUTSIDE), value=pl.col("outside").cast(pl.Float64))
    entries = (
        pl.concat([votes, labels])
        .group_by("image_id", maintain_order=True)
        .agg(degrees=pl.struct("measure", "value"))
    )
    path = write_facts(folder, NAME, judged.join(entries, on="image_id", maintain_order="left"))
    against = quality(scores, used) if scores["outside"].count() else None
    record = FilterRecord(made_of=made_of, thresholds=dict(used), origin=limits.name, rule=rule, whole=whole)
    _write_record(folder, record)
    return Filtered(path, record, scores.with_columns(valid=judged["valid"]), against)

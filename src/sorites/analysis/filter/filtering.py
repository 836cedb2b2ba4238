"""The out-of-class filter of a run: the four similarities of every shifted image, and which images
stay, as facts.

The similarities are kept in the table's column ``degrees``, so that thresholds and rules can be
changed without encoding again. An image that the filter sets aside is marked (``valid`` false) and
stays in the table. Dünkel et al., "CNS-Bench", ICCV 2025, section 3.4.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import polars as pl

from sorites.analysis.filter.encoders import Encoders, Pair
from sorites.analysis.filter.rules import (
    NEEDED,
    OUTSIDE,
    VOTES,
    Thresholds,
    facts,
    quality,
    read_thresholds,
    similarities_of_features,
    stays,
)
from sorites.core import CLEAN
from sorites.core.errors import BadImage, SoritesError, UnknownName
from sorites.core.progress import Bar
from sorites.core.table import write_facts
from sorites.evaluation.engines import Engine
from sorites.evaluation.facts.similarity import Found, Row, Todo, images_of, shots_of
from sorites.evaluation.images import Shot
from sorites.evaluation.plan import Plan
from sorites.evaluation.reopen import plan_of
from sorites.evaluation.storage import shards
from sorites.evaluation.storage.folder import read_info
from sorites.evaluation.worker import Running, chosen_engine, lent, running_in
from sorites.io.files import write_bytes
from sorites.io.stores import place
from sorites.io.tables import as_numbers, refuse_types, sheet

# Labels by hand that say whether an image still shows its class, as a filter is calibrated on and held
# against.


# Columns of the table, and what a file may call them instead.
NAMES = {"sample_id": "sample", "severity": "scale"}
PLACE = ("sample_id", "shift", "severity")
# The words people write for a label, and whether each means that the image is out of its class.
WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("in", "in class", "class", "ic"), False),
    **dict.fromkeys(("partial", "partial class properties", "partially in class"), None),
    **dict.fromkeys(("out", "out of class", "not class", "ooc"), True),
}
GROUND_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": None}
# Scales that agree to this many decimals are the same.
DIGITS = 6


def read_annotations(file: str | Path) -> pl.DataFrame:
    """Read judgements from a CSV or parquet file: ``image_id``, or sample, shift and severity;
    ``outside`` is null if partial.
    """
    path = Path(file)
    frame = sheet(path)
    frame = frame.rename(
        {short: name for name, short in NAMES.items() if short in frame.columns and name not in frame.columns}
    )
    keys = ["image_id"] if "image_id" in frame.columns else list(PLACE)
    if any(key not in frame.columns for key in keys) or not {"label", "outside"} & set(frame.columns):
        raise SoritesError(
            f"{path}: wanted the columns image_id, or sample, shift and scale, and one of label (in, partial"
            f" or out) and outside (true or false); got {', '.join(frame.columns)}"
        )
    told, words = ("label", WORDS) if "label" in frame.columns else ("outside", GROUND_TRUTH)
    outside = [_meaning(path, row, told, value, words) for row, value in enumerate(frame[told], 1)]
    judged = frame.select(keys).with_columns(pl.Series("outside", outside, pl.Boolean))
    refuse_types(judged, dict.fromkeys((key for key in keys if key != "severity"), pl.String), path)
    return judged.with_columns(_severity(judged, path)) if "severity" in keys else judged


def _meaning(path: Path, row: int, column: str, value: object, words: dict[str, bool | None]) -> bool | None:
    if value is None:
        return None
    plain = str(value).strip().lower().replace("-", " ").replace("_", " ")
    if plain not in words:
        wanted = "in, partial or out" if column == "label" else "true or false"
        raise SoritesError(f"{path}, row {row}: wanted {wanted} in {column}, got {value!r}")
    return words[plain]


def _severity(judged: pl.DataFrame, path: Path) -> pl.Series:
    found = as_numbers(judged["severity"], f"{path}, column scale")
    if wrong := [i for i, value in enumerate(found, 1) if value is None]:
        raise SoritesError(
            f"{path}, row {wrong[0]}: wanted a number as scale, got {judged['severity'][wrong[0] - 1]!r}"
        )
    return found


def outside_of(images: pl.DataFrame, judged: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return ``image_id`` and ``outside`` of the images that somebody judged; ``images`` has the
    image ids and their places.

    Judgements of images that are not among the images, such as clean ones, are left out; if all
    are, that is an error.
    """
    if "image_id" in judged.columns:
        found = images.select("image_id").join(judged, on="image_id", maintain_order="left")
    else:
        found = _rounded(images).join(_rounded(judged), on=list(PLACE), maintain_order="left")
    if not found.height:
        some = (
            ", ".join(str(value) for value in judged.drop("outside").row(0)) if judged.height else "nothing"
        )
        raise SoritesError(
            f"{name}: none of its {judged.height} rows is a shifted image of the run; its first row is {some}"
        )
    outside = pl.col("outside")
    combined = pl.when(outside.any()).then(True).when((~outside).any()).then(False)
    return found.group_by("image_id", maintain_order=True).agg(outside=combined)


def _rounded(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col("severity").round(DIGITS))


NAME = "out_of_class"
BATCH = 32
RULES = (*NEEDED, "text")


@dataclass(frozen=True, eq=False)
class Filtered:
    """The outcome of a filter: the file of facts, its record, one row per image (similarities,
    ``valid``, ``outside``), and its quality against annotations where there are some.
    """

    path: Path
    record: Mapping[str, Any]
    rows: pl.DataFrame
    quality: pl.DataFrame | None

    def counts(self) -> pl.DataFrame:
        """Count per shift and severity the images, those judged, and those that stay."""
        valid = pl.col("valid")
        found = self.rows.group_by("shift", "severity").agg(
            images=pl.len(), judged=valid.count(), kept=valid.sum()
        )
        return found.sort("shift", "severity")


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
    whole: bool = False,
    engine: str | Engine = "local",
    workers: int | None = None,
    bar: Bar | None = None,
) -> Filtered:
    """Judge every shifted image of a run by four similarities, and write these and ``valid`` as
    facts beside its table.

    ``encoder`` encodes images and texts, ``second`` images alone (an encoder, or a model with
    features, of which ``softmax`` takes the softmax first as the released code does). Without both,
    the similarities that the run holds are judged again. ``thresholds`` are ``"published"``, a
    file, or ``"calibrated"`` on ``annotations`` (``read_annotations``; a later call without them
    uses those kept). ``phrases`` put a class into a shift: ``{"snow": "in snow"}``. ``whole`` keeps
    only trajectories (one sample under one shift) of which every image stays, as the published set
    does. What was encoded before is not again.
    """
    folder, plan = place(run), plan_of(run)
    if rule not in RULES:
        raise UnknownName("rule", rule, RULES, "It is paper, code or text.")
    images = _images(plan)
    if not images.height:
        raise SoritesError(f"{folder} holds no shifted images to filter")
    limits = read_thresholds(thresholds)
    told = (
        outside_of(images, read_annotations(annotations), str(annotations))
        if annotations
        else _told_before(folder)
    )
    if limits.calibrated and not told["outside"].any():
        raise SoritesError(
            "--thresholds calibrated needs images labelled out of class: name a file with --annotations"
            f" FILE (got {told.height} labelled images, none of them out of class)"
        )
    start = chosen_engine(engine, plan)
    with lent(folder, plan, read_info(folder)["run_id"]) as running:
        made_of = _prepared(folder, running, encoder, second, softmax, phrases or {})
        found = Found(folder, images.select("image_id", setting=pl.lit("")), VOTES, NAME)
        todo = _todo(plan, found) if encoder else []
        tick = bar("encoding", sum(map(len, todo))) if bar and todo else lambda n: None
        found.gather(
            start(todo, functools.partial(encode_unit, folder, made_of.pair), workers or start.cores()), tick
        )
        if not found.values().height:
            raise SoritesError(
                f"{folder}: none of its {images.height} shifted images could be made again{_why(plan)}"
            )
    return _judged(folder, images, found.values(), told, limits, rule, whole, made_of.record)


def _why(plan: Plan) -> str:
    try:
        plan.framed(plan.groups[CLEAN][0].id)
    except SoritesError as error:
        return f": {error}"
    return ""


@dataclass(frozen=True)
class _MadeOf:
    pair: Pair
    record: Mapping[str, Any]


def _prepared(
    folder: Path,
    running: Running,
    encoder: str | None,
    second: str | None,
    softmax: bool,
    phrases: Mapping[str, str],
) -> _MadeOf:
    """Load the encoders; similarities that others made are dropped.

    Without names, those that the run holds are taken as is.
    """
    held = read_record(folder)
    if not encoder and not second:
        if "made_of" not in held:
            raise SoritesError(
                f"{folder} holds no similarities yet: name both encoders with --encoder NAME and --second"
                " NAME"
            )
        return _MadeOf(Pair("", ""), held["made_of"])
    if not encoder or not second:
        raise SoritesError("the filter needs two encoders: give both --encoder NAME and --second NAME")
    shifts = [name for name in running.plan.groups if name != CLEAN]
    for name in phrases:
        if name not in shifts:
            raise UnknownName("shift", name, shifts, f"The run has {', '.join(shifts)}.")
    pair = Pair(encoder, second, softmax, tuple(sorted(phrases.items())))
    record = dict(_encoders(running, pair).record)
    if held.get("made_of") != record:
        (folder / "facts" / f"{NAME}.parquet").unlink(missing_ok=True)
        _write_record(folder, {"made_of": record})
    return _MadeOf(pair, record)


def _encoders(running: Running, pair: Pair) -> Encoders:
    return running.once(f"encoders {pair}", functools.partial(Encoders, pair))


def read_record(folder: Path) -> dict[str, Any]:
    """Return what the filter of a run was made of and by which thresholds it judged; empty where
    there was none.
    """
    path = folder / "facts" / f"{NAME}.json"
    return shards.read_record(path) if path.exists() else {}


def _write_record(folder: Path, record: Mapping[str, Any]) -> None:
    write_bytes(json.dumps(record, indent=1).encode(), folder / "facts" / f"{NAME}.json")


def _images(plan: Plan) -> pl.DataFrame:
    """List the shifted images whose clean image is there: image_id, sample_id, shift and severity."""
    rows = []
    for unit in plan.units():
        shift = plan.shifts.get(unit.shift)
        for sample, value, image_id, _ in images_of(plan, unit):
            setting = shift.setting(value) if shift and value is not None else sample.setting
            rows.append((image_id, sample.id, unit.shift, setting.severity))
    schema = {"image_id": pl.String, "sample_id": pl.String, "shift": pl.String, "severity": pl.Float64}
    return pl.DataFrame(rows, schema, orient="row").unique("image_id", maintain_order=True)


def _told_before(folder: Path) -> pl.DataFrame:
    """Return the annotations that an earlier call kept."""
    path, empty = (
        folder / "facts" / f"{NAME}.parquet",
        pl.DataFrame(schema={"image_id": pl.String, "outside": pl.Boolean}),
    )
    before = shards.read_facts(path) if path.exists() else empty
    if "degrees" not in before.columns:
        return empty
    entries = (
        before.select("image_id", "degrees")
        .explode("degrees")
        .unnest("degrees")
        .filter(pl.col("measure") == OUTSIDE)
    )
    return entries.select("image_id", outside=pl.col("value") > 0)


def _todo(plan: Plan, found: Found) -> list[Todo]:
    """List the units with images that were not encoded; a unit holds several samples, which are
    encoded in batches.
    """
    units = {
        unit: [image_id for _, _, image_id, _ in images_of(plan, unit) if found.missing(image_id)]
        for unit in plan.units()
    }
    return [Todo(unit, tuple((image_id, VOTES) for image_id in left)) for unit, left in units.items() if left]


def encode_unit(folder: Path, pair: Pair, todo: Todo) -> list[Row]:
    """A unit of work: make its images again and return their similarities; nothing where an image
    cannot be made.
    """
    running = running_in(folder)
    encoders = _encoders(running, pair)
    rows: list[Row] = []
    for framed, some in _batches(running.plan, shots_of(running.plan, todo)):
        rows += _similarities(running.plan, encoders, some, framed)
    return rows


def _batches(plan: Plan, shots: Iterator[Shot]) -> Iterator[tuple[bool, list[Shot]]]:
    made = (shot for shot in shots if shot.image is not None)
    for framed, run in groupby(made, key=lambda shot: plan.is_framed(shot.sample)):
        while some := list(islice(run, BATCH)):
            yield framed, some


def _similarities(plan: Plan, encoders: Encoders, shots: Sequence[Shot], framed: bool) -> list[Row]:
    joint, alone = encoders.images([shot.image for shot in shots if shot.image is not None], framed)
    rows: list[Row] = []
    for i, shot in enumerate(shots):
        try:
            start, own_start = encoders.clean(shot.sample.id)
        except BadImage:
            continue
        texts = encoders.texts(shot.sample.label, shot.shift)
        pairs = (joint[i : i + 1], start), (alone[i : i + 1], own_start)
        try:
            values: Sequence[Any] = similarities_of_features(
                pairs[0], texts, pairs[1], encoders.pair.softmax
            ).row(0)
        # features without a direction, as some encoders give for an image of one colour
        except SoritesError:
            values = [None] * len(VOTES)
        key = plan.image_id(shot.sample, shot.shift, shot.setting)
        rows += [(key, vote, value) for vote, value in zip(VOTES, values, strict=True)]
    return rows


def _judged(
    folder: Path,
    images: pl.DataFrame,
    values: pl.DataFrame,
    told: pl.DataFrame,
    limits: Thresholds,
    rule: str,
    whole: bool,
    made_of: Mapping[str, Any],
) -> Filtered:
    """Judge the images by their similarities, and write facts and record."""
    votes = values.filter(pl.col("measure").is_in(VOTES)).with_columns(pl.col("value").cast(pl.Float64))
    wide = {vote: pl.col("value").filter(pl.col("measure") == vote).first() for vote in VOTES}
    scores = images.join(votes.group_by("image_id").agg(**wide), on="image_id", maintain_order="left")
    scores = scores.join(told, on="image_id", how="left", maintain_order="left")
    used = limits.chosen(scores)
    trajectories = scores.with_columns(trajectory=pl.struct("sample_id", "shift"))
    judged = facts(trajectories, stays(scores, used, rule), "trajectory" if whole else None)
    labels = told.select("image_id", measure=pl.lit(OUTSIDE), value=pl.col("outside").cast(pl.Float64))
    entries = (
        pl.concat([votes, labels])
        .group_by("image_id", maintain_order=True)
        .agg(degrees=pl.struct("measure", "value"))
    )
    path = write_facts(folder, NAME, judged.join(entries, on="image_id", maintain_order="left"))
    against = quality(scores, used) if scores["outside"].count() else None
    record = {
        "made_of": dict(made_of),
        "thresholds": dict(used),
        "from": limits.name,
        "rule": rule,
        "whole": whole,
    }
    _write_record(folder, record)
    return Filtered(path, record, scores.with_columns(valid=judged["valid"]), against)

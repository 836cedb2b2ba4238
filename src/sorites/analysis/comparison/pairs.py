"""Pair the predictions of two models: check that the runs match, and arrange correctness as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import CLEAN
from sorites.core.errors import SoritesError, UnfinishedRun, UnknownName
from sorites.core.messages import command, option
from sorites.evaluation.combine import Folder, open_folder
from sorites.evaluation.storage.folder import read_manifest
from sorites.evaluation.storage.schema import RunRecord
from sorites.evaluation.storage.variants import distinct_conditions, shift_options

# --- The two sides of a comparison, and whether both have the same images

# Libraries that make images: another version may change pixels.
IMAGE_LIBRARIES = ("numpy", "scipy", "pillow")
# What identifies an image within a run: two sources may use the same names.
IN_PART = ("source", "image_id")
# Columns of the table with one row per shift, of classifiers and of detectors.
SHIFT_COLUMNS = (
    "dial",
    *("n", "base", "new", "drop", "low", "high", "lost", "gained"),
    *("p", "p_family", "bound", "detectable", "judged"),
)
PROBE = pl.col("probe").fill_null(False)
JUDGED_OR_PROBE = (
    (pl.col("output") == "label")
    & pl.col("correct").is_not_null()
    & pl.col("error").is_null()
    & pl.col("valid").fill_null(True)
)
JUDGED = JUDGED_OR_PROBE & ~PROBE


@dataclass(frozen=True)
class Side:
    """A model in a run, or in all runs of a passport."""

    path: Path
    parts: Mapping[str, Folder]
    model: str
    output: str = "label"
    """The output of the model: ``label`` (a classifier) or ``boxes`` (a detector)."""

    @property
    def version(self) -> str:
        """The version of the model that the runs recorded."""
        return next(
            (
                str(part.record.models.get(self.model) or "") if part.record else ""
                for part in self.parts.values()
            ),
            "",
        )

    def rows(self, part: str) -> pl.LazyFrame:
        """Return the rows of the model in one of the runs."""
        return self.parts[part].table.filter(pl.col("model") == self.model)


def side(path: str | Path, parts: Mapping[str, Path], model: str | None, option_name: str) -> Side:
    """Open the runs of a side and choose its model; ``option_name`` is the option that selects one."""
    opened = {name: open_folder(folder) for name, folder in parts.items()}
    for part in opened.values():
        if part.unfinished is not None:
            found = part.unfinished.found()
            raise UnfinishedRun(path, f"{found} Repeat its command to finish it, then compare.")
    names = list(dict.fromkeys(name for part in opened.values() for name in _models(part)))
    if model is not None and model not in names:
        raise UnknownName("model", model, names, f"{path} has {', '.join(names)}.")
    if model is None and len(names) != 1:
        raise SoritesError(
            f"{path} has {len(names)} models ({', '.join(names)}); choose one with"
            f" {option(option_name, 'NAME')}."
        )
    chosen = model or names[0]
    return Side(Path(path), opened, chosen, _output(path, opened, chosen))


def _models(part: Folder) -> list[str]:
    recorded = part.record.models if part.record else {}
    return (
        list(recorded)
        if recorded
        else sorted(part.table.select(pl.col("model").unique()).collect()["model"].drop_nulls())
    )


def _output(path: str | Path, parts: Mapping[str, Folder], model: str) -> str:
    """Return what a model returns: labels or boxes.

    Raises:
        SoritesError: It has neither, or both.
    """
    tables = [
        part.table.filter(pl.col("model") == model).select(pl.col("output").unique())
        for part in parts.values()
    ]
    outputs = {output for rows in pl.collect_all(tables, engine="streaming") for output in rows["output"]}
    found = outputs & {"label", "boxes"}
    if len(found) != 1:
        listed = " and ".join(sorted(map(str, outputs))) or "no rows"
        raise SoritesError(
            f"{model} of {path} has {listed}; expected a classifier (label) or a detector (boxes)."
        )
    return str(found.pop())


def refuse_unlike(base: Side, new: Side, other_versions: bool, shared: bool) -> list[str]:
    """Refuse sides that were evaluated on different images; return notes about tolerated differences."""
    if base.output != new.output:
        kinds = {"label": "a classifier", "boxes": "a detector"}
        raise SoritesError(
            f"{base.model} of {base.path} is {kinds[base.output]}, but {new.model} of {new.path} is"
            f" {kinds[new.output]}; compare two of one kind."
        )
    unmatched = base.parts.keys() ^ new.parts.keys()
    if unmatched:
        raise SoritesError(
            f"Only one of {base.path} and {new.path} has {', '.join(sorted(unmatched))};"
            " make both with the same battery."
        )
    notes = [note for part in base.parts for note in _unlike(part, base, new, other_versions, shared)]
    if base.model == new.model and base.version == new.version and base.path.resolve() == new.path.resolve():
        raise SoritesError(
            f"{base.path} is compared with itself; choose two of its models with"
            f" {option('base_model', 'NAME')} and {option('model', 'NAME')}."
        )
    return list(dict.fromkeys(notes))


def _unlike(part: str, base: Side, new: Side, other_versions: bool, shared: bool) -> list[str]:
    one, two = base.parts[part], new.parts[part]
    _refuse_other_content(one, two)
    _refuse_other_settings(one, two)
    notes = _library_notes(one, two, other_versions)
    mine, theirs = pl.collect_all([_images(side, part) for side in (base, new)])
    pairs = ((mine, theirs), (theirs, mine))
    only_in = [one.join(two, on=IN_PART, how="anti", nulls_equal=True) for one, two in pairs]
    if not any(len(rows) for rows in only_in):
        return notes
    both = len(mine) - len(only_in[0])
    if not both:
        raise SoritesError(
            f"{one.name} and {two.name} share no image; run both models on the same source and suite."
        )
    different_models = (base.model, base.version) != (new.model, new.version)
    if not shared and different_models and (_is_attack(one) or _is_attack(two)):
        raise SoritesError(_attack_message(one if _is_attack(one) else two, both))
    difference = " and ".join(
        f"{len(rows)} images ({shifts_of(rows)}) are only in {name}"
        for rows, name in zip(only_in, (one.name, two.name), strict=True)
        if len(rows)
    )
    if not shared:
        raise SoritesError(
            f"{difference}. Run both models in the same way, or pass {option('shared')} to compare the {both}"
            " shared images."
        )
    return [*notes, f"{difference}; they are left out."]


def _is_attack(part: Folder) -> bool:
    return part.record is not None and part.record.attack is not None


def _attack_message(part: Folder, both: int) -> str:
    by_severity = command("metrics", part.name, "accuracy", by="model,shift,severity")
    return (
        f"{part.name} is an attack, which makes different images for each model, so they cannot be compared"
        f" image by image. Use {by_severity} or {command('report', part.name)}, or pass {option('shared')} to"
        f" compare the {both} shared images, which were not attacked."
    )


def grid_rows(side: Side, part: str) -> pl.LazyFrame:
    """Return the predictions of a side at the settings of the suite, without probes and OOD scores."""
    return side.rows(part).filter((pl.col("output") == side.output) & ~PROBE)


def _images(side: Side, part: str) -> pl.LazyFrame:
    """Return each image of the grid once, evaluated or not."""
    grid = grid_rows(side, part)
    return grid.select(*IN_PART, "shift").unique(IN_PART)


def shifts_of(rows: pl.DataFrame, most: int = 3) -> str:
    """Return the names of the first few shifts of these images."""
    names = rows["shift"].unique().sort().to_list()
    return ", ".join(names[:most]) + (" …" if len(names) > most else "")


def _refuse_other_content(one: Folder, two: Folder) -> None:
    """Refuse runs in which the same sample has different content."""
    manifests = []
    for part in (one, two):
        if not (Path(part.name) / "manifest.parquet").exists():
            return
        manifests.append(read_manifest(part.name))
    keys = ["source", "sample_id", "shift", "severity", "params"]
    if not all("content" in listed.columns for listed in manifests):
        return
    both = manifests[0].join(manifests[1], on=keys, suffix="_new", nulls_equal=True)
    other = both.filter(pl.col("content") != pl.col("content_new"))
    if len(other):
        raise SoritesError(
            f"{len(other)} of the {len(both)} images shared by {one.name} and {two.name} have different"
            f" content, first {other['sample_id'][0]}. Run both models on the same files."
        )


def _refuse_other_settings(one: Folder, two: Folder) -> None:
    """Refuse runs with another frame, seed or set of labels, or another version of a shift."""
    records = [part.record for part in (one, two) if part.record is not None]
    if len(records) < 2:
        return
    for key in ("frame", "seed", "labels"):
        values = [record.suite.model_dump(mode="json", include={key})[key] for record in records]
        if values[0] != values[1]:
            both = f"{_truncated(values[0])} and {_truncated(values[1])}"
            raise SoritesError(
                f"{one.name} and {two.name} differ in {key} ({both}); repeat one run with the other's {key}."
            )
    shifts = [record.shifts for record in records]
    for name in shifts[0].keys() & shifts[1].keys():
        if shifts[0][name] != shifts[1][name]:
            _refuse_other_options(one.name, two.name, name, records)
            versions = f"{shifts[0][name]} and {shifts[1][name]}"
            raise SoritesError(
                f"{one.name} and {two.name} have different versions of {name} ({versions});"
                " repeat the older run."
            )


def _truncated(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _refuse_other_options(one: str, two: str, shift: str, records: Sequence[RunRecord]) -> None:
    """Refuse runs with other options of a shift, such as kernels."""
    options = [shift_options(record.suite, shift) for record in records]
    if options[0] != options[1]:
        first, second = (names.get(shift, shift) for names in distinct_conditions(records))
        raise SoritesError(
            f"{one} has {first} and {two} has {second}, which make different images; repeat one run with the"
            " other's options."
        )


def _library_notes(one: Folder, two: Folder, other_versions: bool) -> list[str]:
    versions = [part.record.versions if part.record else {} for part in (one, two)]
    names = [name for name in versions[0] if name in versions[1] and versions[0][name] != versions[1][name]]
    changes = {name: f"{name} {versions[0][name]} and {versions[1][name]}" for name in names}
    image_changes = [text for name, text in changes.items() if name in IMAGE_LIBRARIES]
    if image_changes and not other_versions:
        raise SoritesError(
            f"{one.name} and {two.name} were made with different versions of libraries that make images"
            f" ({', '.join(image_changes)}). Repeat the older run, or pass {option('other_versions')} to"
            " compare them anyway."
        )
    return [f"The runs used different versions: {', '.join(changes.values())}."] if changes else []


def together(base: Side, new: Side, names: Sequence[str]) -> pl.LazyFrame:
    """Return the rows of both models as one table; ``run_id`` is the part, ``model`` one of ``names``."""
    tables = [
        side.rows(part).with_columns(run_id=pl.lit(part), model=pl.lit(name))
        for side, name in zip((base, new), names, strict=True)
        for part in side.parts
    ]
    return pl.concat(tables)


Array = NDArray[np.float64]
# The pseudo-shift of the mean over all shifts, equally weighted.
ALL = "all"
SAMPLE = ("source", "sample_id")
IMAGE = ("run_id", "source", "image_id")
_PREDICTION = ("correct", "pred", "conf")


def paired(table: pl.LazyFrame, base: str, new: str) -> pl.DataFrame:
    """Return one row per image evaluated for both models; columns of the new model end in ``_new``.

    Raises:
        SoritesError: The models have no evaluated image in common.
    """
    rows = table.filter(JUDGED).select(
        "run_id", *SAMPLE, "image_id", "family", "shift", "severity", "params", "label", "model", *_PREDICTION
    )
    judged = rows.collect(engine="streaming")
    mine, theirs = (judged.filter(pl.col("model") == name).drop("model") for name in (base, new))
    both = mine.join(theirs.select(*IMAGE, *_PREDICTION), on=IMAGE, suffix="_new", nulls_equal=True)
    if not len(both):
        raise SoritesError(
            "No image was evaluated for both models. Check for errors, and for classes that a model lacks."
        )
    return both


@dataclass(frozen=True)
class Matrix:
    """Accuracies of both models by sample (rows) and shift (columns); NaN where a sample lacks a shift."""

    dials: tuple[str, ...]
    base: Array
    new: Array
    several: frozenset[str] = frozenset()
    """The shifts, and perhaps ``all``, under which samples have several images."""

    def columns(self, dials: Sequence[str]) -> tuple[Array, Array]:
        """Return the accuracies under these shifts; ``all`` is the mean over shifts, without clean.

        The mean of a column is that of its samples, with ``weights``.
        """
        return tuple(
            np.stack([self._column(side, dial) for dial in dials], axis=1) for side in (self.base, self.new)
        )  # type: ignore[return-value]

    def weights(self, dials: Sequence[str]) -> Array:
        """Return the weights of the samples in the means of ``columns``: 1, except under ``all``.

        All shifts have the same weight in ``all``, so a sample of a shift with few samples weighs more.
        """
        weights = np.ones((len(self.base), len(dials)))
        for column in [i for i, dial in enumerate(dials) if dial == ALL]:
            shares = self._shares()
            weights[:, column] = shares.sum(axis=1) * shares.any(axis=1).sum() / max(shares.sum(), 1.0)
        return weights

    def _moved(self) -> list[int]:
        return [i for i, name in enumerate(self.dials) if name != CLEAN]

    def _shares(self) -> Array:
        """Return the weight of each sample under each shift, 1 under the shift with most samples."""
        observed = np.isfinite(self.base[:, self._moved()])
        counts = observed.sum(axis=0)
        shares: Array = observed * (counts.max(initial=0) / np.maximum(counts, 1))
        return shares

    def _column(self, side: Array, dial: str) -> Array:
        if dial != ALL:
            column: Array = side[:, self.dials.index(dial)]
            return column
        shares, moved = self._shares(), side[:, self._moved()]
        total = shares.sum(axis=1)
        mean = np.where(shares > 0, moved * shares, 0.0).sum(axis=1) / np.maximum(total, 1.0)
        return np.where(total > 0, mean, np.nan)


def matrix(pairs: pl.DataFrame) -> Matrix:
    """Average the correctness of each sample over the settings of each shift, with samples sorted by key."""
    means = pairs.group_by(*SAMPLE, "shift").agg(
        base=pl.col("correct").mean(), new=pl.col("correct_new").mean(), images=pl.len()
    )
    dials = tuple(sorted(means["shift"].unique(), key=lambda name: (name != CLEAN, name)))
    samples = means.select(SAMPLE).unique().sort(SAMPLE).with_row_index("row")
    placed = means.join(samples, on=SAMPLE, nulls_equal=True)
    rows, columns = placed["row"].to_numpy(), np.array([dials.index(name) for name in placed["shift"]])
    sides = []
    for name in ("base", "new"):
        side = np.full((len(samples), len(dials)), np.nan)
        side[rows, columns] = placed[name].to_numpy()
        sides.append(side)
    pooled = {ALL} if len(set(dials) - {CLEAN}) > 1 else set()
    several = frozenset({*means.filter(pl.col("images") > 1)["shift"], *pooled})
    return Matrix(dials, sides[0], sides[1], several)


@dataclass(frozen=True)
class Ends:
    """Severities at which trajectories fail or end, one entry for each.

    Attributes:
        severity: The least severity at which the trajectory is misclassified, or its last judged severity.
        failed: Whether it is misclassified there.
        sample: The row of the sample that it belongs to.
    """

    severity: Array
    failed: NDArray[np.bool_]
    sample: NDArray[np.int64]


@dataclass(frozen=True)
class Curve:
    """Outcomes of one model under one shift, by sample.

    Attributes:
        right: Correctness, samples x severities with the clean images first; NaN if missing.
        chance: The accuracy of a guess for the sample.
        ends: Where its trajectories fail or end.
    """

    right: Array
    chance: Array
    ends: Ends


@dataclass(frozen=True)
class Curves:
    """Outcomes of both models under one shift, on the same samples.

    Attributes:
        severities: The severities of the grid, 0 first.
        base: The base model.
        new: The new model.
        refined: Whether failure severities include the probes between grid severities, which both have.
    """

    severities: Array
    base: Curve
    new: Curve
    refined: bool = False


def curves(table: pl.LazyFrame, base: str, new: str) -> Mapping[str, Curves]:
    """Return the curves of each shift with ordered severities, on samples evaluated clean for both models."""
    from sorites.metrics import trajectories, with_clean
    from sorites.metrics.half_accuracy import CHANCE, with_chance

    moved = with_clean(with_chance(table)).filter(
        JUDGED & (pl.col("shift") != CLEAN) & pl.col("severity").is_not_null()
    )
    cells = moved.group_by("model", "shift", *SAMPLE, "severity").agg(
        right=pl.col("correct").cast(pl.Float64).mean(), chance=pl.col(CHANCE).mean()
    )
    probes = table.filter(JUDGED_OR_PROBE & PROBE).select("model", "shift").unique()
    ends = [trajectories(rows) for rows in (table, table.filter(~PROBE))]
    collected, probed, whole, on_grid = pl.collect_all([cells, probes, *ends], engine="streaming")
    by_shift = {}
    for (shift,), rows in sorted(collected.group_by("shift"), key=lambda item: str(item[0][0])):
        sides = {str(model): part for (model,), part in rows.group_by("model")}
        if base in sides and new in sides and 0.0 in rows["severity"]:
            # Probes of one model alone would make its failures look earlier.
            refined = set(probed.filter(pl.col("shift") == shift)["model"]) >= {base, new}
            found = (whole if refined else on_grid).filter(pl.col("shift") == shift)
            by_shift[str(shift)] = _curves(sides, found, (base, new), refined)
    return by_shift


def _curves(
    cells: Mapping[str, pl.DataFrame], ends: pl.DataFrame, models: tuple[str, str], refined: bool
) -> Curves:
    grids = [cells[model] for model in models]
    severities = np.unique(np.concatenate([grid["severity"].to_numpy() for grid in grids]))
    starts = [grid.filter(pl.col("severity") == 0).select(SAMPLE) for grid in grids]
    samples = (
        starts[0].join(starts[1], on=SAMPLE, nulls_equal=True).unique().sort(SAMPLE).with_row_index("row")
    )
    first, second = (
        _curve(grid, ends.filter(pl.col("model") == model), samples, severities)
        for model, grid in zip(models, grids, strict=True)
    )
    return Curves(severities, first, second, refined)


def _curve(grid: pl.DataFrame, ends: pl.DataFrame, samples: pl.DataFrame, severities: Array) -> Curve:
    placed = grid.join(samples, on=SAMPLE, nulls_equal=True)
    right = np.full((len(samples), len(severities)), np.nan)
    columns = np.searchsorted(severities, placed["severity"].to_numpy())
    right[placed["row"].to_numpy(), columns] = placed["right"].to_numpy()
    start = placed.filter(pl.col("severity") == 0).sort("row")
    own = ends.join(samples, on=SAMPLE, nulls_equal=True).select(
        "row", severity=pl.coalesce("failure", "top"), failed=pl.col("failure").is_not_null()
    )
    ordered = own.sort("row", "severity", "failed")
    at = Ends(*(ordered[name].to_numpy() for name in ("severity", "failed", "row")))
    return Curve(right, start["chance"].to_numpy(), at)

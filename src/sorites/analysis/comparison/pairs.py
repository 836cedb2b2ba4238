"""Both models' verdicts side by side: image by image, and per sample and dial as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import CLEAN
from sorites.core.errors import SoritesError, UnknownName
from sorites.evaluation.combine import Folder, open_folder
from sorites.evaluation.reopen import ATTACK
from sorites.evaluation.storage.folder import read_manifest

# The two sides of a comparison: the runs of each, the one model of each, and whether both saw the same
# images.


# Libraries that make images: with another version of one of them an image may be another.
IMAGE_LIBRARIES = ("numpy", "scipy", "pillow")
JUDGED = (
    (pl.col("output") == "label")
    & pl.col("correct").is_not_null()
    & pl.col("error").is_null()
    & pl.col("valid").fill_null(True)
    & ~pl.col("probe").fill_null(False)
)


@dataclass(frozen=True)
class Side:
    """A model in a run, or in all the runs of a passport."""

    path: Path
    parts: Mapping[str, Folder]
    model: str

    @property
    def version(self) -> str:
        """Return the version by which the runs know the model."""
        return next(
            (str(part.info.get("models", {}).get(self.model) or "") for part in self.parts.values()), ""
        )

    def rows(self, part: str) -> pl.LazyFrame:
        """Return the model's rows in one of the runs."""
        return self.parts[part].table.filter(pl.col("model") == self.model)


def side(path: str | Path, parts: Mapping[str, Path], model: str | None, option: str) -> Side:
    """Open the runs of a side and choose its model; ``option`` is what chooses one on the command line."""
    opened = {name: open_folder(folder) for name, folder in parts.items()}
    for part in opened.values():
        if part.unfinished is not None:
            raise SoritesError(
                f"{part.unfinished.found()} Type the command that began it again to finish it, then compare."
            )
        _refuse_boxes(part)
    names = list(dict.fromkeys(name for part in opened.values() for name in _models(part)))
    if model is not None and model not in names:
        raise UnknownName("model", model, names, f"{path} has {', '.join(names)}.")
    if model is None and len(names) != 1:
        raise SoritesError(
            f"{path} has {len(names)} models ({', '.join(names)}): add {option} NAME to choose one"
        )
    return Side(Path(path), opened, model or names[0])


def _models(part: Folder) -> list[str]:
    held = part.info.get("models")
    return (
        list(held)
        if held
        else sorted(part.table.select(pl.col("model").unique()).collect()["model"].drop_nulls())
    )


def _refuse_boxes(part: Folder) -> None:
    outputs = part.table.select(pl.col("output").unique()).collect(engine="streaming")["output"].to_list()
    if outputs and "label" not in outputs:
        raise SoritesError(
            f"{part.name} holds {' and '.join(map(str, outputs))}, and only answers of classifiers can be"
            " compared. For detectors type: sorites metrics BASE NEW map_rank, or sorites report BASE NEW"
        )


def refuse_unlike(base: Side, new: Side, other_versions: bool, shared: bool) -> list[str]:
    """Refuse sides that did not see the same images, with what to type; return notes about the rest."""
    apart = [*(base.parts.keys() - new.parts.keys()), *(new.parts.keys() - base.parts.keys())]
    if apart:
        raise SoritesError(
            f"only one of {base.path} and {new.path} has {', '.join(sorted(apart))}: make both in the"
            " same way"
        )
    notes = [note for part in base.parts for note in _unlike(part, base, new, other_versions, shared)]
    if base.model == new.model and base.version == new.version and base.path.resolve() == new.path.resolve():
        raise SoritesError(
            f"{base.path} is compared with itself: add --base-model and --model to compare two of its models"
        )
    return list(dict.fromkeys(notes))


def _unlike(part: str, base: Side, new: Side, other_versions: bool, shared: bool) -> list[str]:
    one, two = base.parts[part], new.parts[part]
    _refuse_other_content(one, two)
    _refuse_other_making(one, two)
    notes = _libraries(one, two, other_versions)
    mine, theirs = pl.collect_all([_images(held.rows(part)) for held in (base, new)])
    lacks = mine.join(theirs, on="image_id", how="anti"), theirs.join(mine, on="image_id", how="anti")
    if not any(len(lack) for lack in lacks):
        return notes
    both = len(mine) - len(lacks[0])
    if not both:
        raise SoritesError(
            f"{one.name} and {two.name} share no image: run both models on the same source and suite"
        )
    others = (base.model, base.version) != (new.model, new.version)
    if not shared and others and (ATTACK in one.info or ATTACK in two.info):
        raise SoritesError(_attacked(one if ATTACK in one.info else two, both))
    only = zip(lacks, (one.name, two.name), strict=True)
    said = " and ".join(
        f"{len(lack)} images ({shifts_of(lack)}) are only in {name}" for lack, name in only if len(lack)
    )
    if not shared:
        raise SoritesError(
            f"{said}. Run both in the same way, or add --shared to compare the {both} images that both have."
        )
    return [*notes, f"{said}; they are left out."]


def _attacked(part: Folder, both: int) -> str:
    """Say why attacks cannot be compared image by image, and what to type instead."""
    return (
        f"{part.name} holds an attack, in which each model has images of its own that were made against it:"
        f" they cannot be compared image by image. Type: sorites metrics {part.name} accuracy --by"
        f" model,shift,severity, or: sorites report {part.name}. Add --shared to compare the {both} images"
        " that both have, which were not attacked."
    )


def _images(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return each image of the grid once, judged or not."""
    grid = rows.filter((pl.col("output") == "label") & ~pl.col("probe").fill_null(False))
    return grid.select("image_id", "shift").unique("image_id")


def shifts_of(rows: pl.DataFrame, most: int = 3) -> str:
    """Name the shifts of some images, the first few of many."""
    names = rows["shift"].unique().sort().to_list()
    return ", ".join(names[:most]) + (" …" if len(names) > most else "")


def _refuse_other_content(one: Folder, two: Folder) -> None:
    """Refuse runs in which a sample of the same name is another image."""
    held = []
    for part in (one, two):
        if not (Path(part.name) / "manifest.parquet").exists():
            return
        held.append(read_manifest(part.name))
    keys = ["source", "sample_id", "shift", "severity", "params"]
    if not all("content" in listed.columns for listed in held):
        return
    both = held[0].join(held[1], on=keys, suffix="_new", nulls_equal=True)
    other = both.filter(pl.col("content") != pl.col("content_new"))
    if len(other):
        first = other["sample_id"][0]
        what = (
            f"{len(other)} of the {len(both)} images that {one.name} and {two.name} share differ, the first"
            f" {first}"
        )
        raise SoritesError(f"{what}: its file has other content. Run both models on the same files.")


def _refuse_other_making(one: Folder, two: Folder) -> None:
    """Refuse runs whose images were made in other ways: with another frame, seed or version of a shift."""
    suites = [part.info.get("suite") or {} for part in (one, two)]
    for key in ("frame", "seed", "labels"):
        values = [suite.get(key) for suite in suites]
        if all(suites) and values[0] != values[1]:
            apart = f"{_few(values[0])} and {_few(values[1])}"
            raise SoritesError(f"{one.name} and {two.name} differ in {key} ({apart}): run both alike")
    shifts = [part.info.get("shifts") or {} for part in (one, two)]
    for name in shifts[0].keys() & shifts[1].keys():
        if shifts[0][name] != shifts[1][name]:
            versions = f"{shifts[0][name]} and {shifts[1][name]}"
            raise SoritesError(
                f"{one.name} and {two.name} hold other versions of {name} ({versions}): run the older one"
                " again"
            )


def _few(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _libraries(one: Folder, two: Folder, other_versions: bool) -> list[str]:
    held = [part.info.get("versions") or {} for part in (one, two)]
    names = [name for name in held[0] if name in held[1] and held[0][name] != held[1][name]]
    said = [f"{name} {held[0][name]} and {held[1][name]}" for name in names]
    drawing = [text for name, text in zip(names, said, strict=True) if name in IMAGE_LIBRARIES]
    if drawing and not other_versions:
        why = (
            f"{one.name} and {two.name} were made with other versions of libraries that make images"
            f" ({', '.join(drawing)})"
        )
        raise SoritesError(
            f"{why}: run the older one again, or add --other-versions to compare them all the same"
        )
    return [f"The runs were made with other versions: {', '.join(said)}."] if said else []


def together(base: Side, new: Side, names: Sequence[str]) -> pl.LazyFrame:
    """Return the judged rows of both models as one table, in which ``run_id`` is the part and
    ``model`` one of ``names``.
    """
    tables = [
        held.rows(part).with_columns(run_id=pl.lit(part), model=pl.lit(name))
        for held, name in zip((base, new), names, strict=True)
        for part in held.parts
    ]
    return pl.concat(tables)


Array = NDArray[np.float64]
# The place that stands for all dials together, each counting the same.
ALL = "all"
SAMPLE = ("source", "sample_id")
_SEEN = ("correct", "pred", "conf")


def paired(table: pl.LazyFrame, base: str, new: str) -> pl.DataFrame:
    """Return one row per image that both models were judged on; columns of the new model end in
    ``_new``.
    """
    rows = table.filter(JUDGED).select(
        "run_id", *SAMPLE, "image_id", "family", "shift", "severity", "params", "label", "model", *_SEEN
    )
    held = rows.collect(engine="streaming")
    mine, theirs = (held.filter(pl.col("model") == name).drop("model") for name in (base, new))
    both = mine.join(theirs.select("run_id", "image_id", *_SEEN), on=["run_id", "image_id"], suffix="_new")
    if not len(both):
        raise SoritesError(
            "no image was judged for both models: are all of them errors, or of classes that a model lacks?"
        )
    return both


@dataclass(frozen=True)
class Matrix:
    """Accuracies of both models by sample (rows) and dial (columns); NaN where a sample lacks a dial."""

    dials: tuple[str, ...]
    base: Array
    new: Array

    def columns(self, dials: Sequence[str]) -> tuple[Array, Array]:
        """Return the accuracies on some dials; ``all`` is the mean over the dials that a sample
        has, clean images left out.
        """
        return tuple(
            np.stack([self._column(side, dial) for dial in dials], axis=1) for side in (self.base, self.new)
        )  # type: ignore[return-value]

    def _column(self, side: Array, dial: str) -> Array:
        if dial != ALL:
            found: Array = side[:, self.dials.index(dial)]
            return found
        moved = side[:, [place for place, name in enumerate(self.dials) if name != CLEAN]]
        held = np.isfinite(moved)
        counts = held.sum(axis=1)
        mean = np.where(held, moved, 0.0).sum(axis=1) / np.maximum(counts, 1)
        return np.where(counts > 0, mean, np.nan)


def matrix(pairs: pl.DataFrame) -> Matrix:
    """Average the verdicts of each sample over the settings of each dial.

    The order of samples does not depend on the files.
    """
    means = pairs.group_by(*SAMPLE, "shift").agg(
        base=pl.col("correct").mean(), new=pl.col("correct_new").mean()
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
    return Matrix(dials, sides[0], sides[1])


@dataclass(frozen=True)
class Curves:
    """Verdicts of both models along one dial: samples x severities, from the clean images on; NaN
    where one is missing.
    """

    severities: Array
    base: Array
    new: Array


def curves(table: pl.LazyFrame, base: str, new: str) -> Mapping[str, Curves]:
    """Return the curves of each dial that has an order, on the samples that both models were judged
    on when clean.
    """
    from sorites.metrics import with_clean

    moved = with_clean(table).filter(JUDGED & (pl.col("shift") != CLEAN) & pl.col("severity").is_not_null())
    cells = moved.group_by("model", "shift", *SAMPLE, "severity").agg(
        right=pl.col("correct").cast(pl.Float64).mean()
    )
    held = cells.collect(engine="streaming")
    found = {}
    for (shift,), rows in sorted(held.group_by("shift"), key=lambda item: str(item[0][0])):
        sides = {str(model): part for (model,), part in rows.group_by("model")}
        if base in sides and new in sides and 0.0 in rows["severity"]:
            found[str(shift)] = _curves(
                sides[base], sides[new], np.sort(rows["severity"].unique().to_numpy())
            )
    return found


def _curves(base: pl.DataFrame, new: pl.DataFrame, severities: Array) -> Curves:
    starts = [side.filter(pl.col("severity") == 0).select(SAMPLE) for side in (base, new)]
    samples = (
        starts[0].join(starts[1], on=SAMPLE, nulls_equal=True).unique().sort(SAMPLE).with_row_index("row")
    )
    grids = []
    for side in (base, new):
        placed = side.join(samples, on=SAMPLE, nulls_equal=True)
        grid = np.full((len(samples), len(severities)), np.nan)
        grid[placed["row"].to_numpy(), np.searchsorted(severities, placed["severity"].to_numpy())] = placed[
            "right"
        ].to_numpy()
        grids.append(grid)
    return Curves(severities, grids[0], grids[1])

"""Compare two detectors on the same images: mAP by shift, objects lost and gained, failure severities."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from sorites.analysis.comparison.pairs import ALL, SHIFT_COLUMNS, Curve, Curves, Ends, Side
from sorites.analysis.comparison.quantities import EVERY, Cell, Label, Paired, Quantity, measure
from sorites.analysis.comparison.severities import Points, failure_severities
from sorites.analysis.comparison.swaps import (
    RESAMPLES,
    SWAPS,
    Counts,
    Plan,
    SwapTest,
    detectable,
    mean_draws,
    plan_of,
    swap_test,
)
from sorites.analysis.options import FALSE_ALARMS
from sorites.core import CLEAN
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.labels import Labels, class_name
from sorites.evaluation.reopen import class_names
from sorites.metrics import objects, trajectories, with_settings_key
from sorites.metrics.detection.coco import half_samples, interval
from sorites.metrics.detection.failure import OBJECT_SEPARATOR
from sorites.metrics.detection.scenes import Album, Boxes, Scene, box_rows
from sorites.metrics.rows import SAMPLE_KEY, SETTING_KEY

# Boxes from this confidence on find an object, where no rule says otherwise.
CONFIDENCE = 0.25
MAP = Quantity("map")
# A cell of a shift, and of a class or of all.
Key = tuple[str, Label]
_OBJECT = ("run_id", "source", "image_id", "object")


@dataclass(frozen=True)
class Place:
    """The subject of a cell of a rule: a shift, and perhaps one class and one size of objects."""

    dial: str
    label: Label = EVERY
    size: str | None = None

    def named(self, labels: Labels | None) -> str:
        """Return the name of the cell, such as ``fog [class=cup, size=small]``."""
        parts = [] if self.label is EVERY else [f"class={class_name(labels, self.label)}"]
        parts += [f"size={self.size}"] if self.size else []
        return f"{self.dial} [{', '.join(parts)}]" if parts else self.dial


@dataclass(frozen=True)
class BoxComparison:
    """Changes from a base detector to a new one, on the images both were evaluated on.

    ``conf`` is the confidence from which a box finds an object, for the objects lost and gained.
    """

    base: Side
    new: Side
    names: tuple[str, str]
    notes: tuple[str, ...]
    table: pl.LazyFrame
    rate: float = FALSE_ALARMS
    shared: bool = False
    other_versions: bool = False
    conf: float = CONFIDENCE
    swaps: int = SWAPS
    _cells: dict[Quantity, Mapping[str, Mapping[Key, Cell]]] = field(default_factory=dict, repr=False)

    @functools.cached_property
    def labels(self) -> Labels | None:
        """The classes of the runs, if they are recorded."""
        records = [part.record for part in self.base.parts.values() if part.record is not None]
        return class_names(records[0]) if records else None

    @functools.cached_property
    def album(self) -> Album:
        """The rows of both detectors, with the clean images of the first part only."""
        first = next(iter(self.base.parts))
        once = self.table.filter((pl.col("shift") != CLEAN) | (pl.col("run_id") == first))
        return Album(box_rows(with_settings_key(once), ("model", *SETTING_KEY))[0])

    @functools.cached_property
    def plan(self) -> Plan:
        """The draws of all tests and intervals, which share their swaps and resamples."""
        return plan_of(self.album.samples, half_samples(self.album.sources, RESAMPLES), self.swaps)

    @functools.cached_property
    def _counts(self) -> Counts:
        return self.plan.counts()

    @functools.cached_property
    def shifts(self) -> tuple[str, ...]:
        """The shifts, clean images first."""
        found = self.album.rows.select(pl.col("shift").unique()).collect(engine="streaming")["shift"]
        return tuple(sorted(found, key=lambda name: (name != CLEAN, name)))

    @functools.cached_property
    def places(self) -> tuple[str, ...]:
        """The shifts, clean images first and the mean over all shifts last."""
        moved = [name for name in self.shifts if name != CLEAN]
        return (*self.shifts, ALL) if len(moved) > 1 else self.shifts

    def settings_of(self, shift: str) -> Iterator[tuple[dict[str, object], Paired]]:
        """Yield the settings of a shift with the images of both detectors."""
        sides = []
        for name in self.names:
            scenes = self.album.scenes(SETTING_KEY, pl.col("shift") == shift, pl.col("model") == name)
            sides.append({tuple(scene.keys.values()): scene for scene in scenes})
        for key in sorted(sides[0].keys() & sides[1].keys(), key=str):
            base, new = sides[0][key], sides[1][key]
            paired = Paired(
                _ordered(base.only(np.isin(base.image, new.image))),
                _ordered(new.only(np.isin(new.image, base.image))),
                self.album.samples,
            )
            _refuse_other_objects(paired, shift)
            yield base.keys, paired

    def cells(self, quantity: Quantity) -> Mapping[str, Mapping[Key, Cell]]:
        """Return a quantity by setting (key: its name) and, under the key ``""``, averaged by shift.

        The pseudo-shift ``all`` is the mean over all shifts without the clean images.
        """
        if quantity not in self._cells:
            self._cells[quantity] = self._measured(quantity)
        return self._cells[quantity]

    def _measured(self, quantity: Quantity) -> Mapping[str, Mapping[Key, Cell]]:
        by_setting: dict[str, dict[Key, Cell]] = {}
        by_shift: dict[Key, Cell] = {}
        for shift in self.shifts:
            parts: dict[Label, list[Cell]] = {}
            for keys, paired in self.settings_of(shift):
                found = measure(paired, quantity, self.plan, self._counts)
                by_setting[setting_name(keys)] = {(shift, label): cell for label, cell in found.items()}
                for label, cell in found.items():
                    parts.setdefault(label, []).append(cell)
            by_shift |= {(shift, label): _mean(cells) for label, cells in parts.items()}
        moved: dict[Label, list[Cell]] = {}
        for (shift, label), cell in by_shift.items():
            if shift != CLEAN:
                moved.setdefault(label, []).append(cell)
        if ALL in self.places:
            by_shift |= {(ALL, label): _mean(cells) for label, cells in moved.items()}
        if not by_shift:
            raise SoritesError(
                "No image with ground-truth boxes was evaluated for both detectors. Check for errors, and"
                " use a source with boxes."
            )
        return {"": by_shift, **by_setting}

    def classes(self, quantity: Quantity = MAP) -> list[int]:
        """Return the classes that have objects."""
        return sorted({label for _, label in self.cells(quantity)[""] if label is not None})

    def label_named(self, name: str) -> int:
        """Return the class of this name or number.

        Raises:
            UnknownName: No such class has objects in these runs.
        """
        known = self.classes()
        names = {class_name(self.labels, label): label for label in known}
        if name in names:
            return names[name]
        if self.labels is not None:
            try:
                found = self.labels.find(name)
            except UnknownName:
                found = -1
        else:
            found = int(name) if name.isdigit() else -1
        if found in known:
            return found
        raise UnknownName("class", name, names, f"These runs have objects of {', '.join(names)}.")

    @functools.cached_property
    def worse(self) -> SwapTest:
        """The joint test of drops of mAP above 0, as the gate does it; the mean over shifts is not in it."""
        return self._test(1)

    @functools.cached_property
    def better(self) -> SwapTest:
        """The joint test of the same shifts for gains."""
        return self._test(-1)

    def _test(self, sign: int) -> SwapTest:
        cells = [self.cells(MAP)[""][shift, EVERY] for shift in self.shifts]
        return swap_test(
            [cell.draws for cell in cells], [len(cell.samples) for cell in cells], self.rate, 0, sign
        )

    @functools.cached_property
    def dials(self) -> pl.DataFrame:
        """One row per shift: mAPs, drop and interval, objects lost and gained, and the test of the drop.

        Columns are those of a comparison of classifiers, with mAP in place of accuracy and objects in
        place of images. ``low`` and ``high`` are from random halves of the samples, the same for both;
        ``p``, ``p_family`` and ``bound`` are those of the gate's rule ``map_drop > 0``.
        """
        flips = self._flips("shift")
        rows = []
        for i, dial in enumerate(self.places):
            cell = self.cells(MAP)[""][dial, EVERY]
            lost, gained = flips.get(dial, (0, 0))
            if dial == ALL:
                test, k = swap_test([cell.draws], [len(cell.samples)], self.rate), 0
                moved = [flips.get(name, (0, 0)) for name in self.shifts if name != CLEAN]
                lost, gained = (sum(pair[side] for pair in moved) for side in (0, 1))
            else:
                test, k = self.worse, i
            rows.append(_row(dial, cell, test, k, lost, gained))
        kinds = dict.fromkeys(("p", "p_family", "bound", "detectable", "low", "high"), pl.Float64)
        return pl.DataFrame(rows, schema_overrides=kinds, infer_schema_length=None).select(SHIFT_COLUMNS)

    @functools.cached_property
    def settings(self) -> pl.DataFrame:
        """One row per setting: images, mAPs, objects lost and gained, and the p of this setting alone."""
        keys = ["shift", "severity", SETTING_KEY[-1]]
        counts = self._pairs_with_setting.group_by(keys).agg(lost=_LOST.sum(), gained=_GAINED.sum())
        flips = {setting_name(row): row for row in counts.to_dicts()}
        rows = []
        for shift in self.shifts:
            for setting, paired in self.settings_of(shift):
                cell = self.cells(MAP)[setting_name(setting)][shift, EVERY]
                changes = flips.get(setting_name(setting), {"lost": 0, "gained": 0})
                test = swap_test([cell.draws], [len(cell.samples)], self.rate)
                rows.append(
                    {
                        "shift": shift,
                        "severity": setting["severity"],
                        "params": setting[SETTING_KEY[-1]],
                        "n": len(paired.base),
                        "base": cell.draws.base,
                        "new": cell.draws.new,
                        "lost": changes["lost"],
                        "gained": changes["gained"],
                        "p": float(test.p[0]),
                    }
                )
        kinds = {"severity": pl.Float64, "params": pl.String, "lost": pl.Int64, "gained": pl.Int64}
        return pl.DataFrame(rows, schema_overrides=kinds, infer_schema_length=None).sort(
            "shift", "severity", "params", nulls_last=True
        )

    @functools.cached_property
    def pairs(self) -> pl.DataFrame:
        """One row per object and image: whether each detector finds it, at the confidence of the comparison.

        ``sample_id`` is the sample of the image and ``object`` the index of its ground-truth box.
        """
        return self._pairs_with_setting.drop(SETTING_KEY[-1])

    @functools.cached_property
    def _pairs_with_setting(self) -> pl.DataFrame:
        found = objects(self.album.rows, self.conf).filter(pl.col("error").is_null())
        columns = [*_OBJECT, "sample_id", "shift", "severity", SETTING_KEY[-1], "params", "class", "size"]
        mine, theirs = (
            found.filter(pl.col("model") == name).select(*columns, "correct") for name in self.names
        )
        both = mine.join(theirs.select(*_OBJECT, "correct"), on=_OBJECT, suffix="_new", nulls_equal=True)
        return both.with_columns(sample_id=_sample_of("sample_id"))

    def _flips(self, by: str) -> dict[str, tuple[int, int]]:
        counts = self.pairs.group_by(by).agg(lost=_LOST.sum(), gained=_GAINED.sum())
        return {name: (lost, gained) for name, lost, gained in counts.iter_rows()}

    @functools.cached_property
    def changed(self) -> pl.DataFrame:
        """The objects lost or gained: for each object, shift and direction the image of least severity."""
        flipped = self.pairs.filter(pl.col("correct") != pl.col("correct_new")).with_columns(
            lost=pl.col("correct")
        )
        first = flipped.sort("severity", "image_id", "object", nulls_last=True)
        keys = ["source", "sample_id", "object", "shift", "lost"]
        return first.unique(keys, keep="first", maintain_order=True)

    def curves(self, conf: float, label: Label = EVERY, size: str | None = None) -> Mapping[str, Curves]:
        """Return where both detectors lose the objects of a class and size, by shift."""
        rows = self._objects(conf)
        if label is not EVERY:
            rows = rows.filter(pl.col("class") == label)
        if size is not None:
            rows = rows.filter(pl.col("size") == size)
        ends = trajectories(rows.drop("object", "class", "size").lazy()).collect(engine="streaming")
        severities = rows.group_by("shift").agg(pl.col("severity").drop_nulls().unique())
        grid = dict(severities.iter_rows())
        by_shift = {}
        for (shift,), part in sorted(ends.group_by("shift"), key=lambda item: str(item[0][0])):
            if set(part["model"]) >= set(self.names):
                at = np.unique(np.concatenate([[0.0], grid[str(shift)]]))
                by_shift[str(shift)] = _object_curves(part, self.names, at)
        return by_shift

    def _objects(self, conf: float) -> pl.DataFrame:
        """Return the rows of objects; probes count only where both detectors have them."""
        found = objects(self.table, conf)
        probes = found.filter(pl.col("probe").fill_null(False)).select("model", "shift").unique()
        refined = [
            shift for (shift,), rows in probes.group_by("shift") if set(rows["model"]) >= set(self.names)
        ]
        return found.filter(~pl.col("probe").fill_null(False) | pl.col("shift").is_in(refined))

    def points(self, conf: float, dial: str, label: Label = EVERY, size: str | None = None) -> Points | None:
        """Return the severities at which half of the objects are lost, or None if the shift has none."""
        found = self.curves(conf, label, size).get(dial)
        return None if found is None else failure_severities(found, "failure_severity")


_LOST = (pl.col("correct") & ~pl.col("correct_new")).cast(pl.Int64)
_GAINED = (~pl.col("correct") & pl.col("correct_new")).cast(pl.Int64)


def setting_name(keys: Mapping[str, object]) -> str:
    """Return a unique text of a setting."""
    return " ".join(str(keys[name]) for name in SETTING_KEY)


def _sample_of(column: str) -> pl.Expr:
    return pl.col(column).str.replace(OBJECT_SEPARATOR + r"\d+$", "")


def _mean(cells: Sequence[Cell]) -> Cell:
    samples = np.unique(np.concatenate([cell.samples for cell in cells]))
    objects, hits, settings = (
        sum(getattr(cell, name) for cell in cells) for name in ("objects", "hits", "settings")
    )
    return Cell(mean_draws([cell.draws for cell in cells]), samples, objects, hits, settings)


def _ordered(scene: Scene) -> Scene:
    """Return the scene with its images in the order of their hashes, which both detectors share."""
    order = np.argsort(scene.image, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))

    def moved(boxes: Boxes) -> Boxes:
        renumbered = replace(boxes, image=place[boxes.image])
        return renumbered[np.argsort(renumbered.image, kind="stable")]

    codes = scene.sample[order], scene.start[order], scene.image[order]
    return Scene(scene.keys, *codes, moved(scene.found), moved(scene.objects), scene.counts)


def _refuse_other_objects(paired: Paired, shift: str) -> None:
    """Refuse images whose ground truth differs between the runs: swaps would then change the objects."""
    one, two = paired.base.objects, paired.new.objects
    same = len(one) == len(two) and all(
        np.array_equal(getattr(one, name), getattr(two, name))
        for name in ("image", "label", "xyxy", "area", "crowd")
    )
    if not same:
        raise SoritesError(
            f"The ground-truth boxes of some images under {shift} differ between the two runs. Run both"
            " detectors with the same annotations."
        )


def _row(dial: str, cell: Cell, test: SwapTest, k: int, lost: int, gained: int) -> dict[str, object]:
    draws, samples, judged = cell.draws, len(cell.samples), bool(test.judged[k])
    low, high = interval(draws.drawn_base - draws.drawn_new, draws.drop, samples)
    level = float(test.levels[k])
    stated = detectable(draws, samples, level, share=test.share, worth=cell.worth) if judged else None
    return {
        "dial": dial,
        "n": samples,
        "base": draws.base,
        "new": draws.new,
        "drop": draws.drop,
        "low": None if low is None else max(low, -1.0),
        "high": None if high is None else min(high, 1.0),
        "lost": lost,
        "gained": gained,
        "p": float(test.p[k]) if judged else None,
        "p_family": float(test.p_family[k]) if judged and dial != ALL else None,
        "bound": max(float(test.bound[k]), -1.0) if judged else None,
        "detectable": stated,
        "judged": judged,
    }


def _object_curves(ends: pl.DataFrame, names: tuple[str, str], severities: np.ndarray) -> Curves:
    """Return the ends of the trajectories of objects by sample, on samples that both detectors have."""
    named = ends.with_columns(sample_id=_sample_of("sample_id"))
    sides = [named.filter(pl.col("model") == name) for name in names]
    keys = list(SAMPLE_KEY)
    shared = sides[0].select(keys).unique().join(sides[1].select(keys).unique(), on=keys, nulls_equal=True)
    samples = shared.sort(keys).with_row_index("row")
    curves = []
    for side in sides:
        own = side.join(samples, on=keys, nulls_equal=True).select(
            "row", severity=pl.coalesce("failure", "top"), failed=pl.col("failure").is_not_null()
        )
        ordered = own.sort("row", "severity", "failed")
        at = Ends(*(ordered[name].to_numpy() for name in ("severity", "failed", "row")))
        # Accuracy is not read for objects; only the number of samples and the severities are.
        curves.append(Curve(np.zeros((len(samples), len(severities))), np.zeros(len(samples)), at))
    return Curves(severities, curves[0], curves[1])

"""Detector rows as flat arrays: the images of a group with their predicted and ground-truth boxes.

An image counts if its detector returned boxes (possibly none) and its ground-truth boxes are known
(possibly none). Other images are *missing* if they have an error and *unknown* if they have no ground
truth. Ground-truth boxes with non-finite coordinates or without area are left out and counted, because
they cannot be found. Predictions without a confidence are left out; predictions with non-finite
coordinates or without area match nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core.boxes import areas
from sorites.core.table import Table
from sorites.metrics.rows import CLEAN_KEY, ON_GRID, SAMPLE_KEY, select_rows

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# The column that box metrics add: the label of an object.
CLASS = "class"

CORNERS = ("x0", "y0", "x1", "y1")
COUNTS = ("missing", "unknown", "left_out")


@dataclass(frozen=True)
class Boxes:
    """Boxes of several images, in the order of the images and of the table.

    Attributes:
        image: The index of the image of each box.
        label: The class.
        xyxy: The corners, N x 4.
        conf: The confidence; NaN for ground-truth boxes.
        area: The area that decides whether an object is small, medium or large.
        crowd: Whether the box is a crowd region.
        place: The index of the box in the list of its image.
    """

    image: Ints
    label: Ints
    xyxy: Floats
    conf: Floats
    area: Floats
    crowd: NDArray[np.bool_]
    place: Ints

    def __len__(self) -> int:
        return len(self.image)

    def __getitem__(self, which: NDArray[np.bool_] | Ints) -> Boxes:
        whole, crowd = (self.image[which], self.label[which]), self.crowd[which]
        return Boxes(*whole, self.xyxy[which], self.conf[which], self.area[which], crowd, self.place[which])


@dataclass(frozen=True)
class Scene:
    """The counted images of one group.

    Attributes:
        keys: The values of the group columns.
        sample: The code of each image's sample, the same in all scenes.
        start: The code that each image shares with its clean image.
        image: A hash of each image's id.
        found: The predicted boxes.
        objects: The ground-truth boxes.
        counts: The numbers of missing, unknown and left-out rows.
    """

    keys: dict[str, object]
    sample: Ints
    start: Ints
    image: Ints
    found: Boxes
    objects: Boxes
    counts: dict[str, int]

    def __len__(self) -> int:
        return len(self.sample)

    def only(self, keep: NDArray[np.bool_]) -> Scene:
        """Return the scene with a subset of its images."""
        if keep.all():
            return self
        number = np.cumsum(keep) - 1

        def cut(boxes: Boxes) -> Boxes:
            selected = boxes[keep[boxes.image]]
            return replace(selected, image=number[selected.image])

        codes = self.sample[keep], self.start[keep], self.image[keep]
        return Scene(self.keys, *codes, cut(self.found), cut(self.objects), self.counts)


def box_rows(
    table: Table, by: Sequence[str], refuse: Collection[str] = (), probes: bool = False
) -> tuple[pl.LazyFrame, list[str], bool]:
    """Return the rows of detectors, the group columns of the table, and whether ``by`` contains ``class``."""
    columns = [by] if isinstance(by, str) else list(by)
    rows, keys = select_rows(table, [key for key in columns if key != CLASS], refuse, output="boxes")
    return (rows if probes else rows.filter(ON_GRID)), keys, CLASS in columns


def without_ground_truth(table: Table) -> bool:
    """Return whether detectors returned boxes for images of which none has a ground-truth box."""
    answered = table.lazy().filter(pl.col("output") == "boxes", pl.col("error").is_null())
    counts = (
        answered.select(rows=pl.len(), objects=pl.col("ground_truth").list.len().sum())
        .collect(engine="streaming")
        .row(0)
    )
    return bool(counts[0]) and not counts[1]


class Album:
    """The rows of detectors, read scene by scene; a sample has the same code in all scenes."""

    def __init__(self, rows: pl.LazyFrame) -> None:
        self.rows = rows
        self.kinds = rows.collect_schema()
        self._codes = {
            name: _sample_codes(rows, name, columns)
            for name, columns in (("sample", SAMPLE_KEY), ("start", CLEAN_KEY))
        }

    @property
    def samples(self) -> int:
        """The number of samples."""
        return self._codes["sample"].height

    @property
    def sources(self) -> dict[str | None, int]:
        """The number of samples of each source, in the order of the samples."""
        sources = self._codes["sample"]["source"]
        return dict(sources.to_frame().group_by("source", maintain_order=True).len().iter_rows())

    def scenes(self, keys: Sequence[str], *where: pl.Expr) -> Iterator[Scene]:
        """Yield the scene of each group in order; where ``keys`` include model and shift, memory holds one
        of each at a time.
        """
        for group in self._groups(keys, where, ()):
            yield scene(group, {key: group[key][0] for key in keys})

    def scenes_with_rows(
        self, keys: Sequence[str], columns: Sequence[str], *where: pl.Expr
    ) -> Iterator[tuple[Scene, pl.DataFrame]]:
        """Yield each scene with the rows of its images, in their order, and these columns of the table."""
        for group in self._groups(keys, where, columns):
            yield scene(group, {key: group[key][0] for key in keys}), group.filter(~_FAILED & _KNOWN)

    def _groups(
        self, keys: Sequence[str], where: Sequence[pl.Expr], columns: Sequence[str]
    ) -> Iterator[pl.DataFrame]:
        rows = self.rows.filter(*where) if where else self.rows
        parts = [key for key in ("model", "shift") if key in keys]
        for values in (
            rows.select(parts).unique().sort(parts).collect(engine="streaming").iter_rows() if parts else [()]
        ):
            conditions = [
                pl.col(key).eq_missing(pl.lit(value, pl.String))
                for key, value in zip(parts, values, strict=True)
            ]
            loaded = self._read(rows.filter(*conditions) if conditions else rows, [*keys, *columns])
            yield from loaded.sort([*keys, "sample", "image_id", "model"]).partition_by(
                keys, maintain_order=True
            )

    def _read(self, rows: pl.LazyFrame, columns: Sequence[str]) -> pl.DataFrame:
        needed = dict.fromkeys(
            [*columns, *CLEAN_KEY, *SAMPLE_KEY, "image_id", "error", "ground_truth", "boxes"]
        )
        loaded = rows.select(*needed).collect(engine="streaming")
        for name, columns in (("sample", SAMPLE_KEY), ("start", CLEAN_KEY)):
            loaded = loaded.join(self._codes[name], on=list(columns), how="left", nulls_equal=True)
        return loaded


def _sample_codes(rows: pl.LazyFrame, name: str, columns: Sequence[str]) -> pl.DataFrame:
    return rows.select(columns).unique().sort(columns).collect(engine="streaming").with_row_index(name)


_FAILED = pl.col("error").is_not_null() | pl.col("boxes").is_null()
_KNOWN = pl.col("ground_truth").is_not_null()


def scene(rows: pl.DataFrame, keys: dict[str, object]) -> Scene:
    """Return the counted images of rows, which need the codes ``sample`` and ``start``."""
    judged = rows.filter(~_FAILED & _KNOWN)
    unknown = rows.select((~_FAILED & ~_KNOWN).sum()).item()
    objects, left_out = _valid_objects(_flat(judged, "ground_truth"))
    image = judged["image_id"].hash(0).to_numpy().view(np.int64)
    counts = {"missing": rows.select(_FAILED.sum()).item(), "unknown": unknown, "left_out": left_out}
    sample, start = (judged[name].to_numpy().astype(np.int64) for name in ("sample", "start"))
    return Scene(keys, sample, start, image, _flat(judged, "boxes"), objects, counts)


def _flat(rows: pl.DataFrame, column: str) -> Boxes:
    """Return a column of lists of boxes as arrays."""
    non_empty = rows.select(pl.int_range(pl.len()).alias("image"), pl.col(column)).filter(
        pl.col(column).list.len() > 0
    )
    indexed = non_empty.with_columns(place=pl.int_ranges(pl.col(column).list.len()))
    frame = indexed.explode(column, "place").unnest(column).drop_nulls("label")
    if column == "boxes":
        frame = frame.filter(pl.col("conf").is_finite()).with_columns(
            area=pl.lit(None, pl.Float64), crowd=pl.lit(False)
        )
    xyxy = frame.select(pl.col(CORNERS).cast(pl.Float64).fill_null(np.nan)).to_numpy().reshape(-1, 4)
    annotated_area = frame["area"].fill_null(np.nan).to_numpy()
    finite = np.isfinite(xyxy).all(axis=1)
    if column == "boxes":
        xyxy = np.where(finite[:, None], xyxy, 0.0)
    area = np.where(np.isfinite(annotated_area), annotated_area, areas(xyxy))
    crowd = frame["crowd"].fill_null(False).to_numpy()
    integers = [frame[name].to_numpy().astype(np.int64) for name in ("image", "label", "place")]
    return Boxes(
        integers[0],
        integers[1],
        xyxy,
        frame["conf"].fill_null(np.nan).to_numpy().astype(np.float64),
        area,
        crowd,
        integers[2],
    )


def _valid_objects(objects: Boxes) -> tuple[Boxes, int]:
    sides = objects.xyxy[:, 2:] - objects.xyxy[:, :2]
    valid: NDArray[np.bool_] = np.isfinite(objects.xyxy).all(axis=1) & np.all(sides > 0, axis=1)
    return objects[valid], int((~valid).sum())

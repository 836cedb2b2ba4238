"""Read the prediction files of CNS-Bench: what its evaluation writes, and what it is turned into for release.

The evaluation writes ``<model>.csv`` with ``pred_class, gt_class, img_dir``; the release holds ``<model>__<shift>.csv`` with
``pred_class, gt_class, shift, class_str, img_name, class_name, seed, scale`` and a column named after the model. Only the name of
the picture is believed: the released ``scale`` was cut from names of another length, and says 0.1 for ``scale_1000.jpg``.
Dünkel et al., "CNS-Bench: Benchmarking Image Classifier Robustness Under Continuous Nuisance Shifts", ICCV 2025.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import polars as pl

from sorites.errors import SoritesError
from sorites.pipeline.imports.cells import ROW, Sheet, read_frame
from sorites.pipeline.imports.names import Naming
from sorites.reading.frames import as_numbers
from sorites.sources.cns_bench import CnsPicture, named_picture

NAME = "cns_bench"
SCALES = (0.5, 1.0, 1.5, 2.0, 2.5)
"""The published scales above 0; a scale's level is its place among them."""

_ANSWER = ("pred_class", "gt_class")
_UNNAMED = re.compile(r"id_\d+")
"""The folder of self-made pictures, which has the number of an experiment in the place of the shift."""


def read_cns(path: Path, naming: Naming) -> Sheet:
    """Return one file of predictions under the table's names: a sample is shift / class / seed, and the scale its severity."""
    frame = read_frame(path)
    lost = [name for name in _ANSWER if name not in frame.columns]
    where = ("img_dir",) if "img_dir" in frame.columns else ("shift", "class_str", "img_name")
    lost += [name for name in where if name not in frame.columns]
    if lost:
        wanted, has = "pred_class, gt_class and img_dir (or shift, class_str, img_name)", ", ".join(frame.columns)
        raise SoritesError(f"{path.name}: wanted the columns {wanted}; {', '.join(lost)} missing. It has {has}")
    model, _, shift = path.stem.partition("__")
    called = {"label": "gt_class", "pred": "pred_class", "sample_id": where[-1], "severity": where[-1]}
    numbered = frame.with_row_index(ROW, offset=1).with_columns(pl.col(ROW).cast(pl.Int64))
    sheet = Sheet(path.name, numbered, called)
    paths = ["/".join(map(str, parts)) for parts in frame.select(where).rows()]
    pictures = [_picture(sheet, index, text, shift) for index, text in enumerate(paths)]
    _refuse_other_class(sheet, pictures)
    columns: dict[str, list[Any]] = {
        "sample_id": [picture.trajectory for picture in pictures],
        "shift": [picture.shift for picture in pictures],
        "severity": [picture.scale for picture in pictures],
        "level": [SCALES.index(picture.scale) + 1 if picture.scale in SCALES else None for picture in pictures],
    }
    made = numbered.select(ROW, label="gt_class", pred="pred_class").with_columns(
        pl.Series(name, values, strict=False) for name, values in columns.items()
    )
    constants = {"model": model, "source": NAME, **naming.constants}
    return Sheet(path.name, made.with_columns(pl.lit(value).alias(name) for name, value in constants.items()), called)


def _picture(sheet: Sheet, index: int, path: str, shift: str) -> CnsPicture:
    try:
        picture = named_picture(path)
    except SoritesError as error:
        raise sheet.wrong(index, "sample_id", error) from None
    if not _UNNAMED.fullmatch(picture.shift):
        return picture
    if not shift:
        raise sheet.wrong(index, "sample_id", f"{picture.shift} is no shift; call the file MODEL__SHIFT.csv")
    return CnsPicture(picture.path, shift, picture.number, picture.seed, picture.scale)


def _refuse_other_class(sheet: Sheet, pictures: list[CnsPicture]) -> None:
    """The class in the row must be the class of the picture's folder."""
    given = as_numbers(sheet.frame["gt_class"], f"{sheet.file}, column gt_class").to_list()
    for index, (number, picture) in enumerate(zip(given, pictures, strict=True)):
        if number != picture.number:
            masked = "Files made with --class_mask number only the classes of one folder and cannot be read"
            raise sheet.wrong(index, "label", f"wanted {picture.number}, the class of {picture.path}; got {number}. {masked}")

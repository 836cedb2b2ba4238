"""Labels by hand that say whether a picture still shows its class, as a filter is calibrated on and held against.

Each line is one judgement: an image by ``image_id``, or by ``sample``, ``shift`` and ``scale``, and either ``label`` (in, partial
or out of class) or ``outside`` (true or false). Several people may judge one image. As in CNS-Bench (section I.1) it is out of
class if one of them says so, in class if one of the others sees it clearly, and neither if all see only parts of the class.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from sorites.errors import SoritesError
from sorites.reading.frames import as_numbers, refuse_types, sheet

NAMES = {"sample_id": "sample", "severity": "scale"}
"""Columns of the table, and what a file may call them instead."""
PLACE = ("sample_id", "shift", "severity")
WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("in", "in class", "class", "ic"), False),
    **dict.fromkeys(("partial", "partial class properties", "partially in class"), None),
    **dict.fromkeys(("out", "out of class", "not class", "ooc"), True),
}
"""The words people write for a label, and whether each means that the picture is out of its class."""
TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": None}
DIGITS = 6
"""Scales that agree to this many decimals are the same."""


def read_annotations(file: str | Path) -> pl.DataFrame:
    """Read judgements from a CSV or parquet file: ``image_id``, or sample, shift and severity; ``outside`` is null if partial."""
    path = Path(file)
    frame = sheet(path)
    frame = frame.rename({short: name for name, short in NAMES.items() if short in frame.columns and name not in frame.columns})
    keys = ["image_id"] if "image_id" in frame.columns else list(PLACE)
    if any(key not in frame.columns for key in keys) or not {"label", "outside"} & set(frame.columns):
        raise SoritesError(
            f"{path}: wanted the columns image_id, or sample, shift and scale, and one of label (in, partial or out) and "
            f"outside (true or false); got {', '.join(frame.columns)}"
        )
    told, words = ("label", WORDS) if "label" in frame.columns else ("outside", TRUTH)
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
        raise SoritesError(f"{path}, row {wrong[0]}: wanted a number as scale, got {judged['severity'][wrong[0] - 1]!r}")
    return found


def outside_of(images: pl.DataFrame, judged: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return ``image_id`` and ``outside`` of the images that somebody judged; ``images`` has the image ids and their places.

    Judgements of pictures that are not among the images, such as clean ones, are left out; if all are, that is an error.
    """
    if "image_id" in judged.columns:
        found = images.select("image_id").join(judged, on="image_id", maintain_order="left")
    else:
        found = _rounded(images).join(_rounded(judged), on=list(PLACE), maintain_order="left")
    if not found.height:
        some = ", ".join(str(value) for value in judged.drop("outside").row(0)) if judged.height else "nothing"
        raise SoritesError(f"{name}: none of its {judged.height} rows is a shifted image of the run; its first row is {some}")
    outside = pl.col("outside")
    combined = pl.when(outside.any()).then(True).when((~outside).any()).then(False)
    return found.group_by("image_id", maintain_order=True).agg(outside=combined)


def _rounded(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col("severity").round(DIGITS))

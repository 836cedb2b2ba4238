"""Read the prediction files of CNS-Bench: what its evaluation writes, and what it is turned into for release.

The evaluation writes ``<model>.csv`` with ``pred_class, gt_class, img_dir``; the release holds
``<model>__<shift>.csv`` with ``pred_class, gt_class, shift, class_str, img_name, class_name, seed,
scale`` and a column named after the model. Only the name of the image is believed: the released
``scale`` was cut from names of another length, and says 0.1 for ``scale_1000.jpg``. Dünkel et al.,
"CNS-Bench: Benchmarking Image Classifier Robustness Under Continuous Nuisance Shifts", ICCV 2025.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from sorites.core import camera_grid as es_grid
from sorites.core.errors import SoritesError
from sorites.core.rng import digest
from sorites.core.table import COUNTED
from sorites.evaluation.imports.cells import ALIASES, ROW, Naming, Sheet, read_frame, read_sheet
from sorites.evaluation.imports.rows import SOURCE, number
from sorites.io.readers import json_object
from sorites.io.tables import as_numbers
from sorites.sources.papers.cns_bench import CnsImage, named_image

NAME = "cns_bench"
# The published scales above 0; a scale's level is its place among them.
SCALES = (0.5, 1.0, 1.5, 2.0, 2.5)

_ANSWER = ("pred_class", "gt_class")
# The folder of self-made images, which has the number of an experiment in the place of the shift.
_UNNAMED = re.compile(r"id_\d+")


def read_cns(path: Path, naming: Naming) -> Sheet:
    """Return one file of predictions under the table's names: a sample is shift / class / seed, and
    the scale its severity.
    """
    frame = read_frame(path)
    lost = [name for name in _ANSWER if name not in frame.columns]
    where = ("img_dir",) if "img_dir" in frame.columns else ("shift", "class_str", "img_name")
    lost += [name for name in where if name not in frame.columns]
    if lost:
        wanted, has = (
            "pred_class, gt_class and img_dir (or shift, class_str, img_name)",
            ", ".join(frame.columns),
        )
        raise SoritesError(
            f"{path.name}: expected the columns {wanted}; {', '.join(lost)} missing. It has {has}"
        )
    model, _, shift = path.stem.partition("__")
    called = {"label": "gt_class", "pred": "pred_class", "sample_id": where[-1], "severity": where[-1]}
    numbered = frame.with_row_index(ROW, offset=1).with_columns(pl.col(ROW).cast(pl.Int64))
    sheet = Sheet(path.name, numbered, called)
    paths = ["/".join(map(str, parts)) for parts in frame.select(where).rows()]
    images = [_image(sheet, index, text, shift) for index, text in enumerate(paths)]
    _refuse_other_class(sheet, images)
    columns: dict[str, list[Any]] = {
        "sample_id": [image.trajectory for image in images],
        "shift": [image.shift for image in images],
        "severity": [image.scale for image in images],
        "level": [SCALES.index(image.scale) + 1 if image.scale in SCALES else None for image in images],
    }
    made = numbered.select(ROW, label="gt_class", pred="pred_class").with_columns(
        pl.Series(name, values, strict=False) for name, values in columns.items()
    )
    constants = {"model": model, "source": NAME, **naming.constants}
    return Sheet(
        path.name, made.with_columns(pl.lit(value).alias(name) for name, value in constants.items()), called
    )


def _image(sheet: Sheet, index: int, path: str, shift: str) -> CnsImage:
    try:
        image = named_image(path)
    except SoritesError as error:
        raise sheet.wrong(index, "sample_id", error) from None
    if not _UNNAMED.fullmatch(image.shift):
        return image
    if not shift:
        raise sheet.wrong(index, "sample_id", f"{image.shift} is no shift; call the file MODEL__SHIFT.csv")
    return CnsImage(image.path, shift, image.number, image.seed, image.scale)


def _refuse_other_class(sheet: Sheet, images: list[CnsImage]) -> None:
    """The class in the row must be the class of the image's folder."""
    given = as_numbers(sheet.frame["gt_class"], f"{sheet.file}, column gt_class").to_list()
    for index, (got, image) in enumerate(zip(given, images, strict=True)):
        if got != image.number:
            masked = "Files made with --class_mask number only the classes of one folder and cannot be read"
            raise sheet.wrong(
                index,
                "label",
                f"expected {image.number}, the class of {image.path}; got {got}. {masked}",
            )


# Read counts of right answers, one row per model and setting, and make of each as many rows of the table
# as it counts.


# The columns of a file of counts and their other names; ``light``, ``param`` and ``shot`` are
# ImageNet-ES's own.
NAMES: Mapping[str, tuple[str, ...]] = {
    **{name: ALIASES[name] for name in ("model", "shift", "severity", "source")},
    "n": ("total", "images", "images"),
    "correct": ("right", "hits"),
    "light": ("lamp",),
    "param": ("parameter", "setting", "option"),
    "shot": (),
}

# The most images that one file may count: each becomes a row of the table.
MOST = 50_000_000

_LIGHTS = {
    **{light: light for light in es_grid.LIGHTS},
    **{folder: light for light, folder in es_grid.LIGHTS.items()},
}
_NUMBERED = re.compile(r"(?:param_|option_|p)?(\d+)")
_KEPT = ("model", "source", "split", "shift", "severity", "level")


def read_counts(path: Path, naming: Naming) -> Sheet:
    """Return the rows that a file of counts stands for, under the table's names."""
    sheet = read_sheet(path, naming, NAMES)
    lost = [name for name in ("model", "n", "correct") if name not in sheet.frame.columns]
    if lost:
        hint = " Name the model with --model NAME." if "model" in lost else ""
        raise SoritesError(
            f"{sheet.file}: counts need the columns model, n and correct; {', '.join(lost)} missing.{hint}"
        )
    rows = sheet.frame.to_dicts()
    total = 0
    for index, row in enumerate(rows):
        total += _count(sheet, index, "n", row["n"])
        if total > MOST:
            raise sheet.wrong(
                index, "n", f"expected counts of at most {MOST:,} images in a file, got {total:,} up to here"
            )
    parts = [_rows(sheet, index, row) for index, row in enumerate(rows)]
    return Sheet(sheet.file, pl.concat(parts, how="vertical_relaxed"), sheet.called)


def _rows(sheet: Sheet, index: int, row: dict[str, Any]) -> pl.DataFrame:
    """Return the rows of one setting: ``n`` made-up samples, the first ``correct`` of them right."""
    n, right = (_count(sheet, index, name, row[name]) for name in ("n", "correct"))
    if right > n:
        raise sheet.wrong(index, "correct", f"expected at most n = {n}, got {right}")
    params = _params(sheet, index, row)
    if not row.get("model"):
        raise sheet.wrong(index, "model", "expected a model, got nothing")
    kept: dict[str, Any] = {name: row.get(name) for name in _KEPT}
    kept |= {
        "shift": kept["shift"] or ("camera" if "light" in params else None),
        "source": kept["source"] or SOURCE,
    }
    key = digest(*kept.values(), json.dumps(params, sort_keys=True), size=8).hex()
    samples = pl.int_range(n, eager=True)
    told = {name: pl.lit(None if value is None else str(value), pl.String) for name, value in kept.items()}
    ids = pl.lit(f"{COUNTED}{key}/") + samples.cast(pl.String).str.zfill(6)
    return pl.DataFrame({"(place)": samples}).select(
        pl.lit(row[ROW]).alias(ROW), sample_id=ids, correct=pl.col("(place)") < right, params=pl.lit(json.dumps(params)), **told
    )  # fmt: skip


def _count(sheet: Sheet, index: int, name: str, value: Any) -> int:
    found = number(value)
    if (
        isinstance(found, bool)
        or not isinstance(found, int | float)
        or not 0 <= found < 2**31
        or found != int(found)
    ):
        raise sheet.wrong(index, name, f"expected a count, got {value!r}")
    return int(found)


def _params(sheet: Sheet, index: int, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params of a row: as they are written, or those of a setting of ImageNet-ES by
    light and number.
    """
    try:
        params = json_object(row.get("params") or "{}")
    except (ValueError, TypeError):
        raise sheet.wrong(index, "params", f"expected a JSON object, got {row['params']!r}") from None
    entries = {key.removeprefix("params."): value for key, value in row.items() if key.startswith("params.")}
    params |= {key: number(value) for key, value in entries.items() if value is not None}
    if row.get("param") is None:
        return params | ({"light": _light(sheet, index, row)} if row.get("light") else {})
    return params | dict(_published(sheet, index, row))


def _light(sheet: Sheet, index: int, row: Mapping[str, Any]) -> str:
    light = str(row.get("light") or "").lower()
    if light not in _LIGHTS:
        raise sheet.wrong(index, "light", f"expected one of {', '.join(_LIGHTS)}, got {row.get('light')!r}")
    return _LIGHTS[light]


def _published(sheet: Sheet, index: int, row: Mapping[str, Any]) -> Mapping[str, Any]:
    light, text = _light(sheet, index, row), str(row["param"]).strip().lower()
    if text == "auto":
        shot = {} if row.get("shot") is None else {"shot": _count(sheet, index, "shot", row["shot"])}
        return {"light": light, "mode": "auto", **shot}
    split = str(row.get("split") or "test")
    if split not in ("val", "test"):
        raise sheet.wrong(index, "split", f"the numbered settings are those of val or test, got {split!r}")
    settings, found = es_grid.manual(split, light), _NUMBERED.fullmatch(text)
    if not found or not 1 <= int(found[1]) <= len(settings):
        raise sheet.wrong(
            index,
            "param",
            f"expected auto or a setting of {split} from 1 to {len(settings)}, got {row['param']!r}",
        )
    return settings[int(found[1]) - 1]

"""Readers of published prediction files: CNS-Bench's, and files of counts such as ImageNet-ES's.

The evaluation of CNS-Bench (Dünkel et al., ICCV 2025) writes ``<model>.csv`` with ``pred_class,
gt_class, img_dir``; the release has ``<model>__<shift>.csv`` with ``pred_class, gt_class, shift,
class_str, img_name, class_name, seed, scale`` and a column named after the model. Only the name of the
image is reliable: the released ``scale`` was cut from names of another length and is 0.1 for
``scale_1000.jpg``.
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
from sorites.core.messages import option
from sorites.core.rng import digest
from sorites.core.table import COUNTED_PREFIX
from sorites.evaluation.imports.read import ALIASES, ROW, Naming, Sheet, read_frame, read_sheet
from sorites.evaluation.imports.rows import SOURCE, number
from sorites.io.readers import json_object
from sorites.io.tables import as_numbers
from sorites.sources.papers.cns_bench import CnsImage, named_image

NAME = "cns_bench"
# The published scales above 0; the level of a scale is its index plus 1.
SCALES = (0.5, 1.0, 1.5, 2.0, 2.5)

_ANSWER = ("pred_class", "gt_class")
# The folder of generated images, which has the number of an experiment in place of the shift.
_EXPERIMENT = re.compile(r"id_\d+")


def read_cns(path: Path, naming: Naming) -> Sheet:
    """Read a CNS-Bench file under the table's names: a sample is shift / class / seed, and the scale is
    the severity.
    """
    frame = read_frame(path)
    missing = [name for name in _ANSWER if name not in frame.columns]
    path_columns = ("img_dir",) if "img_dir" in frame.columns else ("shift", "class_str", "img_name")
    missing += [name for name in path_columns if name not in frame.columns]
    if missing:
        raise SoritesError(
            f"{path.name}: expected the columns pred_class, gt_class and img_dir (or shift, class_str,"
            f" img_name); {', '.join(missing)} missing. It has {', '.join(frame.columns)}"
        )
    model, _, shift = path.stem.partition("__")
    called = {
        "label": "gt_class",
        "pred": "pred_class",
        "sample_id": path_columns[-1],
        "severity": path_columns[-1],
    }
    numbered = frame.with_row_index(ROW, offset=1).with_columns(pl.col(ROW).cast(pl.Int64))
    sheet = Sheet(path.name, numbered, called)
    paths = ["/".join(map(str, parts)) for parts in frame.select(path_columns).rows()]
    images = [_image(sheet, index, text, shift) for index, text in enumerate(paths)]
    _refuse_other_class(sheet, images)
    columns: dict[str, list[Any]] = {
        "sample_id": [image.trajectory for image in images],
        "shift": [image.shift for image in images],
        "severity": [image.scale for image in images],
        "level": [SCALES.index(image.scale) + 1 if image.scale in SCALES else None for image in images],
    }
    rows = numbered.select(ROW, label="gt_class", pred="pred_class").with_columns(
        pl.Series(name, values, strict=False) for name, values in columns.items()
    )
    constants = {"model": model, "source": NAME, **naming.constants}
    return Sheet(
        path.name, rows.with_columns(pl.lit(value).alias(name) for name, value in constants.items()), called
    )


def _image(sheet: Sheet, index: int, path: str, shift: str) -> CnsImage:
    try:
        image = named_image(path)
    except SoritesError as error:
        raise sheet.wrong(index, "sample_id", error) from None
    if not _EXPERIMENT.fullmatch(image.shift):
        return image
    if not shift:
        raise sheet.wrong(
            index, "sample_id", f"{image.shift} is not a shift; rename the file to MODEL__SHIFT.csv"
        )
    return CnsImage(image.path, shift, image.number, image.seed, image.scale)


def _refuse_other_class(sheet: Sheet, images: list[CnsImage]) -> None:
    """Raise an error if the class of a row is not that of the image's folder."""
    classes = as_numbers(sheet.frame["gt_class"], f"{sheet.file}, column gt_class").to_list()
    for index, (got, image) in enumerate(zip(classes, images, strict=True)):
        if got != image.number:
            # The flag belongs to the evaluation script of CNS-Bench.
            hint = (
                "Files written with --class_mask number the classes of one folder only and cannot be imported"
            )
            raise sheet.wrong(
                index,
                "label",
                f"expected {image.number}, the class of {image.path}; got {got}. {hint}",
            )


# Counts of correct answers, one row per model and setting, are expanded to as many rows of the table.

# The columns of a file of counts and their aliases; ``light``, ``param`` and ``shot`` are those of
# ImageNet-ES.
COUNT_ALIASES: Mapping[str, tuple[str, ...]] = {
    **{name: ALIASES[name] for name in ("model", "shift", "severity", "source")},
    "n": ("total", "images", "pictures"),
    "correct": ("right", "hits"),
    "light": ("lamp",),
    "param": ("parameter", "setting", "option"),
    "shot": (),
}

# The maximum number of images that one file may count; each becomes a row of the table.
MAX_IMAGES = 50_000_000

_LIGHTS = {
    **{light: light for light in es_grid.LIGHTS},
    **{folder: light for light, folder in es_grid.LIGHTS.items()},
}
_SETTING_NUMBER = re.compile(r"(?:param_|option_|p)?(\d+)")
_SHARED_COLUMNS = ("model", "source", "split", "shift", "severity", "level")


def read_counts(path: Path, naming: Naming) -> Sheet:
    """Return the rows that a file of counts represents, under the table's names."""
    sheet = read_sheet(path, naming, COUNT_ALIASES)
    missing = [name for name in ("model", "n", "correct") if name not in sheet.frame.columns]
    if missing:
        hint = f" Name the model with {option('model', 'NAME')}." if "model" in missing else ""
        raise SoritesError(
            f"{sheet.file}: counts need the columns model, n and correct; {', '.join(missing)} missing.{hint}"
        )
    rows = sheet.frame.to_dicts()
    total = 0
    for index, row in enumerate(rows):
        total += _count(sheet, index, "n", row["n"])
        if total > MAX_IMAGES:
            raise sheet.wrong(
                index,
                "n",
                f"expected counts of at most {MAX_IMAGES:,} images in a file, got {total:,} up to here",
            )
    parts = [_rows(sheet, index, row) for index, row in enumerate(rows)]
    return Sheet(sheet.file, pl.concat(parts, how="vertical_relaxed"), sheet.called)


def _rows(sheet: Sheet, index: int, row: dict[str, Any]) -> pl.DataFrame:
    """Return the rows of one setting: ``n`` made-up samples, of which the first ``correct`` are correct."""
    n, correct = (_count(sheet, index, name, row[name]) for name in ("n", "correct"))
    if correct > n:
        raise sheet.wrong(index, "correct", f"expected at most n = {n}, got {correct}")
    params = _params(sheet, index, row)
    if not row.get("model"):
        raise sheet.wrong(index, "model", "expected a model, got nothing")
    shared: dict[str, Any] = {name: row.get(name) for name in _SHARED_COLUMNS}
    shared |= {
        "shift": shared["shift"] or ("camera" if "light" in params else None),
        "source": shared["source"] or SOURCE,
    }
    key = digest(*shared.values(), json.dumps(params, sort_keys=True), size=8).hex()
    samples = pl.int_range(n, eager=True)
    constants = {
        name: pl.lit(None if value is None else str(value), pl.String) for name, value in shared.items()
    }
    ids = pl.lit(f"{COUNTED_PREFIX}{key}/") + samples.cast(pl.String).str.zfill(6)
    return pl.DataFrame({"(place)": samples}).select(
        pl.lit(row[ROW]).alias(ROW),
        sample_id=ids,
        correct=pl.col("(place)") < correct,
        params=pl.lit(json.dumps(params)),
        **constants,
    )


def _count(sheet: Sheet, index: int, name: str, value: Any) -> int:
    count = number(value)
    if (
        isinstance(count, bool)
        or not isinstance(count, int | float)
        or not 0 <= count < 2**31
        or count != int(count)
    ):
        raise sheet.wrong(index, name, f"expected a count, got {value!r}")
    return int(count)


def _params(sheet: Sheet, index: int, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params of a row: as written, or those of a setting of ImageNet-ES by light and number."""
    try:
        params = json_object(row.get("params") or "{}")
    except (ValueError, TypeError):
        raise sheet.wrong(index, "params", f"expected a JSON object, got {row['params']!r}") from None
    entries = {key.removeprefix("params."): value for key, value in row.items() if key.startswith("params.")}
    params |= {key: number(value) for key, value in entries.items() if value is not None}
    if row.get("param") is None:
        return params | ({"light": _light(sheet, index, row)} if row.get("light") else {})
    return params | dict(_es_setting(sheet, index, row))


def _light(sheet: Sheet, index: int, row: Mapping[str, Any]) -> str:
    light = str(row.get("light") or "").lower()
    if light not in _LIGHTS:
        raise sheet.wrong(index, "light", f"expected one of {', '.join(_LIGHTS)}, got {row.get('light')!r}")
    return _LIGHTS[light]


def _es_setting(sheet: Sheet, index: int, row: Mapping[str, Any]) -> Mapping[str, Any]:
    light, text = _light(sheet, index, row), str(row["param"]).strip().lower()
    if text == "auto":
        shot = {} if row.get("shot") is None else {"shot": _count(sheet, index, "shot", row["shot"])}
        return {"light": light, "mode": "auto", **shot}
    split = str(row.get("split") or "test")
    if split not in ("val", "test"):
        raise sheet.wrong(index, "split", f"numbered settings exist for val and test only, got {split!r}")
    settings, match = es_grid.manual(split, light), _SETTING_NUMBER.fullmatch(text)
    if not match or not 1 <= int(match[1]) <= len(settings):
        raise sheet.wrong(
            index,
            "param",
            f"expected auto or a setting of {split} from 1 to {len(settings)}, got {row['param']!r}",
        )
    return settings[int(match[1]) - 1]

"""Read counts of right answers, one row per model and setting, and make of each as many rows of the table as it counts.

The samples of these rows are made up, others at every setting and for every model: which pictures were right is not known, so
nothing can be paired. Accuracies, their intervals and the summaries of a camera grid follow from counts alone. Metrics that
follow a sample from one setting to another pass over made-up samples.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from sorites import es_grid
from sorites.errors import SoritesError
from sorites.pipeline.imports.cells import ROW, Sheet, read_sheet
from sorites.pipeline.imports.names import ALIASES, Naming
from sorites.pipeline.imports.rows import SOURCE, number
from sorites.reading.texts import json_object
from sorites.rng import digest
from sorites.table import COUNTED

NAMES: Mapping[str, tuple[str, ...]] = {
    **{name: ALIASES[name] for name in ("model", "shift", "severity", "source")},
    "n": ("total", "pictures", "images"),
    "correct": ("right", "hits"),
    "light": ("lamp",),
    "param": ("parameter", "setting", "option"),
    "shot": (),
}
"""The columns of a file of counts and their other names; ``light``, ``param`` and ``shot`` are ImageNet-ES's own."""

MOST = 50_000_000
"""The most pictures that one file may count: each becomes a row of the table."""

_LIGHTS = {**{light: light for light in es_grid.LIGHTS}, **{folder: light for light, folder in es_grid.LIGHTS.items()}}
_NUMBERED = re.compile(r"(?:param_|option_|p)?(\d+)")
_KEPT = ("model", "source", "split", "shift", "severity", "level")


def read_counts(path: Path, naming: Naming) -> Sheet:
    """Return the rows that a file of counts stands for, under the table's names."""
    sheet = read_sheet(path, naming, NAMES)
    lost = [name for name in ("model", "n", "correct") if name not in sheet.frame.columns]
    if lost:
        hint = " Name the model with --model NAME." if "model" in lost else ""
        raise SoritesError(f"{sheet.file}: counts need the columns model, n and correct; {', '.join(lost)} missing.{hint}")
    rows = sheet.frame.to_dicts()
    total = 0
    for index, row in enumerate(rows):
        total += _count(sheet, index, "n", row["n"])
        if total > MOST:
            raise sheet.wrong(index, "n", f"wanted counts of at most {MOST:,} pictures in a file, got {total:,} up to here")
    parts = [_rows(sheet, index, row) for index, row in enumerate(rows)]
    return Sheet(sheet.file, pl.concat(parts, how="vertical_relaxed"), sheet.called)


def _rows(sheet: Sheet, index: int, row: dict[str, Any]) -> pl.DataFrame:
    """Return the rows of one setting: ``n`` made-up samples, the first ``correct`` of them right."""
    n, right = (_count(sheet, index, name, row[name]) for name in ("n", "correct"))
    if right > n:
        raise sheet.wrong(index, "correct", f"wanted at most n = {n}, got {right}")
    params = _params(sheet, index, row)
    if not row.get("model"):
        raise sheet.wrong(index, "model", "wanted a model, got nothing")
    kept: dict[str, Any] = {name: row.get(name) for name in _KEPT}
    kept |= {"shift": kept["shift"] or ("camera" if "light" in params else None), "source": kept["source"] or SOURCE}
    key = digest(*kept.values(), json.dumps(params, sort_keys=True), size=8).hex()
    samples = pl.int_range(n, eager=True)
    told = {name: pl.lit(None if value is None else str(value), pl.String) for name, value in kept.items()}
    ids = pl.lit(f"{COUNTED}{key}/") + samples.cast(pl.String).str.zfill(6)
    return pl.DataFrame({"(place)": samples}).select(
        pl.lit(row[ROW]).alias(ROW), sample_id=ids, correct=pl.col("(place)") < right, params=pl.lit(json.dumps(params)), **told
    )  # fmt: skip


def _count(sheet: Sheet, index: int, name: str, value: Any) -> int:
    found = number(value)
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < 2**31 or found != int(found):
        raise sheet.wrong(index, name, f"wanted a count, got {value!r}")
    return int(found)


def _params(sheet: Sheet, index: int, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params of a row: as they are written, or those of a setting of ImageNet-ES by light and number."""
    try:
        params = json_object(row.get("params") or "{}")
    except (ValueError, TypeError):
        raise sheet.wrong(index, "params", f"wanted a JSON object, got {row['params']!r}") from None
    entries = {key.removeprefix("params."): value for key, value in row.items() if key.startswith("params.")}
    params |= {key: number(value) for key, value in entries.items() if value is not None}
    if row.get("param") is None:
        return params | ({"light": _light(sheet, index, row)} if row.get("light") else {})
    return params | dict(_published(sheet, index, row))


def _light(sheet: Sheet, index: int, row: Mapping[str, Any]) -> str:
    light = str(row.get("light") or "").lower()
    if light not in _LIGHTS:
        raise sheet.wrong(index, "light", f"wanted one of {', '.join(_LIGHTS)}, got {row.get('light')!r}")
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
        raise sheet.wrong(index, "param", f"wanted auto or a setting of {split} from 1 to {len(settings)}, got {row['param']!r}")
    return settings[int(found[1]) - 1]

"""Hashes of numbers, tables, files and texts: equal where every bit is, short enough to be read in a list."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from PIL import Image as Pillow

Entry = tuple[str, str]
"""A name, with slashes between its parts, and a hash."""
DIGITS = 10
"""Significant digits of a metric that count: the order in which polars adds numbers up shows beyond them."""
KEY = ("image_id", "model", "output", "scorer", "probe", "severity", "params")
"""What the rows of a run's table are sorted by."""


def of_bytes(data: bytes) -> str:
    """The first half of a SHA-256, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()[:32]


def of_array(values: Any) -> str:
    """Type, shape and every bit of an array; None is a value too."""
    if values is None:
        return "none"
    array = np.ascontiguousarray(values)
    return of_bytes(f"{array.dtype} {array.shape} ".encode() + array.tobytes())


def of_plain(value: Any) -> str:
    """Numbers, texts, lists and mappings, to the last digit; the order of keys and sets does not matter."""
    return of_bytes(json.dumps(value, sort_keys=True, default=_plain).encode())


def _plain(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"no hash of a {type(value).__name__} without its address in it")


def of_answer(frame: pl.DataFrame) -> str:
    """A metric's answer: names, types and rows, floats rounded to ten significant digits."""
    rows = [[_rounded(cell) for cell in row] for row in frame.iter_rows()]
    return of_plain([frame.columns, [str(kind) for kind in frame.dtypes], rows])


def _rounded(cell: Any) -> Any:
    if isinstance(cell, float) and math.isfinite(cell):
        return f"{cell:.{DIGITS - 1}e}".replace("-0.000000000e", "0.000000000e")
    if isinstance(cell, list):
        return [_rounded(part) for part in cell]
    return {key: _rounded(part) for key, part in cell.items()} if isinstance(cell, dict) else cell


def of_columns(frame: pl.DataFrame) -> Iterator[Entry]:
    """One hash for each column, of its type and its values in the order of the rows."""
    for name in frame.columns:
        yield name, of_plain([str(frame[name].dtype), frame[name].to_list()])


def of_table(table: pl.DataFrame) -> Iterator[Entry]:
    """A run's table by column, rows in the order of their key, without its id; degrees apart by measure.

    What an error says may be worded anew, so here it counts only that there is one.
    """
    rows = table.drop("run_id").sort(KEY, nulls_last=True).with_columns(error=pl.col("error").is_not_null())
    yield from of_columns(rows.drop("degrees"))
    told = rows.select("image_id", "degrees").unique("image_id", maintain_order=True).explode("degrees").unnest("degrees")
    for (measure,), some in told.drop_nulls("measure").group_by("measure", maintain_order=True):
        yield f"degrees/{measure}", of_plain([some["image_id"].to_list(), some["value"].to_list()])


def of_folder(folder: Path, *passed_over: str) -> Iterator[Entry]:
    """Every file below a folder by what it holds, except those named."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        if path.name not in passed_over and path.suffix not in (".lock", ".tmp"):
            name = path.relative_to(folder).as_posix()
            yield from ((f"{name}/{part}".rstrip("/"), digest) for part, digest in of_file(path))


def of_file(path: Path) -> Iterator[Entry]:
    """A picture by its pixels, a parquet file by column, tensors one by one, and any other by its bytes."""
    if path.suffix in (".png", ".jpg", ".jpeg"):
        with Pillow.open(path) as picture:
            yield "", of_array(np.asarray(picture))
    elif path.suffix == ".parquet":
        yield from of_columns(pl.read_parquet(path))
    elif path.suffix == ".safetensors":
        yield from _of_tensors(path)
    elif path.suffix == ".npy":
        yield "", of_array(np.load(path))
    else:
        yield "", of_bytes(path.read_bytes())


def _of_tensors(path: Path) -> Iterator[Entry]:
    from safetensors import safe_open

    with safe_open(path, "numpy") as held:
        for name in sorted(held.keys()):
            yield name, of_array(held.get_tensor(name))
        for name, text in sorted((held.metadata() or {}).items()):
            try:
                told = json.loads(text)
            except ValueError:
                told = text
            for key, value in told.items() if isinstance(told, dict) else [("", told)]:
                yield f"({name})/{key}".rstrip("/"), of_plain(value)


def without_ids(text: str) -> str:
    """Text without the ids of runs, which follow from the version of the package too."""
    return re.sub(r"(?<![.\w])[0-9a-f]{16}(?!\w)", "ID", text)


def of_report(path: Path, name: str) -> Iterator[Entry]:
    """A page section by section: the numbers that charts draw and tables hold, the pictures shown, and then every word."""
    page = without_ids(path.read_text(encoding="utf-8"))
    for section in re.split(r"(?=<section\b)", page.partition("</main>")[0])[1:]:
        called = next(iter(re.findall(r'id="([^"]*)"', section)), "unnamed")
        charts = [json.loads(text) for text in re.findall(r'<script type="application/json">(.*?)</script>', section, re.S)]
        yield f"reports/{name}/{called}/charts", of_plain([_numbers(chart.get("data")) for chart in charts])
        cells = [re.findall(r"\d+(?:\.\d+)?", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", section, re.S)]
        yield f"reports/{name}/{called}/tables", of_plain(cells)
        yield f"reports/{name}/{called}/pictures", of_plain(re.findall(r"base64,([^\"']*)", section))
        yield f"words/runs/{name}/report/{called}", of_plain(section)


def _numbers(thing: Any) -> list[float]:
    """All numbers in a chart's data, in their order; its words and colours are left out."""
    if isinstance(thing, Mapping):
        return [value for part in thing.values() for value in _numbers(part)]
    if isinstance(thing, list):
        return [value for part in thing for value in _numbers(part)]
    return [] if isinstance(thing, bool | str) or thing is None else [thing]

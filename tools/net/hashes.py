"""Hashes of numbers, tables, files and texts: equal where every bit is, short enough to be read in a list."""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from PIL import Image as Pillow

from tools.net.renames import now

Entry = tuple[str, "str | list[str]"]
"""A name, with slashes between its parts, and a hash; or a list of words, which is kept as it is so
that words in it can be renamed.
"""
DIGITS = 10
"""Significant digits of a metric that count: the order in which polars adds numbers up shows beyond them."""
KEY = ("image_id", "model", "output", "scorer", "probe", "severity", "params")
"""What the rows of a run's table are sorted by."""
VALUES = "(values)"
"""The last part of the name of a list of the distinct texts of a column, in the order in which they
first occur.
"""
SHARD, SEAL = re.compile(r"\.[0-9a-f]{32}(?=\.\w+$)"), re.compile("[0-9a-f]{32}")
"""The digest in the name of a file, and at the end of a JSON file."""
MOST_VALUES, LONGEST_VALUE = 40, 60
"""A column with more distinct texts than this, or with longer ones, is hashed as a whole."""


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


def of_leaves(value: Any, name: str = "") -> Iterator[Entry]:
    """One entry for each leaf of a mapping, so that a renamed key is a renamed entry.

    A list of mappings is taken by column.
    """
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping) and value:
        for key, part in value.items():
            yield from of_leaves(part, f"{name}/{key}".lstrip("/"))
    elif isinstance(value, list | tuple) and _has_mappings(value):
        yield from _of_records(value, name)
    elif isinstance(value, list | tuple) and any(isinstance(part, str) for part in value):
        yield from _of_texts(list(value), name)
    elif isinstance(value, str):
        yield from _of_texts([value], name)
    else:
        yield name, of_plain(value)


def _has_mappings(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(_has_mappings(part) for part in value)
    return isinstance(value, Mapping)


def _of_records(rows: list[Any] | tuple[Any, ...], name: str) -> Iterator[Entry]:
    """Mappings column by column with the rows that have the key; of lists of mappings first the lengths."""
    if any(isinstance(row, list | tuple) for row in rows):
        yield (
            f"{name}/(lengths)",
            of_plain([len(row) if isinstance(row, list | tuple) else None for row in rows]),
        )
        yield from of_leaves(
            [part for row in rows for part in (row if isinstance(row, list | tuple) else [row])], name
        )
        return
    plain = [row for row in rows if not isinstance(row, Mapping)]
    if plain:
        yield f"{name}/(plain)", of_plain([None if isinstance(row, Mapping) else row for row in rows])
    columns: dict[str, list[tuple[int, Any]]] = {}
    for place, row in enumerate(rows):
        for key, part in row.items() if isinstance(row, Mapping) else ():
            columns.setdefault(str(key), []).append((place, part))
    for key, cells in columns.items():
        if len(cells) < len(rows):
            yield f"{name}/{key}/(rows)", of_plain([place for place, _ in cells])
        yield from of_leaves([part for _, part in cells], f"{name}/{key}")


def _of_texts(cells: list[Any], name: str) -> Iterator[Entry]:
    """Few distinct texts are a list of them and the hash of their places; texts that are JSON
    objects are read.
    """
    texts = list(dict.fromkeys(cell for cell in cells if isinstance(cell, str)))
    if texts and all(text.startswith("{") and text.endswith("}") for text in texts):
        yield from of_leaves([json.loads(cell) if isinstance(cell, str) else cell for cell in cells], name)
    elif len(texts) > MOST_VALUES or any(len(text) > LONGEST_VALUE for text in texts):
        yield name, of_plain(cells)
    else:
        places = {text: place for place, text in enumerate(texts)}
        yield name, of_plain([f"text {places[cell]}" if isinstance(cell, str) else cell for cell in cells])
        yield f"{name}/{VALUES}", texts


def of_answer(frame: pl.DataFrame, name: str = "") -> Iterator[Entry]:
    """A metric's answer by column: types and values, floats rounded to ten significant digits; and
    the list of columns.
    """
    yield f"{name}/(columns)", list(frame.columns)
    for column in frame.columns:
        yield f"{name}/{column}/(type)", str(frame[column].dtype)
        yield from of_leaves([_rounded(cell) for cell in frame[column].to_list()], f"{name}/{column}")


def of_csv(text: str, name: str) -> Iterator[Entry]:
    """A table printed as CSV, by column and as text: every digit counts."""
    if not text.strip():
        yield name, "empty"
        return
    frame = pl.read_csv(io.StringIO(text), infer_schema=False)
    yield f"{name}/(columns)", list(frame.columns)
    for column in frame.columns:
        yield from of_leaves(frame[column].to_list(), f"{name}/{column}")


def _rounded(cell: Any) -> Any:
    if isinstance(cell, float) and math.isfinite(cell):
        return f"{cell:.{DIGITS - 1}e}".replace("-0.000000000e", "0.000000000e")
    if isinstance(cell, list):
        return [_rounded(part) for part in cell]
    return {key: _rounded(part) for key, part in cell.items()} if isinstance(cell, dict) else cell


def of_columns(frame: pl.DataFrame) -> Iterator[Entry]:
    """One hash for each column, of its type and its values in the order of the rows."""
    yield "(columns)", sorted(frame.columns)
    for name in frame.columns:
        yield f"{name}/(type)", re.sub(r"'\w+': ", "", str(frame[name].dtype))
        yield from of_leaves(frame[name].to_list(), name)


def of_table(table: pl.DataFrame) -> Iterator[Entry]:
    """A run's table by column, rows in the order of their key, without its id; degrees apart by measure.

    What an error says may be worded anew, so here it counts only that there is one.
    """
    column = now("columns", *table.columns)
    run, error, image, degrees = map(column, ("run_id", "error", "image_id", "degrees"))
    rows = table.drop(run).sort([column(name) for name in KEY], nulls_last=True)
    rows = rows.with_columns(pl.col(error).is_not_null().alias(error))
    yield from of_columns(rows.drop(degrees))
    yield "degrees/(type)", re.sub(r"'\w+': ", "", str(rows[degrees].dtype))
    told = rows.select(image, degrees).unique(image, maintain_order=True).explode(degrees).unnest(degrees)
    measure, value = told.columns[1:]
    for (name,), some in told.drop_nulls(measure).group_by(measure, maintain_order=True):
        yield f"degrees/{name}", of_plain([some[image].to_list(), some[value].to_list()])


def of_folder(folder: Path, *passed_over: str) -> Iterator[Entry]:
    """Every file below a folder by what it holds, except those named."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        if path.name not in passed_over and path.suffix not in (".lock", ".tmp"):
            name = SHARD.sub("", path.relative_to(folder).as_posix())
            yield from ((f"{name}/{part}".rstrip("/"), digest) for part, digest in of_file(path))


def of_file(path: Path) -> Iterator[Entry]:
    """An image by its pixels, a parquet file by column, JSON and TOML by key, tensors one by one,
    and any other by its bytes.
    """
    if path.suffix.lower() in (".png", ".jpg", ".jpeg"):
        with Pillow.open(path) as image:
            yield "", of_array(np.asarray(image))
    elif path.suffix == ".parquet":
        yield from of_columns(pl.read_parquet(path))
    elif path.suffix == ".safetensors":
        yield from _of_tensors(path)
    elif path.suffix == ".npy":
        yield "", of_array(np.load(path))
    elif path.suffix == ".json":
        yield from of_leaves(_unsealed(path))
    elif path.suffix == ".jsonl":
        yield from of_leaves([json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()])
    elif path.suffix == ".toml":
        yield from of_leaves(tomllib.loads(path.read_text(encoding="utf-8")))
    elif path.suffix == ".csv":
        yield from ((name.lstrip("/"), held) for name, held in of_csv(path.read_text(encoding="utf-8"), ""))
    else:
        yield "", of_bytes(path.read_bytes())


def _unsealed(path: Path) -> Any:
    """The content of a JSON file without the digest at its end; the record of fits by model."""
    held = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(held, dict) and SEAL.fullmatch(str(held.get("digest"))):
        del held["digest"]
    return held["models"] if path.name == "fitted.json" and "models" in held else held


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
            yield from of_leaves(told, f"({name})")


def without_ids(text: str) -> str:
    """Text without the ids of runs, which follow from the version of the package too."""
    return re.sub(r"(?<![.\w])[0-9a-f]{16}(?!\w)", "ID", text)


def of_report(path: Path, name: str) -> Iterator[Entry]:
    """A page section by section: the numbers that charts draw and tables hold, the images shown,
    and then every word.
    """
    page = without_ids(path.read_text(encoding="utf-8"))
    for section in re.split(r"(?=<section\b)", page.partition("</main>")[0])[1:]:
        called = next(iter(re.findall(r'id="([^"]*)"', section)), "unnamed")
        charts = [
            json.loads(text)
            for text in re.findall(r'<script type="application/json">(.*?)</script>', section, re.S)
        ]
        yield f"reports/{name}/{called}/charts", of_plain([_numbers(chart.get("data")) for chart in charts])
        cells = [
            re.findall(r"\d+(?:\.\d+)?", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", section, re.S)
        ]
        yield f"reports/{name}/{called}/tables", of_plain(cells)
        yield f"reports/{name}/{called}/images", of_plain(re.findall(r"base64,([^\"']*)", section))
        yield f"words/runs/{name}/report/{called}", of_plain(section)


def _numbers(obj: Any) -> list[float]:
    """All numbers in a chart's data, in their order; its words and colours are left out."""
    if isinstance(obj, Mapping):
        return [value for part in obj.values() for value in _numbers(part)]
    if isinstance(obj, list):
        return [value for part in obj for value in _numbers(part)]
    return [] if isinstance(obj, bool | str) or obj is None else [obj]

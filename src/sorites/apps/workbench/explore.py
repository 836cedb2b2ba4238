"""What the explorer shows: columns to filter by, pages of images, and the trajectory of a sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.analysis.features import manifold_map, neighbour_map, prepared, principal_map, read_features
from sorites.apps.workbench.library import Opened, RunEntry
from sorites.apps.workbench.query import Query
from sorites.core import CLEAN
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.labels import class_name
from sorites.core.messages import option
from sorites.metrics.detection.at_confidence import CONFIDENCE
from sorites.metrics.detection.failure import objects

# Images per answer, and values of a column that are listed.
MAX_PAGE, MAX_VALUES = 500, 300
# The most images on each kind of map; t-SNE takes about a second for 300, UMAP several for 2000.
MAPS = {"components": 2000, "neighbours": 300, "umap": 2000}
# Columns that are not offered as filters, because they are ids or are shown under another name.
_HIDDEN = ("image_id", "params", "label", "known")
_ANSWER = ("pred", "answer", "conf", "correct", "broken", "error")


def columns(opened: Opened) -> list[dict[str, Any]]:
    """Return the columns that images can be filtered and sorted by, with their values or range."""
    found = []
    for name, kind in opened.images.schema.items():
        if name in _HIDDEN or name.startswith("pred "):
            continue
        values = opened.images[name]
        if values.null_count() == len(values):
            continue
        about: dict[str, Any] = {"name": name, "missing": values.null_count()}
        if kind == pl.Boolean:
            true = int(values.sum())
            false = len(values) - about["missing"] - true
            found.append({**about, "kind": "bool", "true": true, "false": false})
        elif kind.is_numeric():
            finite = values.cast(pl.Float64).filter(values.is_not_null()).drop_nans()
            found.append(
                {**about, "kind": "number", "low": _plain(finite.min()), "high": _plain(finite.max())}
            )
        else:
            counts = values.cast(pl.String).drop_nulls().value_counts(sort=True).head(MAX_VALUES + 1)
            listed = counts.height <= MAX_VALUES
            about |= {"kind": "choice", "values": counts.rows()} if listed else {"kind": "text"}
            found.append(about)
    return found


def page(opened: Opened, query: Query, start: int, count: int, shown: Sequence[str] = ()) -> dict[str, Any]:
    """Return some of the images that match a query, and how many there are.

    Args:
        opened: The run.
        query: The query.
        start: The index of the first image in the result.
        count: The number of images.
        shown: Further columns to return.

    Raises:
        SoritesError: A column does not exist, or too many images are asked for.
    """
    if not (start >= 0 and 0 < count <= MAX_PAGE):
        raise SoritesError(f"expected 1 to {MAX_PAGE} images from index 0 on")
    rows = opened.rows(query)
    part = rows.slice(start, count)
    names = ["sample_id", "shift", "severity", "params", "class", *_of_models(opened.images)]
    names = list(dict.fromkeys([*names, *(name for name in shown if name in opened.images.columns)]))
    chosen = opened.images.select(names)[part]
    clean = opened.clean[part]
    lines = [
        {"row": row, "clean": before, **_jsonable(line)}
        for row, before, line in zip(part, clean, chosen.to_dicts(), strict=True)
    ]
    return {"total": len(rows), "start": start, "images": lines}


def _of_models(images: pl.DataFrame) -> list[str]:
    return [name for name in images.columns if name.split(" ")[0] in (*_ANSWER, "boxes") and " " in name]


def embedding(entry: RunEntry, query: Query, model: str, kind: str = "components") -> dict[str, Any]:
    """Return a map of the images that match a query by the features that a model has of them.

    Args:
        entry: The run.
        query: The query; of more images than ``MAPS`` has for the kind, evenly spaced ones are shown.
        model: The model.
        kind: Principal components (``components``), t-SNE (``neighbours``, which needs scikit-learn) or UMAP
            (``umap``, which needs umap-learn).

    Returns:
        ``points`` (row, image id, x, y, whether the model is correct), ``total`` (the images that match) and
            ``share``, the share of the variance along each axis (None for t-SNE and UMAP).

    Raises:
        SoritesError: The run kept no features of the model, or the map cannot be made.
    """
    opened = entry.opened()
    rows = opened.rows(query)
    if kind not in MAPS:
        raise UnknownName("kind of map", kind, MAPS, f"There are {', '.join(MAPS)}.")
    limit = MAPS[kind]
    shown = rows.gather(np.unique(np.linspace(0, max(len(rows) - 1, 0), min(limit, len(rows))).astype(int)))
    ids = opened.images["image_id"][shown].to_list()
    vectors = read_features(entry.folder, model, ids)
    if not vectors:
        raise SoritesError(
            f"the run kept no features of {model} for these images; repeat it with"
            f" {option('keep_features', True)} (a model without features has none)"
        )
    kept = [(row, name) for row, name in zip(shown.to_list(), ids, strict=True) if name in vectors]
    places, share = _placed(np.stack([vectors[name] for _, name in kept]), kind)
    column = f"correct {model}"
    correct = opened.images[column][[row for row, _ in kept]] if column in opened.images.columns else None
    points = [
        [row, name, round(float(x), 5), round(float(y), 5), None if correct is None else correct[i]]
        for i, ((row, name), (x, y)) in enumerate(zip(kept, places, strict=True))
    ]
    return {"points": points, "total": len(rows), "share": share}


def _placed(features: NDArray[np.floating[Any]], kind: str) -> tuple[Any, list[float] | None]:
    """Return two coordinates for each image, and the share of the variance along them."""
    if kind == "components":
        places, share = principal_map(prepared(features))
        return places, share.tolist()
    if kind == "umap":
        return manifold_map(prepared(features)), None
    made = neighbour_map(prepared(features))
    if made is None:
        raise SoritesError("t-SNE needs at least 10 images and scikit-learn: pip install scikit-learn")
    return made, None


def trajectory(entry: RunEntry, row: int) -> dict[str, Any]:
    """Return all images of the sample of a row, with the answers and top five classes of each model, the OOD
    scores and the boxes, as the table has them.
    """
    opened = entry.opened()
    if not 0 <= row < opened.images.height:
        raise SoritesError(f"the run has {opened.images.height} images, so no row {row}")
    sample = opened.images.row(row, named=True)
    same = (pl.col("sample_id") == sample["sample_id"]) & (pl.col("source") == sample["source"])
    places = opened.images.with_row_index("row").filter(same).select("row", "image_id")
    of_sample = opened.view.table.filter(same & ~pl.col("probe").fill_null(False)).collect(engine="streaming")
    order = [pl.col("shift") != CLEAN, "shift", "severity", "row", "model", "output", "scorer"]
    lines = of_sample.join(places, on="image_id").sort(order)
    images: dict[int, dict[str, Any]] = {}
    for line in lines.iter_rows(named=True):
        words = opened.words(line["shift"], line["severity"])
        image = images.setdefault(line["row"], {**_image_of(line), "words": words})
        _add_answer(opened, image, line)
    if any(image["truth"] is not None for image in images.values()):
        _mark_objects(images, lines)
    about = {name: sample[name] for name in ("source", "class", "image_id")}
    about |= {"sample": sample["sample_id"], "row": row}
    return {**about, "images": list(images.values())}


def _mark_objects(images: dict[int, dict[str, Any]], lines: pl.DataFrame) -> None:
    """Add the number of objects that each model finds, and the objects that none finds (``lost``)."""
    rows = dict(lines.select("image_id", "row").unique().iter_rows())
    found = objects(lines.drop("row").lazy(), CONFIDENCE).select("image_id", "model", "object", "correct")
    seen: dict[int, set[int]] = {}
    for image_id, model, place, correct in found.iter_rows():
        row = rows[image_id]
        count = images[row]["models"][model].setdefault("objects", [0, 0])
        count[0] += bool(correct)
        count[1] += 1
        seen.setdefault(row, set()).update([place] if correct else [])
    for row, image in images.items():
        image["lost"] = [
            place for place in range(len(image["truth"] or ())) if place not in seen.get(row, set())
        ]


def _image_of(line: dict[str, Any]) -> dict[str, Any]:
    about = {name: line[name] for name in ("row", "shift", "severity", "params", "level", "valid")}
    attrs = {attr["key"]: attr["value"] for attr in line["attrs"] or ()}
    degrees = {entry["measure"]: entry["value"] for entry in line["degrees"] or ()}
    return {**about, "attrs": attrs, "degrees": degrees, "truth": line["ground_truth"], "models": {}}


def _add_answer(opened: Opened, image: dict[str, Any], line: dict[str, Any]) -> None:
    answer = image["models"].setdefault(line["model"], {"scores": {}})
    if line["output"] == "ood":
        answer["scores"][line["scorer"]] = _plain(line["score"])
        return
    answer.update(answer_of(line, opened.view.labels))


def answer_of(line: dict[str, Any], labels: Any) -> dict[str, Any]:
    """Return the answer of a model in a row of the table, with names of classes."""
    return {
        "answer": None if line["pred"] is None else class_name(labels, line["pred"]),
        "conf": _plain(line["conf"]),
        "correct": line["correct"],
        "top5": [class_name(labels, label) for label in line["top5"] or ()],
        "boxes": [{**box, "name": class_name(labels, box["label"])} for box in line["boxes"] or ()],
        "error": line["error"],
    }


def _plain(value: Any) -> Any:
    """Return a number that JSON can hold; infinite ones as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def _jsonable(line: dict[str, Any]) -> dict[str, Any]:
    return {name: _plain(value) for name, value in line.items()}

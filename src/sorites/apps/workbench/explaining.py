"""Explanation maps of the images of a run: those that ``sorites explain`` would store."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from sorites.apps.workbench.library import RunEntry
from sorites.apps.workbench.turning import png_uri
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.labels import class_name
from sorites.evaluation.storage.explanations import Method
from sorites.training.explain.run import explain_row

# Masks of RISE: fewer than for a report, because someone waits.
MASKS = 200
MAX_KEPT = 300
WORDS: dict[Method, str] = {"gradcam": "Grad-CAM", "rise": f"RISE, {MASKS} masks", "occlusion": "occlusion"}
Key = tuple[str, tuple[int, int], int, str]


@dataclass
class Explainer:
    """Makes maps one at a time, and keeps the last ones."""

    _kept: OrderedDict[Key, dict[str, Any]] = field(default_factory=OrderedDict)
    _working: threading.Lock = field(default_factory=threading.Lock)

    def explained(self, entry: RunEntry, row: int, model: str) -> dict[str, Any]:
        """Return the map of an image as a PNG, with the method, the class, and whether nothing stands out.

        Args:
            entry: The run.
            row: The row of the image.
            model: A classifier, whose prediction is explained, or a detector, whose surest box is.

        Raises:
            SoritesError: There is nothing to explain, or the model or image is not available.
        """
        opened = entry.opened()
        key = (entry.key, opened.state, row, model)
        with self._working:
            if key not in self._kept:
                self._kept[key] = _explained(entry, row, model)
                while len(self._kept) > MAX_KEPT:
                    self._kept.popitem(last=False)
            return self._kept[key]


def _explained(entry: RunEntry, row: int, model: str) -> dict[str, Any]:
    plan, opened, image = entry.plan(), entry.opened(), entry.image(row)
    if model not in plan.models:
        raise UnknownName("model of this run", model, plan.models)
    line = _line(entry, opened.images["image_id"][row], model)
    method, drawn, facts = explain_row(plan, line, image, MASKS)
    words = f"D-{WORDS[method]}" if "box" in line else WORDS[method]
    about = {"method": words, "class": class_name(opened.view.labels, line["pred"])}
    return {**about, "empty": facts["empty"], "image": png_uri(drawn["cam"])}


def _line(entry: RunEntry, image_id: str, model: str) -> dict[str, Any]:
    """Return the row of the table to explain; of a detector, that of its surest box."""
    rows = entry.opened().view.table.filter(
        (pl.col("image_id") == image_id)
        & (pl.col("model") == model)
        & pl.col("output").is_in(["label", "boxes"])
    )
    lines = rows.head(1).collect(engine="streaming").to_dicts()
    if not lines or lines[0]["error"] is not None:
        raise SoritesError(f"{model} has no answer for this image")
    line: dict[str, Any] = lines[0]
    if line["output"] == "label":
        return line
    if not line["boxes"]:
        raise SoritesError(f"{model} found no box to explain")
    surest = max(line["boxes"], key=lambda box: box["conf"])
    corners = tuple(float(surest[name]) for name in ("x0", "y0", "x1", "y1"))
    return {**line, "box": corners, "label": surest["label"], "pred": surest["label"]}

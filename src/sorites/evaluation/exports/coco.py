"""Write the boxes of a run as COCO files: results per model and setting, and annotations.

``annotations.json`` has the ground truth of the clean images; a setting whose boxes have moved, or that has
other images, has a file of its own. ``sorites.json`` lists which file belongs to which model and setting,
and the images without predictions, so that the folder can be imported again.

COCO's ``score`` is the confidence. Two further keys, which other readers ignore, are the OOD scores of
a box by scorer (``ood_scores``), and whether the model has the class of an object (``known``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from sorites.core import CLEAN
from sorites.core.errors import Notice, SoritesError, tell
from sorites.core.labels import Labels, coco, coco_category_ids
from sorites.core.progress import Bar
from sorites.core.table import read
from sorites.evaluation.imports.coco import INDEX, SCORES
from sorites.evaluation.plan import Plan
from sorites.evaluation.reopen import class_names
from sorites.evaluation.storage.schema import RunRecord
from sorites.evaluation.storage.shards import slug
from sorites.io.files import write_bytes

Cell = dict[str, Any]
SETTING = ("model", "shift", "severity", "params")
COLUMNS = (
    *SETTING, "level", "family", "source", "sample_id", "ground_truth", "boxes", "error",
    "output", "scorer", "score", "known",
)  # fmt: skip
VERSION = 1


@dataclass(frozen=True)
class Exporting:
    """What a writer needs.

    Attributes:
        folder: The run folder.
        record: Its record.
        models: The models to export; empty for all.
        out: An empty folder to write to.
        bar: Creates a progress bar.
        plan: Returns the plan, with which images can be recreated.
    """

    folder: Path
    record: RunRecord
    models: Sequence[str]
    out: Path
    bar: Bar | None
    plan: Callable[[], Plan]


def write_coco(task: Exporting) -> None:
    """Write the boxes of a run; rows between the settings (probes) and rejected images are left out."""
    folder, record, out, bar = task.folder, task.record, task.out, task.bar
    rows = _rows(folder, task.models)
    samples = rows["sample_id"].unique().sort().to_list()
    names = class_names(record)
    if names is None:
        raise SoritesError(f"the classes of {folder} are not known: {record.suite.labels} has changed since")
    content = _Content(
        out, names, {name: i for i, name in enumerate(samples, 1)}, _sizes(task.plan(), samples, bar)
    )
    groups = rows.partition_by(SETTING, maintain_order=True)
    tick = bar("exporting", len(groups)) if bar else lambda n: None
    entries = []
    for group in groups:
        entries.append(content.write_setting(group))
        tick(1)
    listed = {"format": "coco", "version": VERSION, "run_id": record.run_id, "results": entries}
    write_bytes(json.dumps(listed, indent=1, sort_keys=True).encode(), out / INDEX)
    if content.without_score:
        tell(
            Notice(
                f"{content.without_score} boxes without a confidence were left out.",
                code="boxes_changed",
                count=content.without_score,
            )
        )


def _rows(folder: Path, models: Sequence[str]) -> pl.DataFrame:
    of_detector = pl.col("boxes").is_not_null() | pl.col("ground_truth").is_not_null()
    boxes = (pl.col("output") == "boxes") | ((pl.col("output") == "ood") & of_detector)
    used = boxes & ~pl.col("probe").fill_null(False) & pl.col("valid").fill_null(True)
    rows = read(folder).filter(used & (pl.col("model").is_in(list(models)) if models else pl.lit(True)))
    loaded = rows.select(COLUMNS).sort(*SETTING, "sample_id", "scorer").collect(engine="streaming")
    detectors = loaded.filter(pl.col("output") == "boxes").select("model").unique()
    loaded = loaded.join(detectors, on="model", how="semi", maintain_order="left")
    if not loaded.height:
        raise SoritesError(f"{folder} has no rows of a detector; the COCO format holds boxes")
    if loaded["source"].n_unique() > 1:
        found = ", ".join(sorted(loaded["source"].unique()))
        raise SoritesError(f"{folder} has samples of several sources ({found}), and a COCO file holds one")
    # The clean images first, so that annotations.json is theirs.
    return loaded.sort(pl.col("shift") != CLEAN, maintain_order=True)


def _sizes(plan: Plan, samples: Sequence[str], bar: Bar | None) -> dict[str, tuple[int, int]]:
    """Return width and height of the images, where the run can recreate them."""
    sizes: dict[str, tuple[int, int]] = {}
    tick = bar("reading sizes", len(samples)) if bar else lambda n: None
    for name in samples:
        try:
            height, width = plan.framed(name).shape[:2]
        except (SoritesError, KeyError):
            continue
        finally:
            tick(1)
        sizes[name] = (width, height)
    if len(sizes) < len(samples):
        missing = len(samples) - len(sizes)
        text = (
            f"{missing} of {len(samples)} images are not available: their width and height are not written."
        )
        tell(Notice(text, code="incomplete", count=missing))
    return sizes


@dataclass
class _Content:
    """Writes the files of an export, each ground truth once."""

    out: Path
    names: Labels
    image_ids: Mapping[str, int]
    sizes: Mapping[str, tuple[int, int]]
    without_score: int = 0
    _annotations: dict[str, str] = field(default_factory=dict)

    @property
    def categories(self) -> Sequence[int]:
        """The category ids of the labels: COCO's own for its classes."""
        return coco_category_ids() if self.names == coco() else range(1, len(self.names) + 1)

    def write_setting(self, rows: pl.DataFrame) -> Cell:
        """Write one model at one setting, and return its entry in the list of files."""
        first = rows.row(0, named=True)
        setting = first["shift"] if first["severity"] is None else f"{first['shift']}-{first['severity']:g}"
        if first["shift"] == CLEAN:
            setting = CLEAN
        elif first["params"] not in (None, "{}"):
            setting = f"{setting} {first['params']}"
        file = Path("results") / slug(first["model"]) / f"{slug(setting)}.json"
        columns = ("sample_id", "ground_truth", "boxes", "error", "known", "scorer", "score")
        records = rows.filter(pl.col("output") == "boxes").select(columns).to_dicts()
        scored = rows.filter(pl.col("output") == "ood").select(columns).to_dicts()
        scores = _box_scores(scored)
        results = [
            self._result(row["sample_id"], box, scores.get((row["sample_id"], place), {}))
            for row in records
            for place, box in enumerate(row["boxes"] or ())
        ]
        self._write(results, file)
        failed = {row["sample_id"]: _reason(row) for row in records if row["boxes"] is None or row["error"]}
        unlabelled = [row["sample_id"] for row in records if row["ground_truth"] is None]
        known = {row["sample_id"]: row["known"] for row in records if row["known"] is not None}
        about = {name: first[name] for name in ("model", "shift", "severity", "level", "family", "params")}
        listed = {"failed": failed, "unlabelled": unlabelled, "known": known, "scores": _image_scores(scored)}
        more = {key: value for key, value in listed.items() if value}
        annotations = self._annotation_file(records, setting)
        return {**about, **more, "file": file.as_posix(), "annotations": annotations}

    def _result(self, sample: str, box: Cell, scores: Mapping[str, float]) -> Cell | None:
        if box["conf"] is None or not math.isfinite(box["conf"]):
            self.without_score += 1
            return None
        return {
            "image_id": self.image_ids[sample],
            "category_id": self.categories[box["label"]],
            "bbox": _bbox(box),
            "score": box["conf"],
            **({SCORES: dict(scores)} if scores else {}),
        }

    def _annotation_file(self, records: Sequence[Cell], setting: str) -> str:
        """Return the file with these ground-truth boxes, which is written if there is none."""
        objects = [(row["sample_id"], box) for row in records for box in row["ground_truth"] or ()]
        content = {
            "info": {"description": "Written by sorites export"},
            "images": [self._image(row["sample_id"]) for row in records],
            "annotations": [self._annotation(i, *pair) for i, pair in enumerate(objects, 1)],
            "categories": [
                {"id": id_, "name": name} for id_, name in zip(self.categories, self.names.names, strict=True)
            ],
        }
        text = json.dumps(content)
        if text not in self._annotations:
            name = "annotations.json" if not self._annotations else f"annotations-{slug(setting)}.json"
            taken = set(self._annotations.values())
            name = name if name not in taken else f"annotations-{len(taken)}.json"
            write_bytes(text.encode(), self.out / name)
            self._annotations[text] = name
        return self._annotations[text]

    def _image(self, sample: str) -> Cell:
        size = dict(zip(("width", "height"), self.sizes[sample], strict=True)) if sample in self.sizes else {}
        return {"id": self.image_ids[sample], "file_name": sample, **size}

    def _annotation(self, number: int, sample: str, box: Cell) -> Cell:
        """Return a ground-truth box; one that no metric counts, because it has no area, is a crowd region."""
        bbox = _bbox(box)
        area = bbox[2] * bbox[3]
        return {
            "id": number,
            "image_id": self.image_ids[sample],
            "category_id": self.categories[box["label"]],
            "bbox": bbox,
            "area": area if box["area"] is None else box["area"],
            "iscrowd": int(bool(box["crowd"]) or not area > 0),
            **({} if box["known"] is None else {"known": box["known"]}),
        }

    def _write(self, results: Sequence[Cell | None], file: Path) -> None:
        (self.out / file).parent.mkdir(parents=True, exist_ok=True)
        written = [result for result in results if result is not None]
        write_bytes(json.dumps(written).encode(), self.out / file)


def _box_scores(scored: Sequence[Cell]) -> dict[tuple[str, int], dict[str, float]]:
    """Return the OOD scores of each box by sample, place in the list of its image, and scorer."""
    found: dict[tuple[str, int], dict[str, float]] = {}
    for row in scored:
        for place, box in enumerate(row["boxes"] or ()):
            if box["score"] is not None and math.isfinite(box["score"]):
                found.setdefault((row["sample_id"], place), {})[row["scorer"]] = box["score"]
    return found


def _image_scores(scored: Sequence[Cell]) -> dict[str, dict[str, Cell]]:
    """Return score and error of each image by scorer; images that have neither are listed without them."""
    found: dict[str, dict[str, Cell]] = {}
    for row in scored:
        values = {name: row[name] for name in ("score", "error") if row[name] is not None}
        found.setdefault(row["scorer"], {})[row["sample_id"]] = values
    return found


def _reason(row: Cell) -> str:
    return row["error"] or "no predictions"


def _bbox(box: Cell) -> list[float]:
    """Return x, y, width and height; the 32-bit corners of the table follow from them without rounding."""
    corners = [box[name] for name in ("x0", "y0", "x1", "y1")]
    if any(number is None or not math.isfinite(number) for number in corners):
        return [0.0, 0.0, 0.0, 0.0]
    x0, y0, x1, y1 = corners
    return [x0, y0, max(x1 - x0, 0.0), max(y1 - y0, 0.0)]

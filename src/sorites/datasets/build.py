"""Write the shifted images of a suite as a dataset folder: ``shift/level/class/name.png`` and a sidecar.

The sidecar describes every file to the ``folder`` source, so that evaluating the folder and evaluating on the
fly give the same table. Files are lossless unless a JPEG quality is given. If ground-truth boxes are known,
``annotations.json`` has them in COCO format for other tools.
"""

from __future__ import annotations

import functools
import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from PIL import Image as Pillow

from sorites.core import CLEAN, ImageU8, Sample, Setting
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels, coco, coco_category_ids
from sorites.core.messages import option
from sorites.core.progress import Bar
from sorites.core.rng import digest
from sorites.core.table import write
from sorites.evaluation import plan as plans
from sorites.evaluation.engines import Engine
from sorites.evaluation.images import Shot, shots
from sorites.evaluation.plan import Plan, Unit
from sorites.evaluation.reopen import refuse_attacks
from sorites.evaluation.storage.folder import DATASET_INFO, read_dataset_info, same_run
from sorites.evaluation.storage.record import Info, describe
from sorites.evaluation.storage.shards import slug
from sorites.evaluation.worker import chosen_engine, running_in, share_plan
from sorites.io.files import is_temporary, locked, sweep_temporaries, write_bytes
from sorites.io.stores import to_path
from sorites.sources import sidecar
from sorites.suites.suite import Suite, load

ANNOTATIONS = "annotations.json"
# Height and width of an image in px.
Size = tuple[int, int]


def category_ids(labels: Labels) -> dict[str, int]:
    """Return the COCO category id of each class id: COCO's own ids for its classes, otherwise 1, 2, 3, ..."""
    numbers = coco_category_ids() if labels.ids == coco().ids else range(1, len(labels) + 1)
    return dict(zip(labels.ids, numbers, strict=True))


def coco_json(records: Sequence[tuple[Mapping[str, Any], Size]], labels: Labels) -> bytes:
    """Return a COCO annotation file of images given by sidecar rows and sizes; images without known boxes are
    skipped.

    Ids of images and annotations start at 1, because 0 means unmatched in COCO's tools.
    """
    numbers = category_ids(labels)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for record, (height, width) in records:
        if record[sidecar.BOXES] is None:
            continue
        images.append({"id": len(images) + 1, "file_name": record["path"], "width": width, "height": height})
        for cell in record[sidecar.BOXES]:
            annotations.append(
                {"id": len(annotations) + 1, "image_id": len(images), **_annotation(cell, numbers)}
            )
    categories = [
        {"id": numbers[id_], "name": name} for id_, name in zip(labels.ids, labels.names, strict=True)
    ]
    return json.dumps(
        {"images": images, "annotations": annotations, "categories": categories}, indent=1
    ).encode()


def _annotation(cell: Mapping[str, Any], numbers: Mapping[str, int]) -> dict[str, Any]:
    across, down = cell["x1"] - cell["x0"], cell["y1"] - cell["y0"]
    return {
        "category_id": numbers[cell["label"]],
        "bbox": [cell["x0"], cell["y0"], across, down],
        "area": across * down if cell["area"] is None else cell["area"],
        "iscrowd": int(cell["crowd"]),
    }


LOCK = ".sorites.lock"
# Maximum characters of an image name without suffix and number (file systems allow 255 bytes); longer names
# end in a hash.
MAX_NAME = 240
_ENDS = {".png": b"IEND\xaeB`\x82", ".jpg": b"\xff\xd9"}
# Sidecar rows of the written images with their sizes, and the errors of those that could not be made.
Written = tuple[list[tuple[dict[str, Any], Size]], list[str]]


def build(
    suite: str | Path | Suite,
    out: str | Path,
    *,
    quality: int | None = None,
    engine: str | Engine = "local",
    workers: int | None = None,
    bar: Bar | None = None,
) -> tuple[int, list[str]]:
    """Write the shifted images of a suite that are missing or changed, then the sidecar.

    Args:
        suite: The suite, or its name or path.
        out: Folder of the dataset. It must be empty or contain the same dataset.
        quality: JPEG quality; PNG files by default.
        engine: The engine that runs the work.
        workers: Number of workers; all cores by default.
        bar: Progress display.

    Returns:
        The number of images, and the errors.
    """
    if quality is not None and not 1 <= quality <= 100:
        raise SoritesError(f"{option('quality', None)}: expected 1 to 100, got {quality}")
    if not isinstance(suite, Suite):
        refuse_attacks(suite)
    images_only = load(suite).model_copy(update={"models": (), "fit": None, "scorers": ()})
    plan, folder = plans.make(images_only), to_path(out)
    start, units = chosen_engine(engine, plan), plan.units()
    written: dict[Unit, Written] = {}
    with locked(folder, "dataset", LOCK):
        info = _claim(folder, plan, quality)
        tick = bar("building", plan.images()) if bar else lambda n: None
        with share_plan(folder, plan, info["run_id"]):
            for unit, result in start(
                units, functools.partial(write_unit, folder, quality=quality), workers or start.cores()
            ):
                written[unit] = result
                tick(plan.images_of(unit))
        sized = [pair for unit in units for pair in written[unit][0]]
        _write_metadata(folder, plan, sized)
    return len(sized), sorted(error for _, errors in written.values() for error in errors)


def _write_metadata(folder: Path, plan: Plan, sized: Sequence[tuple[dict[str, Any], Size]]) -> None:
    records = [record for record, _ in sized]
    _check_paths(records)
    write(sidecar.frame(records), folder / sidecar.NAME)
    if any(record[sidecar.BOXES] is not None for record in records):
        write_bytes(coco_json(sized, plan.labels), folder / ANNOTATIONS)


def _claim(folder: Path, plan: Plan, quality: int | None) -> Info:
    """Refuse a folder of another suite, seed or quality, and record what this dataset is made of."""
    info = {**describe(plan), "quality": quality}
    path = folder / DATASET_INFO
    if path.exists():
        before = read_dataset_info(folder)
        if before.get("quality") != quality or not same_run(before, info, plan):
            raise SoritesError(
                f"{folder} contains a dataset built from another suite or with other options; choose another"
                f" {option('out', 'DIR')}"
            )
        info["run_id"] = before["run_id"]
    elif any(p.name != LOCK and not is_temporary(p) for p in folder.iterdir()):
        raise SoritesError(f"{folder} is not empty; choose another {option('out', 'DIR')}")
    sweep_temporaries(folder)
    write_bytes(json.dumps(info, indent=1).encode(), path)
    return info


def _check_paths(records: Sequence[dict[str, Any]]) -> None:
    """Raise an error if two images have the same path."""
    paths: set[str] = set()
    for record in records:
        if record["path"] in paths:
            raise SoritesError(
                f"two images of {record['sample_id']} under {record['shift']} have the same level:"
                f" {record['path']}"
            )
        paths.add(record["path"])


def write_unit(folder: Path, unit: Unit, *, quality: int | None) -> Written:
    """Write the missing or changed images of one unit of work; return their records and the errors."""
    running = running_in(folder)
    plan, names = running.plan, running.once("names", lambda plan: _names(plan))
    records, errors = [], []
    for shot in shots(plan, unit):
        if shot.image is None:
            errors.append(f"{shot.sample.id}, {shot.shift} {shot.setting.canonical}: {shot.error}")
            continue
        name = names[shot.sample.id] + (".jpg" if quality else ".png")
        path = PurePosixPath(slug(shot.shift), *_setting_folders(shot.setting, shot.shift), name)
        data = _encode(shot.image, quality)
        if not _has_content(folder / path, data):
            write_bytes(data, folder / path)
        records.append((_record(plan, shot, path, quality), shot.image.shape[:2]))
    return records, errors


def _has_content(path: Path, data: bytes) -> bool:
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except FileNotFoundError:
        return False


def is_whole_image(path: Path) -> bool:
    """Return whether an image file exists and ends with its format's end marker."""
    end = _ENDS[path.suffix]
    try:
        with path.open("rb") as file:
            size = file.seek(0, io.SEEK_END)
            file.seek(max(0, size - len(end)))
            return file.read() == end
    except OSError:
        return False


def _encode(image: ImageU8, quality: int | None) -> bytes:
    buffer = io.BytesIO()
    options: dict[str, Any] = (
        {"format": "JPEG", "quality": quality} if quality else {"format": "PNG", "compress_level": 4}
    )
    Pillow.fromarray(image).save(buffer, **options)
    return buffer.getvalue()


def _setting_folders(setting: Setting, shift: str) -> list[str]:
    """Return the folders of a setting: its level or else its severity, then its parameters; none for
    clean.
    """
    if shift == CLEAN:
        return []
    line = [] if setting.severity is None else [repr(setting.severity).removesuffix(".0")]
    if setting.level is not None:
        line = [str(setting.level)]
    return line + ([slug(json.dumps(dict(setting.params), sort_keys=True))] if setting.params else [])


def _safe(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._") or "_"
    return plain if len(plain) <= MAX_NAME else f"{plain[: MAX_NAME - 17]}-{digest(name, size=8).hex()}"


def _names(plan: Plan) -> dict[str, str]:
    """Return ``class/name`` by sample id, numbering names that occur twice."""
    counts: dict[str, int] = {}
    names: dict[str, str] = {}
    for sample in sorted((s for group in plan.groups.values() for s in group), key=lambda s: s.id):
        if sample.id in names:
            continue
        place = f"{_class_folder(plan, sample)}/{_safe(PurePosixPath(sample.id).stem)}"
        counts[place] = counts.get(place, 0) + 1
        names[sample.id] = place if counts[place] == 1 else f"{place}~{counts[place]}"
    return names


def _class_folder(plan: Plan, sample: Sample) -> str:
    return "unlabelled" if sample.label is None else _safe(plan.labels.ids[sample.label])


def _record(plan: Plan, shot: Shot, path: PurePosixPath, quality: int | None) -> dict[str, Any]:
    sample, ids = shot.sample, plan.labels.ids
    image_id = plan.image_id(sample, shot.shift, shot.setting)
    return {
        "path": str(path),
        "sample_id": sample.id,
        "image_id": digest(image_id, "jpeg", quality).hex() if quality else image_id,
        "label": None if sample.label is None else ids[sample.label],
        "accept": [ids[i] for i in sorted(sample.right)],
        "split": sample.split,
        "attrs": [vars(attr) for attr in sample.attrs],
        "family": plan.family(shot.shift),
        "shift": shot.shift,
        "severity": shot.setting.severity,
        "level": shot.setting.level,
        "params": json.dumps({**shot.setting.params, **shot.chosen_params}, sort_keys=True),
        "framed": plan.is_framed(sample),
        "seed": plan.suite.seed,
        sidecar.OWN: True if shot.shift in plan.own else None,
        sidecar.BOXES: None if shot.ground_truth is None else sidecar.boxes(shot.ground_truth, ids),
    }

"""Write the shifted images of a suite as a dataset folder: ``shift/level/class/name.png`` and a sidecar.

The sidecar tells the ``folder`` source what every file is, so that evaluating the folder and
evaluating on the fly give the same table. Files are lossless unless a JPEG quality is asked for.
Where ground-truth boxes are known, ``annotations.json`` beside the sidecar holds them as COCO does, for any
other tool.
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
from sorites.evaluation.worker import chosen_engine, lent, running_in
from sorites.io.files import is_temporary, locked, sweep_temporaries, write_bytes
from sorites.io.stores import place
from sorites.sources import sidecar
from sorites.suites.suite import Suite, load

# Ground-truth boxes of a dataset as COCO's annotation file, beside its images, so that any tool for detection
# can read it.


ANNOTATIONS = "annotations.json"
# The height and the width of an image in px.
Size = tuple[int, int]


def category_ids(labels: Labels) -> dict[str, int]:
    """Return the number of each class id in the file: COCO's own for COCO's classes, otherwise 1,
    2, 3 ... in their order.
    """
    numbers = coco_category_ids() if labels.ids == coco().ids else range(1, len(labels) + 1)
    return dict(zip(labels.ids, numbers, strict=True))


def coco_json(records: Sequence[tuple[Mapping[str, Any], Size]], labels: Labels) -> bytes:
    """Return the annotation file of images given by rows of the sidecar and their sizes; a
    image whose boxes are not known is not in it. Ids of images and annotations begin with 1,
    because 0 means unmatched in COCO's tools.
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
# The most letters of an image's name, its ending and number apart; file systems take 255 bytes. A
# longer one ends in a hash.
LONGEST = 240
_ENDS = {".png": b"IEND\xaeB`\x82", ".jpg": b"\xff\xd9"}
# Records of the images that are there with their sizes, and the reasons for those that could not
# be made.
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
    """Write the images that are not there yet, then the sidecar.

    Return how many there are, and the errors met.
    """
    if quality is not None and not 1 <= quality <= 100:
        raise SoritesError(f"--quality wants 1 to 100, got {quality}")
    if not isinstance(suite, Suite):
        refuse_attacks(suite)
    plan, folder = (
        plans.make(load(suite).model_copy(update={"models": (), "fit": None, "scorers": ()})),
        place(out),
    )
    start, units = chosen_engine(engine, plan), plan.units()
    written: dict[Unit, Written] = {}
    with locked(folder, "dataset", LOCK):
        info = _claim(folder, plan, quality)
        tick = bar("building", plan.images()) if bar else lambda n: None
        with lent(folder, plan, info["run_id"]):
            for unit, result in start(
                units, functools.partial(write_unit, folder, quality=quality), workers or start.cores()
            ):
                written[unit] = result
                tick(plan.images_of(unit))
        sized = [pair for unit in units for pair in written[unit][0]]
        records = [record for record, _ in sized]
        _apart(records)
        write(sidecar.frame(records), folder / sidecar.NAME)
        if any(record[sidecar.BOXES] is not None for record in records):
            write_bytes(coco_json(sized, plan.labels), folder / ANNOTATIONS)
    return len(records), sorted(error for _, errors in written.values() for error in errors)


def _claim(folder: Path, plan: Plan, quality: int | None) -> Info:
    """Refuse a folder that holds another dataset: what another suite, seed or quality left there is
    not mixed in.
    """
    info = {**describe(plan), "quality": quality}
    path = folder / DATASET_INFO
    if path.exists():
        before = read_dataset_info(folder)
        if before.get("quality") != quality or not same_run(before, info, plan):
            raise SoritesError(
                f"{folder} holds a dataset built from another suite or with other options; choose another"
                " --out DIR"
            )
        info["run_id"] = before["run_id"]
    elif any(p.name != LOCK and not is_temporary(p) for p in folder.iterdir()):
        raise SoritesError(f"{folder} is not empty; choose another --out DIR")
    sweep_temporaries(folder)
    write_bytes(json.dumps(info, indent=1).encode(), path)
    return info


def _apart(records: Sequence[dict[str, Any]]) -> None:
    """No file may stand for two images."""
    seen: set[str] = set()
    for record in records:
        if record["path"] in seen:
            raise SoritesError(
                f"two images of {record['sample_id']} under {record['shift']} have one level:"
                f" {record['path']}"
            )
        seen.add(record["path"])


def write_unit(folder: Path, unit: Unit, *, quality: int | None) -> Written:
    """A unit of work: write the images of one shift and slice that are not there, or are others
    than those made now.

    Return their records and the errors.
    """
    running = running_in(folder)
    plan, names = running.plan, running.once("names", lambda plan: _names(plan))
    records, errors = [], []
    for shot in shots(plan, unit):
        if shot.image is None:
            errors.append(f"{shot.sample.id}, {shot.shift} {shot.setting.canonical}: {shot.error}")
            continue
        name = names[shot.sample.id] + (".jpg" if quality else ".png")
        path = PurePosixPath(slug(shot.shift), *_setting(shot.setting, shot.shift), name)
        data = _encoded(shot.image, quality)
        if not _holds(folder / path, data):
            write_bytes(data, folder / path)
        records.append((_record(plan, shot, path, quality), shot.image.shape[:2]))
    return records, errors


def _holds(path: Path, data: bytes) -> bool:
    """Return whether a file is there and holds just these bytes; made of an image that changed
    since, it holds others.
    """
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except FileNotFoundError:
        return False


def is_whole_image(path: Path) -> bool:
    """Return whether an image file is there up to its last bytes: one that is empty or cut short
    is written again.
    """
    end = _ENDS[path.suffix]
    try:
        with path.open("rb") as file:
            size = file.seek(0, io.SEEK_END)
            file.seek(max(0, size - len(end)))
            return file.read() == end
    except OSError:
        return False


def _encoded(image: ImageU8, quality: int | None) -> bytes:
    buffer = io.BytesIO()
    options: dict[str, Any] = (
        {"format": "JPEG", "quality": quality} if quality else {"format": "PNG", "compress_level": 4}
    )
    Pillow.fromarray(image).save(buffer, **options)
    return buffer.getvalue()


def _setting(setting: Setting, shift: str) -> list[str]:
    """The folders of a setting: its level or else its severity, then its params; clean has none."""
    if shift == CLEAN:
        return []
    line = [] if setting.severity is None else [repr(setting.severity).removesuffix(".0")]
    if setting.level is not None:
        line = [str(setting.level)]
    return line + ([slug(json.dumps(dict(setting.params), sort_keys=True))] if setting.params else [])


def _safe(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._") or "_"
    return plain if len(plain) <= LONGEST else f"{plain[: LONGEST - 17]}-{digest(name, size=8).hex()}"


def _names(plan: Plan) -> dict[str, str]:
    """Sample to ``class/name``: the class id as folder, the file's own name, numbered where two
    would meet.
    """
    taken: dict[str, int] = {}
    names: dict[str, str] = {}
    for sample in sorted((s for group in plan.groups.values() for s in group), key=lambda s: s.id):
        if sample.id in names:
            continue
        place = f"{_class_folder(plan, sample)}/{_safe(PurePosixPath(sample.id).stem)}"
        taken[place] = taken.get(place, 0) + 1
        names[sample.id] = place if taken[place] == 1 else f"{place}~{taken[place]}"
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

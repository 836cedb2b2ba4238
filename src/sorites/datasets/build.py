"""Write the shifted images of a suite as a dataset folder: ``shift/level/class/name.png`` and a sidecar.

The sidecar describes every file to the ``folder`` source, so that evaluating the folder and evaluating on the
fly give the same table. It lists the digests of the images. The record ``sorites.json`` lists those of the
other files, once the dataset is finished. Files are lossless unless a JPEG quality is given. If ground-truth
boxes are known, ``annotations.json`` has them in COCO format for other tools.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from PIL import Image as Pillow

from sorites.core import CLEAN, Box, ImageU8, Sample, Setting, Source
from sorites.core.errors import Damaged, Information, InvalidOption, SoritesError, tell
from sorites.core.labels import Labels, coco, coco_category_ids
from sorites.core.messages import option
from sorites.core.progress import Bar
from sorites.core.rng import digest
from sorites.datasets import croissant
from sorites.evaluation import plan as plans
from sorites.evaluation.engines import Engine
from sorites.evaluation.images import Shot, shots
from sorites.evaluation.options import BuildOptions
from sorites.evaluation.plan import Plan, Unit
from sorites.evaluation.reopen import refuse_attacks
from sorites.evaluation.storage.record import DATASET, record_of, write_record
from sorites.evaluation.storage.schema import DatasetRecord, R
from sorites.evaluation.storage.shards import slug
from sorites.evaluation.worker import Running, chosen_engine
from sorites.io.digests import digest_of, read_sealed
from sorites.io.files import is_temporary, locked, sweep_temporaries, write_bytes
from sorites.io.stores import to_path
from sorites.io.tables import parquet_bytes
from sorites.io.validation import read_typed
from sorites.sources import sidecar
from sorites.suites.suite import STORED, Suite, load

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
# Sidecar rows of the written images with their sizes, and the errors of those that could not be made.
Written = tuple[list[tuple[dict[str, Any], Size]], list[str]]


class Built(NamedTuple):
    """A dataset that was written."""

    images: int
    errors: list[str]


def build(
    suite: str | Path | Suite,
    out: str | Path,
    *,
    source: str | Source | None = None,
    shifts: Sequence[str] = (),
    levels: Sequence[int] = (),
    severities: Sequence[float] = (),
    grid: Sequence[str] = (),
    kernels: str | Path | None = None,
    padding: str | None = None,
    lenses: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    labels: str | Path | Sequence[str] | None = None,
    follow_links: bool | None = None,
    limit: int | None = None,
    seed: int | None = None,
    quality: int | None = None,
    engine: str | Engine | None = "local",
    workers: int | None = None,
    address: str | None = None,
    gpus_per_worker: float = 0.0,
    max_pixels: int | None = None,
    bar: Bar | None = None,
) -> Built:
    """Write the shifted images of a suite that are missing or changed, then the sidecar.

    Args:
        suite: A built-in suite, or the path of a .toml file. Also a ``Suite``.
        source: Read images from this source: stamps, folder:PATH, webdataset:PATH. Also a ``Source``.
        shifts: Apply only these shifts.
        levels: Apply only these published levels.
        severities: Apply these severities, in the unit of the only shift.
        grid: Apply two or three shifts at once, at all combinations of their settings: "exposure_stops x
            defocus_disk", or with severities "exposure_stops=1,3 x defocus_disk=2,4".
        kernels: Blur with this published kernel stack instead of the built-in aberrations.
        padding: How the lens aberrations pad the image border: zeros or reflect.
        lenses: A folder of your own traced lenses for the shift lens.
        options: Options of the suite's shifts.
        labels: A file of class names, one per line; default: the 1000 classes of ImageNet. Also a sequence of
            names.
        follow_links: Follow symbolic links that leave the folder of a source; links inside it are always
            followed.
        limit: Use only the first N samples of a fixed random order.
        seed: Random seed.
        out: The dataset folder to write.
        quality: Write JPEG files of this quality instead of PNG.
        engine: Engine that runs the tasks: local (threads), processes, or ray (also on a cluster). Also an
            ``Engine``.
        workers: Number of tasks to run in parallel; default: one per core.
        address: Head of the Ray cluster, for the engine ray; default: RAY_ADDRESS, or a local Ray instance.
        gpus_per_worker: Fraction of a GPU for each worker of the engine ray.
        max_pixels: Refuse images with more pixels than this; default: 100 million.
        bar: Progress display.

    Returns:
        The number of images, and the errors.
    """
    chosen = BuildOptions(
        suite=suite,
        source=source,
        shifts=shifts,
        levels=levels,
        severities=severities,
        grid=grid,
        kernels=kernels,
        padding=padding,
        lenses=lenses,
        options=options,
        labels=labels,
        follow_links=follow_links,
        limit=limit,
        seed=seed,
        out=out,
        quality=quality,
        engine=engine,
        workers=workers,
        address=address,
        gpus_per_worker=gpus_per_worker,
        max_pixels=max_pixels,
    )
    return write_dataset(chosen, bar)


def write_dataset(options: BuildOptions, bar: Bar | None = None) -> Built:
    """Write the images of a suite, like ``build``, with options as one object."""
    quality = options.quality
    if quality is not None and not 1 <= quality <= 100:
        raise InvalidOption("quality", f"{option('quality', None)}: expected 1 to 100, got {quality}")
    plan, folder = _plan(options), to_path(options.out)
    start, units = chosen_engine(options.chosen_engine(), plan), plan.units()
    written: dict[Unit, Written] = {}
    with options.reading(), locked(folder, "dataset", LOCK):
        record = _claim(folder, plan, quality)
        tick = bar("building", plan.images()) if bar else lambda n: None
        run, names = Running(folder, plan, record.run_id), _names(plan)
        tasks = [BuildTask(unit, tuple(names[id_] for id_ in _ids(plan, unit))) for unit in units]
        workers = options.workers or start.cores()
        for task, result in run.each(start, tasks, write_unit, workers, quality=quality):
            written[task.unit] = result
            tick(plan.images_of(task.unit))
        sized = [pair for unit in units for pair in written[unit][0]]
        write_record(folder, record.having(files=_write_metadata(folder, plan, sized)))
    if plan.suite.limit is not None:
        more = option("limit", "N")
        text = f"used at most {plan.suite.limit} samples of {plan.suite.source}; change this with {more}"
        tell(Information(text, code="limit"))
    return Built(len(sized), sorted(error for _, errors in written.values() for error in errors))


def _plan(options: BuildOptions) -> Plan:
    """Return the plan of the suite with the options applied, without models."""
    if not isinstance(options.suite, Suite):
        refuse_attacks(options.suite, options.shifts)
    source = options.source if isinstance(options.source, Source) else None
    spec = options.source.name if isinstance(options.source, Source) else options.source
    recipe = load(options.suite).override(**options.replaced(), source=spec)
    return plans.make(recipe.model_copy(update={"models": (), "fit": None, "scorers": ()}), source)


def _write_metadata(folder: Path, plan: Plan, sized: Sequence[tuple[dict[str, Any], Size]]) -> dict[str, str]:
    """Write the files that describe the images, and return their digests."""
    records = [record for record, _ in sized]
    _check_paths(records)
    # Neither where the dataset is nor where its images came from is part of what is published.
    about = f"Images of the source {plan.suite.source.partition(':')[0]} under the shifts of a suite."
    content = described(plan.suite.name, records, about)
    if any(record[sidecar.BOXES] is not None for record in records):
        content[ANNOTATIONS] = coco_json(sized, plan.labels)
    return write_files(folder, content)


def described(name: str, records: Sequence[Mapping[str, object]], about: str) -> dict[str, bytes]:
    """Return the sidecar of a dataset, and its Croissant metadata if it has images.

    Args:
        name: The name of the dataset.
        records: The rows of the sidecar.
        about: A description in a sentence.
    """
    rows = sidecar.frame(records)
    data = parquet_bytes(rows)
    table = {sidecar.NAME: data}
    if rows.is_empty():
        return table
    return {**table, croissant.NAME: croissant.croissant_json(name, about, (sidecar.NAME, data), rows)}


def write_files(folder: Path, content: Mapping[str, bytes]) -> dict[str, str]:
    """Write files of a dataset by name, and return their digests."""
    for name, data in content.items():
        write_bytes(data, folder / name)
    return {name: digest_of(data) for name, data in content.items()}


def _claim(folder: Path, plan: Plan, quality: int | None) -> DatasetRecord:
    """Refuse a folder of another suite, seed or quality, and record what this dataset is made of."""
    record = record_of(plan, DatasetRecord, quality=quality)
    before = claimed(folder, DatasetRecord)
    if before is not None and (before.quality, before.run_id) != (quality, record.run_id):
        raise SoritesError(
            f"{folder} contains a dataset built from another suite or with other options; choose another"
            f" {option('out', 'DIR')}"
        )
    write_record(folder, record)
    return record


def claimed(folder: Path, kind: type[R]) -> R | None:
    """Return the record of a dataset folder, or None if the folder is empty; delete temporary files.

    Args:
        folder: The folder.
        kind: The model of the record.

    Raises:
        SoritesError: The folder contains other files or another kind of dataset.
        Damaged: The record does not match its digest.
    """
    another = f"choose another {option('out', 'DIR')}"
    exists = (folder / DATASET).exists() and read_sealed(folder / DATASET, sidecar.RESTORE)
    try:
        before = read_typed(folder / DATASET, kind, another, STORED) if exists else None
    except Damaged as error:
        raise SoritesError(
            f"{folder} contains another dataset ({error.fields['reason']}); {another}"
        ) from error
    if before is None and any(p.name != LOCK and not is_temporary(p) for p in folder.iterdir()):
        raise SoritesError(f"{folder} is not empty; {another}")
    sweep_temporaries(folder)
    return before


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


@dataclass(frozen=True)
class BuildTask:
    """A slice, and ``class/name`` of each of its samples, which depends on the names of all others."""

    unit: Unit
    names: tuple[str, ...]


def _ids(plan: Plan, unit: Unit) -> list[str]:
    return list(plan.groups[unit.shift][unit.start : unit.stop].ids())


def write_unit(run: Running, task: BuildTask, *, quality: int | None) -> Written:
    """Write the missing or changed images of one unit of work; return their records and the errors."""
    plan, folder, unit = run.plan, run.folder, run.here(task.unit)
    names = dict(zip(_ids(plan, unit), task.names, strict=True))
    records, errors = [], []
    for shot in shots(plan, unit):
        if shot.image is None:
            errors.append(f"{shot.sample.id}, {shot.shift} {shot.setting.canonical}: {shot.error}")
            continue
        name = names[shot.sample.id] + (".jpg" if quality else ".png")
        path = PurePosixPath(slug(shot.shift), *_setting_folders(shot.setting, shot.shift), name)
        record = _record(plan, shot, path, quality)
        record[sidecar.DIGEST] = place_image(_encode(shot.image, quality), folder / path)
        records.append((record, shot.image.shape[:2]))
    return records, errors


def place_image(data: bytes, path: Path) -> str:
    """Write an image unless the file has this content already, and return its digest."""
    if not _has_content(path, data):
        write_bytes(data, path)
    return digest_of(data)


def _has_content(path: Path, data: bytes) -> bool:
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except FileNotFoundError:
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
        sidecar.BOXES: None
        if shot.ground_truth is None
        else sidecar.boxes(_in_image(shot.ground_truth), ids),
    }


def _in_image(boxes: Sequence[Box]) -> list[Box]:
    """Return the boxes without those of objects that a geometric shift moved out of the image."""
    return [box for box in boxes if box.xyxy[0] < box.xyxy[2] and box.xyxy[1] < box.xyxy[3]]

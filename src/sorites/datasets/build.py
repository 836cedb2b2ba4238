"""Write the shifted pictures of a suite as a dataset folder: ``shift/level/class/name.png`` and a sidecar.

The sidecar tells the ``folder`` source what every file is, so that evaluating the folder and evaluating on the fly
give the same table. Files are lossless unless a JPEG quality is asked for.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from PIL import Image as Pillow

from sorites.core import CLEAN, Picture, Sample, Setting
from sorites.engines.local import local
from sorites.errors import SoritesError
from sorites.pipeline import plan as plans
from sorites.pipeline.folder import describe, locked, slug
from sorites.pipeline.pictures import Shot, shots
from sorites.pipeline.plan import Plan, Unit
from sorites.progress import Bar
from sorites.rng import digest
from sorites.sources import _sidecar as sidecar
from sorites.suite import Suite, load
from sorites.table import write, write_bytes

LOCK = ".sorites.lock"


def build(
    suite: str | Path | Suite, out: str | Path, *, quality: int | None = None, workers: int = 2, bar: Bar | None = None
) -> tuple[int, list[str]]:
    """Write the pictures that are not there yet, then the sidecar. Gives how many there are, and the errors met."""
    if quality is not None and not 1 <= quality <= 100:
        raise SoritesError(f"--quality wants 1 to 100, got {quality}")
    plan, folder = plans.make(load(suite).model_copy(update={"models": ()})), Path(out)
    names = _names(plan)
    records: dict[Unit, list[dict[str, Any]]] = {}
    errors: list[str] = []
    with locked(folder, "dataset", LOCK):
        _claim(folder, plan, quality)
        tick = bar("building", plan.images()) if bar else lambda n: None

        def work(unit: Unit) -> None:
            records[unit] = _write_unit(plan, unit, folder, quality, names, errors)

        for unit in local(plan.units(), work, workers):
            tick(len(records[unit]))
        kept = [record for unit in plan.units() for record in records[unit]]
        _apart(kept)
        write(sidecar.frame(kept), folder / sidecar.NAME)
    return len(kept), sorted(errors)


def _claim(folder: Path, plan: Plan, quality: int | None) -> None:
    """A folder holds one dataset: what another suite, seed or quality left there is not mixed in."""
    told = json.dumps({**describe(plan), "quality": quality}, indent=1).encode()
    path = folder / "sorites.json"
    if path.exists():
        if path.read_bytes() != told:
            raise SoritesError(
                f"{folder} holds a dataset built from another suite or with other options; choose another --out DIR"
            )
    elif any(p.name != LOCK and p.suffix != ".tmp" for p in folder.iterdir()):
        raise SoritesError(f"{folder} is not empty; choose another --out DIR")
    for left in folder.rglob("*.tmp"):
        left.unlink(missing_ok=True)
    write_bytes(told, path)


def _apart(records: Sequence[dict[str, Any]]) -> None:
    """No file may stand for two images."""
    seen: set[str] = set()
    for record in records:
        if record["path"] in seen:
            raise SoritesError(f"two images of {record['sample_id']} under {record['shift']} have one level: {record['path']}")
        seen.add(record["path"])


def _write_unit(
    plan: Plan, unit: Unit, folder: Path, quality: int | None, names: dict[str, str], errors: list[str]
) -> list[dict[str, Any]]:
    records = []
    for shot in shots(plan, unit):
        if shot.picture is None:
            errors.append(f"{shot.sample.id}, {shot.shift} {shot.setting.canonical}: {shot.error}")
            continue
        name = names[shot.sample.id] + (".jpg" if quality else ".png")
        path = PurePosixPath(slug(shot.shift), *_stop(shot.setting, shot.shift), name)
        if not (folder / path).exists():
            write_bytes(_encoded(shot.picture, quality), folder / path)
        records.append(_record(plan, shot, path, quality))
    return records


def _encoded(picture: Picture, quality: int | None) -> bytes:
    buffer = io.BytesIO()
    options: dict[str, Any] = {"format": "JPEG", "quality": quality} if quality else {"format": "PNG", "compress_level": 4}
    Pillow.fromarray(picture).save(buffer, **options)
    return buffer.getvalue()


def _stop(setting: Setting, shift: str) -> list[str]:
    """The folders of a setting: its level or else its severity, then its params; clean has none."""
    if shift == CLEAN:
        return []
    line = [] if setting.severity is None else [repr(setting.severity).removesuffix(".0")]
    if setting.level is not None:
        line = [str(setting.level)]
    return line + ([slug(json.dumps(dict(setting.params), sort_keys=True))] if setting.params else [])


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._") or "_"


def _names(plan: Plan) -> dict[str, str]:
    """Sample to ``class/name``: the class id as folder, the file's own name, numbered where two would meet."""
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
        "framed": sample.framed or plan.suite.frame is not None,
        "seed": plan.suite.seed,
    }

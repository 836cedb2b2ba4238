"""A run on disk: what it is (``run.json``), what it looks at (``manifest.parquet``), and whose it is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from sorites.core import CLEAN, Sample
from sorites.errors import SoritesError
from sorites.files import TEMPORARY, locked, write_bytes
from sorites.pipeline.identity import ASIDE, Info, describe_formerly
from sorites.pipeline.plan import Plan
from sorites.table import SCHEMA, write

BEFORE = ("run.lock", "manifest.parquet")
"""Files that a run leaves behind if it is killed before it writes its ``run.json``."""

RENAMED = {"degrees": "similarity", "measure": "distance"}
"""Keys of a suite as release 0.2 called them, and as they are called now."""

_COLUMNS = (
    "source", "split", "sample_id", "label", "accept", "attrs", "shift", "severity", "params", "level", "image_id",
)  # fmt: skip
MANIFEST = pl.Schema([*((name, SCHEMA[name]) for name in _COLUMNS), ("framed", pl.Boolean())])
"""Columns of the manifest; ``image_id`` only where the source brings one. Manifests of release 0.2 end with ``params``."""


def read_info(run: str | Path) -> Info:
    """Read ``run.json`` of a run folder."""
    path = Path(run) / "run.json"
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SoritesError(f'{run} is not a run folder: it has no run.json. Make one with "sorites run SUITE".') from error
    except (OSError, ValueError) as error:
        raise SoritesError(f"cannot read {path}: {error}") from error
    if not isinstance(info, dict) or not {"run_id", "suite", "stops", "models"} <= info.keys():
        raise SoritesError(f"cannot read {path}: it is not what a run writes")
    return {**info, "suite": {RENAMED.get(key, key): value for key, value in info["suite"].items()}}


DATASET_INFO = "sorites.json"
"""The file that a built dataset keeps in the place of ``run.json``."""


def read_dataset_info(folder: Path) -> Info:
    """Read what a built dataset says of itself; nothing where it cannot be read."""
    try:
        info = json.loads((folder / DATASET_INFO).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {"run_id": ""}
    return info if isinstance(info, dict) and "run_id" in info else {"run_id": ""}


def write_info(folder: Path, info: Mapping[str, Any]) -> None:
    write_bytes(json.dumps(info, indent=1).encode(), folder / "run.json")


def read_manifest(run: str | Path) -> pl.DataFrame:
    """Read ``manifest.parquet`` of a run folder."""
    path = Path(run) / "manifest.parquet"
    try:
        return pl.read_parquet(path, glob=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise SoritesError(f"cannot read {path}: {error}. Run into another --out DIR.") from error


@contextmanager
def opened(folder: Path, plan: Plan, info: Info) -> Iterator[Info]:
    """Hold the run folder for this plan alone and yield what its ``run.json`` says.

    A new folder is made; one that belongs to another plan or another process is refused.
    """
    with locked(folder):
        yield _claim(folder, plan, info)


def _claim(folder: Path, plan: Plan, described: Info) -> Info:
    sizes = {name: model.parameters for name, model in plan.models.items()}
    info = {**described, "suite": dict(described["suite"]), "parameters": sizes}
    info |= {"limited": {name: list(counts) for name, counts in plan.limited.items()}} if plan.limited else {}
    manifest = manifest_of(plan)
    if (folder / "run.json").exists():
        before = read_info(folder)
        _refuse_other(folder, before, info, plan)
        info["run_id"] = before["run_id"]
        info |= {"scored": before["scored"]} if "scored" in before else {}
        for key in ASIDE:
            info["suite"][key] = info["suite"][key] or before["suite"].get(key)
        listed = read_manifest(folder)
        if not listed.equals(manifest.select(listed.columns)):
            raise SoritesError(f"{folder} was made from other samples than {plan.source} holds now; choose another --out DIR")
    elif any(path.name not in BEFORE and path.suffix != TEMPORARY for path in folder.iterdir()):
        raise SoritesError(f"{folder} is not empty and not a run folder; choose another --out DIR")
    else:
        write(manifest, folder / "manifest.parquet")
    write_info(folder, info)
    return info


def same_run(before: Info, info: Info, plan: Plan) -> bool:
    """Return whether a folder holds this run, be its id from this release or an earlier one."""
    return bool(before["run_id"] == _as_then(before, info, plan)["run_id"])


def _as_then(before: Info, info: Info, plan: Plan) -> Info:
    """Describe the plan as the release did that made the folder."""
    release = before.get("versions", {}).get("sorites")
    return describe_formerly(plan, release) if release else info


def _refuse_other(folder: Path, before: Info, info: Info, plan: Plan) -> None:
    differs = None if same_run(before, info, plan) else _difference(before, _as_then(before, info, plan))
    then, now = before["suite"].get("refine"), info["suite"]["refine"]
    if then and now and then != now:
        differs = differs or f"refine: {then} there, {now} here"
    if differs:
        raise SoritesError(f"{folder} holds another run ({differs}). Choose another --out DIR.")


def _difference(there: Any, here: Any, where: str = "") -> str:
    """Name the first key whose value is not the same, with both values."""
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        for key in sorted({*there, *here} - {"run_id", "parameters", "scored", "limited", *ASIDE}):
            if there.get(key) != here.get(key):
                return _difference(there.get(key), here.get(key), f"{where}.{key}".strip("."))
    return f"{where}: {json.dumps(there)} there, {json.dumps(here)} here"


def manifest_of(plan: Plan) -> pl.DataFrame:
    """One row per sample, or per image where the source brings it already shifted."""
    once = {id(s): s for name, group in plan.groups.items() for s in group if name == CLEAN or name not in plan.shifts}
    records = [_manifest_row(plan, sample) for sample in once.values()]
    columns = {name: [record[name] for record in records] for name in MANIFEST}
    return pl.DataFrame(columns, schema=MANIFEST)


def _manifest_row(plan: Plan, sample: Sample) -> dict[str, Any]:
    return {
        "source": plan.source_of(sample),
        "split": sample.split,
        "sample_id": sample.id,
        "label": sample.label,
        "accept": sorted(sample.right),
        "attrs": [vars(attr) for attr in sample.attrs],
        "shift": sample.shift,
        "severity": sample.setting.severity,
        "params": json.dumps(dict(sample.setting.params), sort_keys=True),
        "level": sample.setting.level,
        "image_id": sample.image_id,
        "framed": sample.framed,
    }

"""A run on disk: what it is (``run.json``), what it looks at (``manifest.parquet``), and where its shards stand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import filelock
import polars as pl

from sorites.core import CLEAN, Sample
from sorites.errors import SoritesError
from sorites.pipeline.plan import Plan, Unit
from sorites.rng import digest
from sorites.table import SCHEMA, write, write_bytes

LIBRARIES = ("sorites", "numpy", "scipy", "pillow", "onnxruntime", "torch")
"""Whose versions can change a pixel or a prediction."""

BEFORE = ("run.lock", "manifest.parquet")
"""What a run that was killed at its very start leaves without its ``run.json``."""


ASIDE = ("about", "refine", "reference", "distance", "lpips_below", "similarity")
"""Of a suite, what may change from one command to the next in the same run folder."""


def describe(plan: Plan) -> dict[str, Any]:
    """What the run's numbers follow from; its hash is the run's id. Batch and workers change no row, ``ASIDE`` no grid row."""
    suite = plan.suite.model_dump(mode="json", exclude={*ASIDE, *(() if plan.suite.fit else ("fit",))})
    training = {"fit": digest(*(f"{s.id} {s.label}" for s in plan.fit), size=8).hex()} if plan.suite.fit else {}
    what = {
        "suite": suite,
        **training,
        "labels": digest(*plan.labels.ids, size=8).hex(),
        "stops": {name: list(stops) for name, stops in plan.stops.items()},
        "shifts": {name: shift.version for name, shift in plan.shifts.items()},
        "models": {name: model.version for name, model in plan.models.items()},
        "versions": versions(),
    }
    told = plan.suite.model_dump(mode="json", include=set(ASIDE))
    return {"run_id": digest(json.dumps(what, sort_keys=True), size=8).hex(), **what, "suite": {**suite, **told}}


def versions() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def read_info(run: str | Path) -> dict[str, Any]:
    """``run.json`` of a run folder."""
    path = Path(run) / "run.json"
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SoritesError(f'{run} is not a run folder: it has no run.json. Make one with "sorites run SUITE".') from error
    except (OSError, ValueError) as error:
        raise SoritesError(f"cannot read {path}: {error}") from error
    if not isinstance(info, dict) or not {"run_id", "suite", "stops", "models"} <= info.keys():
        raise SoritesError(f"cannot read {path}: it is not what a run writes")
    return info


def read_manifest(run: str | Path) -> pl.DataFrame:
    """``manifest.parquet`` of a run folder."""
    path = Path(run) / "manifest.parquet"
    try:
        return pl.read_parquet(path, glob=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise SoritesError(f"cannot read {path}: {error}. Run into another --out DIR.") from error


@contextmanager
def opened(folder: Path, plan: Plan) -> Iterator[dict[str, Any]]:
    """Hold the run folder for this plan alone: made if new, refused if it belongs to another plan or another process."""
    with locked(folder):
        yield _claim(folder, plan)


@contextmanager
def locked(folder: Path, kind: str = "run", lock_name: str = "run.lock") -> Iterator[None]:
    """Nobody else writes into the folder, made if new, meanwhile."""
    lock = filelock.FileLock(folder / lock_name, timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except filelock.Timeout as error:
        raise SoritesError(f"another sorites is writing into {folder}; wait for it, or choose another --out DIR") from error
    except OSError as error:
        raise SoritesError(f"cannot make the {kind} folder {folder}: {error}") from error
    try:
        yield
    finally:
        lock.release()


def _claim(folder: Path, plan: Plan) -> dict[str, Any]:
    sizes = {name: model.parameters for name, model in plan.models.items()}
    info = {**describe(plan), "parameters": sizes}
    manifest = manifest_of(plan)
    if (folder / "run.json").exists():
        held = read_info(folder)
        _same(folder, held, info)
        info |= {"scored": held["scored"]} if "scored" in held else {}
        for key in ASIDE:
            info["suite"][key] = info["suite"][key] or held["suite"].get(key)
        if not read_manifest(folder).equals(manifest):
            raise SoritesError(f"{folder} was made from other samples than {plan.source} holds now; choose another --out DIR")
    elif any(path.name not in BEFORE and path.suffix != ".tmp" for path in folder.iterdir()):
        raise SoritesError(f"{folder} is not empty and not a run folder; choose another --out DIR")
    else:
        write(manifest, folder / "manifest.parquet")
    write_bytes(json.dumps(info, indent=1).encode(), folder / "run.json")
    return info


def _same(folder: Path, held: Mapping[str, Any], info: Mapping[str, Any]) -> None:
    differs = None if held["run_id"] == info["run_id"] else _difference(held, info)
    then, now = held["suite"].get("refine"), info["suite"]["refine"]
    if then and now and then != now:
        differs = differs or f"refine: {then} there, {now} here"
    if differs:
        raise SoritesError(f"{folder} holds another run ({differs}). Choose another --out DIR.")


def _difference(held: Any, wanted: Any, where: str = "") -> str:
    """The first key, in words, whose value is not the same."""
    if isinstance(held, Mapping) and isinstance(wanted, Mapping):
        for key in sorted({*held, *wanted} - {"run_id"}):
            if held.get(key) != wanted.get(key):
                return _difference(held.get(key), wanted.get(key), f"{where}.{key}".strip("."))
    return f"{where}: {json.dumps(held)} there, {json.dumps(wanted)} here"


def manifest_of(plan: Plan) -> pl.DataFrame:
    """One row a sample, or an image where the source brings it already shifted."""
    own = {id(s): s for name, group in plan.groups.items() for s in group if name == CLEAN or name not in plan.shifts}
    keep = ("source", "split", "sample_id", "label", "accept", "attrs", "shift", "severity", "params")
    records = [_manifest_row(plan, sample) for sample in own.values()]
    columns = {name: [record[name] for record in records] for name in keep}
    return pl.DataFrame(columns, schema={name: SCHEMA[name] for name in keep})


def _manifest_row(plan: Plan, sample: Sample) -> dict[str, Any]:
    return {
        "source": plan.source,
        "split": sample.split,
        "sample_id": sample.id,
        "label": sample.label,
        "accept": sorted(sample.right),
        "attrs": [vars(attr) for attr in sample.attrs],
        "shift": sample.shift,
        "severity": sample.setting.severity,
        "params": json.dumps(dict(sample.setting.params), sort_keys=True),
    }


def slug(name: str) -> str:
    """A name as part of a file name: readable, plain, and different for different names."""
    plain = re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.")[-40:]
    return plain if plain == name else f"{plain}-{digest(name, size=4).hex()}"


def _named(unit: Unit, model: str) -> str:
    return f"{replace(unit, shift=slug(unit.shift)).key}--{slug(model)}"


def shard(folder: Path, unit: Unit, model: str) -> Path:
    return folder / "predictions" / f"{_named(unit, model)}.parquet"


def features(folder: Path, unit: Unit, model: str) -> Path:
    return folder / "features" / f"{_named(unit, model)}.safetensors"


def scores(folder: Path, stem: str, scorer: str) -> Path:
    """The rows of a scorer added later, beside the shard called ``stem``."""
    return folder / "predictions" / f"{stem}--{slug(scorer)}.parquet"


def fits(folder: Path, unit: Unit, model: str) -> Path:
    return folder / "fits" / f"{_named(unit, model)}.safetensors"


def head(folder: Path, model: str) -> Path:
    return folder / "heads" / f"{slug(model)}.safetensors"

"""Metadata that determines a run's results, the run id (its hash), and the paths of a suite's files.

A key of the suite is hashed only if it differs from its default, so that new keys change no id. Versions of
shifts, scorers, models and libraries that change results are included; the version of this package is not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sorites import core
from sorites.core import Sample
from sorites.core.errors import SoritesError
from sorites.core.rng import digest
from sorites.evaluation.plan import Plan
from sorites.io.stores import is_on_store
from sorites.suites.suite import Suite

# Libraries whose version can change pixels or predictions.
LIBRARIES = ("numpy", "scipy", "pillow", "onnxruntime", "torch")

# Keys of a suite that may differ between commands on the same run folder.
ASIDE = ("about", "refine", "reference", "distance", "lpips_below", "lpips_measure", "similarity")

Info = dict[str, Any]


def describe(plan: Plan) -> Info:
    """Return everything that determines a run's results.

    Batch size and workers change no row; the keys in ``ASIDE`` change no row of the grid.
    """
    suite = plan.suite.model_dump(mode="json", exclude=set(ASIDE), exclude_defaults=True)
    scorers = {name: core.scorer_version(name) for name in plan.scorers}
    causes = {
        "suite": {**suite, "name": plan.suite.name, "source": plan.suite.source},
        **_training(plan),
        "labels": digest(*plan.labels.ids, size=8).hex(),
        "settings": {name: list(settings) for name, settings in plan.settings.items()},
        "shifts": {name: shift.version for name, shift in plan.shifts.items()},
        **({"dials": {name: dial.shared for name, dial in plan.own.items()}} if plan.own else {}),
        **({"scorers": scorers} if scorers else {}),
        "models": {name: model.version for name, model in plan.models.items()},
        "versions": versions(),
    }
    whole = plan.suite.model_dump(mode="json")
    return {"run_id": _hash(causes), **causes, "suite": whole}


def versions() -> dict[str, str]:
    """Return the installed versions of the libraries that results depend on."""
    installed = {}
    for name in LIBRARIES:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed


def _training(plan: Plan) -> Info:
    """Return hashes of training and validation images by id and label, and the candidates of parameter
    searches.
    """
    if plan.suite.fit is None:
        return {}

    def hash_of(samples: Sequence[Sample]) -> str:
        return digest(*(f"{s.id} {s.label}" for s in samples), size=8).hex()

    searched = {name: list(tried) for name in plan.scorers if (tried := core.scorer_candidates(name))}
    search = {"validation": hash_of(plan.validation), "ood": hash_of(plan.ood), "search": searched}
    return {"fit": hash_of(plan.fit), **(search if plan.suite.fit.search else {})}


def _hash(causes: Mapping[str, Any]) -> str:
    return digest(json.dumps(causes, sort_keys=True), size=8).hex()


# Validation of ``run.json`` when it is read.


Version = str | int


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


class _Dial(_Part):
    name: str


class _Source(_Part):
    name: str
    spec: str


class _Suite(_Part):
    """The keys that are read without making a plan; ``suite.parse`` checks all of them."""

    name: str
    source: str
    sources: list[_Source] = []
    labels: str | list[str] = "imagenet"
    models: list[str] = []
    shifts: list[str | _Dial] = []
    scorers: list[str] = []
    refine: float | None = None
    reference: str | None = None


class _OwnDial(_Part):
    levels: list[float]
    unit: str
    family: str
    version: Version


class _Imported(_Part):
    kind: str = Field(alias="as")
    rows: int
    files: list[Any] = []


class _Run(_Part):
    run_id: str
    suite: _Suite
    settings: dict[str, list[float | dict[str, Any]]]
    models: dict[str, Version]
    labels: str = ""
    shifts: dict[str, Version] = {}
    dials: dict[str, _OwnDial] = {}
    scorers: dict[str, Version] = {}
    versions: dict[str, Version] = {}
    parameters: dict[str, int | None] = {}
    inputs: dict[str, dict[str, Any]] = {}
    scored: list[str] = []
    imported: _Imported | None = None
    classes: list[str] = []
    slice: int = Field(default=16, gt=0)
    places: dict[str, dict[str, str]] = {}


def checked_info(data: Any) -> dict[str, Any]:
    """Return the content of a ``run.json`` if it is valid.

    Raises:
        SoritesError: A field is missing or has the wrong type.
    """
    try:
        _Run.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "all of it"
        actual = "" if isinstance(first["input"], (dict, list)) else f" (got {first['input']!r:.80})"
        raise SoritesError(f"it is invalid: {field}: {first['msg']}{actual}") from error
    return dict(data)


# Paths of the files that a suite names. They are stored in ``run.json``, so that a run folder works from any
# working directory and after it was moved together with them. They do not affect results and are not hashed.


# Path relative to the run folder, and absolute path on the machine that ran it.
BESIDE, ABSOLUTE = "beside", "absolute"

Places = Mapping[str, Mapping[str, str]]
Respell = Callable[[str], str]


def places_of(suite: Suite, folder: Path) -> dict[str, dict[str, str]]:
    """Return the current paths of a suite's files, by the path as typed; names that are not paths are
    skipped.
    """
    paths = {}
    for path in _paths(suite):
        expanded = Path(path).expanduser()
        if expanded.exists():
            real = expanded.resolve()
            on_store = is_on_store(folder)  # no relative path from a store to this machine
            beside = {} if on_store else {BESIDE: os.path.relpath(real, folder.resolve())}
            paths[path] = {**beside, ABSOLUTE: str(real)}
    return paths


def _paths(suite: Suite) -> Iterator[str]:
    specs = [
        suite.source,
        *(entry.spec for entry in suite.sources),
        suite.distance.against if suite.distance else "",
    ]
    for spec in specs:
        yield from filter(None, _parts(spec))
    for dial in suite.shifts:
        yield from (value for value in dial.options.values() if isinstance(value, str) and value)
    plain = (suite.reference, suite.distance.decomposition if suite.distance else None)
    yield from (path for path in plain if path)


def _parts(spec: str) -> list[str]:
    """Return the parts of a spec that may be paths: its argument, and the values of its options."""
    path, _, query = spec.partition(":")[2].partition("?")
    return [path, *(part.partition("=")[2] for part in query.split("&"))]


def respelled(suite: Suite, respell: Respell) -> Suite:
    """Return the suite with ``respell`` applied to the paths of its sources and shifts."""
    dials = tuple(
        dial.model_copy(
            update={"options": {k: respell(v) if isinstance(v, str) else v for k, v in dial.options.items()}}
        )
        for dial in suite.shifts
    )
    sources = tuple(entry.model_copy(update={"spec": _spec(entry.spec, respell)}) for entry in suite.sources)
    return suite.model_copy(
        update={"source": _spec(suite.source, respell), "sources": sources, "shifts": dials}
    )


def _spec(spec: str, respell: Respell) -> str:
    name, colon, argument = spec.partition(":")
    path, mark, query = argument.partition("?")
    options = [part.partition("=") for part in query.split("&")]
    query = "&".join(f"{key}{equals}{respell(value)}" for key, equals, value in options)
    return f"{name}{colon}{respell(path)}{mark}{query}"


def candidates(folder: Path, places: Places) -> list[Respell]:
    """Return functions that map typed paths to current ones: relative to the run folder first, then absolute
    first.

    The last one leaves paths as typed, for folders that store no paths.
    """
    orders = ((BESIDE, ABSOLUTE), (ABSOLUTE, BESIDE))
    return [
        *(
            (lambda path, order=order: _current_path(folder, places, path, order))
            for order in orders
            if places
        ),
        lambda path: path,
    ]


def place_now(folder: Path, places: Places, path: str) -> str:
    """Return the current path of a file that a suite names; unknown paths are returned unchanged."""
    return _current_path(folder, places, path, (BESIDE, ABSOLUTE))


def _current_path(folder: Path, places: Places, path: str, order: tuple[str, ...]) -> str:
    stored: Mapping[str, Any] = places.get(path, {})
    for kind in order:
        candidate = (
            Path(stored[kind])
            if kind == ABSOLUTE and kind in stored
            else folder / stored[kind]
            if kind in stored
            else None
        )
        if candidate is not None and candidate.exists():
            return path if _same(Path(path).expanduser(), candidate) else str(candidate.resolve())
    return path


def _same(typed: Path, current: Path) -> bool:
    try:
        return typed.samefile(current)
    except OSError:
        return False

"""The causes of a run's numbers, and the id that is their hash.

A key of the suite enters the hash only where it is set to other than its default, so that a key
added later moves no id. The versions of shifts, scorers, models and of the libraries that change
numbers are in it; the version of this package is not.
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

# Libraries whose version can change a pixel or a prediction.
LIBRARIES = ("numpy", "scipy", "pillow", "onnxruntime", "torch")

# Keys of a suite that may change from one command to the next in the same run folder.
ASIDE = ("about", "refine", "reference", "distance", "lpips_below", "lpips_measure", "similarity")

Info = dict[str, Any]


def describe(plan: Plan) -> Info:
    """Return what the run's numbers follow from.

    Batch and workers change no row, the keys ``ASIDE`` no grid row.
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
    """Return the installed versions of the libraries that numbers depend on."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _training(plan: Plan) -> Info:
    """The training images by id and label, where the suite has some, and what a search of
    parameters follows from.
    """
    if plan.suite.fit is None:
        return {}

    def told(samples: Sequence[Sample]) -> str:
        return digest(*(f"{s.id} {s.label}" for s in samples), size=8).hex()

    searched = {name: list(tried) for name in plan.scorers if (tried := core.scorer_candidates(name))}
    search = {"validation": told(plan.validation), "ood": told(plan.ood), "search": searched}
    return {"fit": told(plan.fit), **(search if plan.suite.fit.search else {})}


def _hash(causes: Mapping[str, Any]) -> str:
    return digest(json.dumps(causes, sort_keys=True), size=8).hex()


# Check once, when it is read, what ``run.json`` must hold: a field of another type is an error that names
# it.


Version = str | int


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


class _Dial(_Part):
    name: str


class _Source(_Part):
    name: str
    spec: str


class _Suite(_Part):
    """The keys of the suite that are read without making a plan; ``suite.parse`` checks all of them
    where one is made.
    """

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
    """Return the content of a ``run.json`` if it is what a run writes; an error names the first
    field that is not.
    """
    try:
        _Run.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "all of it"
        came = "" if isinstance(first["input"], (dict, list)) else f" (got {first['input']!r:.80})"
        raise SoritesError(f"it is not what a run writes: {field}: {first['msg']}{came}") from error
    return dict(data)


# The places of the files that a suite names, kept in ``run.json`` beside the suite: a run folder then
# works from any working directory, and after it was moved together with them. Places are no cause of
# numbers and stand in no hash.


# A place as seen from the run folder, and on the machine that ran it.
BESIDE, ABSOLUTE = "beside", "absolute"

Places = Mapping[str, Mapping[str, str]]
Respell = Callable[[str], str]


def places_of(suite: Suite, folder: Path) -> dict[str, dict[str, str]]:
    """Return where each path of a suite stands now, by the path as it is spelled there; names that
    are no paths have none.
    """
    found = {}
    for path in _paths(suite):
        place = Path(path).expanduser()
        if place.exists():
            real = place.resolve()
            on_store = is_on_store(folder)  # nothing on this machine is beside a folder that is not
            beside = {} if on_store else {BESIDE: os.path.relpath(real, folder.resolve())}
            found[path] = {**beside, ABSOLUTE: str(real)}
    return found


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
    """Return what may be paths in a spec: what follows the name, and the values of its options."""
    path, _, query = spec.partition(":")[2].partition("?")
    return [path, *(part.partition("=")[2] for part in query.split("&"))]


def respelled(suite: Suite, respell: Respell) -> Suite:
    """Return the suite with the paths of its images and of its shifts' files spelled in the new way."""
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
    return f"{name}{colon}{respell(path)}{mark}{'&'.join(f'{key}{eq}{respell(value)}' for key, eq, value in options)}"


def candidates(folder: Path, places: Places) -> list[Respell]:
    """Return the ways to spell the paths of a run now: as seen from its folder, then where they
    stood when it ran.

    The last way leaves all paths as they were typed, which holds for folders that keep no places.
    """
    orders = ((BESIDE, ABSOLUTE), (ABSOLUTE, BESIDE))
    return [
        *((lambda path, order=order: _now(folder, places, path, order)) for order in orders if places),
        lambda path: path,
    ]


def place_now(folder: Path, places: Places, path: str) -> str:
    """Return where a file that a suite names stands now; a path without a place stays as it is."""
    return _now(folder, places, path, (BESIDE, ABSOLUTE))


def _now(folder: Path, places: Places, path: str, order: tuple[str, ...]) -> str:
    kept: Mapping[str, Any] = places.get(path, {})
    for kind in order:
        place = (
            Path(kept[kind])
            if kind == ABSOLUTE and kind in kept
            else folder / kept[kind]
            if kind in kept
            else None
        )
        if place is not None and place.exists():
            return path if _same(Path(path).expanduser(), place) else str(place.resolve())
    return path


def _same(typed: Path, place: Path) -> bool:
    try:
        return typed.samefile(place)
    except OSError:
        return False

"""Build the record of a run from its plan, read and write it, and find the files that a suite names.

The versions of shifts, scorers, models and of libraries that change results are part of the record and of the
run id; the version of this package is not.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from sorites import core
from sorites.core import Sample
from sorites.core.errors import SoritesError
from sorites.core.messages import command
from sorites.core.rng import digest
from sorites.evaluation.plan import Plan
from sorites.evaluation.storage.schema import (
    Causes,
    Computing,
    DatasetRecord,
    DialRecord,
    Place,
    RunRecord,
)
from sorites.io.digests import write_sealed
from sorites.io.listed import ANOTHER, FILES, RUN, listed_files
from sorites.io.stores import is_on_store, to_path
from sorites.io.validation import read_typed
from sorites.suites.suite import STORED, Dial, Suite

# Libraries whose version can change pixels or predictions.
LIBRARIES = ("numpy", "scipy", "pillow", "onnxruntime", "torch")
# Version of the confidence where several classes mean the same answer: their summed probability.
CONFIDENCE_VERSION = 2
# Metadata file of a built dataset.
DATASET = "sorites.json"

C = TypeVar("C", bound=Causes)


def describe(plan: Plan) -> RunRecord:
    """Return the record of everything that determines the results of a run, with its run id.

    Workers change no row, and keys of the suite that only add to a run change no row of the grid. Batch size
    and device are included for the models whose rows depend on them.
    """
    return record_of(plan, RunRecord)


def record_of(plan: Plan, kind: type[C], **more: Any) -> C:
    """Return the record of a run or of a dataset, with its id.

    Args:
        plan: The plan.
        kind: ``RunRecord`` or ``DatasetRecord``.
        more: Further fields of the record.
    """
    causes: dict[str, Any] = {
        "suite": plan.suite,
        **_training(plan),
        "labels": digest(*plan.labels.ids, size=8).hex(),
        "settings": {name: tuple(settings) for name, settings in plan.settings.items()},
        "shifts": {name: shift.version for name, shift in plan.shifts.items()},
        "models": {name: model.version for name, model in plan.models.items()},
        "versions": versions(),
    }
    if computing := _computing(plan):
        causes["computing"] = computing
    if plan.same_answers:
        causes["confidence"] = CONFIDENCE_VERSION
    if plan.own:
        causes["dials"] = {name: DialRecord(**dial.shared) for name, dial in plan.own.items()}
    if plan.scorers:
        causes["scorers"] = {name: core.scorer_version(name) for name in plan.scorers}
    return kind(run_id="", **causes, **more).identified()


def _computing(plan: Plan) -> dict[str, Computing]:
    """Return how models compute whose rows depend on it."""
    described = {}
    for name, model in plan.models.items():
        backend = model.backend
        if backend.batch_matters or (backend.kind, backend.precision) != ("cpu", "float32"):
            described[name] = Computing(
                library=backend.library,
                device=backend.kind,
                precision=backend.precision,
                batch=model.batch,
                tf32=False,
            )
    return described


def versions() -> dict[str, str]:
    """Return the installed versions of the libraries that results depend on."""
    return {name: found for name in LIBRARIES if (found := _installed(name)) is not None}


@functools.cache
def _installed(name: str) -> str | None:
    """Return the version of a library, or None; reading it from its files takes milliseconds."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _training(plan: Plan) -> dict[str, Any]:
    """Return hashes of training and validation images by id and label, and the candidates of parameter
    searches.
    """
    if plan.suite.fit is None:
        return {}

    def hash_of(samples: Sequence[Sample]) -> str:
        return digest(*(f"{s.id} {s.label}" for s in samples), size=8).hex()

    searched = {name: tuple(tried) for name in plan.scorers if (tried := core.scorer_candidates(name))}
    search = {"validation": hash_of(plan.validation), "ood": hash_of(plan.ood), "search": searched}
    return {"fit": hash_of(plan.fit), **(search if plan.suite.fit.search else {})}


def read_record(run: str | Path) -> RunRecord:
    """Read ``run.json`` of a run folder.

    Args:
        run: The run folder.

    Returns:
        The typed record.

    Raises:
        SoritesError: The folder has no ``run.json``.
        Damaged: It has changed or is invalid; the reason names the field.
    """
    path = to_path(run) / RUN
    if not path.exists():
        raise SoritesError(
            f"{run} is not a run folder: it has no {RUN}. Create one with {command('run', 'SUITE')}"
        )
    return read_typed(path, RunRecord, ANOTHER, STORED)


def read_dataset(folder: Path) -> DatasetRecord:
    """Read ``sorites.json`` of a dataset that was built from a suite.

    Raises:
        Damaged: It is invalid; the reason names the field.
    """
    return read_typed(folder / DATASET, DatasetRecord, ANOTHER, STORED)


def write_record(folder: Path, record: Causes) -> None:
    """Write the record of a run folder or dataset; the files that ``run.json`` lists stay listed."""
    if isinstance(record, DatasetRecord):
        write_sealed(record.as_json(), folder / DATASET)
        return
    before = listed_files(folder / RUN)
    write_sealed(record.as_json() | ({FILES: before} if before else {}), folder / RUN)


# Paths of the files that a suite names. They are stored in ``run.json``, so that a run folder works from any
# working directory and after it was moved together with them. They do not affect results and are not hashed.


Places = Mapping[str, Place]
Respell = Callable[[str], str]


def places_of(suite: Suite, folder: Path) -> dict[str, Place]:
    """Return the current paths of a suite's files, by the path as typed; names that are not paths are
    skipped.
    """
    paths = {}
    for path in _paths(suite):
        expanded = Path(path).expanduser()
        if expanded.exists():
            real = expanded.resolve()
            # There is no relative path from a store to this machine.
            beside = {} if is_on_store(folder) else {"beside": os.path.relpath(real, folder.resolve())}
            paths[path] = Place(absolute=str(real), **beside)
    return paths


def _paths(suite: Suite) -> Iterator[str]:
    specs = [
        suite.source,
        *(entry.spec for entry in suite.sources),
        suite.distance.against if suite.distance else "",
    ]
    for spec in specs:
        yield from filter(None, _parts(spec))
    for dial in suite.dials:
        yield from (value for value in dial.options.values() if isinstance(value, str) and value)
    plain = (suite.reference, suite.distance.decomposition if suite.distance else None)
    yield from (path for path in plain if path)


def _parts(spec: str) -> list[str]:
    """Return the parts of a spec that may be paths: its argument, and the values of its options."""
    path, _, query = spec.partition(":")[2].partition("?")
    return [path, *(part.partition("=")[2] for part in query.split("&"))]


def respelled(suite: Suite, respell: Respell) -> Suite:
    """Return the suite with ``respell`` applied to the paths of its sources and shifts."""
    dials = _respelled_options(suite.shifts, respell)
    several = {
        key: tuple(
            one.model_copy(update={"shifts": _respelled_options(one.shifts, respell)})
            for one in getattr(suite, key)
        )
        for key in ("grid", "compose")
    }
    sources = tuple(entry.model_copy(update={"spec": _spec(entry.spec, respell)}) for entry in suite.sources)
    return suite.model_copy(
        update={"source": _spec(suite.source, respell), "sources": sources, "shifts": dials, **several}
    )


def _respelled_options(dials: Sequence[Dial], respell: Respell) -> tuple[Dial, ...]:
    return tuple(
        dial.model_copy(
            update={"options": {k: respell(v) if isinstance(v, str) else v for k, v in dial.options.items()}}
        )
        for dial in dials
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
    respells: list[Respell] = [lambda path: path]
    if places:
        respells.insert(0, lambda path: place_now(folder, places, path, absolute_first=True))
        respells.insert(0, lambda path: place_now(folder, places, path))
    return respells


def place_now(folder: Path, places: Places, path: str, absolute_first: bool = False) -> str:
    """Return the current path of a file that a suite names; unknown paths are returned unchanged."""
    if (place := places.get(path)) is None:
        return path
    paths = [*([] if place.beside is None else [folder / place.beside]), Path(place.absolute)]
    for candidate in reversed(paths) if absolute_first else paths:
        if candidate.exists():
            return path if _same(Path(path).expanduser(), candidate) else str(candidate.resolve())
    return path


def _same(typed: Path, current: Path) -> bool:
    try:
        return typed.samefile(current)
    except OSError:
        return False

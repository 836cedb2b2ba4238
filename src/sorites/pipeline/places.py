"""The places of the files that a suite names, kept in ``run.json`` beside the suite: a run folder then works from any working
directory, and after it was moved together with them. Places are no cause of numbers and stand in no hash."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sorites.stores import is_on_store
from sorites.suite import Suite

BESIDE, ABSOLUTE = "beside", "absolute"
"""A place as seen from the run folder, and on the machine that ran it."""

Places = Mapping[str, Mapping[str, str]]
Respell = Callable[[str], str]


def places_of(suite: Suite, folder: Path) -> dict[str, dict[str, str]]:
    """Return where each path of a suite stands now, by the path as it is spelled there; names that are no paths have none."""
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
    specs = [suite.source, *(entry.spec for entry in suite.sources), suite.distance.against if suite.distance else ""]
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
    """Return the suite with the paths of its pictures and of its shifts' files spelled in the new way."""
    dials = tuple(
        dial.model_copy(update={"options": {k: respell(v) if isinstance(v, str) else v for k, v in dial.options.items()}})
        for dial in suite.shifts
    )
    sources = tuple(entry.model_copy(update={"spec": _spec(entry.spec, respell)}) for entry in suite.sources)
    return suite.model_copy(update={"source": _spec(suite.source, respell), "sources": sources, "shifts": dials})


def _spec(spec: str, respell: Respell) -> str:
    name, colon, argument = spec.partition(":")
    path, mark, query = argument.partition("?")
    options = [part.partition("=") for part in query.split("&")]
    return f"{name}{colon}{respell(path)}{mark}{'&'.join(f'{key}{eq}{respell(value)}' for key, eq, value in options)}"


def candidates(folder: Path, places: Places) -> list[Respell]:
    """Return the ways to spell the paths of a run now: as seen from its folder, then where they stood when it ran.

    The last way leaves all paths as they were typed, which holds for folders that keep no places.
    """
    orders = ((BESIDE, ABSOLUTE), (ABSOLUTE, BESIDE))
    return [*((lambda path, order=order: _now(folder, places, path, order)) for order in orders if places), lambda path: path]


def place_now(folder: Path, places: Places, path: str) -> str:
    """Return where a file that a suite names stands now; a path without a place stays as it is."""
    return _now(folder, places, path, (BESIDE, ABSOLUTE))


def _now(folder: Path, places: Places, path: str, order: tuple[str, ...]) -> str:
    kept: Mapping[str, Any] = places.get(path, {})
    for kind in order:
        place = Path(kept[kind]) if kind == ABSOLUTE and kind in kept else folder / kept[kind] if kind in kept else None
        if place is not None and place.exists():
            return path if _same(Path(path).expanduser(), place) else str(place.resolve())
    return path


def _same(typed: Path, place: Path) -> bool:
    try:
        return typed.samefile(place)
    except OSError:
        return False

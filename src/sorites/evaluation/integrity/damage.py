"""Find damaged and foreign files of a run folder, and move damaged ones away so that they are recreated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from sorites.core.errors import SoritesError
from sorites.core.messages import command, option
from sorites.core.shard_index import INDEX, PARQUET, PREDICTIONS, RunShards, forget_index, verify_index
from sorites.core.table import FACTS_FOLDER
from sorites.evaluation.facts.distance import WORK
from sorites.evaluation.facts.neighbours import FAISS
from sorites.evaluation.fit import RECORD, read_fits
from sorites.evaluation.resume import REPLACED, RETRIED
from sorites.evaluation.storage.explanations import LIST, ROOM, WEBP, read_image, read_list
from sorites.evaluation.storage.record import read_record
from sorites.evaluation.storage.shards import ENCODED, FEATURES, FITS, HEADS, SAFETENSORS, read_shard
from sorites.evaluation.storage.tensors import read_head_file, read_header, read_tensors
from sorites.io import digests
from sorites.io.files import is_temporary, locked
from sorites.io.listed import RUN, delete_listed, listed_files, listed_problems
from sorites.io.stores import StorePath

# Subfolder of a run folder to which damaged files are moved; nothing reads it.
DAMAGED_FOLDER = "damaged"
# Files and folders of a run folder that nothing is computed from.
DERIVED = (RUN, "run.lock", "report.html", REPLACED, DAMAGED_FOLDER)

REPEAT_RUN = "repeat the run"
_WITH_FEATURES = f"repeat the run with {option('keep_features')}"
_MEASURE_AGAIN = "repeat the command that measured them"
_EXPLAIN = f"type {command('explain', 'RUN')}"
_DERIVED_AGAIN = "delete it; it is made again from the shards"


@dataclass(frozen=True)
class Room:
    """A subfolder with shards: their suffix, how one is read completely, and what recreates it."""

    folder: str
    suffix: str
    read: Callable[[Path], object]
    remedy: str


ROOMS = (
    Room(PREDICTIONS, PARQUET, read_shard, REPEAT_RUN),
    Room(FEATURES, SAFETENSORS, lambda path: read_tensors(path, ("image_id",)), _WITH_FEATURES),
    Room(FITS, SAFETENSORS, lambda path: read_tensors(path, ("sample_id", "label")), REPEAT_RUN),
    Room(HEADS, SAFETENSORS, read_head_file, _WITH_FEATURES),
    Room(ENCODED, SAFETENSORS, read_header, _MEASURE_AGAIN),
    Room(ROOM, WEBP, read_image, _EXPLAIN),
)
# Sealed files, how each is read from the run folder, and what recreates it; empty if nothing does.
SEALED: Mapping[str, tuple[Callable[[Path], object], str]] = {
    RETRIED: (lambda folder: digests.read_sealed(folder / RETRIED, ""), REPEAT_RUN),
    RECORD: (read_fits, REPEAT_RUN),
    f"{ROOM}/{LIST}": (lambda folder: read_list(folder / ROOM / LIST), _EXPLAIN),
    INDEX: (verify_index, _DERIVED_AGAIN),
}


@dataclass(frozen=True)
class Damage:
    """A file that cannot be read, why, and what recreates it; empty if nothing does."""

    path: Path
    why: str
    remedy: str


def damage(folder: Path) -> list[Damage]:
    """Verify and read all files of a run folder, and return those that are damaged.

    Raises:
        Damaged: ``run.json`` is damaged, so that nothing else can be verified.
    """
    record = read_record(folder)
    verifier = digests.Verifier(folder, remember=False)
    sealed = list(_sealed_damage(folder))
    listed = listed_problems(folder, listed_files(folder / RUN), verifier)
    found = [Damage(path, why, _listed_remedy(path)) for path, why in listed.items()]
    found += _shard_damage(folder, record.run_id, verifier)
    return sorted([*sealed, *found], key=lambda problem: str(problem.path))


def _sealed_damage(folder: Path) -> Iterator[Damage]:
    for name, (read, remedy) in SEALED.items():
        if (folder / name).exists():
            try:
                read(folder)
            except SoritesError as error:
                yield Damage(folder / name, _reason(error), remedy)


def _listed_remedy(path: Path) -> str:
    return _MEASURE_AGAIN if path.parent.name == FACTS_FOLDER else REPEAT_RUN


def _shard_damage(folder: Path, run_id: str, verifier: digests.Verifier) -> Iterator[Damage]:
    paths = {path: room for room in ROOMS for path in _own_shards(folder, room)}
    work = [path for suffix in (SAFETENSORS, FAISS) for path in _files_below(folder / WORK, suffix)]
    problems = verifier.problems(digests.named_digests([*paths, *work]))
    for path, why in problems.items():
        yield Damage(path, why, paths[path].remedy if path in paths else _MEASURE_AGAIN)
    for path, room in paths.items():
        if path not in problems and (why := _content_problem(path, room, run_id)):
            yield Damage(path, why, room.remedy)


def _own_shards(folder: Path, room: Room) -> list[Path]:
    """Return the shards of a subfolder that readers use."""
    if room.folder == PREDICTIONS:
        return RunShards(folder, fresh=True, tolerant=True).files()
    return list(digests.shards_in(folder / room.folder, room.suffix).values())


def _files_below(folder: Path, suffix: str) -> list[Path]:
    if isinstance(folder, StorePath):
        return sorted(path for path in folder.files() if path.suffix == suffix)
    return sorted(folder.rglob(f"*{suffix}"))


def _content_problem(path: Path, room: Room, run_id: str) -> str:
    """Return why a file is damaged although it matches its digest; empty if it is not."""
    try:
        content = room.read(path)
    except SoritesError as error:
        return _reason(error)
    foreign = isinstance(content, pl.DataFrame) and content["run_id"].ne_missing(run_id).any()
    return "it contains rows of another run" if foreign else ""


def _reason(error: SoritesError) -> str:
    return str(error.fields.get("reason", error))


def foreign(folder: Path) -> list[Path]:
    """Return the files and folders in a run folder that are not part of the run; nothing reads them."""
    known = {*DERIVED, *SEALED, *listed_files(folder / RUN)}
    own = {path for room in ROOMS for path in _own_shards(folder, room)}
    rooms = {FACTS_FOLDER, WORK, *(room.folder for room in ROOMS)}
    found = [path for path in folder.iterdir() if path.name not in {*known, *rooms}]
    for room in rooms - {WORK}:
        inside = (folder / room).iterdir() if (folder / room).is_dir() else ()
        found += [path for path in inside if path not in own and f"{room}/{path.name}" not in known]
    return sorted(path for path in found if not is_temporary(path))


def set_aside(folder: Path) -> dict[Path, tuple[Damage, Path | None]]:
    """Move damaged files into the subfolder ``damaged``, so that they are recreated; nothing is deleted.

    Facts and their metadata are moved together.

    Returns:
        By file: the damage, and the new path, or None if it must be restored from a backup or is missing.
    """
    moved: dict[Path, tuple[Damage, Path | None]] = {}
    with locked(folder):
        problems = damage(folder)
        if any(problem.path.parent.name == PREDICTIONS for problem in problems):
            forget_index(folder)
        for problem in problems:
            for path in _together(problem.path) if problem.remedy else ():
                if path.exists():
                    aside = folder / DAMAGED_FOLDER / path.parent.relative_to(folder)
                    moved[path] = problem, _move(path, aside)
                if path.parent.name == FACTS_FOLDER:
                    delete_listed(folder / RUN, f"{FACTS_FOLDER}/{path.name}")
            moved.setdefault(problem.path, (problem, None))
    return moved


def _together(path: Path) -> tuple[Path, ...]:
    if path.parent.name != FACTS_FOLDER:
        return (path,)
    return path, path.with_suffix(".json" if path.suffix == PARQUET else PARQUET)


def _move(path: Path, into: Path) -> Path:
    """Move a file into a folder; number the name if it is taken."""
    try:
        into.mkdir(parents=True, exist_ok=True)
        names = (path.name, *(f"{path.stem}~{n}{path.suffix}" for n in range(2, 10_000)))
        target = next(into / name for name in names if not (into / name).exists())
        return path.rename(target)
    except OSError as error:
        raise SoritesError(f"cannot move {path} to {into}: {error.strerror or error}") from error


def lines(damaged: list[Damage]) -> list[str]:
    """Return a line for each damaged file, at most ten and a count of the rest."""
    more = [f"and {len(damaged) - 10} more"] if len(damaged) > 10 else []
    return [f"{problem.path} cannot be read: {problem.why}" for problem in damaged[:10]] + more

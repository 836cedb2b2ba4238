"""Make a run folder of prediction files: one shard per file, a manifest of their images, and what it was made from."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sorites.errors import SoritesError, UnknownName
from sorites.files import locked
from sorites.labels import Labels
from sorites.labels import labels as labels_of
from sorites.pipeline.folder import MANIFEST, read_info, write_info
from sorites.pipeline.identity import Info
from sorites.pipeline.imports.cells import ROW, Sheet, read_sheet
from sorites.pipeline.imports.cns import read_cns
from sorites.pipeline.imports.counts import read_counts
from sorites.pipeline.imports.images import Images
from sorites.pipeline.imports.names import Naming, read_naming
from sorites.pipeline.imports.rows import SHARED, SOURCE, table_rows
from sorites.pipeline.shards import slug
from sorites.reading.places import exists, is_dir, is_file, resolved
from sorites.rng import digest
from sorites.suite import parse
from sorites.table import write

READERS: dict[str, Callable[[Path, Naming], Sheet]] = {"csv": read_sheet, "cns": read_cns, "counts": read_counts}
"""The layouts that can be imported, by the name that ``--as`` gives them."""

SUFFIXES = (".csv", ".tsv", ".parquet")
VERSION = 1
"""Rises when the same files would become other rows."""


@dataclass(frozen=True)
class Imported:
    """A run folder made of prediction files; ``worked`` is false where it was complete before."""

    folder: Path
    worked: bool
    called: dict[str, str]
    """The table's columns with what the last file read calls them."""


def import_predictions(
    files: Sequence[str | Path],
    kind: str,
    out: str | Path,
    *,
    labels: str | Sequence[str] = "imagenet",
    columns: str | Path | None = None,
    model: str | None = None,
    source: str | None = None,
    reference: str | None = None,
) -> Imported:
    """Turn prediction files into the run folder ``out``, all of it or nothing.

    The same files and options again find their work done; a folder of other content is refused. ``reference`` may be added later.
    """
    if kind not in READERS:
        raise UnknownName("layout", kind, READERS, f"--as is one of {', '.join(READERS)}.")
    folder, paths = Path(out), found_files(files)
    naming = read_naming(columns).with_constants(model=model, source=source)
    names = labels_of(labels)
    causes = _causes(paths, kind, naming, names)
    run_id = digest(json.dumps(causes, sort_keys=True), size=8).hex()
    shards = {path: f"import-{place:05d}-{slug(path.stem)}.parquet" for place, path in enumerate(paths)}
    if _is_there(folder, run_id, causes, shards.values()):
        return Imported(folder, _with_reference(folder, reference), {})
    with _beside(folder) as draft:
        images, called = Images(run_id), {}
        for path, shard in shards.items():
            sheet = READERS[kind](path, naming)
            called = dict(sheet.called)
            kept = images.add(path.name, table_rows(sheet, names, naming.higher))
            write(kept.drop(ROW, SHARED), draft / "predictions" / shard)
        info = _info(run_id, causes, images, names, folder, reference)
        write(images.manifest().select(MANIFEST.names()).cast(MANIFEST), draft / "manifest.parquet")
        write_info(draft, info)
        _put(draft, folder)
    return Imported(folder, True, called)


def found_files(given: Sequence[str | Path]) -> list[Path]:
    """Return the files named, and those below the folders named, ordered by name and content so that their order says nothing."""
    found: dict[Path, None] = {}
    for item in map(Path, given):
        if is_dir(item):
            below = sorted(path for path in item.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
            if not below:
                raise SoritesError(f"there are no files {', '.join(SUFFIXES)} in {item}")
            found |= dict.fromkeys(below)
        elif is_file(item):
            found[item] = None
        else:
            raise SoritesError(f"wanted a file of predictions, got {item}, which does not exist")
    if not found:
        raise SoritesError("name at least one file of predictions")
    return sorted(found, key=lambda path: (path.name, _content(path)))


def _content(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest()


def _causes(paths: Sequence[Path], kind: str, naming: Naming, names: Labels) -> Info:
    return {
        "as": kind,
        "files": [[path.name, _content(path)] for path in paths],
        "columns": dict(naming.columns),
        "constants": dict(naming.constants),
        "higher": naming.higher,
        "labels": digest(*names.ids, size=8).hex(),
        "version": VERSION,
    }


def _is_there(folder: Path, run_id: str, causes: Info, shards: Any) -> bool:
    """Return whether the folder holds this import complete; one that holds anything else is refused."""
    if not is_file(folder / "run.json"):
        if exists(folder) and (not is_dir(folder) or any(folder.iterdir())):
            raise SoritesError(f"{folder} is not empty and not a run folder; choose another --out DIR")
        return False
    before = read_info(folder)
    if before["run_id"] != run_id:
        made = before.get("imported")
        differs = "it was not imported" if made is None else _difference(made, causes)
        raise SoritesError(f"{folder} holds another run ({differs}). Choose another --out DIR.")
    return (folder / "manifest.parquet").exists() and all((folder / "predictions" / shard).exists() for shard in shards)


def _difference(there: Info, here: Info) -> str:
    key = next((key for key in here if there.get(key) != here[key]), "version")
    if key != "files":
        return f"{key}: {json.dumps(there.get(key))} there, {json.dumps(here[key])} here"
    theirs = dict(map(tuple, there[key]))
    other = next((name for name, content in here[key] if theirs.get(name) != content), None)
    return f"{other} has other content" if other in theirs else f"files: {len(there[key])} there, {len(here[key])} here"


def _info(run_id: str, causes: Info, images: Images, names: Labels, folder: Path, reference: str | None) -> Info:
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", resolved(folder).name).strip("-") or "import"
    suite = parse(
        {
            "name": name,
            "about": f"Predictions imported from {len(causes['files'])} file{'s' * (len(causes['files']) > 1)}.",
            "source": _source(run_id, causes["as"], images.sources()),
            "labels": "imagenet" if names == labels_of("imagenet") else names.ids,
            "models": images.models(),
            "reference": _known_reference(reference, images.models()),
        },
        "import",
    )
    return {
        "run_id": run_id,
        "imported": {**causes, "rows": images.rows},
        "suite": suite.model_dump(mode="json"),
        "labels": causes["labels"],
        "stops": {},
        "shifts": {},
        "models": dict.fromkeys(images.models(), "imported"),
        "versions": {},
    }


def _source(run_id: str, kind: str, sources: Sequence[str]) -> str:
    """Runs of one named source share their pictures in a report; what has no name, or was only counted, is shared with nobody."""
    shared = kind != "counts" and SOURCE not in sources
    return f"imported:{', '.join(sources) if shared else run_id}"


def _known_reference(reference: str | None, models: Sequence[str]) -> str | None:
    if reference is not None and reference not in models and not reference.endswith(".csv"):
        raise UnknownName("model", reference, models, f"The files have {', '.join(models)}.")
    return reference


def _with_reference(folder: Path, reference: str | None) -> bool:
    """Name the reference model of a folder that is there already; return false, because no row was made."""
    info = read_info(folder)
    if reference is not None and info["suite"].get("reference") != reference:
        with locked(folder):
            named = _known_reference(reference, list(info["models"]))
            write_info(folder, {**info, "suite": {**info["suite"], "reference": named}})
    return False


@contextlib.contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """Yield a folder beside the one to be made, which is gone afterwards."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".sorites-", suffix=".tmp", dir=folder.parent))
    except OSError as error:
        raise SoritesError(f"cannot make the run folder {folder}: {error}") from error
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _put(draft: Path, folder: Path) -> None:
    """Give the finished folder its name; where this import stands there already, put in the shards that it lacks."""
    if (folder / "run.json").exists():
        with locked(folder):
            for made in (*(draft / "predictions").iterdir(), draft / "manifest.parquet"):
                place = folder / made.relative_to(draft)
                if not place.exists():
                    place.parent.mkdir(exist_ok=True)
                    made.replace(place)
        return
    try:
        if folder.exists():
            folder.rmdir()
        draft.chmod(0o755)
        draft.rename(folder)
    except OSError as error:
        raise SoritesError(f"cannot make the run folder {folder}: {error}") from error

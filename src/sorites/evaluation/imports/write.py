"""Make a run folder of prediction files: one shard per file, a manifest of their images, and what
it was made from.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from sorites.core.errors import SoritesError, UnknownName
from sorites.core.labels import Labels
from sorites.core.labels import labels as labels_of
from sorites.core.rng import digest
from sorites.core.table import KEY, write
from sorites.evaluation.imports.cells import ROW, Naming, Sheet, read_naming, read_sheet
from sorites.evaluation.imports.published import read_cns, read_counts
from sorites.evaluation.imports.rows import SHARED, SOURCE, table_rows
from sorites.evaluation.storage.folder import MANIFEST, read_info, write_info
from sorites.evaluation.storage.record import Info
from sorites.evaluation.storage.shards import slug
from sorites.io.files import locked
from sorites.io.paths import exists, is_dir, is_file, resolved
from sorites.suites.suite import parse

# The images of all files of an import, gathered file by file: each stands once in the manifest and once
# per model and output.


_VERDICT = ("pred", "correct", "error")
# The columns on which all models must agree for an image.
_SAME = ("source", "sample_id", "shift", "severity", "params", "label", "accept")


@dataclass
class Images:
    """The rows read so far: their keys by hash, and one row per image."""

    run_id: str
    rows: int = 0
    _files: list[str] = field(default_factory=list)
    _keys: list[pl.DataFrame] = field(default_factory=list)
    _images: list[pl.DataFrame] = field(default_factory=list)
    _models: dict[str, None] = field(default_factory=dict)

    def add(self, file: str, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of a file that say something new; a row that stands twice, or contradicts
        another, is an error.
        """
        self._files.append(file)
        told = rows.with_columns(run_id=pl.lit(self.run_id))
        hashed = told.select(
            ROW,
            SHARED,
            key=pl.struct(KEY).hash(),
            verdict=pl.struct(_VERDICT).hash(),
            file=pl.lit(len(self._files) - 1),
        )
        ours = pl.col("key").is_in(hashed["key"].unique().implode())
        before = pl.concat([hashed.clear(), *(part.filter(ours) for part in self._keys)])
        self._refuse_twice(pl.concat([before, hashed]), told)
        fresh = hashed["key"].is_first_distinct() & ~hashed["key"].is_in(before["key"].implode())
        kept = told.filter(fresh)
        self._keys.append(hashed.filter(fresh))
        self._note_images(kept)
        self._models |= dict.fromkeys(kept["model"].unique(maintain_order=True))
        self.rows += kept.height
        return kept

    def _refuse_twice(self, keys: pl.DataFrame, told: pl.DataFrame) -> None:
        """Refuse a key that stands twice, unless every row of it may be repeated and says the same."""
        twice = keys.filter(pl.col("key").is_duplicated())
        same = (pl.col("verdict").n_unique().over("key") == 1) & (pl.col(SHARED).all().over("key"))
        bad = twice.filter(~same)
        if not bad.height:
            return
        first, second = bad.filter(pl.col("key") == bad["key"][0]).head(2).to_dicts()
        row = told.filter(pl.col(ROW) == second[ROW]).to_dicts()[0]
        what = f"{row['sample_id']} under {row['shift']} by {row['model']}"
        also = f"row {first[ROW]} of {self._files[first['file']]}"
        raise SoritesError(
            f"{self._files[second['file']]}, row {second[ROW]}, column sample_id: {what} stands twice, see"
            f" {also}"
        )

    def _note_images(self, rows: pl.DataFrame) -> None:
        accept = pl.col("accept").cast(pl.List(pl.String)).list.join(" ")
        told = {
            "framed": pl.lit(False),
            "same": pl.struct(*_SAME[:-1], accept).hash(),
            "file": pl.lit(len(self._files) - 1),
        }
        columns = [name for name in MANIFEST if name not in ("attrs", "framed")]
        noted = rows.filter(~pl.col("probe")).select(ROW, *columns, pl.col("attrs").fill_null([]), **told)
        self._images.append(noted.unique(["image_id", "same"], keep="first", maintain_order=True))

    def manifest(self) -> pl.DataFrame:
        """Return one row per image; files that say different objects of one image are an error."""
        everything = pl.concat(self._images)
        differ = everything.filter(pl.col("same").n_unique().over("image_id") > 1)
        if differ.height:
            pair = differ.filter(pl.col("image_id") == differ["image_id"][0]).unique(
                "same", keep="first", maintain_order=True
            )
            first, second = pair.head(2).to_dicts()
            name = next(name for name in _SAME if first[name] != second[name])
            also = f"row {first[ROW]} of {self._files[first['file']]} says {first[name]}"
            raise SoritesError(
                f"{self._files[second['file']]}, row {second[ROW]}, column {name}: {second[name]}, but {also}"
            )
        return everything.unique("image_id", keep="first", maintain_order=True)

    def models(self) -> tuple[str, ...]:
        """Return the models, in the order of the files."""
        return tuple(self._models)

    def sources(self) -> list[str]:
        """Return the names of the sources."""
        return sorted(pl.concat([part["source"] for part in self._images]).unique())


# The layouts that can be imported, by the name that ``--as`` gives them.
READERS: dict[str, Callable[[Path, Naming], Sheet]] = {
    "csv": read_sheet,
    "cns": read_cns,
    "counts": read_counts,
}

SUFFIXES = (".csv", ".tsv", ".parquet")
# Rises when the same files would become other rows.
VERSION = 1


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

    The same files and options again find their work done; a folder of other content is refused.
    ``reference`` may be added later.
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
    """Return the files named, and those below the folders named, ordered by name and content so
    that their order says nothing.
    """
    found: dict[Path, None] = {}
    for item in map(Path, given):
        if is_dir(item):
            below = sorted(
                path for path in item.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file()
            )
            if not below:
                raise SoritesError(f"there are no files {', '.join(SUFFIXES)} in {item}")
            found |= dict.fromkeys(below)
        elif is_file(item):
            found[item] = None
        else:
            raise SoritesError(f"expected a file of predictions, got {item}, which does not exist")
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
    return (folder / "manifest.parquet").exists() and all(
        (folder / "predictions" / shard).exists() for shard in shards
    )


def _difference(there: Info, here: Info) -> str:
    key = next((key for key in here if there.get(key) != here[key]), "version")
    if key != "files":
        return f"{key}: {json.dumps(there.get(key))} there, {json.dumps(here[key])} here"
    theirs = dict(map(tuple, there[key]))
    other = next((name for name, content in here[key] if theirs.get(name) != content), None)
    return (
        f"{other} has other content"
        if other in theirs
        else f"files: {len(there[key])} there, {len(here[key])} here"
    )


def _info(
    run_id: str, causes: Info, images: Images, names: Labels, folder: Path, reference: str | None
) -> Info:
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", resolved(folder).name).strip("-") or "import"
    suite = parse(
        {
            "name": name,
            "about": (
                f"Predictions imported from {len(causes['files'])} file{'s' * (len(causes['files']) > 1)}."
            ),
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
        "settings": {},
        "shifts": {},
        "models": dict.fromkeys(images.models(), "imported"),
        "versions": {},
    }


def _source(run_id: str, kind: str, sources: Sequence[str]) -> str:
    """Runs of one named source share their images in a report; what has no name, or was only
    counted, is shared with nobody.
    """
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
    """Give the finished folder its name; where this import stands there already, put in the shards
    that it lacks.
    """
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

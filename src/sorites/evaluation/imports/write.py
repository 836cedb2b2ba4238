"""Write prediction files as a run folder: one shard per file, a manifest of the images, and metadata."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from sorites.core.errors import SoritesError, UnknownName
from sorites.core.labels import Labels
from sorites.core.labels import labels as labels_of
from sorites.core.messages import option
from sorites.core.rng import digest
from sorites.core.shard_index import PARQUET, PREDICTIONS
from sorites.core.table import KEY, parquet, write_shard
from sorites.evaluation.imports import coco
from sorites.evaluation.imports.published import read_cns, read_counts
from sorites.evaluation.imports.read import ROW, Naming, Part, Reading, Sheet, read_naming, read_sheet
from sorites.evaluation.imports.rows import SHARED, SOURCE, table_rows
from sorites.evaluation.storage.folder import MANIFEST, MANIFEST_FILE
from sorites.evaluation.storage.record import read_record, write_record
from sorites.evaluation.storage.schema import ImportRecord, RunRecord, first_difference, hash_of
from sorites.evaluation.storage.shards import slug
from sorites.io.digests import shards_in
from sorites.io.files import locked
from sorites.io.listed import RUN, write_listed
from sorites.io.paths import exists, is_dir, is_file, resolve
from sorites.suites.suite import parse

_OUTCOME_COLUMNS = ("pred", "correct", "error")
# The columns in which all rows of an image must agree.
_IMAGE_COLUMNS = ("source", "sample_id", "shift", "severity", "params", "label", "accept")


@dataclass
class Images:
    """The rows read so far: hashes of their keys, and one row per image."""

    run_id: str
    rows: int = 0
    _files: list[str] = field(default_factory=list)
    _keys: list[pl.DataFrame] = field(default_factory=list)
    _images: list[pl.DataFrame] = field(default_factory=list)
    _models: dict[str, None] = field(default_factory=dict)

    def add(self, file: str, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the new rows of a file.

        Raises:
            SoritesError: If a row is repeated or contradicts another one.
        """
        self._files.append(file)
        with_run = rows.with_columns(run_id=pl.lit(self.run_id))
        hashed = with_run.select(
            ROW,
            SHARED,
            key=pl.struct(KEY).hash(),
            verdict=pl.struct(_OUTCOME_COLUMNS).hash(),
            file=pl.lit(len(self._files) - 1),
        )
        in_file = pl.col("key").is_in(hashed["key"].unique().implode())
        before = pl.concat([hashed.clear(), *(part.filter(in_file) for part in self._keys)])
        self._refuse_duplicates(pl.concat([before, hashed]), with_run)
        is_new = hashed["key"].is_first_distinct() & ~hashed["key"].is_in(before["key"].implode())
        new_rows = with_run.filter(is_new)
        self._keys.append(hashed.filter(is_new))
        self._note_images(new_rows)
        self._models |= dict.fromkeys(new_rows["model"].unique(maintain_order=True))
        self.rows += new_rows.height
        return new_rows

    def _refuse_duplicates(self, keys: pl.DataFrame, rows: pl.DataFrame) -> None:
        """Raise an error for a repeated key, unless all its rows may be repeated and are equal."""
        duplicates = keys.filter(pl.col("key").is_duplicated())
        same = (pl.col("verdict").n_unique().over("key") == 1) & (pl.col(SHARED).all().over("key"))
        conflicts = duplicates.filter(~same)
        if not conflicts.height:
            return
        first, second = conflicts.filter(pl.col("key") == conflicts["key"][0]).head(2).to_dicts()
        row = rows.filter(pl.col(ROW) == second[ROW]).to_dicts()[0]
        what = f"{row['sample_id']} under {row['shift']} by {row['model']}"
        also = f"row {first[ROW]} of {self._files[first['file']]}"
        raise SoritesError(
            f"{self._files[second['file']]}, row {second[ROW]}, column sample_id: {what} appears twice, see"
            f" {also}"
        )

    def _note_images(self, rows: pl.DataFrame) -> None:
        accept = pl.col("accept").cast(pl.List(pl.String)).list.join(" ")
        extra = {
            "framed": pl.lit(False),
            "same": pl.struct(*_IMAGE_COLUMNS[:-1], accept).hash(),
            "file": pl.lit(len(self._files) - 1),
        }
        columns = [name for name in MANIFEST if name not in ("attrs", "framed")]
        images = rows.filter(~pl.col("probe")).select(ROW, *columns, pl.col("attrs").fill_null([]), **extra)
        self._images.append(images.unique(["image_id", "same"], keep="first", maintain_order=True))

    def manifest(self) -> pl.DataFrame:
        """Return one row per image; raise an error if files contradict each other."""
        images = pl.concat(self._images)
        conflicts = images.filter(pl.col("same").n_unique().over("image_id") > 1)
        if conflicts.height:
            pair = conflicts.filter(pl.col("image_id") == conflicts["image_id"][0]).unique(
                "same", keep="first", maintain_order=True
            )
            first, second = pair.head(2).to_dicts()
            name = next(name for name in _IMAGE_COLUMNS if first[name] != second[name])
            also = f"row {first[ROW]} of {self._files[first['file']]} has {first[name]}"
            raise SoritesError(
                f"{self._files[second['file']]}, row {second[ROW]}, column {name}: {second[name]}, but {also}"
            )
        return images.unique("image_id", keep="first", maintain_order=True)

    def models(self) -> tuple[str, ...]:
        """Return the models in the order of the files."""
        return tuple(self._models)

    def sources(self) -> list[str]:
        """Return the names of the sources."""
        return sorted(pl.concat([part["source"] for part in self._images]).unique())


# The readers by the name of the layout; results of detectors (``coco``) need annotations too.
READERS: dict[str, Callable[[Path, Naming], Sheet]] = {
    "csv": read_sheet,
    "cns": read_cns,
    "counts": read_counts,
}

SUFFIXES = (".csv", ".tsv", ".parquet")
# Increase this when the same files would become different rows.
VERSION = 1


@dataclass(frozen=True)
class Imported:
    """An imported run.

    Attributes:
        folder: The run folder.
        worked: False if the folder was complete before.
        called: The last file's name of each column of the table.
    """

    folder: Path
    worked: bool
    called: dict[str, str]


def import_predictions(
    files: Sequence[str | Path],
    kind: str,
    out: str | Path,
    *,
    labels: str | Sequence[str] | None = None,
    columns: str | Path | None = None,
    model: str | None = None,
    source: str | None = None,
    reference: str | None = None,
    annotations: str | Path | Sequence[str | Path] = (),
    first_class: int | None = None,
) -> Imported:
    """Write prediction files as the run folder ``out``, all of it or nothing.

    Importing the same files with the same options again does nothing, except that ``reference`` may be
    added later.

    Args:
        files: Files, or folders with files.
        kind: The layout: "csv", "cns", "counts" or "coco".
        out: The run folder.
        labels: The classes of the predictions; default: ImageNet's, or for "coco" those of the annotations.
        columns: A TOML file that names columns (see ``read_naming``).
        model: The model of all rows.
        source: The source of all rows.
        reference: The reference model of corruption errors.
        annotations: For "coco": the annotation files (see ``imports.coco``).
        first_class: For "coco": the number of the first class, where classes are numbered in order.

    Raises:
        SoritesError: If a file cannot be imported, or the folder contains something else.
    """
    folder, naming = Path(out), read_naming(columns).with_constants(model=model, source=source)
    if kind == coco.KIND:
        listed = [annotations] if isinstance(annotations, str | Path) else annotations
        reading = coco.coco_reading(files, listed, labels, naming.constants, first_class)
    else:
        reading = _sheets(files, kind, naming, labels)
    names = reading.labels
    files_read = _import_of(reading, kind, naming, first_class)
    run_id = hash_of(files_read.identity())
    shards = {
        f"import-{index:05d}-{slug(Path(part.name).stem)}": part for index, part in enumerate(reading.parts)
    }
    if _is_complete(folder, run_id, files_read, shards):
        return Imported(folder, _with_reference(folder, reference), {})
    with _draft_folder(folder) as draft:
        images, called = Images(run_id), {}
        for shard, part in shards.items():
            sheet = part.read()
            called = dict(sheet.called)
            new_rows = images.add(part.name, table_rows(sheet, names, naming.higher))
            write_shard(new_rows.drop(ROW, SHARED), draft, shard)
        record = _record(run_id, files_read, images, names, folder, reference)
        manifest = parquet(images.manifest().select(MANIFEST.names()).cast(MANIFEST))
        digest_ = write_listed(draft / RUN, MANIFEST_FILE, manifest)
        write_record(draft, record.having(files={MANIFEST_FILE: (digest_,)}))
        _publish(draft, folder)
    return Imported(folder, True, called)


def _sheets(
    files: Sequence[str | Path], kind: str, naming: Naming, labels: str | Sequence[str] | None
) -> Reading:
    """Return how to read the files of a layout with rows."""
    if kind not in READERS:
        layouts = (*READERS, coco.KIND)
        raise UnknownName("layout", kind, layouts, f"The layouts are {', '.join(layouts)}.")
    paths, reader = found_files(files), READERS[kind]
    return Reading(
        tuple((path.name, _content(path)) for path in paths),
        [Part(path.name, functools.partial(reader, path, naming)) for path in paths],
        labels_of(labels or "imagenet"),
    )


def found_files(items: Sequence[str | Path]) -> list[Path]:
    """Return the named files and those in the named folders, sorted by name and content so that their
    order does not matter.
    """
    selected: dict[Path, None] = {}
    for item in map(Path, items):
        if is_dir(item):
            below = sorted(
                path for path in item.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file()
            )
            if not below:
                raise SoritesError(f"{item} has no {', '.join(SUFFIXES)} files")
            selected |= dict.fromkeys(below)
        elif is_file(item):
            selected[item] = None
        else:
            raise SoritesError(f"expected a file of predictions, but {item} does not exist")
    if not selected:
        raise SoritesError("name at least one file of predictions")
    return sorted(selected, key=lambda path: (path.name, _content(path)))


def _content(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest()


def _import_of(reading: Reading, kind: str, naming: Naming, first_class: int | None) -> ImportRecord:
    numbered = {} if first_class is None else {"first_class": first_class}
    return ImportRecord(
        kind=kind,
        files=reading.files,
        columns=dict(naming.columns),
        constants={**naming.constants, **numbered},
        higher=naming.higher,
        labels=digest(*reading.labels.ids, size=8).hex(),
        version=VERSION,
    )


def _is_complete(folder: Path, run_id: str, current: ImportRecord, shards: Iterable[str]) -> bool:
    """Return whether the folder has this import complete; raise an error if it contains something else."""
    if not is_file(folder / RUN):
        if exists(folder) and (not is_dir(folder) or any(folder.iterdir())):
            raise SoritesError(
                f"{folder} is not empty and not a run folder; choose another {option('out', 'DIR')}"
            )
        return False
    before = read_record(folder)
    if before.run_id != run_id:
        previous = before.imported
        differs = "it was not imported" if previous is None else _difference(previous, current)
        raise SoritesError(
            f"{folder} contains another run ({differs}). Choose another {option('out', 'DIR')}."
        )
    present = shards_in(folder / PREDICTIONS, PARQUET)
    return (folder / MANIFEST_FILE).exists() and all(stem in present for stem in shards)


def _difference(previous: ImportRecord, current: ImportRecord) -> str:
    there, here = previous.identity(), current.identity()
    key = next((key for key in here if there.get(key) != here[key]), "version")
    if key != "files":
        return first_difference(there.get(key), here[key], key)
    theirs = dict(previous.files)
    changed = next((name for name, content in current.files if theirs.get(name) != content), None)
    return (
        f"{changed} has different content"
        if changed in theirs
        else f"files: {len(previous.files)} there, {len(current.files)} here"
    )


def _record(
    run_id: str, imported: ImportRecord, images: Images, names: Labels, folder: Path, reference: str | None
) -> RunRecord:
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", resolve(folder).name).strip("-") or "import"
    suite = parse(
        {
            "name": name,
            "about": (
                f"Predictions imported from {len(imported.files)} file{'s' * (len(imported.files) > 1)}."
            ),
            "source": _source(run_id, imported.kind, images.sources()),
            "labels": "imagenet" if names == labels_of("imagenet") else names.ids,
            "models": images.models(),
            "reference": _known_reference(reference, images.models()),
        },
        "import",
    )
    return RunRecord(
        run_id=run_id,
        imported=imported.having(rows=images.rows),
        suite=suite,
        labels=imported.labels,
        settings={},
        shifts={},
        models=dict.fromkeys(images.models(), "imported"),
        # ImageNet's classes are the default, so they say nothing about the classes of the model.
        answers={} if suite.labels == "imagenet" else dict.fromkeys(images.models(), len(names)),
        versions={},
    )


def _source(run_id: str, kind: str, sources: Sequence[str]) -> str:
    """Return the name of the suite's source; runs of one named source share their images in a report,
    counts and unnamed sources do not.
    """
    shared = kind != "counts" and SOURCE not in sources
    return f"imported:{', '.join(sources) if shared else run_id}"


def _known_reference(reference: str | None, models: Sequence[str]) -> str | None:
    if reference is not None and reference not in models and not reference.endswith(".csv"):
        raise UnknownName("model", reference, models, f"The files have {', '.join(models)}.")
    return reference


def _with_reference(folder: Path, reference: str | None) -> bool:
    """Set the reference model of an existing folder; return False, because no rows were written."""
    record = read_record(folder)
    if reference is not None and record.suite.reference != reference:
        with locked(folder):
            named = _known_reference(reference, list(record.models))
            suite = record.suite.model_copy(update={"reference": named})
            write_record(folder, record.having(suite=suite))
    return False


@contextlib.contextmanager
def _draft_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder beside the run folder, removed afterwards."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".sorites-", suffix=".tmp", dir=folder.parent))
    except OSError as error:
        raise SoritesError(f"cannot make the run folder {folder}: {error}") from error
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _publish(draft: Path, folder: Path) -> None:
    """Rename the draft to the run folder; where the same import exists already, add the shards it lacks."""
    if (folder / RUN).exists():
        with locked(folder):
            present = shards_in(folder / PREDICTIONS, PARQUET)
            for stem, file in shards_in(draft / PREDICTIONS, PARQUET).items():
                if stem not in present:
                    target = folder / file.relative_to(draft)
                    target.parent.mkdir(exist_ok=True)
                    file.replace(target)
            if not (folder / MANIFEST_FILE).exists():
                write_listed(folder / RUN, MANIFEST_FILE, (draft / MANIFEST_FILE).read_bytes())
        return
    try:
        if folder.exists():
            folder.rmdir()
        draft.chmod(0o755)
        draft.rename(folder)
    except OSError as error:
        raise SoritesError(f"cannot make the run folder {folder}: {error}") from error

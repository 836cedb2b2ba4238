"""The result table: one row per image, model and output.

Long, never wide: a new scorer or model adds rows, not columns. Null means missing, never 0. A run stores the
table as immutable parquet shards that any tool can read.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from sorites.core.errors import Damaged, SoritesError
from sorites.core.messages import command
from sorites.io.files import local_copies, read_json, write_bytes
from sorites.io.stores import to_path

BOX = pl.Struct(
    {
        "x0": pl.Float32,
        "y0": pl.Float32,
        "x1": pl.Float32,
        "y1": pl.Float32,
        "label": pl.Int32,
        "conf": pl.Float32,
    }
)
# A ground-truth box; area and crowd are null if unknown.
GROUND_TRUTH = pl.Struct(
    {**{field.name: field.dtype for field in BOX.fields}, "area": pl.Float64, "crowd": pl.Boolean}
)

_COLUMNS: dict[str, pl.DataType | type[pl.DataType]] = {
    "run_id": pl.String,
    "source": pl.String,
    "split": pl.String,
    "sample_id": pl.String,
    "image_id": pl.String,
    "valid": pl.Boolean,  # false: rejected by a filter; null: not filtered
    "probe": pl.Boolean,  # added by refining a failure severity; used by failure metrics only
    "label": pl.Int32,
    "accept": pl.List(pl.Int32),
    "known": pl.Boolean,  # the label is in the model's label space
    "ground_truth": pl.List(GROUND_TRUTH),
    "attrs": pl.List(pl.Struct({"key": pl.String, "value": pl.String, "common": pl.Boolean})),
    "family": pl.String,
    "shift": pl.String,
    "severity": pl.Float64,
    "level": pl.Int32,
    "params": pl.String,  # JSON
    "seed": pl.Int64,
    "sem_level": pl.Int32,
    "cov_level": pl.Int32,
    "degrees": pl.List(pl.Struct({"measure": pl.String, "value": pl.Float64})),
    "model": pl.String,
    "output": pl.String,  # label | boxes | ood
    "scorer": pl.String,
    "pred": pl.Int32,
    "conf": pl.Float32,
    "top5": pl.List(pl.Int32),
    "correct": pl.Boolean,
    "score": pl.Float32,
    "boxes": pl.List(BOX),
    "error": pl.String,
}
SCHEMA = pl.Schema(_COLUMNS)
KEY = ("run_id", "image_id", "model", "output", "scorer")
# Part of the name of files that contain several merged shards.
MERGED_MARK = "~"
# Columns that may be computed after the run; stored in ``facts/`` and joined by ``image_id`` on reading.
FACTS = ("valid", "level", "sem_level", "cov_level", "degrees", "attrs")

# Id prefix of samples reconstructed from published counts; they cannot be matched across settings.
COUNTED_PREFIX = "counted/"

Table = pl.LazyFrame | pl.DataFrame


def write(frame: pl.DataFrame, path: Path) -> None:
    """Write a parquet file atomically."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd")
    write_bytes(buffer.getvalue(), path)


def rows(records: Sequence[dict[str, object]]) -> pl.DataFrame:
    """Return records as rows of the table; absent columns are null."""
    columns = {name: [record.get(name) for record in records] for name in SCHEMA}
    return pl.DataFrame(columns, schema=SCHEMA)


def read(run: str | Path) -> pl.LazyFrame:
    """Return the table of a run folder lazily, with facts computed later joined in.

    Raises:
        SoritesError: The folder has no predictions.
        Damaged: A shard is truncated or not a parquet file. Damage inside a shard is found only when its
            values are read.
    """
    folder = to_path(run)
    shards = shard_files(folder)
    if not shards:
        raise SoritesError(
            f"no predictions in {folder}. Create some with {command('run', 'SUITE', out=str(folder))}"
        )
    local_paths = local_copies(shards)
    for path, local_path in zip(shards, local_paths, strict=True):
        if problem := _file_problem(local_path, SCHEMA):
            raise Damaged(path, problem, repair(folder))
    table = scan(local_paths)
    facts = [_scan_facts(path, folder) for path in sorted((folder / "facts").glob("*.parquet"))]
    for frame in [
        *(frame.drop("degrees", "valid", "attrs", strict=False) for frame in facts),
        *_merge_validity(facts),
        *_merge_degrees(facts),
    ]:
        table = _join_facts(table, frame)
    return _join_attrs(table, facts)


def rejected_images(run: str | Path) -> pl.Series | None:
    """Return the ids of the images that filters of a run rejected, or None if there are none."""
    folder = to_path(run)
    facts = [_scan_facts(path, folder) for path in sorted((folder / "facts").glob("*.parquet"))]
    rejected = [fact.filter(~pl.col("valid")).select("image_id").collect() for fact in _merge_validity(facts)]
    return rejected[0]["image_id"] if rejected and rejected[0].height else None


# File of a run folder that lists which shards were merged into which file, and their row counts.
COMPACTED = "compacted.json"


def read_compacted(folder: Path) -> dict[str, list[tuple[str, int]]]:
    """Return the merged files of a run by name, each with its shards and their row counts."""
    path = folder / COMPACTED
    if not path.exists():
        return {}
    try:
        return {
            str(name): [(str(stem), int(rows)) for stem, rows in shards]
            for name, shards in read_json(path).items()
        }
    except (SoritesError, AttributeError, TypeError, ValueError) as error:
        raise Damaged(
            path, error, "Restore it from a backup: it lists the contents of the merged prediction files."
        ) from error


def shard_files(folder: Path) -> list[Path]:
    """Return the parquet files that make up the table of a run, in order: merged files, and shards that are
    not merged.
    """
    files = sorted((folder / "predictions").glob("*.parquet"))
    merged = read_compacted(folder)
    if not merged:
        return [path for path in files if MERGED_MARK not in path.name]
    covered = {f"{stem}.parquet" for shards in merged.values() for stem, _ in shards}
    return [
        path
        for path in files
        if path.name in merged or (MERGED_MARK not in path.name and path.name not in covered)
    ]


def scan(shards: Sequence[Path], **options: Any) -> pl.LazyFrame:
    """Return the rows of shards as they were written, lazily."""
    local_paths = local_copies(shards)
    return pl.scan_parquet(local_paths, schema=SCHEMA, glob=False, **options)


def repair(folder: str | Path) -> str:
    """Return a sentence that says how to repair a run folder."""
    return f"Type: {command('check', str(folder), repair=True)}"


def read_file(path: Path, schema: Mapping[str, object], needed: Collection[str], remedy: str) -> pl.DataFrame:
    """Read a parquet file that Sorites wrote and check its columns.

    Args:
        path: The file.
        schema: Expected column types; columns that are absent from it are not checked.
        needed: Columns that must exist.
        remedy: Sentence for the error that says what to do.

    Raises:
        Damaged: The file cannot be read or has other columns.
    """
    try:
        frame = pl.read_parquet(local_copies([path])[0], glob=False)
    # corrupt bytes can make the reader raise nearly anything
    except (Exception, pl.exceptions.PanicException) as error:
        raise Damaged(path, _file_problem(path, ()) or str(error).split("\n")[0], remedy) from None
    if problem := _column_problem(frame.schema, schema, needed):
        raise Damaged(path, problem, remedy)
    return frame


def _column_problem(
    schema: Mapping[str, object], expected: Mapping[str, object], needed: Collection[str]
) -> str:
    missing = [f"it has no column {name}" for name in needed if name not in schema]
    mistyped = [
        f"its column {n} is {t}, not {expected[n]}"
        for n, t in schema.items()
        if n in expected and t != expected[n]
    ]
    return next(iter([*missing, *mistyped]), "")


def _file_problem(path: Path, columns: Collection[str]) -> str:
    """Return why a file is not a parquet file with these columns, judged by header and footer only; empty if
    it is one.
    """
    try:
        with path.open("rb") as file:
            start, size = file.read(4), file.seek(0, io.SEEK_END)
            if size < 12 or start != b"PAR1":
                return "it is not a parquet file" if size else "it is empty"
            file.seek(-8, io.SEEK_END)
            length, end = struct.unpack("<I4s", file.read(8))
            if end != b"PAR1" or length + 12 > size:
                return "it is cut short"
            file.seek(-8 - length, io.SEEK_END)
            footer = file.read(length)
    except OSError as error:
        return error.strerror or str(error)
    return next((f"it has no column {name}" for name in columns if name.encode() not in footer), "")


def _scan_facts(path: Path, folder: Path) -> pl.LazyFrame:
    try:
        fact = pl.scan_parquet(local_copies([path])[0], glob=False)
        problem = _column_problem(fact.collect_schema(), SCHEMA, ("image_id",))
    except (OSError, pl.exceptions.PolarsError) as error:
        raise Damaged(path, _file_problem(path, ()) or str(error).split("\n")[0], repair(folder)) from None
    if problem:
        raise Damaged(path, problem, repair(folder))
    return fact


def _merge_validity(facts: Sequence[pl.LazyFrame]) -> list[pl.LazyFrame]:
    """Merge the validity of all facts: an image is invalid if any filter rejects it; null is no verdict."""
    frames = [fact.select("image_id", "valid") for fact in facts if "valid" in fact.collect_schema()]
    return (
        [pl.concat(frames).drop_nulls("valid").group_by("image_id").agg(pl.col("valid").all())]
        if len(frames) > 1
        else frames
    )


def _merge_degrees(facts: Sequence[pl.LazyFrame]) -> list[pl.LazyFrame]:
    """Merge the degrees of all facts, one entry per measure; later facts replace earlier ones of the same
    measure.
    """
    frames = [fact.select("image_id", "degrees") for fact in facts if "degrees" in fact.collect_schema()]
    if not frames:
        return []
    entries = pl.concat(frames).explode("degrees").unnest("degrees").drop_nulls("measure")
    last = entries.unique(["image_id", "measure"], keep="last", maintain_order=True)
    return [last.group_by("image_id", maintain_order=True).agg(degrees=pl.struct("measure", "value"))]


def _join_facts(table: pl.LazyFrame, facts: pl.LazyFrame) -> pl.LazyFrame:
    """Join facts into the table: non-null facts replace values, but an invalid image stays invalid."""
    names = [name for name in facts.collect_schema().names() if name in FACTS]
    joined = table.join(
        facts.select("image_id", *names), on="image_id", how="left", suffix="_fact", maintain_order="left"
    )
    candidates = {name: [pl.col(f"{name}_fact"), pl.col(name)] for name in names}
    if "valid" in candidates:
        candidates["valid"].insert(0, pl.all_horizontal("valid_fact", "valid"))
    return joined.with_columns(
        pl.coalesce(columns).alias(name) for name, columns in candidates.items()
    ).select(SCHEMA.names())


def _join_attrs(table: pl.LazyFrame, facts: Sequence[pl.LazyFrame]) -> pl.LazyFrame:
    """Join attributes into the table: a fact replaces all entries of the keys that it has."""
    frames = [
        fact.select("image_id", "attrs").drop_nulls() for fact in facts if "attrs" in fact.collect_schema()
    ]
    if not frames:
        return table
    merged = _long_attrs(table.select("image_id", "attrs").unique("image_id", maintain_order=True))
    for fact in map(_long_attrs, frames):
        merged = pl.concat(
            [merged.join(fact, on=["image_id", "key"], how="anti", maintain_order="left"), fact]
        )
    lists = merged.group_by("image_id", maintain_order=True).agg(
        attrs_fact=pl.struct("key", "value", "common")
    )
    changed_images = pl.concat([fact.select("image_id") for fact in frames]).unique()
    changed_lists = lists.join(changed_images, on="image_id", how="semi")
    joined = table.join(changed_lists, on="image_id", how="left", maintain_order="left")
    return joined.with_columns(attrs=pl.coalesce("attrs_fact", "attrs")).select(SCHEMA.names())


def _long_attrs(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Return one row per image and attribute."""
    return frame.explode("attrs").unnest("attrs").drop_nulls("key")


def write_facts(run: str | Path, name: str, facts: pl.DataFrame) -> Path:
    """Write facts about images (``image_id`` and any of ``FACTS``) to ``facts/NAME.parquet`` and return its
    path.
    """
    unknown = set(facts.columns) - {"image_id", *FACTS}
    if unknown or "image_id" not in facts.columns:
        raise SoritesError(
            f"facts need image_id and some of {', '.join(FACTS)}; got {', '.join(facts.columns)}"
        )
    if facts["image_id"].is_duplicated().any():
        raise SoritesError(f"facts {name!r}: an image_id occurs twice")
    path = to_path(run) / "facts" / f"{name}.parquet"
    write(facts.cast({n: SCHEMA[n] for n in facts.columns}), path)
    return path


def check(table: Table) -> list[str]:
    """Return the problems of a table, one sentence each."""
    lazy = table.lazy()
    schema = lazy.collect_schema()
    problems = [
        f"column {n} is {schema.get(n, 'missing')}, not {t}" for n, t in SCHEMA.items() if schema.get(n) != t
    ]
    if problems:
        return problems
    duplicates = (
        lazy.group_by(KEY).len().filter(pl.col("len") > 1).select(pl.len()).collect(engine="streaming").item()
    )
    if duplicates:
        problems.append(f"{duplicates} keys ({', '.join(KEY)}) occur more than once")
    judged = pl.col("correct").is_not_null() & pl.col("error").is_not_null()
    both = lazy.filter(judged).select(pl.len()).collect(engine="streaming").item()
    return problems + ([f"{both} rows have both an error and a prediction"] if both else [])

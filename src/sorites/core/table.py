"""The one table: a row is one image, seen by one model, through one output.

Long, never wide: a new scorer or model adds rows, not columns. Null is missing, never 0.
A run keeps it as immutable parquet shards that any tool reads without us.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from sorites.core.errors import Damaged, SoritesError
from sorites.io.files import at_hand, read_json, write_bytes
from sorites.io.stores import place

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
# A ground-truth box; area and crowd are null where they are not known.
GROUND_TRUTH = pl.Struct(
    {**{field.name: field.dtype for field in BOX.fields}, "area": pl.Float64, "crowd": pl.Boolean}
)

_COLUMNS: dict[str, pl.DataType | type[pl.DataType]] = {
    "run_id": pl.String,
    "source": pl.String,
    "split": pl.String,
    "sample_id": pl.String,
    "image_id": pl.String,
    "valid": pl.Boolean,  # false: a filter set it aside; null: nobody judged it
    "probe": pl.Boolean,  # made by refining a failure severity; only failure metrics read it
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
# The mark in the name of a file that holds several shards.
MERGED = "~"
# Columns that may be learnt after the run, kept in ``facts/`` and joined by ``image_id`` on
# reading.
FACTS = ("valid", "level", "sem_level", "cov_level", "degrees", "attrs")

# The prefix of the ids of samples made up from counts: they cannot be followed from one setting to
# another.
COUNTED = "counted/"

Table = pl.LazyFrame | pl.DataFrame


def write(frame: pl.DataFrame, path: Path) -> None:
    """Write a whole parquet file or none: bytes go to a temporary name, reach the disk, then are renamed."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd")
    write_bytes(buffer.getvalue(), path)


def rows(records: Sequence[dict[str, object]]) -> pl.DataFrame:
    """Records to rows of the table; absent columns are null."""
    columns = {name: [record.get(name) for record in records] for name in SCHEMA}
    return pl.DataFrame(columns, schema=SCHEMA)


def read(run: str | Path) -> pl.LazyFrame:
    """The table of a run folder, lazily, with what was learnt later joined in.

    A shard that is cut short or of another kind is an error here; damage inside one shows when its
    values are read.
    """
    folder = place(run)
    shards = shard_files(folder)
    if not shards:
        raise SoritesError(f'no predictions in {folder}. Make some with "sorites run SUITE --out {folder}".')
    here = at_hand(shards)
    for path, copy in zip(shards, here, strict=True):
        if why := _wrong_ends(copy, SCHEMA):
            raise Damaged(path, why, repair(folder))
    table = scan(here)
    facts = [_scanned_facts(path, folder) for path in sorted((folder / "facts").glob("*.parquet"))]
    for fact in [
        *(fact.drop("degrees", "valid", "attrs", strict=False) for fact in facts),
        *_valid(facts),
        *_degrees(facts),
    ]:
        table = _join_facts(table, fact)
    return _join_attrs(table, facts)


def set_aside(run: str | Path) -> pl.Series | None:
    """Return the ids of the images that facts of a run set aside; None where there are none."""
    folder = place(run)
    facts = [_scanned_facts(path, folder) for path in sorted((folder / "facts").glob("*.parquet"))]
    found = [fact.filter(~pl.col("valid")).select("image_id").collect() for fact in _valid(facts)]
    return found[0]["image_id"] if found and found[0].height else None


# The file of a run folder that says which shards were merged into which file, and which rows of it
# each is.
COMPACTED = "compacted.json"


def read_compacted(folder: Path) -> dict[str, list[tuple[str, int]]]:
    """Return the merged files of a run by name, each with the shards in it and how many rows each
    has; none where none are.
    """
    path = folder / COMPACTED
    if not path.exists():
        return {}
    try:
        return {
            str(name): [(str(stem), int(rows)) for stem, rows in held]
            for name, held in read_json(path).items()
        }
    except (SoritesError, AttributeError, TypeError, ValueError) as error:
        raise Damaged(
            path, error, "Bring it back from a copy: it says what the merged files of predictions hold."
        ) from error


def shard_files(folder: Path) -> list[Path]:
    """Return the files that hold the table of a run, in order: merged ones, and shards that are in
    none of these.
    """
    found = sorted((folder / "predictions").glob("*.parquet"))
    merged = read_compacted(folder)
    if not merged:
        return [path for path in found if MERGED not in path.name]
    covered = {f"{stem}.parquet" for held in merged.values() for stem, _ in held}
    return [
        path
        for path in found
        if path.name in merged or (MERGED not in path.name and path.name not in covered)
    ]


def scan(shards: Sequence[Path], **options: Any) -> pl.LazyFrame:
    """Return the rows of some shards as they were written, lazily."""
    here = at_hand(shards)
    return pl.scan_parquet(here, schema=SCHEMA, glob=False, **options)


def repair(folder: str | Path) -> str:
    """Say what to type where a file of a run folder is damaged."""
    return f"Type: sorites check {folder} --repair"


def read_file(path: Path, schema: Mapping[str, object], needed: Collection[str], remedy: str) -> pl.DataFrame:
    """Read every value of a parquet file of ours, whose columns have the types of ``schema``, as
    far as it has them.
    """
    try:
        frame = pl.read_parquet(at_hand([path])[0], glob=False)
    # scrambled bytes make the reader raise nearly anything
    except (Exception, pl.exceptions.PanicException) as error:
        raise Damaged(path, _wrong_ends(path, ()) or str(error).split("\n")[0], remedy) from None
    if why := _wrong_columns(frame.schema, schema, needed):
        raise Damaged(path, why, remedy)
    return frame


def _wrong_columns(
    schema: Mapping[str, object], wanted: Mapping[str, object], needed: Collection[str]
) -> str:
    lacks = [f"it has no column {name}" for name in needed if name not in schema]
    other = [
        f"its column {n} is {t}, not {wanted[n]}" for n, t in schema.items() if n in wanted and t != wanted[n]
    ]
    return next(iter([*lacks, *other]), "")


def _wrong_ends(path: Path, columns: Collection[str]) -> str:
    """Say why a file is no parquet file with these columns, by its first and last bytes alone;
    empty where it is one.
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


def _scanned_facts(path: Path, folder: Path) -> pl.LazyFrame:
    try:
        fact = pl.scan_parquet(at_hand([path])[0], glob=False)
        why = _wrong_columns(fact.collect_schema(), SCHEMA, ("image_id",))
    except (OSError, pl.exceptions.PolarsError) as error:
        raise Damaged(path, _wrong_ends(path, ()) or str(error).split("\n")[0], repair(folder)) from None
    if why:
        raise Damaged(path, why, repair(folder))
    return fact


def _valid(facts: Sequence[pl.LazyFrame]) -> list[pl.LazyFrame]:
    """The validity by all facts together: one filter that sets an image aside is enough, and null
    says nothing.
    """
    some = [fact.select("image_id", "valid") for fact in facts if "valid" in fact.collect_schema()]
    return (
        [pl.concat(some).drop_nulls("valid").group_by("image_id").agg(pl.col("valid").all())]
        if len(some) > 1
        else some
    )


def _degrees(facts: Sequence[pl.LazyFrame]) -> list[pl.LazyFrame]:
    """The degrees of all facts together, one entry a measure: a later fact replaces only what it
    measured too.
    """
    some = [fact.select("image_id", "degrees") for fact in facts if "degrees" in fact.collect_schema()]
    if not some:
        return []
    entries = pl.concat(some).explode("degrees").unnest("degrees").drop_nulls("measure")
    last = entries.unique(["image_id", "measure"], keep="last", maintain_order=True)
    return [last.group_by("image_id", maintain_order=True).agg(degrees=pl.struct("measure", "value"))]


def _join_facts(table: pl.LazyFrame, facts: pl.LazyFrame) -> pl.LazyFrame:
    """A later fact replaces an earlier one, and null says nothing; an image that was set aside stays so."""
    names = [name for name in facts.collect_schema().names() if name in FACTS]
    joined = table.join(
        facts.select("image_id", *names), on="image_id", how="left", suffix="_fact", maintain_order="left"
    )
    known = {name: [pl.col(f"{name}_fact"), pl.col(name)] for name in names}
    if "valid" in known:
        known["valid"].insert(0, pl.all_horizontal("valid_fact", "valid"))
    return joined.with_columns(pl.coalesce(columns).alias(name) for name, columns in known.items()).select(
        SCHEMA.names()
    )


def _join_attrs(table: pl.LazyFrame, facts: Sequence[pl.LazyFrame]) -> pl.LazyFrame:
    """The attributes of the sample with those learnt later: a fact replaces all entries of a key
    that it has, a later one those of an earlier one.
    """
    some = [
        fact.select("image_id", "attrs").drop_nulls() for fact in facts if "attrs" in fact.collect_schema()
    ]
    if not some:
        return table
    merged = _long_attrs(table.select("image_id", "attrs").unique("image_id", maintain_order=True))
    for fact in map(_long_attrs, some):
        merged = pl.concat(
            [merged.join(fact, on=["image_id", "key"], how="anti", maintain_order="left"), fact]
        )
    lists = merged.group_by("image_id", maintain_order=True).agg(
        attrs_fact=pl.struct("key", "value", "common")
    )
    touched = pl.concat([fact.select("image_id") for fact in some]).unique()
    known = lists.join(touched, on="image_id", how="semi")
    joined = table.join(known, on="image_id", how="left", maintain_order="left")
    return joined.with_columns(attrs=pl.coalesce("attrs_fact", "attrs")).select(SCHEMA.names())


def _long_attrs(frame: pl.LazyFrame) -> pl.LazyFrame:
    """One row per image and attribute."""
    return frame.explode("attrs").unnest("attrs").drop_nulls("key")


def write_facts(run: str | Path, name: str, facts: pl.DataFrame) -> Path:
    """Keep facts of images (``image_id`` and any of ``FACTS``) beside the predictions, under a name."""
    wrong = set(facts.columns) - {"image_id", *FACTS}
    if wrong or "image_id" not in facts.columns:
        raise SoritesError(
            f"facts need image_id and some of {', '.join(FACTS)}; got {', '.join(facts.columns)}"
        )
    if facts["image_id"].is_duplicated().any():
        raise SoritesError(f"facts {name!r}: an image_id stands twice")
    path = place(run) / "facts" / f"{name}.parquet"
    write(facts.cast({n: SCHEMA[n] for n in facts.columns}), path)
    return path


def check(table: Table) -> list[str]:
    """Return what is wrong with a table, one sentence each; empty when nothing is."""
    lazy = table.lazy()
    schema = lazy.collect_schema()
    wrong = [
        f"column {n} is {schema.get(n, 'missing')}, not {t}" for n, t in SCHEMA.items() if schema.get(n) != t
    ]
    if wrong:
        return wrong
    twice = (
        lazy.group_by(KEY).len().filter(pl.col("len") > 1).select(pl.len()).collect(engine="streaming").item()
    )
    if twice:
        wrong.append(f"{twice} keys ({', '.join(KEY)}) stand more than once")
    judged = pl.col("correct").is_not_null() & pl.col("error").is_not_null()
    both = lazy.filter(judged).select(pl.len()).collect(engine="streaming").item()
    return wrong + ([f"{both} rows have both an error and a verdict"] if both else [])

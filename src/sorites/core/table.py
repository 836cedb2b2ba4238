"""The result table: one row per image, model and output.

Long, never wide: a new scorer or model adds rows, not columns. Null means missing, never 0. A run stores the
table as immutable parquet shards that any tool can read. Their names end with a digest, which is verified
before they are parsed; other files in the folder are not read.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import polars as pl

from sorites.core.errors import Damaged, MissingFile, SoritesError, UnknownName
from sorites.core.messages import command
from sorites.core.shard_index import PARQUET, PREDICTIONS, RunShards, forget_index
from sorites.io import digests, listed
from sorites.io.files import local_copies, locked, write_bytes
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
_OF_BOX = {field.name: field.dtype for field in BOX.fields}
# A ground-truth box; area and crowd are null if unknown, and so is whether the model has its class.
GROUND_TRUTH = pl.Struct({**_OF_BOX, "area": pl.Float64, "crowd": pl.Boolean, "known": pl.Boolean})
# A predicted box; on rows of a scorer, ``score`` is its OOD score.
PREDICTED = pl.Struct({**_OF_BOX, "score": pl.Float64})
# The types of boxes in files of earlier versions, which lack ``known`` and ``score``.
_EARLIER = {
    "boxes": pl.List(BOX),
    "ground_truth": pl.List(pl.Struct({**_OF_BOX, "area": pl.Float64, "crowd": pl.Boolean})),
}

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
    "score": pl.Float64,
    "boxes": pl.List(PREDICTED),
    "error": pl.String,
}
SCHEMA = pl.Schema(_COLUMNS)
KEY = ("run_id", "image_id", "model", "output", "scorer")
# Columns that may be computed after the run; stored in ``facts/`` and joined by ``image_id`` on reading.
FACTS = ("valid", "level", "sem_level", "cov_level", "degrees", "attrs")

# Column added on reading: the number of classes that the model can answer, from ``run.json``; null if it is
# not recorded.
CLASSES = "classes"

# Id prefix of samples reconstructed from published counts; they cannot be matched across settings.
COUNTED_PREFIX = "counted/"


class RunLike(Protocol):
    """A run in memory, as ``sorites.run`` returns it."""

    @property
    def folder(self) -> Path:
        """The run folder."""
        ...

    def lazy(self) -> pl.LazyFrame:
        """Return the table."""
        ...


Table = pl.LazyFrame | pl.DataFrame | RunLike


def run_folder(run: str | Path | RunLike) -> Path:
    """Return the folder of a run, which may be given by its path."""
    return to_path(run) if isinstance(run, str | Path) else run.folder


# Subfolder of a run with facts.
FACTS_FOLDER = "facts"


def parquet(frame: pl.DataFrame) -> bytes:
    """Return a table as a parquet file."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd")
    return buffer.getvalue()


def write(frame: pl.DataFrame, path: Path) -> None:
    """Write a parquet file atomically."""
    write_bytes(parquet(frame), path)


def write_shard(frame: pl.DataFrame, run: str | Path, stem: str) -> Path:
    """Write rows as a shard of a run folder, and return its path: ``predictions/STEM.DIGEST.parquet``."""
    forget_index(to_path(run))
    return digests.write_shard(to_path(run) / PREDICTIONS, stem, PARQUET, parquet(frame))


def rows(records: Sequence[dict[str, object]]) -> pl.DataFrame:
    """Return records as rows of the table; absent columns are null."""
    columns = {name: [record.get(name) for record in records] for name in SCHEMA}
    return pl.DataFrame(columns, schema=SCHEMA)


def read(run: str | Path) -> pl.LazyFrame:
    """Return the table of a run folder lazily, with facts computed later joined in.

    The column ``classes`` is the number of classes that the model can answer; null if it was not recorded.

    Only shards and facts of the run itself are read: names of shards end with their digest, facts are listed
    in ``run.json``.

    Raises:
        SoritesError: The folder has no predictions.
        Damaged: A file does not match its digest.
    """
    folder = to_path(run)
    record = listed.read_content(folder / listed.RUN)
    verifier = digests.Verifier(folder)
    table = _verified(folder, verifier)
    if run_id := record.get("run_id"):
        table = table.filter(pl.col("run_id") == run_id)
    facts = _facts(folder, verifier)
    for frame in [
        *(frame.drop("degrees", "valid", "attrs", strict=False) for frame in facts),
        *_merge_validity(facts),
        *_merge_degrees(facts),
    ]:
        table = _join_facts(table, frame)
    return _with_classes(_join_attrs(table, facts), record)


# How often shards are listed while another process merges them.
LISTINGS = 5


def _verified(folder: Path, verifier: digests.Verifier) -> pl.LazyFrame:
    """Return the verified rows of a run.

    Another process may merge shards and delete them meanwhile: if one is missing, all are listed again,
    without the index, which may be older.

    Raises:
        MissingFile: There are no shards.
        Damaged: A shard is damaged.
    """
    for listing in range(LISTINGS):
        try:
            shards = RunShards(folder, fresh=listing > 0).files()
            verifier.require(digests.named_digests(shards), repair(folder))
            if shards:
                return scan(shards)
            break
        except (Damaged, FileNotFoundError) as error:
            missing = to_path(str(error.fields["path"] if isinstance(error, Damaged) else error.filename))
            if listing == LISTINGS - 1 or missing.exists():
                raise
    create = command("run", "SUITE", out=str(folder))
    raise MissingFile(folder, f"no predictions in {folder}. Create some with {create}")


Answer = TypeVar("Answer")


def repeat_if_merged(question: Callable[[], Answer]) -> Answer:
    """Return the answer to a question about tables that it reads itself.

    Tables are read lazily, so another process may merge shards and delete them between the listing and the
    reading. The question is then asked once more, which lists them again.

    Args:
        question: Reads runs and returns what follows from them, without side effects.
    """
    try:
        return question()
    except FileNotFoundError as error:
        if missing_shard(error) is None:
            raise
        return question()


# The name of a shard in a message of Polars, which may shorten the path.
_SHARD_NAME = re.compile(rf"[/\\]{PREDICTIONS}[/\\]([^/\\]+{re.escape(PARQUET)})")


def missing_shard(error: FileNotFoundError) -> str | None:
    """Return the name of the shard of a run that Polars did not find; None if it was another file."""
    named = _SHARD_NAME.search(str(error))
    return named[1] if named and digests.digest_in(named[1]) else None


def _with_classes(table: pl.LazyFrame, record: Mapping[str, Any]) -> pl.LazyFrame:
    """Add the number of classes of each model as recorded in ``run.json``."""
    answers = record.get("answers")
    named = answers.items() if isinstance(answers, dict) else ()
    counts = {name: n for name, n in named if isinstance(n, int)}
    known = pl.col("model").replace_strict(counts, default=None, return_dtype=pl.Int32)
    return table.with_columns((known if counts else pl.lit(None, pl.Int32)).alias(CLASSES))


def rejected_images(run: str | Path) -> pl.Series | None:
    """Return the ids of the images that filters of a run rejected, or None if there are none."""
    folder = to_path(run)
    facts = _facts(folder, digests.Verifier(folder))
    rejected = [fact.filter(~pl.col("valid")).select("image_id").collect() for fact in _merge_validity(facts)]
    return rejected[0]["image_id"] if rejected and rejected[0].height else None


def shard_files(folder: Path) -> list[Path]:
    """Return the parquet files that make up the table of a run, in order: merged files, and shards that are
    not merged.

    Raises:
        Damaged: A merged file cannot be read.
    """
    return RunShards(folder).files()


def scan(shards: Sequence[Path], **options: Any) -> pl.LazyFrame:
    """Return the rows of shards as they were written, lazily."""
    local_paths = local_copies(shards)
    # Boxes of earlier versions lack fields.
    older = pl.ScanCastOptions(missing_struct_fields="insert")
    return pl.scan_parquet(local_paths, schema=SCHEMA, glob=False, cast_options=older, **options)


def repair(folder: str | Path) -> str:
    """Return a sentence that says how to repair a run folder."""
    return f"Type: {command('check', str(folder), repair=True)}"


def parse(
    data: bytes, path: Path, schema: Mapping[str, object], needed: Collection[str], remedy: str
) -> pl.DataFrame:
    """Parse a parquet file that Sorites wrote and check its columns.

    Args:
        data: The verified content.
        path: The file, for the error.
        schema: Expected column types; columns that are absent from it are not checked.
        needed: Columns that must exist.
        remedy: Sentence for the error that says what to do.

    Raises:
        Damaged: The file cannot be parsed or has other columns.
    """
    try:
        frame = pl.read_parquet(io.BytesIO(data))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise Damaged(path, str(error).split("\n")[0], remedy) from None
    earlier = [name for name, kind in _EARLIER.items() if name in schema and frame.schema.get(name) == kind]
    frame = frame.with_columns(pl.col(name).cast(SCHEMA[name]) for name in earlier)
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


def _facts(folder: Path, verifier: digests.Verifier) -> list[pl.LazyFrame]:
    """Return the facts that ``run.json`` lists."""
    paths = listed.existing(folder / listed.RUN, f"{FACTS_FOLDER}/*{PARQUET}", verifier, repair(folder))
    return [_scan_facts(path, folder) for path in paths]


def _scan_facts(path: Path, folder: Path) -> pl.LazyFrame:
    fact = pl.scan_parquet(local_copies([path])[0], glob=False)
    if problem := _column_problem(fact.collect_schema(), SCHEMA, ("image_id",)):
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


# The prefix of the columns of attributes in ``by`` and in conditions: ``attrs.weather``.
ATTRS_PREFIX = "attrs."


def with_attributes(table: Table, columns: Sequence[str]) -> Table:
    """Return a table with a column for each attribute among columns (``attrs.weather``); several values of an
    image are joined by "+", and images without one have null.

    Raises:
        UnknownName: No image of the table has the attribute.
    """
    wanted = [name for name in columns if name.startswith(ATTRS_PREFIX)]
    if not wanted:
        return table
    lazy = table.lazy()
    keys = _long_attrs(lazy.select("attrs")).select(pl.col("key").unique().sort())
    known = [f"{ATTRS_PREFIX}{key}" for key in keys.collect(engine="streaming")["key"]]
    for name in wanted:
        if name not in known:
            listed_names = ", ".join(known) or "none"
            raise UnknownName("attribute", name, known, f"The attributes are: {listed_names}.")
    return lazy.with_columns(_attribute(name.removeprefix(ATTRS_PREFIX)).alias(name) for name in wanted)


def _attribute(key: str) -> pl.Expr:
    entry = pl.element().struct
    values = pl.col("attrs").list.eval(
        pl.element().filter(entry.field("key") == pl.lit(key, pl.String)).struct.field("value").drop_nulls()
    )
    return pl.when(values.list.len() > 0).then(values.list.unique().list.sort().list.join("+"))


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
    folder, file = to_path(run), f"{FACTS_FOLDER}/{name}{PARQUET}"
    if not (folder / listed.RUN).exists():
        raise MissingFile(folder / listed.RUN, f"{folder} is not a run folder: it has no {listed.RUN}")
    with locked(folder, again=True):
        listed.write_listed(
            folder / listed.RUN, file, parquet(facts.cast({n: SCHEMA[n] for n in facts.columns}))
        )
    return folder / file


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

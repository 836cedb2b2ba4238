"""The records of a collection: one parquet with a row for everything that was found, and the credits of what was kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from sorites.collecting.found import Found
from sorites.collecting.journal import Outcome
from sorites.collecting.plan import Query
from sorites.files import write_bytes
from sorites.table import write

RECORDS, CREDITS = "pictures.parquet", "ATTRIBUTION.md"

SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "file": pl.String,  # null: left out, and ``reason`` says why
    "reason": pl.String,
    "service": pl.String, "id": pl.String, "page": pl.String, "url": pl.String, "title": pl.String, "author": pl.String,
    "licence": pl.String, "version": pl.String, "licence_url": pl.String, "attribution": pl.String,
    "queries": pl.List(pl.String), "objects": pl.List(pl.String), "attributes": pl.List(pl.String),
    "fetched": pl.String, "sha256": pl.String, "bytes": pl.Int64, "width": pl.Int32, "height": pl.Int32, "phash": pl.String,
}  # fmt: skip

_MARKED = str.maketrans({sign: f"\\{sign}" for sign in r"\`*_{}[]()<>#|!~"})


@dataclass(frozen=True)
class Row:
    """One picture that was found, the queries that found it, and what became of it."""

    found: Found
    queries: Sequence[Query]
    outcome: Outcome


def write_records(folder: Path, rows: Sequence[Row]) -> None:
    """Write the parquet of all that was found and the credits of what was kept."""
    write(frame(rows), folder / RECORDS)
    write_bytes(credits_page([row for row in rows if row.outcome.file]).encode(), folder / CREDITS)


def frame(rows: Sequence[Row]) -> pl.DataFrame:
    """Return the records as a table."""
    return pl.DataFrame([_record(row) for row in rows], schema=SCHEMA)


def _record(row: Row) -> dict[str, object]:
    found, outcome = row.found, row.outcome
    licence = found.licence
    return {
        "file": outcome.file, "reason": outcome.reason, "service": found.service, "id": found.id, "page": found.page,
        "url": found.url, "title": found.title, "author": found.author, "licence": licence.code if licence else None,
        "version": licence.version if licence else None, "licence_url": licence.url if licence else None,
        "attribution": found.attribution, "queries": [query.text for query in row.queries],
        "objects": _named(query.object for query in row.queries), "attributes": _named(q.attribute for q in row.queries),
        "fetched": outcome.fetched, "sha256": outcome.sha256, "bytes": outcome.bytes, "width": outcome.width,
        "height": outcome.height, "phash": outcome.hash,
    }  # fmt: skip


def _named(words: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(word for word in words if word))


def credits_page(rows: Sequence[Row]) -> str:
    """Return the page of credits: one line per picture, whose words cannot be taken for markup."""
    ordered = sorted(rows, key=lambda row: str(row.outcome.file))
    lines = [f"- `{row.outcome.file}`: {row.found.attribution.translate(_MARKED)}" for row in ordered]
    return "\n".join(["# Where these pictures come from", "", f"{len(rows)} pictures; keep this page with them.", "", *lines, ""])

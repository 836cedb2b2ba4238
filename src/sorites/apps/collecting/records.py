"""Records of a collection: the journal, a table of all results, and the credits of the stored images."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from sorites.apps.collecting.plan import Query
from sorites.apps.collecting.services import Found, Licence, Page, Params
from sorites.core.errors import Damaged
from sorites.core.table import parquet
from sorites.io.digests import digest_of
from sorites.io.files import write_bytes
from sorites.io.listed import ABSENT, Digests
from sorites.io.logs import Log, read_log
from sorites.sources.written import CREDITS, START_OVER
from sorites.sources.written import IMAGES as RECORDS
from sorites.sources.written import JOURNAL as NAME

FORMAT = 1


@dataclass(frozen=True)
class Outcome:
    """The outcome for an image: a file with its metadata, or the reason why there is none."""

    key: str
    file: str | None = None
    reason: str | None = None
    sha256: str | None = None
    bytes: int | None = None
    width: int | None = None
    height: int | None = None
    hash: str | None = None
    fetched: str | None = None
    url: str | None = None


@dataclass
class Journal:
    """Pages of results and outcomes of a folder, loaded from an append-only file."""

    path: Path
    pages: dict[str, Page] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    """How often the download of an image failed for a reason that may pass, by key."""
    tables: dict[str, Digests] = field(default_factory=dict)
    """Accepted digests of the table and the credits, by name."""
    _log: Log | None = None
    _lines: int = 0

    @classmethod
    def opened(cls, folder: Path) -> Journal:
        """Open a folder's journal; an unfinished last line is cut off."""
        journal = cls.read(folder)
        journal._log = Log(journal.path)
        if not journal._lines:
            journal._add({"format": FORMAT})
        return journal

    @classmethod
    def read(cls, folder: Path) -> Journal:
        """Read a folder's journal, without adding to it.

        Raises:
            Damaged: A line is damaged.
        """
        journal = cls(folder / NAME)
        for number, entry in enumerate(read_log(journal.path, START_OVER), start=1):
            journal._replay(entry, number)
            journal._lines = number
        return journal

    def close(self) -> None:
        """Close the file."""
        if self._log:
            self._log.close()

    def keep_page(self, service: str, params: Params, page: Page) -> None:
        """Store a page of results under its query."""
        key = page_key(service, params)
        self.pages[key] = page
        self._add({"page": key, "next": page.next, "found": [asdict(found) for found in page.found]})

    def keep(self, outcome: Outcome) -> None:
        """Store the outcome of an image; later lines replace earlier ones."""
        self.outcomes[outcome.key] = outcome
        self._add({"image": {name: value for name, value in asdict(outcome).items() if value is not None}})

    def keep_failure(self, key: str) -> int:
        """Count a failed download of an image, and return how many there are."""
        self.failures[key] = self.failures.get(key, 0) + 1
        self._add({"failed": key})
        return self.failures[key]

    def write_table(self, name: str, data: bytes) -> None:
        """Write a file that follows from the journal; its digest is stored before and after."""
        entry = {"table": name, "digest_of_table": digest_of(data)}
        if self.tables.get(name) != (digest_of(data),) or not (self.path.parent / name).is_file():
            self._add(entry)
        write_bytes(data, self.path.parent / name)
        if self.tables.get(name) != (digest_of(data),):
            self._add({**entry, "written": True})
            self.tables[name] = (digest_of(data),)

    def _add(self, entry: Mapping[str, Any]) -> None:
        assert self._log is not None
        self._log.append(entry)

    def _replay(self, entry: dict[str, Any], number: int) -> None:
        try:
            self._load(entry)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"line {number}: {type(error).__name__} {error}"
            raise Damaged(self.path, reason, START_OVER) from error

    def _load(self, entry: dict[str, Any]) -> None:
        if "page" in entry:
            onward = entry["next"]
            self.pages[entry["page"]] = Page(
                tuple(map(_parse_found, entry["found"])), dict(onward) if onward else None
            )
        elif "image" in entry:
            outcome = Outcome(**entry["image"])
            self.outcomes[outcome.key] = outcome
        elif "failed" in entry:
            self.failures[str(entry["failed"])] = self.failures.get(str(entry["failed"]), 0) + 1
        elif "table" in entry:
            name, digest = str(entry["table"]), str(entry["digest_of_table"])
            before = self.tables.get(name, (ABSENT,))
            self.tables[name] = (digest,) if entry.get("written") else (digest, *before)
        elif entry["format"] != FORMAT:
            raise ValueError(f"format {entry['format']} belongs to another release")


def page_key(service: str, params: Params) -> str:
    """Return the key of a page of results."""
    query = json.dumps([service, sorted(params.items())])
    return hashlib.blake2b(query.encode(), digest_size=12).hexdigest()


def _parse_found(entry: dict[str, Any]) -> Found:
    licence = entry.pop("licence")
    return Found(**entry, licence=Licence(**licence) if licence else None)


SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "file": pl.String,  # null if the image was skipped; see ``reason``
    "reason": pl.String,
    "service": pl.String,
    "id": pl.String,
    "page": pl.String,
    "url": pl.String,
    "title": pl.String,
    "author": pl.String,
    "licence": pl.String,
    "version": pl.String,
    "licence_url": pl.String,
    "attribution": pl.String,
    "queries": pl.List(pl.String),
    "objects": pl.List(pl.String),
    "attributes": pl.List(pl.String),
    "fetched": pl.String,
    "sha256": pl.String,
    "bytes": pl.Int64,
    "width": pl.Int32,
    "height": pl.Int32,
    "phash": pl.String,
}

_ESCAPED = str.maketrans({sign: f"\\{sign}" for sign in r"\`*_{}[]()<>#|!~"})


@dataclass(frozen=True)
class Row:
    """A result, the queries that found it, and its outcome."""

    found: Found
    queries: Sequence[Query]
    outcome: Outcome


def write_records(journal: Journal, rows: Sequence[Row]) -> None:
    """Write the table of all results and the credits of the stored images."""
    journal.write_table(RECORDS, parquet(frame(rows)))
    journal.write_table(CREDITS, credits_page([row for row in rows if row.outcome.file]).encode())


def frame(rows: Sequence[Row]) -> pl.DataFrame:
    """Return the records as a table."""
    return pl.DataFrame([_record(row) for row in rows], schema=SCHEMA)


def _record(row: Row) -> dict[str, object]:
    found, outcome = row.found, row.outcome
    licence = found.licence
    return {
        "file": outcome.file,
        "reason": outcome.reason,
        "service": found.service,
        "id": found.id,
        "page": found.page,
        "url": found.url,
        "title": found.title,
        "author": found.author,
        "licence": licence.code if licence else None,
        "version": licence.version if licence else None,
        "licence_url": licence.url if licence else None,
        "attribution": found.attribution,
        "queries": [query.text for query in row.queries],
        "objects": _unique(query.object for query in row.queries),
        "attributes": _unique(q.attribute for q in row.queries),
        "fetched": outcome.fetched,
        "sha256": outcome.sha256,
        "bytes": outcome.bytes,
        "width": outcome.width,
        "height": outcome.height,
        "phash": outcome.hash,
    }


def _unique(words: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(word for word in words if word))


def credits_page(rows: Sequence[Row]) -> str:
    """Return the page of credits in Markdown, one escaped line per image."""
    ordered = sorted(rows, key=lambda row: str(row.outcome.file))
    lines = [f"- `{row.outcome.file}`: {row.found.attribution.translate(_ESCAPED)}" for row in ordered]
    return "\n".join(
        [
            "# Where these images come from",
            "",
            f"{len(rows)} images; keep this page with them.",
            "",
            *lines,
            "",
        ]
    )

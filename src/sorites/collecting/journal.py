"""Keep a journal of a collection, line by line: pages of results and the outcome for each picture.

A line is on the disk before the next request is made, so that a stopped collection asks for nothing twice. Nothing in it is
secret.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from sorites.collecting.found import Found, Licence
from sorites.collecting.services import Page, Params
from sorites.errors import Damaged, SoritesError

NAME = "journal.jsonl"
FORMAT = 1


@dataclass(frozen=True)
class Outcome:
    """The outcome for a picture: a file with its facts, or the reason why there is none."""

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
    """The pages and outcomes of a folder, read once and added to."""

    path: Path
    pages: dict[str, Page] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    _file: IO[bytes] | None = None

    @classmethod
    def opened(cls, folder: Path) -> Journal:
        """Read a folder's journal; a last line that was not finished is cut off."""
        journal = cls(folder / NAME)
        try:
            text = journal.path.read_bytes() if journal.path.exists() else b""
            whole = text[: text.rfind(b"\n") + 1]
            journal._replay(whole)
            journal._file = journal.path.open("r+b" if text else "wb")
            journal._file.truncate(len(whole))
            journal._file.seek(len(whole))
        except OSError as error:
            raise SoritesError(f"cannot write {journal.path}: {error.strerror or error}") from error
        if not whole:
            journal._add({"format": FORMAT})
        return journal

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()

    def keep_page(self, service: str, params: Params, page: Page) -> None:
        """Keep a page of results under what was asked."""
        key = page_key(service, params)
        self.pages[key] = page
        self._add({"page": key, "next": page.next, "found": [asdict(found) for found in page.found]})

    def keep(self, outcome: Outcome) -> None:
        """Keep what became of a picture; a later line replaces an earlier one."""
        self.outcomes[outcome.key] = outcome
        self._add({"picture": {name: value for name, value in asdict(outcome).items() if value is not None}})

    def _add(self, entry: Mapping[str, Any]) -> None:
        assert self._file is not None
        try:
            self._file.write(json.dumps(entry, ensure_ascii=True).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise SoritesError(f"cannot write {self.path}: {error.strerror or error}. What is finished is kept.") from error

    def _replay(self, text: bytes) -> None:
        for number, line in enumerate(text.splitlines(), start=1):
            try:
                self._take(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                remedy = "Move the file away to begin again; pictures that are there are not fetched again"
                raise Damaged(f"{self.path}, line {number}", f"{type(error).__name__} {error}", remedy) from error

    def _take(self, entry: dict[str, Any]) -> None:
        if "page" in entry:
            onward = entry["next"]
            self.pages[entry["page"]] = Page(tuple(map(_found, entry["found"])), dict(onward) if onward else None)
        elif "picture" in entry:
            outcome = Outcome(**entry["picture"])
            self.outcomes[outcome.key] = outcome
        elif entry["format"] != FORMAT:
            raise ValueError(f"format {entry['format']} is of another release")


def page_key(service: str, params: Params) -> str:
    """Return the name of a page by what was asked."""
    asked = json.dumps([service, sorted(params.items())])
    return hashlib.blake2b(asked.encode(), digest_size=12).hexdigest()


def _found(entry: dict[str, Any]) -> Found:
    licence = entry.pop("licence")
    return Found(**entry, licence=Licence(**licence) if licence else None)

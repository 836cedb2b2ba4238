"""Images by queries from image searches into a folder, with where each comes from and under which licence.

One request follows another. What is in the folder, and every answer that came before, is used
instead of a second request.
"""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from sorites.apps.collecting.client import Client, Failed, Gate, Later, Refused, host_of
from sorites.apps.collecting.judging import NEAR, SMALLEST, Hashes, Judged, LeftOut, judge
from sorites.apps.collecting.plan import Query
from sorites.apps.collecting.records import Journal, Outcome, Row, page_key, write_records
from sorites.apps.collecting.services import DEFAULT, Found, Page, Params, Service, service_class
from sorites.core.errors import SoritesError
from sorites.io.files import locked, sweep_temporaries, write_bytes

LIMIT = 200
# The most pages of results that are asked of one service for one query.
MOST_PAGES = 40

# The most bytes of an image.
LARGEST = 40_000_000

# Hears of each image: the query, its key, and what became of it.
Say = Callable[[str, str, str], None]


@dataclass(frozen=True)
class Wanted:
    """The demands on every image, and the pace at which they are requested."""

    licences: tuple[str, ...] = DEFAULT
    limit: int = LIMIT
    smallest: int = SMALLEST
    near: int = NEAR
    most_bytes: int = LARGEST
    width: int = 1024
    gap: float = 1.0


@dataclass
class Collected:
    """The outcome of a collection."""

    rows: list[Row] = field(default_factory=list)
    requests: int = 0
    waiting: list[str] = field(default_factory=list)

    @property
    def kept(self) -> int:
        """Return how many images are in the folder."""
        return sum(row.outcome.file is not None for row in self.rows)


def collect(
    queries: Sequence[Query],
    out: str | Path,
    *,
    services: Sequence[str],
    contact: str,
    wanted: Wanted | None = None,
    bases: dict[str, str] | None = None,
    say: Say | None = None,
) -> Collected:
    """Search for each query at each service in turn until it has its images, and write the
    records of all that was found.

    ``bases`` names other addresses for services, such as one on this machine. ``contact`` tells the
    services whom to write to.
    """
    wanted, bases, folder = wanted or Wanted(), bases or {}, Path(out)
    _check_contact(contact)
    with ExitStack() as stack:
        stack.enter_context(locked(folder, "collection", ".sorites.lock"))
        sweep_temporaries(folder)
        journal = Journal.opened(folder)
        stack.callback(journal.close)
        clients = {
            name: Client(Gate(bases.get(name) or service_class(name).public), contact, wanted.gap)
            for name in services
        }
        for client in clients.values():
            stack.callback(client.close)
        asked = [
            service_class(name)(client, wanted.width, bases.get(name)) for name, client in clients.items()
        ]
        collection = _Collection(folder, journal, wanted, say or (lambda query, key, became: None))
        try:
            for query in queries:
                collection.search(query, asked)
        finally:
            write_records(folder, collection.rows())
        return Collected(collection.rows(), sum(c.requests for c in clients.values()), collection.waiting)


def _check_contact(contact: str) -> None:
    if not re.fullmatch(r"[\x21-\x7e]{3,200}", contact) or not ("@" in contact or contact.startswith("http")):
        raise SoritesError(
            f"expected an e-mail or web address for the services to write to, got {contact[:80]!r}"
        )


class _Collection:
    def __init__(self, folder: Path, journal: Journal, wanted: Wanted, say: Say) -> None:
        self.folder, self.journal, self.wanted, self.say = folder, journal, wanted, say
        self.found: dict[str, Found] = {}
        self.queries: dict[str, list[Query]] = {}
        self.waiting: list[str] = []
        self.resting: set[str] = set()
        self.hashes = Hashes()
        for outcome in journal.outcomes.values():
            if outcome.file and outcome.hash:
                self.hashes.add(outcome.key, int(outcome.hash, 16))

    def rows(self) -> list[Row]:
        """Return a row for everything that was found, in the order in which it was."""
        none = Outcome("", reason="not fetched yet")
        return [
            Row(found, self.queries[key], self.journal.outcomes.get(key, none))
            for key, found in self.found.items()
        ]

    def search(self, query: Query, services: Sequence[Service]) -> None:
        """Collect the images of one query."""
        kept = 0
        for asked in services:
            for found in self._results(asked, query):
                if kept >= self.wanted.limit:
                    return
                kept += self._take(asked, found, query)
            if kept >= self.wanted.limit:
                return

    def _results(self, asked: Service, query: Query) -> Iterator[Found]:
        """Yield what a service finds, page by page, until it ends, says nothing new, or has been
        asked often enough.
        """
        params, seen = asked.first(query.text, self.wanted.licences), set[str]()
        for _ in range(MOST_PAGES):
            page = self.journal.pages.get(page_key(asked.name, params))
            if page is None:
                page = self._page(asked, params)
            if page is None:
                return
            new = [found for found in page.found if found.key not in seen]
            seen.update(found.key for found in new)
            yield from new
            if page.next is None or not new:
                return
            params = page.next

    def _page(self, asked: Service, params: Params) -> Page | None:
        """Ask for a page and keep it; a service that has to be asked later rests until the next time."""
        if asked.name in self.resting:
            return None
        try:
            page = asked.page(params)
        except Later as error:
            self.resting.add(asked.name)
            self.waiting.append(f"{asked.name}: {error}")
            return None
        self.journal.keep_page(asked.name, params, page)
        return page

    def _take(self, asked: Service, found: Found, query: Query) -> bool:
        """Fetch and judge one image unless that is done; return whether the folder now has one
        more for this query.
        """
        listed = self.queries.setdefault(found.key, [])
        if query in listed:
            return False
        listed.append(query)
        self.found.setdefault(found.key, found)
        if found.licence is None or found.licence.code not in self.wanted.licences:
            reason = f"licence not asked for: {found.licence or found.stated}"
            if self.journal.outcomes.get(found.key) != Outcome(found.key, reason=reason):
                self._drop(found.key, reason)
            return False
        before = self.journal.outcomes.get(found.key)
        if before is None or self._again(before):
            self._fetch(asked, found, query)
        outcome = self.journal.outcomes.get(found.key)
        self.say(query.text, found.key, (outcome.reason or "kept") if outcome else "not fetched yet")
        return outcome is not None and outcome.file is not None

    def _again(self, outcome: Outcome) -> bool:
        """Return whether an image has to be fetched once more: its file is gone, or its licence
        was not expected before.
        """
        if outcome.file:
            path = self.folder / outcome.file
            gone = not path.is_file() or path.stat().st_size != outcome.bytes
            if gone:
                self.hashes.remove(outcome.key)
            return gone
        return (outcome.reason or "").startswith("licence not asked for")

    def _fetch(self, asked: Service, found: Found, query: Query) -> None:
        name, host = file_name(found, query), host_of(found.url)
        if host in self.resting:
            self.waiting.append(f"{found.key}: {host} is left alone until the next time")
            return
        try:
            data, url = self._bytes(asked, found, name)
            judged = judge(data, self.wanted.smallest)
        except Later as error:
            self.resting.add(host)
            self.waiting.append(f"{found.key}: {error}")
        except (Failed, Refused, LeftOut) as error:
            self.journal.keep(Outcome(found.key, reason=str(error)))
        else:
            self._keep(found, name + judged.suffix, data, url, judged)

    def _bytes(self, asked: Service, found: Found, name: str) -> tuple[bytes, str]:
        """Return a file's bytes: from the folder where a process ended between writing it and
        saying so, else by a request.
        """
        for path in self.folder.glob(f"{name}.*"):
            return path.read_bytes(), found.url
        answer = asked.client.image(found.url, self.wanted.most_bytes)
        return answer.data, answer.url

    def _keep(self, found: Found, name: str, data: bytes, url: str, judged: Judged) -> None:
        """Write an image, unless a better one is there that looks the same; a worse one that does
        is taken away.
        """
        twins = self.hashes.near(judged.hash, self.wanted.near)
        better = [key for key in twins if self._rank(key) >= (judged.width * judged.height, len(data))]
        if better:
            self.journal.keep(Outcome(found.key, reason=f"nearly the same as {better[0]}, which is larger"))
            for path in self.folder.glob(f"{Path(name).stem}.*"):
                path.unlink()
            return
        write_bytes(data, self.folder / name)
        fetched = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        facts = Outcome(
            found.key,
            name,
            None,
            hashlib.sha256(data).hexdigest(),
            len(data),
            judged.width,
            judged.height,
            f"{judged.hash:016x}",
            fetched,
            url,
        )
        self.journal.keep(facts)
        self.hashes.add(found.key, judged.hash)
        for key in twins:
            self._drop(key, f"nearly the same as {found.key}, which is larger")

    def _rank(self, key: str) -> tuple[int, int]:
        outcome = self.journal.outcomes[key]
        return (outcome.width or 0) * (outcome.height or 0), outcome.bytes or 0

    def _drop(self, key: str, reason: str) -> None:
        """Say why an image is not kept, and take its file away if it has one."""
        before = self.journal.outcomes.get(key)
        self.journal.keep(Outcome(key, reason=reason))
        if before and before.file:
            (self.folder / before.file).unlink(missing_ok=True)
            self.hashes.remove(key)


def file_name(found: Found, query: Query) -> str:
    """Return the name of an image's file without its ending: plain words of the query, and a hash
    of where it comes from.

    Nothing of what a service says stands in it.
    """
    words = re.sub(r"[^a-z0-9]+", "-", query.text.lower()).strip("-")[:60].strip("-")
    return (
        f"{words or 'image'}-{found.service}-{hashlib.blake2b(found.key.encode(), digest_size=6).hexdigest()}"
    )

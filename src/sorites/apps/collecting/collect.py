"""Collect images for queries from search services into a folder, with their origin and licence.

Requests are sequential. Files in the folder and earlier responses are reused.
"""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from sorites.apps.collecting.client import Client, Failed, Gate, Later, Refused, Rejected, host_of
from sorites.apps.collecting.judging import Hashes, Judged, LeftOut, judge
from sorites.apps.collecting.options import Criteria
from sorites.apps.collecting.plan import Query
from sorites.apps.collecting.records import Journal, Outcome, Row, page_key, write_records
from sorites.apps.collecting.services import Found, Page, Params, Service, licence_codes, service_class
from sorites.core.errors import SoritesError
from sorites.io.digests import Verifier
from sorites.io.files import locked, sweep_temporaries, write_bytes

# Maximum pages of results per service and query.
MAX_PAGES = 40

# Different files of a host that must fail before the host is left alone until the next run.
FILES_BEFORE_REST = 3
# Failed downloads of a file after which it is not tried again.
MAX_FAILURES = 5

# Receives the query, the key and the outcome of each image.
Say = Callable[[str, str, str], None]


@dataclass
class Collected:
    """Result of a collection.

    Attributes:
        rows: All results.
        requests: Number of HTTP requests.
        waiting: What could not be requested yet, with reasons.
    """

    rows: list[Row] = field(default_factory=list)
    requests: int = 0
    waiting: list[str] = field(default_factory=list)

    @property
    def kept(self) -> int:
        """The number of images in the folder."""
        return sum(row.outcome.file is not None for row in self.rows)


def collect(
    queries: Sequence[Query],
    out: str | Path,
    *,
    services: Sequence[str],
    contact: str,
    options: Criteria | None = None,
    bases: dict[str, str] | None = None,
    say: Say | None = None,
) -> Collected:
    """Search for each query at each service in turn until it has enough images, and write the records.

    Args:
        queries: The queries.
        out: Folder of the collection; an existing collection is continued.
        services: Names of the services.
        contact: E-mail or web address that identifies the user to the services.
        options: Requirements of the images.
        bases: Other URLs by service, such as one on this machine.
        say: Receives the outcome of each image.
    """
    options, bases, folder = options or Criteria(), bases or {}, Path(out)
    _check_contact(contact)
    with ExitStack() as stack:
        stack.enter_context(locked(folder, "collection", ".sorites.lock"))
        sweep_temporaries(folder)
        journal = Journal.opened(folder)
        stack.callback(journal.close)
        clients = {
            name: Client(Gate(bases.get(name) or service_class(name).public), contact, options.gap)
            for name in services
        }
        for client in clients.values():
            stack.callback(client.close)
        searchers = [
            service_class(name)(client, options.width, bases.get(name)) for name, client in clients.items()
        ]
        collection = _Collection(folder, journal, options, say or (lambda query, key, became: None))
        try:
            for query in queries:
                collection.search(query, searchers)
        finally:
            write_records(journal, collection.rows())
        return Collected(collection.rows(), sum(c.requests for c in clients.values()), collection.waiting)


def _check_contact(contact: str) -> None:
    if not re.fullmatch(r"[\x21-\x7e]{3,200}", contact) or not ("@" in contact or contact.startswith("http")):
        raise SoritesError(f"contact: expected an e-mail or web address, got {contact[:80]!r}")


class _Collection:
    def __init__(self, folder: Path, journal: Journal, options: Criteria, say: Say) -> None:
        self.folder, self.journal, self.options, self.say = folder, journal, options, say
        self.licences = licence_codes(options.licence)
        self.found: dict[str, Found] = {}
        self.queries: dict[str, list[Query]] = {}
        self.waiting: list[str] = []
        self.resting: set[str] = set()
        self.failing: dict[str, set[str]] = {}
        self.hashes = Hashes()
        for outcome in journal.outcomes.values():
            if outcome.file and outcome.hash:
                self.hashes.add(outcome.key, int(outcome.hash, 16))

    def rows(self) -> list[Row]:
        """Return a row for every result, in order of discovery."""
        pending = Outcome("", reason="not fetched yet")
        return [
            Row(found, self.queries[key], self.journal.outcomes.get(key, pending))
            for key, found in self.found.items()
        ]

    def search(self, query: Query, services: Sequence[Service]) -> None:
        """Collect the images of one query."""
        count = 0
        for service in services:
            for found in self._failed_last(self._results(service, query)):
                if count >= self.options.limit:
                    return
                count += self._take(service, found, query)
            if count >= self.options.limit:
                return

    def _failed_last(self, results: Iterator[Found]) -> Iterator[Found]:
        """Yield the results whose download has failed before after all others."""
        failed = []
        for found in results:
            if self.journal.failures.get(found.key) and found.key not in self.journal.outcomes:
                failed.append(found)
            else:
                yield found
        yield from failed

    def _results(self, service: Service, query: Query) -> Iterator[Found]:
        """Yield the results of a service page by page, until it ends, repeats itself, or reaches
        ``MAX_PAGES``.
        """
        params, seen = service.first(query.text, self.licences), set[str]()
        for _ in range(MAX_PAGES):
            page = self.journal.pages.get(page_key(service.name, params))
            if page is None:
                page = self._page(service, params, query)
            if page is None:
                return
            new = [found for found in page.found if found.key not in seen]
            seen.update(found.key for found in new)
            yield from new
            if page.next is None or not new:
                return
            params = page.next

    def _page(self, service: Service, params: Params, query: Query) -> Page | None:
        """Request and store a page; a query that a service rejects is skipped there, and a service that must
        be asked later is skipped from then on.
        """
        if service.name in self.resting:
            return None
        try:
            page = service.page(params)
        except Later as error:
            self.resting.add(service.name)
            self.waiting.append(f"{service.name}: {error}")
            return None
        except Rejected as error:
            self.waiting.append(f"{service.name}: the query {query.text!r} was skipped: {error}")
            return None
        self.journal.keep_page(service.name, params, page)
        return page

    def _take(self, service: Service, found: Found, query: Query) -> bool:
        """Download and check one image unless that is done; return whether this query gained an image."""
        queries = self.queries.setdefault(found.key, [])
        if query in queries:
            return False
        queries.append(query)
        self.found.setdefault(found.key, found)
        if found.licence is None or found.licence.code not in self.licences:
            reason = f"licence not asked for: {found.licence or found.stated}"
            if self.journal.outcomes.get(found.key) != Outcome(found.key, reason=reason):
                self._drop(found.key, reason)
            return False
        before = self.journal.outcomes.get(found.key)
        if before is None or self._must_fetch(before):
            self._fetch(service, found, query)
        outcome = self.journal.outcomes.get(found.key)
        self.say(query.text, found.key, (outcome.reason or "kept") if outcome else "not fetched yet")
        return outcome is not None and outcome.file is not None

    def _must_fetch(self, outcome: Outcome) -> bool:
        """Return whether to download an image again: its file is missing or damaged, or its licence was not
        accepted before.
        """
        if outcome.file:
            path, digest = self.folder / outcome.file, outcome.sha256 or ""
            missing = bool(Verifier(self.folder).problems({path: digest}))
            if missing:
                path.unlink(missing_ok=True)
                self.hashes.remove(outcome.key)
            return missing
        return (outcome.reason or "").startswith("licence not asked for")

    def _fetch(self, service: Service, found: Found, query: Query) -> None:
        name, host = file_name(found, query), host_of(found.url)
        if host in self.resting:
            self.waiting.append(f"{found.key}: {host} is skipped until the next run")
            return
        try:
            data, url = self._bytes(service, found, name)
            judged = judge(data, self.options.smallest)
        except Later as error:
            self._failed(found.key, host, error)
        except (Failed, Refused, LeftOut) as error:
            self.journal.keep(Outcome(found.key, reason=str(error)))
        else:
            self._keep(found, name + judged.suffix, data, url, judged)

    def _failed(self, key: str, host: str, error: Later) -> None:
        """Count a download that failed for now; the host rests if it says so, or if several files fail."""
        failures = self.journal.keep_failure(key)
        if failures >= MAX_FAILURES:
            self.journal.keep(Outcome(key, reason=f"not available: it failed {failures} times, last {error}"))
        else:
            self.waiting.append(f"{key}: {error}")
        failing = self.failing.setdefault(host, set())
        failing.add(key)
        if error.host_wide or len(failing) >= FILES_BEFORE_REST:
            self.resting.add(host)

    def _bytes(self, service: Service, found: Found, name: str) -> tuple[bytes, str]:
        """Return a file's content: from the folder if a process ended between writing and recording it,
        else downloaded.
        """
        for path in self.folder.glob(f"{name}.*"):
            return path.read_bytes(), found.url
        answer = service.client.image(found.url, self.options.max_bytes)
        return answer.data, answer.url

    def _keep(self, found: Found, name: str, data: bytes, url: str, judged: Judged) -> None:
        """Write an image, unless a better near duplicate exists; worse near duplicates are removed."""
        duplicates = self.hashes.near(judged.hash, self.options.near)
        better = [key for key in duplicates if self._rank(key) >= (judged.width * judged.height, len(data))]
        if better:
            self.journal.keep(Outcome(found.key, reason=f"nearly the same as {better[0]}, which is larger"))
            for path in self.folder.glob(f"{Path(name).stem}.*"):
                path.unlink()
            return
        write_bytes(data, self.folder / name)
        fetched = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        outcome = Outcome(
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
        self.journal.keep(outcome)
        self.hashes.add(found.key, judged.hash)
        for key in duplicates:
            self._drop(key, f"nearly the same as {found.key}, which is larger")

    def _rank(self, key: str) -> tuple[int, int]:
        outcome = self.journal.outcomes[key]
        return (outcome.width or 0) * (outcome.height or 0), outcome.bytes or 0

    def _drop(self, key: str, reason: str) -> None:
        """Record why an image is not kept, and delete its file."""
        before = self.journal.outcomes.get(key)
        self.journal.keep(Outcome(key, reason=reason))
        if before and before.file:
            (self.folder / before.file).unlink(missing_ok=True)
            self.hashes.remove(key)


def file_name(found: Found, query: Query) -> str:
    """Return the file name of an image without suffix: words of the query and a hash of the image's key.

    It contains nothing that a service chose.
    """
    words = re.sub(r"[^a-z0-9]+", "-", query.text.lower()).strip("-")[:60].strip("-")
    return (
        f"{words or 'image'}-{found.service}-{hashlib.blake2b(found.key.encode(), digest_size=6).hexdigest()}"
    )

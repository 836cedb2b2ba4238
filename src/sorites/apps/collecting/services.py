"""The image searches that can be asked, by name.

None of them was reached while this was written: the shapes of their answers follow from their documentation.
"""

from __future__ import annotations

import html
import os
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sorites.apps.collecting.client import Client, Failed
from sorites.core.errors import SoritesError, UnknownName

# Turn what an image search says of one image into plain text, and its licence into a code.


# Licences as they are typed: those of Creative Commons, its mark for the public domain, and a plain
# statement of it.
CODES = ("by", "by-sa", "by-nd", "by-nc", "by-nc-sa", "by-nc-nd", "cc0", "pdm", "pd")

DEFAULT = ("by", "by-sa", "cc0", "pdm")

# The most characters that are kept of a title, a name or a credit.
LONGEST = 300

_URL = re.compile(
    r"https?://(?:www\.)?creativecommons\.org/(?:licenses/(by(?:-nc)?(?:-sa|-nd)?)|publicdomain/(zero|mark))/(\d\.\d)(?:/|$)",
    re.I,
)
_SHORT = re.compile(r"cc[ -](by(?:-nc)?(?:-sa|-nd)?)[ -](\d\.\d)(?![\d.])", re.I)
_TAG = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^<>]*>", re.I | re.S)
_LONGEST_RAW = 20_000


@dataclass(frozen=True)
class Licence:
    """A licence: its code, its version (empty where it has none) and the page that states it."""

    code: str
    version: str
    url: str

    def __str__(self) -> str:
        names = {"cc0": "CC0", "pdm": "Public Domain Mark", "pd": "Public domain"}
        return f"{names.get(self.code, f'CC {self.code.upper()}')} {self.version}".strip()


@dataclass(frozen=True)
class Found:
    """One image that a search found.

    ``id`` is the service's own; ``url`` is the file, ``page`` where people see it.
    """

    service: str
    id: str
    url: str
    page: str
    title: str
    author: str
    licence: Licence | None
    stated: str
    width: int | None = None
    height: int | None = None

    @property
    def key(self) -> str:
        """Return the name of the image among those of all services."""
        return f"{self.service}:{self.id}"

    @property
    def attribution(self) -> str:
        """Return the line that credits the author, as the licences ask: title, author, licence, and
        where each is found.
        """
        titled = f'"{self.title}"' if self.title else "Untitled"
        by = f" by {self.author}" if self.author else " by an author the service does not name"
        where = self.licence.url if self.licence and self.licence.url else "no licence page"
        return f"{titled}{by}, {self.licence or self.stated} ({where}), {self.page}"


def licence_of(url: str | None, stated: str = "") -> Licence | None:
    """Return the licence that a page of Creative Commons, or else the words of a service, stand
    for; None where it is unknown.
    """
    if found := _URL.match(url or ""):
        code = found[1].lower() if found[1] else {"zero": "cc0", "mark": "pdm"}[found[2].lower()]
        return Licence(code, found[3], licence_page(code, found[3]))
    words = stated.strip()
    if found := _SHORT.fullmatch(words):
        return Licence(found[1].lower(), found[2], licence_page(found[1].lower(), found[2]))
    if words.lower() in ("cc0", "cc0 1.0"):
        return Licence("cc0", "1.0", licence_page("cc0", "1.0"))
    return Licence("pd", "", url or "") if words.lower() == "public domain" else None


def licence_page(code: str, version: str) -> str:
    """Return the address of a licence's deed."""
    kind = {"cc0": "publicdomain/zero", "pdm": "publicdomain/mark"}.get(code, f"licenses/{code}")
    return f"https://creativecommons.org/{kind}/{version}/"


def licence_codes(text: str) -> tuple[str, ...]:
    """Return the licences of a list such as ``by,by-sa,cc0``."""
    codes = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
    wrong = [code for code in codes if code not in CODES]
    if wrong or not codes:
        got = repr(wrong[0]) if wrong else "none"
        raise SoritesError(f"--licence wants some of {', '.join(CODES)} with commas between them, got {got}")
    return codes


def plain(value: Any) -> str:
    """Return text of others on one line: without markup, entities, control characters and marks of
    writing direction.
    """
    raw = str(value)[:_LONGEST_RAW] if isinstance(value, str | int) else ""
    bare = html.unescape(_TAG.sub(" ", html.unescape(_TAG.sub(" ", raw))))
    bare = _TAG.sub(" ", bare)
    kept = "".join(
        " " if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") else letter for letter in bare
    )
    return " ".join(kept.split())[:LONGEST]


def address(value: Any) -> str:
    """Return an address of the web, or an empty text where the value is none."""
    text = value.strip() if isinstance(value, str) else ""
    return text if re.fullmatch(r"https?://[^\s<>\"'`\\]{1,2000}", text) else ""


def number(value: Any) -> int | None:
    """Return a positive whole number, also where it is written as text; None for anything else."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    return int(text) if text.isdecimal() and 0 < len(text) < 10 and int(text) else None


# The parts that all image searches share: pages of results, asked one after the other, and results made
# plain.


Params = dict[str, str]


@dataclass(frozen=True)
class Page:
    """One page of results: what was found, and how to ask for the next page (None at the end)."""

    found: tuple[Found, ...]
    next: Params | None


class Service(ABC):
    """A search at an address, asked through a polite client.

    An answer of another shape is an error that names the service.
    """

    name: ClassVar[str]
    public: ClassVar[str]

    def __init__(self, client: Client, width: int, base: str | None = None) -> None:
        self.client, self.width, self.base = client, width, base or self.public

    @abstractmethod
    def first(self, query: str, codes: Sequence[str]) -> Params:
        """Return what is asked for the first page of a query; nothing secret is in it."""

    @abstractmethod
    def ask(self, params: Params) -> Any:
        """Return the service's answer to a question, with whatever key it needs."""

    @abstractmethod
    def read(self, params: Params, answer: Any) -> Page:
        """Return the page that an answer holds; an answer of another shape raises nearly anything."""

    def page(self, params: Params) -> Page:
        """Ask for a page of results."""
        answer = self.ask(params)
        try:
            return self.read(params, answer)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise Failed(
                f"{self.name} answered in an unknown shape: {type(error).__name__} {error}"
            ) from error


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list; entries of other kinds are skipped."""
    if not isinstance(value, list):
        raise TypeError(f"expected a list of results, got {type(value).__name__}")
    return [entry for entry in value if isinstance(entry, dict)]


def result(
    service: str,
    id_: Any,
    *,
    url: Any,
    page: Any,
    title: Any,
    author: Any,
    licence: Licence | None,
    stated: str,
    size: Any,
) -> Found | None:
    """Return a result with its texts made plain; None where it has no id, no file or no page."""
    key, file, seen = plain(id_), address(url), address(page)
    if not key or not file or not seen:
        return None
    return Found(
        service, key, file, seen, plain(title), plain(author), licence, stated or "none", *map(number, size)
    )


def next_numbered(params: Params, pages: Any) -> Params | None:
    """Return how to ask for the page after this one, of a service that numbers its pages."""
    page = int(params["page"])
    return {**params, "page": str(page + 1)} if page < (number(pages) or 0) else None


# Wikimedia Commons: its search, with the facts of each file. It needs no key and cannot filter by
# licence.


class Commons(Service):
    """Asks ``api.php`` for files by words; the width of their scaled copies is ours to choose."""

    name = "commons"
    public = "https://commons.wikimedia.org/w/api.php"

    def first(self, query: str, codes: Sequence[str]) -> Params:
        """Ask for bitmaps, fifty a page, with the facts that tell their licence."""
        return {
            "action": "query",
            "format": "json",
            "formatversion": "2",
            "generator": "search",
            "gsrnamespace": "6",
            "gsrsearch": f"{query} filetype:bitmap",
            "gsrlimit": "50",
            "prop": "imageinfo",
            "iiprop": "url|size|mime|extmetadata",
            "iiurlwidth": str(self.width),
            "iiextmetadatafilter": "Artist|LicenseShortName|LicenseUrl|ObjectName",
        }

    def ask(self, params: Params) -> Any:
        """Ask for a page."""
        return self.client.json(self.base, params)

    def read(self, params: Params, answer: Any) -> Page:
        """Read ``query.pages`` in the order of their index, and ``continue``."""
        if "error" in answer:
            raise Failed(f"commons answered with an error: {plain(answer['error'].get('info'))}")
        pages = objects(answer.get("query", {}).get("pages", []))
        ordered = sorted(pages, key=lambda page: number(page.get("index")) or 0)
        onward = answer.get("continue") or {}
        more = {key: plain(onward[key]) for key in ("gsroffset", "continue") if key in onward}
        return Page(tuple(filter(None, map(_found, ordered))), {**params, **more} if more else None)


def _found(page: Mapping[str, Any]) -> Found | None:
    info = next(iter(objects(page.get("imageinfo", []))), None)
    if info is None:
        return None
    stated = plain(_fact(info, "LicenseShortName"))
    return result(
        "commons",
        page.get("pageid"),
        url=info.get("thumburl") or info.get("url"),
        page=info.get("descriptionurl"),
        title=_fact(info, "ObjectName") or plain(page.get("title")).removeprefix("File:"),
        author=_fact(info, "Artist"),
        licence=licence_of(address(_fact(info, "LicenseUrl")), stated),
        stated=stated,
        size=(info.get("thumbwidth") or info.get("width"), info.get("thumbheight") or info.get("height")),
    )


def _fact(info: Mapping[str, Any], name: str) -> Any:
    facts = info.get("extmetadata")
    entry = facts.get(name) if isinstance(facts, dict) else None
    return entry.get("value") if isinstance(entry, dict) else None


# Flickr: its search, with a key of the user's own, and its numbers of licences as it states them at the
# time.


class Flickr(Service):
    """Asks ``flickr.photos.search``; the key comes from FLICKR_API_KEY and is neither kept nor shown."""

    name = "flickr"
    public = "https://api.flickr.com/services/rest/"
    _licences: Mapping[str, Licence] | None = None

    def first(self, query: str, codes: Sequence[str]) -> Params:
        """Ask for photographs under the licences, which are numbers only when they are sent."""
        return {
            "method": "flickr.photos.search",
            "text": query,
            "licences": ",".join(codes),
            "media": "photos",
            "content_type": "1",
            "safe_search": "1",
            "sort": "relevance",
            "extras": "license,owner_name,url_l,url_c,url_o",
            "per_page": "250",
            "page": "1",
        }

    def ask(self, params: Params) -> Any:
        """Ask for a page; the first time also which number stands for which licence."""
        codes = params["licences"].split(",")
        numbers = [number for number, licence in self._known().items() if licence.code in codes]
        if not numbers:
            raise SoritesError(f"flickr has no images under {params['licences']}")
        sent = {key: value for key, value in params.items() if key != "licences"}
        return self._called({**sent, "license": ",".join(numbers)})

    def read(self, params: Params, answer: Any) -> Page:
        """Read ``photos``."""
        photos = answer["photos"]
        found = [_flickr_found(entry, self._known(), self.width) for entry in objects(photos["photo"])]
        return Page(tuple(filter(None, found)), next_numbered(params, photos.get("pages")))

    def _known(self) -> Mapping[str, Licence]:
        if self._licences is None:
            answer = self._called({"method": "flickr.photos.licenses.getInfo"})
            try:
                entries = objects(answer["licenses"]["license"])
            except (KeyError, TypeError) as error:
                raise Failed(f"flickr listed its licences in an unknown shape: {error}") from error
            found = {str(entry.get("id")): licence_of(address(entry.get("url"))) for entry in entries}
            self._licences = {number: licence for number, licence in found.items() if licence is not None}
        return self._licences

    def _called(self, params: Params) -> Any:
        key = os.environ.get("FLICKR_API_KEY")
        if not key:
            raise SoritesError("flickr needs a key of your own: set the environment variable FLICKR_API_KEY")
        answer = self.client.json(
            self.base, {**params, "api_key": key, "format": "json", "nojsoncallback": "1"}
        )
        if not isinstance(answer, dict) or answer.get("stat") != "ok":
            said = plain(answer.get("message")) if isinstance(answer, dict) else ""
            raise Failed(f"flickr answered with an error: {said.replace(key, 'KEY') or 'no reason given'}")
        return answer


def _flickr_found(entry: Mapping[str, Any], licences: Mapping[str, Licence], width: int) -> Found | None:
    sizes = ("l", "c", "o") if width <= 1024 else ("o", "l", "c")
    size = next((name for name in sizes if entry.get(f"url_{name}")), "l")
    licence, owner, id_ = plain(entry.get("license")), plain(entry.get("owner")), plain(entry.get("id"))
    page = f"https://www.flickr.com/photos/{owner}/{id_}/"
    return result(
        "flickr",
        id_,
        url=entry.get(f"url_{size}"),
        page=page,
        title=entry.get("title"),
        author=entry.get("ownername"),
        licence=licences.get(licence),
        stated=f"licence number {licence[:20] or 'none'}",
        size=(entry.get(f"width_{size}"), entry.get(f"height_{size}")),
    )


# Openverse: a search over openly licensed images of many providers. It works without a key, at a lower
# rate.


class Openverse(Service):
    """Asks ``/v1/images/``; with OPENVERSE_CLIENT_ID and OPENVERSE_CLIENT_SECRET it asks for a
    token first.
    """

    name = "openverse"
    public = "https://api.openverse.org/v1/images/"
    _token = ""

    def first(self, query: str, codes: Sequence[str]) -> Params:
        """Ask for images under the licences; twenty a page, which is the most without a key."""
        asked = ",".join(code for code in codes if code != "pd")
        if not asked:
            raise SoritesError(
                "openverse knows the licences of Creative Commons, cc0 and pdm; --licence pd is for commons"
                " alone"
            )
        return {"q": query, "license": asked, "page": "1", "page_size": "20"}

    def ask(self, params: Params) -> Any:
        """Ask for a page, with a token where the environment has a client's id and secret; both
        stay in memory.
        """
        name, secret = os.environ.get("OPENVERSE_CLIENT_ID"), os.environ.get("OPENVERSE_CLIENT_SECRET")
        if name and secret and not self._token:
            self._token = self._asked_token(name, secret)
        return self.client.json(
            self.base, params, {"Authorization": f"Bearer {self._token}"} if self._token else {}
        )

    def _asked_token(self, name: str, secret: str) -> str:
        where = self.base.replace("/images/", "/auth_tokens/token/")
        asked = {"grant_type": "client_credentials", "client_id": name, "client_secret": secret}
        answer = self.client.json(where, asked, post=True)
        token = answer.get("access_token") if isinstance(answer, dict) else None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise Failed("openverse gave no token for OPENVERSE_CLIENT_ID and OPENVERSE_CLIENT_SECRET")
        return token

    def read(self, params: Params, answer: Any) -> Page:
        """Read ``results`` and ``page_count``."""
        found = [_openverse_found(entry) for entry in objects(answer["results"])]
        return Page(tuple(filter(None, found)), next_numbered(params, answer.get("page_count")))


def _openverse_found(entry: Mapping[str, Any]) -> Found | None:
    """Read a result; where the licence's code and its page disagree, the licence is unknown."""
    code, version, page = (
        plain(entry.get("license")).lower(),
        plain(entry.get("license_version")),
        entry.get("license_url"),
    )
    licence = licence_of(page if isinstance(page, str) and page else licence_page(code, version))
    agree = licence is not None and licence.code == code
    stated = f"{code} {version}".strip()
    return result(
        "openverse",
        entry.get("id"),
        url=entry.get("url"),
        page=entry.get("foreign_landing_url"),
        title=entry.get("title"),
        author=entry.get("creator"),
        licence=licence if agree else None,
        stated=stated if agree or not licence else f"{stated} or {licence}",
        size=(entry.get("width"), entry.get("height")),
    )


SERVICES: dict[str, type[Service]] = {"openverse": Openverse, "commons": Commons, "flickr": Flickr}


def service_class(name: str) -> type[Service]:
    """Return a service by name."""
    if name not in SERVICES:
        raise UnknownName("image search", name, SERVICES, f"It is one of {', '.join(SERVICES)}.")
    return SERVICES[name]


__all__ = ["SERVICES", "Page", "Params", "Service", "service_class"]

"""Image search services, by name.

They were written from the services' documentation, without access to the services.
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
from sorites.core.messages import option

# Licences and results

# Licence codes: Creative Commons licences, its Public Domain Mark, and a plain statement of public domain.
CODES = ("by", "by-sa", "by-nd", "by-nc", "by-nc-sa", "by-nc-nd", "cc0", "pdm", "pd")

# Maximum characters of a title, name or credit.
MAX_TEXT = 300

_URL = re.compile(
    r"https?://(?:www\.)?creativecommons\.org/(?:licenses/(by(?:-nc)?(?:-sa|-nd)?)|publicdomain/(zero|mark))/(\d\.\d)(?:/|$)",
    re.I,
)
_SHORT = re.compile(r"cc[ -](by(?:-nc)?(?:-sa|-nd)?)[ -](\d\.\d)(?![\d.])", re.I)
_TAG = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^<>]*>", re.I | re.S)
_MAX_RAW_TEXT = 20_000


@dataclass(frozen=True)
class Licence:
    """A licence: its code, its version (may be empty) and the URL of its page."""

    code: str
    version: str
    url: str

    def __str__(self) -> str:
        names = {"cc0": "CC0", "pdm": "Public Domain Mark", "pd": "Public domain"}
        return f"{names.get(self.code, f'CC {self.code.upper()}')} {self.version}".strip()


@dataclass(frozen=True)
class Found:
    """One result of a search.

    Attributes:
        id: The service's id of the image.
        url: URL of the file.
        page: URL of the page that shows it.
        stated: The licence as the service states it.
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
        """The key of the image among all services."""
        return f"{self.service}:{self.id}"

    @property
    def attribution(self) -> str:
        """The credit line that licences require: title, author, licence, and where each is found."""
        titled = f'"{self.title}"' if self.title else "Untitled"
        by = f" by {self.author}" if self.author else " by an unnamed author"
        where = self.licence.url if self.licence and self.licence.url else "no licence page"
        return f"{titled}{by}, {self.licence or self.stated} ({where}), {self.page}"


def licence_of(url: str | None, stated: str = "") -> Licence | None:
    """Return the licence for a Creative Commons URL, or else for the text of a service; None if unknown."""
    if match := _URL.match(url or ""):
        code = match[1].lower() if match[1] else {"zero": "cc0", "mark": "pdm"}[match[2].lower()]
        return Licence(code, match[3], licence_page(code, match[3]))
    words = stated.strip()
    if match := _SHORT.fullmatch(words):
        return Licence(match[1].lower(), match[2], licence_page(match[1].lower(), match[2]))
    if words.lower() in ("cc0", "cc0 1.0"):
        return Licence("cc0", "1.0", licence_page("cc0", "1.0"))
    return Licence("pd", "", url or "") if words.lower() == "public domain" else None


def licence_page(code: str, version: str) -> str:
    """Return the URL of a licence's deed."""
    kind = {"cc0": "publicdomain/zero", "pdm": "publicdomain/mark"}.get(code, f"licenses/{code}")
    return f"https://creativecommons.org/{kind}/{version}/"


def licence_codes(text: str) -> tuple[str, ...]:
    """Parse licence codes such as ``by,by-sa,cc0``."""
    codes = tuple(dict.fromkeys(part.strip().lower() for part in text.split(",") if part.strip()))
    unknown = [code for code in codes if code not in CODES]
    if unknown or not codes:
        got = repr(unknown[0]) if unknown else "none"
        raise SoritesError(
            f"{option('licence', None)}: expected some of {', '.join(CODES)}, with commas, got {got}"
        )
    return codes


def plain(value: Any) -> str:
    """Return foreign text on one line, without markup, entities, control characters and bidirectional
    marks.
    """
    raw = str(value)[:_MAX_RAW_TEXT] if isinstance(value, str | int) else ""
    bare = html.unescape(_TAG.sub(" ", html.unescape(_TAG.sub(" ", raw))))
    bare = _TAG.sub(" ", bare)
    cleaned = "".join(
        " " if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") else letter for letter in bare
    )
    return " ".join(cleaned.split())[:MAX_TEXT]


def address(value: Any) -> str:
    """Return a web URL, or an empty text if the value is none."""
    text = value.strip() if isinstance(value, str) else ""
    return text if re.fullmatch(r"https?://[^\s<>\"'`\\]{1,2000}", text) else ""


def number(value: Any) -> int | None:
    """Return a positive whole number, also from text; None for anything else."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    return int(text) if text.isdecimal() and 0 < len(text) < 10 and int(text) else None


# Base of all services

Params = dict[str, str]


@dataclass(frozen=True)
class Page:
    """One page of results, and the parameters of the next page (None at the end)."""

    found: tuple[Found, ...]
    next: Params | None


class Service(ABC):
    """Contract of an image search service.

    Args:
        client: The HTTP client.
        width: Preferred width of the images in px.
        base: URL of the service; its public one by default.
    """

    name: ClassVar[str]
    public: ClassVar[str]

    def __init__(self, client: Client, width: int, base: str | None = None) -> None:
        self.client, self.width, self.base = client, width, base or self.public

    @abstractmethod
    def first(self, query: str, codes: Sequence[str]) -> Params:
        """Return the parameters of the first page of a query, without secrets."""

    @abstractmethod
    def ask(self, params: Params) -> Any:
        """Return the service's response to parameters, adding keys if it needs any."""

    @abstractmethod
    def read(self, params: Params, answer: Any) -> Page:
        """Parse a response; it may raise KeyError, TypeError, AttributeError or ValueError for unknown
        formats.
        """

    def page(self, params: Params) -> Page:
        """Request a page of results."""
        answer = self.ask(params)
        try:
            return self.read(params, answer)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise Failed(
                f"{self.name} answered in an unknown format: {type(error).__name__} {error}"
            ) from error


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list, skipping other entries."""
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
    """Return a result with cleaned texts; None if it has no id, file or page."""
    key, file, page_url = plain(id_), address(url), address(page)
    if not key or not file or not page_url:
        return None
    return Found(
        service,
        key,
        file,
        page_url,
        plain(title),
        plain(author),
        licence,
        stated or "none",
        *map(number, size),
    )


def next_numbered(params: Params, pages: Any) -> Params | None:
    """Return the parameters of the next page, for services that number their pages."""
    page = int(params["page"])
    return {**params, "page": str(page + 1)} if page < (number(pages) or 0) else None


class Commons(Service):
    """Wikimedia Commons (``api.php``). It needs no key, cannot filter by licence, and scales images to any
    width.
    """

    name = "commons"
    public = "https://commons.wikimedia.org/w/api.php"

    def first(self, query: str, codes: Sequence[str]) -> Params:
        """Request bitmaps, fifty per page, with the metadata of their licences."""
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
        return self.client.json(self.base, params)

    def read(self, params: Params, answer: Any) -> Page:
        """Parse ``query.pages`` in the order of their index, and ``continue``."""
        if "error" in answer:
            raise Failed(f"commons answered with an error: {plain(answer['error'].get('info'))}")
        pages = objects(answer.get("query", {}).get("pages", []))
        ordered = sorted(pages, key=lambda page: number(page.get("index")) or 0)
        continuation = answer.get("continue") or {}
        more = {key: plain(continuation[key]) for key in ("gsroffset", "continue") if key in continuation}
        return Page(tuple(filter(None, map(_commons_found, ordered))), {**params, **more} if more else None)


def _commons_found(page: Mapping[str, Any]) -> Found | None:
    info = next(iter(objects(page.get("imageinfo", []))), None)
    if info is None:
        return None
    stated = plain(_metadata(info, "LicenseShortName"))
    return result(
        "commons",
        page.get("pageid"),
        url=info.get("thumburl") or info.get("url"),
        page=info.get("descriptionurl"),
        title=_metadata(info, "ObjectName") or plain(page.get("title")).removeprefix("File:"),
        author=_metadata(info, "Artist"),
        licence=licence_of(address(_metadata(info, "LicenseUrl")), stated),
        stated=stated,
        size=(info.get("thumbwidth") or info.get("width"), info.get("thumbheight") or info.get("height")),
    )


def _metadata(info: Mapping[str, Any], name: str) -> Any:
    metadata = info.get("extmetadata")
    entry = metadata.get(name) if isinstance(metadata, dict) else None
    return entry.get("value") if isinstance(entry, dict) else None


class Flickr(Service):
    """Flickr (``flickr.photos.search``). The key comes from FLICKR_API_KEY and is neither stored nor shown.

    Licence numbers are requested from the service.
    """

    name = "flickr"
    public = "https://api.flickr.com/services/rest/"
    _licences: Mapping[str, Licence] | None = None

    def first(self, query: str, codes: Sequence[str]) -> Params:
        """Request photographs under the licences, which become numbers only when sent."""
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
        """Request a page; the first time also the numbers of licences."""
        codes = params["licences"].split(",")
        numbers = [number for number, licence in self._licence_numbers().items() if licence.code in codes]
        if not numbers:
            raise SoritesError(f"flickr has no images under {params['licences']}")
        sent = {key: value for key, value in params.items() if key != "licences"}
        return self._call({**sent, "license": ",".join(numbers)})

    def read(self, params: Params, answer: Any) -> Page:
        """Parse ``photos``."""
        photos = answer["photos"]
        results = [
            _flickr_found(entry, self._licence_numbers(), self.width) for entry in objects(photos["photo"])
        ]
        return Page(tuple(filter(None, results)), next_numbered(params, photos.get("pages")))

    def _licence_numbers(self) -> Mapping[str, Licence]:
        if self._licences is None:
            answer = self._call({"method": "flickr.photos.licenses.getInfo"})
            try:
                entries = objects(answer["licenses"]["license"])
            except (KeyError, TypeError) as error:
                raise Failed(f"flickr listed its licences in an unknown format: {error}") from error
            by_number = {str(entry.get("id")): licence_of(address(entry.get("url"))) for entry in entries}
            self._licences = {number: licence for number, licence in by_number.items() if licence is not None}
        return self._licences

    def _call(self, params: Params) -> Any:
        key = os.environ.get("FLICKR_API_KEY")
        if not key:
            raise SoritesError("flickr needs a key: set the environment variable FLICKR_API_KEY")
        answer = self.client.json(
            self.base, {**params, "api_key": key, "format": "json", "nojsoncallback": "1"}
        )
        if not isinstance(answer, dict) or answer.get("stat") != "ok":
            message = plain(answer.get("message")) if isinstance(answer, dict) else ""
            raise Failed(f"flickr answered with an error: {message.replace(key, 'KEY') or 'no reason given'}")
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


class Openverse(Service):
    """Openverse (``/v1/images/``), openly licensed images of many providers.

    With OPENVERSE_CLIENT_ID and OPENVERSE_CLIENT_SECRET it requests a token; without, the rate is lower.
    """

    name = "openverse"
    public = "https://api.openverse.org/v1/images/"
    _token = ""

    def first(self, query: str, codes: Sequence[str]) -> Params:
        """Request images under the licences, twenty per page, the maximum without a key."""
        licences = ",".join(code for code in codes if code != "pd")
        if not licences:
            raise SoritesError(
                "openverse supports the Creative Commons licences, cc0 and pdm;"
                f" {option('licence', 'pd')} works only with commons"
            )
        return {"q": query, "license": licences, "page": "1", "page_size": "20"}

    def ask(self, params: Params) -> Any:
        """Request a page, with a token if the environment has a client id and secret; both stay in memory."""
        name, secret = os.environ.get("OPENVERSE_CLIENT_ID"), os.environ.get("OPENVERSE_CLIENT_SECRET")
        if name and secret and not self._token:
            self._token = self._request_token(name, secret)
        return self.client.json(
            self.base, params, {"Authorization": f"Bearer {self._token}"} if self._token else {}
        )

    def _request_token(self, name: str, secret: str) -> str:
        url = self.base.replace("/images/", "/auth_tokens/token/")
        credentials = {"grant_type": "client_credentials", "client_id": name, "client_secret": secret}
        answer = self.client.json(url, credentials, post=True)
        token = answer.get("access_token") if isinstance(answer, dict) else None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise Failed("openverse gave no token for OPENVERSE_CLIENT_ID and OPENVERSE_CLIENT_SECRET")
        return token

    def read(self, params: Params, answer: Any) -> Page:
        """Parse ``results`` and ``page_count``."""
        results = [_openverse_found(entry) for entry in objects(answer["results"])]
        return Page(tuple(filter(None, results)), next_numbered(params, answer.get("page_count")))


def _openverse_found(entry: Mapping[str, Any]) -> Found | None:
    """Parse a result; if its licence code and URL disagree, the licence is unknown."""
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

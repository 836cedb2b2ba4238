"""Turn what an image search says of one picture into plain text, and its licence into a code."""

from __future__ import annotations

import html
import re
import unicodedata
from dataclasses import dataclass
from typing import Any

from sorites.errors import SoritesError

CODES = ("by", "by-sa", "by-nd", "by-nc", "by-nc-sa", "by-nc-nd", "cc0", "pdm", "pd")
"""Licences as they are typed: those of Creative Commons, its mark for the public domain, and a plain statement of it."""

DEFAULT = ("by", "by-sa", "cc0", "pdm")

LONGEST = 300
"""The most characters that are kept of a title, a name or a credit."""

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
    """One picture that a search found. ``id`` is the service's own; ``url`` is the file, ``page`` where people see it."""

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
        """Return the name of the picture among those of all services."""
        return f"{self.service}:{self.id}"

    @property
    def attribution(self) -> str:
        """Return the line that credits the author, as the licences ask: title, author, licence, and where each is found."""
        titled = f'"{self.title}"' if self.title else "Untitled"
        by = f" by {self.author}" if self.author else " by an author the service does not name"
        where = self.licence.url if self.licence and self.licence.url else "no licence page"
        return f"{titled}{by}, {self.licence or self.stated} ({where}), {self.page}"


def licence_of(url: str | None, stated: str = "") -> Licence | None:
    """Return the licence that a page of Creative Commons, or else the words of a service, stand for; None where it is unknown."""
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
    """Return text of others on one line: without markup, entities, control characters and marks of writing direction."""
    raw = str(value)[:_LONGEST_RAW] if isinstance(value, str | int) else ""
    bare = html.unescape(_TAG.sub(" ", html.unescape(_TAG.sub(" ", raw))))
    bare = _TAG.sub(" ", bare)
    kept = "".join(" " if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") else letter for letter in bare)
    return " ".join(kept.split())[:LONGEST]


def address(value: Any) -> str:
    """Return an address of the web, or an empty text where the value is none."""
    text = value.strip() if isinstance(value, str) else ""
    return text if re.fullmatch(r"https?://[^\s<>\"'`\\]{1,2000}", text) else ""


def number(value: Any) -> int | None:
    """Return a positive whole number, also where it is written as text; None for anything else."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    return int(text) if text.isdecimal() and 0 < len(text) < 10 and int(text) else None

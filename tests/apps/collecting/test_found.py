"""Texts of others made plain, licences told apart, and headers that ask to wait."""

from __future__ import annotations

import email.utils
import time

import pytest

from sorites.apps.collecting.client import requested_wait
from sorites.apps.collecting.services import Found, address, licence_codes, licence_of, number, plain
from sorites.core.errors import SoritesError


@pytest.mark.parametrize(
    ("url", "stated", "code", "version"),
    [
        ("https://creativecommons.org/licenses/by/4.0/", "", "by", "4.0"),
        ("http://creativecommons.org/licenses/by-sa/3.0/de/deed.de", "", "by-sa", "3.0"),
        ("https://creativecommons.org/licenses/by-nc-nd/2.0/", "", "by-nc-nd", "2.0"),
        ("https://www.creativecommons.org/publicdomain/zero/1.0/", "", "cc0", "1.0"),
        ("https://creativecommons.org/publicdomain/mark/1.0", "", "pdm", "1.0"),
        ("", "CC BY-SA 4.0", "by-sa", "4.0"),
        ("", "CC0", "cc0", "1.0"),
        ("", "Public domain", "pd", ""),
    ],
)
def test_licences(url: str, stated: str, code: str, version: str) -> None:
    """A licence is known by its page, or by the words of Commons."""
    found = licence_of(url, stated)
    assert found is not None
    assert (found.code, found.version) == (code, version)


@pytest.mark.parametrize(
    ("url", "stated"),
    [
        ("https://evil.example/creativecommons.org/licenses/by/4.0/", ""),
        ("https://creativecommons.org.evil.example/licenses/by/4.0/", ""),
        ("https://creativecommons.org/licenses/by-xx/4.0/", ""),
        ("https://creativecommons.org/licenses/by/", ""),
        ("https://www.flickr.com/commons/usage/", "No known copyright restrictions"),
        (None, "GFDL"),
        (None, "CC BY-SA 4.0 but ask me"),
        (None, "CC BY"),
        (None, ""),
        (None, "Copyrighted free use"),
    ],
)
def test_unknown_licences(url: str | None, stated: str) -> None:
    """What only looks like a licence is none."""
    assert licence_of(url, stated) is None


def test_codes() -> None:
    """Licences as they are typed."""
    assert licence_codes("by, BY-SA,by") == ("by", "by-sa")
    for wrong in ("", "mit", "by;cc0"):
        with pytest.raises(SoritesError, match="by-sa"):
            licence_codes(wrong)


def test_plain() -> None:
    """Markup, entities that hide markup, control characters and turned writing are gone, in any nesting."""
    assert plain("<a href='x'>Jo &amp; Co</a>") == "Jo & Co"
    assert "<" not in plain("&lt;img src=x onerror=alert(1)&gt;")
    assert "<" not in plain("&amp;lt;img src=x&amp;gt;")
    assert plain("a\u202eb\x1b[0m\nc\x00\ud800") == "a b [0m c"
    assert plain(None) == plain({"a": 1}) == ""
    assert len(plain("x" * 10**6)) == 300


def test_values() -> None:
    """Addresses and numbers of others, or nothing."""
    assert address("https://a.example/ü.jpg") == "https://a.example/ü.jpg"
    assert [
        address(x) for x in ("file:///x", "javascript:x", "http://a b", None, 5, "http://a/\"'><script>")
    ] == [""] * 6
    assert number("320") == number(320) == 320
    assert [number(x) for x in (0, -1, True, "x", None, 1e3, "9" * 30)] == [None] * 7


def test_attribution() -> None:
    """A credit names title, author, licence with its page, and where the image is seen."""
    found = Found(
        "s", "1", "u", "https://p", "T", "A", licence_of("https://creativecommons.org/licenses/by/4.0/"), ""
    )
    assert (
        found.attribution == '"T" by A, CC BY 4.0 (https://creativecommons.org/licenses/by/4.0/), https://p'
    )


def test_waits() -> None:
    """Seconds and dates after which to ask again, and allowances that are used up."""
    assert requested_wait({}) is None
    assert requested_wait({"Retry-After": "12"}) == 12
    assert requested_wait({"retry-after": email.utils.formatdate(time.time() + 60)}) == pytest.approx(
        60, abs=2
    )
    assert requested_wait({"X-RateLimit-Remaining": "3", "X-RateLimit-Reset": "50"}) is None
    assert requested_wait({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "50"}) == 50
    assert requested_wait(
        {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(time.time() + 30)}
    ) == pytest.approx(30, abs=2)
    day = {"X-RateLimit-Available-anon_sustained": "0", "X-RateLimit-Limit-anon_sustained": "200/day"}
    assert requested_wait({**day, "X-RateLimit-Available-anon_burst": "19"}) == 86400
    for wrong in ("soon", "nan", "inf", ""):
        assert requested_wait({"Retry-After": wrong}) is None

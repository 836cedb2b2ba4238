"""Services and images that lie, go on for ever, send elsewhere or ask to wait."""

from __future__ import annotations

import json
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from tests.apps.collecting.conftest import Gather, reasons
from tests.apps.collecting.web import Web, drawing, jpeg, openverse, results, send

from sorites.apps.collecting import collect as room
from sorites.core.errors import SoritesError


def test_left_out(web: Web, gather: Gather, tmp_path: Path) -> None:
    """What is small, drawn, broken, not an image, gone or too long is left out with a reason,
    whatever its content type says.
    """
    fine = web.say("/p/fine.jpg", jpeg(9), Content_Type="text/html")
    urls = {
        "small": web.say("/p/small.jpg", jpeg(1, 100, 90)),
        "drawn": web.say("/p/drawn.png", drawing()),
        "broken": web.say("/p/broken.jpg", jpeg(2)[:3000], Content_Type="image/jpeg"),
        "page": web.say("/p/page.jpg", "<html><script>alert(1)</script>", Content_Type="image/jpeg"),
        "svg": web.say("/p/svg.svg", "<svg onload='x'/>", Content_Type="image/jpeg"),
        "gone": f"{web.url}/p/gone.jpg",
        "long": web.say("/p/long.jpg", jpeg(3), Content_Length="2000000000"),
        "file": "file:///etc/passwd",
        "fine": fine,
    }
    web.say("/v1/images/", results(*(openverse(name, url) for name, url in urls.items())))
    said = reasons(gather())
    assert said["fine"] == "kept"
    assert said["small"].startswith("too small: 100 × 90")
    assert said["drawn"].startswith("not a photograph")
    assert said["broken"].startswith("broken")
    assert said["page"].startswith("not a photograph")
    assert said["svg"].startswith("not a photograph")
    assert said["gone"] == "127.0.0.1 answered 404"
    assert said["long"].startswith("it has 2,000,000,000 bytes")
    assert "file" not in said
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert sum(name.startswith("ship-on-grass-openverse-") for name in names) == 1
    asked = len(web.asked)
    gather()
    assert len(web.asked) == asked


def test_two_gigabytes(web: Web, gather: Gather) -> None:
    """A file without a stated length that goes on for 2 GB is cut off at the limit, and the rest is
    never read.
    """
    written = []

    def endless(web: Web, handler: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
        handler.send_response(200)
        handler.end_headers()
        for _ in range(2_000):
            handler.wfile.write(b"\xff\xd8\xff" + b"x" * (1 << 20))
            written.append(1)

    web.say("/v1/images/", results(openverse("huge", web.do("/p/huge.jpg", endless))))
    assert reasons(gather(max_bytes=5_000_000))["huge"] == "it has more than the 5,000,000 bytes allowed"
    time.sleep(0.05)
    assert len(written) < 100


def test_endless_pages(web: Web, gather: Gather, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that repeats itself ends at once; one that always has something new, and nothing to
    keep, at the most pages.
    """
    web.say("/v1/images/", results(openverse("same", web.say("/p/a.jpg", jpeg(1))), pages=10**6))
    gather()
    assert sum(path.startswith("/v1/") for path in web.asked) == 2
    monkeypatch.setattr(room, "MAX_PAGES", 7)

    def always(web: Web, handler: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
        new = openverse(
            f"new{query['page']}", f"{web.url}/p/{query['page']}.jpg", license="by-nc", license_url=None
        )
        send(handler, json.dumps(results(new, pages=10**6)).encode())

    web.do("/v1/images/", always)
    web.asked.clear()
    gather(queries=("frog in forest",))
    assert len(web.asked) == 7


def test_endless_answer(web: Web, gather: Gather, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer to a search that does not end is an error that names the service."""
    monkeypatch.setattr("sorites.apps.collecting.client.MAX_RESPONSE_BYTES", 100_000)
    web.say("/v1/images/", "[" * 200_000)
    with pytest.raises(SoritesError, match="100,000 bytes|200,000 bytes"):
        gather()
    for body in ("[[[[", '{"results": 5}', "[]", "{}", '{"results": [5, null, {}]}'):
        web.say("/v1/images/", body)
        if "null" in body:
            assert gather().rows == []
        else:
            with pytest.raises(SoritesError, match="JSON|format"):
                gather()


def test_redirects(web: Web, gather: Gather) -> None:
    """A redirect is followed on the service's own machine, and to no private machine, other scheme,
    or round in a circle.
    """
    web.say("/p/real.jpg", jpeg(1))
    urls = {
        "fine": web.say("/r/fine", b"", 302, Location="/p/real.jpg"),
        "private": web.say("/r/private", b"", 302, Location="http://10.0.0.1/x.jpg"),
        "metadata": web.say("/r/metadata", b"", 301, Location="http://169.254.169.254/latest"),
        "mapped": web.say("/r/mapped", b"", 301, Location="http://[::ffff:192.168.0.1]/x"),
        "file": web.say("/r/file", b"", 302, Location="file:///etc/passwd"),
        "ftp": web.say("/r/ftp", b"", 307, Location="ftp://example.org/x.jpg"),
        "login": web.say("/r/login", b"", 307, Location=f"http://user:pass@{web.url[7:]}/p/real.jpg"),
        "circle": web.say("/r/circle", b"", 302, Location="/r/circle"),
        "nowhere": web.say("/r/nowhere", b"", 302, Location="http://[x/y"),
    }
    web.say("/v1/images/", results(*(openverse(name, url) for name, url in urls.items())))
    said = reasons(gather())
    assert said.pop("fine") == "kept"
    assert said.pop("private") == "10.0.0.1 is not a public address"
    assert "not a public address" in said.pop("metadata")
    assert "not a public address" in said.pop("mapped")
    assert "scheme 'file'" in said.pop("file")
    assert "scheme 'ftp'" in said.pop("ftp")
    assert "password" in said.pop("login")
    assert "more than 5 times" in said.pop("circle")
    assert "an invalid URL" in said.pop("nowhere")


def test_search_stays_on_its_host(web: Web, gather: Gather) -> None:
    """A search, which may carry a key, is not sent on to another host."""
    web.say("/v1/images/", b"", 302, Location="http://127.0.0.2:9/elsewhere")
    with pytest.raises(SoritesError, match="another host"):
        gather()
    assert len(web.asked) == 1


def test_rates(web: Web, gather: Gather, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that is asked too fast is asked again after as long as it says; one that says a day
    is left for later.
    """
    slept: list[float] = []
    monkeypatch.setattr("sorites.apps.collecting.client.pause", slept.append)
    image, times = jpeg(1), iter((429, 503, 200))

    def busy(web: Web, handler: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
        status = next(times)
        send(handler, image, status, **({"Retry_After": "7"} if status == 429 else {}))

    url = web.do("/p/a.jpg", busy)
    web.say(
        "/v1/images/",
        results(openverse("a", url)),
        X_RateLimit_Limit_anon_burst="20/min",
        X_RateLimit_Available_anon_burst="0",
    )
    assert gather().kept == 1
    waited = [seconds for seconds in slept if seconds]
    assert waited[0] == pytest.approx(60, abs=1)
    assert 7 in waited
    assert 2 in waited

    web.say("/v1/images/", "no", 429, Retry_After="86400")
    found = gather(queries=("dog on sand", "cat on sand"))
    assert found.kept == 0
    assert found.waiting == ["openverse: 127.0.0.1 requests a wait of 1440 minutes"]
    web.say("/v1/images/", results(openverse("b", web.say("/p/b.jpg", jpeg(2)))))
    assert gather(queries=("dog on sand",)).kept == 1


def test_contact() -> None:
    """A contact that is none, or that would break a header, is refused before anything is asked."""
    for wrong in ("", "me", "me@example.org\r\nX: y", "ü@example.org"):
        with pytest.raises(SoritesError, match="contact"):
            room._check_contact(wrong)

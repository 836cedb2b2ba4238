"""A small web on loopback: three image searches in the shapes of the real ones, and the machine
that their images lie on.
"""

from __future__ import annotations

import io
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
from PIL import Image
from tests.conftest import scene

Reply = Callable[["Web", BaseHTTPRequestHandler, dict[str, str]], None]


def jpeg(seed: int, width: int = 320, height: int = 240, quality: int = 90) -> bytes:
    """A photograph-like image."""
    out = io.BytesIO()
    Image.fromarray(scene(seed, height, width)).save(out, "JPEG", quality=quality)
    return out.getvalue()


def drawing() -> bytes:
    """A chart: flat areas of few colours."""
    flat = np.full((300, 400, 3), 255, np.uint8)
    flat[50:250, 60:120], flat[120:250, 160:220] = (200, 30, 30), (30, 30, 200)
    out = io.BytesIO()
    Image.fromarray(flat).save(out, "PNG")
    return out.getvalue()


class Web:
    """What the server says: replies by path, and every request that came."""

    def __init__(self) -> None:
        self.replies: dict[str, Reply] = {}
        self.asked: list[str] = []
        self.agents: set[str] = set()
        self.headers: list[dict[str, str]] = []
        self.url = ""

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.asked)

    def say(self, path: str, body: bytes | str | dict[str, Any], status: int = 200, **headers: str) -> str:
        """Answer a path with a body; returns its address."""
        data = (
            json.dumps(body).encode()
            if isinstance(body, dict)
            else body.encode()
            if isinstance(body, str)
            else body
        )

        def reply(web: Web, handler: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
            send(handler, data, status, **headers)

        self.replies[path] = reply
        return f"{self.url}{path}"

    def do(self, path: str, reply: Reply) -> str:
        self.replies[path] = reply
        return f"{self.url}{path}"


def send(handler: BaseHTTPRequestHandler, data: bytes, status: int = 200, **headers: str) -> None:
    handler.send_response(status)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    for name, value in {"Content-Length": str(len(data)), **named}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(data)


@contextmanager
def served() -> Iterator[Web]:
    """A web on a free port of loopback, stopped at the end."""
    web = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("content-length") or 0)
            text = self.rfile.read(length).decode() if length else parts.query
            query = {name: values[-1] for name, values in parse_qs(text).items()}
            web.asked.append(self.path)
            web.agents.add(self.headers.get("user-agent", ""))
            web.headers.append(dict(self.headers.items()))
            reply = web.replies.get(parts.path)
            try:
                if reply:
                    reply(web, self, query)
                else:
                    send(self, b"nothing here", 404)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    web.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def openverse(id_: str, url: str, **other: Any) -> dict[str, Any]:
    """A result in the shape of Openverse."""
    return {
        "id": id_,
        "title": f"Image {id_}",
        "url": url,
        "foreign_landing_url": f"https://example.org/{id_}",
        "creator": "A. Author",
        "creator_url": "https://example.org/author",
        "license": "by",
        "license_version": "4.0",
        "license_url": "https://creativecommons.org/licenses/by/4.0/",
        "attribution": "...",
        "provider": "flickr",
        "source": "flickr",
        "width": 320,
        "height": 240,
        "filetype": "jpg",
        **other,
    }


def results(*found: dict[str, Any], pages: int = 1) -> dict[str, Any]:
    """A page of Openverse's results."""
    return {
        "result_count": len(found),
        "page_count": pages,
        "page_size": 20,
        "page": 1,
        "results": list(found),
    }


def commons(
    pageid: int, url: str, licence: str = "CC BY-SA 4.0", page: str | None = None, artist: str = "A"
) -> dict[str, Any]:
    """A page of Commons with its file."""
    facts = {"LicenseShortName": licence, "Artist": artist, "ObjectName": f"Image {pageid}"}
    if page:
        facts["LicenseUrl"] = page
    return {
        "pageid": pageid,
        "ns": 6,
        "title": f"File:../../{pageid}.jpg",
        "index": pageid,
        "imagerepository": "local",
        "imageinfo": [
            {
                "size": 1,
                "width": 4000,
                "height": 3000,
                "thumburl": url,
                "thumbwidth": 320,
                "thumbheight": 240,
                "url": f"{url}?whole",
                "descriptionurl": f"https://example.org/wiki/{pageid}",
                "mime": "image/jpeg",
                "extmetadata": {
                    name: {"value": value, "source": "commons-desc-page"} for name, value in facts.items()
                },
            }
        ],
    }


FLICKR_LICENCES = {
    "stat": "ok",
    "licenses": {"license": [
        {"id": 0, "name": "All Rights Reserved", "url": ""},
        {"id": 4, "name": "CC BY 2.0", "url": "https://creativecommons.org/licenses/by/2.0/"},
        {"id": 5, "name": "CC BY-SA 2.0", "url": "https://creativecommons.org/licenses/by-sa/2.0/"},
        {"id": 7, "name": "No known copyright restrictions", "url": "https://www.flickr.com/commons/usage/"},
        {"id": 9, "name": "CC0", "url": "https://creativecommons.org/publicdomain/zero/1.0/"},
        {"id": 11, "name": "CC BY 4.0", "url": "https://creativecommons.org/licenses/by/4.0/"},
    ]},
}  # fmt: skip

"""Collections from services in the real ones' shapes, on loopback: what is kept, what is left out
and why, and nothing twice.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import polars as pl
import pytest
from PIL import Image
from tests.apps.collecting.conftest import Gather, reasons
from tests.apps.collecting.web import FLICKR_LICENCES, Web, commons, jpeg, openverse, results, send
from tests.conftest import scene

from sorites.apps.collecting.collect import FILES_BEFORE_REST, MAX_FAILURES
from sorites.apps.collecting.records import Outcome
from sorites.cli.images import _short
from sorites.core.errors import SoritesError
from sorites.core.labels import imagenet
from sorites.io.files import locked
from sorites.sources.folder import folder


def test_openverse(web: Web, gather: Gather, tmp_path: Path) -> None:
    """Every kept image has its page, author, licence with version, credit, query, date and hash;
    a second time asks nothing.
    """
    urls = [web.say(f"/p/{n}.jpg", jpeg(n)) for n in range(3)]
    web.say("/v1/images/", results(*(openverse(f"id{n}", url) for n, url in enumerate(urls))))
    found = gather()
    out = tmp_path / "out"
    assert found.kept == 3
    records = pl.read_parquet(out / "images.parquet")
    row = records.row(0, named=True)
    data = (out / row["file"]).read_bytes()
    assert data == jpeg(0)
    assert row["sha256"] == hashlib.sha256(data).hexdigest()
    assert (row["licence"], row["version"], row["queries"]) == ("by", "4.0", ["ship on grass"])
    assert row["page"] == "https://example.org/id0"
    assert row["fetched"].startswith("20")
    assert row["attribution"] in (out / "ATTRIBUTION.md").read_text().replace("\\", "")
    assert web.agents == {next(iter(web.agents))}
    assert "me@example.org" in next(iter(web.agents))
    asked = len(web.asked)
    assert gather().kept == 3
    assert len(web.asked) == asked
    assert [sample.label for sample in folder(str(out), imagenet())] == [None] * 3


def test_openverse_token(web: Web, gather: Gather, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a client's id and secret a token is asked for; none of the three reaches the folder."""
    monkeypatch.setenv("OPENVERSE_CLIENT_ID", "the-client")
    monkeypatch.setenv("OPENVERSE_CLIENT_SECRET", "the-secret")
    web.say(
        "/v1/auth_tokens/token/", {"access_token": "the-token", "token_type": "Bearer", "expires_in": 36000}
    )
    web.say("/v1/images/", results(openverse("a", web.say("/p/a.jpg", jpeg(1)))))
    assert gather().kept == 1
    sent = [headers.get("Authorization") for headers in web.headers]
    assert sent == [None, "Bearer the-token", None]
    for file in (tmp_path / "out").iterdir():
        assert not any(word in file.read_bytes() for word in (b"the-client", b"the-secret", b"the-token"))


def test_commons(web: Web, gather: Gather) -> None:
    """Commons cannot filter by licence, so it is done here; a path in a title and markup in a name
    lead nowhere.
    """
    hostile = '<a href="javascript:x">Jo<b>e</b></a> &lt;script&gt;alert(1)&lt;/script&gt;\u202e\x1b[31m'
    pages = [
        commons(1, web.say("/p/1.jpg", jpeg(1)), artist=hostile),
        commons(
            2, web.say("/p/2.jpg", jpeg(2)), "CC BY-NC 4.0", "https://creativecommons.org/licenses/by-nc/4.0"
        ),
        commons(3, web.say("/p/3.jpg", jpeg(3)), "Fair use"),
        commons(
            4, web.say("/p/4.jpg", jpeg(4)), "CC0", "http://creativecommons.org/publicdomain/zero/1.0/deed.en"
        ),
        commons(5, web.say("/p/5.jpg", jpeg(5)), "Public domain"),
    ]

    def answer(web: Web, handler: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
        assert query["gsrsearch"] == "ship on grass filetype:bitmap"
        second = "gsroffset" in query
        body = {"batchcomplete": True, "query": {"pages": pages[3:] if second else pages[:3]}}
        send(
            handler,
            json.dumps(
                body if second else {**body, "continue": {"gsroffset": 50, "continue": "gsroffset||"}}
            ).encode(),
        )

    web.do("/w/api.php", answer)
    found = gather("commons")
    said = reasons(found)
    assert said["1"] == said["4"] == "kept"
    assert said["2"] == "licence not asked for: CC BY-NC 4.0"
    assert said["3"] == "licence not asked for: Fair use"
    assert said["5"] == "licence not asked for: Public domain"
    assert not [path for path in web.asked if path.startswith(("/p/2", "/p/3", "/p/5"))]
    assert found.rows[0].found.author == "Jo e [31m"
    assert "whole" not in str(web.asked)


def test_flickr(web: Web, gather: Gather, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flickr's numbers are looked up when it is asked, its results filtered again, and the key is
    nowhere afterwards.
    """
    monkeypatch.setenv("FLICKR_API_KEY", "very-secret")
    photos = [
        {
            "id": str(n),
            "owner": "1@N2",
            "title": {"no": "text"} if n == 3 else "T",
            "ownername": "O",
            "license": licence,
            "url_l": web.say(f"/p/{n}.jpg", jpeg(n)),
            "width_l": "320",
            "height_l": 240,
        }
        for n, licence in ((1, "4"), (2, "0"), (3, "11"), (4, "7"))
    ]

    def answer(web: Web, handler: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
        assert query["api_key"] == "very-secret"
        if query["method"] == "flickr.photos.licenses.getInfo":
            return send(handler, json.dumps(FLICKR_LICENCES).encode())
        assert sorted(query["license"].split(",")) == ["11", "4", "5", "9"]
        send(handler, json.dumps({"stat": "ok", "photos": {"page": 1, "pages": 1, "photo": photos}}).encode())

    web.do("/services/rest/", answer)
    found = gather("flickr")
    assert {id_ for id_, said in reasons(found).items() if said == "kept"} == {"1", "3"}
    assert [row.found.licence.version for row in found.rows if row.found.licence] == ["2.0", "4.0"]
    assert all(b"very-secret" not in file.read_bytes() for file in (tmp_path / "out").iterdir())


def test_flickr_says_no(web: Web, gather: Gather, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the service's is told without the key; without a key the variable is named."""
    with pytest.raises(SoritesError, match="FLICKR_API_KEY"):
        gather("flickr")
    monkeypatch.setenv("FLICKR_API_KEY", "very-secret")
    web.say("/services/rest/", {"stat": "fail", "code": 100, "message": "Invalid API Key (very-secret)"})
    with pytest.raises(SoritesError, match=r"Invalid API Key \(KEY\)"):
        gather("flickr")
    web.say("/services/rest/", "no", 403)
    with pytest.raises(SoritesError) as told:
        gather("flickr")
    assert "very-secret" not in str(told.value)


@pytest.mark.slow
def test_near_duplicates(web: Web, gather: Gather, tmp_path: Path) -> None:
    """Of images that look the same the largest is kept, whichever comes first; all of them are in
    the records.
    """
    sizes = {"middle": (480, 360), "large": (800, 600), "little": (320, 240)}
    whole = Image.fromarray(scene(3, 600, 800))
    urls = {}
    for name, size in sizes.items():
        out = io.BytesIO()
        whole.resize(size, Image.Resampling.LANCZOS).save(out, "JPEG", quality=85)
        urls[name] = web.say(f"/p/{name}.jpg", out.getvalue())
    web.say("/v1/images/", results(*(openverse(name, url) for name, url in urls.items())))
    found = gather()
    said = reasons(found)
    assert said["large"] == "kept"
    assert said["middle"] == "nearly the same as openverse:large, which is larger"
    assert said["little"] == "nearly the same as openverse:large, which is larger"
    assert len(list((tmp_path / "out").glob("ship*"))) == 1
    asked = len(web.asked)
    assert reasons(gather()) == said
    assert len(web.asked) == asked


@pytest.mark.slow
def test_goes_on(web: Web, gather: Gather, tmp_path: Path) -> None:
    """A collection whose journal was cut anywhere goes on: what is there is not asked for again,
    and the end is the same.
    """
    urls = [web.say(f"/p/{n}.jpg", jpeg(n)) for n in range(4)]
    web.say("/v1/images/", results(*(openverse(f"id{n}", url) for n, url in enumerate(urls))))
    first = gather()
    out = tmp_path / "out"
    whole, images = (
        (out / "journal.jsonl").read_bytes(),
        {p.name: p.read_bytes() for p in out.glob("ship*")},
    )
    for cut in range(0, len(whole), 311):
        (out / "journal.jsonl").write_bytes(whole[:cut])
        web.asked.clear()
        assert gather().kept == first.kept == 4
        assert not [path for path in web.asked if path.startswith("/p/")]
        assert {p.name: p.read_bytes() for p in out.glob("ship*")} == images
    (out / first.rows[0].outcome.file).unlink()  # type: ignore[operator]
    web.asked.clear()
    assert gather().kept == 4
    assert web.asked == ["/p/0.jpg"]


def test_limit_and_licences_later(web: Web, gather: Gather, tmp_path: Path) -> None:
    """A larger limit goes on from where the smaller ended; a licence that is no longer expected takes
    its images away.
    """
    urls = [web.say(f"/p/{n}.jpg", jpeg(n)) for n in range(4)]
    web.say("/v1/images/", results(*(openverse(f"id{n}", url) for n, url in enumerate(urls))))
    assert gather(limit=2).kept == 2
    assert [path for path in web.asked if path.startswith("/p/")] == ["/p/0.jpg", "/p/1.jpg"]
    assert gather(limit=3).kept == 3
    assert web.counts["/p/0.jpg"] == 1
    assert gather(licence="cc0").kept == 0
    assert not list((tmp_path / "out").glob("ship*"))


def test_one_at_a_time(web: Web, gather: Gather, tmp_path: Path) -> None:
    """Two collections into one folder do not mix."""
    with (
        locked(tmp_path / "out", lock_name=".sorites.lock"),
        pytest.raises(SoritesError, match="another process"),
    ):
        gather()


@pytest.mark.slow
def test_killed(web: Web, tmp_path: Path) -> None:
    """A process that is killed in the middle leaves a folder that goes on; no image is asked for
    twice but one in the air.
    """

    def slow(web: Web, handler: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
        time.sleep(0.05)
        send(handler, jpeg(int(handler.path.split("/")[-1].split(".")[0])))

    urls = [web.do(f"/p/{n}.jpg", slow) for n in range(12)]
    web.say("/v1/images/", results(*(openverse(f"id{n}", url) for n, url in enumerate(urls))))
    words = [
        "collect",
        "ship on grass",
        "--out",
        str(tmp_path / "out"),
        "--contact",
        "me@example.org",
        "--gap",
        "0",
    ]
    runner = "import sys; from sorites.cli import main; sys.argv[0] = 'sorites'; main()"
    command = [sys.executable, "-c", runner, *words, "--base", f"openverse={web.url}/v1/images/"]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ}
    )
    end = time.monotonic() + 60
    while sum(path.startswith("/p/") for path in web.asked) < 5 and time.monotonic() < end:
        time.sleep(0.01)
    process.kill()
    process.wait(30)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ})
    assert done.returncode == 0, done.stderr
    assert "12 images in" in done.stdout
    again = [path for path, times in web.counts.items() if times > 1]
    assert len(again) <= 1


def test_one_bad_file_does_not_stop_its_host(web: Web, gather: Gather) -> None:
    """The other files of the host are fetched; in the next run the bad one comes last, and is given up in
    the end.
    """
    urls = [web.say("/p/0.jpg", b"", status=503), *(web.say(f"/p/{n}.jpg", jpeg(n)) for n in range(1, 4))]
    web.say("/v1/images/", results(*(openverse(f"id{n}", url) for n, url in enumerate(urls))))
    found = gather()
    assert found.kept == 3
    assert [line.partition(":")[0] for line in found.waiting] == ["openverse"]
    assert reasons(found)["id0"] == "not fetched yet"
    web.say("/p/4.jpg", jpeg(4))
    for _ in range(MAX_FAILURES - 1):
        web.asked.clear()
        found = gather()
    assert web.asked.count("/p/0.jpg") > 0
    assert reasons(found)["id0"].startswith("not available")
    web.asked.clear()
    assert gather().waiting == []
    assert web.asked == []


def test_a_host_rests_after_several_different_files_have_failed(web: Web, gather: Gather) -> None:
    bad = FILES_BEFORE_REST
    urls = [web.say(f"/p/{n}.jpg", b"", status=500) for n in range(bad)]
    urls += [web.say(f"/p/{n}.jpg", jpeg(n)) for n in range(bad, bad + 3)]
    web.say("/v1/images/", results(*(openverse(f"id{n}", url) for n, url in enumerate(urls))))
    assert gather().kept == 0
    assert f"/p/{bad}.jpg" not in web.asked
    # The next run begins with files that have not failed.
    web.asked.clear()
    assert gather().kept == 3
    assert web.asked[0] == f"/p/{bad}.jpg"


def test_a_query_that_a_service_rejects_is_skipped_and_named(web: Web, gather: Gather) -> None:
    url = web.say("/p/1.jpg", jpeg(1))

    def page(web: Web, handler: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
        if "moon" in query.get("q", ""):
            send(handler, b"", 400)
        else:
            send(handler, json.dumps(results(openverse("id1", url))).encode())

    web.do("/v1/images/", page)
    found = gather(queries=("ship on the moon", "ship on grass"))
    assert found.kept == 1
    assert len(found.waiting) == 1
    assert "ship on the moon" in found.waiting[0]
    assert "400" in found.waiting[0]


def test_every_outcome_has_a_name() -> None:
    assert _short(Outcome("a", file="a.jpg")) == "kept"
    assert _short(Outcome("a", reason="too small: 3 px")) == "too small"
    assert _short(Outcome("a", reason=": no name")) == "no name"
    assert _short(Outcome("a", reason="")) == "no reason given"

"""Every message between the CCAPI client and the virtual camera has the shape that public transcripts and client code
show for real bodies. It says nothing about bodies that answer otherwise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from tests.apps.studio.ccapi.test_camera import MANUAL, photographer

from sorites.apps.studio.cameras import FixedSettings
from sorites.apps.studio.ccapi import Calls, CcapiCamera
from sorites.apps.studio.virtual.camera import VirtualCamera

pytestmark = pytest.mark.slow

TEXT = {"value": str}
SETTING = {"value": str, "ability": list}
NOTHING: dict[str, Any] = {}


@dataclass(frozen=True, eq=False)
class Shape:
    """A kind of message.

    Attributes:
        method: The verb.
        path: The path after the version, as a regular expression.
        sent: The keys of the body with the types of their values; None if there is no body.
        answered: The keys of the answer, likewise; None if it is a file.
        query: The parameters, as a regular expression.
    """

    method: str
    path: str
    sent: dict[str, Any] | None = None
    answered: dict[str, Any] | None = None
    query: str = ""

    def describes(self, method: str, path: str, query: str) -> bool:
        return (
            method == self.method
            and re.fullmatch(self.path, path) is not None
            and re.fullmatch(self.query, query) is not None
        )


SHAPES = (
    Shape(
        "GET", "deviceinformation", answered={"manufacturer": str, "productname": str, "serialnumber": str}
    ),
    Shape("GET", "devicestatus/battery", answered={"name": str, "kind": str, "level": str, "quality": str}),
    Shape("GET", "devicestatus/storage", answered={"storagelist": list}),
    Shape("GET", "devicestatus/lens", answered={"name": str}),
    Shape(
        "GET", "shooting/settings/(iso|tv|av|wb|drive|metering|picturestyle|shootingmode)", answered=SETTING
    ),
    Shape("PUT", "shooting/settings/(iso|tv|av|wb|drive|metering|picturestyle|shootingmode)", TEXT, TEXT),
    Shape("GET", "shooting/settings/stillimagequality", answered={"value": dict, "ability": dict}),
    Shape(
        "PUT", "shooting/settings/stillimagequality", {"value": {"raw": str, "jpeg": str}}, {"value": dict}
    ),
    Shape("PUT", "functions/autopoweroff", TEXT, NOTHING),
    Shape("GET", "functions/autopoweroff", answered=NOTHING),
    Shape("POST", "shooting/control/shutterbutton", {"af": bool}, NOTHING),
    Shape("POST", "shooting/control/shutterbutton/manual", {"action": str, "af": bool}, NOTHING),
    Shape("POST", "shooting/liveview", {"liveviewsize": str, "cameradisplay": str}, NOTHING),
    Shape("GET", "shooting/liveview/flip"),
    Shape("GET", "event/polling", answered=NOTHING, query="timeout=(immediately|short|long)"),
    Shape("GET", r"contents(/\w+)*", answered={"path": list}, query=r"(page=\d+)?"),
    Shape(
        "GET", r"contents(/\w+)+", answered={"contentsnumber": int, "pagenumber": int}, query="kind=number"
    ),
    Shape("GET", r"contents/\w+/\w+/\w+\.\w+"),
    Shape("DELETE", r"contents/\w+/\w+/\w+\.\w+", answered=NOTHING),
)


def fits(content: Any, shape: dict[str, Any]) -> bool:
    """Whether a JSON object has all keys of a shape, with values of its types."""
    return isinstance(content, dict) and all(
        key in content
        and (fits(content[key], kind) if isinstance(kind, dict) else isinstance(content[key], kind))
        for key, kind in shape.items()
    )


@pytest.fixture
def messages() -> Iterator[list[httpx.Response]]:
    """All answers, with their requests, of a session that uses every call."""
    body, heard = VirtualCamera(photographer()), list[httpx.Response]()
    calls = Calls(body.url)
    calls._http.event_hooks = {"response": [lambda answer: (answer.read(), heard.append(answer))[0]]}
    camera = CcapiCamera(calls)
    try:
        camera.about()
        camera.prepare(FixedSettings("daylight", "standard"))
        camera.set(MANUAL)
        photo = camera.shoot()
        camera.read_fixed()
        camera.set({"mode": "auto", "shot": 1})
        camera.forget(photo)
        camera._list_files()
        camera.preview()
        calls.post("shooting/control/shutterbutton/manual", {"action": "release", "af": False})
        yield heard
    finally:
        camera.close()
        body.stop()


def test_every_message_has_a_published_shape(messages: list[httpx.Response]) -> None:
    seen = set[Shape]()
    for answer in messages:
        request = answer.request
        version, path = re.fullmatch(r"/ccapi/(ver1[0-4]0)/(.*)", request.url.path).groups()  # type: ignore[union-attr]
        name = f"{request.method} {version} {path} {request.url.query.decode()}"
        found = [
            shape for shape in SHAPES if shape.describes(request.method, path, request.url.query.decode())
        ]
        assert len(found) == 1, name
        (shape,) = found
        assert answer.status_code == 200, name
        sent = json.loads(request.content) if request.content else None
        assert (sent is None) == (shape.sent is None), name
        assert shape.sent is None or (fits(sent, shape.sent) and set(sent) == set(shape.sent)), name
        assert shape.answered is None or fits(answer.json(), shape.answered), name
        seen.add(shape)
    unused = {f"{shape.method} {shape.path}" for shape in set(SHAPES) - seen}
    assert unused == set()


def test_values_are_spelled_as_bodies_spell_them(messages: list[httpx.Response]) -> None:
    """ISO "250", shutter "1/60", aperture "f9.0"; files are named by paths below the card."""
    put = {
        answer.request.url.path.rpartition("/")[2]: json.loads(answer.request.content)["value"]
        for answer in messages
        if answer.request.method == "PUT"
    }
    assert (put["tv"], put["av"], put["shootingmode"]) == ("1/60", "f9.0", "p")
    assert put["stillimagequality"] == {"raw": "none", "jpeg": "large_fine"}
    added = [
        name
        for answer in messages
        if answer.request.url.path.endswith("event/polling")
        for name in answer.json().get("addedcontents", ())
    ]
    assert added
    assert all(re.fullmatch(r"/ccapi/ver\d+/contents/\w+/\d{3}CANON/\w+\.JPG", name) for name in added)

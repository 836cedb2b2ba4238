"""The CCAPI client against the virtual camera, which is our own; no camera was tried."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from sorites.apps.studio.cameras import CameraError, NeedsHand, Unsettled, exif_of
from sorites.apps.studio.ccapi import Calls, CcapiCamera, plain_url
from sorites.apps.studio.tls import own_context
from sorites.apps.studio.virtual.camera import FEATURES, VirtualCamera
from sorites.apps.studio.virtual.scene import Photographer, Room, View
from sorites.core.errors import SoritesError

MANUAL = {"mode": "manual", "iso": 250, "shutter": 1 / 60, "aperture": 9.0}


def photographer() -> Photographer:
    screen = np.full((240, 320, 3), 120, np.uint8)
    return Photographer(Room(View((150, 100), (60, 60, 200, 120))), lambda: (1, screen), lambda: 0.0)


@pytest.fixture
def body() -> Iterator[VirtualCamera]:
    made = VirtualCamera(photographer())
    yield made
    made.stop()


Connect = Callable[..., CcapiCamera]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connects to cameras, and ends all connections."""
    made: list[CcapiCamera] = []

    def to(url: str, *more: Any, **options: Any) -> CcapiCamera:
        made.append(CcapiCamera(Calls(url, *more, **options)))
        return made[-1]

    yield to
    for camera in made:
        camera.close()


@pytest.fixture
def camera(body: VirtualCamera, connect: Connect) -> CcapiCamera:
    return connect(body.url)


@pytest.mark.slow
def test_a_version_per_feature_and_the_verbs_that_the_body_lists(camera: CcapiCamera) -> None:
    calls = camera._calls
    assert (
        calls.path("post", "shooting/control/shutterbutton") == "/ccapi/ver100/shooting/control/shutterbutton"
    )
    assert calls.path("get", "contents") == "/ccapi/ver130/contents"
    assert calls.path("get", "event/polling").startswith("/ccapi/ver110/")
    assert not calls.can("put", "shooting/control/shutterbutton")
    with pytest.raises(CameraError, match="PUT movie"):
        calls.path("put", "movie")
    assert {feature for _, feature in FEATURES} == set(calls.features)


@pytest.mark.slow
def test_settings_are_put_and_read_back(camera: CcapiCamera, body: VirtualCamera) -> None:
    assert camera.set(MANUAL) == {"iso": 250.0, "shutter": 1 / 60, "aperture": 9.0}
    assert (body.values["iso"], body.values["tv"], body.values["av"]) == ("250", "1/60", "f9.0")
    with pytest.raises(CameraError, match=r"f/2.8 \(aperture\)"):
        camera.set({**MANUAL, "aperture": 2.8})


@pytest.mark.slow
def test_a_shot_comes_with_its_exif_and_only_once(camera: CcapiCamera) -> None:
    camera.set(MANUAL)
    photos = [camera.shoot() for _ in range(3)]
    assert len({photo.name for photo in photos}) == 3
    said = exif_of(photos[0])
    assert (said["iso"], said["aperture"]) == (250.0, 9.0)
    assert said["shutter"] == pytest.approx(1 / 60, rel=1e-3)
    assert Pillow.open(io.BytesIO(photos[0].data)).size == (150, 100)


@pytest.mark.slow
def test_automatic_exposure_empties_shutter_and_aperture(camera: CcapiCamera) -> None:
    camera.set(MANUAL)
    assert camera.set({"mode": "auto", "shot": 1}) == {}
    assert camera.about().ability["shutter"] == ()
    assert exif_of(camera.shoot())["iso"] > 250
    assert camera.set(MANUAL)["aperture"] == 9.0


@pytest.mark.slow
def test_what_is_on_the_card_before_is_never_taken_for_a_new_shot(
    body: VirtualCamera, connect: Connect
) -> None:
    first = connect(body.url)
    first.set(MANUAL)
    old = {first.shoot().name for _ in range(2)}
    body._expose(body._exposure())  # somebody else's shot, whose event nobody fetched
    second = connect(body.url)
    second.set(MANUAL)
    new = second.shoot()
    assert new.name not in old
    assert new.name.endswith("IMG_0004.JPG")


@pytest.mark.slow
def test_a_file_is_known_by_its_place_in_any_version(body: VirtualCamera, camera: CcapiCamera) -> None:
    """The event of a lost shot may name its file in another version than the list of the card."""
    camera.set(MANUAL)
    camera.shoot()
    body._expose(body._exposure())  # a shot whose answer was lost
    body._events.clear()
    camera.settle()
    (lost,) = (name for name in camera._list_files() if name.endswith("IMG_0002.JPG"))
    body._again = [lost.replace("ver130", "ver110")]  # comes with the event of the next shot
    assert camera.shoot().name.endswith("IMG_0003.JPG")


@pytest.mark.slow
def test_the_first_version_polls_with_its_own_parameter(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = {
        ("ver100" if feature == "event/polling" else version, feature): verbs
        for (version, feature), verbs in FEATURES.items()
    }
    monkeypatch.setattr("sorites.apps.studio.virtual.camera.FEATURES", older)
    body = VirtualCamera(photographer())
    try:
        calls, asked = Calls(body.url), list[str]()
        calls._http.event_hooks = {"request": [lambda request: asked.append(str(request.url))]}
        camera = CcapiCamera(calls)
        camera.set(MANUAL)
        assert camera.shoot().data
        camera.close()
    finally:
        body.stop()
    polls = {url.rpartition("/ccapi/")[2] for url in asked if "polling" in url}
    assert polls == {f"ver100/event/polling?continue={wait}" for wait in ("on", "off")}


@pytest.mark.slow
def test_the_shutter_is_always_released(
    body: VirtualCamera, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {key: verbs for key, verbs in FEATURES.items() if key[1] != "shooting/control/shutterbutton"}
    monkeypatch.setattr("sorites.apps.studio.virtual.camera.FEATURES", kept)
    camera = connect(body.url)
    camera.set(MANUAL)
    camera.shoot()
    assert body.pressed == 0
    body.faults.add("full")
    with pytest.raises(NeedsHand, match="the card is full"):
        camera.shoot()
    assert body.pressed == 0


@pytest.mark.slow
def test_a_mode_dial_that_only_a_hand_can_turn(connect: Connect) -> None:
    body = VirtualCamera(photographer(), dial="p")
    try:
        camera = connect(body.url)
        with pytest.raises(NeedsHand, match="to M.* 'p'"):
            camera.set(MANUAL)
        body.values["shootingmode"] = "m"
        assert camera.set(MANUAL)["iso"] == 250.0
    finally:
        body.stop()


@pytest.mark.slow
def test_digest_login_and_no_password_in_any_message(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = VirtualCamera(photographer(), login=("someone", 's3cret,&"x'))
    try:
        camera = connect(body.url, ("someone", 's3cret,&"x'))
        camera.set(MANUAL)
        assert camera.shoot().data
        with pytest.raises(NeedsHand, match="SORITES_CAMERA_USER") as caught:
            Calls(body.url.replace("http://", "http://someone:wr0ng@"))
        assert "wr0ng" not in str(caught.value)
        monkeypatch.setenv("SORITES_CAMERA_USER", "someone")
        monkeypatch.setenv("SORITES_CAMERA_PASSWORD", 's3cret,&"x')
        assert connect(body.url)._calls.features
    finally:
        body.stop()
    assert plain_url("http://u:p@10.0.0.1:8080/ccapi") == "http://10.0.0.1:8080"


@pytest.mark.slow
def test_a_certificate_of_its_own_is_known_by_its_fingerprint(connect: Connect) -> None:
    context, fingerprint = own_context("127.0.0.1")
    body = VirtualCamera(photographer(), tls=context)
    try:
        camera = connect(body.url, fingerprint=fingerprint)
        camera.set(MANUAL)
        assert camera.shoot().data
        with pytest.raises(SoritesError, match="another certificate"):
            Calls(body.url, fingerprint="00" * 32)
    finally:
        body.stop()


@pytest.mark.slow
def test_a_shot_whose_answer_is_lost_is_not_trusted(camera: CcapiCamera, body: VirtualCamera) -> None:
    camera.set(MANUAL)
    body.faults.add("drop_after")
    with pytest.raises(Unsettled):
        camera.shoot()
    camera.settle()
    assert camera.shoot().name.endswith("IMG_0002.JPG")


def test_something_else_at_the_address_is_said_so(body: VirtualCamera) -> None:
    with pytest.raises(SoritesError, match="no answer"):
        Calls("http://127.0.0.1:9")
    with pytest.raises(SoritesError, match="address"):
        Calls("ftp://x")


@pytest.mark.slow
def test_files_are_deleted_and_pages_of_the_card_are_read(camera: CcapiCamera, body: VirtualCamera) -> None:
    for _ in range(230):
        body.card.add(b"x")
    assert len(camera._list_files()) == 230
    camera.set(MANUAL)
    photo = camera.shoot()
    camera.forget(photo)
    assert photo.name not in camera._list_files()
    assert camera.preview()[:3] == b"\xff\xd8\xff"

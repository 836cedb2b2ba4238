"""Webcams: a video stream of Debian's ffmpeg, and the controls of a V4L2 device of ours."""

from __future__ import annotations

import contextlib
import io
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
from PIL import Image as Pillow
from tests.apps.studio.conftest import write_images
from tests.conftest import debian_program

from sorites.apps.studio.cameras import CameraError, FixedSettings, NeedsHand, Photo, exif_of
from sorites.apps.studio.capture import Options
from sorites.apps.studio.devices import DeviceOptions, open_camera
from sorites.apps.studio.session import Job, Summary, capture_all
from sorites.apps.studio.webcams.settings import optics_of
from sorites.apps.studio.webcams.video import STALE, VideoCamera
from sorites.core.errors import SoritesError

cv2 = pytest.importorskip("cv2", reason="needs: pip install 'sorites[studio]'")
# Luminance 5 N of frame N, which tells which frame a photograph shows.
COUNTING = "nullsrc=size=64x48:rate=20,geq=lum='16+5*mod(N,40)':cb=128:cr=128,format=yuvj420p"


@pytest.fixture(scope="session")
def ffmpeg() -> str:
    """Debian's ffmpeg."""
    return str(debian_program("ffmpeg", "ffmpeg"))


@pytest.fixture
def stream(ffmpeg: str) -> Iterator[Callable[[str], tuple[str, subprocess.Popen[bytes]]]]:
    """Serve a video as MJPEG over loopback HTTP to one client."""
    started: list[subprocess.Popen[bytes]] = []

    def serve(video: str) -> tuple[str, subprocess.Popen[bytes]]:
        words = [ffmpeg, "-loglevel", "error", "-re", "-f", "lavfi", "-i", video]
        url, process = serving([*words, "-c:v", "mjpeg", "-q:v", "2", "-f", "mpjpeg"], started)
        return url, process

    yield serve
    for process in started:
        process.kill()
        process.wait()


def serving(
    command: list[str],
    started: list[subprocess.Popen[bytes]],
    feed: Callable[[IO[bytes]], None] | None = None,
) -> tuple[str, subprocess.Popen[bytes]]:
    """Start an ffmpeg that serves one client, and return its address once it listens.

    Another process may take a port that was free, so that ffmpeg ends; it is started again with another one.

    Args:
        command: What to start; the address is added.
        started: Receives all processes that were started, for the caller to end.
        feed: Writes to ffmpeg's input, which it must know before it listens.
    """
    end = time.monotonic() + 120
    while time.monotonic() < end:
        port = free_port()
        url = f"http://127.0.0.1:{port}/cam.mjpg"
        stdin = subprocess.DEVNULL if feed is None else subprocess.PIPE
        process = subprocess.Popen([*command, "-listen", "1", url], stdin=stdin)
        started.append(process)
        while process.poll() is None and time.monotonic() < end:
            if listening(port):
                return url, process
            if feed is not None and process.stdin is not None:
                feed(process.stdin)
            time.sleep(0.02)
    raise TimeoutError("ffmpeg does not listen")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def listening(port: int) -> bool:
    """Tell whether a server accepts connections on a port, without using up its only connection."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


def connected(url: str) -> VideoCamera:
    """Open a stream, whose server listens: it has one client, so there is one attempt."""
    camera = open_camera(f"uvc:{url}")
    assert isinstance(camera, VideoCamera)
    return camera


def pixels(data: bytes) -> np.ndarray:
    with Pillow.open(io.BytesIO(data)) as opened:
        return np.asarray(opened.convert("RGB")).astype(float)


Stream = Callable[[str], tuple[str, "subprocess.Popen[bytes]"]]


def test_photographs_of_a_stream_have_its_colours_and_size(stream: Stream) -> None:
    url, _ = stream("color=c=0x2060C0:size=160x120:rate=20")
    camera = connected(url)
    try:
        assert "160 x 120" in camera.about().model
        assert camera.set({"mode": "auto", "shot": 1}) == {}
        photo = camera.shoot()
        np.testing.assert_allclose(pixels(photo.data).mean((0, 1)), (0x20, 0x60, 0xC0), atol=6)
        assert pixels(camera.preview()).shape == (120, 160, 3)
        with pytest.raises(CameraError, match="cannot be set"):
            camera.set({"mode": "manual", "iso": 100, "shutter": 0.1, "aperture": 2.0})
        with pytest.raises(CameraError, match="RAW"):
            camera.use_raw()
        assert len(camera.prepare(FixedSettings())) == 3
    finally:
        camera.close()


@pytest.mark.slow
def test_a_photograph_is_newer_than_the_call(stream: Stream) -> None:
    """While the program does something else frames queue up; none of them is returned."""
    url, _ = stream(COUNTING)
    camera = connected(url)
    try:
        for _ in range(3):
            before = pixels(camera.preview()).mean()
            after = pixels(camera.shoot().data).mean()
            assert ((after - before) / 5) % 40 >= STALE - 0.5
            time.sleep(0.2)
    finally:
        camera.close()


@pytest.mark.slow
def test_a_video_that_ends_needs_a_hand(stream: Stream) -> None:
    url, process = stream(COUNTING)
    camera = connected(url)
    try:
        camera.check()
        process.kill()
        with pytest.raises(CameraError, match="no more frames"):
            list(iter(camera.shoot, None))
        with pytest.raises(NeedsHand):
            camera.check()
    finally:
        camera.close()


@pytest.mark.parametrize("place", ["77", "/dev/none"])
def test_a_device_that_is_missing_is_an_error(place: str) -> None:
    with pytest.raises(CameraError, match="no video from"):
        VideoCamera(f"uvc:{place}")


class Device:
    """A V4L2 device as OpenCV shows it: controls in its units, and one that it may refuse."""

    refused: tuple[int, ...] = ()
    plugged = True

    def __init__(self, *place: Any) -> None:
        self.place, self.controls, self.released = place, dict[int, float](), False

    def isOpened(self) -> bool:
        return self.plugged

    def set(self, control: int, value: float) -> bool:
        if control in self.refused:
            return False
        self.controls[control] = value
        return True

    def get(self, control: int) -> float:
        return self.controls.get(control, 0.0)

    def read(self) -> tuple[bool, np.ndarray]:
        time.sleep(0.002)
        return not self.released, np.full((8, 8, 3), (10, 20, 30), np.uint8)

    def release(self) -> None:
        self.released = True


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> type[Device]:
    monkeypatch.setattr(cv2, "VideoCapture", Device)
    monkeypatch.setattr(Device, "refused", ())
    return Device


MANUAL = {"mode": "manual", "iso": 400, "shutter": 1 / 60, "aperture": 1.8}


def test_exposure_and_gain_are_set_in_units_of_the_device(device: type[Device]) -> None:
    camera = VideoCamera("uvc:0?aperture=1.8&gain=32")
    try:
        read = camera.set(MANUAL)
        controls = camera._video.controls
        assert camera._video.place[0] == 0
        assert controls[cv2.CAP_PROP_EXPOSURE] == 167  # 100 us each
        assert controls[cv2.CAP_PROP_GAIN] == 128
        assert controls[cv2.CAP_PROP_AUTO_EXPOSURE] == 1
        assert read == pytest.approx({"iso": 400, "shutter": 0.0167, "aperture": 1.8})
        photo = camera.shoot()
        np.testing.assert_allclose(pixels(photo.data).mean((0, 1)), (30, 20, 10), atol=2)  # BGR to RGB
        assert exif_of(photo) == pytest.approx(read)
        camera.set({"mode": "auto", "shot": 1})
        assert controls[cv2.CAP_PROP_AUTO_EXPOSURE] == 3
        assert exif_of(camera.shoot()) == {}
        with pytest.raises(CameraError, match=r"f/1.8 and cannot be set"):
            camera.set({**MANUAL, "aperture": 8.0})
        camera.forget(Photo("x", b""))
    finally:
        camera.close()


def test_a_refused_exposure_is_an_error(device: type[Device], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Device, "refused", (cv2.CAP_PROP_EXPOSURE,))
    camera = VideoCamera("uvc:/dev/video0?aperture=1.8")
    try:
        with pytest.raises(CameraError, match="after it was set to"):
            camera.set(MANUAL)
    finally:
        camera.close()


def test_a_webcam_that_was_pulled_out_is_opened_again(
    device: type[Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    camera = VideoCamera("uvc:0?aperture=1.8")
    try:
        camera.prepare(FixedSettings())
        camera.set(MANUAL)
        pulled = camera._video
        pulled.released = True
        with pytest.raises(CameraError, match="no more frames"):
            list(iter(camera.shoot, None))
        monkeypatch.setattr(Device, "plugged", False)
        with pytest.raises(NeedsHand, match="Connect it again"):
            camera.settle()
        monkeypatch.setattr(Device, "plugged", True)
        camera.settle()
        assert camera._video is not pulled
        assert cv2.CAP_PROP_AUTO_WB in camera._video.controls
        camera.set(MANUAL)
        assert exif_of(camera.shoot())["iso"] == 400
    finally:
        camera.close()


def test_options_follow_the_last_question_mark() -> None:
    assert optics_of("uvc:http://c/v?a=1", 16).place == "http://c/v?a=1"
    found = optics_of("uvc:http://c/v?a=1?aperture=f2.8", 16)
    assert (found.place, found.aperture, found.gain) == ("http://c/v?a=1", 2.8, 16)
    for wrong in ("uvc:0?aperture=none", "uvc:0?gain=-1", "uvc:0?iso=3"):
        with pytest.raises(SoritesError):
            optics_of(wrong, 16)


@pytest.mark.slow
def test_a_stream_photographs_chromium_unattended(browser: Any, ffmpeg: str, tmp_path: Path) -> None:
    """A whole capture of automatic shots: ffmpeg streams what a window of Chromium shows."""
    from playwright.sync_api import Error

    page = browser.new_page(viewport={"width": 640, "height": 400})
    frame = blank = page.screenshot(type="jpeg", quality=95)
    words = "-v quiet -f mjpeg -use_wallclock_as_timestamps 1 -i pipe:0 -c copy -f mpjpeg"
    started: list[subprocess.Popen[bytes]] = []
    links: list[str] = []
    ended: list[Summary | BaseException] = []

    def write(stdin: IO[bytes], data: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):
            stdin.write(data)
            stdin.flush()

    def work(job: Job) -> None:
        try:
            ended.append(capture_all(job, links.append))
        except BaseException as error:
            ended.append(error)

    thread: threading.Thread | None = None
    try:
        url, streaming = serving([ffmpeg, *words.split()], started, lambda stdin: write(stdin, blank))
        assert streaming.stdin is not None
        source = f"folder:{write_images(tmp_path / 'images')}"
        options = Options(patience_s=60, pause_s=0.2)
        job = Job(
            source, tmp_path / "es", "auto", 2, wanted=DeviceOptions(f"uvc:{url}", "none"), options=options
        )
        thread = threading.Thread(target=work, args=(job,))
        thread.start()
        while (
            thread.is_alive() and not links
        ):  # the camera opens within some seconds, and needs frames for it
            write(streaming.stdin, blank)
            time.sleep(0.02)
        if links:
            page.goto(links[0].rpartition(" ")[2], wait_until="commit")
        while thread.is_alive():
            with contextlib.suppress(Error):  # while Chromium changes pages, the last frame stays
                frame = page.screenshot(type="jpeg", quality=95)
            write(streaming.stdin, frame)
    finally:
        for process in started:
            process.terminate()
            with contextlib.suppress(BrokenPipeError):
                process.communicate(timeout=10)
        if thread is not None:
            thread.join(90)
        page.close()
    (done,) = ended
    assert isinstance(done, Summary), done
    assert (done.wanted, done.suspicious) == (6, {})
    likenesses = [shot.correlation for shot in job.folder().done().values()]
    assert min(one or 0 for one in likenesses) > 0.95

"""A capture that is killed at six random moments ends with every shot once and none wrongly labelled."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.apps.studio.conftest import GRID, STAGE, write_images
from tests.apps.studio.test_capture import check_whole

from sorites.apps.studio.devices import DeviceOptions
from sorites.apps.studio.folder import CaptureFolder
from sorites.apps.studio.screen.server import VirtualTv
from sorites.apps.studio.session import Job
from sorites.apps.studio.virtual.bridge import VirtualBridge
from sorites.apps.studio.virtual.camera import VirtualCamera
from sorites.apps.studio.virtual.scene import Photographer, Room
from sorites.apps.studio.virtual.studio import tv_size, view_of
from sorites.core.camera_grid import Grid
from sorites.io.logs import read_log

pytestmark = pytest.mark.slow
KILLS, IMAGES = 6, 10
RUN = "from sorites.cli import main; main()"


@pytest.mark.long
def test_six_kills_at_random_moments(tmp_path: Path) -> None:
    """Camera, lamps and television stay on; the capture is a process of its own, and is killed
    while it shoots.
    """
    grid = tmp_path / "grid.csv"
    rows = [f"{n},{s['iso']},{s['shutter']},{s['aperture']}" for n, s in enumerate(GRID.manual, 1)]
    grid.write_text("\n".join(["idx,iso,ss,aperture", *rows]), encoding="utf-8")
    images, out = write_images(tmp_path / "images", IMAGES), tmp_path / "es"
    port = _free_port()
    folder = CaptureFolder(out, "test", Grid(GRID.manual, 2))
    out.mkdir()
    folder.keep_setup("token-for-the-test-only", port)
    bridge = VirtualBridge()
    tv = VirtualTv(f"http://127.0.0.1:{port}/token-for-the-test-only/", tv_size(STAGE))
    camera = VirtualCamera(Photographer(Room(view_of(STAGE, megapixels=0.06)), tv.seen, bridge.light))
    words = [
        "studio",
        "capture",
        "--source",
        f"folder:{images}",
        "--out",
        str(out),
        "--grid",
        str(grid),
        "--auto",
        "2",
    ]
    words += [
        "--camera",
        f"ccapi:{camera.url}",
        "--lamps",
        f"hue1:{bridge.host}",
        "--settle",
        "0",
        "--calibrate-every",
        "3",
    ]
    environment = {**os.environ, "SORITES_HUE_KEY": bridge.new_key()}
    try:
        killed = _kill_often([sys.executable, "-c", RUN, *words], environment, folder)
        assert killed == KILLS
        done = subprocess.run(
            [sys.executable, "-c", RUN, *words], env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        job = Job(
            f"folder:{images}", out, str(grid), 2, wanted=DeviceOptions(camera="ccapi:x", lamps="hue1:x")
        )
        check_whole(folder, job.held(), camera)
        assert not list(out.rglob("*.tmp"))
    finally:
        tv.stop()
        camera.stop()
        bridge.stop()


def _free_port() -> int:
    """Return a free port below those that the system gives to other connections while the capture restarts."""
    for port in random.Random(os.getpid()).sample(range(20_000, 32_000), 50):
        with contextlib.suppress(OSError), socket.socket() as free:
            free.bind(("127.0.0.1", port))
            return port
    raise OSError("no free port")


def _kill_often(command: list[str], environment: dict[str, str], folder: CaptureFolder) -> int:
    """Start the capture, wait until it wrote another line or two, and kill it a random time later;
    again and again.
    """
    chance, killed = random.Random(7), 0
    for _ in range(KILLS):
        before = len(list(read_log(folder.log, "")))
        running = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        end, more = time.monotonic() + 120, chance.choice((1, 2, 3))
        while (
            len(list(read_log(folder.log, ""))) < before + more
            and time.monotonic() < end
            and running.poll() is None
        ):
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.25))
        if running.poll() is None:
            os.kill(running.pid, signal.SIGKILL)
            killed += 1
        running.wait(30)
    return killed

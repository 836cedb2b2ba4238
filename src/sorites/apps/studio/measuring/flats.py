"""Take the flat pairs and dark frames of a characterization with a camera of the studio in front of its
screen.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as Pillow

from sorites.apps.studio.cameras import (
    Camera,
    FixedSettings,
    Photo,
    format_setting,
    nearest,
    own_aperture,
    parse_value,
)
from sorites.apps.studio.measuring.sensor import DARK, FLAT
from sorites.apps.studio.screen.server import Screen
from sorites.core.errors import SoritesError
from sorites.io.files import write_bytes
from sorites.io.raw_files import read_raw

# Shares of saturation of the flat pairs; the last is saturated, which shows the full well.
SHARES = (0.02, 0.05, 0.12, 0.25, 0.4, 0.6, 0.8, 4.0)
DARKS = 4
APERTURE = 8.0
# Trial exposures until one is between these shares of saturation.
TRIALS, LOW, HIGH = 8, 0.02, 0.6
FIRST_S = 1 / 60


def photograph_flats(
    camera: Camera,
    screen: Screen,
    stage: tuple[int, int],
    isos: Sequence[float],
    folder: Path,
    say: Callable[[str], None],
) -> int:
    """Photograph a white screen at several shutter times and a black one, as RAW files, 20 per ISO.

    Args:
        camera: The camera, which must support RAW files.
        screen: The screen.
        stage: Width and height of the area for images, in pixels of the screen.
        isos: ISO speeds.
        folder: Where to write ``flat`` and ``dark``.
        say: Receives messages for the operator.

    Returns:
        The number of RAW files.
    """
    camera.prepare(FixedSettings())
    camera.use_raw()
    times, aperture = times_and_aperture(camera)
    taken = 0
    for iso in isos:
        screen.show("flat", plain(stage, 255))
        at_full = time_of_saturation(camera, screen, iso, times, aperture)
        for number, share in enumerate(SHARES, 1):
            shutter = _closest(at_full * share, times)
            params = setting(iso, shutter, aperture)
            say(f"flat pair {number} of {len(SHARES)}: {format_setting(params)}")
            for half in "ab":
                _write(camera, screen, params, folder / FLAT / f"iso{iso:g}_{number:02d}{half}")
                taken += 1
        screen.show("dark", None)
        for number in range(1, DARKS + 1):
            _write(
                camera, screen, setting(iso, times[0], aperture), folder / DARK / f"iso{iso:g}_{number:02d}"
            )
            taken += 1
    return taken


def plain(stage: tuple[int, int], value: int) -> bytes:
    """Return a PNG of one grey value for the stage."""
    file = io.BytesIO()
    Pillow.fromarray(np.full((stage[1], stage[0], 3), value, np.uint8)).save(file, "PNG")
    return file.getvalue()


def setting(iso: float, shutter: float, aperture: float) -> Mapping[str, Any]:
    """Return a manual setting."""
    return {"mode": "manual", "iso": iso, "shutter": shutter, "aperture": aperture}


def times_and_aperture(camera: Camera) -> tuple[list[float], float]:
    """Return the shutter times of a camera, and its aperture nearest to f/8, which may be its only one.

    Raises:
        SoritesError: The camera reports no shutter times.
    """
    ability = camera.about().ability
    times = [parse_value("shutter", text) for text in ability.get("shutter", ())]
    if not any(times):
        raise SoritesError("the camera reports no shutter times; turn its mode dial to M")
    return sorted(filter(None, times)), own_aperture(camera, APERTURE)


def _closest(shutter: float, times: Sequence[float]) -> float:
    return min(times, key=lambda time: abs(np.log(time / shutter)))


def shoot(camera: Camera, screen: Screen, params: Mapping[str, Any]) -> Photo:
    """Take a photograph of the screen.

    Raises:
        ScreenError: No page shows what it should.
        SoritesError: The screen changed meanwhile.
    """
    shown = screen.confirm()
    camera.set(params)
    photo = camera.shoot()
    if screen.confirm() != shown:
        raise SoritesError("the screen changed during a photograph; repeat the command")
    return photo


def _write(camera: Camera, screen: Screen, params: Mapping[str, Any], stem: Path) -> None:
    photo = shoot(camera, screen, params)
    ending = "." + photo.name.rpartition(".")[2].lower()
    write_bytes(photo.data, stem.with_name(stem.name + ending))


def time_of_saturation(
    camera: Camera, screen: Screen, iso: float, times: Sequence[float], aperture: float
) -> float:
    """Return the shutter time at which the white screen saturates the brightest colour."""
    if nearest("iso", iso, camera.about().ability["iso"]) is None:
        raise SoritesError(f"the camera cannot be set to ISO {iso:g}")
    shutter = _closest(FIRST_S, times)
    for _ in range(TRIALS):
        photo = shoot(camera, screen, setting(iso, shutter, aperture))
        raw = read_raw(photo.data, photo.name)
        sites = raw.sites()
        high, wide = sites.shape[1] // 4, sites.shape[2] // 4
        middle = sites[:, high:-high, wide:-wide].astype(np.float64)
        share = float(middle.mean((1, 2)).max() - np.mean(raw.black)) / (
            raw.white - float(np.mean(raw.black))
        )
        if LOW <= share <= HIGH:
            return shutter / share
        shutter = _closest(shutter * (1 / 16 if share > HIGH else min(16.0, 0.3 / max(share, 0.005))), times)
    raise SoritesError(
        "the screen is too bright or too dark for the camera's shutter times; change its brightness"
    )

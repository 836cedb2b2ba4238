"""Measure the screen through a camera that stores RAW files: a grey ramp, and repeated photographs of
white.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.apps.studio.cameras import Camera, FixedSettings
from sorites.apps.studio.measuring.flats import plain, setting, shoot, time_of_saturation, times_and_aperture
from sorites.apps.studio.screen.server import Screen
from sorites.io.files import write_bytes
from sorites.io.raw_files import RawImage, read_raw
from sorites.optics.display import Flicker, Ramp, fit_flicker, fit_ramp

VALUES = (0, 16, 32, 48, 64, 96, 128, 160, 192, 224, 255)
ISO = 100.0
# Share of saturation of white in the ramp.
SHARE = 0.7
# Repeated photographs per shutter time, and the longest time for flicker.
SHOTS, LONGEST_S, TIMES = 6, 1 / 40, 7
# Lux seconds at saturation are LUX / ISO; H = LENS x L t / N^2 (ISO 12232).
LUX, LENS = 78.0, 0.65
Say = Callable[[str], None]


@dataclass(frozen=True)
class Measured:
    """A screen as measured under one light of the room, and its flicker."""

    ramp: Ramp
    flicker: Flicker


def luminance(raw: RawImage, black: Sequence[float], exposure: dict[str, Any]) -> NDArray[np.float64]:
    """Return the light in the middle of the frame by colour, in cd/m2: saturation is at 78 / ISO lux
    seconds.
    """
    sites = raw.sites()
    high, wide = sites.shape[1] // 4, sites.shape[2] // 4
    means = sites[:, high:-high, wide:-wide].mean((1, 2), dtype=np.float64)
    full = LUX / exposure["iso"] * exposure["aperture"] ** 2 / (LENS * exposure["shutter"])
    colours = raw.channels.ravel()
    light = [
        (means[colours == c].mean() - black[c]) / (raw.white - black[c]) * full * raw.balance[c]
        for c in range(3)
    ]
    return np.array(light)


def measure_screen(camera: Camera, screen: Screen, stage: tuple[int, int], say: Say) -> Measured:
    """Photograph greys and repeated whites, and fit the screen's light.

    Args:
        camera: A camera with RAW files.
        screen: The screen.
        stage: Width and height of the area for images, in pixels of the screen.
        say: Receives messages for the operator.

    Raises:
        SoritesError: The screen is too dark or too bright for the camera.
    """
    camera.prepare(FixedSettings())
    camera.use_raw()
    times, aperture = times_and_aperture(camera)
    screen.show("white", plain(stage, 255))
    at_full = time_of_saturation(camera, screen, ISO, times, aperture)
    long = max((time for time in times if time <= SHARE * at_full), default=times[0])
    screen.show("black", None)
    black = _levels(_shot(camera, screen, dict(setting(ISO, times[0], aperture))))
    say(f"grey ramp of {len(VALUES)} values")
    ramp = []
    for value in VALUES:
        screen.show(f"grey {value}", plain(stage, value))
        exposure = dict(setting(ISO, long, aperture))
        ramp.append(luminance(_shot(camera, screen, exposure), black, exposure))
    return Measured(
        fit_ramp(VALUES, np.array(ramp)), _flicker(camera, screen, stage, times, (long, aperture), black, say)
    )


def _shot(camera: Camera, screen: Screen, exposure: dict[str, Any]) -> RawImage:
    photo = shoot(camera, screen, exposure)
    return read_raw(photo.data, photo.name)


def _levels(raw: RawImage) -> list[float]:
    """Return the black level by colour, from a dark photograph."""
    sites, colours = raw.sites(), raw.channels.ravel()
    means = sites.mean((1, 2), dtype=np.float64)
    return [float(means[colours == colour].mean()) for colour in range(3)]


def _flicker(
    camera: Camera,
    screen: Screen,
    stage: tuple[int, int],
    times: Sequence[float],
    exposed: tuple[float, float],
    black: Sequence[float],
    say: Say,
) -> Flicker:
    """Photograph white several times at each of some short shutter times, up to that of the ramp."""
    long, aperture = exposed
    usable = [time for time in times if time <= min(LONGEST_S, long)] or [times[0]]
    chosen = sorted({usable[round(i)] for i in np.linspace(0, len(usable) - 1, TIMES)})
    say(f"flicker: {SHOTS} photographs at each of {len(chosen)} shutter times")
    screen.show("white", plain(stage, 255))
    levels = {}
    for time in chosen:
        exposure = dict(setting(ISO, time, aperture))
        levels[time] = [
            float(luminance(_shot(camera, screen, exposure), black, exposure)[1]) for _ in range(SHOTS)
        ]
    return fit_flicker(levels)


def studio_values(measured: dict[str, Measured]) -> dict[str, Any]:
    """Return values of the simulated studio by light, for the option ``studio`` of the shift ``camera``.

    A light that was not measured keeps the built-in values.
    """
    from sorites.shifts.camera import ES_STUDIO

    white, veil = dict(ES_STUDIO.white), dict(ES_STUDIO.veil)
    for light, found in measured.items():
        white[light], veil[light] = found.ramp.white[1], found.ramp.veil
    found = measured.get("off") or next(iter(measured.values()))
    values: dict[str, Any] = {
        "gamma": round(found.ramp.gamma, 4),
        "white": {light: round(value, 3) for light, value in white.items()},
        "veil": {light: [round(value, 5) for value in colours] for light, colours in veil.items()},
    }
    if found.flicker.hz is not None:
        values |= {"flicker": round(found.flicker.depth, 4), "flicker_hz": round(found.flicker.hz, 1)}
    return values


def write_screen_suite(measured: dict[str, Measured], out: Path) -> None:
    """Write a suite whose simulated studio has the measured screen."""
    notes = [f"# Measured under the lamp {light}: {_described(found)}\n" for light, found in measured.items()]
    kept = [light for light in ("on", "off") if light not in measured]
    notes += [f"# Not measured: the lamp {light}; its values are built in.\n" for light in kept]
    text = (
        f"{''.join(notes)}"
        'about = "Any images on the measured screen, through a simulated camera."\n'
        'source = "stamps"\nmodels = ["lite0"]\n\n'
        f'[[shifts]]\nname = "camera"\noptions = {{studio = {_inline(studio_values(measured))}}}\n\n'
        "[frame]\nresize = 256\ncrop = 224\n"
    )
    write_bytes(text.encode(), out)


def _described(found: Measured) -> str:
    flicker = found.flicker
    varies = f"flicker {flicker.depth:.1%} at {flicker.hz:.0f} Hz" if flicker.hz else "no flicker"
    return (
        f"gamma {found.ramp.gamma:.3f}, {varies}; the ramp is up to {found.ramp.error:.1%} off the power law."
    )


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_inline(part)}" for key, part in value.items()) + "}"
    return str(value)

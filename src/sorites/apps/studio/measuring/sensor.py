"""Characterize the sensor of a camera from RAW files of flat pairs and dark frames, for the simulated
camera.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.io.files import write_bytes
from sorites.io.raw_files import RAW_SUFFIXES, RawImage, read_raw
from sorites.optics.photon_transfer import Planes, Sensor, Transfer, fit_sensor, measure_transfer

FLAT, DARK = "flat", "dark"
LAYOUT = "expected RAW files in FOLDER/flat (pairs at equal exposure, ordered by name) and FOLDER/dark"
# Side of the middle of the frame that is used, in pixels of one colour: at most this many, and half of the
# frame.
MAX_SIDE = 512
# Two frames of a pair may differ by this share of their signal: a lamp that drifts.
MAX_DRIFT = 0.05
# Deviations above which the page says that the sensor does not follow the model.
MAX_GAIN_RATIO, MAX_GAIN_ERROR, MAX_NONLINEARITY = 1.03, 0.05, 0.1


@dataclass(frozen=True)
class Frame:
    """The middle of a RAW file: planes per place of the mosaic, and what the file says."""

    path: Path
    planes: Planes
    raw: RawImage
    iso: float

    @property
    def exposure(self) -> tuple[float | None, ...]:
        """ISO, shutter and aperture."""
        return self.iso, self.raw.shutter, self.raw.aperture


@dataclass(frozen=True)
class Characterized:
    """The sensor of a camera as measured.

    Attributes:
        transfers: One measurement per ISO.
        sensor: The values of the simulated body.
        balance: White-balance gains as the files record them.
        frames: Number of RAW files.
        notes: What the reader of the numbers must know.
    """

    transfers: tuple[Transfer, ...]
    sensor: Sensor
    balance: tuple[float, float, float]
    frames: int
    notes: tuple[str, ...]

    def camera(self, name: str) -> dict[str, Any]:
        """Return the values of a body, for the option ``camera`` of the shift ``camera``."""
        sensor = self.sensor
        return {
            "name": name,
            "full_well_e": round(sensor.full_well_e, 1),
            "read_e": round(sensor.read_e, 4),
            "late_e": round(sensor.late_e or 0.0, 4),
            "balance": [round(gain, 4) for gain in self.balance],
            "bits": sensor.bits,
            "black_dn": sensor.black_dn,
            "base_iso": float(sensor.base_iso),
        }


def characterize(folder: Path, iso: float | None = None) -> Characterized:
    """Measure gain, read noise and full well from the RAW files of a folder.

    Args:
        folder: Contains ``flat`` (pairs of equal exposure, ordered by name) and ``dark`` (at least two
        frames); frames of several ISO speeds may be mixed.
        iso: ISO of files that do not record it.

    Raises:
        SoritesError: Frames are missing, or two frames of a pair were not taken alike.
    """
    flats, darks = (list(_frames(folder, kind, iso)) for kind in (FLAT, DARK))
    first = flats[0].raw
    speeds = sorted({frame.iso for frame in flats})
    transfers = []
    for speed in speeds:
        pairs = _pairs([frame for frame in flats if frame.iso == speed])
        dark = [frame.planes for frame in darks if frame.iso == speed]
        transfers.append(measure_transfer(pairs, dark, first.white, speed))
    sensor = fit_sensor(transfers, first.white)
    return Characterized(
        tuple(transfers), sensor, first.balance, len(flats) + len(darks), tuple(_notes(transfers, sensor))
    )


def _frames(folder: Path, kind: str, iso: float | None) -> Iterator[Frame]:
    paths = sorted(path for path in (folder / kind).rglob("*") if path.suffix.lower() in RAW_SUFFIXES)
    if not paths:
        raise SoritesError(
            f"no RAW files in {folder / kind}; {LAYOUT}. JPEG files are developed and cannot be used"
        )
    for path in paths:
        raw = read_raw(path)
        speed = raw.iso or iso
        if speed is None:
            raise SoritesError(f"{path} does not record its ISO; add {option('iso', 'N')}")
        yield Frame(path, _middle(raw.sites()), raw, speed)


def _middle(planes: Planes) -> Planes:
    """Return the middle of the frame."""
    parts = []
    for side in planes.shape[1:]:
        size = max(min(MAX_SIDE, side // 2), min(side, 16))
        parts.append(slice((side - size) // 2, (side - size) // 2 + size))
    return np.ascontiguousarray(planes[:, parts[0], parts[1]])


def _pairs(frames: Sequence[Frame]) -> list[tuple[Planes, Planes]]:
    if len(frames) % 2:
        raise SoritesError(
            f"{len(frames)} flats at ISO {frames[0].iso:g} are not pairs: the last is {frames[-1].path};"
            " take two"
            " at each exposure"
        )
    pairs = []
    for first, second in zip(frames[::2], frames[1::2], strict=True):
        _check_pair(first, second)
        pairs.append((first.planes, second.planes))
    return pairs


def _check_pair(first: Frame, second: Frame) -> None:
    if first.exposure != second.exposure or first.planes.shape != second.planes.shape:
        raise SoritesError(
            f"{first.path.name} and {second.path.name} are no pair: their size, ISO, shutter or aperture"
            " differ;"
            f" {LAYOUT}"
        )
    black = float(np.mean(first.raw.black))
    light = [float(frame.planes.mean(dtype=np.float64)) - black for frame in (first, second)]
    if abs(light[0] - light[1]) > MAX_DRIFT * max(max(light), 1.0):
        raise SoritesError(
            f"{first.path.name} and {second.path.name} are no pair: the light changed from {light[0]:.0f} to"
            f" {light[1]:.0f} digital numbers; use a light that does not flicker, or a longer exposure"
        )


def _notes(transfers: Sequence[Transfer], sensor: Sensor) -> Iterator[str]:
    if sensor.late_e is None:
        yield "one ISO: noise before and after the gain cannot be told apart; all is taken as before"
    if not any(transfer.saturation_seen for transfer in transfers):
        yield "no flat is saturated: the full well follows from the white level that the files record"
    if sensor.gain_error > MAX_GAIN_ERROR:
        yield (
            f"the gain is not proportional to the ISO (up to {sensor.gain_error:.0%} off): a simulated"
            " body is, so"
            " it is only right on average"
        )
    for transfer in transfers:
        if max(transfer.gains) > MAX_GAIN_RATIO * min(transfer.gains):
            gains = ", ".join(f"{gain:.4g}" for gain in transfer.gains)
            yield f"ISO {transfer.iso:g}: the colours have different gains ({gains} DN/e); their mean is used"
        if transfer.nonlinearity > MAX_NONLINEARITY:
            yield (
                f"ISO {transfer.iso:g}: the noise is up to {transfer.nonlinearity:.0%} off the"
                " photon-transfer line:"
                " the files may be processed, or the light flickers"
            )


def write_suite(measured: Characterized, name: str, out: Path) -> None:
    """Write a suite whose simulated camera has the measured sensor."""
    camera = ", ".join(f"{key} = {_toml(value)}" for key, value in measured.camera(name).items())
    notes = "".join(f"# Note: {note}.\n" for note in measured.notes)
    text = (
        f"# Measured by photon transfer from {measured.frames} RAW files. Pixel pitch, tone curve, ranges"
        " and noise\n"
        f"# reduction were not measured: they are those of the built-in body.\n{notes}"
        f"about = {_toml(f'Any images through a simulated camera with the measured sensor of {name}.')}\n"
        'source = "stamps"\nmodels = ["lite0"]\n\n'
        f'[[shifts]]\nname = "camera"\noptions = {{camera = {{{camera}}}}}\n\n'
        "[frame]\nresize = 256\ncrop = 224\n"
    )
    write_bytes(text.encode(), out)


def _toml(value: Any) -> str:
    # A string of JSON is one of TOML.
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)

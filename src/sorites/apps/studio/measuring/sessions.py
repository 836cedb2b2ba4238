"""Sessions that measure a device: open it, photograph the screen, close it, and return a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from sorites.apps.studio.calibration import PATIENCE_S, stage_size
from sorites.apps.studio.devices import DeviceOptions, Devices, open_devices
from sorites.apps.studio.measuring.flats import photograph_flats
from sorites.apps.studio.measuring.screen import Measured, measure_screen, write_screen_suite
from sorites.apps.studio.measuring.sensor import Characterized, characterize, write_suite
from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.optics.photon_transfer import Estimate

ISO = 100.0
Say = Callable[[str], None]


@contextmanager
def opened(
    options: DeviceOptions, stage: str, port: int, say: Say
) -> Iterator[tuple[Devices, tuple[int, int]]]:
    """Open the devices and wait for the screen; yield them and the size of the stage."""
    size = stage_size(stage)
    devices = open_devices(options, size, port=port)
    try:
        if devices.virtual is None or devices.virtual.tv is None:
            say(f"open this link full screen on the screen: {devices.screen.url}")
            devices.screen.show("start", None, wait=PATIENCE_S)
        yield devices, size
    finally:
        devices.close()


def characterize_camera(
    folder: Path,
    out: Path,
    name: str,
    isos: Sequence[float],
    options: DeviceOptions | None,
    stage: str,
    port: int,
    say: Say,
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Characterize a camera from a folder of RAW files, taken before if devices are given, and write the
    suite.

    Returns:
        One row per ISO, and notes.
    """
    if options is None and len(isos) > 1:
        raise SoritesError(
            f"{option('iso', 'N')} once is the ISO of files that do not record it; several are for"
            f" photographs that are taken now ({option('camera', 'SPEC')})"
        )
    if options is not None:
        if folder.exists() and any(folder.iterdir()):
            raise SoritesError(f"{folder} is not empty; choose another folder for the RAW files")
        with opened(options, stage, port, say) as (devices, size):
            photograph_flats(devices.camera, devices.screen, size, isos or (ISO,), folder, say)
    measured = characterize(folder, isos[0] if len(isos) == 1 and options is None else None)
    write_suite(measured, name, out)
    return table_of(measured), measured.notes


def measure_screen_light(options: DeviceOptions, out: Path, stage: str, port: int, say: Say) -> pl.DataFrame:
    """Measure gamma, veil and flicker of a screen under each light of the lamps, and write the suite.

    Returns:
        One row per light; without lamps, the room is taken as dark ("off").
    """
    measured = {}
    with opened(options, stage, port, say) as (devices, size):
        for light in ("off",) if options.lamps == "none" else ("off", "on"):
            devices.lamps.set(light)
            measured[light] = measure_screen(devices.camera, devices.screen, size, say)
    write_screen_suite(measured, out)
    return pl.DataFrame([_row(light, found) for light, found in measured.items()])


def _row(light: str, found: Measured) -> dict[str, float | str | None]:
    colours = ("red", "green", "blue")
    return {
        "light": light,
        "gamma": found.ramp.gamma,
        **{f"white_{name}": value for name, value in zip(colours, found.ramp.white, strict=True)},
        **{f"veil_{name}": value for name, value in zip(colours, found.ramp.veil, strict=True)},
        "ramp_error": found.ramp.error,
        "flicker": found.flicker.depth,
        "flicker_hz": found.flicker.hz,
    }


def table_of(measured: Characterized) -> pl.DataFrame:
    """Return one row per ISO: gain (DN per electron), read noise and full well (electrons) with 95 %
    intervals.
    """
    rows = [
        {
            "iso": transfer.iso,
            **_columns("gain", transfer.gain),
            **_columns("read_e", transfer.read_e),
            **_columns("full_e", transfer.full_e),
            "black_dn": transfer.black_dn,
            "nonlinearity": transfer.nonlinearity,
            "pairs": transfer.pairs,
        }
        for transfer in measured.transfers
    ]
    return pl.DataFrame(rows)


def _columns(name: str, estimate: Estimate) -> dict[str, float]:
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}

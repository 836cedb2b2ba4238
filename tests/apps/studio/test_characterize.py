"""Characterization of the virtual camera: RAW files over HTTP, read by LibRaw, must give back its sensor."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

from sorites.apps.studio.devices import DeviceOptions
from sorites.apps.studio.measuring.sensor import characterize
from sorites.apps.studio.measuring.sessions import characterize_camera
from sorites.apps.studio.virtual.dng import encode_dng
from sorites.core.errors import SoritesError
from sorites.optics.camera import EOS_RP, Exposure
from sorites.shifts.camera import options
from sorites.suites.suite import load

pytest.importorskip("rawpy", reason="needs: pip install 'sorites[raw]'")
pytest.importorskip("httpx", reason="needs: pip install 'sorites[studio]'")


VIRTUAL = DeviceOptions("virtual", "none", megapixels=0.2)


@pytest.mark.slow
def test_twenty_frames_of_the_virtual_camera_give_back_its_sensor(tmp_path: Path) -> None:
    out = tmp_path / "camera.toml"
    table, notes = characterize_camera(
        tmp_path / "frames",
        out,
        "mine",
        (100,),
        VIRTUAL,
        "500x500",
        0,
        lambda text: None,
    )
    assert len(list((tmp_path / "frames").rglob("*.dng"))) == 20
    row = table.row(0, named=True)
    assert row["gain"] == pytest.approx(EOS_RP.dn_per_e(100), rel=0.03)
    assert row["read_e"] == pytest.approx(EOS_RP.noise_e(100), rel=0.03)
    assert row["full_e"] == pytest.approx(EOS_RP.full_well_e, rel=0.03)
    assert any("one ISO" in note for note in notes)
    written = tomllib.loads(out.read_text())
    (shift,) = written["shifts"]
    assert load(str(out)).shifts[0].name == "camera"
    assert options(**shift["options"]).settings  # the simulated camera takes the description
    assert shift["options"]["camera"]["full_well_e"] == pytest.approx(50_000, rel=0.03)
    with pytest.raises(SoritesError, match="not empty"):
        characterize_camera(
            tmp_path / "frames",
            out,
            "mine",
            (),
            VIRTUAL,
            "500x500",
            0,
            lambda text: None,
        )


def frames(folder: Path, levels: dict[str, tuple[float, Exposure | None]]) -> Path:
    rng = np.random.default_rng(0)
    for name, (electrons, exposure) in levels.items():
        values = rng.poisson(electrons, (64, 64)) * 0.3 + 512 + rng.normal(0, 3, (64, 64))
        path = folder / f"{name}.dng"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode_dng(np.clip(values, 0, 16383).astype(np.uint16), EOS_RP, exposure))
    return folder


AT = Exposure(100, 1 / 60, 8)
GOOD = {"flat/a": (9000.0, AT), "flat/b": (9000.0, AT), "dark/a": (0.0, AT), "dark/b": (0.0, AT)}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"flat/b": (9000.0, Exposure(100, 1 / 30, 8))}, "are no pair"),
        ({"flat/b": (5000.0, AT)}, "the light changed"),
        ({"flat/c": (9000.0, AT)}, "not pairs"),
        ({"flat/a": (9000.0, None), "flat/b": (9000.0, None)}, "does not record its ISO"),
    ],
)
def test_frames_that_were_not_taken_alike_are_refused(
    tmp_path: Path, changed: dict[str, tuple[float, Exposure | None]], message: str
) -> None:
    with pytest.raises(SoritesError, match=message):
        characterize(frames(tmp_path, GOOD | changed))


def test_any_name_is_written(tmp_path: Path) -> None:
    name, out = 'My "R5" \\ été', tmp_path / "c.toml"
    characterize_camera(frames(tmp_path, GOOD), out, name, (), None, "500x500", 0, [].append)
    (shift,) = load(str(out)).shifts
    assert shift.options["camera"]["name"] == name
    with pytest.raises(SoritesError, match="several"):
        characterize_camera(tmp_path, out, name, (100, 200), None, "500x500", 0, [].append)

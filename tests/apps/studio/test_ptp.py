"""PTP through libgphoto2's own virtual camera, which nobody here wrote, in a process of its own: it
reads the environment.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image as Pillow
from tests.conftest import scene

pytest.importorskip("gphoto2", reason="needs: pip install 'sorites[studio]'")

SCRIPT = """
import os, pathlib, gphoto2
os.environ["IOLIBS"] = str(pathlib.Path(gphoto2.__file__).parent / "libgphoto2" / "vusb")
os.environ["VCAMERADIR"] = {folder!r}
from sorites.apps.studio.ptp import PtpCamera, cameras_on_usb
from sorites.apps.studio.cameras import CameraError, exif_of
print(cameras_on_usb())
camera = PtpCamera()
about = camera.about()
can = about.ability
print(about.model, len(can["aperture"]) > 3, len(can["shutter"]) > 3, can["iso"])
settings = ("aperture", 8.0, ("aperture", "f-number")), ("shutter", 1 / 100, ("shutterspeed",))
for key, value, names in settings:
    from sorites.apps.studio.cameras import nearest, parse_value
    text = nearest(key, value, about.ability[key])
    camera._put(camera._name(key), text)
    print(key, parse_value(key, camera._value(*names)))
try:
    camera.set({{"mode": "manual", "iso": 400, "shutter": 1 / 100, "aperture": 8.0}})
except CameraError as error:
    print("refused", error)
from sorites.apps.studio.cameras import FixedSettings
print("prepared", camera.prepare(FixedSettings()), dict(camera.read_fixed()))
print("automatic", dict(camera.set({{"mode": "auto", "shot": 1}})))
names = set()
for _ in range(2):
    photo = camera.shoot()
    names.add(photo.name)
    print(photo.name, len(photo.data) > 100, photo.data[:2] == b"\\xff\\xd8")
camera.settle()
camera.close()
"""


@pytest.mark.slow
def test_detect_set_shoot_and_download(tmp_path: Path) -> None:
    card = tmp_path / "card" / "DCIM" / "100GPHOT"
    card.mkdir(parents=True)
    Pillow.fromarray(scene(1)).save(card / "GPH_0001.JPG")  # what the virtual camera gives as its shots
    script = SCRIPT.format(folder=str(tmp_path / "card"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert "Nikon DSC D750" in said[0]
    assert said[1].startswith("Nikon DSC D750 True True ()") or "True True" in said[1]
    assert "aperture 8.0" in said
    assert any(line.startswith("shutter 0.01") for line in said)
    assert any(line.startswith("refused") for line in said), (
        "this body has no ISO, and a setting is never taken half"
    )
    prepared = next(line for line in said if line.startswith("prepared"))
    assert "white balance" in prepared, "a setting that this body does not have is reported"
    assert "automatic {}" in said
    shots = [line for line in said if "/store_" in line]
    assert len(shots) == 2
    assert all(line.endswith("True True") for line in shots)

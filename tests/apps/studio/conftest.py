"""A small virtual studio: tiny frames, tiny images, the same servers and clients as a large one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image as Pillow
from tests.conftest import scene

from sorites.apps.studio.capture import Capture, Options
from sorites.apps.studio.devices import DeviceOptions, Devices, open_devices
from sorites.apps.studio.folder import CaptureFolder
from sorites.apps.studio.references import Reference, references
from sorites.core.camera_grid import Grid

pytest.importorskip("httpx", reason="needs: pip install 'sorites[studio]'")
pytest.importorskip("cv2", reason="needs: pip install 'sorites[studio]'")

STAGE = (160, 120)
GRID = Grid(
    (
        {"iso": 250, "shutter": 1 / 4, "aperture": 9.0},
        {"iso": 2000, "shutter": 1 / 60, "aperture": 5.0},
    ),
    shots=2,
)


def write_images(root: Path, count: int = 3) -> Path:
    """Write labelled images of one size."""
    for i in range(count):
        folder = root / ("n01440764", "n01443537")[i % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Pillow.fromarray(scene(i, STAGE[1], STAGE[0])).save(folder / f"p{i}.png")
    return root


@pytest.fixture
def held(tmp_path: Path) -> list[Reference]:
    """Three images to photograph."""
    from sorites import core
    from sorites.core.labels import labels

    space = labels(["n01440764", "n01443537"])
    return references(core.source(f"folder:{write_images(tmp_path / 'images')}", space), space)


@pytest.fixture
def devices() -> Iterator[Devices]:
    opened = open_devices(DeviceOptions(megapixels=0.06), STAGE)
    yield opened
    opened.close()


@pytest.fixture
def folder(tmp_path: Path, held: list[Reference]) -> CaptureFolder:
    made = CaptureFolder(tmp_path / "es", "test", GRID)
    made.prepare(held)
    return made


def capture_of(
    folder: CaptureFolder, devices: Devices, said: list[str] | None = None, **options: object
) -> Capture:
    """Return a capture that loses no time with pauses."""
    quick = Options(pause_s=0.05, patience_s=20, **options)  # type: ignore[arg-type]
    return Capture(
        folder,
        devices.screen,
        devices.lamps,
        devices.camera,
        STAGE,
        quick,
        [].append if said is None else said.append,
    )

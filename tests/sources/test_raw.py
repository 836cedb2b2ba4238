"""The source of RAW files: labels, the developed image, and dials before and after the development."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sorites import core
from sorites.apps.studio.virtual.dng import encode_dng
from sorites.core.errors import SoritesError
from sorites.core.labels import labels
from sorites.optics.camera import EOS_RP

pytest.importorskip("rawpy", reason="needs: pip install 'sorites[raw]'")
SPACE = labels(["cat", "dog"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i, name in enumerate(("cat", "dog")):
        (tmp_path / name).mkdir()
        values = np.random.default_rng(i).integers(600, 4000, (40, 60), dtype=np.uint16)
        (tmp_path / name / f"{i}.DNG").write_bytes(encode_dng(values, EOS_RP))
    (tmp_path / "cat/notes.txt").write_text("no RAW file")
    return tmp_path


def test_samples_are_labelled_by_folder(folder: Path) -> None:
    samples = list(core.source(f"raw:{folder}", SPACE))
    assert [(sample.id, sample.label) for sample in samples] == [("cat/0.DNG", 0), ("dog/1.DNG", 1)]
    assert samples[0].load().shape == (20, 30, 3)


def test_dials_move_from_the_developed_image(folder: Path) -> None:
    sample = next(iter(core.source(f"raw:{folder}", SPACE)))
    clean = sample.load() / 255
    means = {}
    for dial in sample.dials:
        images = list(dial.sweep([1e-6, *dial.levels]))
        np.testing.assert_allclose(images[0], clean, atol=0.6 / 255)
        means[dial.name] = [float(image.mean()) for image in images]
        distance = [float(np.abs(image - clean).mean()) for image in images]
        assert distance == sorted(distance)
    assert means["raw_exposure"] == sorted(means["raw_exposure"])
    assert means["raw_exposure_down"] == sorted(means["raw_exposure_down"], reverse=True)


def test_sensor_and_isp_are_apart(folder: Path) -> None:
    """A stop on the sensor values is not a stop on the developed image: the tone curve lies between."""
    sample = next(iter(core.source(f"raw:{folder}", SPACE)))
    dial = next(dial for dial in sample.dials if dial.name == "raw_exposure")
    before = next(iter(dial.sweep([2.0])))
    after = core.shift("exposure_stops")(
        (sample.load() / 255).astype(np.float32), 2.0, np.random.default_rng(0)
    )
    assert float(np.abs(before - after).mean()) > 0.02


@pytest.mark.parametrize("spec", ["raw", "raw:none", "raw:{}"])
def test_a_folder_without_raw_files_is_refused(spec: str, tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match=r"raw:DIR|RAW files"):
        list(core.source(spec.format(tmp_path), SPACE))

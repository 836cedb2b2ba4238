"""The measurement of a pipeline on generated photographs, as ``sorites doctor --gpu`` prints it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow

from sorites.evaluation.pipeline.measure import PHOTOGRAPHS, check_device, write_photographs


def test_photographs_are_jpegs_and_repeat(tmp_path: Path) -> None:
    write_photographs(tmp_path, PHOTOGRAPHS + 2)
    files = sorted(tmp_path.iterdir())
    assert len(files) == PHOTOGRAPHS + 2
    assert len({path.read_bytes() for path in files}) == PHOTOGRAPHS
    image = np.asarray(Pillow.open(files[0]))
    assert image.shape == (375, 500, 3)
    assert 30 < image.std() < 80


@pytest.mark.slow
def test_a_cpu_is_measured_too() -> None:
    if importlib.util.find_spec("timm") is None:
        pytest.skip("needs timm")
    ((spec, rates),) = check_device(["timm:test_vit@random"], "cpu", 1, 0.01, samples=32)
    assert spec == "timm:test_vit@random"
    assert rates.devices == ("cpu",)
    assert rates.decodes_per_image == 1.0
    assert rates.passes == rates.least_passes == -(-rates.images // 8)
    assert rates.images_per_second > 0
    assert (rates.copies_to_device, rates.waits) == (0, 0)

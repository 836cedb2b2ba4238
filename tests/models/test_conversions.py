"""The documented recipe: export a model, quantise it, and compare the conversions under shift."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import sorites

EXAMPLE = Path(__file__).parents[2] / "examples" / "conversions.py"


@pytest.mark.slow
def test_the_recipe_of_conversions(tmp_path: Path) -> None:
    stamps = list(sorites.source("stamps"))
    for i, sample in enumerate(stamps[:4]):
        folder = tmp_path / "calibration" / str(sample.label)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(sample.image.load()).save(folder / f"{i}.png")
    command = [
        sys.executable,
        str(EXAMPLE),
        "lite0",
        f"folder:{tmp_path / 'calibration'}",
        str(tmp_path / "out"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    images = [sample.image.load() for sample in stamps[4:8]]
    torch = sorites.model("lite0")
    expected = torch(images).logits
    assert expected is not None
    sizes, gaps = {}, {}
    for name in ("net", "dynamic", "static"):
        model = sorites.model(f"onnx:{tmp_path / 'out' / name}.onnx")
        assert model.labels == torch.labels
        assert all(
            np.array_equal(model.prepare(image, False), torch.prepare(image, False)) for image in images
        )
        logits = model(images).logits
        assert logits is not None
        gaps[name] = float(np.corrcoef(logits.ravel(), expected.ravel())[0, 1])
        sizes[name] = (tmp_path / "out" / f"{name}.onnx").stat().st_size
        if name == "net":
            assert np.allclose(logits, expected, atol=1e-4)
    assert 0.9 < gaps["static"] < 1
    assert 0.9 < gaps["dynamic"] < 1
    assert max(sizes["static"], sizes["dynamic"]) < 0.35 * sizes["net"]

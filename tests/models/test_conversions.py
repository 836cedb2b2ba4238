"""The documented recipe: export a model, quantise it, and compare the conversions under shift."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import sorites
from sorites.core import ImageU8

EXAMPLE = Path(__file__).parents[2] / "examples" / "conversions.py"


def scene(seed: int) -> ImageU8:
    """Blurred colours with a little noise."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (9, 12, 3), np.uint8))
    large = np.asarray(small.resize((320, 240), Image.Resampling.BICUBIC), np.float64)
    return np.clip(large + rng.normal(0, 6, large.shape), 0, 255).astype(np.uint8)


@pytest.mark.slow
def test_the_recipe_of_conversions(tmp_path: Path) -> None:
    (tmp_path / "calibration").mkdir()
    for i in range(4):
        Image.fromarray(scene(i)).save(tmp_path / "calibration" / f"{i}.png")
    command = [
        sys.executable,
        str(EXAMPLE),
        "lite0",
        f"folder:{tmp_path / 'calibration'}",
        str(tmp_path / "out"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    images = [scene(i) for i in range(4, 8)]
    torch = sorites.model("lite0")
    expected = torch(images).logits
    assert expected is not None
    sizes, correlations = {}, {}
    for name in ("net", "dynamic", "static"):
        model = sorites.model(f"onnx:{tmp_path / 'out' / name}.onnx")
        assert model.labels == torch.labels
        assert all(
            np.array_equal(model.prepare(image, False), torch.prepare(image, False)) for image in images
        )
        logits = model(images).logits
        assert logits is not None
        correlations[name] = float(np.corrcoef(logits.ravel(), expected.ravel())[0, 1])
        sizes[name] = (tmp_path / "out" / f"{name}.onnx").stat().st_size
        if name == "net":
            assert np.allclose(logits, expected, atol=1e-4)
    assert 0.7 < correlations["static"] < 0.99999, correlations
    assert 0.7 < correlations["dynamic"] < 0.99999, correlations
    assert max(sizes["static"], sizes["dynamic"]) < 0.35 * sizes["net"]
